/* emulate.h - just enough CUDA in plain C++ to run the kernels of core/cuda on the CPU: a launch
** runs the threads of one block after another, those of a block as coroutines that wait for each
** other at __syncthreads and in shuffles. Card memory is an arena that is shut while no kernel
** runs, so that what touches it from outside dies, as on a card. Slow, for tests. */
#ifndef TL_EMULATE_H
#define TL_EMULATE_H

#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __shared__ static
#define __launch_bounds__(n)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct float2 { float x, y; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
struct alignas(16) float4 { float x, y, z, w; };

/* ---- Coroutines ------------------------------------------------------------------------------ */

/* Each has a stack of its own, made once by makecontext, and runs the body of every block from then
** on. Switches are by _setjmp, for swapcontext asks the system about signals each time. */

namespace emulate {

enum state { READY, AT_BLOCK, AT_WARP, DONE };

struct thread {
    jmp_buf at;
    char *stack; /* NULL: not begun yet */
    state where;
    dim3 index;
};

enum { MOST = 1024, STACK = 64 << 10 };

struct machine {
    thread threads[MOST];
    jmp_buf scheduler;
    int count, now, sync; /* sync: whether the launch allows waiting */
    dim3 block, grid, block_index;
    uint64_t exchange[MOST];
    void (*body)(void *);
    void *user;
    char *arena;
    size_t used;
    int open;
};

inline machine &at()
{
    static machine m;
    return m;
}

inline void die(const char *why)
{
    fprintf(stderr, "emulate: %s\n", why);
    abort();
}

inline void leave(state where)
{
    machine &m = at();
    thread &t = m.threads[m.now];
    t.where = where;
    if (_setjmp(t.at) == 0) _longjmp(m.scheduler, 1);
}

inline void entry()
{
    for (;;) {
        machine &m = at();
        m.body(m.user);
        leave(DONE);
    }
}

inline void enter(thread &t)
{
    machine &m = at();
    if (_setjmp(m.scheduler) != 0) return;
    if (t.stack) _longjmp(t.at, 1);
    static ucontext_t first, unused;
    t.stack = (char *)malloc(STACK);
    getcontext(&first);
    first.uc_stack.ss_sp = t.stack;
    first.uc_stack.ss_size = STACK;
    first.uc_link = NULL;
    makecontext(&first, entry, 0);
    swapcontext(&unused, &first);
}

inline void wait(state where)
{
    machine &m = at();
    if (!m.sync) die("a kernel that waits was launched by LAUNCH, not LAUNCH_SYNC");
    leave(where);
}

/* Threads from..to-1 that all wait (or are done) go on. */
inline bool release(int from, int to, state where)
{
    machine &m = at();
    bool any = false;
    for (int i = from; i < to; i++) {
        state s = m.threads[i].where;
        if (s != where && s != DONE) return false;
        any = any || s == where;
    }
    for (int i = from; i < to && any; i++)
        if (m.threads[i].where == where) m.threads[i].where = READY;
    return any;
}

inline void run_waiting()
{
    machine &m = at();
    for (;;) {
        bool ran = false, left = false;
        for (int i = 0; i < m.count; i++) {
            if (m.threads[i].where != READY) continue;
            m.now = i;
            enter(m.threads[i]);
            ran = true;
        }
        for (int w = 0; w < m.count; w += 32)
            ran |= release(w, w + 32 < m.count ? w + 32 : m.count, AT_WARP);
        ran |= release(0, m.count, AT_BLOCK);
        for (int i = 0; i < m.count; i++) left |= m.threads[i].where != DONE;
        if (!left) return;
        if (!ran) die("threads of a block wait for different things");
    }
}

inline void run_block()
{
    machine &m = at();
    for (int i = 0; i < m.count; i++)
        m.threads[i].index = dim3(i % m.block.x, i / m.block.x % m.block.y,
                                  i / m.block.x / m.block.y);
    if (!m.sync) {
        for (m.now = 0; m.now < m.count; m.now++) m.body(m.user);
        return;
    }
    for (int i = 0; i < m.count; i++) m.threads[i].where = READY;
    run_waiting();
}

enum { HUGE_PAGE = 2 << 20 }; /* of which the arena is made, so that shutting it is quick */

inline void protect(bool open)
{
    machine &m = at();
    size_t size = (m.used + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (mprotect(m.arena, size, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        die("mprotect failed");
}

inline void guard(bool open)
{
    machine &m = at();
    int before = m.open;
    m.open += open ? 1 : -1;
    if (m.used > 0 && (before == 0 || m.open == 0)) protect(open);
}

template <class F> void launch(int sync, dim3 grid, dim3 block, F f)
{
    machine &m = at();
    m.sync = sync;
    m.grid = grid;
    m.block = block;
    m.count = (int)(block.x * block.y * block.z);
    if (m.count < 1 || m.count > MOST || grid.x < 1 || grid.y > 65535 || grid.z > 65535)
        die("a launch of a size that no card takes");
    m.user = &f;
    m.body = [](void *user) { (*(F *)user)(); };
    guard(true);
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                m.block_index = dim3(x, y, z);
                run_block();
            }
    guard(false);
}

template <class T> T shuffle(T value, int from)
{
    machine &m = at();
    uint64_t bits = 0;
    int me = m.now, base = me / 32 * 32;
    memcpy(&bits, &value, sizeof value);
    m.exchange[me] = bits;
    wait(AT_WARP);
    bits = m.exchange[base + from];
    wait(AT_WARP);
    memcpy(&value, &bits, sizeof value);
    return value;
}

} /* namespace emulate */

#define threadIdx (emulate::at().threads[emulate::at().now].index)
#define blockIdx  (emulate::at().block_index)
#define blockDim  (emulate::at().block)
#define gridDim   (emulate::at().grid)

#define LAUNCH(kernel, blocks, threads, ...) \
    emulate::launch(0, dim3(blocks), dim3(threads), [&] { kernel(__VA_ARGS__); })
#define LAUNCH_SYNC(kernel, blocks, threads, ...) \
    emulate::launch(1, dim3(blocks), dim3(threads), [&] { kernel(__VA_ARGS__); })

static inline void __syncthreads() { emulate::wait(emulate::AT_BLOCK); }
static inline void __syncwarp(unsigned = 0xffffffffu) { emulate::wait(emulate::AT_WARP); }

template <class T> T __shfl_xor_sync(unsigned, T value, int mask)
{
    return emulate::shuffle(value, (emulate::at().now % 32) ^ mask);
}

template <class T> T __shfl_down_sync(unsigned, T value, int by)
{
    int lane = emulate::at().now % 32;
    return emulate::shuffle(value, lane + by < 32 ? lane + by : lane);
}

template <class T> T __shfl_sync(unsigned, T value, int lane)
{
    return emulate::shuffle(value, lane);
}

static inline int atomicMax(int *p, int v)
{
    int was = *p;
    if (v > was) *p = v;
    return was;
}

static inline unsigned __float_as_uint(float f)
{
    unsigned u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float __uint_as_float(unsigned u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline void sincospif(float x, float *s, float *c)
{
    *s = (float)sin(M_PI * x);
    *c = (float)cos(M_PI * x);
}

/* ---- The runtime ----------------------------------------------------------------------------- */

typedef enum { cudaSuccess, cudaErrorMemoryAllocation, cudaErrorInvalidValue } cudaError_t;
typedef enum {
    cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice
} cudaMemcpyKind;
typedef enum {
    cudaMemPoolAttrReleaseThreshold, cudaMemPoolAttrUsedMemCurrent, cudaMemPoolAttrUsedMemHigh,
    cudaMemPoolAttrReservedMemCurrent
} cudaMemPoolAttr;
typedef int cudaStream_t;
typedef int cudaMemPool_t;
struct cudaDeviceProp {
    char name[256];
    int major, minor;
    size_t totalGlobalMem;
};

namespace emulate {

struct piece {
    size_t at;
    int size; /* log2 */
    bool taken;
    piece *next;
};

struct pool {
    piece *first;
    uint64_t used, high;
};

inline pool &pieces()
{
    static pool p;
    return p;
}

inline size_t room() /* EMULATE_MIB: how much the card has, for tests of running out of it */
{
    const char *given = getenv("EMULATE_MIB");
    return (size_t)(given ? atoi(given) : 4096) << 20;
}

inline cudaError_t take(void **out, size_t bytes)
{
    machine &m = at();
    pool &p = pieces();
    int size = 12; /* a page at least: pages are what is shut */
    while (((size_t)1 << size) < bytes) size++;
    if (!m.arena) {
        m.arena = (char *)mmap(NULL, ((size_t)4096 << 20) + HUGE_PAGE, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m.arena == MAP_FAILED) die("no room for the card's memory");
        m.arena += HUGE_PAGE - (uintptr_t)m.arena % HUGE_PAGE;
        (void)madvise(m.arena, (size_t)4096 << 20, MADV_HUGEPAGE); /* only advice */
    }
    piece *q = p.first;
    while (q && (q->taken || q->size != size)) q = q->next;
    if (!q) {
        if (((size_t)1 << size) > room() - m.used) return cudaErrorMemoryAllocation;
        q = new piece{m.used, size, true, p.first};
        p.first = q;
        m.used += (size_t)1 << size;
        if (m.open) protect(true);
    }
    q->taken = true;
    p.used += (uint64_t)1 << size;
    if (p.used > p.high) p.high = p.used;
    guard(true);
    memset(m.arena + q->at, 0xff, (size_t)1 << size); /* NaN: what is not written shows */
    guard(false);
    *out = m.arena + q->at;
    return cudaSuccess;
}

inline cudaError_t give(void *memory)
{
    for (piece *q = pieces().first; q; q = q->next)
        if (at().arena + q->at == (char *)memory) {
            if (!q->taken) die("card memory released twice");
            q->taken = false;
            pieces().used -= (uint64_t)1 << q->size;
            return cudaSuccess;
        }
    die("memory released that is not the card's");
    return cudaErrorInvalidValue;
}

} /* namespace emulate */

static inline cudaError_t cudaGetLastError() { return cudaSuccess; }
static inline const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation ? "out of memory" : e ? "invalid value" : "no error";
}
static inline cudaError_t cudaMallocFromPoolAsync(void **p, size_t n, cudaMemPool_t, cudaStream_t)
{
    return emulate::take(p, n);
}
template <class T> cudaError_t cudaMalloc(T **p, size_t n) { return emulate::take((void **)p, n); }
static inline cudaError_t cudaFreeAsync(void *p, cudaStream_t) { return emulate::give(p); }
static inline cudaError_t cudaFree(void *p) { return emulate::give(p); }
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind,
                                          cudaStream_t)
{
    emulate::guard(true);
    memcpy(to, from, n);
    emulate::guard(false);
    return cudaSuccess;
}
static inline cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t)
{
    emulate::guard(true);
    memset(p, byte, n);
    emulate::guard(false);
    return cudaSuccess;
}
static inline cudaError_t cudaMemset(void *p, int byte, size_t n)
{
    return cudaMemsetAsync(p, byte, n, 0);
}
static inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaStreamCreate(cudaStream_t *s) { return *s = 0, cudaSuccess; }
static inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaGetDeviceCount(int *n) { return *n = 1, cudaSuccess; }
static inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
static inline cudaError_t cudaDriverGetVersion(int *v) { return *v = 0, cudaSuccess; }
static inline cudaError_t cudaRuntimeGetVersion(int *v) { return *v = 0, cudaSuccess; }
static inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *p, int)
{
    return *p = 0, cudaSuccess;
}
static inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr what, void *)
{
    if (what == cudaMemPoolAttrUsedMemHigh) emulate::pieces().high = emulate::pieces().used;
    return cudaSuccess;
}
static inline cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
static inline cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr what, void *value)
{
    *(uint64_t *)value = what == cudaMemPoolAttrUsedMemCurrent ? emulate::pieces().used
                       : what == cudaMemPoolAttrUsedMemHigh    ? emulate::pieces().high
                                                               : emulate::at().used;
    return cudaSuccess;
}
static inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    *p = cudaDeviceProp{"emulated card", 0, 0, emulate::room()};
    return cudaSuccess;
}

/* ---- cuBLAS: the one call that is used ------------------------------------------------------- */

typedef int cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_ALLOC_FAILED } cublasStatus_t;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;
enum {
    CUDA_R_32F, CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT
};

typedef enum { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL } libraryPropertyType;
static inline cublasStatus_t cublasGetProperty(libraryPropertyType, int *v)
{
    return *v = 0, CUBLAS_STATUS_SUCCESS;
}
static inline const char *cublasGetStatusString(cublasStatus_t) { return "failed"; }
static inline cublasStatus_t cublasCreate(cublasHandle_t *h)
{
    return *h = 1, CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasDestroy(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *, size_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

static inline cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *a, int type_a, int lda, long long stride_a, const void *b,
    int type_b, int ldb, long long stride_b, const void *beta, void *c, int type_c, int ldc,
    long long stride_c, int count, int, int)
{
    auto element = [](const void *p, int type, long long i) {
        if (type == CUDA_R_32F) return ((const float *)p)[i];
        return __uint_as_float((unsigned)((const uint16_t *)p)[i] << 16);
    };
    float scale = *(const float *)alpha, keep = *(const float *)beta;
    if (type_c != CUDA_R_32F) emulate::die("a product of this type is not emulated");
    emulate::guard(true);
    for (int s = 0; s < count; s++)
        for (int j = 0; j < n; j++)
            for (int i = 0; i < m; i++) {
                double sum = 0;
                for (int p = 0; p < k; p++)
                    sum += (double)element(a, type_a, s * stride_a + (ta ? p + (long long)i * lda
                                                                         : i + (long long)p * lda))
                           *
                           (double)element(b, type_b, s * stride_b + (tb ? j + (long long)p * ldb
                                                                         : p + (long long)j * ldb));
                float *y = (float *)c + s * stride_c + i + (long long)j * ldc;
                *y = (float)(scale * sum + (keep != 0 ? (double)keep * *y : 0));
            }
    emulate::guard(false);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- cuFFT: plans of many one-dimensional transforms ----------------------------------------- */

typedef struct { float x, y; } cufftComplex;
typedef float cufftReal;
typedef enum { CUFFT_SUCCESS, CUFFT_ALLOC_FAILED, CUFFT_INVALID_SIZE } cufftResult;
typedef enum { CUFFT_R2C, CUFFT_C2R, CUFFT_C2C } cufftType;
#define CUFFT_FORWARD (-1)
#define CUFFT_INVERSE 1

typedef struct emulated_plan {
    int n, istride, idist, ostride, odist, batch;
    cufftType type;
} *cufftHandle;

static inline cufftResult cufftPlanMany(cufftHandle *plan, int rank, int *n, int *inembed,
                                        int istride, int idist, int *onembed, int ostride,
                                        int odist, cufftType type, int batch)
{
    if (rank != 1 || n[0] < 1 || batch < 1) return CUFFT_INVALID_SIZE;
    if (!inembed) istride = 1, idist = type == CUFFT_C2R ? n[0] / 2 + 1 : n[0];
    if (!onembed) ostride = 1, odist = type == CUFFT_R2C ? n[0] / 2 + 1 : n[0];
    *plan = new emulated_plan{n[0], istride, idist, ostride, odist, batch, type};
    return CUFFT_SUCCESS;
}

static inline cufftResult cufftGetVersion(int *v) { return *v = 0, CUFFT_SUCCESS; }
static inline cufftResult cufftDestroy(cufftHandle p) { return delete p, CUFFT_SUCCESS; }
static inline cufftResult cufftSetStream(cufftHandle, cudaStream_t) { return CUFFT_SUCCESS; }

namespace emulate {

/* Sums by the definition in double; in(b, j), out(b, k): pointers to real and imaginary part. */
template <class In, class Out>
void transform(cufftHandle p, int sign, int inputs, int outputs, In in,
                                              Out out)
{
    guard(true);
    double *x = (double *)malloc(sizeof(double) * 2 * (size_t)p->n), *y = x;
    double *to = (double *)malloc(sizeof(double) * 2 * (size_t)p->n);
    for (int b = 0; b < p->batch; b++) {
        for (int j = 0; j < inputs; j++) in(b, j, y + 2 * j);
        for (int j = inputs; j < p->n; j++) { /* the rest of a half spectrum */
            y[2 * j] = y[2 * (p->n - j)];
            y[2 * j + 1] = -y[2 * (p->n - j) + 1];
        }
        for (int k = 0; k < outputs; k++) {
            double re = 0, im = 0;
            for (int j = 0; j < p->n; j++) {
                double angle = sign * 2 * M_PI * (double)((long long)j * k % p->n) / p->n;
                double c = cos(angle), s = sin(angle);
                re += c * y[2 * j] - s * y[2 * j + 1];
                im += c * y[2 * j + 1] + s * y[2 * j];
            }
            to[2 * k] = re;
            to[2 * k + 1] = im;
        }
        for (int k = 0; k < outputs; k++) out(b, k, to + 2 * k);
    }
    free(x);
    free(to);
    guard(false);
}

} /* namespace emulate */

static inline cufftResult cufftExecC2C(cufftHandle p, cufftComplex *in, cufftComplex *out, int sign)
{
    emulate::transform(p, sign, p->n, p->n,
        [=](int b, int j, double *v) {
            cufftComplex z = in[(long long)b * p->idist + (long long)j * p->istride];
            v[0] = z.x, v[1] = z.y;
        },
        [=](int b, int k, double *v) {
            out[(long long)b * p->odist + (long long)k * p->ostride] = {(float)v[0], (float)v[1]};
        });
    return CUFFT_SUCCESS;
}

static inline cufftResult cufftExecR2C(cufftHandle p, cufftReal *in, cufftComplex *out)
{
    emulate::transform(p, CUFFT_FORWARD, p->n, p->n / 2 + 1,
        [=](int b, int j, double *v) {
            v[0] = in[(long long)b * p->idist + (long long)j * p->istride], v[1] = 0;
        },
        [=](int b, int k, double *v) {
            out[(long long)b * p->odist + (long long)k * p->ostride] = {(float)v[0], (float)v[1]};
        });
    return CUFFT_SUCCESS;
}

/* The imaginary parts of bin 0 and of the middle bin do not count. */
static inline cufftResult cufftExecC2R(cufftHandle p, cufftComplex *in, cufftReal *out)
{
    emulate::transform(p, CUFFT_INVERSE, p->n / 2 + 1, p->n,
        [=](int b, int j, double *v) {
            cufftComplex z = in[(long long)b * p->idist + (long long)j * p->istride];
            v[0] = z.x, v[1] = j == 0 || 2 * j == p->n ? 0 : z.y;
        },
        [=](int b, int k, double *v) {
            out[(long long)b * p->odist + (long long)k * p->ostride] = (float)v[0];
        });
    return CUFFT_SUCCESS;
}

#endif

/* cuda.cuh - declares the state of the CUDA device, launches, errors, and reductions within a
** block. Without CUDA the same files compile against tests/device/emulate.h, which runs the kernels
** on the CPU, so that tests need no GPU.
**
** Kernels are launched by LAUNCH(kernel, blocks, threads, ...) or, if they call __syncthreads or a
** shuffle, by LAUNCH_SYNC; by LAUNCH_SHARED if they also declare SHARED_WORDS, shared memory whose
** size the launch gives, and no other. All work goes to one stream, so that it runs in order. Sums
** are taken in an order that depends on shapes only, without atomic adds of floats, so that results
** repeat exactly. */
#ifndef TL_CUDA_CUH
#define TL_CUDA_CUH

#ifdef TL_EMULATE
#include "emulate_libraries.h"
#define UNROLL
#else
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cufft.h>
#define LAUNCH(kernel, blocks, threads, ...) \
    kernel<<<grid_of(blocks), threads, 0, gpu_of(ctx)->stream>>>(__VA_ARGS__)
#define LAUNCH_SYNC LAUNCH
/* All threads of the process share the limit of a kernel. Each sets it to the same, the most that
** a block may have, lest a thread lower it between another's call and launch. */
#define LAUNCH_SHARED(kernel, blocks, threads, bytes, ...)                                      \
    ((void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,            \
                                (int)gpu_shared_memory(ctx)),                                   \
     kernel<<<grid_of(blocks), threads, bytes, gpu_of(ctx)->stream>>>(__VA_ARGS__))
#define SHARED_WORDS(name) extern __shared__ __align__(16) uint32_t name[]
#define UNROLL _Pragma("unroll") /* before a loop whose counter indexes registers */

/* Read and write GPU memory. The emulation counts the bytes. */
template <class T> static __device__ __forceinline__ T gpu_load(const T *p) { return *p; }
template <class T> static __device__ __forceinline__ void gpu_store(T *p, T value) { *p = value; }
#endif

extern "C" {
#include "engine/device.h"
#include "engine/launch.h"
}

#define SLOTS      8
#ifdef TL_EMULATE
#define SLOT_BYTES ((size_t)1 << 10) /* so small that tests cover larger copies */
#else
#define SLOT_BYTES ((size_t)1 << 20)
#endif

/* Errors that a kernel can report: an index out of range, or a gamma outside (0,1]. 0 means
** none. */
#define FAULT_INDEX(i) (2 * (int64_t)(i) + 1)
#define FAULT_GAMMA    2

typedef struct gpu_graph gpu_graph; /* graph.cu */

typedef struct gpu {
    int number;
    cudaStream_t stream;
    cudaMemPool_t pool;
    cublasHandle_t blas;
    void *workspace; /* of cuBLAS; a fixed one makes its results repeat */
    int64_t *fault; /* in GPU memory: a FAULT_ that a kernel reported; each download checks it */
    struct spectra *spectra; /* the cached plans of cuFFT (transform.cu) */
    gpu_graph *graphs;      /* list of all graphs */
    gpu_graph *capture;     /* the graph that is being captured, or NULL */
    unsigned epoch;         /* the number of graphs that began when there was no other */
    uint64_t peak;          /* the most bytes in use before the last gpu_note_peak */
    tl_memory before;        /* reported during a capture, when the driver cannot be asked */
    /* Uploads go through the next of SLOTS pinned buffers, so that the CPU need not wait for the
    ** copy; NULL if there is no pinned memory. The event of a slot completes when it is
    ** free again. */
    char *slots;
    cudaEvent_t sent[SLOTS];
    int slot;
    char about[512];
} gpu;

/* The state of a context. Makes its GPU the thread's current one: a thread that did not open the
** device has the first GPU. */
static inline gpu *gpu_of(const tl_ctx *ctx)
{
    gpu *c = (gpu *)ctx->engine_state;
    int  now = 0;
    if (c && cudaGetDevice(&now) == cudaSuccess && now != c->number) (void)cudaSetDevice(c->number);
    return c;
}

/* Record the error st of the action `what`; TL_ENOMEM or TL_EDEVICE (memory.cu). */
tl_status cuda_fail(tl_ctx *ctx, cudaError_t st, const char *what);
tl_status blas_fail(tl_ctx *ctx, cublasStatus_t st, const char *what);
tl_status fft_fail(tl_ctx *ctx, cufftResult st, const char *what);

/* A count that exceeds the largest grid makes the launch fail. */
static inline unsigned grid_of(int64_t blocks)
{
    return blocks <= INT32_MAX ? (unsigned)blocks : UINT32_MAX;
}

/* Call it after a launch: returns the error of the launch, if there was one. */
static inline tl_status launched(tl_ctx *ctx, const char *what)
{
    cudaError_t st = cudaGetLastError();
    return st == cudaSuccess ? TL_OK : cuda_fail(ctx, st, what);
}

/* The most bytes of shared memory that a block may have. */
static inline size_t gpu_shared_memory(const tl_ctx *ctx)
{
    int bytes = 0;
    (void)cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                 gpu_of(ctx)->number);
    return (size_t)bytes;
}

/* GPU memory. gpu_free acts in the order of the stream, so that it may follow the last launch that
** uses the memory at once. */
tl_status gpu_alloc(tl_ctx *ctx, size_t bytes, void **out_p);
void gpu_free(tl_ctx *ctx, void *p);
/* The functions of tl_engine (memory.cu). */
tl_status gpu_upload(tl_ctx *ctx, void *to, const void *from, size_t bytes);
tl_status gpu_download(tl_ctx *ctx, void *to, const void *from, size_t bytes);
void gpu_trim(tl_ctx *ctx);
tl_memory gpu_memory(const tl_ctx *ctx); /* statistics.cu */
void gpu_reset_peak(tl_ctx *ctx);
/* Call it before graphs take or return memory, which CUDA counts apart: records the peak until
** now. */
void gpu_note_peak(gpu *c);

/* CUDA graphs (capture.cu, graph.cu). gpu_graph_allocated notes that p was allocated during the
** capture of g. gpu_graph_released notes that p is released, and returns 1 if it must not be freed
** now, because a graph owns it or the capture must end first. */
void gpu_graph_allocated(gpu_graph *g, void *p);
int gpu_graph_released(gpu *c, void *p);
/* The address, in GPU memory, of the number of random blocks by which a launch of the captured
** graph shifts its draws from the stream of key; NULL outside a capture. */
const uint64_t *gpu_graph_shift(tl_ctx *ctx, uint64_t key);
tl_status gpu_graph_begin(tl_ctx *ctx, const uint64_t *keys, int count, void **out_graph);
tl_status gpu_graph_end(tl_ctx *ctx, void *graph);
tl_status gpu_graph_run(tl_ctx *ctx, void *graph, const uint64_t *shifts);
void gpu_graph_free(tl_ctx *ctx, void *graph);
void gpu_graphs_close(tl_ctx *ctx);

/* c [m,n] = op(a) op(b) + beta c, row-major, for `count` contiguous matrices of each operand, in
** float32 (gemm.cu). */
tl_status gpu_gemm(tl_ctx *ctx, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                   const float *a, const float *b, float beta, float *c, int64_t count);
/* The same in the precision of the context, as layers and models use it. */
tl_status gpu_product(tl_ctx *ctx, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                      const float *a, const float *b, float beta, float *c, int64_t count);
/* The same product of two matrices whose rows, and those of c, are ld_a, ld_b and ld_c elements
** apart. In bf16 the caller has rounded a and b, by gpu_round_bf16; else they are float32. */
typedef struct gpu_spaced {
    int trans_a, trans_b;
    int64_t m, n, k;
    const void *a, *b;
    int64_t ld_a, ld_b, ld_c;
    float beta, *c;
} gpu_spaced;
tl_status gpu_product_spaced(tl_ctx *ctx, const gpu_spaced *p);
tl_status gpu_round_bf16(tl_ctx *ctx, const float *x, uint16_t *y, int64_t n);

/* Computes `batch` unscaled transforms of length n between contiguous vectors, by cuFFT
** (transform.cu). TL_C2R overwrites from, where the imaginary parts of bins 0 and n/2 must be 0. */
tl_status gpu_fft(tl_ctx *ctx, tl_transform_kind kind, int64_t n, int64_t batch, float *from,
                  float *to);

/* ---- Shapes of launches ---------------------------------------------------------------------- */

#define THREADS 256

/* Blocks for a loop over n elements by EACH: enough to fill a GPU, and no more. */
static inline int64_t blocks_for(int64_t n)
{
    int64_t blocks = (n + THREADS - 1) / THREADS;
    return blocks < 1 ? 1 : blocks > 8192 ? 8192 : blocks;
}

/* Loops over the i < n of this thread. */
#define EACH(i, n)                                                      \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); \
         i += (int64_t)gridDim.x * blockDim.x)

/* Define the kernel gpu_OP as one launch, or none if n is 0. GPU_EACH: of a kernel that loops by
** EACH, whose last argument, after those given here, is n. GPU_ROWS: of one block for each of n
** rows. All may read the operator's arguments a. */
#define GPU_EACH(op, n, kernel, ...)                                                              \
    tl_status gpu_##op(tl_ctx *ctx, const tl_args *args)                                          \
    {                                                                                             \
        const struct tl_args_##op *a = &args->op;                                                 \
        int64_t count = n;                                                                        \
        if (count > 0) LAUNCH(kernel, blocks_for(count), THREADS, __VA_ARGS__, count);            \
        return launched(ctx, #op);                                                                \
    }
#define GPU_ROWS(op, n, kernel, ...)                                                              \
    tl_status gpu_##op(tl_ctx *ctx, const tl_args *args)                                          \
    {                                                                                             \
        const struct tl_args_##op *a = &args->op;                                                 \
        int64_t count = n;                                                                        \
        if (count > 0) LAUNCH_SYNC(kernel, count, THREADS, __VA_ARGS__);                          \
        return launched(ctx, #op);                                                                \
    }

/* ---- Reductions within a block of THREADS ---------------------------------------------------- */

struct add {
    template <class T> __device__ T operator()(T a, T b) const { return a + b; }
};
struct larger { /* propagates NaN */
    template <class T> __device__ T operator()(T a, T b) const { return b > a || b != b ? b : a; }
};

/* Returns the result to every thread of the block; scratch holds THREADS / 32 values. */
template <class T, class F> __device__ T block_reduce(T value, F f, T *scratch)
{
    for (int step = 16; step > 0; step /= 2)
        value = f(value, __shfl_xor_sync(0xffffffffu, value, step));
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads(); /* an earlier reduction may still be read */
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    value = scratch[0];
    for (int w = 1; w < THREADS / 32; w++) value = f(value, scratch[w]);
    return value;
}

/* gpu_unary and so on: the kernel of each operator; device.cu lists them. */
#define X(op, in, out, n, r) tl_status gpu_##op(tl_ctx *ctx, const tl_args *a);
TL_OP_MAP(X, , , , , )
#undef X
const struct tl_tno_form *gpu_backend(tl_ctx *ctx, const char *name);
void gpu_spectra_close(tl_ctx *ctx);

#endif

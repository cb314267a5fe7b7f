/* emulate.h - emulates enough of CUDA in plain C++ to test the kernels of a GPU on the CPU. A
** launch runs one block after another, and the threads of a block as coroutines: those of a warp
** switch in shuffles and tile products, the warps at __syncthreads. Device memory is an arena that
** is protected while no kernel runs, so that host code that accesses it crashes, as with a GPU.
** EMULATE_BACKWARDS reverses the order of threads and blocks, which changes the results of code
** that depends on it. The rest of CUDA is in emulate_runtime.h and emulate_libraries.h. */
#ifndef TL_EMULATE_H
#define TL_EMULATE_H

#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <functional>
#include <tuple>
#include <vector>

#include "base/bf16.h"

#define __global__
#define __device__
#define __host__
#define __restrict__
#define __shared__ static
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct float2 { float x, y; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
struct alignas(16) float4 { float x, y, z, w; };
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct alignas(16) uint4 { unsigned x, y, z, w; };

/* ---- Coroutines ------------------------------------------------------------------------------ */

/* Each coroutine has a stack of its own, made once by makecontext, and runs the body of every later
** block. _setjmp switches between them, because swapcontext makes a system call each time. */

namespace emulate {

enum state { READY, AT_BLOCK, AT_WARP, DONE };

struct thread {
    jmp_buf at;
    char *stack; /* NULL before the first block */
    state where;
    dim3 index;
};

enum { MAX_THREADS = 1024, STACK = 64 << 10, QUEUED = 256, SHARED = 227 << 10 };

struct copy { /* an upload; CUDA may read unpinned memory late, too */
    void *to;
    const void *from;
    size_t bytes;
};

struct graph { /* the captured launches, with their arguments */
    std::vector<std::function<void()>> nodes;
    size_t bytes; /* of its memory */
    bool launched;
};

struct machine {
    thread threads[MAX_THREADS];
    jmp_buf scheduler;
    int count, now, sync; /* sync: whether the launch allows synchronisation; 2: SHARED_WORDS */
    int backwards; /* by EMULATE_BACKWARDS */
    dim3 block, grid, block_index;
    uint64_t exchange[MAX_THREADS];
    uint32_t words[MAX_THREADS][6]; /* of a tile product */
    alignas(16) uint32_t shared[SHARED / 4]; /* SHARED_WORDS */
    copy queue[QUEUED]; /* executed as late as a GPU may do it: before the next work */
    int queued;
    graph *capture; /* NULL: work runs at once */
    void (*body)(void *);
    void *user;
    char *arena;
    size_t used;
    int open;
    uint64_t moved; /* bytes, by gpu_load and gpu_store */
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
    if (!m.sync) die("a kernel that synchronises was launched by LAUNCH, not LAUNCH_SYNC");
    leave(where);
}

/* Resumes threads from..to-1 if all of them wait at `where` or are done. */
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

/* Runs a warp until its threads wait for the block or are done. Returns whether one ran. */
inline bool run_warp(int from, int to)
{
    machine &m = at();
    bool ran = false;
    do {
        for (int k = from; k < to; k++) {
            int i = m.backwards ? from + to - 1 - k : k;
            if (m.threads[i].where != READY) continue;
            m.now = i;
            enter(m.threads[i]);
            ran = true;
        }
    } while (release(from, to, AT_WARP));
    return ran;
}

/* Each warp runs as far as it can before the next one starts, so that a missing __syncthreads
** changes the results, of code that writes too early as of code that reads too early. */
inline void run_waiting()
{
    machine &m = at();
    int warps = (m.count + 31) / 32;
    for (;;) {
        bool ran = false, left = false;
        for (int k = 0; k < warps; k++) {
            int w = 32 * (m.backwards ? warps - 1 - k : k);
            ran |= run_warp(w, w + 32 < m.count ? w + 32 : m.count);
        }
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

enum { HUGE_PAGE = 2 << 20 }; /* the pages of the arena: few, so that protecting it is fast */

inline void protect(bool open)
{
    machine &m = at();
    size_t size = (m.used + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (mprotect(m.arena, size, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        die("mprotect failed");
}

inline void unlock(bool open)
{
    machine &m = at();
    int before = m.open;
    m.open += open ? 1 : -1;
    if (m.used > 0 && (before == 0 || m.open == 0)) protect(open);
}

inline void guard(bool open)
{
    machine &m = at();
    unlock(open);
    for (int i = 0; open && i < m.queued; i++)
        memcpy(m.queue[i].to, m.queue[i].from, m.queue[i].bytes);
    if (open) m.queued = 0;
}

inline void flush_queue()
{
    guard(true);
    guard(false);
}

/* Runs the work of a stream now, or adds it to the graph that is being captured. */
template <class F> void submit(F work)
{
    if (at().capture)
        at().capture->nodes.push_back(work);
    else
        work();
}

/* Guards calls that CUDA does not allow, or does not capture, during a capture. */
inline void not_captured(const char *what)
{
    if (at().capture) die(what);
}

/* The shared memory of a launch starts with a NaN everywhere, as nothing sets it on a GPU. */
inline void spoil_shared() { memset(at().shared, 0xff, SHARED); }

/* EMULATE_MOVED=FILE: FILE has the bytes that gpu_load and gpu_store have moved so far. */
inline void note_moved()
{
    static const char *path = getenv("EMULATE_MOVED");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%llu\n", (unsigned long long)at().moved);
    fclose(file);
}

template <class F> void run(int sync, dim3 grid, dim3 block, F f)
{
    machine &m = at();
    m.backwards = getenv("EMULATE_BACKWARDS") != NULL;
    m.sync = sync;
    m.grid = grid;
    m.block = block;
    m.count = (int)(block.x * block.y * block.z);
    m.user = &f;
    m.body = [](void *user) { (*(F *)user)(); };
    guard(true);
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                if (sync == 2) spoil_shared();
                m.block_index = m.backwards ? dim3(grid.x - 1 - x, grid.y - 1 - y, grid.z - 1 - z)
                                            : dim3(x, y, z);
                run_block();
            }
    guard(false);
    note_moved();
}

/* A launch to be called with the arguments of the kernel, which a graph copies. */
template <class... P> struct launch {
    int sync;
    dim3 grid, block;
    void (*kernel)(P...);
    void operator()(P... args) const
    {
        unsigned count = block.x * block.y * block.z;
        if (count < 1 || count > MAX_THREADS || grid.x < 1 || grid.y > 65535 || grid.z > 65535)
            die("a launch of a size that no GPU accepts");
        std::tuple<P...> all(args...);
        launch call = *this;
        submit([=] {
            run(call.sync, call.grid, call.block, [&] { std::apply(call.kernel, all); });
        });
    }
};

/* Refuses a launch that needs more shared memory than the GPU has. */
inline size_t shared_limit()
{
    const char *kib = getenv("EMULATE_SHARED_KIB");
    return kib ? (size_t)atoi(kib) << 10 : (size_t)SHARED;
}
inline void check_shared(size_t bytes)
{
    if (bytes > shared_limit()) die("a launch with more shared memory than there is");
}

template <class... P> launch<P...> launch_of(int sync, dim3 grid, dim3 block, void (*kernel)(P...))
{
    return {sync, grid, block, kernel};
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

/* The product of tiles by the definition of mma.m16n8k16 (tensor_cores.cuh). Sums are cut off, as
** tensor cores do it, so that the error of a long sum grows with its length. */
inline float cut(double sum)
{
    float value = (float)sum;
    return fabs((double)value) > fabs(sum) ? nextafterf(value, 0) : value;
}

inline float half_of(uint32_t word, int upper)
{
    uint32_t bits = upper ? word & 0xffff0000u : word << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

inline void multiply_tile(float (&c)[4], const uint32_t (&mine)[6])
{
    machine &m = at();
    int base = m.now / 32 * 32, g = m.now % 32 / 4, q = m.now % 4;
    memcpy(m.words[m.now], mine, sizeof mine);
    wait(AT_WARP);
    for (int e = 0; e < 4; e++) {
        double sum = c[e];
        for (int k = 0; k < 16; k++) {
            int pair = k % 8 / 2, late = k / 8;
            uint32_t a = m.words[base + 4 * g + pair][e / 2 + 2 * late];
            uint32_t b = m.words[base + 4 * (2 * q + e % 2) + pair][4 + late];
            sum += (double)half_of(a, k % 2) * (double)half_of(b, k % 2);
        }
        c[e] = cut(sum);
    }
    wait(AT_WARP);
}

} /* namespace emulate */

#define threadIdx (emulate::at().threads[emulate::at().now].index)
#define blockIdx  (emulate::at().block_index)
#define blockDim  (emulate::at().block)
#define gridDim   (emulate::at().grid)

#define LAUNCH(kernel, blocks, threads, ...) \
    emulate::launch_of(0, dim3((unsigned)(blocks)), dim3(threads), kernel)(__VA_ARGS__)
#define LAUNCH_SYNC(kernel, blocks, threads, ...) \
    emulate::launch_of(1, dim3((unsigned)(blocks)), dim3(threads), kernel)(__VA_ARGS__)

#define LAUNCH_SHARED(kernel, blocks, threads, bytes, ...)                                   \
    (emulate::check_shared(bytes),                                                              \
     emulate::launch_of(2, dim3((unsigned)(blocks)), dim3(threads), kernel)(__VA_ARGS__))
#define SHARED_WORDS(name) uint32_t *name = emulate::at().shared

template <class T> T gpu_load(const T *p)
{
    emulate::at().moved += sizeof *p;
    return *p;
}
template <class T> void gpu_store(T *p, T value)
{
    emulate::at().moved += sizeof *p;
    *p = value;
}

static inline void sincospi(double x, double *sine, double *cosine)
{
    *sine = sin(M_PI * x);
    *cosine = cos(M_PI * x);
}

static inline void __syncthreads() { emulate::wait(emulate::AT_BLOCK); }

template <class T> T __shfl_xor_sync(unsigned, T value, int mask)
{
    return emulate::shuffle(value, (emulate::at().now % 32) ^ mask);
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

static inline uint32_t pack_bf16(float first, float second)
{
    return tl_round_bf16(__float_as_uint(first)) |
           (uint32_t)tl_round_bf16(__float_as_uint(second)) << 16;
}

static inline void multiply_tile(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                 uint32_t b0, uint32_t b1)
{
    emulate::multiply_tile(c, {a0, a1, a2, a3, b0, b1});
}

#endif

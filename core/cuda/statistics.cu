/* statistics.cu - reports how much memory of the GPU is in use, and was at most. */
#include "cuda/cuda.cuh"

typedef struct usage { /* bytes of the pool, now and at most since the last reset; of graphs */
    uint64_t used, high, graphs;
} usage;

/* CUDA counts the memory of graphs per GPU and process: two contexts on a GPU see each other's. */
static usage usage_of(const gpu *c)
{
    usage u = {0};
    (void)cudaMemPoolGetAttribute(c->pool, cudaMemPoolAttrUsedMemCurrent, &u.used);
    (void)cudaMemPoolGetAttribute(c->pool, cudaMemPoolAttrUsedMemHigh, &u.high);
    (void)cudaDeviceGetGraphMemAttribute(c->number, cudaGraphMemAttrUsedMemCurrent, &u.graphs);
    return u;
}

/* Graphs have used the same memory since the last gpu_note_peak. A maximum that was reset is 0
** until the next allocation. */
static uint64_t peak_of(const gpu *c, usage u)
{
    uint64_t peak = (u.high > u.used ? u.high : u.used) + u.graphs;
    return c->peak > peak ? c->peak : peak;
}

static void reset_mark(const gpu *c)
{
    uint64_t none = 0;
    (void)cudaMemPoolSetAttribute(c->pool, cudaMemPoolAttrUsedMemHigh, &none);
}

void gpu_note_peak(gpu *c)
{
    c->peak = peak_of(c, usage_of(c));
    reset_mark(c);
}

tl_memory gpu_memory(const tl_ctx *ctx)
{
    gpu      *c = gpu_of(ctx);
    tl_memory info = {0};
    uint64_t  reserved = 0;
    if (c->capture) return c->before;
    usage u = usage_of(c);
    (void)cudaMemPoolGetAttribute(c->pool, cudaMemPoolAttrReservedMemCurrent, &reserved);
    info.live = (size_t)(u.used + u.graphs); /* with memory that graphs use internally */
    info.peak = (size_t)peak_of(c, u);
    info.cached = (size_t)(reserved - u.used);
    return info;
}

void gpu_reset_peak(tl_ctx *ctx)
{
    gpu *c = gpu_of(ctx);
    /* Memory that is freed counts until the GPU gets there. */
    if (!c->capture) (void)cudaStreamSynchronize(c->stream);
    c->peak = 0;
    reset_mark(c);
}

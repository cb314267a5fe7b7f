/* statistics.cu - reports how much memory of the GPU is in use, and was at most. */
#include "cuda/cuda.cuh"

typedef struct usage { /* bytes of the pool and of graphs, now and at most since the last reset */
    uint64_t used, high, graphs, graphs_high;
} usage;

static usage usage_of(const gpu *c)
{
    usage u = {0};
    (void)cudaMemPoolGetAttribute(c->pool, cudaMemPoolAttrUsedMemCurrent, &u.used);
    (void)cudaMemPoolGetAttribute(c->pool, cudaMemPoolAttrUsedMemHigh, &u.high);
    (void)cudaDeviceGetGraphMemAttribute(c->number, cudaGraphMemAttrUsedMemCurrent, &u.graphs);
    (void)cudaDeviceGetGraphMemAttribute(c->number, cudaGraphMemAttrUsedMemHigh, &u.graphs_high);
    return u;
}

/* The two maxima need not coincide, so that their sum would be too much. It is enough to try each
** with the other's present value, as these change apart: gpu_note_peak is called between. A maximum
** that was reset is 0 until the next allocation, so both present values are tried, too. */
static uint64_t peak_of(const gpu *c, usage u)
{
    uint64_t peak = c->peak;
    if (peak < u.high + u.graphs) peak = u.high + u.graphs;
    if (peak < u.used + u.graphs) peak = u.used + u.graphs;
    if (peak < u.used + u.graphs_high) peak = u.used + u.graphs_high;
    return peak;
}

static void reset_marks(const gpu *c)
{
    uint64_t none = 0;
    (void)cudaMemPoolSetAttribute(c->pool, cudaMemPoolAttrUsedMemHigh, &none);
    (void)cudaDeviceSetGraphMemAttribute(c->number, cudaGraphMemAttrUsedMemHigh, &none);
}

void gpu_note_peak(gpu *c)
{
    c->peak = peak_of(c, usage_of(c));
    reset_marks(c);
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
    reset_marks(c);
}

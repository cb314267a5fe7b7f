/* conv.cu - computes a depthwise convolution with few taps by direct sums. */
#include "cuda/cuda.cuh"

typedef struct conv {
    int64_t b, n, d, taps;
    int64_t origin; /* the tap at lag 0 */
    int64_t sign;   /* 1, or -1 for the adjoint */
} conv;

/* Row i of a sequence of y sums tap k times x at i - sign (k - origin). */
static __global__ void conv_each(conv j, const float *x, const float *t, float *y, int64_t total)
{
    EACH(e, total)
    {
        int64_t c = e % j.d, i = e / j.d % j.n;
        const float *sequence = x + (e / j.d - i) * j.d + c;
        float sum = 0;
        for (int64_t k = 0; k < j.taps; k++) {
            int64_t at = i - j.sign * (k - j.origin);
            if (at >= 0 && at < j.n) sum += t[k * j.d + c] * sequence[at * j.d];
        }
        y[e] = sum;
    }
}

GPU_EACH(conv, a->x->len, conv_each,
         conv{a->x->dims[0], a->x->dims[1], a->x->dims[2], a->taps->dims[0], a->origin,
              a->adjoint ? -1 : 1},
         F32(a->x), F32(a->taps), F32(a->y))

#define PARTS 32 /* partial sums over the blocks */
#define BLOCK 32 /* positions of a sequence whose products are summed in float32, as in conv.c */

/* The sum of dy x over one block of positions, in channel c at a lag. */
static __device__ float block_sum(const conv &j, const float *x, const float *dy, int64_t block,
                                  int64_t lag, int64_t c)
{
    int64_t per = (j.n + BLOCK - 1) / BLOCK, sequence = block / per * j.n;
    int64_t first = block % per * BLOCK, last = first + BLOCK;
    float   sum = 0;
    if (first < lag) first = lag;
    if (last > j.n) last = j.n;
    if (last > j.n + lag) last = j.n + lag;
    for (int64_t i = first; i < last; i++)
        sum += dy[(sequence + i) * j.d + c] * x[(sequence + i - lag) * j.d + c];
    return sum;
}

/* parts [PARTS,taps,d] = the sums of dy x over one part of the blocks each */
static __global__ void conv_grad_parts(conv j, const float *x, const float *dy, double *parts,
                                       int64_t total)
{
    EACH(e, total)
    {
        int64_t c = e % j.d, k = e / j.d % j.taps, p = e / j.d / j.taps;
        int64_t blocks = j.b * ((j.n + BLOCK - 1) / BLOCK);
        double  sum = 0;
        for (int64_t q = blocks * p / PARTS; q < blocks * (p + 1) / PARTS; q++)
            sum += (double)block_sum(j, x, dy, q, k - j.origin, c);
        parts[e] = sum;
    }
}

static __global__ void conv_grad_sum(const double *parts, float *dt, int64_t n)
{
    EACH(e, n)
    {
        double sum = 0;
        for (int p = 0; p < PARTS; p++) sum += parts[p * n + e];
        dt[e] = (float)sum;
    }
}

tl_status gpu_conv_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_conv_grad *c = &a->conv_grad;
    const tl_tensor *x = c->x;
    int64_t          n = c->dtaps->len;
    conv             j = {x->dims[0], x->dims[1], x->dims[2], c->dtaps->dims[0], c->origin, 1};
    double          *parts;
    if (n == 0) return TL_OK;
    tl_status st = gpu_alloc(ctx, (size_t)(PARTS * n) * sizeof *parts, (void **)&parts);
    if (st != TL_OK) return st;
    LAUNCH(conv_grad_parts, blocks_for(PARTS * n), THREADS, j, F32(x), F32(c->dy), parts,
           PARTS * n);
    LAUNCH(conv_grad_sum, blocks_for(n), THREADS, parts, F32(c->dtaps), n);
    st = launched(ctx, "conv_grad");
    gpu_free(ctx, parts);
    return st;
}

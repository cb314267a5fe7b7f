/* decay.cu - multiplies coefficients by the exponential decay, coef_k gamma^|k|, with gradients to
** coef and gamma. */
#include "cuda/cuda.cuh"

/* gamma^|lag|; decay.c says why the exponent is a double */
static __device__ float power(float gamma, float lag)
{
    return (float)exp2(fabs((double)lag) * log2((double)gamma));
}

static __global__ void decay_each(const float *coef, const float *lags, const float *gamma,
                                  int each, int64_t d, float *y, int64_t *fault, int64_t n)
{
    EACH(i, n)
    {
        float g = gamma[each ? i % d : 0];
        if (g <= 0 || g > 1) *fault = FAULT_GAMMA; /* a NaN passes, as in decay.c */
        y[i] = coef[i] * power(g, lags[i / d]);
    }
}

/* coef, y [p,d], lags [p], gamma [d] or one number */
GPU_EACH(decay, a->y->len, decay_each, F32(a->coef), F32(a->lags), F32(a->gamma), a->gamma->len > 1,
         a->coef->dims[1], F32(a->y), gpu_of(ctx)->fault)

/* sums[c] = the sum over k of dy coef |lag| gamma^|lag| / gamma */
static __global__ void decay_grad_columns(const float *dy, const float *coef, const float *lags,
                                          const float *gamma, int each, int64_t points, int64_t d,
                                          double *sums)
{
    __shared__ double scratch[THREADS / 32];
    int64_t c = blockIdx.x;
    float   g = gamma[each ? c : 0];
    double  sum = 0;
    for (int64_t k = threadIdx.x; k < points; k += THREADS)
        sum += (double)dy[k * d + c] * (double)coef[k * d + c] * fabs((double)lags[k]) *
               (double)power(g, lags[k]);
    sum = block_reduce(sum, add(), scratch);
    if (threadIdx.x == 0) sums[c] = sum / (double)g;
}

static __global__ void decay_grad_sum(const double *sums, int64_t d, int each, float *dgamma)
{
    double sum = 0;
    EACH(c, each ? d : 1)
    {
        for (int64_t i = each ? c : 0; i < (each ? c + 1 : d); i++) sum += sums[i];
        dgamma[c] = (float)sum;
        sum = 0;
    }
}

tl_status gpu_decay_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_decay_grad *g = &a->decay_grad;
    int64_t points = g->dy->dims[0], d = g->dy->dims[1];
    int     each = g->gamma->len > 1;
    double *sums;
    if (points == 0 || d == 0) return tl_tensor_fill(g->dgamma, 0);
    tl_status st = gpu_alloc(ctx, (size_t)d * sizeof *sums, (void **)&sums);
    if (st != TL_OK) return st;
    LAUNCH_SYNC(decay_grad_columns, d, THREADS, F32(g->dy), F32(g->coef), F32(g->lags),
                F32(g->gamma), each, points, d, sums);
    LAUNCH(decay_grad_sum, blocks_for(d), THREADS, sums, d, each, F32(g->dgamma));
    st = launched(ctx, "decay_grad");
    gpu_free(ctx, sums);
    return st;
}

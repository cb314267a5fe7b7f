/* decay.cu - multiplies coefficients by the exponential decay, coef_k gamma^|k|, with gradients to
** coef and gamma. */
#include "cuda/cuda.cuh"

/* gamma^|lag|; decay.c says why the exponent is a double */
static __device__ float power(float gamma, float lag)
{
    return (float)exp2(fabs((double)lag) * log2((double)gamma));
}

static __global__ void decay_each(const float *coef, const float *lags, const float *gamma,
                                  int each, int64_t d, float *y, int64_t n, int64_t *fault)
{
    EACH(i, n)
    {
        float g = gamma[each ? i % d : 0];
        if (g <= 0 || g > 1) *fault = FAULT_GAMMA; /* a NaN passes, as in decay.c */
        y[i] = coef[i] * power(g, lags[i / d]);
    }
}

/* in[0] coef [p,d]  in[1] lags [p]  in[2] gamma [d] or one number   out[0] [p,d] */
static tl_status decay(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    if (n == 0) return TL_OK;
    LAUNCH(decay_each, blocks_for(n), THREADS, F32(a->in[0]), F32(a->in[1]), F32(a->in[2]),
           a->in[2]->len > 1, a->in[0]->dims[1], F32(a->out[0]), n, gpu_of(ctx)->fault);
    return launched(ctx, "decay");
}

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

/* in[0] dy [p,d]  in[1] coef [p,d]  in[2] lags  in[3] gamma   out[0] dgamma, shaped as gamma */
static tl_status decay_grad(tl_ctx *ctx, const tl_args *a)
{
    int64_t points = a->in[0]->dims[0], d = a->in[0]->dims[1];
    int     each = a->in[3]->len > 1;
    double *sums;
    if (points == 0 || d == 0) return tl_tensor_fill(a->out[0], 0);
    tl_status st = gpu_alloc(ctx, (size_t)d * sizeof *sums, (void **)&sums);
    if (st != TL_OK) return st;
    LAUNCH_SYNC(decay_grad_columns, d, THREADS, F32(a->in[0]), F32(a->in[1]), F32(a->in[2]),
                F32(a->in[3]), each, points, d, sums);
    LAUNCH(decay_grad_sum, blocks_for(d), THREADS, sums, d, each, F32(a->out[0]));
    st = launched(ctx, "decay_grad");
    gpu_free(ctx, sums);
    return st;
}

const tl_kernel_row gpu_decay[] = {
    {TL_OP_decay, decay}, {TL_OP_decay_grad, decay_grad}, {}};

/* softmax.cu - computes softmax over the last axis and its logarithm, a block per row. */
#include "cuda/cuda.cuh"

static __device__ int64_t width(int causal, int64_t r, int64_t cols)
{
    return causal ? r % cols + 1 : cols;
}

/* Returns the largest element of a row, and in *sum the sum of exp(x - largest). */
static __device__ float row_scale(const float *x, int64_t n, double *scratch, double *sum)
{
    double top = -INFINITY, all = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) top = larger()(top, (double)x[i]);
    top = block_reduce(top, larger(), scratch);
    for (int64_t i = threadIdx.x; i < n; i += THREADS) all += (double)expf(x[i] - (float)top);
    *sum = block_reduce(all, add(), scratch);
    return (float)top;
}

static __global__ void softmax_rows(int causal, const float *x, float *y, int64_t cols)
{
    __shared__ double scratch[THREADS / 32];
    int64_t r = blockIdx.x, n = width(causal, r, cols);
    double  sum;
    float   top = row_scale(x + r * cols, n, scratch, &sum), scale = (float)(1 / sum);
    for (int64_t i = threadIdx.x; i < cols; i += THREADS)
        y[r * cols + i] = i < n ? expf(x[r * cols + i] - top) * scale : 0.0f;
}

static __global__ void softmax_grad_rows(int causal, const float *p, const float *dy, float *dx,
                                         int64_t cols)
{
    __shared__ double scratch[THREADS / 32];
    int64_t base = blockIdx.x * cols, n = width(causal, blockIdx.x, cols);
    double  dot = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        dot += (double)p[base + i] * (double)dy[base + i];
    float mean = (float)block_reduce(dot, add(), scratch);
    for (int64_t i = threadIdx.x; i < cols; i += THREADS)
        dx[base + i] = i < n ? p[base + i] * (dy[base + i] - mean) : 0.0f;
}

static __global__ void log_softmax_rows(int, const float *x, float *y, int64_t cols)
{
    __shared__ double scratch[THREADS / 32];
    int64_t base = blockIdx.x * cols;
    double  sum;
    float   top = row_scale(x + base, cols, scratch, &sum), shift = (float)log(sum);
    for (int64_t i = threadIdx.x; i < cols; i += THREADS) y[base + i] = (x[base + i] - top) - shift;
}

static __global__ void log_softmax_grad_rows(int, const float *y, const float *dy, float *dx,
                                             int64_t cols)
{
    __shared__ double scratch[THREADS / 32];
    int64_t base = blockIdx.x * cols;
    double  all = 0;
    for (int64_t i = threadIdx.x; i < cols; i += THREADS) all += (double)dy[base + i];
    float sum = (float)block_reduce(all, add(), scratch);
    for (int64_t i = threadIdx.x; i < cols; i += THREADS)
        dx[base + i] = dy[base + i] - expf(y[base + i]) * sum;
}

tl_status gpu_softmax(tl_ctx *ctx, const tl_args *a)
{
    const tl_tensor *x = a->softmax.x;
    if (x->len == 0) return TL_OK;
    LAUNCH_SYNC(softmax_rows, tl_rows(x), THREADS, a->softmax.causal != 0, F32(x),
                F32(a->softmax.y), tl_cols(x));
    return launched(ctx, "softmax");
}

tl_status gpu_softmax_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_softmax_grad *s = &a->softmax_grad;
    if (s->y->len == 0) return TL_OK;
    LAUNCH_SYNC(softmax_grad_rows, tl_rows(s->y), THREADS, s->causal != 0, F32(s->y), F32(s->dy),
                F32(s->dx), tl_cols(s->y));
    return launched(ctx, "softmax_grad");
}

tl_status gpu_log_softmax(tl_ctx *ctx, const tl_args *a)
{
    const tl_tensor *x = a->log_softmax.x;
    if (x->len == 0) return TL_OK;
    LAUNCH_SYNC(log_softmax_rows, tl_rows(x), THREADS, 0, F32(x), F32(a->log_softmax.y),
                tl_cols(x));
    return launched(ctx, "log_softmax");
}

tl_status gpu_log_softmax_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_log_softmax_grad *s = &a->log_softmax_grad;
    if (s->y->len == 0) return TL_OK;
    LAUNCH_SYNC(log_softmax_grad_rows, tl_rows(s->y), THREADS, 0, F32(s->y), F32(s->dy),
                F32(s->dx), tl_cols(s->y));
    return launched(ctx, "log_softmax_grad");
}

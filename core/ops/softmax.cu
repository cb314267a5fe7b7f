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

/* The softmax of each row, or its logarithm. */
static __global__ void softmax_rows(int causal, int log_of, const float *x, float *y, int64_t cols)
{
    __shared__ double scratch[THREADS / 32];
    int64_t base = blockIdx.x * cols, n = width(causal, blockIdx.x, cols);
    double  sum;
    float   top = row_scale(x + base, n, scratch, &sum);
    float   scale = (float)(1 / sum), shift = (float)log(sum);
    for (int64_t i = threadIdx.x; i < cols; i += THREADS)
        y[base + i] = log_of  ? (x[base + i] - top) - shift
                      : i < n ? expf(x[base + i] - top) * scale
                              : 0.0f;
}

/* y: the result */
static __global__ void softmax_grad_rows(int causal, int log_of, const float *y, const float *dy,
                                         float *dx, int64_t cols)
{
    __shared__ double scratch[THREADS / 32];
    int64_t base = blockIdx.x * cols, n = width(causal, blockIdx.x, cols);
    double  all = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        all += (log_of ? 1.0 : (double)y[base + i]) * (double)dy[base + i];
    float sum = (float)block_reduce(all, add(), scratch);
    for (int64_t i = threadIdx.x; i < cols; i += THREADS)
        dx[base + i] = log_of  ? dy[base + i] - expf(y[base + i]) * sum
                       : i < n ? y[base + i] * (dy[base + i] - sum)
                               : 0.0f;
}

GPU_ROWS(softmax, a->x->len > 0 ? tl_rows(a->x) : 0, softmax_rows, a->causal != 0, a->log != 0,
         F32(a->x), F32(a->y), tl_cols(a->x))
GPU_ROWS(softmax_grad, a->y->len > 0 ? tl_rows(a->y) : 0, softmax_grad_rows, a->causal != 0,
         a->log != 0, F32(a->y), F32(a->dy), F32(a->dx), tl_cols(a->y))

/* batch_norm.cu - normalises each column over all rows, a block per column. */
#include "cuda/cuda.cuh"

extern "C" {
#include "ops/arguments.h"
}

static __global__ void columns(tl_batch_norm_job j)
{
    __shared__ double scratch[THREADS / 32];
    int64_t c = blockIdx.x;
    double  mean = (double)j.running_mean[c], var = (double)j.running_var[c], sum = 0;
    __syncthreads(); /* thread 0 overwrites the running statistics below */
    if (j.training) {
        for (int64_t r = threadIdx.x; r < j.rows; r += THREADS) sum += (double)j.x[r * j.cols + c];
        double all = block_reduce(sum, add(), scratch), square = 0, own = all / (double)j.rows;
        for (int64_t r = threadIdx.x; r < j.rows; r += THREADS) {
            double z = (double)j.x[r * j.cols + c] - own;
            square += z * z;
        }
        square = block_reduce(square, add(), scratch);
        if (threadIdx.x == 0) {
            double keep = 1 - j.momentum;
            j.running_mean[c] = (float)(keep * mean + j.momentum * own);
            j.running_var[c] = (float)(keep * var + j.momentum * square / (double)(j.rows - 1));
        }
        mean = own;
        var = square / (double)j.rows;
    }
    double s = 1 / sqrt(var + j.eps);
    float  at = (float)mean, scale = (float)(s * (j.weight ? (double)j.weight[c] : 1));
    if (threadIdx.x == 0) {
        j.mean[c] = at;
        j.s[c] = (float)s;
    }
    for (int64_t r = threadIdx.x; r < j.rows; r += THREADS)
        j.y[r * j.cols + c] = (j.x[r * j.cols + c] - at) * scale + (j.bias ? j.bias[c] : 0);
}

/* dx = weight s (dy - mean dy - z mean(dy z)) in training, else weight s dy;  z = (x - mean) s */
static __global__ void grad_columns(tl_batch_norm_job j)
{
    __shared__ double scratch[THREADS / 32];
    int64_t c = blockIdx.x;
    double  sum = 0, dot = 0, s = (double)j.s[c], rows = (double)j.rows;
    float   mean = j.mean[c];
    for (int64_t r = threadIdx.x; r < j.rows; r += THREADS) {
        double f = (double)j.dy[r * j.cols + c];
        sum += f;
        dot += f * ((double)j.x[r * j.cols + c] - (double)mean);
    }
    sum = block_reduce(sum, add(), scratch);
    dot = block_reduce(dot, add(), scratch);
    if (threadIdx.x == 0 && j.dbias) j.dbias[c] = (float)sum;
    if (threadIdx.x == 0 && j.dweight) j.dweight[c] = (float)(dot * s);
    if (!j.y) return;
    float scale = (float)(s * (j.weight ? (double)j.weight[c] : 1));
    float a = j.training ? (float)(sum / rows) : 0,
          b = j.training ? (float)(dot * s * s / rows) : 0;
    for (int64_t r = threadIdx.x; r < j.rows; r += THREADS)
        j.y[r * j.cols + c] =
            scale * (j.dy[r * j.cols + c] - a - (j.x[r * j.cols + c] - mean) * b);
}

GPU_ROWS(batch_norm, tl_cols(a->x), columns, tl_batch_norm_job_of(args))
GPU_ROWS(batch_norm_grad, tl_cols(a->x), grad_columns, tl_batch_norm_grad_job_of(args))

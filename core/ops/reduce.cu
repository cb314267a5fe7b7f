/* reduce.cu - computes sums, means and maxima over an axis, and running sums along one. */
#include "cuda/cuda.cuh"

static __device__ int64_t start_of(tl_axis_view s, int64_t k)
{
    return k / s.inner * s.size * s.inner + k % s.inner;
}

/* Computes one result per block. */
static __global__ void reduce_rows(int kind, tl_axis_view s, const float *x, float *y)
{
    __shared__ double scratch[THREADS / 32];
    int64_t base = start_of(s, blockIdx.x);
    double value = kind == TL_REDUCE_MAX ? (double)x[base] : 0;
    for (int64_t i = threadIdx.x; i < s.size; i += THREADS) {
        double v = (double)x[base + i * s.inner];
        value = kind == TL_REDUCE_MAX ? larger()(value, v) : value + v;
    }
    value = kind == TL_REDUCE_MAX ? block_reduce(value, larger(), scratch)
                            : block_reduce(value, add(), scratch);
    if (threadIdx.x == 0)
        y[blockIdx.x] = (float)(kind == TL_REDUCE_MEAN ? value / (double)s.size : value);
}

/* Computes one result per thread, which pays if there are many results. */
static __global__ void reduce_each(int kind, tl_axis_view s, const float *x, float *y, int64_t n)
{
    EACH(k, n)
    {
        int64_t base = start_of(s, k);
        double value = kind == TL_REDUCE_MAX ? (double)x[base] : 0;
        for (int64_t i = 0; i < s.size; i++) {
            double v = (double)x[base + i * s.inner];
            value = kind == TL_REDUCE_MAX ? larger()(value, v) : value + v;
        }
        y[k] = (float)(kind == TL_REDUCE_MEAN ? value / (double)s.size : value);
    }
}

/* y = the reduction of x over an axis or TL_ALL_AXES */
tl_status gpu_reduce(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_reduce *r = &a->reduce;
    tl_axis_view s = tl_axis_view_of(r->x, (int)r->axis);
    int64_t   n = s.outer * s.inner;
    if (n == 0) return TL_OK;
    if (s.size == 0) return tl_tensor_fill(r->y, 0); /* sums only */
    if (s.size > 64 && n < 65536)
        LAUNCH_SYNC(reduce_rows, n, THREADS, (int)r->kind, s, F32(r->x), F32(r->y));
    else
        LAUNCH(reduce_each, blocks_for(n), THREADS, (int)r->kind, s, F32(r->x), F32(r->y), n);
    return launched(ctx, "reduce");
}

static __global__ void spread_each(float scale, tl_axis_view s, const float *dy, float *dx,
                                   int64_t n)
{
    EACH(i, n) dx[i] = dy[i / (s.size * s.inner) * s.inner + i % s.inner] * scale;
}

static __global__ void amax_grad_each(tl_axis_view s, const float *x, const float *y,
                                      const float *dy, float *dx, int64_t n)
{
    EACH(k, n)
    {
        int64_t base = start_of(s, k);
        bool found = false;
        for (int64_t i = 0; i < s.size; i++) {
            int64_t at = base + i * s.inner;
            bool takes = !found && (x[at] == y[k] || x[at] != x[at]);
            dx[at] = takes ? dy[k] : 0.0f;
            found = found || takes;
        }
    }
}

/* Only TL_REDUCE_MAX reads its input x and its result y. */
tl_status gpu_reduce_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_reduce_grad *r = &a->reduce_grad;
    int64_t   n = r->dx->len;
    tl_axis_view s = tl_axis_view_of(r->dx, (int)r->axis);
    if (n == 0) return TL_OK;
    if (r->kind == TL_REDUCE_MAX)
        LAUNCH(amax_grad_each, blocks_for(r->dy->len), THREADS, s, F32(r->x), F32(r->y),
               F32(r->dy), F32(r->dx), r->dy->len);
    else
        LAUNCH(spread_each, blocks_for(n), THREADS,
               r->kind == TL_REDUCE_MEAN ? 1.0f / (float)s.size : 1.0f, s, F32(r->dy),
               F32(r->dx), n);
    return launched(ctx, "reduce_grad");
}

/* ---- First largest --------------------------------------------------------------------------- */

static __global__ void argmax_rows(const float *x, int32_t *index, int64_t size)
{
    __shared__ float scratch[THREADS / 32];
    __shared__ int64_t places[THREADS / 32];
    const float *row = x + (int64_t)blockIdx.x * size;
    float best = row[0]; /* as on the CPU, only a NaN in first place wins */
    bool poisoned = best != best;
    for (int64_t i = threadIdx.x; i < size; i += THREADS)
        if (row[i] > best) best = row[i];
    best = poisoned ? best : block_reduce(best, larger(), scratch);
    int64_t at = size;
    for (int64_t i = threadIdx.x; i < size && at == size; i += THREADS)
        if (row[i] == best) at = i;
    at = -block_reduce(-at, larger(), places);
    if (threadIdx.x == 0) index[blockIdx.x] = poisoned ? 0 : (int32_t)at;
}

/* index = the position of the first largest element in each row of x */
GPU_ROWS(argmax, a->index->len, argmax_rows, F32(a->x), I32(a->index), tl_cols(a->x))

/* ---- Running sums ---------------------------------------------------------------------------- */

static __global__ void cumsum_each(int reverse, tl_axis_view s, const float *x, float *y, int64_t n)
{
    EACH(k, n)
    {
        int64_t base = start_of(s, k);
        double sum = 0;
        for (int64_t i = 0; i < s.size; i++) {
            int64_t at = base + (reverse ? s.size - 1 - i : i) * s.inner;
            sum += (double)x[at];
            y[at] = (float)sum;
        }
    }
}

/* y = running sums of x along an axis, from the end if reverse */
tl_status gpu_cumsum(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_cumsum *c = &a->cumsum;
    tl_axis_view s = tl_axis_view_of(c->x, (int)c->axis);
    int64_t   n = s.outer * s.inner;
    if (c->y->len == 0) return TL_OK;
    LAUNCH(cumsum_each, blocks_for(n), THREADS, (int)c->reverse, s, F32(c->x), F32(c->y), n);
    return launched(ctx, "cumsum");
}

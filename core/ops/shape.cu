/* shape.cu - transposes, slices and concatenates tensors of elements of four bytes. */
#include "cuda/cuda.cuh"

typedef struct order {
    int     ndim;
    int64_t dims[TL_MAXDIMS], step[TL_MAXDIMS]; /* of the output; step: in the input */
} order;

static __global__ void transpose_each(order p, const float *x, float *y, int64_t n)
{
    EACH(i, n)
    {
        int64_t from = 0, rest = i;
        for (int k = p.ndim - 1; k >= 0; k--) {
            from += rest % p.dims[k] * p.step[k];
            rest /= p.dims[k];
        }
        y[i] = x[from];
    }
}

/* axis k of y = axis axes[k] of x */
tl_status gpu_transpose(tl_ctx *ctx, const tl_args *a)
{
    const tl_tensor *x = a->transpose.x;
    const int64_t   *axes = a->transpose.axes;
    order            p;
    int64_t          steps[TL_MAXDIMS], step = 1;
    if (x->len == 0) return TL_OK;
    p.ndim = x->ndim;
    for (int i = x->ndim - 1; i >= 0; step *= x->dims[i--]) steps[i] = step;
    for (int i = 0; i < x->ndim; i++) {
        p.dims[i] = x->dims[axes[i]];
        p.step[i] = steps[axes[i]];
    }
    LAUNCH(transpose_each, blocks_for(x->len), THREADS, p, F32(x), F32(a->transpose.y),
           x->len);
    return launched(ctx, "transpose");
}

/* The part has `run` elements of every `stride` of the whole, from `start` on. */
static __global__ void part_each(const uint32_t *whole, uint32_t *part, int64_t run, int64_t stride,
                                 int64_t start, int64_t n)
{
    EACH(i, n) part[i] = whole[i / run * stride + start + i % run];
}

static __global__ void whole_each(const uint32_t *part, uint32_t *whole, int64_t run,
                                  int64_t stride, int64_t start, int64_t n)
{
    EACH(i, n) whole[i / run * stride + start + i % run] = part[i];
}

/* y = the positions of x from `first` on along an axis, as many as y has */
tl_status gpu_slice(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_slice *p = &a->slice;
    tl_axis_view s = tl_axis_view_of(p->x, (int)p->axis);
    int64_t   n = p->y->len;
    if (n == 0) return TL_OK;
    LAUNCH(part_each, blocks_for(n), THREADS, (const uint32_t *)DATA(p->x), (uint32_t *)DATA(p->y),
           n / s.outer, s.size * s.inner, p->first * s.inner, n);
    return launched(ctx, "slice");
}

/* Writes x to the positions of y from `first` on along an axis, and 0 to the others if clear. */
tl_status gpu_paste(tl_ctx *ctx, const tl_args *a)
{
    tl_tensor   *whole = a->paste.y;
    tl_axis_view s = tl_axis_view_of(whole, (int)a->paste.axis);
    int64_t      n = a->paste.x->len;
    cudaError_t  st = cudaSuccess;
    if (a->paste.clear && whole->len > 0)
        st = cudaMemsetAsync(DATA(whole), 0, (size_t)whole->len * 4, gpu_of(ctx)->stream);
    if (st != cudaSuccess) return cuda_fail(ctx, st, "paste");
    if (n == 0) return TL_OK;
    LAUNCH(whole_each, blocks_for(n), THREADS, (const uint32_t *)DATA(a->paste.x),
           (uint32_t *)DATA(whole), n / s.outer, s.size * s.inner, a->paste.first * s.inner, n);
    return launched(ctx, "paste");
}

/* elementwise.cu - applies functions of one and two tensors element by element; copies and
** fills. */
#include "ops/unary.cuh"

/* ---- Kernels --------------------------------------------------------------------------------- */

static __global__ void unary_each(tl_unary_kind kind, const float *x, float *y, int64_t n)
{
    EACH(i, n) y[i] = unary_value(kind, x[i]);
}

static __global__ void unary_grad_each(tl_unary_kind kind, const float *x, const float *dy,
                                       float *dx, int64_t n)
{
    EACH(i, n) dx[i] = dy[i] * unary_slope(kind, x[i]);
}

static __global__ void gate_each(tl_unary_kind kind, const float *a, const float *b, float *y,
                                 int64_t n)
{
    EACH(i, n) y[i] = unary_value(kind, a[i]) * b[i];
}

static __global__ void gate_grad_each(tl_unary_kind kind, const float *a, const float *b,
                                      const float *dy, float *da, float *db, int64_t n)
{
    EACH(i, n)
    {
        float x = a[i], y = b[i], g = dy[i]; /* da may be dy, and db may be b */
        da[i] = g * y * unary_slope(kind, x);
        db[i] = g * unary_value(kind, x);
    }
}

static __global__ void affine_each(const float *x, float scale, float shift, float *y, int64_t n)
{
    EACH(i, n) y[i] = scale * x[i] + shift;
}

static __global__ void axpy_each(const float *x, float scale, float *y, int64_t n)
{
    EACH(i, n) y[i] += scale * x[i];
}

static __global__ void fill_each(uint32_t *y, uint32_t word, int64_t n) { EACH(i, n) y[i] = word; }

static __global__ void copy_each(const uint32_t *x, uint32_t *y, int64_t n)
{
    EACH(i, n) y[i] = x[i];
}

/* ---- Operators ------------------------------------------------------------------------------- */

GPU_EACH(unary, a->y->len, unary_each, (tl_unary_kind)a->kind, F32(a->x), F32(a->y))
GPU_EACH(unary_grad, a->dx->len, unary_grad_each, (tl_unary_kind)a->kind, F32(a->x), F32(a->dy),
         F32(a->dx))
GPU_EACH(gate, a->y->len, gate_each, (tl_unary_kind)a->kind, F32(a->a), F32(a->b), F32(a->y))
GPU_EACH(gate_grad, a->da->len, gate_grad_each, (tl_unary_kind)a->kind, F32(a->a), F32(a->b),
         F32(a->dy), F32(a->da), F32(a->db))
GPU_EACH(affine, a->y->len, affine_each, F32(a->x), (float)a->scale, (float)a->shift, F32(a->y))
GPU_EACH(axpy, a->y->len, axpy_each, F32(a->x), (float)a->scale, F32(a->y))

tl_status gpu_fill(tl_ctx *ctx, const tl_args *a)
{
    tl_tensor *t = a->fill.y;
    float      f = (float)a->fill.value;
    int32_t    id = (int32_t)(t->type == TL_I32 ? a->fill.value : 0);
    uint32_t   word;
    memcpy(&word, t->type == TL_I32 ? (void *)&id : (void *)&f, sizeof word);
    LAUNCH(fill_each, blocks_for(t->len), THREADS, (uint32_t *)DATA(t), word, t->len);
    return launched(ctx, "fill");
}

/* The tensors may share storage only if they are the same elements. */
GPU_EACH(copy, a->y->len, copy_each, (const uint32_t *)DATA(a->x), (uint32_t *)DATA(a->y))

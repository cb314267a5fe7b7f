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

tl_status gpu_unary(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->unary.y->len;
    LAUNCH(unary_each, blocks_for(n), THREADS, (tl_unary_kind)a->unary.kind, F32(a->unary.x),
           F32(a->unary.y), n);
    return launched(ctx, "unary");
}

tl_status gpu_unary_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_unary_grad *u = &a->unary_grad;
    int64_t n = u->dx->len;
    LAUNCH(unary_grad_each, blocks_for(n), THREADS, (tl_unary_kind)u->kind, F32(u->x), F32(u->dy),
           F32(u->dx), n);
    return launched(ctx, "unary_grad");
}

tl_status gpu_gate(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_gate *g = &a->gate;
    int64_t n = g->y->len;
    LAUNCH(gate_each, blocks_for(n), THREADS, (tl_unary_kind)g->kind, F32(g->a), F32(g->b),
           F32(g->y), n);
    return launched(ctx, "gate");
}

tl_status gpu_gate_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_gate_grad *g = &a->gate_grad;
    int64_t n = g->da->len;
    LAUNCH(gate_grad_each, blocks_for(n), THREADS, (tl_unary_kind)g->kind, F32(g->a), F32(g->b),
           F32(g->dy), F32(g->da), F32(g->db), n);
    return launched(ctx, "gate_grad");
}

tl_status gpu_affine(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->affine.y->len;
    LAUNCH(affine_each, blocks_for(n), THREADS, F32(a->affine.x), (float)a->affine.scale,
           (float)a->affine.shift, F32(a->affine.y), n);
    return launched(ctx, "affine");
}

tl_status gpu_axpy(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->axpy.y->len;
    LAUNCH(axpy_each, blocks_for(n), THREADS, F32(a->axpy.x), (float)a->axpy.scale,
           F32(a->axpy.y), n);
    return launched(ctx, "axpy");
}

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
tl_status gpu_copy(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->copy.y->len;
    LAUNCH(copy_each, blocks_for(n), THREADS, (const uint32_t *)DATA(a->copy.x),
           (uint32_t *)DATA(a->copy.y), n);
    return launched(ctx, "copy");
}

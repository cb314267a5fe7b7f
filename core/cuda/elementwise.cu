/* elementwise.cu - applies functions of one and two tensors element by element; copies and
** fills. */
#include "cuda/unary.cuh"

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

/* ---- Operators, with the arguments of elementwise.c and copy.c ------------------------------- */

#define KIND(a) ((tl_unary_kind)(a)->i[0])

static tl_status unary(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    LAUNCH(unary_each, blocks_for(n), THREADS, KIND(a), F32(a->in[0]), F32(a->out[0]), n);
    return launched(ctx, "unary");
}

static tl_status unary_grad(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    LAUNCH(unary_grad_each, blocks_for(n), THREADS, KIND(a), F32(a->in[0]), F32(a->in[1]),
           F32(a->out[0]), n);
    return launched(ctx, "unary_grad");
}

static tl_status gate(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    LAUNCH(gate_each, blocks_for(n), THREADS, KIND(a), F32(a->in[0]), F32(a->in[1]),
           F32(a->out[0]), n);
    return launched(ctx, "gate");
}

static tl_status gate_grad(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    LAUNCH(gate_grad_each, blocks_for(n), THREADS, KIND(a), F32(a->in[0]), F32(a->in[1]),
           F32(a->in[2]), F32(a->out[0]), F32(a->out[1]), n);
    return launched(ctx, "gate_grad");
}

static tl_status affine(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    LAUNCH(affine_each, blocks_for(n), THREADS, F32(a->in[0]), (float)a->f[0], (float)a->f[1],
           F32(a->out[0]), n);
    return launched(ctx, "affine");
}

static tl_status axpy(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    LAUNCH(axpy_each, blocks_for(n), THREADS, F32(a->in[0]), (float)a->f[0], F32(a->out[0]), n);
    return launched(ctx, "axpy");
}

static tl_status fill(tl_ctx *ctx, const tl_args *a)
{
    tl_tensor *t = a->out[0];
    float      f = (float)a->f[0];
    int32_t    id = (int32_t)(t->type == TL_I32 ? a->f[0] : 0);
    uint32_t   word;
    memcpy(&word, t->type == TL_I32 ? (void *)&id : (void *)&f, sizeof word);
    LAUNCH(fill_each, blocks_for(t->len), THREADS, (uint32_t *)DATA(t), word, t->len);
    return launched(ctx, "fill");
}

/* The tensors may share storage only if they are the same elements. */
static tl_status copy(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    LAUNCH(copy_each, blocks_for(n), THREADS, (const uint32_t *)DATA(a->in[0]),
           (uint32_t *)DATA(a->out[0]), n);
    return launched(ctx, "copy");
}

const tl_kernel_row gpu_elementwise[] = {
    {TL_OP_unary, unary},   {TL_OP_unary_grad, unary_grad}, {TL_OP_gate, gate},
    {TL_OP_gate_grad, gate_grad}, {TL_OP_affine, affine},   {TL_OP_axpy, axpy},
    {TL_OP_fill, fill},     {TL_OP_copy, copy},             {},
};

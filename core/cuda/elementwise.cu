/* elementwise.cu - functions of one and of two tensors, element by element; copying and filling. */
#include "cuda.cuh"

/* ---- Functions, as elementwise.c has them ---------------------------------------------------- */

static __device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static __device__ float value(int kind, float x)
{
    switch (kind) {
    case TL_UNARY_identity: return x;
    case TL_UNARY_neg: return -x;
    case TL_UNARY_abs: return fabsf(x);
    case TL_UNARY_square: return x * x;
    case TL_UNARY_sqrt: return sqrtf(x);
    case TL_UNARY_rsqrt: return 1.0f / sqrtf(x);
    case TL_UNARY_reciprocal: return 1.0f / x;
    case TL_UNARY_exp: return expf(x);
    case TL_UNARY_log: return logf(x);
    case TL_UNARY_sin: return sinf(x);
    case TL_UNARY_cos: return cosf(x);
    case TL_UNARY_tanh: return tanhf(x);
    case TL_UNARY_sigmoid: return sigmoid(x);
    case TL_UNARY_relu: return x > 0 ? x : x != x ? x : 0.0f;
    case TL_UNARY_relu2: return x > 0 ? x * x : x != x ? x : 0.0f;
    case TL_UNARY_leaky_relu: return x > 0 ? x : 0.01f * x;
    case TL_UNARY_elu: return x > 0 ? x : expm1f(x);
    case TL_UNARY_elu1: return x > 0 ? x + 1.0f : expf(x);
    case TL_UNARY_silu: return x * sigmoid(x);
    case TL_UNARY_gelu: return 0.5f * x * (1.0f + erff(x * 0.707106781f));
    case TL_UNARY_gelu_tanh:
        return 0.5f * x * (1.0f + tanhf(0.797884561f * (x + 0.044715f * x * x * x)));
    case TL_UNARY_softplus: return (x > 0 ? x : 0.0f) + log1pf(expf(-fabsf(x)));
    default: return x;
    }
}

static __device__ float gelu_tanh_slope(float x)
{
    float t = tanhf(0.797884561f * (x + 0.044715f * x * x * x));
    return 0.5f * (1.0f + t) +
           0.5f * x * (1.0f - t * t) * 0.797884561f * (1.0f + 3.0f * 0.044715f * x * x);
}

static __device__ float slope(int kind, float x)
{
    float s;
    switch (kind) {
    case TL_UNARY_identity: return 1.0f;
    case TL_UNARY_neg: return -1.0f;
    case TL_UNARY_abs: return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
    case TL_UNARY_square: return 2.0f * x;
    case TL_UNARY_sqrt: return 0.5f / sqrtf(x);
    case TL_UNARY_rsqrt: return -0.5f / (x * sqrtf(x));
    case TL_UNARY_reciprocal: return -1.0f / (x * x);
    case TL_UNARY_exp: return expf(x);
    case TL_UNARY_log: return 1.0f / x;
    case TL_UNARY_sin: return cosf(x);
    case TL_UNARY_cos: return -sinf(x);
    case TL_UNARY_tanh: s = tanhf(x); return 1.0f - s * s;
    case TL_UNARY_sigmoid: s = sigmoid(x); return s * (1.0f - s);
    case TL_UNARY_relu: return x > 0 ? 1.0f : 0.0f;
    case TL_UNARY_relu2: return x > 0 ? 2.0f * x : 0.0f;
    case TL_UNARY_leaky_relu: return x > 0 ? 1.0f : 0.01f;
    case TL_UNARY_elu:
    case TL_UNARY_elu1: return x > 0 ? 1.0f : expf(x);
    case TL_UNARY_silu: s = sigmoid(x); return s * (1.0f + x * (1.0f - s));
    case TL_UNARY_gelu:
        return 0.5f * (1.0f + erff(x * 0.707106781f)) + x * 0.398942280f * expf(-0.5f * x * x);
    case TL_UNARY_gelu_tanh: return gelu_tanh_slope(x);
    case TL_UNARY_softplus: return sigmoid(x);
    default: return 1.0f;
    }
}

/* ---- Kernels --------------------------------------------------------------------------------- */

static __global__ void unary_each(int kind, const float *x, float *y, int64_t n)
{
    EACH(i, n) y[i] = value(kind, x[i]);
}

static __global__ void unary_grad_each(int kind, const float *x, const float *dy, float *dx,
                                       int64_t n)
{
    EACH(i, n) dx[i] = dy[i] * slope(kind, x[i]);
}

static __global__ void gate_each(int kind, const float *a, const float *b, float *y, int64_t n)
{
    EACH(i, n) y[i] = value(kind, a[i]) * b[i];
}

static __global__ void gate_grad_each(int kind, const float *a, const float *b, const float *dy,
                                      float *da, float *db, int64_t n)
{
    EACH(i, n)
    {
        float x = a[i], y = b[i], g = dy[i]; /* da and db may lie over dy and b */
        da[i] = g * y * slope(kind, x);
        db[i] = g * value(kind, x);
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

static __global__ void copy_each(const uint32_t *x, uint32_t *y, int64_t n) { EACH(i, n) y[i] = x[i]; }

/* ---- Operators: operands as in elementwise.c and tensor.c ------------------------------------ */

static tl_status unary(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    LAUNCH(unary_each, blocks_for(n), THREADS, (int)a->i[0], F32(a->in[0]), F32(a->out[0]), n);
    return launched(ctx, "unary");
}

static tl_status unary_grad(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    LAUNCH(unary_grad_each, blocks_for(n), THREADS, (int)a->i[0], F32(a->in[0]), F32(a->in[1]),
           F32(a->out[0]), n);
    return launched(ctx, "unary_grad");
}

static tl_status gate(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    LAUNCH(gate_each, blocks_for(n), THREADS, (int)a->i[0], F32(a->in[0]), F32(a->in[1]),
           F32(a->out[0]), n);
    return launched(ctx, "gate");
}

static tl_status gate_grad(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    LAUNCH(gate_grad_each, blocks_for(n), THREADS, (int)a->i[0], F32(a->in[0]), F32(a->in[1]),
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

/* The two may share storage only if they are the same elements. */
static tl_status copy(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    LAUNCH(copy_each, blocks_for(n), THREADS, (const uint32_t *)DATA(a->in[0]),
           (uint32_t *)DATA(a->out[0]), n);
    return launched(ctx, "copy");
}

const tl_kernel_row card_elementwise[] = {
    {TL_OP_unary, unary},   {TL_OP_unary_grad, unary_grad}, {TL_OP_gate, gate},
    {TL_OP_gate_grad, gate_grad}, {TL_OP_affine, affine},   {TL_OP_axpy, axpy},
    {TL_OP_fill, fill},     {TL_OP_copy, copy},             {},
};

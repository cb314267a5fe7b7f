/* elementwise.c - applies functions of one and two tensors element by element. */
#include "base/threads.h"
#include "engine/gradient.h"
#include "ops/ops.h"
#include "ops/unary.h"

#define GRAIN 16384 /* elements that justify another thread */

/* ---- Kernels --------------------------------------------------------------------------------- */

typedef struct map { /* the operands of one parallel loop */
    tl_unary_kind kind;
    const float  *x, *a, *b, *dy;
    float        *y, *da, *db;
    float         scale, shift;
} map;

INLINE void value_loop(tl_unary_kind kind, const map *m, int64_t begin, int64_t end)
{
    const float *restrict x = m->x;
    float *restrict y = m->y;
    for (int64_t i = begin; i < end; i++) y[i] = unary_value(kind, x[i]);
}

INLINE void slope_loop(tl_unary_kind kind, const map *m, int64_t begin, int64_t end)
{
    const float *x = m->x, *dy = m->dy;
    float       *y = m->y;
#pragma omp simd
    for (int64_t i = begin; i < end; i++) y[i] = dy[i] * unary_slope(kind, x[i]);
}

INLINE void gate_loop(tl_unary_kind kind, const map *m, int64_t begin, int64_t end)
{
    const float *restrict a = m->a, *restrict b = m->b;
    float *restrict y = m->y;
    for (int64_t i = begin; i < end; i++) y[i] = unary_value(kind, a[i]) * b[i];
}

INLINE void gate_slope_loop(tl_unary_kind kind, const map *m, int64_t begin, int64_t end)
{
    const float *a = m->a, *b = m->b, *dy = m->dy;
    float       *da = m->da, *db = m->db;
#pragma omp simd
    for (int64_t i = begin; i < end; i++) {
        float x = a[i], y = b[i], g = dy[i];
        da[i] = g * y * unary_slope(kind, x);
        db[i] = g * unary_value(kind, x);
    }
}

/* Runs loop with its kind as a constant, so that the compiler makes one loop for each kind. */
INLINE void for_kind(void (*loop)(tl_unary_kind kind, const map *m, int64_t begin, int64_t end),
                     const map *m, int64_t begin, int64_t end)
{
#define X(name, text) \
    case TL_UNARY_##name: loop(TL_UNARY_##name, m, begin, end); break;
    TL_EVERY_KIND(m->kind, X)
#undef X
}

static void unary_body(void *user, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for_kind(value_loop, user, begin, end);
}

static void unary_grad_body(void *user, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for_kind(slope_loop, user, begin, end);
}

static void gate_body(void *user, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for_kind(gate_loop, user, begin, end);
}

static void gate_grad_body(void *user, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for_kind(gate_slope_loop, user, begin, end);
}

/* out[0] = f(in[0]), f = i[0] */
static tl_status unary_kernel(tl_ctx *ctx, const tl_args *a)
{
    map m = {.kind = (tl_unary_kind)a->i[0], .x = F32(a->in[0]), .y = F32(a->out[0])};
    tl_parallel(ctx, a->out[0]->len, GRAIN, unary_body, &m);
    return TL_OK;
}

/* out[0] = in[1] f'(in[0]), f = i[0]; out[0] may be in[1] */
static tl_status unary_grad_kernel(tl_ctx *ctx, const tl_args *a)
{
    map m = {.kind = (tl_unary_kind)a->i[0], .x = F32(a->in[0]), .dy = F32(a->in[1]),
             .y = F32(a->out[0])};
    tl_parallel(ctx, a->out[0]->len, GRAIN, unary_grad_body, &m);
    return TL_OK;
}

/* out[0] = f(in[0]) in[1], f = i[0] */
static tl_status gate_kernel(tl_ctx *ctx, const tl_args *a)
{
    map m = {.kind = (tl_unary_kind)a->i[0], .a = F32(a->in[0]), .b = F32(a->in[1]),
             .y = F32(a->out[0])};
    tl_parallel(ctx, a->out[0]->len, GRAIN, gate_body, &m);
    return TL_OK;
}

/* out[0], out[1] = the gradients of f(in[0]) in[1] for the upstream gradient in[2], f = i[0]; they
** may be in[2] and in[1] */
static tl_status gate_grad_kernel(tl_ctx *ctx, const tl_args *a)
{
    map m = {.kind = (tl_unary_kind)a->i[0], .a = F32(a->in[0]), .b = F32(a->in[1]),
             .dy = F32(a->in[2]), .da = F32(a->out[0]), .db = F32(a->out[1])};
    tl_parallel(ctx, a->out[0]->len, GRAIN, gate_grad_body, &m);
    return TL_OK;
}

static void affine_body(void *user, int64_t begin, int64_t end, int thread)
{
    const map   *m = user;
    const float *x = m->x;
    float       *y = m->y;
    float        scale = m->scale, shift = m->shift;
    (void)thread;
#pragma omp simd
    for (int64_t i = begin; i < end; i++) y[i] = scale * x[i] + shift;
}

static void axpy_body(void *user, int64_t begin, int64_t end, int thread)
{
    const map *m = user;
    const float *restrict x = m->x;
    float *restrict y = m->y;
    float scale = m->scale;
    (void)thread;
    for (int64_t i = begin; i < end; i++) y[i] += scale * x[i];
}

/* out[0] = f[0] in[0] + f[1]; out[0] may be in[0] */
static tl_status affine_kernel(tl_ctx *ctx, const tl_args *a)
{
    map m = {.x = F32(a->in[0]), .y = F32(a->out[0]), .scale = (float)a->f[0],
             .shift = (float)a->f[1]};
    tl_parallel(ctx, a->out[0]->len, GRAIN, affine_body, &m);
    return TL_OK;
}

/* out[0] += f[0] in[0] */
static tl_status axpy_kernel(tl_ctx *ctx, const tl_args *a)
{
    map m = {.x = F32(a->in[0]), .y = F32(a->out[0]), .scale = (float)a->f[0]};
    tl_parallel(ctx, a->out[0]->len, GRAIN, axpy_body, &m);
    return TL_OK;
}

/* ---- Public functions ------------------------------------------------------------------------ */

const char *tl_unary_name(tl_unary_kind kind)
{
    static const char *const names[] = {
#define X(name, text) #name,
        TL_UNARY_MAP(X)
#undef X
    };
    return kind >= 0 && kind < TL_UNARY_KINDS ? names[kind] : NULL;
}

static tl_status unary_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args    a = {.in = {node->saved.in[0], dy}, .i = {node->saved.i[0]}};
    tl_status  st = tl_grad_buffer_over(dy, &a.out[0]);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_unary_grad, &a);
    return tl_hand_over(ctx, node, st, a.out, 1);
}

tl_status tl_unary(tl_unary_kind kind, tl_tensor *x, tl_tensor **out_y)
{
    tl_ctx *ctx = x->ctx;
    if (!tl_unary_name(kind)) return tl_fail(ctx, TL_EINVAL, "unary: no function %d", (int)kind);
    if (x->type != TL_F32) return tl_fail(ctx, TL_ETYPE, "%s: x is int32", tl_unary_name(kind));
    tl_args   a = {.in = {x}, .i = {kind}};
    tl_status st = tl_new_like(x, &a.out[0]);
    if (st == TL_OK) st = tl_run_recorded(TL_OP_unary, &a, 1, unary_grad, &a, out_y);
    if (st == TL_OK) tl_can_make_again(ctx, *out_y, TL_OP_unary);
    return st;
}

static tl_status affine_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args   a = {.in = {dy}, .f = {node->saved.f[0], 0}};
    tl_status st = tl_grad_buffer_over(dy, &a.out[0]);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_affine, &a);
    return tl_hand_over(ctx, node, st, a.out, 1);
}

tl_status tl_affine(tl_tensor *x, double scale, double shift, tl_tensor **out_y)
{
    tl_ctx *ctx = x->ctx;
    if (x->type != TL_F32) return tl_fail(ctx, TL_ETYPE, "affine: x is int32");
    tl_args   a = {.in = {x}, .f = {scale, shift}}, saved = {.f = {scale}};
    tl_status st = tl_new_like(x, &a.out[0]);
    if (st != TL_OK) return st;
    return tl_run_recorded(TL_OP_affine, &a, 1, affine_grad, &saved, out_y);
}

static tl_status gate_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args a = {.in = {node->saved.in[0], node->saved.in[1], dy}, .i = {node->saved.i[0]}};
    tl_status st = tl_grad_buffer_over(dy, &a.out[0]);
    if (st == TL_OK) st = tl_grad_buffer_over(a.in[1], &a.out[1]);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_gate_grad, &a);
    return tl_hand_over(ctx, node, st, a.out, 2);
}

tl_status tl_gate(tl_unary_kind kind, tl_tensor *x, tl_tensor *b, tl_tensor **out_y)
{
    tl_ctx *ctx = x->ctx;
    if (!tl_unary_name(kind)) return tl_fail(ctx, TL_EINVAL, "gate: no function %d", (int)kind);
    if (x->type != TL_F32 || b->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "gate: a or b is int32");
    if (!tl_same_shape(x, b))
        return tl_fail(ctx, TL_ESHAPE, "gate: a is %s, b is %s", SHAPE(x), SHAPE(b));
    tl_args   a = {.in = {x, b}, .i = {kind}};
    tl_status st = tl_new_like(x, &a.out[0]);
    if (st == TL_OK) st = tl_run_recorded(TL_OP_gate, &a, 2, gate_grad, &a, out_y);
    if (st == TL_OK) tl_can_make_again(ctx, *out_y, TL_OP_gate);
    return st;
}

const tl_kernel_row tl_cpu_elementwise[] = {
    {TL_OP_unary, unary_kernel},   {TL_OP_unary_grad, unary_grad_kernel},
    {TL_OP_gate, gate_kernel},     {TL_OP_gate_grad, gate_grad_kernel},
    {TL_OP_affine, affine_kernel}, {TL_OP_axpy, axpy_kernel},
    {0},
};

/* elementwise.c - applies functions of one and two tensors element by element. */
#include "base/threads.h"
#include "engine/gradient.h"
#include "ops/unary.h"

#define GRAIN 16384 /* elements that justify another thread */

/* ---- Kernels --------------------------------------------------------------------------------- */

typedef struct map { /* the operands of one parallel loop */
    tl_unary_kind kind;
    const float  *x, *a, *b, *dy;
    float        *y, *da, *db;
    float         scale, shift;
} map;

#define WAVES 256 /* angles at a time */

/* The sines (quarter 0) or cosines of n <= WAVES angles. Small ones take a tenth of the time of
** calls of libm. */
static void waves(int quarter, const float *restrict x, int64_t n, float *restrict y)
{
    int large = 0;
    for (int64_t i = 0; i < n; i++) large |= !(fabsf(x[i]) < TL_WAVE_LIMIT);
    for (int64_t i = 0; large && i < n; i++)
        y[i] = fabsf(x[i]) < TL_WAVE_LIMIT ? tl_wavef(x[i], quarter)
               : quarter ? cosf(x[i]) : sinf(x[i]);
    if (large) return;
    if (quarter)
        for (int64_t i = 0; i < n; i++) y[i] = tl_wavef(x[i], 1);
    else
        for (int64_t i = 0; i < n; i++) y[i] = tl_wavef(x[i], 0);
}

/* y = f(x), or with a gradient dy = dy f'(x), of f = sin or cos. */
static void wave_loop(tl_unary_kind kind, const map *m, int64_t begin, int64_t end)
{
    int   cosine = kind == TL_UNARY_cos;
    float wave[WAVES];
    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < WAVES ? end - i : WAVES;
        waves(m->dy ? !cosine : cosine, m->x + i, n, m->dy ? wave : m->y + i);
        for (int64_t k = 0; m->dy && k < n; k++)
            m->y[i + k] = m->dy[i + k] * (cosine ? -wave[k] : wave[k]);
    }
}

INLINE void value_loop(tl_unary_kind kind, const map *m, int64_t begin, int64_t end)
{
    const float *restrict x = m->x;
    float *restrict y = m->y;
    if (kind == TL_UNARY_sin || kind == TL_UNARY_cos) {
        wave_loop(kind, m, begin, end);
        return;
    }
    for (int64_t i = begin; i < end; i++) y[i] = unary_value(kind, x[i]);
}

INLINE void slope_loop(tl_unary_kind kind, const map *m, int64_t begin, int64_t end)
{
    const float *x = m->x, *dy = m->dy;
    float       *y = m->y;
    if (kind == TL_UNARY_sin || kind == TL_UNARY_cos) {
        wave_loop(kind, m, begin, end);
        return;
    }
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

#define BODY(name, loop)                                                         \
    static void name(void *user, int64_t begin, int64_t end, int thread)         \
    {                                                                            \
        (void)thread;                                                            \
        for_kind(loop, user, begin, end);                                        \
    }
BODY(unary_body, value_loop)
BODY(unary_grad_body, slope_loop)
BODY(gate_body, gate_loop)
BODY(gate_grad_body, gate_slope_loop)

/* y = f(x) */
TL_PARALLEL(unary, a->y->len, GRAIN, unary_body, map, .kind = (tl_unary_kind)a->kind,
            .x = F32(a->x), .y = F32(a->y))

/* dx = dy f'(x); dx may be dy */
TL_PARALLEL(unary_grad, a->dx->len, GRAIN, unary_grad_body, map, .kind = (tl_unary_kind)a->kind,
            .x = F32(a->x), .dy = F32(a->dy), .y = F32(a->dx))

/* y = f(a) b */
TL_PARALLEL(gate, a->y->len, GRAIN, gate_body, map, .kind = (tl_unary_kind)a->kind,
            .a = F32(a->a), .b = F32(a->b), .y = F32(a->y))

/* da, db = the gradients of f(a) b for dy; they may be dy and b */
TL_PARALLEL(gate_grad, a->da->len, GRAIN, gate_grad_body, map, .kind = (tl_unary_kind)a->kind,
            .a = F32(a->a), .b = F32(a->b), .dy = F32(a->dy), .da = F32(a->da), .db = F32(a->db))

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

/* y = scale x + shift; y may be x */
TL_PARALLEL(affine, a->y->len, GRAIN, affine_body, map, .x = F32(a->x), .y = F32(a->y),
            .scale = (float)a->scale, .shift = (float)a->shift)

/* y += scale x */
TL_PARALLEL(axpy, a->y->len, GRAIN, axpy_body, map, .x = F32(a->x), .y = F32(a->y),
            .scale = (float)a->scale)

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
    const struct tl_args_unary *u = &node->saved.unary;
    tl_args   a = {.unary_grad = {.x = u->x, .dy = dy, .kind = u->kind}};
    tl_status st = tl_grad_buffer_over(dy, &a.unary_grad.dx);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_unary_grad, &a);
    return tl_accumulate_all(ctx, node, st, a.list.out, 1);
}

tl_status tl_unary(tl_unary_kind kind, tl_tensor *x, tl_tensor **out_y)
{
    tl_ctx *ctx = x->ctx;
    if (!tl_unary_name(kind)) return tl_fail(ctx, TL_EINVAL, "unary: no function %d", (int)kind);
    if (x->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "%s: x is int32, not float32", tl_unary_name(kind));
    tl_args   a = {.unary = {.x = x, .kind = kind}};
    tl_status st = tl_new_like(x, &a.unary.y);
    if (st == TL_OK) st = tl_run_recorded(TL_OP_unary, &a, 1, unary_grad, &a, out_y);
    if (st == TL_OK) tl_allow_recompute(ctx, *out_y, TL_OP_unary);
    return st;
}

static tl_status affine_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args   a = {.affine = {.x = dy, .scale = node->saved.affine.scale}};
    tl_status st = tl_grad_buffer_over(dy, &a.affine.y);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_affine, &a);
    return tl_accumulate_all(ctx, node, st, a.list.out, 1);
}

tl_status tl_affine(tl_tensor *x, double scale, double shift, tl_tensor **out_y)
{
    tl_ctx *ctx = x->ctx;
    if (x->type != TL_F32) return tl_fail(ctx, TL_ETYPE, "affine: x is int32, not float32");
    tl_args   a = {.affine = {.x = x, .scale = scale, .shift = shift}};
    tl_args   saved = {.affine = {.scale = scale}};
    tl_status st = tl_new_like(x, &a.affine.y);
    if (st != TL_OK) return st;
    return tl_run_recorded(TL_OP_affine, &a, 1, affine_grad, &saved, out_y);
}

static tl_status gate_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    const struct tl_args_gate *g = &node->saved.gate;
    tl_args   a = {.gate_grad = {.a = g->a, .b = g->b, .dy = dy, .kind = g->kind}};
    tl_status st = tl_grad_buffer_over(dy, &a.gate_grad.da);
    if (st == TL_OK) st = tl_grad_buffer_over(g->b, &a.gate_grad.db);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_gate_grad, &a);
    return tl_accumulate_all(ctx, node, st, a.list.out, 2);
}

tl_status tl_gate(tl_unary_kind kind, tl_tensor *x, tl_tensor *b, tl_tensor **out_y)
{
    tl_ctx *ctx = x->ctx;
    if (!tl_unary_name(kind)) return tl_fail(ctx, TL_EINVAL, "gate: no function %d", (int)kind);
    if (x->type != TL_F32 || b->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "gate: a or b is int32, not float32");
    if (!tl_same_shape(x, b))
        return tl_fail(ctx, TL_ESHAPE, "gate: a is %s, b is %s: the shapes must be equal",
                       SHAPE(x), SHAPE(b));
    tl_args   a = {.gate = {.a = x, .b = b, .kind = kind}};
    tl_status st = tl_new_like(x, &a.gate.y);
    if (st == TL_OK) st = tl_run_recorded(TL_OP_gate, &a, 2, gate_grad, &a, out_y);
    if (st == TL_OK) tl_allow_recompute(ctx, *out_y, TL_OP_gate);
    return st;
}

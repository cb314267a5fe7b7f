/* softmax.c - computes softmax over the last axis, and its logarithm. */
#include <math.h>

#include "base/threads.h"
#include "engine/gradient.h"
#include "ops/arguments.h"
#include "ops/rows.h"

#define GRAIN 16384 /* elements that justify another thread */

typedef struct job {
    const float *x, *dy;
    float       *y;
    int64_t      cols;
    int          causal;
} job;

/* ---- Softmax --------------------------------------------------------------------------------- */

/* The number of entries of row r that the causal mask leaves. */
static int64_t width(const job *j, int64_t r) { return j->causal ? r % j->cols + 1 : j->cols; }

static void softmax_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = j->x + r * j->cols;
        float       *y = j->y + r * j->cols;
        int64_t      n = width(j, r);
        float        scale = (float)(1.0 / row_exp(x, y, n, row_max(x, n)));
        for (int64_t i = 0; i < n; i++) y[i] *= scale;
        for (int64_t i = n; i < j->cols; i++) y[i] = 0;
    }
}

/* Here j->x is the result of the softmax. */
static void softmax_grad_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *p = j->x + r * j->cols, *dy = j->dy + r * j->cols;
        float       *dx = j->y + r * j->cols;
        int64_t      n = width(j, r);
        float        mean = (float)row_dot(p, dy, n);
        for (int64_t i = 0; i < n; i++) dx[i] = p[i] * (dy[i] - mean);
        for (int64_t i = n; i < j->cols; i++) dx[i] = 0;
    }
}

static void log_softmax_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = j->x + r * j->cols;
        float       *y = j->y + r * j->cols;
        float        top = row_max(x, j->cols);
        float        shift = (float)log(row_exp_sum(x, j->cols, top));
        for (int64_t i = 0; i < j->cols; i++) y[i] = (x[i] - top) - shift;
    }
}

/* Here j->x is the result of the log softmax. */
static void log_softmax_grad_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *y = j->x + r * j->cols, *dy = j->dy + r * j->cols;
        float       *dx = j->y + r * j->cols;
        float        sum = (float)row_sum(dy, j->cols);
        for (int64_t i = 0; i < j->cols; i++) dx[i] = dy[i] - tl_expf(y[i]) * sum;
    }
}

/* x is the input, or, with dy, the result. */
static tl_status softmax_run(tl_ctx *ctx, const tl_tensor *x, const tl_tensor *dy, tl_tensor *y,
                             int64_t causal, tl_body body)
{
    job j = {F32(x), dy ? F32(dy) : NULL, F32(y), tl_cols(x), causal != 0};
    if (x->len > 0) tl_parallel(ctx, tl_rows(x), 1 + GRAIN / j.cols, body, &j);
    return TL_OK;
}

tl_status tl_cpu_softmax(tl_ctx *ctx, const tl_args *a)
{
    return softmax_run(ctx, a->softmax.x, NULL, a->softmax.y, a->softmax.causal, softmax_rows);
}

tl_status tl_cpu_softmax_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_softmax_grad *s = &a->softmax_grad;
    return softmax_run(ctx, s->y, s->dy, s->dx, s->causal, softmax_grad_rows);
}

tl_status tl_cpu_log_softmax(tl_ctx *ctx, const tl_args *a)
{
    return softmax_run(ctx, a->log_softmax.x, NULL, a->log_softmax.y, 0, log_softmax_rows);
}

tl_status tl_cpu_log_softmax_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_log_softmax_grad *s = &a->log_softmax_grad;
    return softmax_run(ctx, s->y, s->dy, s->dx, 0, log_softmax_grad_rows);
}

static tl_status softmax_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args a = {.softmax_grad = {.y = node->saved.softmax_grad.y, .dy = dy,
                                  .causal = node->saved.softmax_grad.causal}};
    tl_status st = tl_new_like(dy, &a.softmax_grad.dx);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_softmax_grad, &a);
    return tl_hand_over(ctx, node, st, a.list.out, 1);
}

static tl_status log_softmax_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args   a = {.log_softmax_grad = {.y = node->saved.log_softmax_grad.y, .dy = dy}};
    tl_status st = tl_new_like(dy, &a.log_softmax_grad.dx);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_log_softmax_grad, &a);
    return tl_hand_over(ctx, node, st, a.list.out, 1);
}

tl_status tl_softmax(tl_tensor *x, int causal, tl_tensor **out_y)
{
    if (x->type != TL_F32) return tl_fail(x->ctx, TL_ETYPE, "softmax: x is int32, not float32");
    if (causal && (x->ndim < 2 || tl_tensor_dim(x, -1) != tl_tensor_dim(x, -2)))
        return tl_fail(x->ctx, TL_ESHAPE, "softmax: x is %s, causal needs [..,n,n]", SHAPE(x));
    tl_args   a = {.softmax = {.x = x, .causal = causal != 0}};
    tl_status st = tl_new_like(x, &a.softmax.y);
    if (st != TL_OK) return st;
    tl_args saved = {.softmax_grad = {.y = a.softmax.y, .causal = causal != 0}};
    return tl_run_recorded(TL_OP_softmax, &a, 1, softmax_grad, &saved, out_y);
}

tl_status tl_log_softmax(tl_tensor *x, tl_tensor **out_y)
{
    if (x->type != TL_F32) return tl_fail(x->ctx, TL_ETYPE, "log_softmax: x is int32, not float32");
    tl_args   a = {.log_softmax = {.x = x}};
    tl_status st = tl_new_like(x, &a.log_softmax.y);
    if (st != TL_OK) return st;
    tl_args saved = {.log_softmax_grad = {.y = a.log_softmax.y}};
    return tl_run_recorded(TL_OP_log_softmax, &a, 1, log_softmax_grad, &saved, out_y);
}

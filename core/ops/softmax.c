/* softmax.c - computes softmax over the last axis, and its logarithm. */
#include <math.h>

#include "base/threads.h"
#include "engine/gradient.h"
#include "ops/arguments.h"
#include "ops/ops.h"
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

/* softmax, log_softmax: in: x   out: y   i: causal; their gradients: in: y, dy   out: dx */
static tl_status softmax_run(tl_ctx *ctx, const tl_args *a, tl_body body)
{
    const tl_tensor *x = a->in[0], *dy = a->in[1];
    job j = {F32(x), dy ? F32(dy) : NULL, F32(a->out[0]), tl_cols(x), a->i[0] != 0};
    if (x->len > 0) tl_parallel(ctx, tl_rows(x), 1 + GRAIN / j.cols, body, &j);
    return TL_OK;
}

static tl_status softmax_kernel(tl_ctx *ctx, const tl_args *a)
{
    return softmax_run(ctx, a, softmax_rows);
}

static tl_status softmax_grad_kernel(tl_ctx *ctx, const tl_args *a)
{
    return softmax_run(ctx, a, softmax_grad_rows);
}

static tl_status log_softmax_kernel(tl_ctx *ctx, const tl_args *a)
{
    return softmax_run(ctx, a, log_softmax_rows);
}

static tl_status log_softmax_grad_kernel(tl_ctx *ctx, const tl_args *a)
{
    return softmax_run(ctx, a, log_softmax_grad_rows);
}

/* saved: in[0] the result   i: causal, the operator of the gradient */
static tl_status rows_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args   a = {.in = {node->saved.in[0], dy}, .i = {node->saved.i[0]}};
    tl_status st = tl_new_like(dy, &a.out[0]);
    if (st == TL_OK) st = tl_launch(ctx, (tl_op)node->saved.i[1], &a);
    return tl_hand_over(ctx, node, st, a.out, 1);
}

static tl_status map_rows(tl_op op, tl_op grad, tl_tensor *x, int causal, tl_tensor **out_y)
{
    tl_args   a = {.in = {x}, .i = {causal}};
    tl_status st = tl_new_like(x, &a.out[0]);
    if (st != TL_OK) return st;
    tl_args saved = {.in = {a.out[0]}, .i = {causal, grad}};
    return tl_run_recorded(op, &a, 1, rows_grad, &saved, out_y);
}

tl_status tl_softmax(tl_tensor *x, int causal, tl_tensor **out_y)
{
    if (x->type != TL_F32) return tl_fail(x->ctx, TL_ETYPE, "softmax: x is int32");
    if (causal && (x->ndim < 2 || tl_tensor_dim(x, -1) != tl_tensor_dim(x, -2)))
        return tl_fail(x->ctx, TL_ESHAPE, "softmax: x is %s, causal needs [..,n,n]", SHAPE(x));
    return map_rows(TL_OP_softmax, TL_OP_softmax_grad, x, causal != 0, out_y);
}

tl_status tl_log_softmax(tl_tensor *x, tl_tensor **out_y)
{
    if (x->type != TL_F32) return tl_fail(x->ctx, TL_ETYPE, "log_softmax: x is int32");
    return map_rows(TL_OP_log_softmax, TL_OP_log_softmax_grad, x, 0, out_y);
}

const tl_kernel_row tl_cpu_softmax[] = {
    {TL_OP_softmax, softmax_kernel},
    {TL_OP_softmax_grad, softmax_grad_kernel},
    {TL_OP_log_softmax, log_softmax_kernel},
    {TL_OP_log_softmax_grad, log_softmax_grad_kernel},
    {0},
};

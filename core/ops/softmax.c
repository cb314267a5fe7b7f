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

TL_PARALLEL(softmax, a->x->len > 0 ? tl_rows(a->x) : 0, 1 + GRAIN / (j.cols + 1),
            a->log ? log_softmax_rows : softmax_rows, job, .x = F32(a->x), .y = F32(a->y),
            .cols = tl_cols(a->x), .causal = a->causal != 0)
TL_PARALLEL(softmax_grad, a->y->len > 0 ? tl_rows(a->y) : 0, 1 + GRAIN / (j.cols + 1),
            a->log ? log_softmax_grad_rows : softmax_grad_rows, job, .x = F32(a->y),
            .dy = F32(a->dy), .y = F32(a->dx), .cols = tl_cols(a->y), .causal = a->causal != 0)

/* saved: the gradient's arguments, without dy */
static tl_status softmax_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args a = node->saved;
    a.softmax_grad.dy = dy;
    tl_status st = tl_new_like(dy, &a.softmax_grad.dx);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_softmax_grad, &a);
    return tl_accumulate_all(ctx, node, st, a.list.out, 1);
}

static tl_status softmax(const char *op, tl_tensor *x, int causal, int log, tl_tensor **out_y)
{
    if (x->type != TL_F32) return tl_fail(x->ctx, TL_ETYPE, "%s: x is int32, not float32", op);
    tl_args   a = {.softmax = {.x = x, .causal = causal, .log = log}};
    tl_status st = tl_new_like(x, &a.softmax.y);
    if (st != TL_OK) return st;
    tl_args saved = {.softmax_grad = {.y = a.softmax.y, .causal = causal, .log = log}};
    return tl_run_recorded(TL_OP_softmax, &a, 1, softmax_grad, &saved, out_y);
}

tl_status tl_softmax(tl_tensor *x, int causal, tl_tensor **out_y)
{
    if (causal && (x->ndim < 2 || tl_tensor_dim(x, -1) != tl_tensor_dim(x, -2)))
        return tl_fail(x->ctx, TL_ESHAPE, "softmax: x is %s, causal needs [..,n,n]", SHAPE(x));
    return softmax("softmax", x, causal != 0, 0, out_y);
}

tl_status tl_log_softmax(tl_tensor *x, tl_tensor **out_y)
{
    return softmax("log_softmax", x, 0, 1, out_y);
}

/* batch_norm.c - normalises each column over all rows. A thread has whole columns, so that the
** result does not depend on the number of threads. */
#include <math.h>

#include "base/threads.h"
#include "engine/gradient.h"
#include "ops/arguments.h"

#define STRIP 64 /* columns summed together */
#define GRAIN 16 /* columns that justify another thread: a cache line of each row */

/* sum and dot are the sums over the rows of f and f (x - mean), where f is dy, or x - mean if dy is
** NULL. */
static void column_sums(const tl_batch_norm_job *j, int64_t c, int64_t n, const double *mean,
                        double *sum, double *dot)
{
    for (int64_t i = 0; i < STRIP; i++) sum[i] = dot[i] = 0;
    for (int64_t r = 0; r < j->rows; r++) {
        const float *x = j->x + r * j->cols + c;
        const float *dy = j->dy ? j->dy + r * j->cols + c : NULL;
        for (int64_t i = 0; i < n; i++) {
            double z = (double)x[i] - mean[i], f = dy ? (double)dy[i] : z;
            sum[i] += f;
            dot[i] += f * z;
        }
    }
}

/* Sets mean and variance of n columns from c on: the running ones, or in training the batch's,
** which then update the running ones. */
static void column_statistics(const tl_batch_norm_job *j, int64_t c, int64_t n, double *mean,
                              double *var)
{
    double zero[STRIP] = {0}, sum[STRIP], dot[STRIP], rows = (double)j->rows;
    if (j->training) {
        column_sums(j, c, n, zero, sum, dot);
        for (int64_t i = 0; i < n; i++) mean[i] = sum[i] / rows;
        column_sums(j, c, n, mean, sum, dot);
    }
    for (int64_t i = 0; i < n; i++) {
        float *m = j->running_mean + c + i, *v = j->running_var + c + i;
        if (j->training) {
            var[i] = dot[i] / rows;
            *m = (float)((1 - j->momentum) * (double)*m + j->momentum * mean[i]);
            *v = (float)((1 - j->momentum) * (double)*v + j->momentum * dot[i] / (rows - 1));
        } else {
            mean[i] = (double)*m;
            var[i] = (double)*v;
        }
    }
}

static void batch_columns(void *user, int64_t begin, int64_t end, int thread)
{
    const tl_batch_norm_job *j = user;
    double       mean[STRIP] = {0}, var[STRIP] = {0};
    float        scale[STRIP], shift[STRIP];
    (void)thread;
    for (int64_t c = begin; c < end; c += STRIP) {
        int64_t n = end - c < STRIP ? end - c : STRIP;
        column_statistics(j, c, n, mean, var);
        for (int64_t i = 0; i < n; i++) {
            double s = 1 / sqrt(var[i] + j->eps);
            j->mean[c + i] = (float)mean[i];
            j->s[c + i] = (float)s;
            scale[i] = (float)(s * (j->weight ? (double)j->weight[c + i] : 1));
            shift[i] = j->bias ? j->bias[c + i] : 0;
        }
        for (int64_t r = 0; r < j->rows; r++) {
            const float *x = j->x + r * j->cols + c;
            float       *y = j->y + r * j->cols + c;
            for (int64_t i = 0; i < n; i++)
                y[i] = (x[i] - j->mean[c + i]) * scale[i] + shift[i];
        }
    }
}

/* dx = weight s (dy - mean dy - z mean(dy z)) in training, else weight s dy;  z = (x - mean) s */
static void batch_grad_columns(void *user, int64_t begin, int64_t end, int thread)
{
    const tl_batch_norm_job *j = user;
    double       mean[STRIP] = {0}, sum[STRIP], dot[STRIP];
    float        scale[STRIP], a[STRIP], b[STRIP];
    (void)thread;
    for (int64_t c = begin; c < end; c += STRIP) {
        int64_t n = end - c < STRIP ? end - c : STRIP;
        for (int64_t i = 0; i < n; i++) mean[i] = (double)j->mean[c + i];
        column_sums(j, c, n, mean, sum, dot);
        for (int64_t i = 0; i < n; i++) {
            double s = (double)j->s[c + i], rows = (double)j->rows;
            if (j->dbias) j->dbias[c + i] = (float)sum[i];
            if (j->dweight) j->dweight[c + i] = (float)(dot[i] * s);
            scale[i] = (float)(s * (j->weight ? (double)j->weight[c + i] : 1));
            a[i] = j->training ? (float)(sum[i] / rows) : 0;
            b[i] = j->training ? (float)(dot[i] * s * s / rows) : 0;
        }
        for (int64_t r = 0; j->y && r < j->rows; r++) {
            const float *x = j->x + r * j->cols + c, *dy = j->dy + r * j->cols + c;
            float       *dx = j->y + r * j->cols + c;
            for (int64_t i = 0; i < n; i++)
                dx[i] = scale[i] * (dy[i] - a[i] - (x[i] - j->mean[c + i]) * b[i]);
        }
    }
}

/* stats [2,d]: mean and s */
tl_batch_norm_job tl_batch_norm_job_of(const tl_args *a)
{
    const struct tl_args_batch_norm *b = &a->batch_norm;
    int64_t cols = tl_cols(b->x);
    return (tl_batch_norm_job){
        .rows = tl_rows(b->x), .cols = cols, .training = b->training != 0, .momentum = b->momentum,
        .eps = b->eps, .x = F32(b->x), .y = F32(b->y), .weight = tl_f32_or_null(b->weight),
        .bias = tl_f32_or_null(b->bias), .mean = F32(b->stats), .s = F32(b->stats) + cols,
        .running_mean = F32(b->running_mean), .running_var = F32(b->running_var)};
}

tl_batch_norm_job tl_batch_norm_grad_job_of(const tl_args *a)
{
    const struct tl_args_batch_norm_grad *b = &a->batch_norm_grad;
    int64_t cols = tl_cols(b->x);
    return (tl_batch_norm_job){
        .rows = tl_rows(b->x), .cols = cols, .training = b->training != 0, .x = F32(b->x),
        .dy = F32(b->dy), .weight = tl_f32_or_null(b->weight), .mean = F32(b->stats),
        .s = F32(b->stats) + cols, .y = tl_f32_or_null(b->dx),
        .dweight = tl_f32_or_null(b->dweight), .dbias = tl_f32_or_null(b->dbias)};
}

tl_status tl_cpu_batch_norm(tl_ctx *ctx, const tl_args *a)
{
    tl_batch_norm_job j = tl_batch_norm_job_of(a);
    tl_parallel(ctx, j.cols, GRAIN, batch_columns, &j);
    return TL_OK;
}

tl_status tl_cpu_batch_norm_grad(tl_ctx *ctx, const tl_args *a)
{
    tl_batch_norm_job j = tl_batch_norm_grad_job_of(a);
    tl_parallel(ctx, j.cols, GRAIN, batch_grad_columns, &j);
    return TL_OK;
}

/* saved: batch_norm_grad without dy */
static tl_status batch_norm_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args   a = node->saved;
    tl_status st = TL_OK;
    a.batch_norm_grad.dy = dy;
    for (int i = 0; i < 3 && st == TL_OK; i++) /* x, weight and bias */
        if (node->in[i]) st = tl_new_like(a.list.in[i], &a.list.out[i]);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_batch_norm_grad, &a);
    return tl_accumulate_all(ctx, node, st, a.list.out, 3);
}

/* t lists weight and bias, which may be NULL, running mean and running variance. */
static tl_status batch_norm_check(const tl_tensor *x, tl_tensor *const t[4], int training,
                                  double eps)
{
    static const char *const names[4] = {"weight", "bias", "running mean", "running variance"};
    tl_ctx *ctx = x->ctx;
    if (x->type != TL_F32) return tl_fail(ctx, TL_ETYPE, "batch_norm: x is int32, not float32");
    if (x->ndim < 1 || tl_cols(x) < 1)
        return tl_fail(ctx, TL_ESHAPE, "batch_norm: x is %s, not [..,d]", SHAPE(x));
    if (!(eps >= 0)) return tl_fail(ctx, TL_EINVAL, "batch_norm: eps is %g, not 0 or more", eps);
    for (int i = 0; i < 4; i++) {
        if (!t[i] && i < 2) continue;
        if (t[i]->type != TL_F32)
            return tl_fail(ctx, TL_ETYPE, "batch_norm: the %s is int32, not float32", names[i]);
        if (t[i]->ndim != 1 || t[i]->len != tl_cols(x))
            return tl_fail(ctx, TL_ESHAPE, "batch_norm: x is %s, the %s is %s, not [%lld]",
                           SHAPE(x), names[i], SHAPE(t[i]), (long long)tl_cols(x));
    }
    if (training && tl_rows(x) < 2)
        return tl_fail(ctx, TL_EINVAL, "batch_norm: training needs 2 rows or more, x is %s",
                       SHAPE(x));
    return TL_OK;
}

tl_status tl_batch_norm(tl_tensor *x, tl_tensor *weight, tl_tensor *bias, tl_tensor *running_mean,
                        tl_tensor *running_var, int training, double momentum, double eps,
                        tl_tensor **out_y)
{
    tl_ctx    *ctx = x->ctx;
    tl_tensor *inputs[3] = {x, weight, bias}, *y = NULL, *stats = NULL;
    tl_status  st = batch_norm_check(x, (tl_tensor *[]){weight, bias, running_mean, running_var},
                                     training, eps);
    if (st == TL_OK) st = tl_new_like(x, &y);
    if (st == TL_OK) st = tl_new(ctx, TL_F32, 2, (int64_t[]){2, tl_cols(x)}, &stats);
    if (st == TL_OK) {
        tl_args a = {.batch_norm = {.x = x, .weight = weight, .bias = bias, .y = y,
                                    .stats = stats, .running_mean = running_mean,
                                    .running_var = running_var, .training = training,
                                    .momentum = momentum, .eps = eps}};
        st = tl_launch(ctx, TL_OP_batch_norm, &a);
    }
    tl_args saved = {.batch_norm_grad = {.x = x, .weight = weight, .bias = bias, .stats = stats,
                                         .training = training}};
    if (st == TL_OK) st = tl_record(ctx, y, batch_norm_grad, inputs, 3, &saved, NULL);
    tl_tensor_free(stats);
    return tl_finish(st, y, out_y);
}

/* norm.c - normalises each row; batch_norm.c normalises columns.
**
** The four norms are one formula with different statistics of a row:
**   z = (x - mean) s,   y = z weight + bias
**   layer    mean, s = 1/sqrt(var + eps)
**   rms      s = 1/sqrt(m + eps)          m the mean square of x
**   simple   s = 1/(sqrt m + eps)
**   scale    s = 1/max(sqrt m, eps)
** Their gradients are one formula too: with g = dy weight,
**   dx = s (g - mean g - q z mean(g z))   (the term mean g for layer only)
** where q accounts for eps: 1 for layer and rms, 1 + eps/sqrt m for simple, and for scale 1 above
** eps and 0 below.
**
** A row of zeros has no direction: simple and scale return 0 for it, and the gradient 0 instead of
** dy/eps. With eps 1e-8 a single such row, for example of an encoder without biases at lag 0, would
** dominate all other gradients. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "engine/gradient.h"
#include "ops/arguments.h"
#include "ops/norm.h"
#include "ops/rows.h"

#define GRAIN 8192 /* elements that justify another thread */

typedef struct job {
    tl_norm_kind kind;
    int64_t      rows, cols;
    double       eps;
    const float *x, *weight, *bias, *dy; /* weight and bias are expanded to cols numbers */
    float       *y;                      /* or dx, which may be dy */
    int          add;                    /* whether to add to dx */
    float       *s, *t;                  /* per row: s; and mean (layer) or q */
    double      *dweight, *dbias;        /* [threads,cols], or NULL */
} job;

/* Allocates a row of n numbers: t broadcast, or preset if t is NULL. */
static float *stretch(tl_ctx *ctx, const tl_tensor *t, int64_t n, float preset)
{
    float *row = tl_alloc(ctx, (size_t)n * sizeof *row);
    for (int64_t i = 0; row && i < n; i++)
        row[i] = !t ? preset : t->len == 1 ? F32(t)[0] : F32(t)[i];
    return row;
}

/* ---- Kernels --------------------------------------------------------------------------------- */

/* The sum of (x - mean)^2. */
static double deviation(const float *x, int64_t n, double mean)
{
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) s += ((double)x[i] - mean) * ((double)x[i] - mean);
    return s;
}

static void statistics(const job *j, const float *x, float *s, float *t)
{
    double n = (double)j->cols, mean = j->kind == TL_NORM_LAYER ? row_sum(x, j->cols) / n : 0;
    tl_norm_statistics(j->kind, deviation(x, j->cols, mean) / n, j->eps, s, t);
    if (j->kind == TL_NORM_LAYER) *t = (float)mean;
}

static void norm_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    int64_t    n = j->cols;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = j->x + r * n;
        float *restrict y = j->y + r * n;
        statistics(j, x, j->s + r, j->t + r);
        float s = j->s[r], mean = j->kind == TL_NORM_LAYER ? j->t[r] : 0.0f;
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * s * j->weight[i] + j->bias[i];
    }
}

tl_status tl_cpu_norm(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_norm *n = &a->norm;
    job       j = {.kind = (tl_norm_kind)n->kind, .rows = tl_rows(n->x), .cols = tl_cols(n->x),
                   .eps = n->eps, .x = F32(n->x), .y = F32(n->y), .s = F32(n->stats)};
    float    *weight = stretch(ctx, n->weight, j.cols, 1), *bias = NULL;
    tl_status st = weight && (bias = stretch(ctx, n->bias, j.cols, 0)) ? TL_OK : TL_ENOMEM;
    j.t = j.s + j.rows;
    j.weight = weight;
    j.bias = bias;
    if (st == TL_OK && n->x->len > 0)
        tl_parallel(ctx, j.rows, 1 + GRAIN / j.cols, norm_rows, &j);
    tl_release(ctx, weight);
    tl_release(ctx, bias);
    return st;
}

/* The means over a row of g = dy weight and of g z. */
static void means(const job *j, const float *x, const float *dy, float s, float mean, float *out_g,
                  float *out_gz)
{
    const float *w = j->weight;
    double       sum = 0, dot = 0;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t i = 0; i < j->cols; i++) {
        float g = dy[i] * w[i];
        sum += (double)g;
        dot += (double)(g * ((x[i] - mean) * s));
    }
    *out_g = (float)(sum / (double)j->cols);
    *out_gz = (float)(dot / (double)j->cols);
}

static void norm_grad_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    int64_t    n = j->cols;
    double    *dw = j->dweight ? j->dweight + thread * n : NULL;
    double    *db = j->dbias ? j->dbias + thread * n : NULL;
    for (int64_t r = begin; r < end; r++) {
        const float *x = j->x + r * n, *dy = j->dy + r * n, *w = j->weight;
        float *dx = j->y ? j->y + r * n : NULL;
        float s = j->s[r], mean = 0, q = j->t[r], g, gz;
        if (j->kind == TL_NORM_LAYER) {
            mean = q;
            q = 1;
        }
        for (int64_t i = 0; dw && i < n; i++) dw[i] += (double)dy[i] * (double)((x[i] - mean) * s);
        for (int64_t i = 0; db && i < n; i++) db[i] += (double)dy[i];
        if (!dx) continue;
        means(j, x, dy, s, mean, &g, &gz);
        if (j->kind != TL_NORM_LAYER) g = 0;
        gz *= q;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float d = s * (dy[i] * w[i] - g - (x[i] - mean) * s * gz);
            dx[i] = j->add ? dx[i] + d : d;
        }
    }
}

/* t = the partial sums of the threads, added in a fixed order; a t of one element receives the sum
** of all columns. */
static void combine(const tl_ctx *ctx, const double *sums, int64_t n, tl_tensor *t)
{
    double all = 0;
    for (int64_t i = 0; t && i < n; i++) {
        double sum = 0;
        for (int64_t p = 0; p < ctx->threads; p++) sum += sums[p * n + i];
        all += sum;
        F32(t)[t->len == 1 ? 0 : i] = (float)(t->len == 1 ? all : sum);
    }
}

tl_status tl_cpu_norm_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_norm_grad *n = &a->norm_grad;
    job j = {.kind = (tl_norm_kind)n->kind, .rows = tl_rows(n->x), .cols = tl_cols(n->x),
             .x = F32(n->x), .dy = F32(n->dy), .y = tl_f32_or_null(n->dx), .add = n->add != 0,
             .s = F32(n->stats)};
    size_t  bytes = n->dweight || n->dbias ? (size_t)(ctx->threads * j.cols) * sizeof(double) : 0;
    float  *weight = stretch(ctx, n->weight, j.cols, 1);
    double *sums = tl_alloc(ctx, 2 * bytes);
    tl_status st = weight && sums ? TL_OK : TL_ENOMEM;
    if (st != TL_OK) goto fail;
    memset(sums, 0, 2 * bytes);
    j.t = j.s + j.rows;
    j.weight = weight;
    if (n->dweight) j.dweight = sums;
    if (n->dbias) j.dbias = sums + ctx->threads * j.cols;
    if (n->x->len > 0) tl_parallel(ctx, j.rows, 1 + GRAIN / j.cols, norm_grad_rows, &j);
    combine(ctx, sums, j.cols, n->dweight);
    combine(ctx, sums + ctx->threads * j.cols, j.cols, n->dbias);
fail:
    tl_release(ctx, weight);
    tl_release(ctx, sums);
    return st;
}

/* ---- Public functions ------------------------------------------------------------------------ */

/* saved: the arguments of the forward kernel */
static tl_status norm_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    const struct tl_args_norm *n = &node->saved.norm;
    tl_args   a = {.norm_grad = {.x = n->x, .weight = n->weight, .stats = n->stats, .dy = dy,
                                 .kind = n->kind}};
    struct tl_args_norm_grad *g = &a.norm_grad;
    tl_status st = TL_OK;
    tl_slot  *to = TL_SLOT(node, norm, x);
    if (to && to->grad) {
        tl_shape shape = tl_shape_of(n->x);
        st = tl_grad_buffer(ctx, to, &shape, &g->dx, &g->add);
    } else if (to) {
        st = tl_grad_buffer_over(dy, &g->dx);
    }
    if (TL_SLOT(node, norm, weight) && st == TL_OK) st = tl_new_like(n->weight, &g->dweight);
    if (TL_SLOT(node, norm, bias) && st == TL_OK) st = tl_new_like(n->bias, &g->dbias);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_norm_grad, &a);
    return tl_accumulate_all(ctx, node, st, a.list.out, 3);
}

/* weight and bias may be NULL. */
static tl_status norm_check(const char *op, const tl_tensor *x, const tl_tensor *weight,
                            const tl_tensor *bias, int64_t size)
{
    tl_ctx *ctx = x->ctx;
    if (x->type != TL_F32 || (weight && weight->type != TL_F32) || (bias && bias->type != TL_F32))
        return tl_fail(ctx, TL_ETYPE, "%s: x, weight or bias is int32, not float32", op);
    if (x->ndim < 1 || tl_cols(x) < 1)
        return tl_fail(ctx, TL_ESHAPE, "%s: x is %s, not [..,d]", op, SHAPE(x));
    if (weight && (weight->len != size || weight->ndim > 1))
        return tl_fail(ctx, TL_ESHAPE, "%s: x is %s, weight is %s, not [%lld]", op, SHAPE(x),
                       SHAPE(weight), (long long)size);
    if (bias && (bias->len != size || bias->ndim > 1))
        return tl_fail(ctx, TL_ESHAPE, "%s: x is %s, bias is %s, not [%lld]", op, SHAPE(x),
                       SHAPE(bias), (long long)size);
    return TL_OK;
}

static tl_status norm(tl_norm_kind k, const char *op, tl_tensor *x, tl_tensor *weight,
                      tl_tensor *bias, double eps, tl_tensor **out_y)
{
    tl_ctx    *ctx = x->ctx;
    tl_tensor *inputs[3] = {x, weight, bias}, *y = NULL, *stats = NULL;
    int        one = k == TL_NORM_SCALE || (k == TL_NORM_RMS && weight && weight->len == 1);
    tl_status  st = norm_check(op, x, weight, bias, one ? 1 : tl_cols(x));
    if (st != TL_OK) return st;
    if (!(eps >= 0)) return tl_fail(ctx, TL_EINVAL, "%s: eps is %g", op, eps);
    st = tl_new_like(x, &y);
    if (st == TL_OK) st = tl_new(ctx, TL_F32, 2, (int64_t[]){2, tl_rows(x)}, &stats);
    tl_args a = {.norm = {.x = x, .weight = weight, .bias = bias, .stats = stats, .y = y,
                          .kind = k, .eps = eps}};
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_norm, &a);
    if (st == TL_OK) st = tl_record(ctx, y, norm_grad, inputs, 3, &a, NULL);
    if (st == TL_OK) tl_allow_recompute(ctx, y, TL_OP_norm);
    tl_tensor_free(stats);
    return tl_finish(st, y, out_y);
}

tl_status tl_layer_norm(tl_tensor *x, tl_tensor *weight, tl_tensor *bias, double eps,
                        tl_tensor **out_y)
{
    return norm(TL_NORM_LAYER, "layer_norm", x, weight, bias, eps, out_y);
}

tl_status tl_rms_norm(tl_tensor *x, tl_tensor *weight, double eps, tl_tensor **out_y)
{
    return norm(TL_NORM_RMS, "rms_norm", x, weight, NULL, eps, out_y);
}

tl_status tl_simple_rms_norm(tl_tensor *x, double eps, tl_tensor **out_y)
{
    return norm(TL_NORM_SIMPLE, "simple_rms_norm", x, NULL, NULL, eps, out_y);
}

tl_status tl_scale_norm(tl_tensor *x, tl_tensor *weight, double eps, tl_tensor **out_y)
{
    return norm(TL_NORM_SCALE, "scale_norm", x, weight, NULL, eps, out_y);
}

/* loss.c - computes the cross entropy of logits, and of a linear map's logits without storing them
** all. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "engine/gradient.h"
#include "ops/arguments.h"
#include "ops/rows.h"
#include "products/gemm.h"

#define GRAIN 16384 /* elements that justify another thread */

#define BLOCK_ELEMENTS (16 << 20) /* logits in memory at a time in the linear form */
#define BLOCK_ROWS     1024
#define STRIP          64

typedef struct loss_job {
    const float   *x, *w, *bias;     /* without w, x holds the logits */
    float         *dx, *dw, *dbias;  /* a NULL gradient is not computed */
    const int32_t *targets;
    int64_t        d, v;             /* columns of x, and of the logits */
    const int64_t *counted;          /* the rows whose target is not ignored */
    int64_t        count;
    float         *logits, *xs, *dxs; /* scratch of the linear form for a block of rows */
    double        *losses;           /* one for each counted row */
    float          scale;            /* 1/count */
    int            wants_grad;
    int64_t        first, rows;      /* the current block of `counted` */
} loss_job;

/* Returns -log softmax(x)[t]. Unless g is NULL, it receives scale times the gradient; g may be
** x. */
static double loss_row(const float *x, float *g, int64_t v, int32_t t, float scale)
{
    float  top = row_max(x, v);
    double target = (double)x[t] - (double)top;
    if (!g) return log(row_exp_sum(x, v, top)) - target;
    double sum = row_exp(x, g, v, top);
    float  f = (float)((double)scale / sum);
    for (int64_t i = 0; i < v; i++) g[i] *= f;
    g[t] -= scale;
    return log(sum) - target;
}

static void plain_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const loss_job *j = user;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t r = j->counted[k];
        j->losses[k] = loss_row(j->x + r * j->v, j->dx ? j->dx + r * j->v : NULL, j->v,
                                j->targets[r], j->scale);
    }
}

static void block_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const loss_job *j = user;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        float *x = j->logits + k * j->v;
        j->losses[j->first + k] = loss_row(x, j->wants_grad ? x : NULL, j->v,
                                           j->targets[j->counted[j->first + k]], j->scale);
    }
}

/* dbias += the column sums of the block. */
static void block_columns(void *user, int64_t begin, int64_t end, int thread)
{
    const loss_job *j = user;
    (void)thread;
    for (int64_t c = begin; c < end; c += STRIP) {
        int64_t n = end - c < STRIP ? end - c : STRIP;
        double  sum[STRIP] = {0};
        for (int64_t r = 0; r < j->rows; r++) {
            const float *row = j->logits + r * j->v + c;
            for (int64_t i = 0; i < n; i++) sum[i] += (double)row[i];
        }
        for (int64_t i = 0; i < n; i++) j->dbias[c + i] += (float)sum[i];
    }
}

/* Gathers the rows of one block, computes their logits, turns these into gradients in place, and
** multiplies them on. */
static tl_status block(tl_ctx *ctx, loss_job *j)
{
    size_t  row = (size_t)j->d * sizeof(float);
    int64_t n = j->rows, d = j->d, v = j->v;
    for (int64_t k = 0; k < n; k++) {
        memcpy(j->xs + k * d, j->x + j->counted[j->first + k] * d, row);
        if (j->bias) memcpy(j->logits + k * v, j->bias, (size_t)v * sizeof(float));
    }
    tl_product logits = {.m = n, .n = v, .k = d, .alpha = 1, .beta = j->bias ? 1 : 0, .trans_b = 1};
    tl_product dw = {.m = v, .n = d, .k = n, .alpha = 1, .beta = j->first > 0, .trans_a = 1};
    tl_product dxs = {.m = n, .n = d, .k = v, .alpha = 1};
    tl_status  st = tl_gemm(ctx, &logits, j->xs, j->w, j->logits);
    if (st != TL_OK) return st;
    tl_parallel(ctx, n, 1 + GRAIN / v, block_rows, j);
    if (j->dw) st = tl_gemm(ctx, &dw, j->logits, j->xs, j->dw);
    if (j->dbias) tl_parallel(ctx, v, STRIP, block_columns, j);
    if (!j->dx || st != TL_OK) return st;
    st = tl_gemm(ctx, &dxs, j->logits, j->w, j->dxs);
    for (int64_t k = 0; k < n; k++)
        memcpy(j->dx + j->counted[j->first + k] * d, j->dxs + k * d, row);
    return st;
}

static tl_status linear_loss(tl_ctx *ctx, loss_job *j)
{
    int64_t limit = BLOCK_ELEMENTS / j->v;
    limit = limit < 64 ? 64 : limit > BLOCK_ROWS ? BLOCK_ROWS : limit;
    int64_t blocks = (j->count + limit - 1) / limit, rows = (j->count + blocks - 1) / blocks;
    size_t  bytes = (size_t)rows * sizeof(float);
    j->logits = tl_alloc(ctx, bytes * (size_t)j->v);
    j->xs = tl_alloc(ctx, bytes * (size_t)j->d);
    j->dxs = tl_alloc(ctx, bytes * (size_t)j->d);
    tl_status st = j->logits && j->xs && j->dxs ? TL_OK : TL_ENOMEM;
    for (j->first = 0; st == TL_OK && j->first < j->count; j->first += rows) {
        j->rows = j->count - j->first < rows ? j->count - j->first : rows;
        st = block(ctx, j);
    }
    tl_release(ctx, j->logits);
    tl_release(ctx, j->xs);
    tl_release(ctx, j->dxs);
    return st;
}

/* Lists the rows whose target is not ignored. */
static tl_status count_rows(tl_ctx *ctx, const tl_tensor *targets, int32_t ignore, int64_t v,
                            int64_t *counted, int64_t *out_count)
{
    int64_t count = 0;
    for (int64_t r = 0; r < targets->len; r++) {
        int32_t t = I32(targets)[r];
        if (t == ignore) continue;
        if (t < 0 || t >= v)
            return tl_fail(ctx, TL_EINVAL, "cross_entropy: target %d in row %lld is not in 0..%lld",
                           (int)t, tl_position(ctx, r), (long long)v - 1);
        counted[count++] = r;
    }
    *out_count = count;
    return TL_OK;
}

static tl_status clear(tl_tensor *t) { return t ? tl_tensor_fill(t, 0) : TL_OK; }

tl_status tl_cpu_cross_entropy(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_cross_entropy *c = &a->cross_entropy;
    int64_t  rows = c->targets->len;
    loss_job j = {.x = F32(c->x), .targets = I32(c->targets), .d = tl_cols(c->x),
                  .w = tl_f32_or_null(c->w), .bias = tl_f32_or_null(c->bias),
                  .dx = tl_f32_or_null(c->dx), .dw = tl_f32_or_null(c->dw),
                  .dbias = tl_f32_or_null(c->dbias)};
    j.wants_grad = j.dx || j.dw || j.dbias;
    j.v = j.w ? c->w->dims[0] : j.d;
    double    total = 0;
    int64_t  *counted = tl_alloc(ctx, (size_t)rows * sizeof *counted);
    j.losses = tl_alloc(ctx, (size_t)rows * sizeof *j.losses);
    j.counted = counted;
    tl_status st = counted && j.losses ? TL_OK : TL_ENOMEM;
    if (st == TL_OK)
        st = count_rows(ctx, c->targets, (int32_t)c->ignore, j.v, counted, &j.count);
    if (st == TL_OK && j.count < rows) st = clear(c->dx);
    if (st == TL_OK && j.count == 0) st = clear(c->dw);
    if (st == TL_OK) st = clear(c->dbias);
    if (st != TL_OK) goto fail;
    if (j.count > 0) {
        j.scale = (float)(1.0 / (double)j.count);
        if (j.w)
            st = linear_loss(ctx, &j);
        else
            tl_parallel(ctx, j.count, 1 + GRAIN / j.v, plain_rows, &j);
        for (int64_t k = 0; k < j.count; k++) total += j.losses[k];
        total /= (double)j.count;
    }
    F32(c->loss)[0] = (float)total;
fail:
    tl_release(ctx, counted);
    tl_release(ctx, j.losses);
    return st;
}

/* saved: x, w and bias: the gradients, for dy = 1, of the inputs that require one */
static tl_status cross_entropy_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_status st = TL_OK;
    for (int i = 0; i < 3 && st == TL_OK; i++) {
        tl_tensor *unit = node->saved.list.in[i], *g;
        if (!unit) continue;
        if (dy == ctx->one) { /* dy is 1, and handing the gradient on saves a copy */
            g = tl_take_saved(node, i);
        } else {
            st = tl_binary(TL_BINARY_MUL, unit, dy, &g);
        }
        if (st == TL_OK) st = tl_accumulate(ctx, node->in[i], g);
    }
    return st;
}

static tl_status new_gradient(tl_tensor *t, tl_tensor **out_g)
{
    return t && tl_needs_grad(t->ctx, t) ? tl_new_like(t, out_g) : TL_OK;
}

/* x is [..,d] with w, or the logits [..,v] without. */
static tl_status cross_entropy(tl_tensor *x, tl_tensor *w, tl_tensor *bias, tl_tensor *targets,
                               int32_t ignore, tl_tensor **out_loss)
{
    tl_ctx    *ctx = x->ctx;
    tl_args    a = {.cross_entropy = {.x = x, .w = w, .bias = bias, .targets = targets,
                                      .ignore = ignore}};
    struct tl_args_cross_entropy *c = &a.cross_entropy;
    tl_status  st = new_gradient(x, &c->dx);
    if (st == TL_OK) st = new_gradient(w, &c->dw);
    if (st == TL_OK) st = new_gradient(bias, &c->dbias);
    if (st == TL_OK) st = tl_new(ctx, TL_F32, 0, NULL, &c->loss);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_cross_entropy, &a);
    tl_args saved = {.cross_entropy = {.x = c->dx, .w = c->dw, .bias = c->dbias}};
    if (st == TL_OK)
        st = tl_record(ctx, c->loss, cross_entropy_grad, a.list.in, 3, &saved, NULL);
    tl_tensor_free(c->dx);
    tl_tensor_free(c->dw);
    tl_tensor_free(c->dbias);
    return tl_finish(st, c->loss, out_loss);
}

/* Targets must be int32 and have x's leading dimensions. */
static tl_status check_targets(const char *op, const tl_tensor *x, const tl_tensor *targets)
{
    int same = x->ndim >= 1 && targets->ndim == x->ndim - 1;
    if (x->type != TL_F32) return tl_fail(x->ctx, TL_ETYPE, "%s: x is int32, not float32", op);
    if (targets->type != TL_I32) return tl_fail(x->ctx, TL_ETYPE, "%s: targets are float32", op);
    for (int i = 0; same && i < targets->ndim; i++) same = targets->dims[i] == x->dims[i];
    if (!same || tl_cols(x) < 1)
        return tl_fail(x->ctx, TL_ESHAPE, "%s: x is %s, targets are %s", op, SHAPE(x),
                       SHAPE(targets));
    return TL_OK;
}

tl_status tl_cross_entropy(tl_tensor *logits, tl_tensor *targets, int32_t ignore,
                           tl_tensor **out_loss)
{
    tl_status st = check_targets("cross_entropy", logits, targets);
    return st == TL_OK ? cross_entropy(logits, NULL, NULL, targets, ignore, out_loss) : st;
}

tl_status tl_linear_cross_entropy(tl_tensor *x, tl_tensor *w, tl_tensor *bias, tl_tensor *targets,
                                  int32_t ignore, tl_tensor **out_loss)
{
    tl_status st = check_targets("linear_cross_entropy", x, targets);
    if (st != TL_OK) return st;
    if (w->type != TL_F32 || (bias && bias->type != TL_F32))
        return tl_fail(x->ctx, TL_ETYPE, "linear_cross_entropy: w or bias is int32, not float32");
    if (w->ndim != 2 || w->dims[0] < 1 || w->dims[1] != tl_cols(x))
        return tl_fail(x->ctx, TL_ESHAPE, "linear_cross_entropy: x is %s, w is %s, not [v,%lld]",
                       SHAPE(x), SHAPE(w), (long long)tl_cols(x));
    if (bias && (bias->ndim != 1 || bias->dims[0] != w->dims[0]))
        return tl_fail(x->ctx, TL_ESHAPE, "linear_cross_entropy: w is %s, bias is %s, not [%lld]",
                       SHAPE(w), SHAPE(bias), (long long)w->dims[0]);
    st = tl_gemm_fits(x->ctx, "linear_cross_entropy", BLOCK_ROWS, w->dims[0], w->dims[1]);
    return st == TL_OK ? cross_entropy(x, w, bias, targets, ignore, out_loss) : st;
}

/* decay.c - multiplies coefficients by the exponential decay, coef_k gamma^|k| (TNN, Eq. 5), with
** gradients to coef and gamma. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "base/vecmath.h"
#include "engine/gradient.h"
#include "tno/tno.h"

#define GRAIN 4096 /* elements that justify another thread */

/* 2^e for e <= 0, accurate to about 2 units in the last place. The exponent is split in float64,
** because a float32 product of lag and log gamma would have a relative error of 1e-6 at
** gamma^k = e^-20. The result is 0 below 2^-126, and NaN for a NaN. */
static inline float power(double e)
{
    const double shift = 6755399441055744.0; /* 1.5 2^52: adding it rounds to an integer */
    double       c = e > -127 ? e : -127;
    double       k = (c + shift) - shift;
    float        r = (float)(c - k) * 0.69314718f;
    int32_t      bits = ((int32_t)k + 127) << 23; /* 0.0 at k = -127 */
    float        scale;
    memcpy(&scale, &bits, sizeof scale);
    return tl_expf(r) * scale + (float)(e - e);
}

typedef struct job {
    const float  *coef, *dy, *lags;
    const double *log2_gamma; /* [d] */
    float        *out;
    double       *sums; /* [d] */
    int64_t       points, d;
} job;

/* Rows begin..end-1 of out = coef gamma^|lag|. */
static void decay_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        const float *restrict  from = j->coef + k * j->d;
        const double *restrict log2 = j->log2_gamma;
        float *restrict        to = j->out + k * j->d;
        double lag = fabs((double)j->lags[k]);
        for (int64_t c = 0; c < j->d; c++) to[c] = from[c] * power(lag * log2[c]);
    }
}

/* sums[c] = the sum over k of dy coef |lag| gamma^|lag|, for channels begin..end-1. */
static void decay_channels(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    (void)thread;
    for (int64_t c = begin; c < end; c++) j->sums[c] = 0;
    for (int64_t k = 0; k < j->points; k++) {
        const float *restrict  coef = j->coef + k * j->d;
        const float *restrict  dy = j->dy + k * j->d;
        const double *restrict log2 = j->log2_gamma;
        double *restrict       sums = j->sums;
        double lag = fabs((double)j->lags[k]);
        for (int64_t c = begin; c < end; c++)
            sums[c] += (double)dy[c] * coef[c] * lag * power(lag * log2[c]);
    }
}

/* Writes log2 of gamma for each channel; gamma is [d] or one number. */
static void logarithms(const tl_tensor *gamma, int64_t d, double *out)
{
    for (int64_t c = 0; c < d; c++)
        out[c] = c == 0 || gamma->len > 1 ? log2((double)F32(gamma)[c]) : out[0];
}

tl_status tl_decay_range(const char *op, const char *name, const tl_tensor *t, int nan)
{
    for (int64_t c = 0; c < t->len; c++) {
        float g = F32(t)[c];
        if (!(g > 0 && g <= 1) && !(nan && isnan(g)))
            return tl_fail(t->ctx, TL_EINVAL, "%s: %s %lld is %g, outside (0,1]", op, name,
                           tl_position(t->ctx, c), (double)g);
    }
    return TL_OK;
}

/* coef, y [p,d], lags [p], gamma [d] or one number */
tl_status tl_cpu_decay(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_decay *c = &a->decay;
    int64_t points = c->coef->dims[0], d = c->coef->dims[1];
    /* a NaN passes, because it is the loss that reports a diverged run */
    if (tl_decay_range("decay", "gamma", c->gamma, 1) != TL_OK) return TL_EINVAL;
    double *log2_gamma = tl_alloc(ctx, (size_t)d * sizeof *log2_gamma);
    if (!log2_gamma) return TL_ENOMEM;
    logarithms(c->gamma, d, log2_gamma);
    job j = {.coef = F32(c->coef), .lags = F32(c->lags), .log2_gamma = log2_gamma,
             .out = F32(c->y), .points = points, .d = d};
    tl_parallel(ctx, points, GRAIN / (d + 1) + 1, decay_rows, &j);
    tl_release(ctx, log2_gamma);
    return TL_OK;
}

tl_status tl_cpu_decay_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_decay_grad *g = &a->decay_grad;
    int64_t      points = g->dy->dims[0], d = g->dy->dims[1];
    const float *gamma = F32(g->gamma);
    float       *dgamma = F32(g->dgamma);
    double      *scratch = tl_alloc(ctx, 2 * (size_t)d * sizeof *scratch);
    double       sum = 0;
    if (!scratch) return TL_ENOMEM;
    logarithms(g->gamma, d, scratch);
    job j = {.dy = F32(g->dy), .coef = F32(g->coef), .lags = F32(g->lags),
             .log2_gamma = scratch, .sums = scratch + d, .points = points, .d = d};
    tl_parallel(ctx, d, GRAIN / (points + 1) + 16, decay_channels, &j);
    for (int64_t c = 0; c < d; c++) {
        sum += j.sums[c];
        if (g->dgamma->len == d && d > 1) dgamma[c] = (float)(j.sums[c] / gamma[c]);
    }
    if (g->dgamma->len == 1) dgamma[0] = (float)(sum / gamma[0]);
    tl_release(ctx, scratch);
    return TL_OK;
}

static tl_status decay_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    const struct tl_args_decay *s = &node->saved.decay;
    tl_tensor *g[3] = {NULL, NULL, NULL};
    tl_status  st = TL_OK;
    if (TL_SLOT(node, decay, coef)) {
        st = tl_new_like(dy, &g[0]);
        tl_args a = {.decay = {.coef = dy, .lags = s->lags, .gamma = s->gamma, .y = g[0]}};
        if (st == TL_OK) st = tl_launch(ctx, TL_OP_decay, &a);
    }
    if (st == TL_OK && TL_SLOT(node, decay, gamma)) {
        st = tl_new_like(s->gamma, &g[2]);
        tl_args a = {.decay_grad = {.coef = s->coef, .lags = s->lags, .gamma = s->gamma, .dy = dy,
                                    .dgamma = g[2]}};
        if (st == TL_OK) st = tl_launch(ctx, TL_OP_decay_grad, &a);
    }
    return tl_accumulate_all(ctx, node, st, g, 3);
}

static tl_status decay_check(const tl_tensor *coef, const tl_tensor *lags, const tl_tensor *gamma)
{
    tl_ctx *ctx = coef->ctx;
    if (coef->type != TL_F32 || lags->type != TL_F32 || gamma->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "decay: coef, lags and gamma need to be float32");
    if (coef->ndim != 2 || lags->ndim != 1 || lags->len != coef->dims[0])
        return tl_fail(ctx, TL_ESHAPE, "decay: coef is %s and lags is %s, not [p,d] and [p]",
                       SHAPE(coef), SHAPE(lags));
    if (gamma->len != 1 && (gamma->ndim != 1 || gamma->len != coef->dims[1]))
        return tl_fail(ctx, TL_ESHAPE, "decay: gamma is %s, not one number and not [%lld]",
                       SHAPE(gamma), (long long)coef->dims[1]);
    return TL_OK;
}

tl_status tl_decay(tl_tensor *coef, tl_tensor *lags, tl_tensor *gamma, tl_tensor **out_coef)
{
    tl_tensor *y;
    tl_status  st = decay_check(coef, lags, gamma);
    if (st == TL_OK) st = tl_new_like(coef, &y);
    if (st != TL_OK) return st;
    tl_tensor *inputs[] = {coef, NULL, gamma}; /* lags have no gradient */
    tl_args    a = {.decay = {.coef = coef, .lags = lags, .gamma = gamma, .y = y}};
    st = tl_launch(coef->ctx, TL_OP_decay, &a);
    if (!tl_needs_grad(coef->ctx, gamma)) a.decay.coef = NULL; /* only gamma's gradient needs it */
    if (st == TL_OK) st = tl_record(coef->ctx, y, decay_grad, inputs, 3, &a, NULL);
    return tl_finish(st, y, out_coef);
}

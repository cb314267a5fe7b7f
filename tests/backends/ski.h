/* ski.h - the definition of the backend ski in float64: T = taps + W A W', with W and A written
** out; and the same problems put to the backend. */
#ifndef TL_SKI_H
#define TL_SKI_H

#include <string.h>

#include "tensors.h"

typedef enum zero { PLUS, LITERAL, MEAN } zero;

typedef struct shape {
    int64_t     n, b, d, r, m;
    int         causal, cubic, span_n;
    zero        zero;
    const char *parts; /* NULL: both */
    int         published, token;
    double      lambda; /* 0: 0.9 */
} shape;

/* ---- The definition -------------------------------------------------------------------------- */

static inline int has(const shape *s, const char *part)
{
    return !s->parts || strcmp(s->parts, part) == 0;
}

static inline double lambda_of(const shape *s) { return s->lambda > 0 ? s->lambda : 0.9; }
static inline double spacing(const shape *s)
{
    return (double)(s->span_n ? s->n : s->n - 1) / (double)(s->r - 1);
}

static inline double keys(double t)
{
    t = fabs(t);
    if (t < 1) return 1.5 * t * t * t - 2.5 * t * t + 1;
    return t < 2 ? -0.5 * t * t * t + 2.5 * t * t - 4 * t + 2 : 0;
}

/* Values f_0..f_(r-1) at the inducing points and, for cubic, one more beyond each end, as seen at
** point t (in units of h). */
static inline double interpolate(const shape *s, const double *f, double t)
{
    double  sum = 0, before, after;
    int64_t r = s->r;
    if (!s->cubic || r == 2) {
        for (int64_t a = 0; a < r; a++) sum += f[a] * fmax(0, 1 - fabs(t - (double)a));
        return sum;
    }
    before = 3 * f[0] - 3 * f[1] + f[2];
    after = 3 * f[r - 1] - 3 * f[r - 2] + f[r - 3];
    for (int64_t a = 0; a < r; a++) sum += f[a] * keys(t - (double)a);
    return sum + before * keys(t + 1) + after * keys(t - (double)r);
}

/* What the published code puts into row i. */
static inline void published_row(const shape *s, int64_t i, double *row)
{
    double  at = s->n > 1 ? (double)(i * s->n) / (double)(s->n - 1) : 0, h = spacing(s);
    double  falloff = pow(lambda_of(s), at * (double)s->n);
    int64_t upper = 0;
    while (upper < s->r - 2 && (double)upper * h < at) upper++;
    row[upper] = h > 0 ? falloff * (at - (double)upper * h) / h : 0;
    row[upper + 1] = falloff - row[upper];
}

static inline double *weights(const shape *s) /* [n,r] */
{
    double *w = calloc((size_t)(s->n * s->r), sizeof *w);
    double *unit = calloc((size_t)s->r, sizeof *unit), h = spacing(s);
    if (!w || !unit) exit(1);
    for (int64_t i = 0; i < s->n; i++) {
        if (s->published) published_row(s, i, w + i * s->r);
        for (int64_t a = 0; !s->published && a < s->r; a++) {
            unit[a] = 1;
            w[i * s->r + a] = interpolate(s, unit, h > 0 ? (double)i / h : 0);
            unit[a] = 0;
        }
    }
    free(unit);
    return w;
}

/* How much the coefficient of row p counts in the kernel at lag l of inducing points. */
static inline double share(const shape *s, int64_t p, int64_t l)
{
    int64_t at = l + (s->causal ? 0 : s->r - 1);
    if (s->causal && l < 0) return 0;
    if (s->zero != MEAN) return p == at;
    return l == 0 ? 0.5 * (p == at || p == at + 1) : p == at + (l > 0);
}

static inline int64_t point_count(const shape *s)
{
    if (!has(s, "low-rank")) return 1;
    return (s->causal ? s->r : 2 * s->r - 1) + (s->zero == MEAN);
}

static inline int64_t tap_count(const shape *s) { return has(s, "sparse") ? s->m : 0; }
static inline int64_t tap_lag(const shape *s, int64_t k) { return s->causal ? k : k - s->m / 2; }

/* out [n,n] += W A W', below the diagonal only if causal */
static inline void add_low_rank(const shape *s, const double *w, const float *coef, int64_t c,
                                double *out)
{
    int64_t n = s->n, r = s->r, points = point_count(s);
    double *wa = calloc((size_t)(n * r), sizeof *wa);
    double *k = calloc((size_t)(2 * r - 1), sizeof *k);
    if (!wa || !k) exit(1);
    for (int64_t l = 1 - r; l < r; l++)
        for (int64_t p = 0; p < points; p++)
            k[l + r - 1] += share(s, p, l) * (double)coef[p * s->d + c];
    for (int64_t i = 0; i < n; i++)
        for (int64_t a = 0; a < r; a++)
            for (int64_t e = 0; e < r; e++) wa[i * r + e] += w[i * r + a] * k[a - e + r - 1];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < (s->causal ? i + 1 : n); j++)
            for (int64_t e = 0; e < r; e++) out[i * n + j] += wa[i * r + e] * w[j * r + e];
    free(wa);
    free(k);
}

/* dcoef from dt [n,n], the gradient of T: its sums along the diagonals of W' dT W. */
static inline void low_rank_gradient(const shape *s, const double *w, const double *dt, int64_t c,
                              float *dcoef)
{
    int64_t n = s->n, r = s->r;
    double *half = calloc((size_t)(n * r), sizeof *half), *k = calloc((size_t)(2 * r), sizeof *k);
    if (!half || !k) exit(1);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < (s->causal ? i + 1 : n); j++)
            for (int64_t e = 0; e < r; e++) half[i * r + e] += dt[i * n + j] * w[j * r + e];
    for (int64_t i = 0; i < n; i++)
        for (int64_t a = 0; a < r; a++)
            for (int64_t e = 0; e < r; e++)
                k[a - e + r - 1] += w[i * r + a] * half[i * r + e];
    for (int64_t p = 0; p < point_count(s); p++) {
        double sum = 0;
        for (int64_t l = 1 - r; l < r; l++) sum += share(s, p, l) * k[l + r - 1];
        dcoef[p * s->d + c] = (float)sum;
    }
    free(half);
    free(k);
}

typedef struct result { /* of one problem */
    tl_tensor *y, *dx, *dcoef, *dtaps, *dense;
} result;

typedef struct inputs {
    tl_tensor *x, *dy, *coef, *taps;
} inputs;

static inline void result_free(result *r)
{
    tl_tensor *all[] = {r->y, r->dx, r->dcoef, r->dtaps, r->dense};
    for (int k = 0; k < 5; k++) tl_tensor_free(all[k]);
}

static inline void inputs_free(inputs *in)
{
    tl_tensor *all[] = {in->x, in->dy, in->coef, in->taps};
    for (int k = 0; k < 4; k++) tl_tensor_free(all[k]);
}

static inline inputs inputs_of(tl_ctx *ctx, const shape *s)
{
    int64_t x[] = {s->b, s->n, s->d}, coef[] = {point_count(s), s->d};
    int64_t taps[] = {tap_count(s), s->d};
    return (inputs){uniforms(ctx, 3, x, -1, 1, 1), uniforms(ctx, 3, x, -1, 1, 2),
                    uniforms(ctx, 2, coef, -1, 1, 3), uniforms(ctx, 2, taps, -1, 1, 4)};
}

/* One channel of the definition. */
static inline void define(const shape *s, const inputs *in, const double *w, int64_t c, result *r)
{
    int64_t      n = s->n, d = s->d;
    double      *t = calloc((size_t)(n * n), sizeof *t), *dt = calloc((size_t)(n * n), sizeof *dt);
    const float *x = tl_tensor_cf32(in->x), *dy = tl_tensor_cf32(in->dy);
    if (!t || !dt) exit(1);
    if (has(s, "low-rank")) add_low_rank(s, w, tl_tensor_cf32(in->coef), c, t);
    for (int64_t b = 0; b < s->b; b++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                dt[i * n + j] += (double)dy[(b * n + i) * d + c] * x[(b * n + j) * d + c];
    for (int64_t k = 0; k < tap_count(s); k++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t j = i - tap_lag(s, k);
            if (j < 0 || j >= n) continue;
            t[i * n + j] += (double)tl_tensor_cf32(in->taps)[k * d + c];
            sum += dt[i * n + j];
        }
        tl_tensor_f32(r->dtaps)[k * d + c] = (float)sum;
    }
    for (int64_t b = 0; b < s->b; b++)
        for (int64_t i = 0; i < n; i++) {
            double y = 0, dx = 0;
            for (int64_t j = 0; j < n; j++) {
                y += t[i * n + j] * (double)x[(b * n + j) * d + c];
                dx += t[j * n + i] * (double)dy[(b * n + j) * d + c];
            }
            tl_tensor_f32(r->y)[(b * n + i) * d + c] = (float)y;
            tl_tensor_f32(r->dx)[(b * n + i) * d + c] = (float)dx;
        }
    for (int64_t k = 0; k < n * n; k++) tl_tensor_f32(r->dense)[c * n * n + k] = (float)t[k];
    if (has(s, "low-rank")) low_rank_gradient(s, w, dt, c, tl_tensor_f32(r->dcoef));
    free(t);
    free(dt);
}

static inline result definition(tl_ctx *ctx, const shape *s, const inputs *in)
{
    int64_t x[] = {s->b, s->n, s->d}, coef[] = {point_count(s), s->d};
    int64_t taps[] = {tap_count(s), s->d};
    result  r = {zeros(ctx, 3, x), zeros(ctx, 3, x), zeros(ctx, 2, coef), zeros(ctx, 2, taps),
                 zeros(ctx, 3, (int64_t[]){s->d, s->n, s->n})};
    double *w = weights(s);
    for (int64_t c = 0; c < s->d; c++) define(s, in, w, c, &r);
    free(w);
    return r;
}

/* ---- The backend ----------------------------------------------------------------------------- */

static inline tl_tno *operator_of(tl_ctx *ctx, const shape *s)
{
    static const char *const zeros_[] = {"zero=plus", "zero=literal", "zero=mean"};
    char    r[40], m[40], lambda[40], parts[40];
    tl_tno *tno = NULL;
    (void)snprintf(r, sizeof r, "inducing=%lld", (long long)s->r);
    (void)snprintf(m, sizeof m, "taps=%lld", (long long)s->m);
    (void)snprintf(lambda, sizeof lambda, "lambda=%.17g", lambda_of(s));
    (void)snprintf(parts, sizeof parts, "parts=%s", s->parts ? s->parts : "both");
    const char *options[] = {r, m, lambda, parts, zeros_[s->zero],
                             s->cubic ? "interpolation=cubic" : "interpolation=linear",
                             s->span_n ? "span=n" : "span=n-1",
                             s->published ? "as_published=1" : "as_published=0",
                             s->token ? "masking=token" : "masking=interval", NULL};
    CHECK_STATUS(tl_tno_new(ctx, "ski", s->n, s->d, s->causal, options, &tno), TL_OK);
    if (!tno) {
        printf("  %s\n", tl_errmsg(ctx));
        exit(1);
    }
    return tno;
}

static inline result apply(tl_ctx *ctx, const shape *s, const inputs *in)
{
    result     r = {0};
    tl_tensor *product = NULL, *loss = NULL, *wanted[] = {in->x, in->coef, in->taps};
    tl_tno    *tno = operator_of(ctx, s);
    for (int k = 0; k < 3; k++) CHECK_STATUS(tl_set_requires_grad(wanted[k], 1), TL_OK);
    CHECK_STATUS(tl_tno_apply(tno, in->coef, &in->taps, in->x, &r.y), TL_OK);
    CHECK_STATUS(tl_tno_dense(tno, in->coef, &in->taps, &r.dense), TL_OK);
    tl_tno_free(tno);
    CHECK_STATUS(tl_binary(TL_BINARY_MUL, r.y, in->dy, &product), TL_OK);
    CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, product, TL_ALL_AXES, 0, &loss), TL_OK);
    CHECK_STATUS(tl_backward(ctx, loss), TL_OK);
    r.dx = tl_tensor_retain(tl_grad(in->x));
    r.dcoef = tl_tensor_retain(tl_grad(in->coef));
    r.dtaps = tl_tensor_retain(tl_grad(in->taps));
    tl_tensor_free(loss);
    tl_tensor_free(product);
    return r;
}

#endif

/* gradients.h - checks the gradient of an operator against differences of its values.
**
** For inputs x and fixed random weights w the loss is f(x) = sum(w op(x)). Its derivative by each
** element of each input is compared with (8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h, whose
** own error is of order h^4; h = 1/32 leaves about 1e-5 for smooth functions in float32. */
#ifndef TL_GRADIENTS_H
#define TL_GRADIENTS_H

#include <stdlib.h>
#include <string.h>

#include "engine/gradient.h"
#include "test.h"

#define STEP      (1.0 / 32)
#define TOLERANCE 2e-3 /* times the largest derivative of that input, */
#define MIN_SCALE 0.02 /* or, if that is smaller, times this: rounding of the values themselves */

typedef enum fill_kind {
    ANY,      /* uniform in -1..1 */
    AWAY,     /* the same, but 0.2 or more away from 0, where some functions have a kink */
    POSITIVE, /* 0.5..2 */
    NEGATIVE, /* -2..-0.5 */
    FRACTION, /* 0.3..0.8 */
    HALVES,   /* multiples of 1/2: */
    QUARTERS, /* and those plus 1/4, so that the two never tie */
    SPACED,   /* no two closer than 1/4 */
    ZEROS,
    INTEGERS  /* int32: 0, 1, 2, .. */
} fill_kind;

typedef struct operand {
    fill_kind fill;
    int       ndim;
    int64_t   dims[TL_MAXDIMS];
} operand;

typedef struct gradient_case gradient_case;
typedef tl_status (*operation)(const gradient_case *c, tl_tensor *const *in, tl_tensor **out);
struct gradient_case { /* tables are ended by {0} */
    const char *name;
    operation   run;
    int         inputs;
    operand     in[TL_ARGS];
    int64_t     i[4]; /* for run */
    double      f[4];
    void       *p;
};

static inline tl_status make_operand(tl_ctx *ctx, const operand *o, tl_stream *s, tl_tensor **out)
{
    tl_tensor *t;
    tl_status  st = tl_tensor_new(ctx, o->fill == INTEGERS ? TL_I32 : TL_F32, o->ndim, o->dims, &t);
    if (st != TL_OK) return st;
    for (int64_t i = 0; i < tl_tensor_len(t); i++) {
        double u = 2 * tl_random_unit(s) - 1, sign = u < 0 ? -1 : 1;
        if (o->fill == INTEGERS) {
            tl_tensor_i32(t)[i] = (int32_t)i;
            continue;
        }
        switch (o->fill) {
        case AWAY: u = sign * (0.2 + 0.8 * fabs(u)); break;
        case POSITIVE: u = 1.25 + 0.75 * u; break;
        case NEGATIVE: u = -1.25 + 0.75 * u; break;
        case FRACTION: u = 0.55 + 0.25 * u; break;
        case HALVES: u = floor(4 * u) / 2; break;
        case QUARTERS: u = floor(4 * u) / 2 + 0.25; break;
        case SPACED: u = (double)(i * 7 % 61) / 4 - 2; break;
        case ZEROS: u = 0; break;
        default: break;
        }
        tl_tensor_f32(t)[i] = (float)u;
    }
    *out = t;
    return TL_OK;
}

static inline void free_all(tl_tensor **t, int count)
{
    for (int i = 0; i < count; i++) tl_tensor_free(t[i]);
}

/* sum(w op(in)) in float64, unrecorded. */
static inline tl_status weighted_sum(tl_ctx *ctx, const gradient_case *c, tl_tensor *const *in,
                                     const tl_tensor *w, double *out)
{
    tl_tensor *y;
    int        was = tl_set_recording(ctx, 0);
    tl_status  st = c->run(c, in, &y);
    (void)tl_set_recording(ctx, was);
    if (st != TL_OK) return st;
    *out = 0;
    for (int64_t i = 0; i < tl_tensor_len(y); i++)
        *out += (double)tl_tensor_cf32(w)[i] * (double)tl_tensor_cf32(y)[i];
    tl_tensor_free(y);
    return TL_OK;
}

/* The derivative by element e of input k. */
static inline tl_status difference(tl_ctx *ctx, const gradient_case *c, tl_tensor *const *in,
                                   const tl_tensor *w, int k, int64_t e, double *out)
{
    static const double weight[4] = {1, -8, 8, -1}, at[4] = {-2, -1, 1, 2};
    float    *x = tl_tensor_f32(in[k]) + e, saved = *x;
    double    sum = 0, value = 0;
    tl_status st = TL_OK;
    for (int i = 0; i < 4 && st == TL_OK; i++) {
        *x = saved + (float)(at[i] * STEP);
        st = weighted_sum(ctx, c, in, w, &value);
        sum += weight[i] * value;
    }
    *x = saved;
    *out = sum / (12 * STEP);
    return st;
}

/* Runs the operator and its gradient for the inputs in mask; w is made at the first call. */
static inline tl_status run_backward(tl_ctx *ctx, const gradient_case *c, tl_tensor *const *in,
                                     unsigned mask, tl_stream *s, tl_tensor **w)
{
    tl_tensor *y = NULL, *product = NULL, *loss = NULL;
    tl_status  st = TL_OK;
    for (int k = 0; k < c->inputs && st == TL_OK; k++) {
        if (tl_tensor_type(in[k]) != TL_F32) continue;
        st = tl_set_requires_grad(in[k], 0); /* forgets the gradient of the run before */
        if (st == TL_OK) st = tl_set_requires_grad(in[k], mask >> k & 1);
    }
    if (st == TL_OK) st = c->run(c, in, &y);
    if (st == TL_OK && !*w) {
        operand o = {.fill = ANY, .ndim = tl_tensor_ndim(y)};
        for (int i = 0; i < o.ndim; i++) o.dims[i] = tl_tensor_dim(y, i);
        st = make_operand(ctx, &o, s, w);
    }
    if (st == TL_OK) st = tl_binary(TL_BINARY_MUL, y, *w, &product);
    if (st == TL_OK) st = tl_reduce(TL_REDUCE_SUM, product, TL_ALL_AXES, 0, &loss);
    if (st == TL_OK) st = tl_backward(ctx, loss);
    tl_tensor_free(loss);
    tl_tensor_free(product);
    tl_tensor_free(y);
    return st;
}

/* The worst difference of grad and expected, in units of what is tolerated. */
static inline double compare(const tl_tensor *grad, const double *expected, int64_t len)
{
    double largest = MIN_SCALE, worst = 0;
    if (!grad) return INFINITY;
    for (int64_t e = 0; e < len; e++) largest = fmax(largest, fabs(expected[e]));
    for (int64_t e = 0; e < len; e++) {
        double off = fabs((double)tl_tensor_cf32(grad)[e] - expected[e]) / (TOLERANCE * largest);
        if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
    }
    return worst;
}

/* The worst error of one input's gradient, when all inputs want one and when only this one does. */
static inline double input_error(tl_ctx *ctx, const gradient_case *c, tl_tensor *const *in,
                                 tl_tensor **w, int k, tl_stream *s)
{
    unsigned const masks[2] = {(1u << c->inputs) - 1, 1u << k};
    int64_t        len = tl_tensor_len(in[k]);
    double         worst = 0, *expected = malloc((size_t)(len + 1) * sizeof *expected);
    if (!expected) return INFINITY;
    for (int m = 0; m < 2; m++) {
        tl_status st = run_backward(ctx, c, in, masks[m], s, w);
        for (int64_t e = 0; m == 0 && st == TL_OK && e < len; e++)
            st = difference(ctx, c, in, *w, k, e, expected + e);
        worst = st == TL_OK ? fmax(worst, compare(tl_grad(in[k]), expected, len)) : INFINITY;
        if (st != TL_OK) printf("%s: %s\n", c->name, tl_errmsg(ctx));
    }
    free(expected);
    return worst;
}

/* At most 1: every gradient agrees. Infinity: one is missing or not finite, or something failed. */
static inline double gradient_error(tl_ctx *ctx, const gradient_case *c)
{
    tl_stream  s = tl_stream_new(1, c->name);
    tl_tensor *in[TL_ARGS] = {NULL}, *w = NULL;
    double     worst = 0;
    tl_status  st = TL_OK;
    for (int k = 0; k < c->inputs && st == TL_OK; k++)
        st = make_operand(ctx, c->in + k, &s, in + k);
    if (st != TL_OK) worst = INFINITY;
    for (int k = 0; k < c->inputs && st == TL_OK; k++)
        if (c->in[k].fill != INTEGERS) worst = fmax(worst, input_error(ctx, c, in, &w, k, &s));
    if (tl_tape_len(ctx) != 0) worst = INFINITY; /* backward leaves the tape empty */
    tl_tensor_free(w);
    free_all(in, c->inputs);
    return worst;
}

#endif

/* conv.c - computes a depthwise convolution with few taps by direct sums:
**     y[b,i,c] = sum over k of t[k,c] x[b, i - (k - origin), c]     x is 0 outside 0..n-1
** (the CNN of TNN, Eq. 10; with several lags on both sides the sparse part of SKI, Algorithm 1). */
#include <string.h>

#include "base/threads.h"
#include "engine/gradient.h"

/* The gradient of the taps is summed in tiles that stay in the cache. */
#define STRIP 64    /* channels of a tile */
#define TAPS  8     /* taps of a tile */
#define BLOCK 32    /* positions of a tile */
#define GRAIN 16384 /* products that justify another thread */

typedef struct conv {
    int64_t      b, n, d, taps;
    int64_t      origin; /* the tap at lag 0 */
    int64_t      sign;   /* 1, or -1 for the adjoint, which correlates */
    const float *x, *t, *dy;
    float       *y; /* or dtaps */
} conv;

/* y[c] += the sum of t[k][c] x[k][c] over k < count, at most 4. Four taps share one pass over the
** channels, because with one pass per tap y would be read and written four times as often. */
static void add_taps(int64_t count, int64_t d, const float *const *t, const float *const *x,
                     float *restrict y)
{
    const float *t0 = t[0], *x0 = x[0];
    if (count == 4) {
        const float *t1 = t[1], *t2 = t[2], *t3 = t[3], *x1 = x[1], *x2 = x[2], *x3 = x[3];
        for (int64_t c = 0; c < d; c++)
            y[c] += (t0[c] * x0[c] + t1[c] * x1[c]) + (t2[c] * x2[c] + t3[c] * x3[c]);
    } else {
        for (int64_t k = 0; k < count; k++) {
            t0 = t[k];
            x0 = x[k];
            for (int64_t c = 0; c < d; c++) y[c] += t0[c] * x0[c];
        }
    }
}

/* Row i of a sequence of y sums tap k times x at i - sign (k - origin). Taps whose position lies
** outside the sequence are skipped; the others are collected until add_taps can take four. */
static void conv_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const conv *j = user;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        int64_t      i = r % j->n, waiting = 0;
        const float *t[4], *x[4], *sequence = j->x + (r - i) * j->d;
        float       *y = j->y + r * j->d;
        memset(y, 0, (size_t)j->d * sizeof *y);
        for (int64_t k = 0; k < j->taps; k++) {
            int64_t at = i - j->sign * (k - j->origin);
            if (at < 0 || at >= j->n) continue;
            t[waiting] = j->t + k * j->d;
            x[waiting++] = sequence + at * j->d;
            if (waiting == 4) {
                add_taps(4, j->d, t, x, y);
                waiting = 0;
            }
        }
        if (waiting) add_taps(waiting, j->d, t, x, y);
    }
}

/* sum[e] += the sum of dy[row,e] x[row,e] over the rows, for n columns of matrices of width d */
static inline void add_products(const float *dy, const float *x, int64_t d, int64_t rows, int64_t n,
                                double *sum)
{
    float part[STRIP] = {0};
    for (int64_t i = 0; i < rows; i++)
        for (int64_t e = 0; e < n; e++) part[e] += dy[i * d + e] * x[i * d + e];
    for (int64_t e = 0; e < n; e++) sum[e] += (double)part[e];
}

/* Adds positions first..last-1 of sequence b to the sums of taps k..end-1 and n channels from c. */
static void tap_block(const conv *j, int64_t b, int64_t first, int64_t last, int64_t k, int64_t end,
                      int64_t c, int64_t n, double sum[TAPS][STRIP])
{
    for (int64_t t = k; t < end; t++) {
        int64_t lag = t - j->origin, from = lag > first ? lag : first;
        int64_t to = j->n + lag < last ? j->n + lag : last;
        if (from >= to) continue;
        const float *dy = j->dy + (b * j->n + from) * j->d + c;
        const float *x = j->x + (b * j->n + from - lag) * j->d + c;
        if (n == STRIP)
            add_products(dy, x, j->d, to - from, STRIP, sum[t - k]); /* sums stay in registers */
        else
            add_products(dy, x, j->d, to - from, n, sum[t - k]);
    }
}

/* dt[k,c] = the sum of dy[b,i,c] x[b, i - (k - origin), c] over b and i. A part is a strip of
** channels for a few taps, which all read a block of positions while it is in the cache. */
static void conv_grad_parts(void *user, int64_t begin, int64_t end, int thread)
{
    const conv *j = user;
    int64_t     groups = (j->taps + TAPS - 1) / TAPS;
    (void)thread;
    for (int64_t p = begin; p < end; p++) {
        int64_t c = p / groups * STRIP, n = j->d - c < STRIP ? j->d - c : STRIP;
        int64_t k = p % groups * TAPS, last = k + TAPS < j->taps ? k + TAPS : j->taps;
        double  sum[TAPS][STRIP] = {{0}};
        for (int64_t b = 0; b < j->b; b++)
            for (int64_t i = 0; i < j->n; i += BLOCK)
                tap_block(j, b, i, i + BLOCK < j->n ? i + BLOCK : j->n, k, last, c, n, sum);
        for (int64_t t = k; t < last; t++)
            for (int64_t e = 0; e < n; e++) j->y[t * j->d + c + e] = (float)sum[t - k][e];
    }
}

static conv conv_of(const tl_tensor *x, int64_t taps, int64_t origin)
{
    return (conv){.b = x->dims[0], .n = x->dims[1], .d = x->dims[2], .taps = taps,
                  .origin = origin, .sign = 1, .x = F32(x)};
}

tl_status tl_cpu_conv(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_conv *c = &a->conv;
    conv j = conv_of(c->x, c->taps->dims[0], c->origin);
    if (c->adjoint) j.sign = -1;
    j.t = F32(c->taps);
    j.y = F32(c->y);
    if (c->x->len > 0)
        tl_parallel(ctx, j.b * j.n, 1 + GRAIN / (j.d * (j.taps + 1)), conv_rows, &j);
    return TL_OK;
}

tl_status tl_cpu_conv_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_conv_grad *c = &a->conv_grad;
    conv j = conv_of(c->x, c->dtaps->dims[0], c->origin);
    j.dy = F32(c->dy);
    j.y = F32(c->dtaps);
    int64_t parts = (j.d + STRIP - 1) / STRIP * ((j.taps + TAPS - 1) / TAPS);
    tl_parallel(ctx, parts, 1 + GRAIN / (1 + TAPS * STRIP * j.b * j.n), conv_grad_parts, &j);
    return TL_OK;
}

static tl_status conv_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    const struct tl_args_conv *s = &node->saved.conv;
    tl_tensor *g[2] = {NULL, NULL};
    tl_status  st = TL_OK;
    if (TL_SLOT(node, conv, x)) {
        st = tl_new_like(s->x, &g[0]);
        tl_args a = {.conv = {.x = dy, .taps = s->taps, .y = g[0], .origin = s->origin,
                              .adjoint = 1}};
        if (st == TL_OK) st = tl_launch(ctx, TL_OP_conv, &a);
    }
    if (TL_SLOT(node, conv, taps) && st == TL_OK) {
        st = tl_new_like(s->taps, &g[1]);
        tl_args a = {.conv_grad = {.x = s->x, .dy = dy, .dtaps = g[1], .origin = s->origin}};
        if (st == TL_OK) st = tl_launch(ctx, TL_OP_conv_grad, &a);
    }
    return tl_accumulate_all(ctx, node, st, g, 2);
}

tl_status tl_depthwise_conv(tl_tensor *x, tl_tensor *taps, int64_t origin, tl_tensor **out_y)
{
    tl_ctx *ctx = x->ctx;
    if (x->type != TL_F32 || taps->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "depthwise_conv: x or taps is int32, not float32");
    if (x->ndim != 3 || taps->ndim != 2 || taps->dims[1] != x->dims[2])
        return tl_fail(ctx, TL_ESHAPE, "depthwise_conv: x is %s, taps are %s, not [b,n,d] and "
                       "[m,d]", SHAPE(x), SHAPE(taps));
    if (origin < 0 || origin >= taps->dims[0])
        return tl_fail(ctx, TL_EINVAL, "depthwise_conv: origin is %lld, not one of the taps, "
                       "0..%lld", (long long)origin, (long long)taps->dims[0] - 1);
    tl_args   a = {.conv = {.x = x, .taps = taps, .origin = origin}};
    tl_status st = tl_new_like(x, &a.conv.y);
    if (st != TL_OK) return st;
    return tl_run_recorded(TL_OP_conv, &a, 2, conv_grad, &a, out_y);
}

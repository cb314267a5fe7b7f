/* random.c - fills tensors from random streams (base/stream.c), dropout and sampling.
**
** Element e of a filled tensor uses word e%4 of block e/4 of the stream, and a fill advances the
** stream by whole blocks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/philox.h"
#include "base/threads.h"
#include "engine/gradient.h"
#include "ops/random.h"

#define GROUP TL_DRAWN    /* elements of the blocks that are computed side by side */
#define LANES (GROUP / 4) /* these blocks */
#define GRAIN 64          /* groups worth a thread */

/* ---- Filling --------------------------------------------------------------------------------- */

typedef struct fill {
    uint64_t     key, offset;
    int64_t      len;
    const float *in;
    float       *out;
    /* low and range, mean and deviation, or the scale of surviving elements */
    float        a, b;
    uint64_t     threshold; /* a word below it drops its element */
    uint64_t     bound;     /* of integers */
    int64_t      rows;      /* of places: in holds the length of each */
    int32_t     *ids;
} fill;

static uint64_t blocks_of(int64_t len) { return ((uint64_t)len + 3) / 4; }

void tl_draw_group(uint64_t key, uint64_t offset, int64_t group, uint32_t out[TL_DRAWN])
{
    uint32_t c[4][LANES];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint64_t first = offset + (uint64_t)group * LANES;
    for (int j = 0; j < LANES; j++) {
        c[0][j] = (uint32_t)(first + (uint64_t)j);
        c[1][j] = (uint32_t)((first + (uint64_t)j) >> 32);
        c[2][j] = c[3][j] = 0;
    }
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
#pragma omp simd
        for (int j = 0; j < LANES; j++)
            philox_round(&c[0][j], &c[1][j], &c[2][j], &c[3][j], k0, k1);
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    for (int j = 0; j < LANES; j++)
        for (int w = 0; w < 4; w++) out[4 * j + w] = c[w][j];
}

static int64_t group_len(const fill *f, int64_t g)
{
    return f->len - g * GROUP < GROUP ? f->len - g * GROUP : GROUP;
}

static void uniform_part(void *user, int64_t begin, int64_t end, int thread)
{
    const fill *f = user;
    uint32_t    w[GROUP];
    float       a = f->a, b = f->b * 0x1p-24f;
    (void)thread;
    for (int64_t g = begin; g < end; g++) {
        float *restrict out = f->out + g * GROUP;
        int64_t n = group_len(f, g);
        tl_draw_group(f->key, f->offset, g, w);
        for (int64_t e = 0; e < n; e++) out[e] = a + b * (float)(int32_t)(w[e] >> 8);
    }
}

static void normal_part(void *user, int64_t begin, int64_t end, int thread)
{
    const fill *f = user;
    uint32_t    w[GROUP];
    float       z[GROUP];
    (void)thread;
    for (int64_t g = begin; g < end; g++) {
        float  *out = f->out + g * GROUP;
        int64_t n = group_len(f, g);
        tl_draw_group(f->key, f->offset, g, w);
        for (int64_t e = 0; e < n; e += 2) tl_normal_pair(w[e], w[e + 1], z + e);
        for (int64_t e = 0; e < n; e++) out[e] = f->a + f->b * z[e];
    }
}

static void dropout_part(void *user, int64_t begin, int64_t end, int thread)
{
    const fill *f = user;
    uint32_t    w[GROUP];
    uint32_t    threshold = (uint32_t)f->threshold;
    float       scale = f->a;
    (void)thread;
    for (int64_t g = begin; g < end; g++) {
        const float *restrict in = f->in + g * GROUP;
        float *restrict out = f->out + g * GROUP;
        int64_t n = group_len(f, g);
        tl_draw_group(f->key, f->offset, g, w);
        for (int64_t e = 0; e < n; e++) {
            float scaled = in[e] * scale; /* read unconditionally, so that no branch is needed */
            out[e] = w[e] >= threshold ? scaled : 0.0f;
        }
    }
}

/* Integers and places take a whole block each, so a group holds LANES of them. */
static void integers_part(void *user, int64_t begin, int64_t end, int thread)
{
    const fill *f = user;
    uint32_t    w[GROUP];
    (void)thread;
    for (int64_t g = begin; g < end; g++) {
        tl_draw_group(f->key, f->offset, g, w);
        for (int64_t e = g * LANES, b = 0; e < f->len && b < LANES; e++, b++)
            f->ids[e] = (int32_t)(tl_philox_bits(w + 4 * b) % f->bound);
    }
}

static void places_part(void *user, int64_t begin, int64_t end, int thread)
{
    const fill *f = user;
    uint32_t    w[GROUP];
    (void)thread;
    for (int64_t g = begin; g < end; g++) {
        tl_draw_group(f->key, f->offset, g, w);
        for (int64_t e = g * LANES, b = 0; e < f->len && b < LANES; e++, b++)
            for (int64_t r = 0; r < f->rows; r++)
                f->ids[r * f->len + e] = tl_philox_place(f->in[r], tl_philox_unit(w + 4 * b));
    }
}

#define DRAWS .key = (uint64_t)a->key, .offset = (uint64_t)a->offset
#define GROUPS(len, size) (((len) + (size) - 1) / (size))

TL_PARALLEL(uniform, GROUPS(j.len, GROUP), GRAIN, uniform_part, fill, DRAWS, .len = a->y->len,
            .out = F32(a->y), .a = (float)a->low, .b = (float)(a->high - a->low))
TL_PARALLEL(normal, GROUPS(j.len, GROUP), GRAIN, normal_part, fill, DRAWS, .len = a->y->len,
            .out = F32(a->y), .a = (float)a->mean, .b = (float)a->deviation)
TL_PARALLEL(integers, GROUPS(j.len, LANES), GRAIN, integers_part, fill, DRAWS, .len = a->y->len,
            .ids = I32(a->y), .bound = (uint64_t)a->bound)
TL_PARALLEL(places, GROUPS(j.len, LANES), GRAIN, places_part, fill, DRAWS,
            .len = tl_cols(a->places), .in = F32(a->lengths), .rows = a->lengths->len,
            .ids = I32(a->places))
TL_PARALLEL(dropout, GROUPS(j.len, GROUP), GRAIN, dropout_part, fill, DRAWS, .len = a->y->len,
            .in = F32(a->x), .out = F32(a->y), .a = (float)(1.0 / (1.0 - a->p)),
            .threshold = (uint64_t)(a->p * 0x1p32))

/* Fills t by kernel op, and advances s. */
static tl_status fill_tensor(tl_op op, const char *name, tl_tensor *t, tl_stream *s,
                             const tl_args *a)
{
    if (t->type != TL_F32) return tl_fail(t->ctx, TL_ETYPE, "%s fills float32 tensors", name);
    tl_status st = tl_launch(t->ctx, op, a);
    if (st == TL_OK) s->offset += blocks_of(t->len);
    return st;
}

tl_status tl_random_uniform(tl_tensor *t, tl_stream *s, double low, double high)
{
    tl_args a = {.uniform = {.y = t, .key = (int64_t)s->key, .offset = (int64_t)s->offset,
                             .low = low, .high = high}};
    return fill_tensor(TL_OP_uniform, "uniform", t, s, &a);
}

tl_status tl_random_normal(tl_tensor *t, tl_stream *s, double mean, double deviation)
{
    tl_args a = {.normal = {.y = t, .key = (int64_t)s->key, .offset = (int64_t)s->offset,
                            .mean = mean, .deviation = deviation}};
    return fill_tensor(TL_OP_normal, "normal", t, s, &a);
}

tl_status tl_random_integers(tl_tensor *t, tl_stream *s, int64_t bound)
{
    if (t->type != TL_I32)
        return tl_fail(t->ctx, TL_ETYPE, "integers: the tensor is float32, not int32");
    if (bound < 1 || bound > INT32_MAX)
        return tl_fail(t->ctx, TL_EINVAL, "integers: the bound is %lld, not in 1..%d",
                       (long long)bound, INT32_MAX);
    tl_args a = {.integers = {.y = t, .key = (int64_t)s->key, .offset = (int64_t)s->offset,
                              .bound = bound}};
    tl_status st = tl_launch(t->ctx, TL_OP_integers, &a);
    if (st == TL_OK) s->offset += (uint64_t)t->len;
    return st;
}

tl_status tl_random_places(tl_tensor *lengths, int64_t count, tl_stream *s, tl_tensor **out_places)
{
    tl_ctx *ctx = lengths->ctx;
    int64_t dims[TL_MAXDIMS];
    if (lengths->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "places: the lengths are int32, not float32");
    if (lengths->ndim == TL_MAXDIMS || count < 0)
        return tl_fail(ctx, TL_ESHAPE, "places: %lld places in each row of lengths, which is %s",
                       (long long)count, SHAPE(lengths));
    memcpy(dims, lengths->dims, sizeof dims);
    dims[lengths->ndim] = count;
    tl_args a = {.places = {.lengths = lengths, .key = (int64_t)s->key,
                            .offset = (int64_t)s->offset}};
    tl_status st = tl_new(ctx, TL_I32, lengths->ndim + 1, dims, &a.places.places);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_places, &a);
    if (st == TL_OK) s->offset += (uint64_t)count;
    return tl_finish(st, a.places.places, out_places);
}

tl_status tl_random_permutation(tl_tensor *t, tl_stream *s)
{
    if (t->type != TL_I32)
        return tl_fail(t->ctx, TL_ETYPE, "permutation: the tensor is float32, not int32");
    if (t->ndim != 1)
        return tl_fail(t->ctx, TL_ESHAPE, "permutation: t is %s, not a vector", SHAPE(t));
    if (t->len > INT32_MAX)
        return tl_fail(t->ctx, TL_ESHAPE, "permutation: %lld numbers are more than int32 holds",
                       (long long)t->len);
    tl_status st = tl_to_cpu(t);
    if (st != TL_OK) return st;
    int32_t *p = I32(t);
    for (int64_t i = 0; i < t->len; i++) p[i] = (int32_t)i;
    for (int64_t i = t->len - 1; i > 0; i--) { /* Fisher-Yates */
        int64_t j = tl_random_below(s, i + 1);
        int32_t swap = p[i];
        p[i] = p[j];
        p[j] = swap;
    }
    t->storage->version++;
    return TL_OK;
}

/* ---- Dropout --------------------------------------------------------------------------------- */

/* saved: dropout without x */
static tl_status dropout_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args   a = node->saved;
    tl_status st = tl_new_like(dy, &a.dropout.y);
    a.dropout.x = dy;
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_dropout, &a);
    return tl_accumulate_all(ctx, node, st, a.list.out, 1);
}

tl_status tl_dropout(tl_tensor *x, double p, tl_stream *s, tl_tensor **out_y)
{
    tl_ctx *ctx = x->ctx;
    if (x->type != TL_F32) return tl_fail(ctx, TL_ETYPE, "dropout: x is int32, not float32");
    if (!(p >= 0 && p < 1)) return tl_fail(ctx, TL_EINVAL, "dropout: p is %g, not in [0,1)", p);
    tl_args saved = {.dropout = {.key = (int64_t)s->key, .offset = (int64_t)s->offset, .p = p}};
    tl_args a = saved;
    a.dropout.x = x;
    tl_status st = tl_new_like(x, &a.dropout.y);
    if (st == TL_OK) st = tl_run_recorded(TL_OP_dropout, &a, 1, dropout_grad, &saved, out_y);
    if (st == TL_OK) s->offset += blocks_of(x->len);
    return st;
}

/* ---- Sampling -------------------------------------------------------------------------------- */

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Finds the k-th largest of x [v], and how many elements equal to it are among the k largest. */
static tl_status kth_largest(tl_ctx *ctx, const float *x, int64_t v, int64_t k, float *out_least,
                             int64_t *out_ties)
{
    float *sorted = tl_alloc(ctx, (size_t)v * sizeof *sorted);
    if (!sorted) return TL_ENOMEM;
    for (int64_t i = 0; i < v; i++) sorted[i] = x[i];
    qsort(sorted, (size_t)v, sizeof *sorted, descending);
    *out_least = sorted[k - 1];
    *out_ties = 0;
    for (int64_t i = k - 1; i >= 0 && sorted[i] == *out_least; i--) ++*out_ties;
    tl_release(ctx, sorted);
    return TL_OK;
}

/* Returns the candidate at which the running sum of the weights exp((x - top)/temperature) exceeds
** target, or the last one if none does. With target < 0, *out_sum is the sum of all weights. */
static int64_t sample_walk(const float *x, int64_t v, float least, int64_t ties, double top,
                           double temperature, double target, double *out_sum)
{
    double  sum = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < v; i++) {
        if (x[i] < least || (x[i] == least && ties-- <= 0)) continue;
        double weight = exp(((double)x[i] - top) / temperature);
        if (weight > 0) last = i;
        sum += weight;
        if (target >= 0 && sum > target) break;
    }
    *out_sum = sum;
    return last;
}

tl_status tl_sample(const tl_tensor *logits, double temperature, int top_k, tl_stream *s,
                    int32_t *out_id)
{
    tl_ctx      *ctx = logits->ctx;
    const float *x;
    int64_t      v = logits->len, best = 0, ties = v;
    float        least = -INFINITY;
    double       sum;
    if (logits->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "sample: logits are int32, not float32");
    if (logits->ndim != 1 || v < 1)
        return tl_fail(ctx, TL_ESHAPE, "sample: logits are %s, not [v]", SHAPE(logits));
    if (!(temperature >= 0) || isinf(temperature) || top_k < 0)
        return tl_fail(ctx, TL_EINVAL, "sample: temperature is %g and top_k is %d, which must be "
                       "finite and 0 or more", temperature, top_k);
    tl_status st = tl_to_cpu(logits);
    if (st != TL_OK) return st;
    x = F32(logits);
    for (int64_t i = 0; i < v; i++) {
        if (isnan(x[i]))
            return tl_fail(ctx, TL_EINVAL, "sample: logit %lld is NaN", tl_position(ctx, i));
        if (x[i] > x[best]) best = i;
    }
    if (isinf(x[best]))
        return tl_fail(ctx, TL_EINVAL, "sample: the largest logit is %g, not a finite number",
                       (double)x[best]);
    if (temperature > 0) {
        if (top_k > 0 && top_k < v) {
            st = kth_largest(ctx, x, v, top_k, &least, &ties);
            if (st != TL_OK) return st;
        }
        (void)sample_walk(x, v, least, ties, x[best], temperature, -1, &sum);
        double target = tl_random_unit(s) * sum;
        best = sample_walk(x, v, least, ties, x[best], temperature, target, &sum);
    }
    *out_id = (int32_t)best;
    return TL_OK;
}

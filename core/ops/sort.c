/* sort.c - sorts rows and finds their largest elements, as indices through which no gradient
** flows. */
#include "ops/sort.h"

#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "engine/gradient.h"

#define DIGITS 4 /* of 8 bits in a key */
#define RADIX  256
#define ROWS   4 /* rows of scratch memory for each thread */

typedef struct job { /* a loop over rows of length n */
    int64_t     n, k;
    int         is_float;
    const char *x;
    int32_t    *order, *rank;    /* [rows,n] */
    int32_t    *places, *slots;  /* [rows,k], [rows,n] */
    uint32_t   *scratch;         /* [threads,ROWS,n] */
} job;

/* ---- Sorting one row ------------------------------------------------------------------------- */

static int digit(uint32_t key, int d) { return (int)(key >> 8 * d & (RADIX - 1)); }

/* Writes to keys [n] the keys of row r, or their complements, which sort in descending order. */
static void make_keys(const job *j, int64_t r, uint32_t flip, uint32_t *keys)
{
    memcpy(keys, j->x + r * j->n * 4, (size_t)j->n * 4);
    for (int64_t i = 0; i < j->n; i++) keys[i] = sort_key(keys[i], j->is_float) ^ flip;
}

/* Writes the positions 0..n-1 to order, in ascending order of their keys; equal keys keep their
** order. A radix sort: it moves the elements once for each digit in which keys differ. Overwrites
** keys [n] and scratch [2 n]. */
static void sort_keys(int64_t n, uint32_t *keys, uint32_t *scratch, int32_t *order)
{
    int64_t   counts[DIGITS][RADIX] = {{0}};
    uint32_t *to_keys = scratch;
    int32_t  *places = order, *to = (int32_t *)scratch + n;
    for (int64_t i = 0; i < n; i++) {
        places[i] = (int32_t)i;
        for (int d = 0; d < DIGITS; d++) counts[d][digit(keys[i], d)]++;
    }
    for (int d = 0; d < DIGITS; d++) {
        int64_t *next = counts[d], sum = 0;
        if (next[digit(keys[0], d)] == n) continue;
        for (int v = 0; v < RADIX; v++) {
            int64_t count = next[v];
            next[v] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++) {
            int64_t at = next[digit(keys[i], d)]++;
            to_keys[at] = keys[i];
            to[at] = places[i];
        }
        uint32_t *swap = keys;
        keys = to_keys, to_keys = swap;
        int32_t *swap_places = places;
        places = to, to = swap_places;
    }
    if (places != order) memcpy(order, places, (size_t)n * sizeof *order);
}

static void argsort_body(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    uint32_t  *keys = j->scratch + thread * ROWS * j->n;
    for (int64_t r = begin; r < end; r++) {
        int32_t *order = j->order + r * j->n, *rank = j->rank + r * j->n;
        make_keys(j, r, 0, keys);
        sort_keys(j->n, keys, keys + j->n, order);
        for (int64_t i = 0; i < j->n; i++) rank[order[i]] = (int32_t)i;
    }
}

static void topk_body(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    uint32_t  *keys = j->scratch + thread * ROWS * j->n;
    int32_t   *order = (int32_t *)keys + 3 * j->n;
    for (int64_t r = begin; r < end; r++) {
        int32_t *places = j->places + r * j->k, *slots = j->slots + r * j->n, count = 0;
        make_keys(j, r, UINT32_MAX, keys);
        sort_keys(j->n, keys, keys + j->n, order);
        memset(slots, 0, (size_t)j->n * sizeof *slots);
        for (int64_t i = 0; i < j->k; i++) slots[order[i]] = 1;
        for (int64_t i = 0; i < j->n; i++) {
            if (!slots[i]) continue;
            places[count++] = (int32_t)i;
            slots[i] = count;
        }
    }
}

/* ---- Kernels --------------------------------------------------------------------------------- */

static tl_status over_rows(tl_ctx *ctx, job *j, const tl_tensor *x, tl_body body)
{
    j->n = tl_cols(x);
    j->is_float = x->type == TL_F32;
    j->x = DATA(x);
    if (x->len == 0) return TL_OK;
    j->scratch = tl_alloc(ctx, (size_t)(ctx->threads * ROWS * j->n) * sizeof *j->scratch);
    if (!j->scratch) return TL_ENOMEM;
    tl_parallel(ctx, x->len / j->n, 1 + 4096 / j->n, body, j);
    tl_release(ctx, j->scratch);
    return TL_OK;
}

tl_status tl_cpu_argsort(tl_ctx *ctx, const tl_args *a)
{
    job j = {.order = I32(a->argsort.order), .rank = I32(a->argsort.rank)};
    return over_rows(ctx, &j, a->argsort.x, argsort_body);
}

/* places [..,k], slots: of the k largest elements of the rows of x */
tl_status tl_cpu_topk(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_topk *t = &a->topk;
    job j = {.k = tl_cols(t->places), .places = I32(t->places), .slots = I32(t->slots)};
    return over_rows(ctx, &j, t->x, topk_body);
}

/* ---- Public functions ------------------------------------------------------------------------ */

/* Rows are as long as their positions can be counted in int32. */
static tl_status check(const char *op, const tl_tensor *x)
{
    if (x->ndim >= 1 && tl_cols(x) <= INT32_MAX) return TL_OK;
    return tl_fail(x->ctx, TL_ESHAPE, "%s: x is %s, not rows of at most %d elements", op, SHAPE(x),
                   INT32_MAX);
}

tl_status tl_argsort(tl_tensor *x, tl_tensor **out_order, tl_tensor **out_rank)
{
    tl_args   a = {.argsort = {.x = x}};
    tl_status st = check("argsort", x);
    if (st == TL_OK) st = tl_new(x->ctx, TL_I32, x->ndim, x->dims, &a.argsort.order);
    if (st == TL_OK) st = tl_new(x->ctx, TL_I32, x->ndim, x->dims, &a.argsort.rank);
    if (st == TL_OK) st = tl_launch(x->ctx, TL_OP_argsort, &a);
    st = tl_finish(st, a.argsort.order, out_order);
    return tl_finish(st, a.argsort.rank, out_rank);
}

tl_status tl_topk(tl_tensor *x, int64_t k, tl_tensor **out_places, tl_tensor **out_slots)
{
    tl_args   a = {.topk = {.x = x}};
    int64_t   dims[TL_MAXDIMS];
    tl_status st = check("topk", x);
    if (st != TL_OK) return st;
    if (k < 1 || k > tl_cols(x))
        return tl_fail(x->ctx, TL_EINVAL,
                       "topk: k is %lld, x is %s: k must be 1 to the size of the "
                       "last axis", (long long)k, SHAPE(x));
    memcpy(dims, x->dims, sizeof dims);
    dims[x->ndim - 1] = k;
    st = tl_new(x->ctx, TL_I32, x->ndim, dims, &a.topk.places);
    if (st == TL_OK) st = tl_new(x->ctx, TL_I32, x->ndim, x->dims, &a.topk.slots);
    if (st == TL_OK) st = tl_launch(x->ctx, TL_OP_topk, &a);
    st = tl_finish(st, a.topk.places, out_places);
    return tl_finish(st, a.topk.slots, out_slots);
}

/* reduce.c - computes sums, means and maxima over an axis, and running sums along one. */
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "engine/gradient.h"

#define STRIP 64
#define BLOCK 16384 /* elements of a whole tensor that are reduced together */
#define GRAIN 4     /* blocks that justify another thread: a block takes about a microsecond */

typedef struct job { /* size and inner as in tl_axis_view_of */
    tl_reduce_kind kind;
    int            reverse;
    int64_t        size, inner;
    const float   *x, *y, *dy;
    float         *out;
    double        *blocks;
    int32_t       *index;
} job;

/* ---- Reductions ------------------------------------------------------------------------------ */

/* Combines two results. Of maxima a NaN wins, and of equal ones the first. */
static double joined(tl_reduce_kind kind, double a, double b)
{
    if (kind == TL_REDUCE_MAX) return b > a || b != b ? b : a;
    return a + b;
}

/* The maximum or, also for a mean, the sum of n elements. */
static double reduce_row(tl_reduce_kind kind, const float *x, int64_t n)
{
    if (kind == TL_REDUCE_MAX) {
        float best = x[0];
        for (int64_t i = 1; i < n; i++) best = x[i] > best || x[i] != x[i] ? x[i] : best;
        return (double)best;
    }
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

static float finished(const job *j, double all)
{
    return (float)(j->kind == TL_REDUCE_MEAN ? all / (double)j->size : all);
}

/* Reduces n neighbouring columns at once. */
static void strided(const job *j, const float *x, int64_t n, float *y)
{
    double acc[STRIP];
    for (int64_t c = 0; c < n; c++) acc[c] = j->kind == TL_REDUCE_MAX ? (double)x[c] : 0;
    for (int64_t i = 0; i < j->size; i++) {
        const float *row = x + i * j->inner;
        if (j->kind == TL_REDUCE_MAX)
            for (int64_t c = 0; c < n; c++)
                acc[c] = row[c] > acc[c] || row[c] != row[c] ? (double)row[c] : acc[c];
        else
            for (int64_t c = 0; c < n; c++) acc[c] += row[c];
    }
    double scale = j->kind == TL_REDUCE_MEAN ? 1.0 / (double)j->size : 1.0;
    for (int64_t c = 0; c < n; c++) y[c] = (float)(acc[c] * scale);
}

/* Computes outputs begin..end-1 of the outer x inner ones, in strips. */
static void reduce_body(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    (void)thread;
    for (int64_t k = begin; k < end;) {
        int64_t outer = k / j->inner, c = k % j->inner, n = j->inner - c;
        const float *x = j->x + outer * j->size * j->inner + c;
        if (n > end - k) n = end - k;
        if (n > STRIP) n = STRIP;
        if (j->inner == 1)
            j->out[k] = finished(j, reduce_row(j->kind, x, j->size));
        else
            strided(j, x, n, j->out + k);
        k += n;
    }
}

static void block_body(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        int64_t left = j->size - b * BLOCK;
        j->blocks[b] = reduce_row(j->kind, j->x + b * BLOCK, left < BLOCK ? left : BLOCK);
    }
}

/* Reduces all elements to one. The blocks and their order depend on the size alone, so that any
** number of threads gives the same bits. */
static tl_status whole(tl_ctx *ctx, job *j)
{
    int64_t count = (j->size + BLOCK - 1) / BLOCK;
    j->blocks = tl_alloc(ctx, (size_t)count * sizeof *j->blocks);
    if (!j->blocks) return TL_ENOMEM;
    tl_parallel(ctx, count, GRAIN, block_body, j);
    double all = j->blocks[0];
    for (int64_t b = 1; b < count; b++) all = joined(j->kind, all, j->blocks[b]);
    *j->out = finished(j, all);
    tl_release(ctx, j->blocks);
    return TL_OK;
}

/* y = the reduction of x over an axis or TL_ALL_AXES */
tl_status tl_cpu_reduce(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_reduce *r = &a->reduce;
    tl_axis_view s = tl_axis_view_of(r->x, (int)r->axis);
    job j = {.kind = (tl_reduce_kind)r->kind, .size = s.size, .inner = s.inner, .x = F32(r->x),
             .out = F32(r->y)};
    if (r->y->len == 1 && s.size > BLOCK) return whole(ctx, &j);
    tl_parallel(ctx, r->y->len, 1 + 16384 / (s.size + 1), reduce_body, &j);
    return TL_OK;
}

/* Each element of a sum or a mean over all axes takes the same gradient. */
static void spread_body(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    float      g = j->dy[0] * (j->kind == TL_REDUCE_MEAN ? 1.0f / (float)j->size : 1.0f);
    (void)thread;
    for (int64_t i = begin; i < end; i++) j->out[i] = g;
}

static void reduce_grad_body(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    float      scale = j->kind == TL_REDUCE_MEAN ? 1.0f / (float)j->size : 1.0f;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t outer = k / j->inner, c = k % j->inner, base = outer * j->size * j->inner + c;
        float   g = j->dy[k] * scale;
        int     found = 0;
        for (int64_t i = 0; i < j->size; i++) {
            int64_t at = base + i * j->inner;
            float   x = j->kind == TL_REDUCE_MAX ? j->x[at] : 0.0f;
            int     takes = j->kind != TL_REDUCE_MAX || (!found && (x == j->y[k] || x != x));
            j->out[at] = takes ? g : 0.0f;
            found |= takes;
        }
    }
}

/* Only TL_REDUCE_MAX reads its input x and its result y. */
tl_status tl_cpu_reduce_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_reduce_grad *r = &a->reduce_grad;
    int       amax = r->kind == TL_REDUCE_MAX;
    tl_axis_view s = tl_axis_view_of(r->dx, (int)r->axis);
    job j = {.kind = (tl_reduce_kind)r->kind, .size = s.size, .inner = s.inner,
             .x = amax ? F32(r->x) : NULL, .y = amax ? F32(r->y) : NULL, .dy = F32(r->dy),
             .out = F32(r->dx)};
    if (!amax && s.outer * s.inner == 1)
        tl_parallel(ctx, s.size, 16384, spread_body, &j);
    else
        tl_parallel(ctx, s.outer * s.inner, 1 + 16384 / (s.size + 1), reduce_grad_body, &j);
    return TL_OK;
}

/* saved: reduce_grad without dy, and shape[0]: of x */
static tl_status reduce_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args a = node->saved;
    a.reduce_grad.dy = dy;
    tl_status st = tl_new_shaped(ctx, &a.shape[0], &a.reduce_grad.dx);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_reduce_grad, &a);
    return tl_accumulate_all(ctx, node, st, a.list.out, 1);
}

/* Writes the shape after reducing axis, or all axes, and returns its number of axes. */
static int reduced(const tl_tensor *x, int axis, int keep, int64_t *dims)
{
    int ndim = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (axis != TL_ALL_AXES && d != axis)
            dims[ndim++] = x->dims[d];
        else if (keep)
            dims[ndim++] = 1;
    }
    return ndim;
}

tl_status tl_reduce(tl_reduce_kind kind, tl_tensor *x, int axis, int keep, tl_tensor **out_y)
{
    static const char *const names[] = {"sum", "mean", "amax"};
    tl_ctx *ctx = x->ctx;
    int64_t dims[TL_MAXDIMS];
    if ((int)kind < 0 || kind > TL_REDUCE_MAX)
        return tl_fail(ctx, TL_EINVAL, "reduce: no reduction %d", (int)kind);
    if (x->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "%s: x is int32, not float32", names[kind]);
    tl_status st = axis == TL_ALL_AXES ? TL_OK : tl_axis(ctx, names[kind], x, &axis);
    if (st != TL_OK) return st;
    tl_args a = {.reduce = {.x = x, .kind = kind, .axis = axis}};
    int     ndim = reduced(x, axis, keep, dims);
    if (tl_axis_view_of(x, axis).size == 0 && kind != TL_REDUCE_SUM)
        return tl_fail(ctx, TL_ESHAPE, "%s: x is %s, the axis has no elements", names[kind],
                       SHAPE(x));
    st = tl_new(ctx, TL_F32, ndim, dims, &a.reduce.y);
    if (st != TL_OK) return st;
    tl_args saved = {.reduce_grad = {.kind = kind, .axis = axis}, .shape = {tl_shape_of(x)}};
    if (kind == TL_REDUCE_MAX) {
        saved.reduce_grad.x = x;
        saved.reduce_grad.y = a.reduce.y;
    }
    return tl_run_recorded(TL_OP_reduce, &a, 1, reduce_grad, &saved, out_y);
}

static void argmax_body(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *x = j->x + r * j->size;
        int64_t      best = 0;
        for (int64_t i = 1; i < j->size; i++)
            if (x[i] > x[best]) best = i;
        j->index[r] = (int32_t)best;
    }
}

/* index = the position of the first largest element in each row of x */
TL_PARALLEL(argmax, a->index->len, 1 + 16384 / j.size, argmax_body, job, .size = tl_cols(a->x),
            .x = F32(a->x), .index = I32(a->index))

tl_status tl_argmax(tl_tensor *x, tl_tensor **out_index)
{
    if (x->type != TL_F32) return tl_fail(x->ctx, TL_ETYPE, "argmax: x is int32, not float32");
    if (x->ndim < 1 || tl_cols(x) < 1 || tl_cols(x) > INT32_MAX)
        return tl_fail(x->ctx, TL_ESHAPE, "argmax: x is %s, the last axis has no elements or "
                       "too many", SHAPE(x));
    tl_args   a = {.argmax = {.x = x}};
    tl_status st = tl_new(x->ctx, TL_I32, x->ndim - 1, x->dims, &a.argmax.index);
    if (st == TL_OK) st = tl_launch(x->ctx, TL_OP_argmax, &a);
    return tl_finish(st, a.argmax.index, out_index);
}

/* ---- Running sums ---------------------------------------------------------------------------- */

static void cumsum_body(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t base = k / j->inner * j->size * j->inner + k % j->inner;
        double  sum = 0;
        for (int64_t i = 0; i < j->size; i++) {
            int64_t at = base + (j->reverse ? j->size - 1 - i : i) * j->inner;
            sum += j->x[at];
            j->out[at] = (float)sum;
        }
    }
}

/* y = running sums of x along an axis, from the end if reverse */
TL_PARALLEL(cumsum, j.size > 0 ? a->x->len / j.size : 0, 1 + 16384 / (j.size + 1), cumsum_body,
            job, .reverse = (int)a->reverse, .size = tl_axis_view_of(a->x, (int)a->axis).size,
            .inner = tl_axis_view_of(a->x, (int)a->axis).inner, .x = F32(a->x), .out = F32(a->y))

static tl_status cumsum_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args a = {.cumsum = {.x = dy, .axis = node->saved.cumsum.axis,
                            .reverse = 1}}; /* dx_j = sum over i >= j of dy_i */
    tl_status st = tl_new_like(dy, &a.cumsum.y);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_cumsum, &a);
    return tl_accumulate_all(ctx, node, st, a.list.out, 1);
}

tl_status tl_cumsum(tl_tensor *x, int axis, tl_tensor **out_y)
{
    tl_ctx *ctx = x->ctx;
    if (x->type != TL_F32) return tl_fail(ctx, TL_ETYPE, "cumsum: x is int32, not float32");
    tl_status st = tl_axis(ctx, "cumsum", x, &axis);
    if (st != TL_OK) return st;
    tl_args a = {.cumsum = {.x = x, .axis = axis}}, saved = {.cumsum = {.axis = axis}};
    st = tl_new_like(x, &a.cumsum.y);
    if (st != TL_OK) return st;
    return tl_run_recorded(TL_OP_cumsum, &a, 1, cumsum_grad, &saved, out_y);
}

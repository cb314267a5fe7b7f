/* gather.c - selects rows of a table by index, as an embedding does, or of a batch of tables. */
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "engine/gradient.h"
#include "ops/arguments.h"

#define FLOAT64_FROM 16 /* indices for each row, from which on the gradient is summed in float64 */

typedef struct rows {
    const int32_t *index;
    int64_t        count;       /* indices of all tables */
    int64_t        each, table; /* indices, and rows, of each table */
    int64_t        cols;        /* columns of a row */
    const float   *from;
    float         *to;
    int64_t        tables; /* rows of all tables */
    double        *sums;   /* [tables,cols] */
} rows;

/* The row that index i selects, counted through all tables. */
static int64_t row_of(const rows *p, int64_t i) { return i / p->each * p->table + p->index[i]; }

static void gather_body(void *user, int64_t begin, int64_t end, int thread)
{
    const rows *p = user;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        memcpy(p->to + i * p->cols, p->from + row_of(p, i) * p->cols, (size_t)p->cols * 4);
}

/* Each thread owns some columns and adds all rows to them in order, so that the sums repeat exactly
** and threads do not race. */
static void scatter_body(void *user, int64_t begin, int64_t end, int thread)
{
    const rows *p = user;
    (void)thread;
    for (int64_t i = 0; i < p->count; i++) {
        const float *restrict from = p->from + i * p->cols;
        float *restrict to = p->to + row_of(p, i) * p->cols;
        for (int64_t c = begin; c < end; c++) to[c] += from[c];
    }
}

/* The same with sums in float64. */
static void scatter_many_body(void *user, int64_t begin, int64_t end, int thread)
{
    const rows *p = user;
    (void)thread;
    for (int64_t r = 0; r < p->tables * p->cols; r += p->cols)
        for (int64_t c = begin; c < end; c++) p->sums[r + c] = (double)p->to[r + c];
    for (int64_t i = 0; i < p->count; i++) {
        const float *restrict from = p->from + i * p->cols;
        double *restrict sum = p->sums + row_of(p, i) * p->cols;
        for (int64_t c = begin; c < end; c++) sum[c] += (double)from[c];
    }
    for (int64_t r = 0; r < p->tables * p->cols; r += p->cols)
        for (int64_t c = begin; c < end; c++) p->to[r + c] = (float)p->sums[r + c];
}

/* y = the rows of x that index selects. Each table has `each` indices and `table` rows of `cols`
** elements; tl_gather has one table. */
tl_status tl_cpu_gather(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_gather *g = &a->gather;
    rows r = {.index = I32(g->index), .count = g->index->len, .each = g->each, .table = g->table,
              .cols = g->cols, .from = F32(g->x), .to = F32(g->y)};
    for (int64_t i = 0; i < r.count; i++)
        if (r.index[i] < 0 || r.index[i] >= r.table)
            return tl_fail(ctx, TL_EINVAL, "gather: index %d at position %lld is outside 0..%lld",
                           r.index[i], tl_position(ctx, i), (long long)r.table - 1);
    if (r.cols > 0) tl_parallel(ctx, r.count, 1 + 16384 / r.cols, gather_body, &r);
    return TL_OK;
}

/* Clears dx unless add, then adds row i of dy to the row that index i selects. */
tl_status tl_cpu_gather_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_gather_grad *g = &a->gather_grad;
    rows r = {.index = I32(g->index), .count = g->index->len, .each = g->each, .table = g->table,
              .cols = g->cols, .from = F32(g->dy), .to = F32(g->dx)};
    tl_status st = g->add ? TL_OK : tl_tensor_fill(g->dx, 0);
    if (st != TL_OK || g->dx->len == 0) return st;
    r.tables = g->dx->len / r.cols;
    int many = r.count / FLOAT64_FROM >= r.tables;
    if (many) r.sums = tl_alloc(ctx, (size_t)g->dx->len * sizeof *r.sums);
    if (many && !r.sums) return TL_ENOMEM;
    tl_parallel(ctx, r.cols, 16, many ? scatter_many_body : scatter_body, &r);
    tl_release(ctx, r.sums);
    return TL_OK;
}

/* saved: gather_grad without dy, and shape[0]: of the tables */
static tl_status gather_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args a = node->saved;
    a.gather_grad.dy = dy;
    tl_status st = tl_grad_buffer(ctx, TL_SLOT(node, gather, x), &a.shape[0], &a.gather_grad.dx,
                                  &a.gather_grad.add);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_gather_grad, &a);
    return tl_accumulate_all(ctx, node, st, a.list.out, 1);
}

/* Selects from the tables that the first `batch` axes of x and of the index count. */
static tl_status gather(tl_tensor *x, tl_tensor *index, int batch, tl_tensor **out_y)
{
    int64_t dims[2 * TL_MAXDIMS], table = x->dims[batch], each = 1, cols = 1;
    int     more = x->ndim - batch - 1; /* axes of a row */
    memcpy(dims, index->dims, sizeof index->dims);
    memcpy(dims + index->ndim, x->dims + batch + 1, (size_t)more * sizeof *dims);
    for (int i = batch; i < index->ndim; i++) each *= index->dims[i];
    for (int i = batch + 1; i < x->ndim; i++) cols *= x->dims[i];
    tl_args a = {.gather = {.x = x, .index = index, .each = each, .table = table, .cols = cols}};
    tl_args saved = {.gather_grad = {.index = index, .each = each, .table = table, .cols = cols},
                     .shape = {tl_shape_of(x)}};
    tl_status st = tl_new(x->ctx, TL_F32, index->ndim + more, dims, &a.gather.y);
    if (st != TL_OK) return st;
    return tl_run_recorded(TL_OP_gather, &a, 1, gather_grad, &saved, out_y);
}

tl_status tl_gather(tl_tensor *x, tl_tensor *index, tl_tensor **out_y)
{
    if (x->type != TL_F32 || index->type != TL_I32)
        return tl_fail(x->ctx, TL_ETYPE, "gather: x must be float32 and the index int32");
    if (x->ndim < 1 || index->ndim + x->ndim - 1 > TL_MAXDIMS)
        return tl_fail(x->ctx, TL_ESHAPE, "gather: x is %s, the index %s: the result, the index's "
                       "axes and then x's others, has 1 to %d axes", SHAPE(x), SHAPE(index),
                       TL_MAXDIMS);
    return gather(x, index, 0, out_y);
}

tl_status tl_batch_gather(tl_tensor *x, tl_tensor *index, tl_tensor **out_y)
{
    int batch = index->ndim - 1, fits = batch >= 0 && batch < x->ndim;
    if (x->type != TL_F32 || index->type != TL_I32)
        return tl_fail(x->ctx, TL_ETYPE, "batch_gather: x must be float32 and the index int32");
    for (int i = 0; fits && i < batch; i++) fits = x->dims[i] == index->dims[i];
    if (!fits)
        return tl_fail(x->ctx, TL_ESHAPE, "batch_gather: x is %s, the index %s: they must have the "
                       "same axes before the index's last", SHAPE(x), SHAPE(index));
    return gather(x, index, batch, out_y);
}

/* ---- Windows --------------------------------------------------------------------------------- */

/* ids [t], starts [b], rows [b,n] */
tl_status tl_cpu_windows(tl_ctx *ctx, const tl_args *a)
{
    const tl_tensor *ids = a->windows.ids, *starts = a->windows.starts;
    tl_tensor *out = a->windows.rows;
    int64_t n = out->dims[1];
    for (int64_t i = 0; i < starts->len; i++) {
        int64_t start = I32(starts)[i];
        if (start < 0 || start > ids->len - n)
            return tl_fail(ctx, TL_EINVAL, "windows: row %lld, %lld..%lld, is outside the %lld ids",
                           tl_position(ctx, i), (long long)start, (long long)(start + n - 1),
                           (long long)ids->len);
        if (n) memcpy(I32(out) + i * n, I32(ids) + start, (size_t)n * sizeof(int32_t));
    }
    return TL_OK;
}

tl_status tl_gather_windows(tl_tensor *ids, tl_tensor *starts, int64_t n, tl_tensor **out_rows)
{
    tl_ctx *ctx = ids->ctx;
    tl_tensor *y = NULL;
    if (ids->type != TL_I32 || starts->type != TL_I32)
        return tl_fail(ctx, TL_ETYPE, "windows: ids and starts must be int32");
    if (ids->ndim != 1 || starts->ndim != 1)
        return tl_fail(ctx, TL_ESHAPE, "windows: ids is %s, starts is %s, both must be vectors",
                       SHAPE(ids), SHAPE(starts));
    if (n < 0) return tl_fail(ctx, TL_EINVAL, "windows: n is negative: %lld", (long long)n);
    tl_status st = tl_new(ctx, TL_I32, 2, (int64_t[]){starts->len, n}, &y);
    if (st == TL_OK)
        st = tl_launch(ctx, TL_OP_windows,
                       &(tl_args){.windows = {.ids = ids, .starts = starts, .rows = y}});
    return tl_finish(st, y, out_rows);
}

/* gather.c - selects rows of a table by index, as an embedding does. */
#include <string.h>

#include "base/threads.h"
#include "engine/tape.h"
#include "ops/ops.h"

typedef struct rows {
    const int32_t *index;
    int64_t        count, cols; /* indices, columns of a row */
    const float   *from;
    float         *to;
} rows;

static void gather_body(void *user, int64_t begin, int64_t end, int thread)
{
    const rows *p = user;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        memcpy(p->to + i * p->cols, p->from + p->index[i] * p->cols, (size_t)p->cols * 4);
}

/* Each thread owns some columns and adds all rows to them in order, so that the sums repeat exactly
** and threads do not race. */
static void scatter_body(void *user, int64_t begin, int64_t end, int thread)
{
    const rows *p = user;
    (void)thread;
    for (int64_t i = 0; i < p->count; i++) {
        const float *restrict from = p->from + i * p->cols;
        float *restrict to = p->to + p->index[i] * p->cols;
        for (int64_t c = begin; c < end; c++) to[c] += from[c];
    }
}

/* The number of elements in one row of a table [p,..]. */
static int64_t width(const tl_tensor *x)
{
    int64_t cols = 1;
    for (int i = 1; i < x->ndim; i++) cols *= x->dims[i];
    return cols;
}

/* out[0] = the rows of in[0] that in[1] selects */
static tl_status gather_kernel(tl_ctx *ctx, const tl_args *a)
{
    const int32_t *index = I32(a->in[1]);
    int64_t        count = a->in[1]->len, p = a->in[0]->dims[0];
    for (int64_t i = 0; i < count; i++)
        if (index[i] < 0 || index[i] >= p)
            return tl_fail(ctx, TL_EINVAL, "gather: index %d at position %lld is outside 0..%lld",
                           index[i], (long long)i + 1, (long long)p - 1);
    rows r = {.index = index, .cols = width(a->in[0]), .from = F32(a->in[0]), .to = F32(a->out[0])};
    if (r.cols > 0) tl_parallel(ctx, count, 1 + 16384 / r.cols, gather_body, &r);
    return TL_OK;
}

/* Clears out[0] [p,..] unless i[0] is set, then adds row i of in[0] to its row in[1][i]. */
static tl_status gather_grad_kernel(tl_ctx *ctx, const tl_args *a)
{
    rows      r = {.index = I32(a->in[1]), .count = a->in[1]->len, .cols = width(a->out[0]),
                   .from = F32(a->in[0]), .to = F32(a->out[0])};
    tl_status st = a->i[0] ? TL_OK : tl_tensor_fill(a->out[0], 0);
    if (st == TL_OK) tl_parallel(ctx, r.cols, 16, scatter_body, &r);
    return st;
}

/* saved: in[1] the index   shape[0] the shape of the table */
static tl_status gather_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args   a = {.in = {dy, node->saved.in[1]}};
    tl_status st = tl_grad_buffer(ctx, node->in[0], &node->saved.shape[0], &a.out[0], &a.i[0]);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_gather_grad, &a);
    return tl_hand_over(ctx, node, st, a.out, 1);
}

tl_status tl_gather(tl_tensor *x, tl_tensor *index, tl_tensor **out_y)
{
    tl_ctx *ctx = x->ctx;
    int64_t dims[2 * TL_MAXDIMS];
    int     ndim = index->ndim + x->ndim - 1;
    if (x->type != TL_F32 || index->type != TL_I32)
        return tl_fail(ctx, TL_ETYPE, "gather: x must be float32 and the index int32");
    if (x->ndim < 1 || ndim > TL_MAXDIMS)
        return tl_fail(ctx, TL_ESHAPE, "gather: x is %s, the index %s", SHAPE(x), SHAPE(index));
    memcpy(dims, index->dims, sizeof index->dims);
    memcpy(dims + index->ndim, x->dims + 1, sizeof x->dims - sizeof *x->dims);
    tl_args a = {.in = {x, index}}, saved = {.in = {NULL, index}, .shape = {tl_shape_of(x)}};
    tl_status st = tl_new(ctx, TL_F32, ndim, dims, &a.out[0]);
    if (st != TL_OK) return st;
    return tl_run_recorded(TL_OP_gather, &a, 1, gather_grad, &saved, out_y);
}

const tl_kernel_row tl_cpu_gather[] = {
    {TL_OP_gather, gather_kernel}, {TL_OP_gather_grad, gather_grad_kernel}, {0}};

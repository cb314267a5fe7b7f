/* shape.c - reshapes, transposes, slices and concatenates tensors. */
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "engine/gradient.h"
#include "ops/ops.h"

/* ---- Reshape --------------------------------------------------------------------------------- */

static tl_status resolve(tl_tensor *x, int ndim, const int64_t *dims, int64_t *out)
{
    int     open = -1;
    int64_t known = 1;
    if (ndim < 0 || ndim > TL_MAXDIMS)
        return tl_fail(x->ctx, TL_ESHAPE, "reshape: to %d dimensions, at most %d", ndim,
                       TL_MAXDIMS);
    for (int i = 0; i < ndim; i++) {
        out[i] = dims[i];
        if (dims[i] == -1 && open < 0)
            open = i;
        else if (dims[i] < 0 || __builtin_mul_overflow(known, dims[i], &known))
            return tl_fail(x->ctx, TL_ESHAPE, "reshape: dimension %lld of %s would be %lld",
                           tl_axis_number(x->ctx, i), SHAPE(x), (long long)dims[i]);
    }
    if (open >= 0) out[open] = known > 0 ? x->len / known : 0;
    if (known * (open >= 0 ? out[open] : 1) != x->len)
        return tl_fail(x->ctx, TL_ESHAPE, "reshape: %s has %lld elements, not a multiple or equal "
                       "of the %lld asked for", SHAPE(x), (long long)x->len, (long long)known);
    return TL_OK;
}

static tl_status reshape_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    const tl_shape *shape = &node->saved.shape[0];
    tl_tensor      *dx;
    tl_status       st = tl_tensor_view(dy, 0, shape->ndim, shape->dims, &dx);
    return st == TL_OK ? tl_accumulate(ctx, node->in[0], dx) : st;
}

tl_status tl_reshape(tl_tensor *x, int ndim, const int64_t *dims, tl_tensor **out_y)
{
    tl_tensor *y = NULL;
    tl_args    saved = {.shape = {tl_shape_of(x)}};
    int64_t    shape[TL_MAXDIMS];
    tl_status  st = resolve(x, ndim, dims, shape);
    if (st == TL_OK) st = tl_tensor_view(x, 0, ndim, shape, &y);
    if (st == TL_OK) st = tl_record(x->ctx, y, reshape_grad, &x, 1, &saved, NULL);
    return tl_finish(st, y, out_y);
}

/* ---- Transpose ------------------------------------------------------------------------------- */

typedef struct order {
    int          ndim;
    int64_t      dims[TL_MAXDIMS], step[TL_MAXDIMS]; /* of the output; step: in the input */
    const float *x;
    float       *y;
} order;

static void transpose_body(void *user, int64_t begin, int64_t end, int thread)
{
    const order *p = user;
    int64_t      n = p->dims[p->ndim - 1], step = p->step[p->ndim - 1];
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        int64_t from = 0, rest = row;
        for (int i = p->ndim - 2; i >= 0; i--) {
            from += rest % p->dims[i] * p->step[i];
            rest /= p->dims[i];
        }
        const float *x = p->x + from;
        float       *y = p->y + row * n;
        if (step == 1)
            memcpy(y, x, (size_t)n * sizeof *y);
        else
            for (int64_t i = 0; i < n; i++) y[i] = x[i * step];
    }
}

/* out[0] axis k = in[0] axis i[k] */
static tl_status transpose_kernel(tl_ctx *ctx, const tl_args *a)
{
    const tl_tensor *x = a->in[0];
    order            p = {.ndim = x->ndim, .x = F32(x), .y = F32(a->out[0])};
    int64_t          steps[TL_MAXDIMS], step = 1;
    if (x->len == 0) return TL_OK;
    for (int i = x->ndim - 1; i >= 0; step *= x->dims[i--]) steps[i] = step;
    for (int i = 0; i < x->ndim; i++) {
        p.dims[i] = x->dims[a->i[i]];
        p.step[i] = steps[a->i[i]];
    }
    int64_t n = p.dims[x->ndim - 1];
    tl_parallel(ctx, x->len / n, 1 + 16384 / n, transpose_body, &p);
    return TL_OK;
}

static tl_status transpose_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_tensor *dx;
    int        back[TL_MAXDIMS] = {0};
    for (int i = 0; i < dy->ndim; i++) back[node->saved.i[i]] = i;
    tl_status st = tl_transpose(dy, back, &dx);
    return st == TL_OK ? tl_accumulate(ctx, node->in[0], dx) : st;
}

tl_status tl_transpose(tl_tensor *x, const int *axes, tl_tensor **out_y)
{
    tl_args  a = {.in = {x}}, saved;
    int64_t  dims[TL_MAXDIMS];
    unsigned seen = 0;
    if (x->type != TL_F32) return tl_fail(x->ctx, TL_ETYPE, "transpose: x is int32");
    if (x->ndim == 0) return tl_reshape(x, 0, NULL, out_y);
    for (int i = 0; i < x->ndim; i++) {
        int axis = axes[i] < 0 ? axes[i] + x->ndim : axes[i];
        if (axis < 0 || axis >= x->ndim || seen & 1u << axis)
            return tl_fail(x->ctx, TL_EINVAL, "transpose: the axes of %s are not all named once",
                           SHAPE(x));
        seen |= 1u << axis;
        a.i[i] = axis;
        dims[i] = x->dims[axis];
    }
    saved = a;
    saved.in[0] = NULL;
    tl_status st = tl_new(x->ctx, TL_F32, x->ndim, dims, &a.out[0]);
    if (st != TL_OK) return st;
    return tl_run_recorded(TL_OP_transpose, &a, 1, transpose_grad, &saved, out_y);
}

/* ---- Slice and concatenate ------------------------------------------------------------------- */

/* Copies between `part` and the positions of `whole` from start on along axis. */
static void copy_part(tl_tensor *whole, tl_tensor *part, int axis, int64_t start, int to_whole)
{
    tl_around s = tl_split(whole, axis);
    size_t    bytes = (size_t)(part->dims[axis] * s.inner) * 4;
    if (bytes == 0) return;
    for (int64_t o = 0; o < s.outer; o++) {
        char *w = (char *)DATA(whole) + (o * s.size + start) * s.inner * 4;
        char *p = (char *)DATA(part) + (size_t)o * bytes;
        memcpy(to_whole ? w : p, to_whole ? p : w, bytes);
    }
}

/* out[0] = the positions of in[0] from i[1] on along axis i[0], as many as out[0] has */
static tl_status slice_kernel(tl_ctx *ctx, const tl_args *a)
{
    (void)ctx;
    copy_part(a->in[0], a->out[0], (int)a->i[0], a->i[1], 0);
    return TL_OK;
}

/* Writes in[0] to the positions of out[0] from i[1] on along axis i[0], and 0 to the others if i[2]
** is set. */
static tl_status paste_kernel(tl_ctx *ctx, const tl_args *a)
{
    (void)ctx;
    if (a->i[2] && a->out[0]->len) memset(DATA(a->out[0]), 0, (size_t)a->out[0]->len * 4);
    copy_part(a->out[0], a->in[0], (int)a->i[0], a->i[1], 1);
    return TL_OK;
}

/* saved: shape[0]: of x   i: as for the kernel */
static tl_status slice_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args a = node->saved;
    a.in[0] = dy;
    a.i[2] = 1;
    tl_status st = tl_new_shaped(ctx, &a.shape[0], &a.out[0]);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_paste, &a);
    return tl_hand_over(ctx, node, st, a.out, 1);
}

tl_status tl_slice(tl_tensor *x, int axis, int64_t start, int64_t count, tl_tensor **out_y)
{
    int64_t   dims[TL_MAXDIMS];
    tl_status st = tl_axis(x->ctx, "slice", x, &axis);
    if (st != TL_OK) return st;
    if (start < 0 || count < 0 || count > x->dims[axis] - start)
        return tl_fail(x->ctx, TL_ESHAPE, "slice: %lld elements from %lld on axis %lld of %s",
                       (long long)count, (long long)start, tl_axis_number(x->ctx, axis), SHAPE(x));
    tl_args a = {.in = {x}, .i = {axis, start}};
    tl_args saved = {.i = {axis, start}, .shape = {tl_shape_of(x)}};
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = count;
    st = tl_new(x->ctx, x->type, x->ndim, dims, &a.out[0]);
    if (st != TL_OK) return st;
    return tl_run_recorded(TL_OP_slice, &a, 1, slice_grad, &saved, out_y);
}

/* saved: i: axis   p: the sizes of the tensors on it */
static tl_status concat_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    const int64_t *sizes = node->saved.p;
    int64_t        start = 0;
    tl_status      st = TL_OK;
    for (int k = 0; k < node->count && st == TL_OK; start += sizes[k++]) {
        tl_slot   *slot = node->list[k].slot;
        tl_tensor *g = NULL;
        if (slot) st = tl_slice(dy, (int)node->saved.i[0], start, sizes[k], &g);
        if (slot && st == TL_OK) st = tl_accumulate(ctx, slot, g);
    }
    return st;
}

/* Compares z with x, the first of the list: kernels divide by sizes that must be those of x. */
static tl_status concat_check(const tl_tensor *x, const tl_tensor *z, int axis)
{
    int fits = x->ndim == z->ndim;
    if (x->type != z->type) return tl_fail(x->ctx, TL_ETYPE, "concat: float32 and int32 mixed");
    for (int i = 0; fits && i < x->ndim; i++) fits = i == axis || x->dims[i] == z->dims[i];
    if (fits) return TL_OK;
    return tl_fail(x->ctx, TL_ESHAPE, "concat: %s and %s on axis %lld", SHAPE(x), SHAPE(z),
                   tl_axis_number(x->ctx, axis));
}

tl_status tl_concat(tl_ctx *ctx, tl_tensor *const *xs, int count, int axis, tl_tensor **out_y)
{
    if (count < 1) return tl_fail(ctx, TL_EINVAL, "concat: %d tensors, it needs at least 1", count);
    tl_status st = tl_axis(ctx, "concat", xs[0], &axis);
    for (int i = 1; i < count && st == TL_OK; i++) st = concat_check(xs[0], xs[i], axis);
    if (st != TL_OK) return st;
    int64_t *sizes = malloc((size_t)count * sizeof *sizes), dims[TL_MAXDIMS];
    if (!sizes) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    memcpy(dims, xs[0]->dims, sizeof dims);
    for (int k = 0; k < count; k++) {
        sizes[k] = xs[k]->dims[axis];
        if (k > 0 && __builtin_add_overflow(dims[axis], sizes[k], &dims[axis]))
            dims[axis] = INT64_MAX; /* which tl_new refuses */
    }
    tl_args a = {.i = {axis, 0}}, saved = {.i = {axis}, .p = sizes};
    st = tl_new(ctx, xs[0]->type, xs[0]->ndim, dims, &a.out[0]);
    for (int k = 0; k < count && st == TL_OK; a.i[1] += sizes[k++]) {
        a.in[0] = xs[k];
        st = tl_launch(ctx, TL_OP_paste, &a);
    }
    if (st == TL_OK)
        st = tl_record_list(ctx, a.out[0], concat_grad, xs, count, 0, &saved, free);
    else
        free(sizes);
    return tl_finish(st, a.out[0], out_y);
}

const tl_kernel_row tl_cpu_shape[] = {
    {TL_OP_transpose, transpose_kernel},
    {TL_OP_slice, slice_kernel},
    {TL_OP_paste, paste_kernel},
    {0},
};

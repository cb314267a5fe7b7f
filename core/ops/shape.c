/* shape.c - reshapes, transposes, slices and concatenates tensors. */
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "engine/gradient.h"

/* ---- Reshape --------------------------------------------------------------------------------- */

static tl_status resolve(tl_tensor *x, int ndim, const int64_t *dims, int64_t *out)
{
    int     open = -1;
    int64_t known = 1;
    if (ndim < 0 || ndim > TL_MAXDIMS)
        return tl_fail(x->ctx, TL_ESHAPE, "reshape: %d dimensions, at most %d", ndim,
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
        return tl_fail(x->ctx, TL_ESHAPE, "reshape: %s has %lld elements, but the new shape %s "
                       "%lld", SHAPE(x), (long long)x->len,
                       open < 0 ? "has" : "takes a multiple of", (long long)known);
    return TL_OK;
}

static tl_status reshape_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    const tl_shape *shape = &node->saved.shape[0];
    tl_tensor      *dx;
    tl_status       st = tl_tensor_view(dy, 0, shape->ndim, shape->dims, &dx);
    return st == TL_OK ? tl_accumulate_all(ctx, node, st, &dx, 1) : st;
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

/* axis k of y = axis axes[k] of x */
tl_status tl_cpu_transpose(tl_ctx *ctx, const tl_args *a)
{
    const tl_tensor *x = a->transpose.x;
    const int64_t   *axes = a->transpose.axes;
    order            p = {.ndim = x->ndim, .x = F32(x), .y = F32(a->transpose.y)};
    int64_t          steps[TL_MAXDIMS], step = 1;
    if (x->len == 0) return TL_OK;
    for (int i = x->ndim - 1; i >= 0; step *= x->dims[i--]) steps[i] = step;
    for (int i = 0; i < x->ndim; i++) {
        p.dims[i] = x->dims[axes[i]];
        p.step[i] = steps[axes[i]];
    }
    int64_t n = p.dims[x->ndim - 1];
    tl_parallel(ctx, x->len / n, 1 + 16384 / n, transpose_body, &p);
    return TL_OK;
}

static tl_status transpose_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_tensor *dx;
    int        back[TL_MAXDIMS] = {0};
    for (int i = 0; i < dy->ndim; i++) back[node->saved.transpose.axes[i]] = i;
    tl_status st = tl_transpose(dy, back, &dx);
    return st == TL_OK ? tl_accumulate_all(ctx, node, st, &dx, 1) : st;
}

tl_status tl_transpose(tl_tensor *x, const int *axes, tl_tensor **out_y)
{
    tl_args  a = {.transpose = {.x = x}}, saved;
    int64_t  dims[TL_MAXDIMS];
    unsigned seen = 0;
    if (x->type != TL_F32) return tl_fail(x->ctx, TL_ETYPE, "transpose: x is int32, not float32");
    if (x->ndim == 0) return tl_reshape(x, 0, NULL, out_y);
    for (int i = 0; i < x->ndim; i++) {
        int axis = axes[i] < 0 ? axes[i] + x->ndim : axes[i];
        if (axis < 0 || axis >= x->ndim || seen & 1u << axis)
            return tl_fail(x->ctx, TL_EINVAL, "transpose: axes is not a permutation of the axes "
                           "of %s", SHAPE(x));
        seen |= 1u << axis;
        a.transpose.axes[i] = axis;
        dims[i] = x->dims[axis];
    }
    saved = a;
    saved.transpose.x = NULL;
    tl_status st = tl_new(x->ctx, TL_F32, x->ndim, dims, &a.transpose.y);
    if (st != TL_OK) return st;
    return tl_run_recorded(TL_OP_transpose, &a, 1, transpose_grad, &saved, out_y);
}

/* ---- Slice and concatenate ------------------------------------------------------------------- */

/* Copies between `part` and the positions of `whole` from start on along axis. */
static void copy_part(tl_tensor *whole, tl_tensor *part, int axis, int64_t start, int to_whole)
{
    tl_axis_view s = tl_axis_view_of(whole, axis);
    size_t    bytes = (size_t)(part->dims[axis] * s.inner) * 4;
    if (bytes == 0) return;
    for (int64_t o = 0; o < s.outer; o++) {
        char *w = (char *)DATA(whole) + (o * s.size + start) * s.inner * 4;
        char *p = (char *)DATA(part) + (size_t)o * bytes;
        memcpy(to_whole ? w : p, to_whole ? p : w, bytes);
    }
}

/* y = the positions of x from `first` on along an axis, as many as y has */
tl_status tl_cpu_slice(tl_ctx *ctx, const tl_args *a)
{
    (void)ctx;
    copy_part(a->slice.x, a->slice.y, (int)a->slice.axis, a->slice.first, 0);
    return TL_OK;
}

/* Writes x to the positions of y from `first` on along an axis, and 0 to the others if clear. */
tl_status tl_cpu_paste(tl_ctx *ctx, const tl_args *a)
{
    (void)ctx;
    tl_tensor *y = a->paste.y;
    if (a->paste.clear && y->len) memset(DATA(y), 0, (size_t)y->len * 4);
    copy_part(y, a->paste.x, (int)a->paste.axis, a->paste.first, 1);
    return TL_OK;
}

/* Adds dy to the positions of dx from s->first on. */
static tl_status add_part(tl_ctx *ctx, const struct tl_args_slice *s, tl_tensor *dx, tl_tensor *dy)
{
    tl_args   part = {.slice = {.x = dx, .axis = s->axis, .first = s->first}};
    tl_status st = tl_new_like(dy, &part.slice.y);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_slice, &part);
    tl_args sum = {.axpy = {.x = dy, .y = part.slice.y, .scale = 1}};
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_axpy, &sum);
    tl_args back = {.paste = {.x = part.slice.y, .y = dx, .axis = s->axis, .first = s->first}};
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_paste, &back);
    tl_tensor_free(part.slice.y);
    return st;
}

/* Writes no position but those of the slice if x has a gradient already: x may be sliced at every
** position, and each time all of its gradient would be read and written.
** saved: the axis, the first position, and shape[0]: of x */
static tl_status slice_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    const struct tl_args_slice *s = &node->saved.slice;
    tl_slot   *slot = TL_SLOT(node, slice, x);
    tl_tensor *dx = NULL;
    int64_t    add;
    if (!slot) return TL_OK;
    tl_status st = tl_grad_buffer(ctx, slot, &node->saved.shape[0], &dx, &add);
    tl_args   a = {.paste = {.x = dy, .y = dx, .axis = s->axis, .first = s->first, .clear = 1}};
    if (st == TL_OK) st = add ? add_part(ctx, s, dx, dy) : tl_launch(ctx, TL_OP_paste, &a);
    return tl_accumulate_all(ctx, node, st, &dx, 1);
}

tl_status tl_slice(tl_tensor *x, int axis, int64_t start, int64_t count, tl_tensor **out_y)
{
    int64_t   dims[TL_MAXDIMS];
    tl_status st = tl_axis(x->ctx, "slice", x, &axis);
    if (st != TL_OK) return st;
    if (start < 0 || count < 0 || count > x->dims[axis] - start)
        return tl_fail(x->ctx, TL_ESHAPE,
                       "slice: axis %lld of %s has no %lld elements from position "
                       "%lld on", tl_axis_number(x->ctx, axis), SHAPE(x), (long long)count,
                       tl_position(x->ctx, start));
    tl_args a = {.slice = {.x = x, .axis = axis, .first = start}};
    tl_args saved = {.slice = {.axis = axis, .first = start}, .shape = {tl_shape_of(x)}};
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = count;
    st = tl_new(x->ctx, x->type, x->ndim, dims, &a.slice.y);
    if (st != TL_OK) return st;
    return tl_run_recorded(TL_OP_slice, &a, 1, slice_grad, &saved, out_y);
}

/* saved: the axis   p: the sizes of the tensors on it */
static tl_status concat_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    const int64_t *sizes = node->saved.p;
    int64_t        start = 0;
    tl_status      st = TL_OK;
    for (int k = 0; k < node->count && st == TL_OK; start += sizes[k++]) {
        tl_slot   *slot = node->list[k].slot;
        tl_tensor *g = NULL;
        if (slot) st = tl_slice(dy, (int)node->saved.paste.axis, start, sizes[k], &g);
        if (slot && st == TL_OK) st = tl_accumulate(ctx, slot, g);
    }
    return st;
}

/* Compares z with x, the first of the list: kernels divide by sizes that must equal x's. */
static tl_status concat_check(const tl_tensor *x, const tl_tensor *z, int axis)
{
    int fits = x->ndim == z->ndim;
    if (x->type != z->type)
        return tl_fail(x->ctx, TL_ETYPE, "concat: some tensors are float32 and others int32");
    for (int i = 0; fits && i < x->ndim; i++) fits = i == axis || x->dims[i] == z->dims[i];
    if (fits) return TL_OK;
    return tl_fail(x->ctx, TL_ESHAPE,
                   "concat: %s and %s on axis %lld: all other axes must be equal",
                   SHAPE(x), SHAPE(z), tl_axis_number(x->ctx, axis));
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
    tl_args a = {.paste = {.axis = axis}}, saved = {.paste = {.axis = axis}, .p = sizes};
    st = tl_new(ctx, xs[0]->type, xs[0]->ndim, dims, &a.paste.y);
    for (int k = 0; k < count && st == TL_OK; a.paste.first += sizes[k++]) {
        a.paste.x = xs[k];
        st = tl_launch(ctx, TL_OP_paste, &a);
    }
    if (st == TL_OK)
        st = tl_record_list(ctx, a.paste.y, concat_grad, xs, count, 0, &saved, free);
    else
        free(sizes);
    return tl_finish(st, a.paste.y, out_y);
}

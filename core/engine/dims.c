/* dims.c - queries, compares and prints the dimensions of tensors, and resolves axes. */
#include <stdio.h>
#include <string.h>

#include "engine/tensor.h"

tl_shape tl_shape_of(const tl_tensor *x)
{
    tl_shape shape = {.ndim = x->ndim};
    memcpy(shape.dims, x->dims, sizeof shape.dims);
    return shape;
}

int tl_tensor_ndim(const tl_tensor *t) { return t->ndim; }

int64_t tl_tensor_len(const tl_tensor *t) { return t->len; }

int64_t tl_tensor_dim(const tl_tensor *t, int axis)
{
    if (axis < 0) axis += t->ndim;
    return axis >= 0 && axis < t->ndim ? t->dims[axis] : 1;
}

const char *tl_tensor_shape(const tl_tensor *t, char *buf, size_t size)
{
    size_t n = 0;
    if (size == 0) return buf;
    buf[0] = 0;
    for (int i = 0; i <= t->ndim && n < size; i++) {
        int w = i < t->ndim
                    ? snprintf(buf + n, size - n, "%s%lld", i ? "," : "[", (long long)t->dims[i])
                    : snprintf(buf + n, size - n, "%s]", i ? "" : "[");
        n += w > 0 ? (size_t)w : 0;
    }
    return buf;
}

int tl_same_shape(const tl_tensor *a, const tl_tensor *b)
{
    if (a->ndim != b->ndim) return 0;
    for (int i = 0; i < a->ndim; i++)
        if (a->dims[i] != b->dims[i]) return 0;
    return 1;
}

int64_t tl_cols(const tl_tensor *x) { return x->ndim > 0 ? x->dims[x->ndim - 1] : 1; }

int64_t tl_rows(const tl_tensor *x)
{
    int64_t rows = 1;
    for (int i = 0; i < x->ndim - 1; i++) rows *= x->dims[i];
    return rows;
}

tl_status tl_axis(tl_ctx *ctx, const char *op, const tl_tensor *x, int *axis)
{
    int a = *axis < 0 ? *axis + x->ndim : *axis;
    if (a < 0 || a >= x->ndim)
        return tl_fail(ctx, TL_EINVAL, "%s: %s has no axis %lld", op, SHAPE(x),
                       tl_axis_number(ctx, *axis));
    *axis = a;
    return TL_OK;
}

tl_around tl_split(const tl_tensor *x, int axis)
{
    tl_around s = {1, x->len, 1};
    if (axis == TL_ALL_AXES) return s;
    for (int i = 0; i < axis; i++) s.outer *= x->dims[i];
    for (int i = axis + 1; i < x->ndim; i++) s.inner *= x->dims[i];
    s.size = x->dims[axis];
    return s;
}

/* copy.c - copies and fills the elements of tensors, and creates tensors of zeros. */
#include <string.h>

#include "engine/launch.h"

tl_status tl_tensor_copy(tl_tensor *dst, const tl_tensor *src)
{
    if (dst->type != src->type)
        return tl_fail(dst->ctx, TL_ETYPE, "copy: the source is %s, the target %s",
                       src->type == TL_F32 ? "float32" : "int32",
                       dst->type == TL_F32 ? "float32" : "int32");
    if (!tl_same_shape(dst, src))
        return tl_fail(dst->ctx, TL_ESHAPE,
                       "copy: the source is %s, the target %s: the shapes must be "
                       "equal", SHAPE(src), SHAPE(dst));
    size_t bytes = (size_t)dst->len * 4; /* the threads of a GPU copy in no order */
    if (dst->storage == src->storage && dst->offset != src->offset &&
        dst->offset < src->offset + bytes && src->offset < dst->offset + bytes)
        return tl_fail(dst->ctx, TL_EINVAL, "copy: source and target overlap: copy a clone");
    tl_args a = {.copy = {.x = (tl_tensor *)src, .y = dst}};
    return tl_launch(dst->ctx, TL_OP_copy, &a);
}

tl_status tl_tensor_fill(tl_tensor *t, double value)
{
    tl_args a = {.fill = {.y = t, .value = value}};
    if (t->type == TL_I32 && !(value >= INT32_MIN && value <= INT32_MAX))
        return tl_fail(t->ctx, TL_EINVAL, "fill: %g is not a 32-bit integer", value);
    return tl_launch(t->ctx, TL_OP_fill, &a);
}

tl_status tl_tensor_new(tl_ctx *ctx, tl_type type, int ndim, const int64_t *dims,
                        tl_tensor **out_t)
{
    tl_tensor *t = NULL;
    tl_status  st = tl_new(ctx, type, ndim, dims, &t);
    if (st == TL_OK) st = tl_tensor_fill(t, 0);
    return tl_finish(st, t, out_t);
}

/* ---- Kernels of the CPU ---------------------------------------------------------------------- */

tl_status tl_cpu_copy(tl_ctx *ctx, const tl_args *a)
{
    (void)ctx;
    tl_tensor *y = a->copy.y;
    if (y->len) memmove(DATA(y), DATA(a->copy.x), (size_t)y->len * 4);
    return TL_OK;
}

tl_status tl_cpu_fill(tl_ctx *ctx, const tl_args *a)
{
    (void)ctx;
    tl_tensor *t = a->fill.y;
    if (a->fill.value == 0 && t->len) {
        memset(DATA(t), 0, (size_t)t->len * 4);
    } else if (t->type == TL_F32) {
        for (int64_t i = 0; i < t->len; i++) F32(t)[i] = (float)a->fill.value;
    } else {
        for (int64_t i = 0; i < t->len; i++) I32(t)[i] = (int32_t)a->fill.value;
    }
    return TL_OK;
}

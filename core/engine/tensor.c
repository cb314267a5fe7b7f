/* tensor.c - dense tensors on shared, reference-counted storage, and the slots that hold their
** gradients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engine/launch.h"

#define LARGE (4 << 20) /* bytes; recomputing a smaller tensor is not worth the time */

/* ---- Tensors --------------------------------------------------------------------------------- */

static tl_status tensor_length(tl_ctx *ctx, int ndim, const int64_t *dims, int64_t *out_len)
{
    int64_t len = 1;
    int empty = 0, large = 0; /* large: also in a tensor without elements, where another is 0 */
    if (ndim < 0 || ndim > TL_MAXDIMS)
        return tl_fail(ctx, TL_ESHAPE, "a tensor has 0 to %d dimensions, not %d", TL_MAXDIMS, ndim);
    for (int i = 0; i < ndim; i++) {
        if (dims[i] < 0)
            return tl_fail(ctx, TL_ESHAPE, "dimension %lld is negative: %lld",
                           tl_axis_number(ctx, i), (long long)dims[i]);
        empty |= dims[i] == 0;
        large |= dims[i] && (__builtin_mul_overflow(len, dims[i], &len) || len > INT64_MAX / 8);
    }
    if (large && empty)
        return tl_fail(ctx, TL_ESHAPE, "the dimensions other than 0 multiply to more than 2^60");
    if (large)
        return tl_fail(ctx, TL_ENOMEM, "out of memory: a tensor of more than 2^60 elements");
    *out_len = empty ? 0 : len;
    return TL_OK;
}

/* Creates a tensor on storage s from element offset on. Takes over one reference to s, also on
** failure. */
static tl_status tensor_wrap(tl_ctx *ctx, tl_storage *s, tl_type type, int64_t offset, int ndim,
                             const int64_t *dims, int64_t len, tl_tensor **out_t)
{
    tl_tensor *t = calloc(1, sizeof *t);
    if (!t) {
        tl_storage_free(ctx, s);
        return tl_fail(ctx, TL_ENOMEM, "out of memory");
    }
    t->refs = 1;
    t->ctx = ctx;
    t->storage = s;
    t->offset = (size_t)offset * 4;
    t->type = type;
    t->ndim = ndim;
    t->len = len;
    for (int i = 0; i < ndim; i++) t->dims[i] = dims[i];
    tl_count_tensor(ctx, 1);
    *out_t = t;
    return TL_OK;
}

/* Like tensor_length; also fails unless there is such a type of elements. */
static tl_status typed_length(tl_ctx *ctx, tl_type type, int ndim, const int64_t *dims,
                              int64_t *out_len)
{
    if (type != TL_F32 && type != TL_I32)
        return tl_fail(ctx, TL_ETYPE, "there is no element type %d", (int)type);
    return tensor_length(ctx, ndim, dims, out_len);
}

static tl_status tensor_new_on(tl_ctx *ctx, tl_device device, tl_type type, int ndim,
                               const int64_t *dims, tl_tensor **out_t)
{
    int64_t     len = 0;
    tl_storage *s = NULL;
    tl_status   st = typed_length(ctx, type, ndim, dims, &len);
    if (st == TL_OK) st = tl_storage_new(ctx, device, (size_t)len * 4, &s);
    if (st == TL_OK) st = tensor_wrap(ctx, s, type, 0, ndim, dims, len, out_t);
    return st;
}

tl_status tl_new(tl_ctx *ctx, tl_type type, int ndim, const int64_t *dims, tl_tensor **out_t)
{
    return tensor_new_on(ctx, ctx->device, type, ndim, dims, out_t);
}

tl_status tl_tensor_new_host(tl_ctx *ctx, tl_type type, int ndim, const int64_t *dims,
                             tl_tensor **out_t)
{
    return tensor_new_on(ctx, TL_CPU, type, ndim, dims, out_t);
}

tl_status tl_tensor_borrow(tl_ctx *ctx, tl_type type, int ndim, const int64_t *dims, void *data,
                           tl_tensor **out_t)
{
    int64_t     len = 0;
    tl_storage *s = NULL;
    tl_status   st = typed_length(ctx, type, ndim, dims, &len);
    if (st == TL_OK && (uintptr_t)data % 4 != 0)
        st = tl_fail(ctx, TL_EINVAL, "the memory of a tensor must be aligned to 4 bytes");
    if (st == TL_OK && !data && len > 0)
        st = tl_fail(ctx, TL_EINVAL, "a tensor of %lld elements needs memory", (long long)len);
    if (st == TL_OK) st = tl_storage_borrow(ctx, data, (size_t)len * 4, &s);
    if (st == TL_OK) st = tensor_wrap(ctx, s, type, 0, ndim, dims, len, out_t);
    return st;
}

tl_status tl_new_like(const tl_tensor *x, tl_tensor **out_t)
{
    return tl_new(x->ctx, TL_F32, x->ndim, x->dims, out_t);
}

tl_status tl_new_shaped(tl_ctx *ctx, const tl_shape *shape, tl_tensor **out_t)
{
    return tl_new(ctx, TL_F32, shape->ndim, shape->dims, out_t);
}

tl_status tl_tensor_new(tl_ctx *ctx, tl_type type, int ndim, const int64_t *dims,
                        tl_tensor **out_t)
{
    tl_tensor *t = NULL;
    tl_status  st = tl_new(ctx, type, ndim, dims, &t);
    if (st == TL_OK) st = tl_tensor_fill(t, 0);
    return tl_finish(st, t, out_t);
}

tl_status tl_tensor_view(tl_tensor *t, int64_t offset, int ndim, const int64_t *dims,
                         tl_tensor **out_t)
{
    int64_t   len = 0;
    tl_status st = tensor_length(t->ctx, ndim, dims, &len);
    if (st != TL_OK) return st;
    if (offset < 0 || offset > t->len || len > t->len - offset)
        return tl_fail(t->ctx, TL_ESHAPE, "view: %lld elements from %lld do not fit in %s",
                       (long long)len, (long long)offset, SHAPE(t));
    int64_t base = (int64_t)(t->offset / 4);
    t->storage->refs++;
    return tensor_wrap(t->ctx, t->storage, t->type, base + offset, ndim, dims, len, out_t);
}

tl_tensor *tl_tensor_retain(tl_tensor *t)
{
    t->refs++;
    return t;
}

void tl_give_up(tl_tensor *t)
{
    const tl_slot *s = t->slot;
    if (t->refs != t->tape_refs || !t->storage->data || !t->ctx->recording) return;
    if (!s || !s->again || t->storage->refs > 1 || t->storage->bytes < LARGE) return;
    tl_device_release(t->ctx, t->storage->device, t->storage->data);
    t->storage->data = NULL;
}

void tl_tensor_free(tl_tensor *t)
{
    if (!t) return;
    if (--t->refs > 0) {
        tl_give_up(t);
        return;
    }
    tl_ctx *ctx = t->ctx;
    tl_slot_free(t->slot);
    tl_count_tensor(ctx, -1);
    tl_storage_free(ctx, t->storage); /* may close the context */
    free(t);
}

tl_status tl_finish(tl_status st, tl_tensor *t, tl_tensor **out)
{
    if (st == TL_OK)
        *out = t;
    else
        tl_tensor_free(t);
    return st;
}

/* ---- Slots ----------------------------------------------------------------------------------- */

tl_slot *tl_slot_new(int leaf)
{
    tl_slot *s = malloc(sizeof *s);
    if (s) *s = (tl_slot){.refs = 1, .leaf = leaf};
    return s;
}

tl_slot *tl_slot_retain(tl_slot *s)
{
    if (s) s->refs++;
    return s;
}

void tl_slot_free(tl_slot *s)
{
    if (!s || --s->refs > 0) return;
    tl_tensor_free(s->grad);
    free(s);
}

/* ---- Queries --------------------------------------------------------------------------------- */

tl_ctx *tl_tensor_ctx(const tl_tensor *t) { return t->ctx; }
tl_type tl_tensor_type(const tl_tensor *t) { return t->type; }

unsigned tl_tensor_version(const tl_tensor *t) { return t->storage->version; }

static void *host_data(const tl_tensor *t, tl_type type)
{
    return t->type == type && tl_bring(t) == TL_OK ? DATA(t) : NULL;
}

float *tl_tensor_f32(tl_tensor *t) { return host_data(t, TL_F32); }
const float *tl_tensor_cf32(const tl_tensor *t) { return host_data(t, TL_F32); }
int32_t *tl_tensor_i32(tl_tensor *t) { return host_data(t, TL_I32); }
const int32_t *tl_tensor_ci32(const tl_tensor *t) { return host_data(t, TL_I32); }

/* ---- Copy and fill --------------------------------------------------------------------------- */

tl_status tl_tensor_copy(tl_tensor *dst, const tl_tensor *src)
{
    if (dst->type != src->type)
        return tl_fail(dst->ctx, TL_ETYPE, "copy: float32 and int32 do not mix");
    if (!tl_same_shape(dst, src))
        return tl_fail(dst->ctx, TL_ESHAPE, "copy: the source is %s, the target %s", SHAPE(src),
                       SHAPE(dst));
    size_t bytes = (size_t)dst->len * 4; /* the threads of a GPU copy in no order */
    if (dst->storage == src->storage && dst->offset != src->offset &&
        dst->offset < src->offset + bytes && src->offset < dst->offset + bytes)
        return tl_fail(dst->ctx, TL_EINVAL, "copy: source and target overlap");
    tl_args a = {.in = {(tl_tensor *)src}, .out = {dst}};
    return tl_launch(dst->ctx, TL_OP_copy, &a);
}

tl_status tl_tensor_fill(tl_tensor *t, double value)
{
    tl_args a = {.out = {t}, .f = {value}};
    if (t->type == TL_I32 && !(value >= INT32_MIN && value <= INT32_MAX))
        return tl_fail(t->ctx, TL_EINVAL, "fill: %g is not a 32-bit integer", value);
    return tl_launch(t->ctx, TL_OP_fill, &a);
}

/* out[0] = in[0] */
static tl_status copy_kernel(tl_ctx *ctx, const tl_args *a)
{
    (void)ctx;
    if (a->out[0]->len) memmove(DATA(a->out[0]), DATA(a->in[0]), (size_t)a->out[0]->len * 4);
    return TL_OK;
}

/* out[0] = f[0] */
static tl_status fill_kernel(tl_ctx *ctx, const tl_args *a)
{
    (void)ctx;
    tl_tensor *t = a->out[0];
    if (a->f[0] == 0 && t->len) {
        memset(DATA(t), 0, (size_t)t->len * 4);
    } else if (t->type == TL_F32) {
        for (int64_t i = 0; i < t->len; i++) F32(t)[i] = (float)a->f[0];
    } else {
        for (int64_t i = 0; i < t->len; i++) I32(t)[i] = (int32_t)a->f[0];
    }
    return TL_OK;
}

const tl_kernel_row tl_cpu_tensor[] = {{TL_OP_copy, copy_kernel}, {TL_OP_fill, fill_kernel}, {0}};

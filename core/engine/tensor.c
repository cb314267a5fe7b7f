/* tensor.c - dense tensors on shared, reference-counted storage, their dimensions, and the slots
** that hold their gradients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engine/device.h"
#include "engine/tensor.h"

#define MIN_EVICTED_BYTES (4 << 20) /* recomputing a smaller tensor is not worth the time */

/* ---- Dimensions ------------------------------------------------------------------------------ */

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

int tl_has_shape(const tl_tensor *t, int ndim, const int64_t *dims)
{
    return t->ndim == ndim && memcmp(t->dims, dims, (size_t)ndim * sizeof *dims) == 0;
}

int tl_same_shape(const tl_tensor *a, const tl_tensor *b)
{
    return tl_has_shape(a, b->ndim, b->dims);
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

tl_axis_view tl_axis_view_of(const tl_tensor *x, int axis)
{
    tl_axis_view s = {1, x->len, 1};
    if (axis == TL_ALL_AXES) return s;
    for (int i = 0; i < axis; i++) s.outer *= x->dims[i];
    for (int i = axis + 1; i < x->ndim; i++) s.inner *= x->dims[i];
    s.size = x->dims[axis];
    return s;
}

/* ---- Storages -------------------------------------------------------------------------------- */

tl_status tl_storage_new(tl_ctx *ctx, tl_device device, size_t bytes, tl_storage **out_s)
{
    tl_storage *s = malloc(sizeof *s);
    if (!s) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    *s = (tl_storage){.refs = 1, .device = device, .bytes = bytes,
                      .capture = ctx->capture ? ctx->captures : 0,
                      .uncomputed = ctx->capture && device != TL_CPU};
    tl_status st = tl_device_alloc(ctx, device, bytes, &s->data);
    if (st != TL_OK) {
        free(s);
        return st;
    }
    ctx->refs++;
    *out_s = s;
    return TL_OK;
}

tl_status tl_storage_borrow(tl_ctx *ctx, void *data, size_t bytes, tl_storage **out_s)
{
    tl_storage *s = malloc(sizeof *s);
    if (!s) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    *s = (tl_storage){.refs = 1, .device = TL_CPU, .bytes = bytes, .data = data, .borrowed = 1};
    ctx->refs++;
    *out_s = s;
    return TL_OK;
}

void tl_storage_free(tl_ctx *ctx, tl_storage *s)
{
    if (--s->refs > 0) return;
    if (!s->borrowed) tl_device_release(ctx, s->device, s->data);
    free(s);
    tl_ctx_unref(ctx);
}

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

static void scope_insert(tl_tensor *t, int scope)
{
    tl_tensor **at = &t->ctx->scoped;
    while (*at && (*at)->scope > scope) at = &(*at)->next;
    t->scope = scope;
    t->next = *at;
    t->link = at;
    if (t->next) t->next->link = &t->next;
    *at = t;
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
    if (ctx->scopes > ctx->scope_base) scope_insert(t, ctx->scopes);
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

void tl_evict(tl_tensor *t)
{
    const tl_slot *s = t->slot;
    if (t->refs != t->tape_refs || !t->storage->data || !t->ctx->recording) return;
    if (!s || !s->recompute || t->storage->refs > 1) return;
    if (t->storage->bytes < MIN_EVICTED_BYTES) return;
    tl_device_release(t->ctx, t->storage->device, t->storage->data);
    t->storage->data = NULL;
}

void tl_tensor_free(tl_tensor *t)
{
    if (!t) return;
    if (--t->refs <= t->tape_refs + t->held) tl_scope_leave(t);
    if (t->refs > 0) {
        tl_evict(t);
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

/* ---- Scopes ---------------------------------------------------------------------------------- */

tl_tensor *tl_tensor_hold(tl_tensor *t)
{
    t->held++;
    return tl_tensor_retain(t);
}

void tl_tensor_drop(tl_tensor *t)
{
    if (t) t->held--;
    tl_tensor_free(t);
}

void tl_scope_leave(tl_tensor *t)
{
    if (t->scope == 0) return;
    *t->link = t->next;
    if (t->next) t->next->link = t->link;
    t->scope = 0;
}

int tl_scope_pause(tl_ctx *ctx)
{
    int base = ctx->scope_base;
    ctx->scope_base = ctx->scopes;
    return base;
}

void tl_scope_resume(tl_ctx *ctx, int base)
{
    tl_scope_end(ctx, ctx->scope_base + 1);
    ctx->scope_base = base;
}

int tl_scope_begin(tl_ctx *ctx) { return ++ctx->scopes; }

void tl_scope_end(tl_ctx *ctx, int scope)
{
    if (scope <= ctx->scope_base) scope = ctx->scope_base + 1;
    if (scope > ctx->scopes) return;
    while (ctx->scoped && ctx->scoped->scope >= scope) {
        tl_tensor *t = ctx->scoped;
        tl_scope_leave(t);
        tl_tensor_free(t);
    }
    ctx->scopes = scope - 1;
}

tl_tensor *tl_scope_keep(tl_tensor *t)
{
    int scope = t->scope;
    if (scope == 0 || scope < t->ctx->scopes) return t;
    tl_scope_leave(t);
    if (scope - 1 > t->ctx->scope_base) scope_insert(t, scope - 1);
    return t;
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

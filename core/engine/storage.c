/* storage.c - moves the values of tensors between devices. A storage lies on one device at a time:
** it is created on the context's device, or on the CPU (tl_tensor_new_host), moves to the CPU when
** the CPU reads or writes it, and to the context's device when a kernel needs it there. */
#include <string.h>

#include "engine/capture.h"
#include "engine/device.h"
#include "engine/storage.h"

/* Checks that t has values: a tensor that was created in a capture has none outside of it until its
** graph has run. */
static tl_status check_computed(const tl_tensor *t)
{
    const tl_ctx *ctx = t->ctx;
    if (!t->storage->uncomputed || (ctx->capture && t->storage->capture == ctx->captures))
        return TL_OK;
    return tl_fail(t->ctx, TL_EINVAL, "a tensor %s has no values: it was made in a capture and is "
                   "not a result of a graph that has run", SHAPE(t));
}

tl_status tl_to_device(const tl_tensor *t, tl_device device)
{
    tl_ctx     *ctx = t->ctx;
    tl_storage *s = t->storage;
    void       *there;
    if (check_computed(t) != TL_OK) return TL_EINVAL;
    if (s->device == device)
        return ctx->capture && device != TL_CPU ? tl_graph_use(ctx->capture, s) : TL_OK;
    if (ctx->capture)
        return tl_fail(ctx, TL_EDEVICE, "a tensor %s is %s, which a graph cannot capture", SHAPE(t),
                       device == TL_CPU ? "read by the CPU" : "on the CPU");
    tl_status st = tl_device_alloc(ctx, device, s->bytes, &there);
    if (st != TL_OK) return st;
    if (s->bytes > 0) /* one side is the CPU */
        st = device == TL_CPU ? ctx->engine->download(ctx, there, s->data, s->bytes)
                              : ctx->engine->upload(ctx, there, s->data, s->bytes);
    if (st != TL_OK) tl_device_release(ctx, device, there);
    else if (!s->borrowed) tl_device_release(ctx, s->device, s->data);
    if (st != TL_OK) return st;
    s->borrowed = 0;
    s->data = there;
    s->device = device;
    return TL_OK;
}

tl_status tl_tensor_read(const tl_tensor *t, int64_t first, int64_t count, void *out)
{
    if (first < 0 || count < 0 || first > t->len - count)
        return tl_fail(t->ctx, TL_ESHAPE, "read: %lld elements from %lld do not fit in %s",
                       (long long)count, (long long)first, SHAPE(t));
    const char *from = (const char *)DATA(t) + first * 4;
    if (count == 0) return TL_OK;
    if (check_computed(t) != TL_OK) return TL_EINVAL;
    if (t->storage->device != TL_CPU)
        return t->ctx->engine->download(t->ctx, out, from, (size_t)count * 4);
    memcpy(out, from, (size_t)count * 4);
    return TL_OK;
}

tl_status tl_to_cpu(const tl_tensor *t) { return tl_to_device(t, TL_CPU); }

static void *host_data(const tl_tensor *t, tl_type type)
{
    return t->type == type && tl_to_cpu(t) == TL_OK ? DATA(t) : NULL;
}

float *tl_tensor_f32(tl_tensor *t) { return host_data(t, TL_F32); }
const float *tl_tensor_cf32(const tl_tensor *t) { return host_data(t, TL_F32); }
int32_t *tl_tensor_i32(tl_tensor *t) { return host_data(t, TL_I32); }
const int32_t *tl_tensor_ci32(const tl_tensor *t) { return host_data(t, TL_I32); }

/* device.c - the device in use: its name, its memory, and waiting for it. */
#include "base/memory.h"
#include "engine/device.h"

const char *tl_device_name(const tl_ctx *ctx) { return ctx->engine ? ctx->device_name : "cpu"; }

const char *tl_device_about(tl_ctx *ctx) { return ctx->engine ? ctx->engine->about(ctx) : ""; }

void tl_device_close(tl_ctx *ctx)
{
    if (ctx->engine) ctx->engine->close(ctx);
    ctx->engine = NULL;
}

tl_status tl_synchronize(tl_ctx *ctx)
{
    char none = 0;
    return ctx->engine ? ctx->engine->download(ctx, &none, &none, 0) : TL_OK;
}

void tl_range(const tl_ctx *ctx, const char *name)
{
    if (ctx->engine && ctx->engine->range) ctx->engine->range(name);
}

/* ---- Its memory ------------------------------------------------------------------------------ */

tl_status tl_device_alloc(tl_ctx *ctx, tl_device device, size_t bytes, void **out_p)
{
    if (device != TL_CPU) return ctx->engine->alloc(ctx, bytes, out_p);
    *out_p = tl_alloc(ctx, bytes);
    return *out_p ? TL_OK : TL_ENOMEM;
}

void tl_device_release(tl_ctx *ctx, tl_device device, void *p)
{
    if (device == TL_CPU)
        tl_release(ctx, p);
    else
        ctx->engine->release(ctx, p);
}

tl_memory tl_memory_info(const tl_ctx *ctx)
{
    if (!ctx->engine) return tl_cache_info(ctx);
    tl_memory info = ctx->engine->memory(ctx);
    info.tensors = tl_cache_info(ctx).tensors;
    return info;
}

int64_t tl_tensor_count(const tl_ctx *ctx) { return tl_cache_info(ctx).tensors; }

void tl_memory_trim(tl_ctx *ctx)
{
    tl_cache_trim(ctx);
    if (ctx->engine) ctx->engine->trim(ctx);
}

void tl_memory_reset_peak(tl_ctx *ctx)
{
    tl_cache_reset_peak(ctx);
    if (ctx->engine) ctx->engine->reset_peak(ctx);
}

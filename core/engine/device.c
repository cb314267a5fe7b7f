/* device.c - the device that a context computes on: finding its shared object, opening and asking
** it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "engine/device.h"

tl_status tl_synchronize(tl_ctx *ctx)
{
    char none = 0;
    return ctx->engine ? ctx->engine->download(ctx, &none, &none, 0) : TL_OK;
}

/* ---- The device of a context ----------------------------------------------------------------- */

/* The file of a device: NAME itself if it has a slash, else devices/NAME.so beside the library. */
static int file_of(const char *name, char *path, size_t size)
{
    static const char here = 0;
    static const char *const places[] = {"devices", "toeplab/devices"};
    char    library[PATH_MAX];
    Dl_info info;
    if (strchr(name, '/')) return snprintf(path, size, "%s", name) < (int)size;
    if (!dladdr(&here, &info) || !info.dli_fname || !realpath(info.dli_fname, library)) return 0;
    char *slash = strrchr(library, '/');
    if (!slash) return 0;
    *slash = 0;
    for (int i = 0; i < 2; i++) {
        int   n = snprintf(path, size, "%s/%s/%s.so", library, places[i], name);
        FILE *f = n > 0 && (size_t)n < size ? fopen(path, "re") : NULL;
        if (!f) continue;
        (void)fclose(f);
        return 1;
    }
    return 0;
}

static tl_status find(tl_ctx *ctx, const char *name, char *path, size_t size)
{
    if (file_of(name, path, size)) return TL_OK;
    return tl_fail(ctx, TL_EDEVICE, "device '%s': this build has none of that name (one for cards "
                   "is built where nvcc is found)", name);
}

static tl_status load(tl_ctx *ctx, const char *name, const tl_engine **out)
{
    char      path[PATH_MAX];
    tl_status st = find(ctx, name, path, sizeof path);
    if (st == TL_OK && !tl_elf_whole(path))
        st = tl_fail(ctx, TL_EDEVICE, "device '%s': %s: is truncated", name, path);
    if (st != TL_OK) return st;
    void            *file = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* stays: see plugin.c */
    const tl_engine *e = file ? dlsym(file, "tl_engine_entry") : NULL;
    if (!e)
        return tl_fail(ctx, TL_EDEVICE, "device '%s': %s", name,
                       file ? "its file exports no tl_engine_entry" : dlerror());
    if (e->abi != TL_ENGINE_ABI)
        return tl_fail(ctx, TL_EDEVICE, "device '%s': made for ABI %u, this is %u", name,
                       (unsigned)e->abi, TL_ENGINE_ABI);
    *out = e;
    return TL_OK;
}

/* Splits "cuda:1" into a name and a card. A path may have colons of its own. */
static tl_status split(tl_ctx *ctx, const char *text, char *name, size_t size, int *card)
{
    const char *colon = strrchr(text, ':');
    size_t      digits = colon ? strspn(colon + 1, "0123456789") : 0;
    int         numbered = digits > 0 && digits < 5 && !colon[1 + digits];
    if (!numbered && strchr(text, '/')) colon = NULL;
    size_t len = colon ? (size_t)(colon - text) : strlen(text);
    if (len == 0 || len >= size || (colon && !numbered))
        return tl_fail(ctx, TL_EDEVICE, "device '%s': wanted cpu, cuda, or cuda:1 for the second "
                       "card", text);
    memcpy(name, text, len);
    name[len] = 0;
    *card = colon ? (int)strtol(colon + 1, NULL, 10) : 0;
    return TL_OK;
}

tl_status tl_use_device(tl_ctx *ctx, const char *text)
{
    char      name[PATH_MAX];
    int       card = 0;
    tl_status st = split(ctx, text, name, sizeof name, &card);
    if (st != TL_OK) return st;
    if (strcmp(text, tl_device_name(ctx)) == 0) return TL_OK;
    if (ctx->device != TL_CPU || ctx->refs > 1) /* a tensor and an operator are of their device */
        return tl_fail(ctx, TL_EDEVICE, "device '%s': the context computes on %s already", text,
                       tl_device_name(ctx));
    const tl_engine *e = NULL;
    st = load(ctx, name, &e);
    if (st == TL_OK) st = e->open(ctx, card, &ctx->engine_state);
    if (st != TL_OK) return st;
    ctx->engine = e;
    ctx->device = TL_CUDA;
    (void)snprintf(ctx->device_name, sizeof ctx->device_name, card ? "%s:%d" : "%s", e->name, card);
    for (int i = 0; i < e->table_count; i++)
        for (const tl_kernel_row *row = e->tables[i]; row->run; row++)
            if (row->op < TL_OPS) ctx->kernels->of[TL_CUDA][row->op] = row->run;
    return TL_OK;
}

/* ---- Devices that are not in use ------------------------------------------------------------- */

tl_status tl_device_file(tl_ctx *ctx, const char *device, char *path, size_t size)
{
    char      name[PATH_MAX];
    int       card = 0;
    tl_status st = split(ctx, device, name, sizeof name, &card);
    return st == TL_OK ? find(ctx, name, path, size) : st;
}

static tl_status meet(tl_ctx *ctx, const char *device, const tl_engine **out, int *card)
{
    char      name[PATH_MAX];
    tl_status st = split(ctx, device, name, sizeof name, card);
    return st == TL_OK ? load(ctx, name, out) : st;
}

tl_status tl_device_look(tl_ctx *ctx, const char *device, int *out_cards, char *about, size_t size)
{
    const tl_engine *e = NULL;
    int              card = 0;
    tl_status        st = meet(ctx, device, &e, &card);
    return st == TL_OK ? e->look(ctx, card, out_cards, about, size) : st;
}

tl_status tl_device_takes(tl_ctx *ctx, const char *device, const char *backend, int *out_takes)
{
    const tl_engine *e = NULL;
    int              card = 0;
    tl_status        st = meet(ctx, device, &e, &card);
    if (st == TL_OK) *out_takes = e->form && e->form(ctx, backend) != NULL;
    return st;
}

/* ---- The device in use ----------------------------------------------------------------------- */

const char *tl_device_name(const tl_ctx *ctx) { return ctx->engine ? ctx->device_name : "cpu"; }

const char *tl_device_about(tl_ctx *ctx) { return ctx->engine ? ctx->engine->about(ctx) : ""; }

void tl_device_close(tl_ctx *ctx)
{
    if (ctx->engine) ctx->engine->close(ctx);
    ctx->engine = NULL;
}

/* ---- Memory, wherever it is ------------------------------------------------------------------ */

tl_memory tl_memory_info(const tl_ctx *ctx)
{
    if (!ctx->engine) return tl_cache_info(ctx);
    tl_memory info = ctx->engine->memory(ctx);
    info.tensors = tl_cache_info(ctx).tensors;
    return info;
}

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

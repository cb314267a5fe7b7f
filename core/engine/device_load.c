/* device_load.c - finds, loads and queries the shared object of a device other than the CPU, and
** switches a context to it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/shared.h"
#include "engine/device.h"

/* ---- The device of a context ----------------------------------------------------------------- */

/* Finds the file of a device: NAME itself if it has a slash, else devices/NAME.so beside the
** library. */
static int device_path(const char *name, char *path, size_t size)
{
    char file[PATH_MAX];
    if (strchr(name, '/')) return snprintf(path, size, "%s", name) < (int)size;
    int n = snprintf(file, sizeof file, "devices/%s.so", name);
    return n < (int)sizeof file && tl_beside_library(file, path, size);
}

static tl_status device_find(tl_ctx *ctx, const char *name, char *path, size_t size)
{
    if (device_path(name, path, size)) return TL_OK;
    return tl_fail(ctx, TL_EDEVICE, "device '%s': this build has no such device (\"cuda\" is "
                   "built where nvcc and a GPU are, or with -DTL_CUDA=ON)", name);
}

static tl_status device_load(tl_ctx *ctx, const char *name, const tl_engine **out)
{
    static const tl_shared_kind kind = {"a device", "tl_engine_entry", TL_ENGINE_ABI, TL_EDEVICE};
    char        path[PATH_MAX], named[2 * PATH_MAX]; /* for messages */
    const void *e = NULL;
    void       *file = NULL; /* stays mapped: see plugin.c */
    tl_status   st = device_find(ctx, name, path, sizeof path);
    if (st != TL_OK) return st;
    (void)snprintf(named, sizeof named, "device '%s': %s", name, path);
    st = tl_shared_open(ctx, &kind, named, path, &file, &e);
    if (st == TL_OK) *out = e;
    return st;
}

/* Splits "cuda:1" into a name and the number of a GPU. A path may contain colons itself. */
static tl_status device_parse(tl_ctx *ctx, const char *text, char *name, size_t size, int *gpu)
{
    const char *colon = strrchr(text, ':');
    size_t      digits = colon ? strspn(colon + 1, "0123456789") : 0;
    int         numbered = digits > 0 && digits < 5 && !colon[1 + digits];
    if (!numbered && strchr(text, '/')) colon = NULL;
    size_t len = colon ? (size_t)(colon - text) : strlen(text);
    if (len == 0 || len >= size || (colon && !numbered))
        return tl_fail(ctx, TL_EDEVICE, "device '%s': unknown: use cpu, cuda, or cuda:1 for the "
                       "second GPU", text);
    memcpy(name, text, len);
    name[len] = 0;
    *gpu = colon ? (int)strtol(colon + 1, NULL, 10) : 0;
    return TL_OK;
}

/* Whether ctx computes on that device, not the CPU, already. A file is one device by whatever name
** it is found, because the loader opens it only once. */
static int in_use(tl_ctx *ctx, const char *name, int gpu)
{
    const tl_engine *e = NULL;
    if (!ctx->engine || gpu != ctx->gpu) return 0;
    if (strcmp(name, ctx->engine->name) == 0) return 1;
    return device_load(ctx, name, &e) == TL_OK && e == ctx->engine;
}

tl_status tl_set_device(tl_ctx *ctx, const char *text)
{
    char      name[PATH_MAX];
    int       gpu = 0;
    tl_status st = device_parse(ctx, text, name, sizeof name, &gpu);
    if (st != TL_OK) return st;
    if (strcmp(text, tl_device_name(ctx)) == 0 || in_use(ctx, name, gpu)) return TL_OK;
    /* existing tensors and operators belong to the old device */
    if (ctx->device != TL_CPU || ctx->refs - ctx->groups > 1)
        return tl_fail(ctx, TL_EDEVICE, "device '%s': the context already computes on %s", text,
                       tl_device_name(ctx));
    const tl_engine *e = NULL;
    st = device_load(ctx, name, &e);
    if (st == TL_OK) st = e->open(ctx, gpu, &ctx->engine_state);
    if (st != TL_OK) return st;
    ctx->engine = e;
    ctx->gpu = gpu;
    ctx->device = TL_CUDA;
    (void)snprintf(ctx->device_name, sizeof ctx->device_name, gpu ? "%s:%d" : "%s", e->name, gpu);
    ctx->kernels[TL_CUDA] = e->kernels;
    return TL_OK;
}

/* ---- Devices that are not in use ------------------------------------------------------------- */

tl_status tl_device_file(tl_ctx *ctx, const char *device, char *path, size_t size)
{
    char      name[PATH_MAX];
    int       gpu = 0;
    tl_status st = device_parse(ctx, device, name, sizeof name, &gpu);
    return st == TL_OK ? device_find(ctx, name, path, size) : st;
}

static tl_status device_load_named(tl_ctx *ctx, const char *device, const tl_engine **out, int *gpu)
{
    char      name[PATH_MAX];
    tl_status st = device_parse(ctx, device, name, sizeof name, gpu);
    return st == TL_OK ? device_load(ctx, name, out) : st;
}

tl_status tl_device_look(tl_ctx *ctx, const char *device, int *out_gpus, char *about, size_t size)
{
    const tl_engine *e = NULL;
    int              gpu = 0;
    tl_status        st = device_load_named(ctx, device, &e, &gpu);
    return st == TL_OK ? e->look(ctx, gpu, out_gpus, about, size) : st;
}

tl_status tl_device_takes(tl_ctx *ctx, const char *device, const char *backend, int *out_takes)
{
    const tl_engine *e = NULL;
    int              gpu = 0;
    tl_status        st = device_load_named(ctx, device, &e, &gpu);
    if (st == TL_OK) *out_takes = e->form && e->form(ctx, backend) != NULL;
    return st;
}

/* context.c - creates and frees contexts: it connects the kernels of all CPU operators, the
** functions that plugins may call, and the report of what was built. */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "engine/device.h"
#include "engine/launch.h"
#include "engine/plugin.h"
#include "products/gemm.h"
#include "ops/arguments.h"

int tl_version(void) { return TL_VERSION_NUMBER; }

/* ---- Kernels --------------------------------------------------------------------------------- */

static const tl_kernel cpu_kernels[] = {
#define X(op, in, out, n, r) tl_cpu_##op,
    TL_OP_MAP(X, , , , , )
#undef X
};

/* ---- Host functions for plugins -------------------------------------------------------------- */

static void host_parallel(const tl_host *h, int64_t count, int64_t grain, tl_body body, void *user)
{
    tl_parallel(h->self, count, grain, body, user);
}

static void *host_alloc(const tl_host *h, size_t bytes) { return tl_alloc(h->self, bytes); }

static void host_free(const tl_host *h, void *p) { tl_release(h->self, p); }

static const tl_transforms *host_transforms(const tl_host *h)
{
    return tl_find_transforms(h->self);
}

static tl_status host_fail(const tl_host *h, tl_status st, const char *format, ...)
{
    char    text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tl_fail(h->self, st, "%s", text);
}

static void fill_host(tl_ctx *ctx)
{
    ctx->host = (tl_host){
        .size = sizeof ctx->host,
        .self = ctx,
        .threads = ctx->threads,
        .parallel = host_parallel,
        .alloc = host_alloc,
        .free = host_free,
        .gemm = tl_gemm_serial,
        .transforms = host_transforms,
        .fail = host_fail,
    };
}

/* ---- The cache folder ------------------------------------------------------------------------ */

/* Sets host.cache_dir as tl_cache_dir documents. */
static tl_status find_cache(tl_ctx *ctx)
{
    char        path[PATH_MAX];
    const char *own = getenv("TOEPLAB_CACHE"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int         n = 0;
    if (own)
        n = snprintf(path, sizeof path, "%s", own);
    else if (xdg && xdg[0] == '/') /* the XDG specification ignores relative paths */
        n = snprintf(path, sizeof path, "%s/toeplab", xdg);
    else if (home && home[0] == '/')
        n = snprintf(path, sizeof path, "%s/.cache/toeplab", home);
    if (n <= 0 || n >= PATH_MAX) return TL_OK;
    if (tl_file_folders(ctx, path) != TL_OK) {
        ctx->message[0] = 0; /* backends then plan without stored tuning results */
        return TL_OK;
    }
    ctx->host.cache_dir = strdup(path);
    return ctx->host.cache_dir ? TL_OK : tl_fail(ctx, TL_ENOMEM, "%s: out of memory", path);
}

const char *tl_cache_dir(const tl_ctx *ctx) { return ctx->host.cache_dir; }

/* ---- Opening and closing --------------------------------------------------------------------- */

static void close_context(tl_ctx *ctx)
{
    tl_transforms_close(ctx);
    tl_onednn_close(ctx);
    tl_plugins_close(ctx);
    tl_device_close(ctx);
    tl_memory_close(ctx);
    tl_threads_close(ctx);
    tl_profile_stop(ctx);
    free(ctx->tape);
    free(ctx->choices);
    free((void *)ctx->host.cache_dir);
    free(ctx->info);
    free(ctx);
}

tl_status tl_ctx_new(int threads, tl_ctx **out_ctx)
{
    if (threads < 0 || threads > 4096) return TL_EINVAL;
    tl_ctx *ctx = calloc(1, sizeof *ctx);
    if (!ctx) return TL_ENOMEM;
    double quota, memory;
    tl_group_limits(&quota, &memory);
    ctx->refs = 1;
    ctx->close = close_context;
    ctx->kernels[TL_CPU] = cpu_kernels;
    ctx->threads = threads > 0 ? threads : tl_processors(quota);
    ctx->recording = 1;
    tl_blas_open();
    fill_host(ctx);
    tl_status st = tl_memory_open(ctx);
    if (st == TL_OK) st = tl_threads_open(ctx);
    if (st == TL_OK) st = find_cache(ctx);
    if (st == TL_OK) st = tl_plugins_open(ctx);
    if (st != TL_OK) {
        tl_ctx_free(ctx);
        return st;
    }
    *out_ctx = ctx;
    return TL_OK;
}

void tl_ctx_free(tl_ctx *ctx)
{
    if (!ctx) return;
    tl_scope_end(ctx, 1);
    tl_tape_clear(ctx);
    tl_ctx_unref(ctx);
}

/* ---- Build information ----------------------------------------------------------------------- */

/* Returns the processor's name from /proc/cpuinfo, stored in line, or "unknown". */
static const char *cpu_name(char *line, int size)
{
    const char *name = "unknown";
    FILE       *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, size, f)) {
        char *colon = strstr(line, ": ");
        if (!colon || strncmp(line, "model name", 10) != 0) continue;
        line[strcspn(line, "\n")] = 0;
        name = colon + 2;
        break;
    }
    if (f) (void)fclose(f);
    return name;
}

const char *tl_build_info(tl_ctx *ctx)
{
    char text[1024] = "", line[256], onednn[80];
    const tl_transforms *t = tl_find_transforms(ctx);
    if (ctx->info) return ctx->info;
    (void)snprintf(text, sizeof text,
                   "version %s\nnumerics %d\ncompiler %s\nblas %s\nonednn %s\ntransforms %s\n"
                   "cpu %s\nthreads %d\n",
                   TL_VERSION, TL_NUMERICS, __VERSION__, tl_blas_name(),
                   tl_onednn_name(onednn, sizeof onednn), t ? t->name : "none",
                   cpu_name(line, sizeof line), ctx->threads);
    ctx->info = strdup(text);
    return ctx->info ? ctx->info : "";
}

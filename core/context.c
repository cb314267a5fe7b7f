/* context.c - what belongs to one user of the engine, its errors, and the table of kernels. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

const char *tl_status_name(tl_status st)
{
    switch (st) {
#define X(name, value, text) \
    case TL_##name: return #name;
        TL_STATUS_MAP(X)
#undef X
    }
    return "unknown";
}

const char *tl_status_text(tl_status st)
{
    switch (st) {
#define X(name, value, text) \
    case TL_##name: return text;
        TL_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

tl_status tl_fail(tl_ctx *ctx, tl_status st, const char *format, ...)
{
    char    text[sizeof ctx->message]; /* the arguments may point into the old message */
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(ctx->message, text, sizeof text);
    return st;
}

const char *tl_errmsg(const tl_ctx *ctx) { return ctx->message; }

int tl_threads(const tl_ctx *ctx) { return ctx->threads; }

/* ---- Kernels --------------------------------------------------------------------------------- */

static const char *const op_names[TL_OPS] = {
#define X(name) #name,
    TL_OP_MAP(X)
#undef X
};

const char *tl_op_name(tl_op op) { return op_names[op]; }

static const tl_kernel_row *const cpu_tables[] = {
    tl_cpu_tensor,  tl_cpu_elementwise, tl_cpu_binary, tl_cpu_matmul,    tl_cpu_reduce,
    tl_cpu_shape,   tl_cpu_gather,      tl_cpu_softmax, tl_cpu_norm,      tl_cpu_batch_norm,
    tl_cpu_conv,    tl_cpu_transform,
    tl_cpu_random,  tl_cpu_optim,       tl_cpu_tno,    tl_cpu_text,
    tl_cpu_recurrence, tl_cpu_mlp,
};

static void fill_kernels(tl_ctx *ctx)
{
    for (size_t i = 0; i < sizeof cpu_tables / sizeof *cpu_tables; i++)
        for (const tl_kernel_row *row = cpu_tables[i]; row->run; row++)
            ctx->kernels[TL_CPU][row->op] = row->run;
}

static tl_status launch_on(tl_ctx *ctx, tl_device device, tl_op op, const tl_args *a)
{
    tl_kernel kernel = ctx->kernels[device][op];
    if (!kernel)
        return tl_fail(ctx, TL_EDEVICE, "%s is not available on %s", op_names[op],
                       tl_device_name(ctx));
    for (int i = 0; i < 2 * TL_ARGS; i++) {
        const tl_tensor *t = i < TL_ARGS ? a->in[i] : a->out[i - TL_ARGS];
        tl_status        st = t ? tl_place(t, device) : TL_OK;
        if (st != TL_OK) return st;
    }
    for (int i = 0; i < TL_ARGS; i++)
        if (a->out[i]) a->out[i]->storage->version++;
    return ctx->profile ? tl_profile_run(ctx, op, kernel, a) : kernel(ctx, a);
}

tl_status tl_launch(tl_ctx *ctx, tl_op op, const tl_args *a)
{
    return launch_on(ctx, ctx->device, op, a);
}

tl_status tl_launch_host(tl_ctx *ctx, tl_op op, const tl_args *a)
{
    return launch_on(ctx, TL_CPU, op, a);
}

/* ---- What plugins are given ------------------------------------------------------------------ */

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

/* ---- Life ------------------------------------------------------------------------------------ */

tl_status tl_ctx_new(int threads, tl_ctx **out_ctx)
{
    if (threads < 0 || threads > 4096) return TL_EINVAL;
    tl_ctx *ctx = calloc(1, sizeof *ctx);
    if (!ctx) return TL_ENOMEM;
    ctx->refs = 1;
    ctx->threads = threads > 0 ? threads : tl_processors("/sys/fs/cgroup/cpu.max");
    ctx->recording = 1;
    tl_blas_open();
    fill_kernels(ctx);
    fill_host(ctx);
    tl_status st = tl_memory_open(ctx);
    if (st == TL_OK) st = tl_threads_open(ctx);
    if (st == TL_OK) st = tl_plugins_open(ctx);
    if (st != TL_OK) {
        tl_ctx_free(ctx);
        return st;
    }
    *out_ctx = ctx;
    return TL_OK;
}

void tl_ctx_unref(tl_ctx *ctx)
{
    if (--ctx->refs > 0) return;
    tl_transforms_close(ctx);
    tl_onednn_close(ctx);
    tl_plugins_close(ctx);
    tl_device_close(ctx);
    tl_memory_close(ctx);
    tl_threads_close(ctx);
    tl_profile_stop(ctx);
    free(ctx->tape);
    free(ctx->info);
    free(ctx);
}

void tl_ctx_free(tl_ctx *ctx)
{
    if (!ctx) return;
    tl_tape_clear(ctx);
    tl_ctx_unref(ctx);
}

/* ---- What was built -------------------------------------------------------------------------- */

/* The processor's name as Linux tells it, in line or elsewhere. */
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
                   "version %s\nnumerics %d\ncompiler %s\nblas %s\nonednn %s\nhdf5 %s\nsqlite %s\n"
                   "pcre2 %s\ntransforms %s\ncpu %s\nthreads %d\n",
                   TL_VERSION, TL_NUMERICS, __VERSION__, tl_blas_name(),
                   tl_onednn_name(onednn, sizeof onednn), tl_hdf5_version(),
                   tl_sqlite_version(), tl_pcre2_version(), t ? t->name : "none",
                   cpu_name(line, sizeof line), ctx->threads);
    ctx->info = strdup(text);
    return ctx->info ? ctx->info : "";
}

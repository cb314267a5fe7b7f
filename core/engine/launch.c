/* launch.c - runs a kernel: moves its operands to its device, counts a new version of each tensor
** that it writes, and times it while a profile is on.
**
** A device may still be running a kernel when its launch returns, so a profile waits for the device
** before and after each kernel. The sum is therefore longer than the same work without a profile,
** where launches, copies and kernels overlap. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/launch.h"

/* ---- Profiles -------------------------------------------------------------------------------- */

struct tl_profile {
    int64_t calls[TL_OPS];
    double  seconds[TL_OPS];
    double  inner; /* seconds of the kernels called by the running one */
};

static const char *const op_names[TL_OPS] = {
#define X(name) #name,
    TL_OP_MAP(X)
#undef X
};

static const char *op_name(tl_op op) { return op_names[op]; }

double tl_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Waits for the device, except in a capture, which runs nothing. */
static tl_status profile_wait(tl_ctx *ctx) { return ctx->capture ? TL_OK : tl_synchronize(ctx); }

tl_status tl_profile_start(tl_ctx *ctx)
{
    if (!ctx->profile) ctx->profile = malloc(sizeof *ctx->profile);
    if (!ctx->profile) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    memset(ctx->profile, 0, sizeof *ctx->profile);
    tl_status st = profile_wait(ctx); /* earlier launches are not part of the profile */
    if (st != TL_OK) tl_profile_stop(ctx);
    return st;
}

void tl_profile_stop(tl_ctx *ctx)
{
    free(ctx->profile);
    ctx->profile = NULL;
}

int tl_profile_kernel(const tl_ctx *ctx, int i, tl_kernel_time *out_time)
{
    if (!ctx->profile || i < 0 || i >= TL_OPS) return 0;
    *out_time = (tl_kernel_time){op_name((tl_op)i), ctx->profile->calls[i],
                                 ctx->profile->seconds[i]};
    return 1;
}

/* Runs and times a kernel. */
static tl_status run_timed(tl_ctx *ctx, tl_op op, tl_kernel kernel, const tl_args *a)
{
    struct tl_profile *p = ctx->profile;
    /* excludes earlier uploads and graphs from this kernel's time */
    tl_status st = profile_wait(ctx);
    double    outside = p->inner, start = tl_seconds(), spent;
    p->inner = 0;
    if (st == TL_OK) st = kernel(ctx, a);
    if (st == TL_OK) st = profile_wait(ctx);
    spent = tl_seconds() - start;
    p->calls[op]++;
    p->seconds[op] += spent - p->inner;
    p->inner = outside + spent;
    return st;
}

/* ---- Launches -------------------------------------------------------------------------------- */

static tl_status launch_on(tl_ctx *ctx, tl_device device, tl_op op, const tl_args *a)
{
    tl_kernel kernel = ctx->kernels->of[device][op];
    if (!kernel)
        return tl_fail(ctx, TL_EDEVICE, "%s is not available on %s", op_name(op),
                       tl_device_name(ctx));
    for (int i = 0; i < 2 * TL_ARGS; i++) {
        const tl_tensor *t = i < TL_ARGS ? a->in[i] : a->out[i - TL_ARGS];
        tl_status        st = t ? tl_place(t, device) : TL_OK;
        if (st != TL_OK) return st;
    }
    for (int i = 0; i < TL_ARGS; i++)
        if (a->out[i]) a->out[i]->storage->version++;
    return ctx->profile ? run_timed(ctx, op, kernel, a) : kernel(ctx, a);
}

tl_status tl_launch(tl_ctx *ctx, tl_op op, const tl_args *a)
{
    return launch_on(ctx, ctx->device, op, a);
}

tl_status tl_launch_host(tl_ctx *ctx, tl_op op, const tl_args *a)
{
    return launch_on(ctx, TL_CPU, op, a);
}

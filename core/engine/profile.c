/* profile.c - counts and times the kernels while a profile is on.
**
** A device may still be running a kernel when its launch returns, so a profile waits for the device
** before and after each kernel. The sum is therefore longer than the same work without a profile,
** where launches, copies and kernels overlap. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/launch.h"

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

const char *tl_op_name(tl_op op) { return op_names[op]; }

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
    *out_time = (tl_kernel_time){tl_op_name((tl_op)i), ctx->profile->calls[i],
                                 ctx->profile->seconds[i]};
    return 1;
}

tl_status tl_profile_run(tl_ctx *ctx, tl_op op, tl_kernel kernel, const tl_args *a)
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

/* profile.c - the names of kernels, how often each ran and how long it took. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/launch.h"

struct tl_profile {
    int64_t calls[TL_OPS];
    double  seconds[TL_OPS];
    double  inner; /* seconds of kernels that the running one has launched */
};

static const char *const op_names[TL_OPS] = {
#define X(name) #name,
    TL_OP_MAP(X)
#undef X
};

const char *tl_op_name(tl_op op) { return op_names[op]; }

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

tl_status tl_profile_start(tl_ctx *ctx)
{
    if (!ctx->profile) ctx->profile = malloc(sizeof *ctx->profile);
    if (!ctx->profile) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    memset(ctx->profile, 0, sizeof *ctx->profile);
    return TL_OK;
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
    double    outside = p->inner, start = now(), spent;
    p->inner = 0;
    tl_status st = kernel(ctx, a);
    spent = now() - start;
    p->calls[op]++;
    p->seconds[op] += spent - p->inner;
    p->inner = outside + spent;
    return st;
}

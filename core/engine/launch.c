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

/* ---- The operators --------------------------------------------------------------------------- */

typedef struct place {
    const char *name, *kind; /* NULL ends a list */
    int         count;
} place;

static const struct operator {
    const char *name;
    place       in[TL_ARGS], out[TL_ARGS];
} operators[TL_OPS] = {
#define T(kind, name) {#name, #kind, 1},
#define TS(kind, name, n) {#name, #kind, n},
#define X(op, in, out, n, r) {#op, {in {0}}, {out {0}}},
    TL_OP_MAP(X, T, TS, , , )
#undef T
#undef TS
#undef X
};

/* Checks the tensors at some places of op and moves them to device. Public functions have checked
** what callers gave them, so that a failure is a mistake of an operator. */
static tl_status check_places(tl_ctx *ctx, tl_device device, tl_op op, const place *p,
                              tl_tensor *const *at)
{
    tl_status st = TL_OK;
    for (; p->name; p++)
        for (int i = 0; i < p->count && st == TL_OK; i++, at++) {
            if (!*at && strcmp(p->kind, "OPT") != 0)
                return tl_fail(ctx, TL_EINVAL, "%s: %s is missing", operators[op].name, p->name);
            if (*at && *p->kind != 'A' && ((*at)->type == TL_I32) != (*p->kind == 'I'))
                return tl_fail(ctx, TL_ETYPE, "%s: %s is %s", operators[op].name, p->name,
                               (*at)->type == TL_I32 ? "int32" : "float32");
            if (*at) st = tl_to_device(*at, device);
        }
    return st;
}

/* ---- Profiles -------------------------------------------------------------------------------- */

struct tl_profile {
    int64_t calls[TL_OPS];
    double  seconds[TL_OPS], bytes[TL_OPS];
    double  inner; /* seconds of the kernels called by the running one */
};

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
    *out_time = (tl_kernel_time){operators[i].name, ctx->profile->calls[i],
                                 ctx->profile->seconds[i], ctx->profile->bytes[i]};
    return 1;
}

static double bytes_of(tl_tensor *const *list)
{
    double bytes = 0;
    for (int i = 0; i < TL_ARGS; i++) bytes += list[i] ? 4.0 * (double)list[i]->len : 0;
    return bytes;
}

/* Runs and times a kernel. */
static tl_status run_timed(tl_ctx *ctx, tl_op op, tl_kernel kernel, const tl_args *a)
{
    struct tl_profile *p = ctx->profile;
    /* excludes earlier uploads and graphs from this kernel's time */
    tl_status st = profile_wait(ctx);
    double    outside = p->inner, start = tl_seconds(), elapsed;
    p->inner = 0;
    if (st == TL_OK) st = kernel(ctx, a);
    if (st == TL_OK) st = profile_wait(ctx);
    elapsed = tl_seconds() - start;
    p->calls[op]++;
    p->seconds[op] += elapsed - p->inner;
    p->bytes[op] += bytes_of(a->list.in) + bytes_of(a->list.out);
    p->inner = outside + elapsed;
    return st;
}

/* ---- Launches -------------------------------------------------------------------------------- */

static tl_status launch_on(tl_ctx *ctx, tl_device device, tl_op op, const tl_args *a)
{
    tl_kernel kernel = ctx->kernels[device][op];
    if (!kernel)
        return tl_fail(ctx, TL_EDEVICE, "%s is not available on %s", operators[op].name,
                       tl_device_name(ctx));
    tl_status st = check_places(ctx, device, op, operators[op].in, a->list.in);
    if (st == TL_OK) st = check_places(ctx, device, op, operators[op].out, a->list.out);
    if (st != TL_OK) return st;
    for (int i = 0; i < TL_ARGS; i++)
        if (a->list.out[i]) a->list.out[i]->storage->version++;
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

/* launch.c - runs a kernel: moves its operands to its device and counts a new version of each
** tensor that it writes. */
#include "engine/launch.h"

static tl_status launch_on(tl_ctx *ctx, tl_device device, tl_op op, const tl_args *a)
{
    tl_kernel kernel = ctx->kernels->of[device][op];
    if (!kernel)
        return tl_fail(ctx, TL_EDEVICE, "%s is not available on %s", tl_op_name(op),
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

/* chosen.c - gradients with respect to chosen tensors alone. */
#include <stdlib.h>

#include "engine/backward.h"

static tl_status check_chosen(tl_ctx *ctx, tl_tensor *const *xs, int count)
{
    for (int i = 0; i < count; i++) {
        const tl_slot *slot = xs[i]->slot;
        if (!slot)
            return tl_fail(ctx, TL_EINVAL, "grad: tensor %lld, %s, requires no gradient",
                           tl_position(ctx, i), SHAPE(xs[i]));
        if (slot->consumed)
            return tl_fail(ctx, TL_EINVAL, "grad: tensor %lld, %s, is a result whose tape is gone "
                           "(an earlier backward consumed it)", tl_position(ctx, i), SHAPE(xs[i]));
    }
    return TL_OK;
}

/* Replaces *g, which may be NULL for zeros, by a tensor that shares no storage. */
static tl_status own_gradient(const tl_tensor *x, tl_tensor **g)
{
    tl_tensor *shared = *g;
    *g = NULL;
    tl_status st = shared ? tl_grad_copy(shared, g)
                          : tl_tensor_new(x->ctx, TL_F32, x->ndim, x->dims, g);
    tl_tensor_free(shared);
    return st;
}

tl_status tl_gradients(tl_ctx *ctx, tl_tensor *loss, tl_tensor *const *xs, int count,
                       tl_tensor **out_grads)
{
    tl_status st = tl_check_loss(ctx, loss);
    if (st == TL_OK) st = check_chosen(ctx, xs, count);
    if (st != TL_OK) return st;
    ctx->gradients++;
    for (int i = 0; i < count; i++) { /* out_grads holds the old gradients for now */
        tl_slot *slot = tl_tensor_retain(xs[i])->slot; /* a node's function may free xs[i] */
        out_grads[i] = slot->grad;
        slot->grad = NULL;
        slot->leads = ctx->gradients;
        slot->chosen++;
    }
    tl_prune(ctx, ctx->gradients);
    int64_t was = ctx->choice;
    ctx->choice = ctx->gradients;
    st = tl_backward(ctx, loss);
    ctx->choice = was;
    for (int i = 0; i < count; i++) { /* swaps the gradients; a tensor may be listed twice */
        tl_tensor *old = out_grads[i], *g = xs[i]->slot->grad;
        int        first = 1;
        for (int k = 0; k < i; k++)
            if (xs[k]->slot == xs[i]->slot) {
                first = 0;
                g = out_grads[k];
            }
        xs[i]->slot->chosen--;
        out_grads[i] = g && !first ? tl_tensor_retain(g) : g;
        if (first) xs[i]->slot->grad = old;
    }
    for (int i = 0; i < count && st == TL_OK; i++) st = own_gradient(xs[i], &out_grads[i]);
    for (int i = 0; i < count; i++) tl_tensor_free(xs[i]);
    for (int i = 0; i < count && st != TL_OK; i++) {
        tl_tensor_free(out_grads[i]);
        out_grads[i] = NULL;
    }
    return st;
}

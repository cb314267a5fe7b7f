/* gradient.c - which tensors require gradients, and how gradients are accumulated. */
#include <stdlib.h>

#include "engine/gradient.h"

/* ---- Leaves ---------------------------------------------------------------------------------- */

tl_status tl_set_requires_grad(tl_tensor *t, int on)
{
    if (t->type != TL_F32)
        return tl_fail(t->ctx, TL_ETYPE, "require_grad: only float32 tensors have gradients");
    if (on && t->slot && !t->slot->leaf)
        return tl_fail(t->ctx, TL_EINVAL, "require_grad: %s is a result, not a leaf", SHAPE(t));
    if (!on && t->slot && t->slot->chosen)
        return tl_fail(t->ctx, TL_EINVAL, "require_grad: the gradient of %s is being computed",
                       SHAPE(t));
    if (!on) {
        tl_slot_free(t->slot);
        t->slot = NULL;
    } else if (!t->slot) {
        t->slot = tl_slot_new(1);
        if (!t->slot) return tl_fail(t->ctx, TL_ENOMEM, "out of memory");
    }
    return TL_OK;
}

int tl_requires_grad(const tl_tensor *t) { return t->slot != NULL; }

tl_tensor *tl_grad(const tl_tensor *t) { return t->slot ? t->slot->grad : NULL; }

tl_status tl_set_grad(tl_tensor *t, tl_tensor *grad)
{
    if (!t->slot || !t->slot->leaf)
        return grad ? tl_fail(t->ctx, TL_EINVAL, "grad: %s is not a leaf that requires a gradient, "
                              "such as a parameter", SHAPE(t)) : TL_OK;
    if (grad && (!tl_same_shape(t, grad) || grad->type != TL_F32))
        return tl_fail(t->ctx, TL_ESHAPE,
                       "grad: the gradient is %s, the tensor %s: the shapes must "
                       "be equal", SHAPE(grad), SHAPE(t));
    if (grad && grad->scope) { /* the caller may free it in there, as slots do not hold tensors */
        tl_status st = tl_tensor_view(grad, 0, grad->ndim, grad->dims, &grad);
        if (st != TL_OK) return st;
        tl_scope_leave(grad);
    } else if (grad) {
        tl_tensor_retain(grad);
    }
    tl_tensor_free(t->slot->grad);
    t->slot->grad = grad;
    return TL_OK;
}

/* ---- Accumulating ---------------------------------------------------------------------------- */

static int is_unshared(const tl_tensor *t) { return t->refs == 1 && t->storage->refs == 1; }

tl_status tl_grad_copy(const tl_tensor *x, tl_tensor **out_y)
{
    tl_tensor *y = NULL;
    tl_status  st = tl_new_like(x, &y);
    if (st == TL_OK) st = tl_tensor_copy(y, x);
    return tl_finish(st, y, out_y);
}

tl_status tl_grad_buffer(tl_ctx *ctx, tl_slot *slot, const tl_shape *like, tl_tensor **out_g,
                         int64_t *out_add)
{
    *out_add = slot->grad && is_unshared(slot->grad);
    if (!*out_add) return tl_new_shaped(ctx, like, out_g);
    *out_g = slot->grad; /* tl_accumulate_all puts it back */
    slot->grad = NULL;
    return TL_OK;
}

tl_status tl_grad_buffer_over(tl_tensor *used, tl_tensor **out_g)
{
    if (!is_unshared(used)) return tl_new_like(used, out_g);
    /* a view, because used may be an operator's result, whose gradient must not own that result */
    return tl_tensor_view(used, 0, used->ndim, used->dims, out_g);
}

tl_status tl_accumulate(tl_ctx *ctx, tl_slot *slot, tl_tensor *g)
{
    if (!slot) {
        tl_tensor_free(g);
        return TL_OK;
    }
    if (!slot->grad && (is_unshared(g) || !slot->leaf)) {
        slot->grad = g;
        return TL_OK;
    }
    if (!slot->grad) { /* programs may write to a leaf's gradient, so it shares no storage */
        tl_status copied = tl_grad_copy(g, &slot->grad);
        tl_tensor_free(g);
        return copied;
    }
    tl_tensor *old = slot->grad;
    if (!is_unshared(old) && is_unshared(g)) { /* add into the tensor that has no other owner */
        slot->grad = g;
        g = old;
        old = slot->grad;
    }
    tl_tensor *sum = old;
    tl_status  st = TL_OK;
    if (!is_unshared(old)) st = tl_grad_copy(old, &sum);
    if (st == TL_OK) {
        tl_args a = {.axpy = {.x = g, .y = sum, .scale = 1}};
        st = tl_launch(ctx, TL_OP_axpy, &a); /* sum += g */
    }
    if (sum != old) {
        if (st == TL_OK) {
            tl_tensor_free(old);
            slot->grad = sum;
        } else {
            tl_tensor_free(sum);
        }
    }
    tl_tensor_free(g);
    return st;
}

tl_status tl_accumulate_all(tl_ctx *ctx, tl_node *node, tl_status st, tl_tensor *const *grads,
                            int count)
{
    for (int i = 0; i < count; i++) {
        if (!grads[i]) continue;
        if (st == TL_OK)
            st = tl_accumulate(ctx, node->in[i], grads[i]);
        else
            tl_tensor_free(grads[i]);
    }
    return st;
}

tl_status tl_run_gradient(tl_ctx *ctx, tl_node *node, tl_op op, tl_args *a, int count)
{
    tl_status st = TL_OK;
    for (int i = 0; i < count && st == TL_OK; i++)
        if (a->list.in[i]) st = tl_new_like(a->list.in[i], &a->list.out[i]);
    if (st == TL_OK) st = tl_launch(ctx, op, a);
    return tl_accumulate_all(ctx, node, st, a->list.out, count);
}

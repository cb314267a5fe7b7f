/* backward.c - computes gradients: walks the tape from its end to its beginning. */
#include <stdlib.h>
#include <string.h>

#include "engine/backward.h"
#include "engine/device.h"

/* Fails if a saved tensor was written after the operator read it, because gradients need the old
** values. */
static tl_status check_unchanged(tl_ctx *ctx, const tl_node *node)
{
    for (int i = 0; i < TL_ARGS + node->count; i++) {
        int              listed = i >= TL_ARGS;
        const tl_tensor *t = listed ? node->list[i - TL_ARGS].t : node->saved.list.in[i];
        if (t && t->storage->version != (listed ? node->list[i - TL_ARGS].version
                                                : node->version[i]))
            return tl_fail(ctx, TL_EINVAL,
                           "backward: a tensor %s was changed in place after an operator on the "
                           "tape read it", SHAPE(t));
    }
    return TL_OK;
}

/* Recomputes t, whose memory tl_evict freed. */
static tl_status recompute(tl_ctx *ctx, tl_tensor *t)
{
    const tl_node *node = &ctx->tape[t->slot->node];
    tl_args   a = node->saved;
    tl_status st = check_unchanged(ctx, node);
    if (st != TL_OK) return st;
    st = tl_device_alloc(ctx, t->storage->device, t->storage->bytes, &t->storage->data);
    if (st != TL_OK) return st;
    a.list.out[0] = t;
    st = tl_launch(ctx, (tl_op)t->slot->recompute, &a);
    t->storage->version--; /* the recomputed values are the old ones */
    return st;
}

/* Checks that node's saved tensors are unchanged, and recomputes those that were freed. */
static tl_status prepare_saved(tl_ctx *ctx, const tl_node *node)
{
    tl_status st = check_unchanged(ctx, node);
    for (int i = 0; i < TL_ARGS && st == TL_OK; i++)
        if (node->saved.list.in[i] && !node->saved.list.in[i]->storage->data)
            st = recompute(ctx, node->saved.list.in[i]);
    return st;
}

/* Counts the uses of each watched leaf. */
static void count_uses(tl_ctx *ctx)
{
    for (int64_t n = 0; n < ctx->tape_len; n++) {
        tl_node *node = &ctx->tape[n];
        for (int i = 0; i < tl_input_count(node); i++) {
            tl_slot *slot = *tl_input_slot(node, i);
            if (slot && slot->number) slot->uses++;
        }
    }
}

/* A node whose gradients for some watched leaves are to be computed when these are reached. */
typedef struct deferred {
    tl_node    node;
    tl_tensor *dy;
    unsigned   pending; /* bit i: the gradient of node.in[i] is missing */
} deferred;

typedef struct walk {
    tl_watch *watch;    /* NULL: nobody watches */
    deferred *deferred; /* in the order of the pass */
    int       count, cap;
} walk;

/* While a node is deferred, its dy and what it saved have another owner, so that no gradient
** function overwrites them. */
static void retain_saved(const tl_node *node, tl_tensor *dy)
{
    tl_tensor_retain(dy);
    for (int i = 0; i < TL_ARGS; i++)
        if (node->saved.list.in[i]) tl_tensor_retain(node->saved.list.in[i]);
}

static void release_saved(const tl_node *node, tl_tensor *dy)
{
    tl_tensor_free(dy);
    for (int i = 0; i < TL_ARGS; i++) tl_tensor_free(node->saved.list.in[i]);
}

/* Computes the gradients of those inputs of node that mask has. */
static tl_status partial_grad(tl_ctx *ctx, const tl_node *node, unsigned mask, tl_tensor *dy)
{
    tl_node part = *node;
    for (int i = 0; i < TL_ARGS; i++)
        if (!(mask >> i & 1)) part.in[i] = NULL;
    ctx->precision = node->precision;
    return part.grad(ctx, &part, dy);
}

static tl_status defer(tl_ctx *ctx, walk *w, const tl_node *node, unsigned pending, tl_tensor *dy)
{
    if (w->count == w->cap) {
        int       cap = w->cap ? 2 * w->cap : 8;
        deferred *grown = realloc(w->deferred, (size_t)cap * sizeof *grown);
        if (!grown) return tl_fail(ctx, TL_ENOMEM, "out of memory");
        w->deferred = grown;
        w->cap = cap;
    }
    retain_saved(node, dy);
    w->deferred[w->count++] = (deferred){*node, dy, pending};
    return TL_OK;
}

static void drop_deferred(walk *w, int i)
{
    deferred d = w->deferred[i];
    memmove(w->deferred + i, w->deferred + i + 1, (size_t)(--w->count - i) * sizeof *w->deferred);
    release_saved(&d.node, d.dy);
    tl_node_clear(&d.node);
}

/* Computes the deferred gradients of a leaf that has been reached. */
static tl_status resume(tl_ctx *ctx, walk *w, const tl_slot *leaf)
{
    tl_status st = TL_OK;
    for (int i = 0; i < w->count && st == TL_OK;) {
        deferred *d = &w->deferred[i];
        unsigned  mask = 0;
        for (int k = 0; k < TL_ARGS; k++)
            if ((d->pending >> k & 1) && d->node.in[k] == leaf) mask |= 1u << k;
        d->pending &= ~mask;
        if (mask) st = partial_grad(ctx, &d->node, mask, d->dy);
        if (mask && !w->deferred[i].pending) drop_deferred(w, i);
        else i++;
    }
    return st;
}

/* Reaches the watched leaves that node adds to. *out_pending gets the inputs whose leaves are not
** there yet, which only a node without a list can defer, and not one that may return what it saved
** as a gradient (dy is the loss's own). */
static tl_status reach_leaves(tl_ctx *ctx, walk *w, tl_node *node, const tl_tensor *dy,
                              unsigned *out_pending)
{
    int       waits = node->list != NULL || dy == ctx->one;
    tl_status st = TL_OK;
    *out_pending = 0;
    for (int i = 0; i < tl_input_count(node) && w->watch && st == TL_OK; i++) {
        tl_slot *slot = *tl_input_slot(node, i);
        if (!slot || !slot->number) continue;
        int uses = slot->uses, defer_it = 0;
        if (waits) slot->uses = 1;
        st = w->watch->reach(w->watch, ctx, slot, &defer_it);
        slot->uses = uses;
        if (defer_it) *out_pending |= 1u << i;
        else if (st == TL_OK) st = resume(ctx, w, slot);
    }
    return st;
}

static tl_status finish_leaf(tl_ctx *ctx, walk *w, tl_slot *leaf)
{
    int       defer_it = 0; /* stays so, because uses is 0 */
    /* its nodes may have had no gradient */
    tl_status st = w->watch->reach(w->watch, ctx, leaf, &defer_it);
    if (st == TL_OK) st = resume(ctx, w, leaf);
    return st == TL_OK ? w->watch->done(w->watch, ctx, leaf) : st;
}

/* Reports the leaves of which node was the last use. */
static tl_status finish_leaves(tl_ctx *ctx, walk *w, const tl_node *node)
{
    tl_status st = TL_OK;
    tl_slot  *left[TL_ARGS]; /* first, because resuming may free node */
    int       count = 0;
    for (int i = 0; i < TL_ARGS && w->watch; i++)
        if (node->in[i] && node->in[i]->number && --node->in[i]->uses == 0)
            left[count++] = node->in[i];
    for (int i = 0; i < node->count && w->watch && st == TL_OK; i++) {
        tl_slot *slot = node->list[i].slot;
        if (slot && slot->number && --slot->uses == 0) st = finish_leaf(ctx, w, slot);
    }
    for (int i = 0; i < count && st == TL_OK; i++) st = finish_leaf(ctx, w, left[i]);
    return st;
}

/* Computes the gradients of node's inputs from dy. *out_kept: node was deferred, and w owns it. */
static tl_status node_grad(tl_ctx *ctx, walk *w, tl_node *node, tl_tensor *dy, int *out_kept)
{
    unsigned  pending = 0;
    tl_status st = prepare_saved(ctx, node);
    if (st == TL_OK) st = reach_leaves(ctx, w, node, dy, &pending);
    ctx->precision = node->precision;
    if (st != TL_OK || !pending) return st == TL_OK ? node->grad(ctx, node, dy) : st;
    st = defer(ctx, w, node, pending, dy);
    *out_kept = st == TL_OK;
    return st == TL_OK ? partial_grad(ctx, node, ~pending, dy) : st;
}

/* watch may be NULL. */
static tl_status tape_walk(tl_ctx *ctx, tl_watch *watch)
{
    tl_precision_kind was = ctx->precision;
    tl_status         st = TL_OK;
    walk              w = {.watch = watch};
    while (ctx->tape_len > ctx->tape_base && st == TL_OK) {
        tl_node node = ctx->tape[--ctx->tape_len];
        int     kept = 0;
        if (node.out->grad) {
            tl_tensor *dy = node.out->grad;
            if (node.out->chosen) tl_tensor_retain(dy);
            else node.out->grad = NULL;
            st = node_grad(ctx, &w, &node, dy, &kept);
            tl_tensor_free(dy);
        }
        if (st == TL_OK) st = finish_leaves(ctx, &w, &node);
        if (!kept) tl_node_clear(&node);
    }
    while (w.count > 0) drop_deferred(&w, w.count - 1); /* after a failure */
    free(w.deferred);
    ctx->precision = was;
    return st;
}

static tl_status no_gradient(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    (void)ctx, (void)node, (void)dy;
    return TL_OK;
}

void tl_prune(tl_ctx *ctx, int64_t call)
{
    for (int64_t n = ctx->tape_base; n < ctx->tape_len; n++) {
        tl_node *node = &ctx->tape[n];
        int      left = 0;
        for (int i = 0; i < tl_input_count(node); i++) {
            tl_slot **slot = tl_input_slot(node, i);
            if (*slot && (*slot)->leads == call) {
                left = 1;
            } else {
                tl_slot_free(*slot);
                *slot = NULL;
            }
        }
        if (left) node->out->leads = call;
        else node->grad = no_gradient;
    }
}

static int on_tape(const tl_ctx *ctx, const tl_slot *slot)
{
    for (int64_t i = ctx->tape_len - 1; i >= ctx->tape_base; i--)
        if (ctx->tape[i].out == slot) return 1;
    return 0;
}

static tl_status check_result(tl_ctx *ctx, const tl_tensor *loss)
{
    if (!loss->slot || loss->slot->leaf)
        return tl_fail(ctx, TL_EINVAL,
                       "backward: the loss was not recorded (none of its inputs requires a "
                       "gradient, or recording was off)");
    if (!on_tape(ctx, loss->slot))
        return tl_fail(ctx, TL_EINVAL,
                       "backward: the tape of this loss is gone (an earlier backward consumed it, "
                       "or it was cleared): compute the loss again");
    return TL_OK;
}

tl_status tl_check_loss(tl_ctx *ctx, const tl_tensor *loss)
{
    tl_status st = check_result(ctx, loss);
    if (st != TL_OK || loss->len == 1) return st;
    return tl_fail(ctx, TL_EINVAL, "backward: the loss is %s, not one number", SHAPE(loss));
}

/* Runs backward from y; takes over dy. */
static tl_status tape_walk_from(tl_ctx *ctx, tl_tensor *y, tl_tensor *dy, tl_watch *watch)
{
    /* gradient functions call operators, which must not be recorded */
    int       recording = tl_set_recording(ctx, 0), scope = tl_scope_pause(ctx);
    tl_range(ctx, "backward");
    tl_status st = tl_accumulate(ctx, y->slot, dy);
    if (watch) count_uses(ctx);
    if (st == TL_OK) st = tape_walk(ctx, watch);
    tl_range(ctx, NULL);
    tl_tape_clear(ctx);
    tl_scope_resume(ctx, scope);
    (void)tl_set_recording(ctx, recording);
    return st;
}

tl_status tl_backward_watched(tl_ctx *ctx, tl_tensor *loss, tl_watch *watch)
{
    tl_tensor *one = NULL;
    tl_status  st = tl_check_loss(ctx, loss);
    if (st != TL_OK) return st;
    st = tl_new_like(loss, &one);
    if (st != TL_OK || (st = tl_tensor_fill(one, 1)) != TL_OK) {
        tl_tape_clear(ctx);
        tl_tensor_free(one);
        return st;
    }
    /* retained, so that no kernel adds to it and its address stays unique */
    ctx->one = tl_tensor_retain(one);
    st = tape_walk_from(ctx, loss, one, watch);
    ctx->one = NULL;
    tl_tensor_free(one);
    return st;
}

tl_status tl_backward(tl_ctx *ctx, tl_tensor *loss)
{
    return tl_backward_watched(ctx, loss, NULL);
}

static tl_status check_gradient(tl_ctx *ctx, const tl_tensor *y, const tl_tensor *dy)
{
    tl_status st = check_result(ctx, y);
    if (st != TL_OK) return st;
    if (dy->type != TL_F32) return tl_fail(ctx, TL_ETYPE, "backward: the gradient is not float32");
    if (tl_same_shape(y, dy)) return TL_OK;
    return tl_fail(ctx, TL_ESHAPE,
                   "backward: the gradient is %s, the result %s: the shapes must be "
                   "equal", SHAPE(dy), SHAPE(y));
}

tl_status tl_backward_given(tl_ctx *ctx, tl_tensor *y, tl_tensor *dy)
{
    tl_status st = check_gradient(ctx, y, dy);
    if (st == TL_OK) return tape_walk_from(ctx, y, dy, NULL);
    tl_tensor_free(dy);
    return st;
}

tl_status tl_backward_from(tl_ctx *ctx, tl_tensor *y, tl_tensor *dy)
{
    return tl_backward_given(ctx, y, tl_tensor_retain(dy));
}

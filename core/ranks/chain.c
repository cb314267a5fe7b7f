/* chain.c - a backward pass that continues the sums of gradients which another rank began.
**
** One process adds the gradients of its micro batches one after the other to those before, and a
** product adds to what is there, so its sum cannot be made of two parts without other rounding.
** Here every rank therefore begins with the sums of the rank before it and hands its own on. It
** needs the sum of a parameter only when its backward pass reaches that parameter, and hands it on
** after the last operator that uses it, so that the passes of the ranks overlap: each is behind the
** one before it by about one parameter. All additions have the order that one process has. */
#include <stdlib.h>

#include "ranks/ranks.h"

typedef struct leaf {
    tl_slot   *slot;
    tl_tensor *like;
    int        awaited; /* whether the sum of the rank before has still to be received */
    tl_tensor *sum;     /* without a link: the buffer into which the transport writes that sum */
    void      *request; /* without a link: the transport's receive, until it has finished */
    int        sent;    /* whether the sum has been sent to the rank behind */
    tl_tensor *sent_sum; /* not owned: only its address is compared, */
    unsigned   version;  /* and its version when it was sent */
} leaf;

typedef struct chain {
    tl_watch  watch; /* the first field */
    tl_ranks *ranks;
    leaf     *leaves;
    int       count, from, to;
} chain;

/* Waits for the sum of a leaf, to which the pass is about to add. A leaf may have several uses: an
** embedding and an output map may share their weights. The rank before sends the sum of such a leaf
** only after its pass has come to the last use, which may be near the end of that pass. If this
** pass waited for it at the first use, it would stand still for nearly as long. So it puts this use
** off and goes on (*out_defer, see tl_watch). */
static tl_status reach(tl_watch *w, tl_ctx *ctx, tl_slot *slot, int *out_defer)
{
    chain  *c = (chain *)w;
    leaf   *l = &c->leaves[slot->number - 1];
    int64_t count = 0;
    if (!l->awaited) return TL_OK;
    *out_defer = slot->uses > 1;
    if (*out_defer) return TL_OK;
    l->awaited = 0;
    tl_tensor *own = slot->grad; /* of passes inside the functions of nodes (tl_record_func) */
    tl_status  st;
    slot->grad = NULL;
    if (c->ranks->link) {
        st = tl_link_take(c->ranks, c->from, slot->number, l->like, &slot->grad);
    } else {
        st = c->ranks->transport->finish(ctx, l->request, &count);
        l->request = NULL;
        if (st == TL_OK && count > 0) {
            slot->grad = l->sum;
            l->sum = NULL;
        }
    }
    if (own && st == TL_OK) return tl_accumulate(ctx, slot, own);
    tl_tensor_free(own);
    return st;
}

/* Sends the sum of a leaf, to which the pass adds no more. The gradient stays in the slot, so its
** address and version are stored, by which check_sent finds a later change. */
static tl_status done(tl_watch *w, tl_ctx *ctx, tl_slot *slot)
{
    chain *c = (chain *)w;
    leaf  *l = &c->leaves[slot->number - 1];
    (void)ctx;
    if (c->to < 0 || l->sent) return TL_OK;
    tl_status st = tl_ranks_send(c->ranks, c->to, slot->number, slot->grad);
    l->sent = 1;
    l->sent_sum = slot->grad;
    l->version = slot->grad ? slot->grad->storage->version : 0;
    return st;
}

/* Fails if a sum changed after it was sent. The pass sends it after the last node on its own tape
** that uses the leaf, and does not see a pass inside a function's node that adds to it later. */
static tl_status check_sent(const chain *c, const leaf *l)
{
    const tl_tensor *sum = l->slot->grad;
    if (!l->sent || (sum == l->sent_sum && (!sum || sum->storage->version == l->version)))
        return TL_OK;
    return tl_fail(c->ranks->ctx, TL_EINVAL,
                   "ranks: the gradient of tensor %d, %s, changed after it was sent: a function's "
                   "backward pass adds to a tensor that is also used outside of the function",
                   (int)(l - c->leaves) + 1, SHAPE(l->like));
}

/* Numbers the leaves, discards their gradients if the sums of another rank replace them, and begins
** to receive those sums. All receives begin before the pass, so that a sum that arrives early is
** written straight to its buffer; a link announces its messages itself (link.c). */
static tl_status begin(chain *c, tl_tensor *const *leaves, int from)
{
    tl_ranks *r = c->ranks;
    for (int i = 0; i < c->count; i++) {
        if (!leaves[i]->slot || !leaves[i]->slot->leaf)
            return tl_fail(r->ctx, TL_EINVAL, "ranks: tensor %d, %s, requires no gradient", i + 1,
                           SHAPE(leaves[i]));
        if (leaves[i]->slot->number)
            return tl_fail(r->ctx, TL_EINVAL, "ranks: tensor %d, %s, is also tensor %d", i + 1,
                           SHAPE(leaves[i]), leaves[i]->slot->number);
        leaf *l = &c->leaves[i];
        l->slot = tl_slot_retain(leaves[i]->slot);
        l->slot->number = i + 1;
        l->like = tl_tensor_retain(leaves[i]); /* a node's function may free leaves[i] */
        if (from < 0) continue;
        tl_tensor_free(l->slot->grad);
        l->slot->grad = NULL;
        l->awaited = 1;
        if (r->link) continue;
        tl_status st = tl_tensor_new_host(r->ctx, TL_F32, leaves[i]->ndim, leaves[i]->dims,
                                          &l->sum);
        if (st == TL_OK)
            st = r->transport->receive(r->ctx, r->group, from, i + 1, F32(l->sum), l->sum->len,
                                       &l->request);
        if (st != TL_OK) return st;
    }
    return TL_OK;
}

/* Receives and sends the sums of leaves that the pass did not report, since no node used them: the
** ranks behind wait for every leaf. Checks the sums that the pass has sent. */
static tl_status hand_on_rest(chain *c)
{
    tl_status st = TL_OK;
    int       defer = 0; /* stays so, because no use is left */
    for (int i = 0; i < c->count && st == TL_OK; i++) {
        st = reach(&c->watch, c->ranks->ctx, c->leaves[i].slot, &defer);
        if (st == TL_OK) st = check_sent(c, &c->leaves[i]);
        if (st == TL_OK) st = done(&c->watch, c->ranks->ctx, c->leaves[i].slot);
    }
    return st;
}

tl_status tl_ranks_backward(tl_ranks *r, tl_tensor *loss, tl_tensor *const *leaves, int count,
                            int from, int to)
{
    chain c = {.watch = {reach, done}, .ranks = r, .count = count, .from = from,
               .to = to,
               .leaves = calloc((size_t)count + 1, sizeof *c.leaves)};
    if (!c.leaves) return tl_fail(r->ctx, TL_ENOMEM, "out of memory");
    int       scope = tl_scope_pause(r->ctx);
    tl_status st = from < 0 ? TL_OK : tl_ranks_check_other(r, from);
    if (st == TL_OK && to >= 0) st = tl_ranks_check_other(r, to);
    if (st == TL_OK) st = begin(&c, leaves, from);
    if (st == TL_OK && loss) st = tl_backward_watched(r->ctx, loss, &c.watch);
    if (st == TL_OK) st = hand_on_rest(&c);
    if (st == TL_OK && r->link) st = tl_link_flush(r);
    for (int i = 0; i < count; i++) {
        leaf *l = &c.leaves[i];
        if (l->slot) l->slot->number = l->slot->uses = 0;
        /* After a failure a message may still arrive in l->sum, which therefore stays allocated. */
        if (!l->request) tl_tensor_free(l->sum);
        tl_slot_free(l->slot);
        tl_tensor_free(l->like);
    }
    free(c.leaves);
    tl_scope_resume(r->ctx, scope);
    return st;
}

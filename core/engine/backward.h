/* backward.h - declares backward passes that are watched. */
#ifndef TL_BACKWARD_H
#define TL_BACKWARD_H

#include "engine/gradient.h"

/* The inputs of a node: first the inputs at its places, then the inputs on its list. */
static inline int tl_input_count(const tl_node *node) { return TL_ARGS + node->count; }

static inline tl_slot **tl_input_slot(tl_node *node, int i)
{
    return i < TL_ARGS ? &node->in[i] : &node->list[i - TL_ARGS].slot;
}

/* Callbacks of a backward pass about watched leaves, those whose slots have a number. They let the
** gradient of a leaf continue a sum that another rank began, and let it be sent on as soon as it is
** complete (ranks/chain.c).
**
** The pass calls reach before it adds to the leaf's gradient, so that reach can first store the sum
** there to which the pass adds. After the last node that uses the leaf it calls reach again and
** then done: the gradient is final. It never reports a leaf that no node on the tape uses.
**
** slot->uses is the number of inputs of unprocessed nodes that are this leaf, or 1 at a node that
** the pass cannot defer. If it is above 1, reach will be called again, and may set *out_defer
** instead of waiting: the pass stores the node, goes on, and computes this gradient as soon as
** reach leaves it 0 for the leaf. The gradients of a leaf are added in the order of the pass all
** the same. */
typedef struct tl_watch tl_watch;
struct tl_watch {
    tl_status (*reach)(tl_watch *w, tl_ctx *ctx, tl_slot *leaf, int *out_defer);
    tl_status (*done)(tl_watch *w, tl_ctx *ctx, tl_slot *leaf);
};

/* Like tl_backward. */
tl_status tl_backward_watched(tl_ctx *ctx, tl_tensor *loss, tl_watch *watch);

/* Takes from the tape every input to which no tensor leads that call number `call` of tl_gradients
** has chosen, so that backward neither computes nor adds its gradient. Calls have numbers, because
** the function of a node may call tl_gradients again, and neither call's choice is the other's. */
void tl_prune(tl_ctx *ctx, int64_t call);

/* Like tl_backward_from, but takes over dy, also after a failure. */
tl_status tl_backward_given(tl_ctx *ctx, tl_tensor *y, tl_tensor *dy);

/* Checks that loss is one number and that backward can begin at it. */
tl_status tl_check_loss(tl_ctx *ctx, const tl_tensor *loss);

#endif

/* backward.h - declares backward passes that are watched. */
#ifndef TL_BACKWARD_H
#define TL_BACKWARD_H

#include "engine/gradient.h"

/* Callbacks of a backward pass about the leaves whose slots have a number. The pass calls reach
** before each node that adds to the leaf's gradient, and done after the last such node. As long as
** slot->uses is above 1, reach may return TL_ENOTFOUND, without a message, to put the node off: the
** pass then computes its gradient later, but adds it to the leaf's sum in the same order. */
typedef struct tl_watch tl_watch;
struct tl_watch {
    tl_status (*reach)(tl_watch *w, tl_ctx *ctx, tl_slot *leaf);
    tl_status (*done)(tl_watch *w, tl_ctx *ctx, tl_slot *leaf);
};

/* Like tl_backward. */
tl_status tl_backward_watched(tl_ctx *ctx, tl_tensor *loss, tl_watch *watch);

/* Checks that loss is one number and that backward can begin at it. */
tl_status tl_check_loss(tl_ctx *ctx, const tl_tensor *loss);

#endif

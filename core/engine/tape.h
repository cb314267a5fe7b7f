/* tape.h - the tape: records operators and accumulates gradients. */
#ifndef TL_TAPE_H
#define TL_TAPE_H

#include "engine/launch.h"

typedef struct tl_node tl_node;
/* Computes the gradients of node's inputs from dy and passes each to tl_accumulate(ctx,
** node->in[k], grad). */
typedef tl_status (*tl_grad_fn)(tl_ctx *ctx, tl_node *node, tl_tensor *dy);

typedef struct tl_listed { /* one input of an operator on a list */
    tl_tensor *t;        /* NULL: absent */
    tl_slot *slot;       /* NULL: requires no gradient */
    unsigned version;    /* of t, when it was recorded */
} tl_listed;

struct tl_node {
    tl_grad_fn grad;
    tl_slot *out;
    tl_slot *in[TL_ARGS];     /* NULL: that input requires no gradient */
    tl_args saved;            /* in[]: tensors that the gradient needs; the rest: any constants */
    unsigned version[TL_ARGS]; /* of the saved tensors, when they were saved */
    void (*release)(void *p); /* frees saved.p; NULL: nothing to free */
    tl_listed *list;          /* inputs of an operator on a list (tl_record_list), else NULL */
    int count;
    tl_precision_kind precision; /* of its products, and so of its gradients' products */
};

/* ---- Recording (tape.c) ---------------------------------------------------------------------- */

/* Returns whether an operator on t (may be NULL) has to be recorded. */
int tl_wants(const tl_ctx *ctx, const tl_tensor *t);
/* Records out as a result of inputs (each may be NULL) if any of them requires a gradient. The node
** retains saved->in[] and takes over saved->p: release frees it with the node, or at once if
** nothing is recorded, also on failure. TL_EINVAL: an input is a result whose node has left the
** tape. */
tl_status tl_record(tl_ctx *ctx, tl_tensor *out, tl_grad_fn grad, tl_tensor *const *inputs,
                    int count, const tl_args *saved, void (*release)(void *p));
/* Ends an operator that has just created its output, a->out[0]: runs kernel op, records the output
** as a result of the first `inputs` tensors of a->in, and returns it in *out_y. A failure frees
** it. */
tl_status tl_run_recorded(tl_op op, const tl_args *a, int inputs, tl_grad_fn grad,
                          const tl_args *saved, tl_tensor **out_y);
/* Like tl_record, for an operator on a list of any length, which node->list holds. The gradient
** function passes gradients to tl_accumulate(ctx, node->list[k].slot, grad). */
tl_status tl_record_list(tl_ctx *ctx, tl_tensor *out, tl_grad_fn grad, tl_tensor *const *list,
                         int count, const tl_args *saved, void (*release)(void *p));
/* Declares that kernel op can recompute out, which was just recorded, from the saved in, i and f.
** If out is large, its memory is freed as soon as the tape is its only owner, until backward needs
** it. Does nothing if a saved input has itself to be recomputed. */
void tl_can_make_again(tl_ctx *ctx, tl_tensor *out, tl_op op);
/* Moves saved.in[i] out of node; the caller owns it. */
tl_tensor *tl_take_saved(tl_node *node, int i);

/* ---- Watching a backward pass (tape.c) ------------------------------------------------------- */

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

/* ---- Accumulating gradients (gradient.c) ----------------------------------------------------- */

/* Returns the gradient buffer for the input of slot: a new tensor of like's shape that the gradient
** function writes, or, with *out_add 1, the slot's own gradient, to which it adds. tl_hand_over
** puts either back; after a failure the slot's gradient is lost. */
tl_status tl_grad_buffer(tl_ctx *ctx, tl_slot *slot, const tl_shape *like, tl_tensor **out_g,
                         int64_t *out_add);
/* Returns a gradient buffer of used's shape, to be written, for a kernel that reads no element of
** used after it has written the same element of the gradient: a view of used if nothing else owns
** used or its storage, so that its values are no longer needed; else a new tensor. */
tl_status tl_grad_buffer_over(tl_tensor *used, tl_tensor **out_g);
/* Adds g to the gradient of slot (NULL: only frees g). Takes over g, also on failure. */
tl_status tl_accumulate(tl_ctx *ctx, tl_slot *slot, tl_tensor *g);
/* Ends a gradient function: accumulates grads[i] (NULL: none) in node->in[i] if st is TL_OK, and
** frees the rest. Returns the first failure. */
tl_status tl_hand_over(tl_ctx *ctx, tl_node *node, tl_status st, tl_tensor *const *grads,
                       int count);

#endif

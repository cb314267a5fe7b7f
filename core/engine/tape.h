/* tape.h - recording operators, and gathering gradients. */
#ifndef TL_TAPE_H
#define TL_TAPE_H

#include "engine/launch.h"

typedef struct tl_node tl_node;
/* Computes the gradients of node's inputs from dy and gives each to tl_accumulate(ctx,
** node->in[k], grad). */
typedef tl_status (*tl_grad_fn)(tl_ctx *ctx, tl_node *node, tl_tensor *dy);

typedef struct tl_listed { /* one of a list of inputs */
    tl_tensor *t;        /* NULL: not given */
    tl_slot *slot;       /* NULL: wants no gradient */
    unsigned version;    /* of t when it was recorded */
} tl_listed;

struct tl_node {
    tl_grad_fn grad;
    tl_slot *out;
    tl_slot *in[TL_ARGS];     /* NULL: that input wants no gradient */
    tl_args saved;            /* in[]: tensors kept for the gradient; i, f, p: numbers */
    unsigned version[TL_ARGS]; /* of the saved tensors, when they were saved */
    void (*release)(void *p); /* frees saved.p; NULL: nothing to free */
    tl_listed *list;          /* of an operator on a list (tl_record_list), else NULL */
    int count;
    tl_precision_kind precision; /* of its products, so of its gradients' */
};

/* ---- Recording (tape.c) ---------------------------------------------------------------------- */

/* Whether an operator on t (may be NULL) has to be recorded. */
int tl_wants(const tl_ctx *ctx, const tl_tensor *t);
/* Makes out a recorded result of inputs (NULLs allowed) if any of them wants a gradient, else
** does nothing. saved's tensors in[] are retained; saved->p is taken over together with release
** (which runs at once if nothing is recorded). */
tl_status tl_record(tl_ctx *ctx, tl_tensor *out, tl_grad_fn grad, tl_tensor *const *inputs,
                    int count, const tl_args *saved, void (*release)(void *p));
/* The same of an operator on a list of any length, all of it kept in node->list: the gradient
** function hands gradients to tl_accumulate(ctx, node->list[k].slot, grad). */
tl_status tl_record_list(tl_ctx *ctx, tl_tensor *out, tl_grad_fn grad, tl_tensor *const *list,
                         int count, const tl_args *saved, void (*release)(void *p));
/* Says that out, just recorded, is cheap: the kernel op makes it again from what was saved, with
** in, i, f as there and out in out[0]. If it is large, its memory is given up as soon as only the
** tape holds it, and until a gradient needs it. */
void tl_can_make_again(tl_ctx *ctx, tl_tensor *out, tl_op op);
/* Hands over what node saved as in[i]. */
tl_tensor *tl_take_saved(tl_node *node, int i);

/* ---- Gathering gradients (gradient.c) -------------------------------------------------------- */

/* Where a gradient function puts the gradient of the input of slot, of like's shape: a new tensor
** to be written, or the gradient that is there, taken out of slot, to be added to: *out_add is then
** 1. For tl_hand_over, both ways, which brings it back; after a failure it is gone. */
tl_status tl_room(tl_ctx *ctx, tl_slot *slot, const tl_shape *like, tl_tensor **out_g,
                  int64_t *out_add);
/* The same where element i needs nothing of used after element i of it: used itself, if nobody else
** holds it and the values are not needed any more, or a new tensor. Always to be written. */
tl_status tl_room_over(tl_tensor *used, tl_tensor **out_g);
/* Adds g to slot (NULL: only frees g). Takes g over, also on failure. */
tl_status tl_accumulate(tl_ctx *ctx, tl_slot *slot, tl_tensor *g);
/* The end of a gradient function: accumulates grads[i] (NULL: none) in node->in[i] if st is TL_OK
** and frees what it could not. Returns the first failure. */
tl_status tl_hand_over(tl_ctx *ctx, tl_node *node, tl_status st, tl_tensor *const *grads,
                       int count);

#endif

/* gradient.h - how gradient functions return what they computed. */
#ifndef TL_GRADIENT_H
#define TL_GRADIENT_H

#include "engine/tape.h"

/* Returns the gradient buffer for the input of slot: a new tensor of like's shape that the gradient
** function writes, or, with *out_add 1, the slot's own gradient, to which it adds.
** tl_accumulate_all puts either back; after a failure the slot's gradient is lost. */
tl_status tl_grad_buffer(tl_ctx *ctx, tl_slot *slot, const tl_shape *like, tl_tensor **out_g,
                         int64_t *out_add);
/* Returns a gradient buffer of used's shape, to be written, for a kernel that reads no element of
** used after it has written the same element of the gradient: a view of used if nothing else owns
** used or its storage, so that its values are no longer needed; else a new tensor. */
tl_status tl_grad_buffer_over(tl_tensor *used, tl_tensor **out_g);
/* Copies a gradient. */
tl_status tl_grad_copy(const tl_tensor *x, tl_tensor **out_y);
/* Adds g to the gradient of slot (NULL: only frees g). Takes over g, also on failure. */
tl_status tl_accumulate(tl_ctx *ctx, tl_slot *slot, tl_tensor *g);
/* Ends a gradient function: accumulates grads[i] (NULL: none) in node->in[i] if st is TL_OK, and
** frees the rest. Returns the first failure. */
tl_status tl_accumulate_all(tl_ctx *ctx, tl_node *node, tl_status st, tl_tensor *const *grads,
                            int count);
/* Ends a gradient function by op, whose first `count` inputs in a are those of the operator and
** whose outputs are their gradients, all of them computed; an input may be NULL. */
tl_status tl_run_gradient(tl_ctx *ctx, tl_node *node, tl_op op, tl_args *a, int count);

#endif

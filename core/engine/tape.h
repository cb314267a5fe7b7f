/* tape.h - the tape: records operators. */
#ifndef TL_TAPE_H
#define TL_TAPE_H

#include <stddef.h>

#include "engine/launch.h"

typedef struct tl_node tl_node;
/* Computes the gradients of node's inputs from dy and passes each to tl_accumulate(ctx,
** node->in[k], grad). */
typedef tl_status (*tl_grad_fn)(tl_ctx *ctx, tl_node *node, tl_tensor *dy);

typedef struct tl_listed { /* one input of an operator on a list */
    tl_tensor *t;        /* NULL: absent, or the gradient needs only its slot */
    tl_slot *slot;       /* NULL: requires no gradient */
    unsigned version;    /* of t, when it was recorded */
} tl_listed;

struct tl_node {
    tl_grad_fn grad;
    tl_slot *out;
    tl_slot *in[TL_ARGS];     /* NULL: that input requires no gradient */
    tl_args saved;            /* inputs: tensors that the gradient needs; the rest: any constants */
    unsigned version[TL_ARGS]; /* of the saved tensors, when they were saved */
    void (*release)(void *p); /* frees saved.p; NULL: nothing to free */
    tl_listed *list;          /* inputs of an operator on a list (tl_record_list), else NULL */
    int count;
    tl_precision_kind precision; /* of its products, and so of its gradients' products */
};

/* The slot of an input of operator op that was recorded with its inputs in the order of its row. */
#define TL_SLOT(node, op, input) \
    ((node)->in[offsetof(struct tl_args_##op, input) / sizeof(tl_tensor *)])

/* Returns whether an operator on t (may be NULL) has to be recorded. */
int tl_needs_grad(const tl_ctx *ctx, const tl_tensor *t);
/* Records out as a result of inputs (each may be NULL) if any of them requires a gradient. The node
** retains the inputs in saved and takes over saved->p: release frees it with the node, or at once
** if nothing is recorded, also on failure. TL_EINVAL: an input is a result whose node has left the
** tape. */
tl_status tl_record(tl_ctx *ctx, tl_tensor *out, tl_grad_fn grad, tl_tensor *const *inputs,
                    int count, const tl_args *saved, void (*release)(void *p));
/* Ends an operator that has just created its first output: runs kernel op, records the output as a
** result of the first `inputs` inputs, and returns it in *out_y. A failure frees it. */
tl_status tl_run_recorded(tl_op op, const tl_args *a, int inputs, tl_grad_fn grad,
                          const tl_args *saved, tl_tensor **out_y);
/* Like tl_record, for an operator on a list of any length, which node->list holds, with the tensors
** if the gradient needs them. The gradient function passes gradients to tl_accumulate(ctx,
** node->list[k].slot, grad). */
tl_status tl_record_list(tl_ctx *ctx, tl_tensor *out, tl_grad_fn grad, tl_tensor *const *list,
                         int count, int needed, const tl_args *saved, void (*release)(void *p));
/* Declares that kernel op can recompute out, which was just recorded, from the saved arguments.
** If out is large, its memory is freed as soon as the tape is its only owner, until backward needs
** it. Does nothing if a saved input has itself to be recomputed. */
void tl_allow_recompute(tl_ctx *ctx, tl_tensor *out, tl_op op);
void tl_node_clear(tl_node *node); /* frees what node owns */
/* Moves input i of saved out of node; the caller owns it. */
tl_tensor *tl_take_saved(tl_node *node, int i);

#endif

/* tensor.h - the structs behind tl_tensor, and how the engine creates, queries and frees
** tensors. */
#ifndef TL_TENSOR_H
#define TL_TENSOR_H

#include "base/context.h"

typedef struct tl_storage { /* refcounted memory, shared by views */
    int refs;
    unsigned version; /* counts the kernels that wrote it */
    unsigned capture; /* the number of the last capture that created or used it; 0: none */
    int uncomputed;       /* created in a capture whose graph has not run: it has no values yet */
    int borrowed;     /* data belongs to the caller of tl_tensor_borrow */
    tl_device device; /* the device that data is on */
    size_t bytes;
    void *data;
} tl_storage;

/* Holds the gradient of a tensor; the tensor and the tape share it. */
typedef struct tl_slot {
    int refs;
    int leaf;
    int consumed;    /* backward or tl_tape_clear has removed its node */
    int chosen;      /* how many running tl_gradients compute its gradient */
    int64_t leads;   /* the last tl_gradients that has a chosen tensor leading to it (chosen.c) */
    int recompute;   /* the tl_op that recomputes the tensor (tl_allow_recompute); 0: none */
    unsigned version; /* of a result's storage, when the result was recorded */
    int64_t node;    /* index of the node that computed it */
    tl_tensor *grad; /* NULL until a gradient is accumulated */
    /* During a watched backward pass (backward.h): the number of a leaf that is watched, from 1,
    ** and how many inputs of nodes on the tape are it. */
    int number, uses;
} tl_slot;

struct tl_tensor {
    int refs;
    int tape_refs; /* how many of refs the tape holds */
    int held;      /* how many other refs the engine holds, not a caller */
    tl_ctx *ctx;
    tl_storage *storage;
    size_t offset; /* bytes from storage->data on, which is NULL after tl_evict */
    tl_type type;
    int ndim;
    int64_t dims[TL_MAXDIMS];
    int64_t len;
    tl_slot *slot; /* NULL: requires no gradient */
    int scope;     /* the number of the scope that owns the caller's reference; 0: none */
    tl_tensor *next, **link; /* in ctx->scoped; *link is this tensor */
};

/* The shape of a tensor that may no longer exist. */
typedef struct tl_shape {
    int ndim;
    int64_t dims[TL_MAXDIMS];
} tl_shape;

#define DATA(t) ((void *)((char *)(t)->storage->data + (t)->offset))
#define F32(t) ((float *)DATA(t))
#define I32(t) ((int32_t *)DATA(t))

/* ---- Dimensions ------------------------------------------------------------------------------ */

tl_shape tl_shape_of(const tl_tensor *x);
int tl_has_shape(const tl_tensor *t, int ndim, const int64_t *dims);
int tl_same_shape(const tl_tensor *a, const tl_tensor *b);
/* The product of all dimensions but the last, and the last dimension; 1 for a number. */
TL_PRIVATE int64_t tl_rows(const tl_tensor *x);
TL_PRIVATE int64_t tl_cols(const tl_tensor *x);
/* Replaces a negative *axis by its index from 0. TL_EINVAL: there is no such axis; the message
** names op. */
tl_status tl_axis(tl_ctx *ctx, const char *op, const tl_tensor *x, int *axis);
/* Views x as [outer, size, inner] with the non-negative axis in the middle; for TL_ALL_AXES, as
** [1, len, 1]. */
typedef struct tl_axis_view {
    int64_t outer, size, inner;
} tl_axis_view;
TL_PRIVATE tl_axis_view tl_axis_view_of(const tl_tensor *x, int axis);

#define TL_SHAPE_MAX 96
/* The text of a shape, for messages; valid until the end of the enclosing block. */
#define SHAPE(t) tl_tensor_shape((t), (char[TL_SHAPE_MAX]){0}, TL_SHAPE_MAX)

/* ---- Storage --------------------------------------------------------------------------------- */

tl_status tl_storage_new(tl_ctx *ctx, tl_device device, size_t bytes, tl_storage **out_s);
/* Creates a storage on the CPU whose memory is the caller's. */
tl_status tl_storage_borrow(tl_ctx *ctx, void *data, size_t bytes, tl_storage **out_s);
void tl_storage_free(tl_ctx *ctx, tl_storage *s); /* drops one reference */

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Creates an uninitialised tensor, for an output that a kernel writes completely. */
TL_PRIVATE tl_status tl_new(tl_ctx *ctx, tl_type type, int ndim, const int64_t *dims,
                            tl_tensor **out_t);
/* Create an uninitialised float32 tensor of x's shape, or of that shape. */
tl_status tl_new_like(const tl_tensor *x, tl_tensor **out_t);
tl_status tl_new_shaped(tl_ctx *ctx, const tl_shape *shape, tl_tensor **out_t);
/* Ends an operator: stores t in *out if st is TL_OK, else frees it; returns st. */
TL_PRIVATE tl_status tl_finish(tl_status st, tl_tensor *t, tl_tensor **out);
/* Frees the memory of t if it is large, the tape can recompute t and is its only owner, no view
** shares it, and recording is on. */
void tl_evict(tl_tensor *t);
/* Like tl_tensor_retain and tl_tensor_free, for owners in the engine that outlive a call and do not
** hand their reference on: a scope owns no tensor that its caller has freed. */
tl_tensor *tl_tensor_hold(tl_tensor *t);
void tl_tensor_drop(tl_tensor *t); /* NULL is harmless */
/* Takes t out of its scope, if it is in one, since the engine takes the caller's reference over. */
void tl_scope_leave(tl_tensor *t);
/* Until tl_scope_resume, which takes the result, new tensors belong to the engine, and not to the
** scopes that are open. */
int tl_scope_pause(tl_ctx *ctx);
void tl_scope_resume(tl_ctx *ctx, int base);
tl_slot *tl_slot_new(int leaf); /* NULL: out of memory */
tl_slot *tl_slot_retain(tl_slot *slot); /* NULL is harmless */
void tl_slot_free(tl_slot *slot);       /* drops one reference; NULL is harmless */

#endif

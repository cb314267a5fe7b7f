/* tensor.h - the structs behind tl_tensor, and how the engine makes, asks and frees tensors. */
#ifndef TL_TENSOR_H
#define TL_TENSOR_H

#include "base/context.h"

typedef struct tl_storage { /* refcounted memory, shared by views */
    int refs;
    unsigned version; /* how often a kernel wrote it */
    unsigned capture; /* the last capture, by number, in which it was made or used; 0: none */
    int unborn;       /* made in a capture, and its graph has not run: there is nothing in it yet */
    tl_device device; /* where data is at present */
    size_t bytes;
    void *data;
} tl_storage;

/* where the gradient of a tensor gathers; shared by the tensor and the tape */
typedef struct tl_slot {
    int refs;
    int leaf;
    int spent;       /* its part of the tape is gone */
    int again;       /* the kernel that makes the tensor again (tl_can_make_again); 0: none */
    int64_t node;    /* where on the tape it was made */
    tl_tensor *grad; /* NULL until something arrived */
} tl_slot;

struct tl_tensor {
    int refs;
    int tape_refs; /* how many of refs are the tape's */
    tl_ctx *ctx;
    tl_storage *storage;
    size_t offset; /* bytes from storage->data on, which is NULL if the tape gave t up */
    tl_type type;
    int ndim;
    int64_t dims[TL_MAXDIMS];
    int64_t len;
    tl_slot *slot; /* NULL: wants no gradient */
};

/* of a tensor that need not be there */
typedef struct tl_shape {
    int ndim;
    int64_t dims[TL_MAXDIMS];
} tl_shape;

#define DATA(t) ((void *)((char *)(t)->storage->data + (t)->offset))
#define F32(t) ((float *)DATA(t))
#define I32(t) ((int32_t *)DATA(t))

/* ---- Dimensions (dims.c) --------------------------------------------------------------------- */

tl_shape tl_shape_of(const tl_tensor *x);
int tl_same_shape(const tl_tensor *a, const tl_tensor *b);
int64_t tl_rows(const tl_tensor *x); /* product of all dimensions but the last; 1 for a number */
int64_t tl_cols(const tl_tensor *x); /* the last dimension; 1 for a number */
/* TL_OK with axis made non-negative, or TL_EINVAL naming op. */
tl_status tl_axis(tl_ctx *ctx, const char *op, const tl_tensor *x, int *axis);
/* x seen as [outer, dim(axis), inner]. */
void tl_split(const tl_tensor *x, int axis, int64_t *outer, int64_t *size, int64_t *inner);

#define TL_SHAPE_MAX 96
/* Text of a shape for messages; valid until the end of the enclosing block. */
#define SHAPE(t) tl_tensor_shape((t), (char[TL_SHAPE_MAX]){0}, TL_SHAPE_MAX)

/* ---- Storage, on one device or the other (storage.c) ----------------------------------------- */

tl_status tl_storage_new(tl_ctx *ctx, tl_device device, size_t bytes, tl_storage **out_s);
void tl_storage_free(tl_ctx *ctx, tl_storage *s); /* drops one of refs */
/* Memory of ctx's device: of the CPU tl_alloc's. */
tl_status tl_device_alloc(tl_ctx *ctx, tl_device device, size_t bytes, void **out_p);
void tl_device_release(tl_ctx *ctx, tl_device device, void *p);
/* Moves the whole storage of t to device, unless it is there. What a kernel does on its device with
** a tensor is thus seen by every view of it. */
tl_status tl_place(const tl_tensor *t, tl_device device);
/* Brings t, of which the caller then reads or writes F32(t) or I32(t), to the CPU. */
tl_status tl_bring(const tl_tensor *t);

/* ---- Tensors (tensor.c) ---------------------------------------------------------------------- */

/* As tl_tensor_new, but not cleared: for outputs that a kernel writes whole. */
tl_status tl_new(tl_ctx *ctx, tl_type type, int ndim, const int64_t *dims, tl_tensor **out_t);
/* The same on the CPU, for a function that fills it there. */
tl_status tl_new_host(tl_ctx *ctx, tl_type type, int ndim, const int64_t *dims, tl_tensor **out_t);
/* float32 of x's shape, or that one; not cleared */
tl_status tl_new_like(const tl_tensor *x, tl_tensor **out_t);
tl_status tl_new_shaped(tl_ctx *ctx, const tl_shape *shape, tl_tensor **out_t);
/* The end of an operator: hands t to *out if st is TL_OK, else frees it; returns st. */
tl_status tl_finish(tl_status st, tl_tensor *t, tl_tensor **out);
/* Frees the memory of t, which can be computed again, if only the tape holds it and recording is
** on. */
void tl_give_up(tl_tensor *t);
tl_slot *tl_slot_new(int leaf); /* NULL: no memory */
tl_slot *tl_slot_retain(tl_slot *slot); /* NULL is harmless */
void tl_slot_free(tl_slot *slot);       /* drops one of refs; NULL is harmless */

#endif

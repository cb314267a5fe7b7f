/* link.h - how the ranks of a group move tensors from GPU to GPU. A shared object of its own, such
** as core/ranks/nccl/nccl.c, implements it beside the transport, so that neither the library nor
** the CUDA device needs NCCL. It uses the library's tl_fail, so it must come from the same build.
**
** A link only moves numbers. Sums are made by the engine's kernels, in the order of the ranks, so
** that they do not depend on timing.
**
** All pointers are to memory of the context's device, all sizes in elements of 4 bytes. Copies
** happen in the order of the device's kernels (tl_engine.stream): a function may return before its
** copy has begun. */
#ifndef TL_LINK_H
#define TL_LINK_H

#include "ranks/transport.h"

#define TL_LINK_ABI 2u

typedef struct tl_link {
    uint32_t abi; /* TL_LINK_ABI */
    const char *name;
    /* Together: makes a channel between the ranks of a group, each with a GPU of its own. */
    tl_status (*open)(tl_ctx *ctx, const tl_transport *t, void *group, void **out_channel);
    void (*close)(void *channel); /* when the device has no work left that uses it */
    /* Messages between two ranks arrive in the order in which they were sent. */
    tl_status (*send)(tl_ctx *ctx, void *channel, int to, const void *data, int64_t count);
    tl_status (*receive)(tl_ctx *ctx, void *channel, int from, void *data, int64_t count);
    /* Together: data of rank root becomes the data of all. */
    tl_status (*broadcast)(tl_ctx *ctx, void *channel, int root, void *data, int64_t count);
    /* Together: part i of in, of count elements, becomes part `rank` of out on rank i. */
    tl_status (*exchange)(tl_ctx *ctx, void *channel, const void *in, void *out, int64_t count);
    /* Together: in of rank i, of count elements, becomes part i of out on all ranks. */
    tl_status (*gather)(tl_ctx *ctx, void *channel, const void *in, void *out, int64_t count);
} tl_link;

extern TL_EXPORT const tl_link tl_link_entry;

#endif

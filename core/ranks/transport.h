/* transport.h - how the processes of a group reach one another. A shared object of its own, such as
** core/ranks/mpi/mpi.c, implements it, so that the library needs no MPI. It uses the library's
** tl_fail, so it must come from the same build.
**
** Ranks and roots count from 0. Every size is in elements of 4 bytes. All ranks of a group call
** the functions that say "together" in the same order. */
#ifndef TL_TRANSPORT_H
#define TL_TRANSPORT_H

#include "backend.h" /* for TL_EXPORT */
#include "toeplab.h"

#define TL_TRANSPORT_ABI 1u

typedef struct tl_transport {
    uint32_t abi; /* TL_TRANSPORT_ABI */
    const char *name;
    /* Joins the group of all processes that were started together. TL_EIO: it cannot be joined. */
    tl_status (*open)(tl_ctx *ctx, void **out_group);
    /* Together: makes a group of those ranks that give the same colour, in their old order. */
    tl_status (*split)(tl_ctx *ctx, void *group, int colour, void **out_group);
    /* Leaves a group. When the last one of all processes is left, the process's part in all
    ** communication ends, unless the host program had begun it. */
    void (*close)(void *group);
    int (*rank)(const void *group);
    int (*size)(const void *group);
    /* Begin to send or to receive; the caller leaves data alone until finish. Messages of one tag
    ** between two ranks arrive in the order in which they were sent. */
    tl_status (*send)(tl_ctx *ctx, void *group, int to, int tag, const void *data, int64_t count,
                      void **out_request);
    tl_status (*receive)(tl_ctx *ctx, void *group, int from, int tag, void *data, int64_t count,
                         void **out_request);
    /* Waits for the end of a send or a receive and frees it. out_count (or NULL) gets how many
    ** elements arrived. */
    tl_status (*finish)(tl_ctx *ctx, void *request, int64_t *out_count);
    /* Together: data of rank root becomes the data of all. */
    tl_status (*broadcast)(tl_ctx *ctx, void *group, int root, void *data, int64_t count);
    /* Together: part i of in, of count elements, becomes part `rank` of out on rank i. */
    tl_status (*exchange)(tl_ctx *ctx, void *group, const void *in, void *out, int64_t count);
    tl_status (*barrier)(tl_ctx *ctx, void *group); /* together: waits for all */
    /* Whether a message of that rank and tag waits here. */
    tl_status (*waits)(tl_ctx *ctx, void *group, int from, int tag, int *out_waits);
    void (*end_all)(void *group, int code); /* ends all processes at once; does not return */
} tl_transport;

extern TL_EXPORT const tl_transport tl_transport_entry;

#endif

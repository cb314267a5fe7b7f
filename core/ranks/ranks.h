/* ranks.h - the struct behind tl_ranks. */
#ifndef TL_RANKS_H
#define TL_RANKS_H

#include "engine/backward.h"
#include "ranks/link.h"

typedef struct tl_parcel { /* a send that has begun, with the tensor whose elements it reads */
    void *request;
    tl_tensor *held;
} tl_parcel;

typedef struct tl_mail tl_mail;
struct tl_mail { /* a message of the link that waits */
    int peer, tag; /* peer: the rank that has sent it, or that it goes to */
    tl_tensor *t; /* NULL: without elements */
    tl_mail *next;
};

struct tl_ranks {
    int refs; /* 1 for the caller, 1 per node of the tape */
    tl_ctx *ctx;
    const tl_transport *transport; /* in the mapped file, which stays mapped */
    void *group;
    int rank, size;
    tl_parcel *parcels; /* sends that tl_ranks_finish waits for */
    int parcel_count, parcel_cap;
    const tl_link *link; /* NULL: tensors go through the memory of the CPU */
    void *channel;       /* of the link */
    tl_mail *mail;       /* those that came before they were awaited, in order of arrival */
    tl_mail *held;       /* those that tl_link_flush sends, in order */
};

/* TL_EINVAL unless it is another rank of the group. */
tl_status tl_ranks_check_other(tl_ranks *r, int rank);
/* Begins to send t by the transport, or a message without elements if t is NULL; t is retained
** until tl_ranks_finish. */
tl_status tl_ranks_post(tl_ranks *r, int to, int tag, tl_tensor *t);
/* Waits until what tl_ranks_post has sent may be written again. */
tl_status tl_ranks_wait(tl_ranks *r);

/* ---- From GPU to GPU (link.c) ---------------------------------------------------------------- */

/* Together: opens the link of a group whose ranks compute on GPUs, if all have one. */
tl_status tl_link_open(tl_ranks *r);
void tl_link_close(tl_ranks *r);
/* As the functions tl_ranks_ of these names, for a group with a link. */
tl_status tl_link_send(tl_ranks *r, int to, int tag, tl_tensor *t);
tl_status tl_link_receive(tl_ranks *r, int from, int tag, tl_tensor *t);
tl_status tl_link_broadcast(tl_ranks *r, int root, tl_tensor *t);
tl_status tl_link_sum(tl_ranks *r, tl_tensor *t);
/* Sends the messages that tl_link_send holds, at the end of a backward pass. */
tl_status tl_link_flush(tl_ranks *r);
/* Waits for a message and returns it as a tensor of like's shape; NULL: it has no elements. */
tl_status tl_link_take(tl_ranks *r, int from, int tag, const tl_tensor *like, tl_tensor **out_t);
/* Together: exchanges the parts of x, which is from = [rows,p,width], and returns what arrives,
** to = [rows,p,width], as a tensor of 3 axes, dims. */
tl_status tl_link_turn(tl_ranks *r, tl_tensor *x, const int64_t *from, const int64_t *to,
                       const int64_t *dims, tl_tensor **out_y);

#endif

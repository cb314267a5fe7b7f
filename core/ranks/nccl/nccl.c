/* nccl.c - moves tensors between GPUs by NCCL, one rank a GPU. The transport moves the ranks
** together: it carries the id by which NCCL makes a communicator. */
#include <stdlib.h>
#ifdef TL_EMULATE
#include "emulate_nccl.h"
#else
#include <nccl.h>
#endif

#include "engine/device.h"
#include "ranks/link.h"

typedef struct channel {
    ncclComm_t comm;
    int        rank, size;
} channel;

static tl_status checked(tl_ctx *ctx, const char *what, ncclResult_t code)
{
    if (code == ncclSuccess) return TL_OK;
    return tl_fail(ctx, TL_EIO, "NCCL: %s failed: %s (NCCL needs a GPU for each rank; set "
                   "NCCL_DEBUG=WARN for details)", what, ncclGetErrorString(code));
}

static cudaStream_t stream_of(tl_ctx *ctx)
{
    return (cudaStream_t)ctx->engine->stream(ctx);
}

/* ---- Channels -------------------------------------------------------------------------------- */

/* What rank 0 sends to the others, also when NCCL gave it no id, because they wait for it. */
typedef struct invitation {
    int32_t      good;
    ncclUniqueId id;
} invitation;

static tl_status open_channel(tl_ctx *ctx, const tl_transport *t, void *group, void **out_channel)
{
    invitation word = {0};
    channel   *c = calloc(1, sizeof *c);
    tl_status  st = TL_OK, sent;
    if (!c) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    c->rank = t->rank(group);
    c->size = t->size(group);
    if (c->rank == 0) st = checked(ctx, "ncclGetUniqueId", ncclGetUniqueId(&word.id));
    word.good = st == TL_OK;
    sent = t->broadcast(ctx, group, 0, &word, (int64_t)(sizeof word / sizeof(int32_t)));
    if (st == TL_OK) st = sent;
    if (st == TL_OK && !word.good)
        st = tl_fail(ctx, TL_EIO, "NCCL: rank 0 of the group cannot use it");
    if (st == TL_OK)
        st = checked(ctx, "ncclCommInitRank", ncclCommInitRank(&c->comm, c->size, word.id,
                                                               c->rank));
    if (st != TL_OK) free(c);
    else *out_channel = c;
    return st;
}

static void close_channel(void *from)
{
    channel *c = from;
    (void)ncclCommDestroy(c->comm);
    free(c);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static tl_status send(tl_ctx *ctx, void *to_channel, int to, const void *data, int64_t count)
{
    channel *c = to_channel;
    return checked(ctx, "ncclSend", ncclSend(data, (size_t)count, ncclInt32, to, c->comm,
                                             stream_of(ctx)));
}

static tl_status receive(tl_ctx *ctx, void *from_channel, int from, void *data, int64_t count)
{
    channel *c = from_channel;
    return checked(ctx, "ncclRecv", ncclRecv(data, (size_t)count, ncclInt32, from, c->comm,
                                             stream_of(ctx)));
}

static tl_status broadcast(tl_ctx *ctx, void *of, int root, void *data, int64_t count)
{
    channel *c = of;
    return checked(ctx, "ncclBroadcast", ncclBroadcast(data, data, (size_t)count, ncclInt32, root,
                                                       c->comm, stream_of(ctx)));
}

/* NCCL has no exchange of all with all. The sends and receives of a group run at once. */
static tl_status exchange(tl_ctx *ctx, void *of, const void *in, void *out, int64_t count)
{
    channel  *c = of;
    size_t    bytes = (size_t)count * sizeof(int32_t);
    tl_status st = checked(ctx, "ncclGroupStart", ncclGroupStart());
    for (int i = 0; i < c->size && st == TL_OK; i++) {
        st = send(ctx, c, i, (const char *)in + (size_t)i * bytes, count);
        if (st == TL_OK) st = receive(ctx, c, i, (char *)out + (size_t)i * bytes, count);
    }
    tl_status ended = checked(ctx, "ncclGroupEnd", ncclGroupEnd());
    return st == TL_OK ? ended : st;
}

static tl_status gather(tl_ctx *ctx, void *of, const void *in, void *out, int64_t count)
{
    channel *c = of;
    return checked(ctx, "ncclAllGather", ncclAllGather(in, out, (size_t)count, ncclInt32, c->comm,
                                                       stream_of(ctx)));
}

const tl_link tl_link_entry = {
    .abi = TL_LINK_ABI, .name = "nccl", .open = open_channel, .close = close_channel, .send = send,
    .receive = receive, .broadcast = broadcast, .exchange = exchange, .gather = gather,
};

/* emulate_nccl.h - emulates the functions of NCCL that core/ranks/nccl uses, by MPI, for the
** emulated devices: their stream is the context, whose copies to and from the CPU it uses. A send
** waits for its receive, as it may in NCCL, so that ranks which wait for one another never end. */
#ifndef TL_EMULATE_NCCL_H
#define TL_EMULATE_NCCL_H

#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/device.h"

typedef enum { ncclSuccess, ncclUnhandledCudaError, ncclSystemError } ncclResult_t;
typedef enum { ncclInt32 } ncclDataType_t;
typedef MPI_Comm *ncclComm_t;
typedef void     *cudaStream_t;

typedef struct ncclUniqueId {
    int root; /* the rank of its maker among all */
    int made; /* how many it had made */
} ncclUniqueId;

#define EMULATE_TAG   20000 /* of the messages that make communicators */
#define EMULATE_QUEUE 256

typedef struct emulate_copy { /* a send or a receive */
    ncclComm_t  comm;
    tl_ctx     *ctx;
    int         peer, sends;
    int         bytes;
    void       *device, *host;
    MPI_Request request;
} emulate_copy;

static struct {
    int          depth, count; /* of groups that are open; of copies in queue */
    emulate_copy queue[EMULATE_QUEUE];
} emulate_group;

static const char *ncclGetErrorString(ncclResult_t code)
{
    return code == ncclUnhandledCudaError ? "the device failed" : "MPI failed";
}

static ncclResult_t emulate_said(int code) { return code ? ncclSystemError : ncclSuccess; }

/* ---- Communicators --------------------------------------------------------------------------- */

static ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int made;
    id->made = made++;
    return emulate_said(MPI_Comm_rank(MPI_COMM_WORLD, &id->root));
}

/* Rank 0 learns who the others are among all processes, and tells them. */
static ncclResult_t ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank)
{
    int      *all = (int *)calloc((size_t)size, sizeof *all), own, tag = EMULATE_TAG + id.made;
    MPI_Comm *comm = (MPI_Comm *)calloc(1, sizeof *comm);
    MPI_Group world, group;
    if (!all || !comm) return ncclSystemError;
    int bad = MPI_Comm_rank(MPI_COMM_WORLD, &own);
    if (rank > 0) {
        int said[2] = {rank, own};
        bad |= MPI_Send(said, 2, MPI_INT, id.root, tag, MPI_COMM_WORLD);
        bad |= MPI_Recv(all, size, MPI_INT, id.root, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        all[0] = own;
        for (int i = 1, said[2]; i < size; i++) {
            bad |= MPI_Recv(said, 2, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE);
            all[said[0]] = said[1];
        }
        for (int i = 1; i < size; i++)
            bad |= MPI_Send(all, size, MPI_INT, all[i], tag, MPI_COMM_WORLD);
    }
    bad |= MPI_Comm_group(MPI_COMM_WORLD, &world);
    bad |= MPI_Group_incl(world, size, all, &group);
    bad |= MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, comm);
    bad |= MPI_Group_free(&group) | MPI_Group_free(&world);
    free(all);
    *out = comm;
    return emulate_said(bad);
}

static ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    int ended = 0, bad = MPI_Finalized(&ended);
    if (!ended) bad |= MPI_Comm_free(comm);
    free(comm);
    return emulate_said(bad);
}

/* ---- Copies ---------------------------------------------------------------------------------- */

static int emulate_down(tl_ctx *ctx, void *host, const void *device, int bytes)
{
    return ctx->engine->download(ctx, host, device, (size_t)bytes) != TL_OK;
}

static int emulate_up(tl_ctx *ctx, void *device, const void *host, int bytes)
{
    return ctx->engine->upload(ctx, device, host, (size_t)bytes) != TL_OK;
}

static ncclResult_t emulate_run(void)
{
    int bad = 0;
    for (int i = 0; i < emulate_group.count; i++) {
        emulate_copy *c = &emulate_group.queue[i];
        c->host = malloc((size_t)c->bytes + 1);
        if (!c->host) return ncclSystemError;
        if (c->sends) {
            bad |= emulate_down(c->ctx, c->host, c->device, c->bytes);
            bad |= MPI_Issend(c->host, c->bytes, MPI_BYTE, c->peer, 0, *c->comm, &c->request);
        } else {
            bad |= MPI_Irecv(c->host, c->bytes, MPI_BYTE, c->peer, 0, *c->comm, &c->request);
        }
    }
    for (int i = 0; i < emulate_group.count; i++) {
        emulate_copy *c = &emulate_group.queue[i];
        bad |= MPI_Wait(&c->request, MPI_STATUS_IGNORE);
        if (!c->sends) bad |= emulate_up(c->ctx, c->device, c->host, c->bytes);
        free(c->host);
    }
    emulate_group.count = 0;
    return emulate_said(bad);
}

static ncclResult_t emulate_add(ncclComm_t comm, cudaStream_t stream, void *device, size_t count,
                                int peer, int sends)
{
    if (emulate_group.count == EMULATE_QUEUE) return ncclSystemError;
    emulate_group.queue[emulate_group.count++] =
        (emulate_copy){comm, (tl_ctx *)stream, peer, sends, (int)(4 * count), device, NULL, 0};
    return emulate_group.depth ? ncclSuccess : emulate_run();
}

static ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int to,
                             ncclComm_t comm, cudaStream_t stream)
{
    (void)type;
    return emulate_add(comm, stream, (void *)data, count, to, 1);
}

static ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int from,
                             ncclComm_t comm, cudaStream_t stream)
{
    (void)type;
    return emulate_add(comm, stream, data, count, from, 0);
}

static ncclResult_t ncclGroupStart(void)
{
    emulate_group.depth++;
    return ncclSuccess;
}

static ncclResult_t ncclGroupEnd(void)
{
    return --emulate_group.depth ? ncclSuccess : emulate_run();
}

static ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
                                  ncclComm_t comm, cudaStream_t stream)
{
    int     size = 0, bytes = (int)(4 * count), bad = MPI_Comm_size(*comm, &size);
    tl_ctx *ctx = (tl_ctx *)stream;
    char   *own = (char *)malloc((size_t)bytes * (size_t)(size + 1) + 1);
    (void)type;
    if (!own) return ncclSystemError;
    bad |= emulate_down(ctx, own, in, bytes);
    bad |= MPI_Allgather(own, bytes, MPI_BYTE, own + bytes, bytes, MPI_BYTE, *comm);
    bad |= emulate_up(ctx, out, own + bytes, size * bytes);
    free(own);
    return emulate_said(bad);
}

static ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type,
                                  int root, ncclComm_t comm, cudaStream_t stream)
{
    int     bytes = (int)(4 * count), bad = 0;
    tl_ctx *ctx = (tl_ctx *)stream;
    char   *host = (char *)malloc((size_t)bytes + 1);
    (void)type;
    if (!host) return ncclSystemError;
    bad |= emulate_down(ctx, host, in, bytes);
    bad |= MPI_Bcast(host, bytes, MPI_BYTE, root, *comm);
    bad |= emulate_up(ctx, out, host, bytes);
    free(host);
    return emulate_said(bad);
}

#endif

/* mpi.c - the processes of a group reach one another by MPI, which mpirun or srun has started. */
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>

#include "ranks/transport.h"

/* How many groups of all processes are open, if this file has initialised MPI, which a process can
** do only once; 0 if the host program has: that ends MPI itself. */
static int opened;

typedef struct group {
    MPI_Comm comm;
    int      rank, size, first; /* first: this group was opened, not split */
} group;

/* Returns the code of an MPI call as a tl_status; an error carries MPI's own text. */
static tl_status checked(tl_ctx *ctx, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int  length = 0;
    if (code == MPI_SUCCESS) return TL_OK;
    (void)MPI_Error_string(code, text, &length);
    return tl_fail(ctx, TL_EIO, "MPI: %s failed: %s", what, text);
}

static tl_status fits(tl_ctx *ctx, int64_t count)
{
    if (count >= 0 && count <= INT_MAX) return TL_OK;
    return tl_fail(ctx, TL_EINVAL, "MPI: a message of %lld numbers; the most is %d",
                   (long long)count, INT_MAX);
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static tl_status group_of(tl_ctx *ctx, MPI_Comm comm, int first, void **out_group)
{
    group *g = malloc(sizeof *g);
    if (!g) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    *g = (group){.comm = comm, .first = first};
    (void)MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    (void)MPI_Comm_rank(comm, &g->rank);
    (void)MPI_Comm_size(comm, &g->size);
    *out_group = g;
    return TL_OK;
}

static tl_status open_all(tl_ctx *ctx, void **out_group)
{
    int       began = 0, ended = 0, level = 0;
    MPI_Comm  all;
    tl_status st = checked(ctx, "MPI_Initialized", MPI_Initialized(&began));
    if (st == TL_OK) st = checked(ctx, "MPI_Finalized", MPI_Finalized(&ended));
    if (st == TL_OK && ended)
        return tl_fail(ctx, TL_EIO, "MPI: a process that has left all groups cannot join again");
    if (st == TL_OK && !began)
        st = checked(ctx, "MPI_Init", MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level));
    if (st == TL_OK) st = checked(ctx, "MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &all));
    if (st == TL_OK) st = group_of(ctx, all, 1, out_group);
    if (st == TL_OK && (!began || opened > 0)) opened++;
    return st;
}

static tl_status split(tl_ctx *ctx, void *from, int colour, void **out_group)
{
    const group *g = from;
    MPI_Comm     part;
    tl_status st = checked(ctx, "MPI_Comm_split", MPI_Comm_split(g->comm, colour, g->rank, &part));
    return st == TL_OK ? group_of(ctx, part, 0, out_group) : st;
}

static void close_group(void *from)
{
    group *g = from;
    int    ended = 0;
    (void)MPI_Finalized(&ended);
    if (!ended) {
        (void)MPI_Comm_free(&g->comm);
        if (g->first && opened > 0 && --opened == 0) (void)MPI_Finalize();
    }
    free(g);
}

static int rank_of(const void *g) { return ((const group *)g)->rank; }

static int size_of(const void *g) { return ((const group *)g)->size; }

/* ---- Messages -------------------------------------------------------------------------------- */

static tl_status request_of(tl_ctx *ctx, MPI_Request **out)
{
    *out = malloc(sizeof **out);
    return *out ? TL_OK : tl_fail(ctx, TL_ENOMEM, "out of memory");
}

static tl_status begun(tl_ctx *ctx, const char *what, int code, MPI_Request *r, void **out_request)
{
    tl_status st = checked(ctx, what, code);
    if (st == TL_OK) *out_request = r;
    else free(r);
    return st;
}

static tl_status send(tl_ctx *ctx, void *to_group, int to, int tag, const void *data, int64_t count,
                      void **out_request)
{
    MPI_Request *r = NULL;
    tl_status    st = fits(ctx, count);
    if (st == TL_OK) st = request_of(ctx, &r);
    if (st != TL_OK) return st;
    return begun(ctx, "MPI_Isend", MPI_Isend(data, (int)count, MPI_INT32_T, to, tag,
                                             ((group *)to_group)->comm, r), r, out_request);
}

static tl_status receive(tl_ctx *ctx, void *from_group, int from, int tag, void *data,
                         int64_t count, void **out_request)
{
    MPI_Request *r = NULL;
    tl_status    st = fits(ctx, count);
    if (st == TL_OK) st = request_of(ctx, &r);
    if (st != TL_OK) return st;
    return begun(ctx, "MPI_Irecv", MPI_Irecv(data, (int)count, MPI_INT32_T, from, tag,
                                             ((group *)from_group)->comm, r), r, out_request);
}

static tl_status finish(tl_ctx *ctx, void *request, int64_t *out_count)
{
    MPI_Status status;
    int        count = 0;
    tl_status  st = checked(ctx, "MPI_Wait", MPI_Wait(request, &status));
    if (st == TL_OK && out_count) {
        st = checked(ctx, "MPI_Get_count", MPI_Get_count(&status, MPI_INT32_T, &count));
        *out_count = count;
    }
    free(request);
    return st;
}

static tl_status waits(tl_ctx *ctx, void *from_group, int from, int tag, int *out_waits)
{
    return checked(ctx, "MPI_Iprobe", MPI_Iprobe(from, tag, ((group *)from_group)->comm, out_waits,
                                                 MPI_STATUS_IGNORE));
}

/* ---- Together -------------------------------------------------------------------------------- */

static tl_status broadcast(tl_ctx *ctx, void *of, int root, void *data, int64_t count)
{
    tl_status st = fits(ctx, count);
    if (st != TL_OK) return st;
    return checked(ctx, "MPI_Bcast",
                   MPI_Bcast(data, (int)count, MPI_INT32_T, root, ((group *)of)->comm));
}

static tl_status exchange(tl_ctx *ctx, void *of, const void *in, void *out, int64_t count)
{
    tl_status st = fits(ctx, count);
    if (st != TL_OK) return st;
    return checked(ctx, "MPI_Alltoall", MPI_Alltoall(in, (int)count, MPI_INT32_T, out, (int)count,
                                                     MPI_INT32_T, ((group *)of)->comm));
}

static tl_status barrier(tl_ctx *ctx, void *of)
{
    return checked(ctx, "MPI_Barrier", MPI_Barrier(((group *)of)->comm));
}

static void end_all(void *of, int code) { (void)MPI_Abort(((group *)of)->comm, code); }

const tl_transport tl_transport_entry = {
    .abi = TL_TRANSPORT_ABI, .name = "mpi", .open = open_all, .split = split, .close = close_group,
    .rank = rank_of, .size = size_of, .send = send, .receive = receive, .finish = finish,
    .broadcast = broadcast, .exchange = exchange, .barrier = barrier, .waits = waits,
    .end_all = end_all,
};

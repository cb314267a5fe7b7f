/* ranks.c - groups of processes: joining them, and sums and copies across them. The processes reach
** one another by a shared object that is loaded when the first group is joined (transport.h). */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/shared.h"
#include "ranks/ranks.h"

/* ---- Joining and leaving --------------------------------------------------------------------- */

tl_status tl_ranks_file(tl_ctx *ctx, const char *name, char *path, size_t size)
{
    static const tl_shared_kind kinds[2] = {
        {"a transport", "tl_transport_entry", TL_TRANSPORT_ABI, TL_ENOTFOUND},
        {"a link", "tl_link_entry", TL_LINK_ABI, TL_ENOTFOUND}};
    int         link = strcmp(name, "nccl") == 0;
    const void *entry = NULL;
    void       *file = NULL;
    if (tl_beside_library(link ? "ranks/nccl.so" : "ranks/mpi.so", path, size))
        return tl_shared_open(ctx, &kinds[link], path, path, &file, &entry);
    return tl_fail(ctx, TL_ENOTFOUND, link ? "this build has no NCCL, by which GPUs exchange "
                   "tensors directly: install it (package libnccl-dev) beside the CUDA toolkit and "
                   "build again" : "several ranks need MPI, which this build lacks: install Open "
                   "MPI (packages openmpi-bin, libopenmpi-dev) and build again");
}

static tl_status wrap(tl_ctx *ctx, const tl_transport *t, void *group, tl_ranks **out)
{
    tl_ranks *r = calloc(1, sizeof *r);
    if (!r) {
        t->close(group);
        return tl_fail(ctx, TL_ENOMEM, "out of memory");
    }
    *r = (tl_ranks){.refs = 1, .ctx = ctx, .transport = t, .group = group,
                    .rank = t->rank(group), .size = t->size(group)};
    ctx->refs++;
    ctx->groups++;
    *out = r;
    return TL_OK;
}

tl_status tl_ranks_open(tl_ctx *ctx, tl_ranks **out_ranks)
{
    static const tl_shared_kind kind = {"a transport", "tl_transport_entry", TL_TRANSPORT_ABI,
                                        TL_EIO};
    char        path[PATH_MAX];
    const void *entry = NULL;
    void       *file = NULL, *group = NULL; /* the file stays mapped: see plugin.c */
    tl_status   st = tl_ranks_file(ctx, "mpi", path, sizeof path);
    if (st == TL_OK) st = tl_shared_open(ctx, &kind, path, path, &file, &entry);
    if (st != TL_OK) return st;
    const tl_transport *t = entry;
    st = t->open(ctx, &group);
    return st == TL_OK ? wrap(ctx, t, group, out_ranks) : st;
}

tl_status tl_ranks_split(tl_ranks *r, int colour, tl_ranks **out_ranks)
{
    void     *group = NULL;
    tl_ranks *part = NULL;
    tl_status st = r->transport->split(r->ctx, r->group, colour, &group);
    if (st == TL_OK) st = wrap(r->ctx, r->transport, group, &part);
    if (st == TL_OK) st = tl_link_open(part);
    if (st == TL_OK) *out_ranks = part;
    else tl_ranks_free(part);
    return st;
}

const char *tl_ranks_link(const tl_ranks *r) { return r->link ? r->link->name : NULL; }

void tl_ranks_free(tl_ranks *r)
{
    if (!r || --r->refs > 0) return;
    /* MPI may still read the tensors of sends that tl_ranks_finish did not wait for, and waiting
    ** here might never end after a failure. They therefore stay allocated. */
    free(r->parcels);
    tl_link_close(r);
    r->transport->close(r->group);
    r->ctx->groups--;
    tl_ctx_unref(r->ctx);
    free(r);
}

int tl_ranks_rank(const tl_ranks *r) { return r->rank; }

int tl_ranks_size(const tl_ranks *r) { return r->size; }

void tl_ranks_end_all(tl_ranks *r, int code) { r->transport->end_all(r->group, code); }

/* ---- One to another -------------------------------------------------------------------------- */

static tl_status check_rank(tl_ranks *r, int rank)
{
    if (rank >= 0 && rank < r->size) return TL_OK;
    return tl_fail(r->ctx, TL_EINVAL, "ranks: %d is not one of %d ranks", rank, r->size);
}

/* A message of a rank to itself would stay in the queue of a link for ever. */
tl_status tl_ranks_check_other(tl_ranks *r, int rank)
{
    if (rank != r->rank) return check_rank(r, rank);
    return tl_fail(r->ctx, TL_EINVAL, "ranks: rank %d cannot send a message to itself", rank);
}

static tl_status check_message(tl_ranks *r, int rank, int tag, const tl_tensor *t)
{
    if (tag < 1) return tl_fail(r->ctx, TL_EINVAL, "ranks: tag %d is not positive", tag);
    if (r->link && t && t->type != TL_F32)
        return tl_fail(r->ctx, TL_ETYPE, "ranks: int32 tensors cannot be sent from GPU to GPU");
    return tl_ranks_check_other(r, rank);
}

tl_status tl_ranks_send(tl_ranks *r, int to, int tag, tl_tensor *t)
{
    tl_status st = check_message(r, to, tag, t);
    if (st != TL_OK) return st;
    return r->link ? tl_link_send(r, to, tag, t) : tl_ranks_post(r, to, tag, t);
}

tl_status tl_ranks_finish(tl_ranks *r)
{
    tl_status st = r->link ? tl_link_flush(r) : TL_OK; /* messages to lower ranks are held */
    tl_status ended = tl_ranks_wait(r);
    return st == TL_OK ? ended : st;
}

tl_status tl_ranks_receive(tl_ranks *r, int from, int tag, tl_tensor *t)
{
    void     *request = NULL;
    int64_t   count = 0;
    tl_status st = check_message(r, from, tag, t);
    if (st == TL_OK && r->link) return tl_link_receive(r, from, tag, t);
    if (st == TL_OK) st = tl_to_cpu(t);
    if (st == TL_OK)
        st = r->transport->receive(r->ctx, r->group, from, tag, DATA(t), t->len, &request);
    if (st == TL_OK) st = r->transport->finish(r->ctx, request, &count);
    if (st == TL_OK && count != t->len)
        return tl_fail(r->ctx, TL_ESHAPE, "ranks: rank %d sent %lld numbers for %s", from,
                       (long long)count, SHAPE(t));
    if (st == TL_OK) t->storage->version++;
    return st;
}

/* ---- Together -------------------------------------------------------------------------------- */

tl_status tl_ranks_barrier(tl_ranks *r) { return r->transport->barrier(r->ctx, r->group); }

tl_status tl_ranks_broadcast(tl_ranks *r, int root, tl_tensor *t)
{
    tl_status st = check_rank(r, root);
    if (st == TL_OK && r->link) return tl_link_broadcast(r, root, t);
    if (st == TL_OK) st = tl_to_cpu(t);
    if (st != TL_OK) return st;
    st = r->transport->broadcast(r->ctx, r->group, root, DATA(t), t->len);
    if (r->rank != root) t->storage->version++;
    return st;
}

tl_status tl_ranks_broadcast_words(tl_ranks *r, int root, int32_t *words, int64_t count)
{
    tl_status st = check_rank(r, root);
    return st == TL_OK ? r->transport->broadcast(r->ctx, r->group, root, words, count) : st;
}

/* Adds the parts of the ranks in their order, so that the sum does not depend on timing. */
static void add_parts(const float *parts, int count, int64_t len, float *sum)
{
    memcpy(sum, parts, (size_t)len * sizeof *sum);
    for (int i = 1; i < count; i++)
        for (int64_t k = 0; k < len; k++) sum[k] += parts[i * len + k];
}

/* Every rank sums one part of the elements and then hands its part to all, so that each sends
** 2 (size-1)/size of the elements, whatever the size. */
tl_status tl_ranks_sum(tl_ranks *r, tl_tensor *t)
{
    int64_t   part = (t->len + r->size - 1) / r->size, all = part * r->size;
    if (t->type != TL_F32)
        return tl_fail(r->ctx, TL_ETYPE, "ranks: int32 tensors cannot be summed");
    if (r->link) return tl_link_sum(r, t);
    tl_status st = tl_to_cpu(t);
    if (st != TL_OK || r->size == 1 || t->len == 0) return st;
    float *in = tl_alloc(r->ctx, (size_t)(3 * all) * sizeof *in);
    if (!in) return TL_ENOMEM;
    float *got = in + all, *out = got + all;
    memcpy(in, F32(t), (size_t)t->len * sizeof *in);
    memset(in + t->len, 0, (size_t)(all - t->len) * sizeof *in);
    st = r->transport->exchange(r->ctx, r->group, in, got, part);
    if (st == TL_OK) {
        add_parts(got, r->size, part, in);
        for (int i = 1; i < r->size; i++) memcpy(in + i * part, in, (size_t)part * sizeof *in);
        st = r->transport->exchange(r->ctx, r->group, in, out, part);
    }
    if (st == TL_OK) {
        memcpy(F32(t), out, (size_t)t->len * sizeof *out);
        t->storage->version++;
    }
    tl_release(r->ctx, in);
    return st;
}

tl_status tl_ranks_send_word(tl_ranks *r, int to, int tag, int32_t word)
{
    void     *request = NULL;
    tl_status st = check_message(r, to, tag, NULL);
    if (st == TL_OK)
        st = r->transport->send(r->ctx, r->group, to, tag, &word, 1, &request);
    return st == TL_OK ? r->transport->finish(r->ctx, request, NULL) : st;
}

tl_status tl_ranks_take_word(tl_ranks *r, int from, int tag, int *out_there, int32_t *out_word)
{
    void     *request = NULL;
    int       there = 0;
    int32_t   word = 0;
    tl_status st = check_message(r, from, tag, NULL);
    if (st == TL_OK) st = r->transport->waits(r->ctx, r->group, from, tag, &there);
    if (st == TL_OK && there) {
        st = r->transport->receive(r->ctx, r->group, from, tag, &word, 1, &request);
        if (st == TL_OK) st = r->transport->finish(r->ctx, request, NULL);
    }
    if (st != TL_OK) return st;
    *out_there = there;
    if (there) *out_word = word;
    return TL_OK;
}

/* link.c - tensors that go from GPU to GPU, where the ranks of a group compute on GPUs and all of
** them have the shared object for it (link.h); elsewhere they go through the memory of the CPU. */
#include <limits.h>
#include <stdlib.h>

#include "base/shared.h"
#include "engine/device.h"
#include "ranks/ranks.h"

/* ---- Opening --------------------------------------------------------------------------------- */

static const tl_link *find_link(tl_ctx *ctx)
{
    static const tl_shared_kind kind = {"a link", "tl_link_entry", TL_LINK_ABI, TL_EIO};
    char        path[PATH_MAX];
    const void *entry = NULL;
    void       *file = NULL; /* stays mapped: see plugin.c */
    if (!ctx->engine->link || !tl_beside_library(ctx->engine->link, path, sizeof path)) return NULL;
    return tl_shared_open(ctx, &kind, path, path, &file, &entry) == TL_OK ? entry : NULL;
}

/* Returns in *out_all whether `own` is true on all ranks. */
static tl_status on_all(tl_ranks *r, int own, int *out_all)
{
    int32_t *words = calloc((size_t)r->size * 2, sizeof *words);
    if (!words) return tl_fail(r->ctx, TL_ENOMEM, "out of memory");
    for (int i = 0; i < r->size; i++) words[i] = own;
    tl_status st = r->transport->exchange(r->ctx, r->group, words, words + r->size, 1);
    *out_all = 1;
    for (int i = 0; i < r->size; i++) *out_all &= words[r->size + i];
    free(words);
    return st;
}

tl_status tl_link_open(tl_ranks *r)
{
    int all = 0;
    if (!r->ctx->engine || r->size == 1) return TL_OK;
    const tl_link *link = find_link(r->ctx);
    tl_status      st = on_all(r, link != NULL, &all);
    if (st != TL_OK || !all) return st;
    st = link->open(r->ctx, r->transport, r->group, &r->channel);
    if (st == TL_OK) r->link = link;
    return st;
}

static void mail_free(tl_mail *m)
{
    while (m) {
        tl_mail *next = m->next;
        tl_tensor_drop(m->t);
        free(m);
        m = next;
    }
}

void tl_link_close(tl_ranks *r)
{
    mail_free(r->mail);
    mail_free(r->held);
    if (!r->link) return;
    (void)tl_synchronize(r->ctx);
    r->link->close(r->channel);
}

/* ---- Messages -------------------------------------------------------------------------------- */
/* A link has no tags: two ranks must name the messages between them in one order. So the transport
** announces each message, with its tag and size, and the receiver keeps those that it needs later.
**
** NCCL's send keeps the stream of the device, and so all work after it, waiting until the receiver
** posts its receive. Gradients go round the ranks in a ring, from rank 0 to 1 and so on to the last
** one, and from that to rank 0 again. If every rank sent in the middle of its pass, each could wait
** for the next one, and none would go on. The ring is broken where it leads to a lower rank: such
** messages are queued in `held` until the pass of the sender has ended, and are then sent one after
** the other. The receiver takes all of them as soon as it needs the first. */

#define ANNOUNCED 0    /* the tag of announcements; messages have others */
#define SEVERAL   (-1) /* announces several messages */

/* Holds t, unless it fails. */
static tl_status append(tl_ranks *r, tl_mail **last, int peer, int tag, tl_tensor *t)
{
    tl_mail *m = calloc(1, sizeof *m);
    if (!m) return tl_fail(r->ctx, TL_ENOMEM, "out of memory");
    *m = (tl_mail){.peer = peer, .tag = tag, .t = t ? tl_tensor_hold(t) : NULL};
    while (*last) last = &(*last)->next;
    *last = m;
    return TL_OK;
}

static tl_status announce(tl_ranks *r, int to, int tag, int32_t count)
{
    const int64_t dims[1] = {2};
    tl_tensor    *words = NULL;
    tl_status     st = tl_tensor_new_host(r->ctx, TL_I32, 1, dims, &words);
    if (st != TL_OK) return st;
    I32(words)[0] = tag;
    I32(words)[1] = count;
    st = tl_ranks_post(r, to, ANNOUNCED, words);
    tl_tensor_free(words);
    return st;
}

static tl_status send_now(tl_ranks *r, int to, int tag, tl_tensor *t)
{
    tl_status st = t ? tl_to_device(t, r->ctx->device) : TL_OK;
    if (st == TL_OK) st = announce(r, to, tag, t ? (int32_t)t->len : 0);
    if (st == TL_OK && t && t->len > 0)
        st = r->link->send(r->ctx, r->channel, to, DATA(t), t->len);
    return st;
}

tl_status tl_link_send(tl_ranks *r, int to, int tag, tl_tensor *t)
{
    if (t && t->len > INT32_MAX)
        return tl_fail(r->ctx, TL_EINVAL, "ranks: a message of %lld numbers; the most is %d",
                       (long long)t->len, INT32_MAX);
    if (to > r->rank) return send_now(r, to, tag, t);
    return append(r, &r->held, to, tag, t);
}

tl_status tl_link_flush(tl_ranks *r)
{
    tl_mail  *m, *all = r->held;
    tl_status st = TL_OK;
    for (int to = 0; to < r->rank && st == TL_OK; to++) {
        int32_t count = 0;
        for (m = all; m; m = m->next) count += m->peer == to;
        if (count > 0) st = announce(r, to, SEVERAL, count);
        for (m = all; m && st == TL_OK; m = m->next)
            if (m->peer == to) st = send_now(r, to, m->tag, m->t);
    }
    mail_free(all);
    r->held = NULL;
    return st;
}

static tl_status receive_one(tl_ranks *r, int from, int tag, int32_t count)
{
    const int64_t dims[1] = {count};
    tl_tensor    *t = NULL;
    tl_status     st = count > 0 ? tl_new(r->ctx, TL_F32, 1, dims, &t) : TL_OK;
    if (st == TL_OK && t) st = tl_to_device(t, r->ctx->device);
    if (st == TL_OK && t) st = r->link->receive(r->ctx, r->channel, from, DATA(t), count);
    if (st == TL_OK) st = append(r, &r->mail, from, tag, t);
    tl_tensor_free(t);
    return st;
}

/* Waits for the next announcement of rank `from`, and receives what it announces. */
static tl_status next_mail(tl_ranks *r, int from)
{
    int32_t   words[2], left = 1;
    tl_status st = TL_OK;
    while (left > 0 && st == TL_OK) {
        void *request = NULL;
        st = r->transport->receive(r->ctx, r->group, from, ANNOUNCED, words, 2, &request);
        if (st == TL_OK) st = r->transport->finish(r->ctx, request, NULL);
        if (st != TL_OK) break;
        left--;
        if (words[0] == SEVERAL) left = words[1];
        else st = receive_one(r, from, words[0], words[1]);
    }
    return st;
}

tl_status tl_link_take(tl_ranks *r, int from, int tag, const tl_tensor *like, tl_tensor **out_t)
{
    for (;;) {
        tl_mail **at = &r->mail;
        while (*at && ((*at)->peer != from || (*at)->tag != tag)) at = &(*at)->next;
        tl_mail *m = *at;
        if (!m) {
            tl_status st = next_mail(r, from);
            if (st != TL_OK) return st;
            continue;
        }
        *at = m->next;
        tl_status st = TL_OK;
        *out_t = NULL;
        if (m->t && m->t->len != like->len)
            st = tl_fail(r->ctx, TL_ESHAPE, "ranks: rank %d sent %lld numbers for %s", from,
                         (long long)m->t->len, SHAPE(like));
        else if (m->t)
            st = tl_tensor_view(m->t, 0, like->ndim, like->dims, out_t);
        tl_tensor_drop(m->t);
        free(m);
        return st;
    }
}

tl_status tl_link_receive(tl_ranks *r, int from, int tag, tl_tensor *t)
{
    tl_tensor *got = NULL;
    tl_status  st = tl_link_take(r, from, tag, t, &got);
    if (st == TL_OK && !got)
        return tl_fail(r->ctx, TL_ESHAPE, "ranks: rank %d sent no numbers for %s", from, SHAPE(t));
    if (st == TL_OK) st = tl_tensor_copy(t, got);
    tl_tensor_free(got);
    return st;
}

/* ---- Together -------------------------------------------------------------------------------- */

tl_status tl_link_broadcast(tl_ranks *r, int root, tl_tensor *t)
{
    tl_status st = tl_to_device(t, r->ctx->device);
    if (st == TL_OK && t->len > 0)
        st = r->link->broadcast(r->ctx, r->channel, root, DATA(t), t->len);
    if (r->rank != root) t->storage->version++;
    return st;
}

/* Adds the rows of parts [size,len] in their order to t. */
static tl_status add_rows(tl_ranks *r, tl_tensor *parts, tl_tensor *t)
{
    tl_tensor *sum = NULL;
    tl_status  st = tl_tensor_view(parts, 0, t->ndim, t->dims, &sum);
    for (int i = 1; i < r->size && st == TL_OK; i++) {
        tl_tensor *row = NULL, *next = NULL;
        st = tl_tensor_view(parts, i * t->len, t->ndim, t->dims, &row);
        if (st == TL_OK) st = tl_binary(TL_BINARY_ADD, sum, row, &next);
        tl_tensor_free(row);
        if (st != TL_OK) break;
        tl_tensor_free(sum);
        sum = next;
    }
    if (st == TL_OK) st = tl_tensor_copy(t, sum);
    tl_tensor_free(sum);
    return st;
}

tl_status tl_link_sum(tl_ranks *r, tl_tensor *t)
{
    const int64_t dims[2] = {r->size, t->len};
    tl_tensor    *parts = NULL;
    if (t->len == 0) return TL_OK;
    tl_status st = tl_to_device(t, r->ctx->device);
    if (st == TL_OK) st = tl_new(r->ctx, TL_F32, 2, dims, &parts);
    if (st == TL_OK) st = tl_to_device(parts, r->ctx->device);
    if (st == TL_OK) st = r->link->gather(r->ctx, r->channel, DATA(t), DATA(parts), t->len);
    if (st == TL_OK) st = add_rows(r, parts, t);
    tl_tensor_free(parts);
    return st;
}

/* Both forms of a sequence that is shared are p parts side by side, which change places with the
** axis before them. */
tl_status tl_link_turn(tl_ranks *r, tl_tensor *x, const int64_t *from, const int64_t *to,
                       const int64_t *dims, tl_tensor **out_y)
{
    static const int swapped[3] = {1, 0, 2};
    const int64_t    arrived[3] = {to[1], to[0], to[2]};
    tl_tensor       *whole = NULL, *in = NULL, *out = NULL, *turned = NULL;
    tl_status        st = tl_tensor_view(x, 0, 3, from, &whole);
    if (st == TL_OK) st = tl_transpose(whole, swapped, &in);
    if (st == TL_OK) st = tl_new(r->ctx, TL_F32, 3, arrived, &out);
    if (st == TL_OK) st = tl_to_device(out, r->ctx->device);
    if (st == TL_OK)
        st = r->link->exchange(r->ctx, r->channel, DATA(in), DATA(out), x->len / r->size);
    if (st == TL_OK) st = tl_transpose(out, swapped, &turned);
    if (st == TL_OK) st = tl_tensor_view(turned, 0, 3, dims, out_y);
    tl_tensor_free(whole);
    tl_tensor_free(in);
    tl_tensor_free(out);
    tl_tensor_free(turned);
    return st;
}

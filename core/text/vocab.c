/* vocab.c - the parts that all kinds of vocabularies share: their tokens, and encoders. */
#include <string.h>

#include "base/memory.h"
#include "text/vocab.h"

/* ---- Vocabularies ---------------------------------------------------------------------------- */

tl_status tl_vocab_new(tl_ctx *ctx, const tl_vocab_kind *kind, void *state, tl_vocab **out_v)
{
    tl_vocab *v = tl_alloc(ctx, sizeof *v);
    if (!v) {
        if (kind->release) kind->release(state);
        return TL_ENOMEM;
    }
    *v = (tl_vocab){.refs = 1, .ctx = ctx, .kind = kind, .state = state, .eos = -1};
    ctx->refs++;
    *out_v = v;
    return TL_OK;
}

tl_status tl_vocab_extend(tl_vocab *v, const char *token, size_t bytes)
{
    tl_status st = tl_grow(v->ctx, &v->bytes, &v->bytes_cap, v->used + bytes, 1);
    if (st == TL_OK && bytes) memcpy(v->bytes + v->used, token, bytes);
    if (st == TL_OK) v->starts[v->size] = v->used += bytes;
    return st;
}

tl_status tl_vocab_add(tl_vocab *v, const char *token, size_t bytes)
{
    size_t next = (size_t)v->size + 1;
    tl_status st = tl_grow(v->ctx, &v->starts, &v->starts_cap, next + 1, sizeof *v->starts);
    if (st != TL_OK) return st;
    v->starts[v->size++] = v->used;
    return tl_vocab_extend(v, token, bytes);
}

tl_status tl_vocab_finish(tl_status st, tl_vocab *v, tl_vocab **out_v)
{
    if (st == TL_OK)
        *out_v = v;
    else
        tl_vocab_free(v);
    return st;
}

tl_status tl_vocab_not_utf8(tl_ctx *ctx, const char *byte, uint64_t at)
{
    return tl_fail(ctx, TL_EINVAL, "byte 0x%02x at offset %llu is not UTF-8",
                   (unsigned char)*byte, (unsigned long long)at);
}

int tl_by_frequency(const void *a, const void *b)
{
    const tl_counted *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

void tl_vocab_free(tl_vocab *v)
{
    if (!v || --v->refs) return;
    tl_ctx *ctx = v->ctx;
    if (v->kind->release) v->kind->release(v->state);
    tl_release(ctx, v->bytes);
    tl_release(ctx, v->starts);
    tl_release(ctx, v);
    tl_ctx_unref(ctx);
}

int32_t tl_vocab_size(const tl_vocab *v) { return v->size; }

int32_t tl_vocab_eos(const tl_vocab *v) { return v->eos; }

const char *tl_vocab_token(const tl_vocab *v, int32_t id, size_t *out_bytes)
{
    if (id < 0 || id >= v->size) return NULL;
    *out_bytes = v->starts[id + 1] - v->starts[id];
    return v->bytes + v->starts[id];
}

/* ---- Encoders -------------------------------------------------------------------------------- */

static tl_encoder encoder_start(tl_vocab *v)
{
    return (tl_encoder){.vocab = v, .feed = {.ctx = v->ctx}};
}

static void encoder_drop(tl_encoder *e)
{
    tl_feed_free(&e->feed);
    while (e->first) {
        tl_chunk *next = e->first->next;
        tl_release(e->vocab->ctx, e->first);
        e->first = next;
    }
}

static tl_status encoder_add_chunk(tl_encoder *e)
{
    tl_chunk *chunk = tl_alloc(e->vocab->ctx, sizeof *chunk);
    if (!chunk) return TL_ENOMEM;
    chunk->next = NULL;
    if (e->last) {
        e->last->next = chunk;
    } else {
        e->first = chunk;
    }
    e->last = chunk;
    return TL_OK;
}

tl_status tl_encoder_put(tl_encoder *e, const int32_t *ids, int64_t count)
{
    while (count) {
        int64_t used = e->count % TL_CHUNK, fits = TL_CHUNK - used;
        tl_status st = used ? TL_OK : encoder_add_chunk(e);
        if (st != TL_OK) return st;
        if (fits > count) fits = count;
        memcpy(e->last->ids + used, ids, (size_t)fits * sizeof *ids);
        e->count += fits;
        ids += fits;
        count -= fits;
    }
    return TL_OK;
}

static tl_status encoder_take(void *user, const char *text, size_t bytes, int last,
                              size_t *out_used)
{
    tl_encoder *e = user;
    return e->vocab->kind->take(e, text, bytes, last, out_used);
}

static tl_status encoder_feed(tl_encoder *e, const char *text, size_t bytes, int last)
{
    return tl_feed_part(&e->feed, text, bytes, last, encoder_take, e);
}

/* Returns the ids as one tensor and releases each block once it is copied, so that little memory is
** needed twice. */
static tl_status encoder_collect(tl_encoder *e, tl_tensor **out_ids)
{
    tl_tensor *t;
    tl_status st = tl_tensor_new_host(e->vocab->ctx, TL_I32, 1, &e->count, &t);
    if (st != TL_OK) return st;
    for (int64_t at = 0; at < e->count; at += TL_CHUNK) {
        int64_t left = e->count - at < TL_CHUNK ? e->count - at : TL_CHUNK;
        tl_chunk *chunk = e->first;
        memcpy(I32(t) + at, chunk->ids, (size_t)left * sizeof *chunk->ids);
        e->first = chunk->next;
        tl_release(e->vocab->ctx, chunk);
    }
    *out_ids = t;
    return TL_OK;
}

tl_status tl_vocab_encode(tl_vocab *v, const char *text, size_t bytes, tl_tensor **out_ids)
{
    tl_encoder e = encoder_start(v);
    tl_status st = encoder_feed(&e, text, bytes, 1);
    if (st == TL_OK) st = encoder_collect(&e, out_ids);
    encoder_drop(&e);
    return st;
}

tl_status tl_encoder_new(tl_vocab *v, tl_encoder **out_e)
{
    tl_encoder *e = tl_alloc(v->ctx, sizeof *e);
    if (!e) return TL_ENOMEM;
    *e = encoder_start(v);
    v->refs++;
    *out_e = e;
    return TL_OK;
}

tl_status tl_encoder_feed(tl_encoder *e, const char *text, size_t bytes)
{
    return encoder_feed(e, text, bytes, 0);
}

int64_t tl_encoder_count(const tl_encoder *e) { return e->count; }

tl_status tl_encoder_finish(tl_encoder *e, tl_tensor **out_ids)
{
    tl_status st = encoder_feed(e, "", 0, 1);
    return st == TL_OK ? encoder_collect(e, out_ids) : st;
}

void tl_encoder_free(tl_encoder *e)
{
    if (!e) return;
    tl_vocab *v = e->vocab;
    encoder_drop(e);
    tl_release(v->ctx, e);
    tl_vocab_free(v);
}

/* counter.c - counts the words or pieces of a text, from which vocabularies are built. */
#include "base/memory.h"
#include "text/counter.h"

tl_status tl_counter_new(tl_ctx *ctx, tl_counter_kind kind, tl_counter **out_c)
{
    tl_counter *c = tl_alloc(ctx, sizeof *c);
    if (!c) return TL_ENOMEM;
    *c = (tl_counter){.ctx = ctx, .kind = kind, .feed = {.ctx = ctx}, .seen = {.ctx = ctx}};
    ctx->refs++;
    tl_status st = kind == TL_COUNT_PIECES ? tl_pieces_new(ctx, &c->pieces) : TL_OK;
    if (st == TL_OK) {
        *out_c = c;
    } else {
        tl_counter_free(c);
    }
    return st;
}

void tl_counter_free(tl_counter *c)
{
    if (!c) return;
    tl_ctx *ctx = c->ctx;
    tl_feed_free(&c->feed);
    tl_pieces_free(c->pieces);
    tl_intern_free(&c->seen);
    tl_release(ctx, c->counts);
    tl_release(ctx, c);
    tl_ctx_unref(ctx);
}

static tl_status counter_add(void *user, const char *s, size_t bytes)
{
    int32_t id;
    tl_counter *c = user;
    int32_t before = c->seen.count;
    tl_status st = tl_intern_add(&c->seen, s, bytes, &id);
    if (st == TL_OK && id == before)
        st = tl_grow(c->ctx, &c->counts, &c->counts_cap, (size_t)id + 1, sizeof *c->counts);
    if (st != TL_OK) return st;
    if (id == before) c->counts[id] = 0;
    c->counts[id]++;
    return TL_OK;
}

static tl_status counter_take(void *user, const char *text, size_t bytes, int last,
                              size_t *out_used)
{
    tl_counter *c = user;
    if (c->kind == TL_COUNT_WORDS)
        return tl_words_walk(text, bytes, last, counter_add, c, out_used);
    return tl_pieces_walk(c->pieces, text, bytes, last, counter_add, c, out_used);
}

tl_status tl_counter_feed(tl_counter *c, const char *text, size_t bytes)
{
    return tl_feed_part(&c->feed, text, bytes, 0, counter_take, c);
}

tl_status tl_counter_end(tl_counter *c)
{
    return c->feed.ended ? TL_OK : tl_feed_part(&c->feed, "", 0, 1, counter_take, c);
}

int32_t tl_counter_size(const tl_counter *c) { return c->seen.count; }

/* text.c - vocabularies of bytes and of characters. */
#include <string.h>

#include "base/memory.h"
#include "text/utf8.h"
#include "text/vocab.h"

/* ---- Bytes ----------------------------------------------------------------------------------- */

static tl_status take_bytes(tl_encoder *e, const char *text, size_t bytes, int last,
                            size_t *out_used)
{
    int32_t ids[256];
    tl_status st = TL_OK;
    (void)last;
    for (size_t at = 0; st == TL_OK && at < bytes; at += 256) {
        size_t n = bytes - at < 256 ? bytes - at : 256;
        for (size_t i = 0; i < n; i++) ids[i] = (unsigned char)text[at + i];
        st = tl_encoder_put(e, ids, (int64_t)n);
    }
    *out_used = bytes;
    return st;
}

static const tl_vocab_kind bytes_kind = {.take = take_bytes};

tl_status tl_vocab_new_bytes(tl_ctx *ctx, tl_vocab **out_v)
{
    tl_vocab *v = NULL;
    tl_status st = tl_vocab_new(ctx, &bytes_kind, NULL, &v);
    for (int i = 0; st == TL_OK && i < 256; i++) st = tl_vocab_add(v, &(char){(char)i}, 1);
    return tl_vocab_finish(st, v, out_v);
}

/* ---- Characters ------------------------------------------------------------------------------ */

/* The code points of a vocabulary's tokens, in ascending order. */
typedef struct points {
    tl_ctx *ctx;
    int32_t count;
    uint32_t list[];
} points;

static void release_points(void *state)
{
    points *p = state;
    tl_release(p->ctx, p);
}

/* Returns the id of code point c; -1: none. */
static int32_t point_id(const points *p, uint32_t c)
{
    int32_t low = 0, high = p->count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (p->list[middle] < c) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < p->count && p->list[low] == c ? low : -1;
}

static tl_status take_chars(tl_encoder *e, const char *text, size_t bytes, int last,
                            size_t *out_used)
{
    int n;
    size_t at = 0;
    tl_ctx *ctx = e->vocab->ctx;
    for (; at < bytes; at += (size_t)n) {
        uint64_t offset = e->feed.taken + at;
        int32_t c = tl_utf8_decode((const unsigned char *)text + at, bytes - at, &n);
        if (c < 0 && !last && bytes - at < 4) break; /* the rest of the character may follow */
        if (c < 0) return tl_vocab_not_utf8(ctx, text + at, offset);
        int32_t id = point_id(e->vocab->state, (uint32_t)c);
        if (id < 0)
            return tl_fail(ctx, TL_ENOTFOUND,
                           "character '%.*s' (U+%04X) at offset %llu is not in the vocabulary of "
                           "%d characters", n, text + at, (unsigned)c,
                           (unsigned long long)offset, e->vocab->size);
        tl_status st = tl_encoder_put(e, &id, 1);
        if (st != TL_OK) return st;
    }
    *out_used = at;
    return TL_OK;
}

static const tl_vocab_kind chars_kind = {.take = take_chars, .release = release_points};

/* Marks the characters of text in seen. */
static tl_status mark_seen(tl_ctx *ctx, const char *text, size_t bytes, uint8_t *seen)
{
    int n;
    for (size_t at = 0; at < bytes; at += (size_t)n) {
        int32_t c = tl_utf8_decode((const unsigned char *)text + at, bytes - at, &n);
        if (c < 0) return tl_vocab_not_utf8(ctx, text + at, at);
        seen[c] = 1;
    }
    return TL_OK;
}

static tl_status vocab_from_seen(tl_ctx *ctx, const uint8_t *seen, tl_vocab **out_v)
{
    int32_t size = 0;
    for (uint32_t c = 0; c < TL_CODE_POINTS; c++) size += seen[c];
    points *p = tl_alloc(ctx, sizeof *p + (size_t)size * sizeof *p->list);
    if (!p) return TL_ENOMEM;
    *p = (points){.ctx = ctx};
    tl_vocab *v;
    tl_status st = tl_vocab_new(ctx, &chars_kind, p, &v);
    if (st != TL_OK) return st;
    for (uint32_t c = 0; st == TL_OK && c < TL_CODE_POINTS; c++) {
        char token[4];
        if (!seen[c]) continue;
        p->list[p->count++] = c;
        st = tl_vocab_add(v, token, (size_t)tl_utf8_encode(c, token));
    }
    return tl_vocab_finish(st, v, out_v);
}

tl_status tl_vocab_new_chars(tl_ctx *ctx, const char *text, size_t bytes, tl_vocab **out_v)
{
    uint8_t *seen = tl_alloc(ctx, TL_CODE_POINTS);
    if (!seen) return TL_ENOMEM;
    memset(seen, 0, TL_CODE_POINTS);
    tl_status st = mark_seen(ctx, text, bytes, seen);
    if (st == TL_OK) st = vocab_from_seen(ctx, seen, out_v);
    tl_release(ctx, seen);
    return st;
}

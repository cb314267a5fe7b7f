/* characters.c - vocabularies of characters: all of a text, or those that occur often enough in it,
** for tasks that read characters. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/utf8.h"
#include "text/vocab.h"

enum { PAD, UNK, EOS, SPECIALS };

typedef struct characters {
    tl_ctx *ctx;
    int32_t ids[TL_CODE_POINTS]; /* of each code point; those without a token: UNK, or -1 */
} characters;

static void release_characters(void *state)
{
    characters *s = state;
    tl_release(s->ctx, s);
}

static tl_status take_characters(tl_encoder *e, const char *text, size_t bytes, int last,
                                 size_t *out_used)
{
    int n;
    size_t at = 0;
    const characters *s = e->vocab->state;
    for (; at < bytes; at += (size_t)n) {
        uint64_t offset = e->feed.taken + at;
        int32_t c = tl_utf8_decode((const unsigned char *)text + at, bytes - at, &n);
        if (c < 0 && !last && bytes - at < 4) break; /* the rest of the character may follow */
        if (c < 0) return tl_vocab_not_utf8(s->ctx, text + at, offset);
        if (s->ids[c] < 0)
            return tl_fail(s->ctx, TL_ENOTFOUND,
                           "character '%.*s' (U+%04X) at offset %llu is not in the vocabulary of "
                           "%d characters", n, text + at, (unsigned)c,
                           (unsigned long long)offset, e->vocab->size);
        tl_status st = tl_encoder_put(e, &s->ids[c], 1);
        if (st != TL_OK) return st;
    }
    *out_used = at;
    return TL_OK;
}

static const tl_vocab_kind characters_kind = {.take = take_characters,
                                              .release = release_characters};

/* Adds the characters of text to counts [TL_CODE_POINTS]. */
static tl_status count_points(tl_ctx *ctx, const char *text, size_t bytes, tl_counted *counts)
{
    int n;
    for (size_t at = 0; at < bytes; at += (size_t)n) {
        int32_t c = tl_utf8_decode((const unsigned char *)text + at, bytes - at, &n);
        if (c < 0) return tl_vocab_not_utf8(ctx, text + at, at);
        counts[c].count++;
    }
    return TL_OK;
}

static tl_status add_specials(tl_vocab *v)
{
    static const char *const specials[SPECIALS] = {"<pad>", "<unk>", "<eos>"};
    tl_status st = TL_OK;
    for (int i = 0; st == TL_OK && i < SPECIALS; i++)
        st = tl_vocab_add(v, specials[i], strlen(specials[i]));
    v->eos = EOS;
    return st;
}

/* Adds the characters counted at least `least` times, by falling count if sorted, else by code
** point. */
static tl_status add_points(tl_vocab *v, tl_counted *counts, int64_t least, int sorted)
{
    characters *s = v->state;
    size_t count = 0;
    tl_status st = TL_OK;
    for (int32_t i = 0; i < TL_CODE_POINTS; i++) {
        s->ids[i] = sorted ? UNK : -1;
        if (counts[i].count >= least) counts[count++] = counts[i];
    }
    if (sorted) qsort(counts, count, sizeof *counts, tl_by_frequency);
    for (size_t i = 0; st == TL_OK && i < count; i++) {
        char token[4];
        s->ids[counts[i].id] = v->size;
        st = tl_vocab_add(v, token, (size_t)tl_utf8_encode((uint32_t)counts[i].id, token));
    }
    return st;
}

static tl_status new_characters(tl_ctx *ctx, const char *text, size_t bytes, int64_t least,
                                int frequent, tl_vocab **out_v)
{
    tl_vocab *v = NULL;
    tl_counted *counts = tl_alloc(ctx, TL_CODE_POINTS * sizeof *counts);
    characters *s = counts ? tl_alloc(ctx, sizeof *s) : NULL;
    tl_status st = s ? TL_OK : TL_ENOMEM;
    for (int32_t i = 0; s && i < TL_CODE_POINTS; i++) counts[i] = (tl_counted){0, i};
    if (s) s->ctx = ctx;
    if (st == TL_OK) st = count_points(ctx, text, bytes, counts);
    if (st == TL_OK) {
        st = tl_vocab_new(ctx, &characters_kind, s, &v); /* takes over s */
        s = NULL;
    }
    if (st == TL_OK && frequent) st = add_specials(v);
    if (st == TL_OK) st = add_points(v, counts, least, frequent);
    tl_release(ctx, counts);
    tl_release(ctx, s);
    return tl_vocab_finish(st, v, out_v);
}

tl_status tl_vocab_new_chars(tl_ctx *ctx, const char *text, size_t bytes, tl_vocab **out_v)
{
    return new_characters(ctx, text, bytes, 1, 0, out_v);
}

tl_status tl_vocab_new_frequent(tl_ctx *ctx, const char *text, size_t bytes, int64_t least,
                                tl_vocab **out_v)
{
    if (least >= 1) return new_characters(ctx, text, bytes, least, 1, out_v);
    return tl_fail(ctx, TL_EINVAL, "vocab_frequent: least is %lld, not positive", (long long)least);
}

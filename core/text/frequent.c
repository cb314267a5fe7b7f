/* frequent.c - a vocabulary of the characters that occur often enough in a text, for tasks that
** read characters. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/utf8.h"
#include "text/vocab.h"

/* ---- Encoding -------------------------------------------------------------------------------- */

enum { PAD, UNK, EOS, SPECIALS };

typedef struct frequent { /* id of each code point; UNK for rare ones */
    tl_ctx *ctx;
    int32_t ids[TL_CODE_POINTS];
} frequent;

static void release_frequent(void *state)
{
    frequent *f = state;
    tl_release(f->ctx, f);
}

static tl_status take_frequent(tl_encoder *e, const char *text, size_t bytes, int last,
                               size_t *out_used)
{
    const frequent *f = e->vocab->state;
    int n;
    size_t at = 0;
    for (; at < bytes; at += (size_t)n) {
        int32_t c = tl_utf8_decode((const unsigned char *)text + at, bytes - at, &n);
        if (c < 0 && !last && bytes - at < 4) break; /* the rest of the character may follow */
        if (c < 0) return tl_vocab_not_utf8(f->ctx, text + at, e->feed.taken + at);
        tl_status st = tl_encoder_put(e, &f->ids[c], 1);
        if (st != TL_OK) return st;
    }
    *out_used = at;
    return TL_OK;
}

static const tl_vocab_kind frequent_kind = {.take = take_frequent, .release = release_frequent};

/* ---- Counting -------------------------------------------------------------------------------- */

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

/* Adds the special tokens and then the characters counted at least `least` times. */
static tl_status add_frequent(tl_vocab *v, tl_counted *counts, int64_t least)
{
    static const char *const specials[SPECIALS] = {"<pad>", "<unk>", "<eos>"};
    frequent *f = v->state;
    size_t count = 0;
    tl_status st = TL_OK;
    for (int i = 0; st == TL_OK && i < SPECIALS; i++)
        st = tl_vocab_add(v, specials[i], strlen(specials[i]));
    v->eos = EOS;
    for (int32_t i = 0; i < TL_CODE_POINTS; i++) {
        f->ids[i] = UNK;
        if (counts[i].count >= least) counts[count++] = counts[i];
    }
    qsort(counts, count, sizeof *counts, tl_by_frequency);
    for (size_t i = 0; st == TL_OK && i < count; i++) {
        char token[4];
        f->ids[counts[i].id] = v->size;
        st = tl_vocab_add(v, token, (size_t)tl_utf8_encode((uint32_t)counts[i].id, token));
    }
    return st;
}

tl_status tl_vocab_new_frequent(tl_ctx *ctx, const char *text, size_t bytes, int64_t least,
                                tl_vocab **out_v)
{
    tl_vocab *v = NULL;
    if (least < 1)
        return tl_fail(ctx, TL_EINVAL, "vocab_frequent: least is %lld, not positive",
                       (long long)least);
    tl_counted *counts = tl_alloc(ctx, TL_CODE_POINTS * sizeof *counts);
    frequent *f = counts ? tl_alloc(ctx, sizeof *f) : NULL;
    tl_status st = f ? TL_OK : TL_ENOMEM;
    for (int32_t i = 0; f && i < TL_CODE_POINTS; i++) counts[i] = (tl_counted){0, i};
    if (f) f->ctx = ctx;
    if (st == TL_OK) st = count_points(ctx, text, bytes, counts);
    if (st == TL_OK) {
        st = tl_vocab_new(ctx, &frequent_kind, f, &v); /* takes over f */
        f = NULL;
    }
    if (st == TL_OK) st = add_frequent(v, counts, least);
    tl_release(ctx, counts);
    tl_release(ctx, f);
    return tl_vocab_finish(st, v, out_v);
}

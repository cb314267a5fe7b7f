/* words.c - the vocabulary of a text that is split into words already, as WikiText's .tokens files:
** single spaces separate words, <eos> is the end of a line (\n or \r\n), <unk> an unknown word. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/counter.h"
#include "text/vocab.h"

/* ---- The vocabulary -------------------------------------------------------------------------- */

typedef struct words { /* string i of list is token i */
    tl_intern list;
    int32_t unk;
} words;

static void release_words(void *state)
{
    words *w = state;
    tl_ctx *ctx = w->list.ctx;
    tl_intern_free(&w->list);
    tl_release(ctx, w);
}

static tl_status put_word(void *user, const char *word, size_t bytes)
{
    tl_encoder *e = user;
    const words *w = e->vocab->state;
    int32_t id = tl_intern_find(&w->list, word, bytes);
    return tl_encoder_put(e, id < 0 ? &w->unk : &id, 1);
}

static tl_status take_words(tl_encoder *e, const char *text, size_t bytes, int last,
                            size_t *out_used)
{
    return tl_words_walk(text, bytes, last, put_word, e, out_used);
}

static const tl_vocab_kind words_kind = {.take = take_words, .release = release_words};

/* Adds a token that decodes to a space and the word, or to " \n" for the end of a line, which gives
** lines as in WikiText. */
static tl_status add_token(tl_vocab *v, int32_t *out_id, const char *word, size_t bytes)
{
    words *w = v->state;
    tl_status st = tl_intern_add(&w->list, word, bytes, out_id);
    if (st != TL_OK || *out_id < v->size) return st;
    int eos = bytes == sizeof TL_EOS - 1 && memcmp(word, TL_EOS, bytes) == 0;
    if (eos) v->eos = *out_id;
    st = tl_vocab_add(v, " ", 1);
    return st == TL_OK ? tl_vocab_extend(v, eos ? "\n" : word, eos ? 1 : bytes) : st;
}

/* Words that occur equally often keep the order of their first occurrence. */
static tl_status add_words(tl_vocab *v, const tl_counter *c, tl_counted *entries)
{
    size_t bytes;
    int32_t id;
    tl_status st = TL_OK;
    for (int32_t i = 0; i < c->seen.count; i++) entries[i] = (tl_counted){c->counts[i], i};
    qsort(entries, (size_t)c->seen.count, sizeof *entries, tl_by_frequency);
    for (int32_t i = 0; st == TL_OK && i < c->seen.count; i++) {
        const char *word = tl_intern_get(&c->seen, entries[i].id, &bytes);
        st = add_token(v, &id, word, bytes);
    }
    if (st == TL_OK) st = add_token(v, &id, TL_EOS, sizeof TL_EOS - 1);
    if (st == TL_OK) st = add_token(v, &((words *)v->state)->unk, TL_UNK, sizeof TL_UNK - 1);
    return st;
}

tl_status tl_vocab_new_words(tl_counter *c, tl_vocab **out_v)
{
    tl_ctx *ctx = c->ctx;
    tl_vocab *v = NULL;
    if (c->kind != TL_COUNT_WORDS)
        return tl_fail(ctx, TL_EINVAL, "vocab_words: pieces were counted, not words");
    tl_status st = tl_counter_end(c);
    if (st != TL_OK) return st;
    tl_counted *entries = tl_alloc(ctx, ((size_t)c->seen.count + 1) * sizeof *entries);
    words *w = entries ? tl_alloc(ctx, sizeof *w) : NULL;
    if (!w) st = TL_ENOMEM;
    if (w) {
        *w = (words){.list = {.ctx = ctx}};
        st = tl_vocab_new(ctx, &words_kind, w, &v);
    }
    if (st == TL_OK) st = add_words(v, c, entries);
    tl_release(ctx, entries);
    return tl_vocab_finish(st, v, out_v);
}

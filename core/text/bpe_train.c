/* bpe_train.c - learns byte pair encoding from the pieces of a text and their counts.
**
** The most frequent pair of neighbours becomes a token, again and again (Sennrich et al. 2016). The
** count of each pair and the pieces that contain it are updated, so that a merge costs in
** proportion to what it changes. Of equally frequent pairs the one with lower token numbers comes
** first, so the result depends on the text alone. A pair whose bytes are already a token is
** skipped. */
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "text/bpe.h"
#include "text/counter.h"

#define NONE UINT32_MAX

typedef struct pair {
    int32_t left, right;
    int64_t count;   /* in the whole text */
    uint32_t places; /* list of pieces that contain or contained it; NONE: its end */
    int32_t touched; /* the last merge that raised its count */
} pair;

typedef struct place { /* an entry of such a list */
    uint32_t piece, next;
} place;

typedef struct waiting { /* a queued pair and its count at that time */
    int64_t count;
    uint32_t pair;
} waiting;

typedef struct trainer {
    tl_ctx *ctx;
    tl_bpe *bpe;
    const int64_t *counts; /* count of each piece */
    int32_t *symbols;      /* tokens of all pieces, one piece after the other */
    size_t *starts;        /* where each piece begins in symbols */
    uint32_t *lengths;     /* number of tokens of each piece */
    pair *pairs;
    size_t pairs_used, pairs_cap;
    tl_intern numbers; /* of the pairs */
    place *places;
    size_t places_used, places_cap;
    waiting *queue; /* a heap, the best first */
    size_t queue_used, queue_cap;
    uint32_t *changed; /* pairs to queue after this merge */
    size_t changed_used, changed_cap;
    char *text; /* the file's content */
    size_t text_used, text_cap;
} trainer;

/* ---- Pairs ----------------------------------------------------------------------------------- */

static tl_status find_pair(trainer *t, int32_t left, int32_t right, int32_t *out_index)
{
    tl_status st = tl_intern_add(&t->numbers, TL_PAIR(left, right), TL_PAIR_BYTES, out_index);
    if (st == TL_OK)
        st = tl_grow(t->ctx, &t->pairs, &t->pairs_cap, t->pairs_used + 1, sizeof *t->pairs);
    if (st == TL_OK && (size_t)*out_index == t->pairs_used)
        t->pairs[t->pairs_used++] = (pair){left, right, 0, NONE, -1};
    return st;
}

/* Counts one more occurrence of the pair in piece. */
static tl_status count_more(trainer *t, int32_t left, int32_t right, uint32_t piece)
{
    int32_t index;
    tl_status st = find_pair(t, left, right, &index);
    if (st == TL_OK)
        st = tl_grow(t->ctx, &t->places, &t->places_cap, t->places_used + 1, sizeof *t->places);
    if (st == TL_OK)
        st =
            tl_grow(t->ctx, &t->changed, &t->changed_cap, t->changed_used + 1, sizeof *t->changed);
    if (st != TL_OK) return st;
    pair *p = &t->pairs[index];
    p->count += t->counts[piece];
    if (p->places == NONE || t->places[p->places].piece != piece) {
        if (t->places_used >= NONE) return tl_fail(t->ctx, TL_ENOMEM, "bpe: the text is too long");
        t->places[t->places_used] = (place){piece, p->places};
        p->places = (uint32_t)t->places_used++;
    }
    if (p->touched == t->bpe->pairs.count) return TL_OK;
    p->touched = t->bpe->pairs.count;
    t->changed[t->changed_used++] = (uint32_t)index;
    return TL_OK;
}

/* Counts one occurrence less of the known pair in piece. */
static void count_less(trainer *t, int32_t left, int32_t right, uint32_t piece)
{
    int32_t index = tl_intern_find(&t->numbers, TL_PAIR(left, right), TL_PAIR_BYTES);
    t->pairs[index].count -= t->counts[piece];
}

/* ---- The queue ------------------------------------------------------------------------------- */

static int better(const trainer *t, waiting a, waiting b)
{
    const pair *x = &t->pairs[a.pair], *y = &t->pairs[b.pair];
    if (a.count != b.count) return a.count > b.count;
    return x->left != y->left ? x->left < y->left : x->right < y->right;
}

static tl_status push(trainer *t, waiting w)
{
    tl_status st = tl_grow(t->ctx, &t->queue, &t->queue_cap, t->queue_used + 1, sizeof *t->queue);
    if (st != TL_OK) return st;
    size_t i = t->queue_used++;
    for (; i && better(t, w, t->queue[(i - 1) / 2]); i = (i - 1) / 2)
        t->queue[i] = t->queue[(i - 1) / 2];
    t->queue[i] = w;
    return TL_OK;
}

static waiting pop(trainer *t)
{
    waiting top = t->queue[0], last = t->queue[--t->queue_used];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < t->queue_used) {
        if (child + 1 < t->queue_used && better(t, t->queue[child + 1], t->queue[child])) child++;
        if (!better(t, t->queue[child], last)) break;
        t->queue[i] = t->queue[child];
        i = child;
    }
    t->queue[i] = last;
    return top;
}

static tl_status queue_changed(trainer *t)
{
    tl_status st = TL_OK;
    for (size_t i = 0; st == TL_OK && i < t->changed_used; i++)
        st = push(t, (waiting){t->pairs[t->changed[i]].count, t->changed[i]});
    t->changed_used = 0;
    return st;
}

/* ---- Learning -------------------------------------------------------------------------------- */

/* Starts with the bytes of every piece as tokens, and counts their pairs. */
static tl_status trainer_begin(trainer *t, const tl_intern *pieces)
{
    size_t n = (size_t)pieces->count + 1, bytes;
    t->symbols = tl_alloc(t->ctx, (pieces->used + 1) * sizeof *t->symbols);
    t->starts = t->symbols ? tl_alloc(t->ctx, n * sizeof *t->starts) : NULL;
    t->lengths = t->starts ? tl_alloc(t->ctx, n * sizeof *t->lengths) : NULL;
    if (!t->lengths) return TL_ENOMEM;
    size_t at = 0;
    tl_status st = TL_OK;
    for (int32_t i = 0; st == TL_OK && i < pieces->count; i++) {
        const char *s = tl_intern_get(pieces, i, &bytes);
        int32_t *symbols = t->symbols + at;
        t->starts[i] = at;
        t->lengths[i] = (uint32_t)bytes;
        at += bytes;
        for (size_t k = 0; k < bytes; k++)
            symbols[k] = t->bpe->alphabet.number[(unsigned char)s[k]];
        for (size_t k = 1; st == TL_OK && k < bytes; k++)
            st = count_more(t, symbols[k - 1], symbols[k], (uint32_t)i);
    }
    return st == TL_OK ? queue_changed(t) : st;
}

/* Replaces every (left, right) in a piece by token. */
static tl_status replace_pair(trainer *t, uint32_t piece, int32_t left, int32_t right,
                              int32_t token)
{
    int32_t *s = t->symbols + t->starts[piece];
    uint32_t n = t->lengths[piece], to = 0;
    tl_status st = TL_OK;
    for (uint32_t from = 0; st == TL_OK && from < n; to++) {
        if (from + 1 == n || s[from] != left || s[from + 1] != right) {
            s[to] = s[from++];
            continue;
        }
        if (to > 0) {
            count_less(t, s[to - 1], left, piece);
            st = count_more(t, s[to - 1], token, piece);
        }
        if (st == TL_OK && from + 2 < n) {
            count_less(t, right, s[from + 2], piece);
            st = count_more(t, token, s[from + 2], piece);
        }
        s[to] = token;
        from += 2;
    }
    t->lengths[piece] = to;
    return st;
}

/* Appends a line of the file: the two tokens, written in the alphabet. */
static tl_status write_line(trainer *t, const pair *p)
{
    const int32_t tokens[2] = {p->left, p->right};
    for (int i = 0; i < 2; i++) {
        size_t n;
        const char *s = tl_intern_get(&t->bpe->tokens, tokens[i], &n);
        tl_status st = tl_grow(t->ctx, &t->text, &t->text_cap, t->text_used + 2 * n + 1, 1);
        if (st != TL_OK) return st;
        t->text_used += tl_alphabet_write(&t->bpe->alphabet, s, n, t->text + t->text_used);
        t->text[t->text_used++] = i ? '\n' : ' ';
    }
    return TL_OK;
}

static tl_status trainer_merge(trainer *t, uint32_t index)
{
    int32_t old, token = t->bpe->tokens.count;
    const pair p = t->pairs[index];
    tl_status st = tl_bpe_merge(t->bpe, p.left, p.right, &old);
    t->pairs[index].count = 0;
    if (st != TL_OK || old >= 0) return st;
    st = write_line(t, &p);
    for (uint32_t i = p.places; st == TL_OK && i != NONE; i = t->places[i].next)
        st = replace_pair(t, t->places[i].piece, p.left, p.right, token);
    t->pairs[index].count = 0; /* overlapping occurrences of (a, a) may leave a rest */
    return st == TL_OK ? queue_changed(t) : st;
}

static tl_status trainer_learn(trainer *t, int32_t size)
{
    tl_status st = TL_OK;
    while (st == TL_OK && t->bpe->tokens.count < size) {
        if (!t->queue_used)
            return tl_fail(t->ctx, TL_EINVAL,
                           "bpe: the text yields %d tokens, fewer than the vocabulary of %d",
                           t->bpe->tokens.count, size);
        waiting best = pop(t);
        int64_t count = t->pairs[best.pair].count;
        if (count < 2) continue; /* a pair that occurs once is not a pattern */
        st = count == best.count ? trainer_merge(t, best.pair)
                                 : push(t, (waiting){count, best.pair});
    }
    return st;
}

static tl_status trainer_save(const trainer *t, const char *path)
{
    char header[sizeof TL_BPE_HEADER + 65] = TL_BPE_HEADER;
    const size_t bytes = sizeof TL_BPE_HEADER - 1 + 65;
    tl_sha256(t->text, t->text_used, header + bytes - 65);
    header[bytes - 1] = '\n';
    return tl_file_replace(t->ctx, path, (tl_part[]){{header, bytes}, {t->text, t->text_used}}, 2);
}

tl_status tl_bpe_train(tl_counter *c, int32_t size, const char *path)
{
    trainer t = {.ctx = c->ctx, .numbers = {.ctx = c->ctx}};
    if (c->kind != TL_COUNT_PIECES)
        return tl_fail(c->ctx, TL_EINVAL, "bpe: words were counted, not pieces");
    if (size < TL_BPE_BYTES)
        return tl_fail(c->ctx, TL_EINVAL, "bpe: the size %d is less than the %d bytes",
                       size, TL_BPE_BYTES);
    tl_status st = tl_counter_end(c);
    if (st == TL_OK) st = tl_bpe_new(c->ctx, &t.bpe);
    t.counts = c->counts;
    if (st == TL_OK) st = trainer_begin(&t, &c->seen);
    if (st == TL_OK) st = trainer_learn(&t, size);
    if (st == TL_OK) st = trainer_save(&t, path);
    tl_bpe_free(t.bpe);
    tl_intern_free(&t.numbers);
    void *const blocks[] = {t.symbols, t.starts, t.lengths, t.pairs,
                            t.places,  t.queue,  t.changed, t.text};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) tl_release(c->ctx, blocks[i]);
    return st;
}

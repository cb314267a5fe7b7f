/* bpe.c - encodes a text by byte pairs as GPT-2's encoder does.
**
** In each piece of the text, the pair of neighbours that training merged first is merged wherever
** it stands, from left to right, until no known pair is left. A queue of (merge, place) does the
** same in n log n steps: only one merge creates a token, so every pair with that token has a later
** merge. */
#include <string.h>

#include "base/memory.h"
#include "text/bpe.h"
#include "text/utf8.h"

#define NONE             INT32_MAX
#define MAX_PIECE_BYTES  ((size_t)1 << 28)
#define MAX_WORD_BYTES   64        /* longest piece, in bytes, that the cache of words holds */
#define MAX_CACHED_WORDS (1 << 17) /* entries of that cache; when it is full, it is cleared */

struct tl_bpe_part { /* one token of a piece, linked to its neighbours */
    int32_t token;
    int32_t before, after; /* places of the neighbours; -1: none */
    int32_t merge;         /* the merge of this token and the next; NONE: they do not merge */
};

/* ---- The alphabet ---------------------------------------------------------------------------- */

static int printable(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
}

void tl_alphabet_make(tl_alphabet *a)
{
    int tokens = 0;
    memset(a->byte, 0xff, sizeof a->byte);
    for (int b = 0; b < TL_BPE_BYTES; b++)
        if (printable(b)) a->order[tokens++] = (uint8_t)b;
    for (int b = 0, next = 256; b < TL_BPE_BYTES; b++) {
        if (!printable(b)) a->order[tokens++] = (uint8_t)b;
        a->point[b] = (uint16_t)(printable(b) ? b : next++);
        a->byte[a->point[b]] = (int16_t)b;
    }
    for (int i = 0; i < TL_BPE_BYTES; i++) a->number[a->order[i]] = (uint8_t)i;
}

size_t tl_alphabet_write(const tl_alphabet *a, const char *token, size_t bytes, char *out)
{
    size_t n = 0;
    char c[4];
    for (size_t i = 0; i < bytes; i++) {
        int length = tl_utf8_encode(a->point[(unsigned char)token[i]], c);
        memcpy(out + n, c, (size_t)length);
        n += (size_t)length;
    }
    return n;
}

int64_t tl_alphabet_read(const tl_alphabet *a, const char *text, size_t bytes, char *out)
{
    int length;
    int64_t n = 0;
    for (size_t at = 0; at < bytes; at += (size_t)length) {
        int32_t c = tl_utf8_decode((const unsigned char *)text + at, bytes - at, &length);
        if (c < 0 || c >= (int32_t)(sizeof a->byte / sizeof *a->byte) || a->byte[c] < 0) return -1;
        out[n++] = (char)a->byte[c];
    }
    return n;
}

/* ---- Tokens and merges ----------------------------------------------------------------------- */

tl_status tl_bpe_new(tl_ctx *ctx, tl_bpe **out_b)
{
    int32_t id;
    tl_bpe *b = tl_alloc(ctx, sizeof *b);
    if (!b) return TL_ENOMEM;
    *b = (tl_bpe){.ctx = ctx, .tokens = {.ctx = ctx}, .pairs = {.ctx = ctx}, .words = {.ctx = ctx}};
    tl_alphabet_make(&b->alphabet);
    tl_status st = tl_pieces_new(ctx, &b->pieces);
    for (int i = 0; st == TL_OK && i < TL_BPE_BYTES; i++)
        st = tl_intern_add(&b->tokens, &(char){(char)b->alphabet.order[i]}, 1, &id);
    if (st == TL_OK) {
        *out_b = b;
    } else {
        tl_bpe_free(b);
    }
    return st;
}

void tl_bpe_free(tl_bpe *b)
{
    if (!b) return;
    tl_pieces_free(b->pieces);
    tl_intern_free(&b->tokens);
    tl_intern_free(&b->words);
    tl_intern_free(&b->pairs);
    tl_release(b->ctx, b->ids);
    tl_release(b->ctx, b->places);
    tl_release(b->ctx, b->cache);
    tl_release(b->ctx, b->parts);
    tl_release(b->ctx, b->queue);
    tl_release(b->ctx, b);
}

tl_status tl_bpe_merge(tl_bpe *b, int32_t left, int32_t right, int32_t *out_old)
{
    size_t n, m;
    int32_t token, merge, made = b->tokens.count;
    const char *s = tl_intern_get(&b->tokens, left, &n), *t = tl_intern_get(&b->tokens, right, &m);
    char *both = tl_alloc(b->ctx, n + m);
    if (!both) return TL_ENOMEM;
    memcpy(both, s, n);
    memcpy(both + n, t, m);
    tl_status st = tl_intern_add(&b->tokens, both, n + m, &token);
    tl_release(b->ctx, both);
    if (st != TL_OK) return st;
    *out_old = token < made ? token : -1;
    if (token < made) return TL_OK;
    return tl_intern_add(&b->pairs, TL_PAIR(left, right), TL_PAIR_BYTES, &merge);
}

static int32_t merge_of(const tl_bpe *b, int32_t left, int32_t right)
{
    int32_t merge = tl_intern_find(&b->pairs, TL_PAIR(left, right), TL_PAIR_BYTES);
    return merge < 0 ? NONE : merge;
}

/* ---- One piece ------------------------------------------------------------------------------- */

/* Adds a place to the queue, a heap of merge << 32 | place with the least first. */
static void bpe_push(tl_bpe *b, size_t *count, int32_t place)
{
    int32_t merge = b->parts[place].merge;
    uint64_t *q = b->queue, entry = (uint64_t)(uint32_t)merge << 32 | (uint32_t)place;
    if (merge == NONE) return;
    size_t i = (*count)++;
    for (; i && q[(i - 1) / 2] > entry; i = (i - 1) / 2) q[i] = q[(i - 1) / 2];
    q[i] = entry;
}

static uint64_t bpe_pop(tl_bpe *b, size_t *count)
{
    uint64_t *q = b->queue, top = q[0], last = q[--*count];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < *count) {
        if (child + 1 < *count && q[child + 1] < q[child]) child++;
        if (q[child] >= last) break;
        q[i] = q[child];
        i = child;
    }
    q[i] = last;
    return top;
}

/* Looks up and queues the merge of the part at place with the next part. */
static void pair_up(tl_bpe *b, size_t *queued, int32_t place)
{
    if (place < 0) return;
    struct tl_bpe_part *p = &b->parts[place];
    p->merge = p->after < 0 ? NONE : merge_of(b, p->token, b->parts[p->after].token);
    bpe_push(b, queued, place);
}

/* Merges the part at place with the next part. */
static void bpe_join(tl_bpe *b, size_t *queued, int32_t place)
{
    struct tl_bpe_part *p = &b->parts[place], *gone = &b->parts[p->after];
    p->token = TL_BPE_BYTES + p->merge;
    p->after = gone->after;
    gone->merge = NONE;
    if (p->after >= 0) b->parts[p->after].before = place;
    pair_up(b, queued, place);
    pair_up(b, queued, p->before);
}

/* Encodes a piece into parts, which start at place 0 and are linked by after. */
static tl_status bpe_encode_piece(tl_bpe *b, const char *piece, size_t bytes)
{
    size_t queued = 0;
    if (bytes > MAX_PIECE_BYTES)
        return tl_fail(b->ctx, TL_EINVAL, "%zu bytes without a boundary: this is not text", bytes);
    tl_status st = tl_grow(b->ctx, &b->parts, &b->parts_cap, bytes, sizeof *b->parts);
    /* each of at most bytes - 1 joins queues 2 more entries */
    if (st == TL_OK) st = tl_grow(b->ctx, &b->queue, &b->queue_cap, 3 * bytes, sizeof *b->queue);
    if (st != TL_OK) return st;
    int32_t n = (int32_t)bytes;
    for (int32_t i = 0; i < n; i++)
        b->parts[i] = (struct tl_bpe_part){b->alphabet.number[(unsigned char)piece[i]], i - 1,
                                           i + 1 < n ? i + 1 : -1, NONE};
    for (int32_t i = 0; i + 1 < n; i++) pair_up(b, &queued, i);
    while (queued) {
        uint64_t top = bpe_pop(b, &queued);
        int32_t place = (int32_t)(top & INT32_MAX);
        if (b->parts[place].merge == (int32_t)(top >> 32)) bpe_join(b, &queued, place);
    }
    return TL_OK;
}

/* Appends the ids of the parts to the cache. */
static tl_status bpe_cache_parts(tl_bpe *b)
{
    for (int32_t i = 0; i >= 0; i = b->parts[i].after) {
        tl_status st =
            tl_grow(b->ctx, &b->cache, &b->cache_cap, b->cache_used + 1, sizeof *b->cache);
        if (st != TL_OK) return st;
        b->cache[b->cache_used++] = b->ids[b->parts[i].token];
    }
    return TL_OK;
}

static tl_status bpe_put_long_piece(tl_encoder *e, tl_bpe *b, const char *piece, size_t bytes)
{
    tl_status st = bpe_encode_piece(b, piece, bytes);
    for (int32_t i = 0; st == TL_OK && i >= 0; i = b->parts[i].after)
        st = tl_encoder_put(e, &b->ids[b->parts[i].token], 1);
    return st;
}

static void bpe_clear_cache(tl_bpe *b)
{
    tl_intern_clear(&b->words);
    b->cache_used = 0;
}

static tl_status bpe_put_piece(void *user, const char *piece, size_t bytes)
{
    int32_t word;
    tl_encoder *e = user;
    tl_bpe *b = e->vocab->state;
    if (bytes > MAX_WORD_BYTES) return bpe_put_long_piece(e, b, piece, bytes);
    if (b->words.count >= MAX_CACHED_WORDS) bpe_clear_cache(b);
    int32_t known = b->words.count;
    tl_status st =
        tl_grow(b->ctx, &b->places, &b->places_cap, (size_t)known + 2, sizeof *b->places);
    if (st == TL_OK) st = tl_intern_add(&b->words, piece, bytes, &word);
    if (st == TL_OK && word == known) {
        b->places[word] = b->cache_used;
        st = bpe_encode_piece(b, piece, bytes);
        if (st == TL_OK) st = bpe_cache_parts(b);
        b->places[word + 1] = b->cache_used;
        if (st != TL_OK) bpe_clear_cache(b); /* the last entry is incomplete */
    }
    if (st != TL_OK) return st;
    return tl_encoder_put(e, b->cache + b->places[word],
                          (int64_t)(b->places[word + 1] - b->places[word]));
}

/* ---- Texts ----------------------------------------------------------------------------------- */

/* Returns whether Python's str.strip removes code point c. */
static int is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* Strips white space from both ends of a line. An invalid UTF-8 byte is not white space. */
static void strip(const char **line, size_t *bytes)
{
    int n = 1;
    const unsigned char *p = (const unsigned char *)*line;
    size_t end = 0, start = 0;
    for (size_t at = 0; at < *bytes; at += (size_t)n) {
        int32_t c = tl_utf8_decode(p + at, *bytes - at, &n);
        if (c < 0) n = 1;
        if (c >= 0 && is_space(c)) continue;
        if (!end) start = at;
        end = at + (size_t)n;
    }
    *line += start;
    *bytes = end - start;
}

static tl_status bpe_take_lines(tl_encoder *e, const char *text, size_t bytes, int last,
                                size_t *out_used)
{
    size_t at = 0, used;
    tl_status st = TL_OK;
    const tl_bpe *b = e->vocab->state;
    while (st == TL_OK && at < bytes) {
        const char *line = text + at, *end = memchr(line, '\n', bytes - at);
        if (!end && !last) break;
        size_t length = end ? (size_t)(end - line) : bytes - at;
        at += length + (end != NULL);
        strip(&line, &length);
        st = tl_pieces_walk(b->pieces, line, length, 1, bpe_put_piece, e, &used);
        if (st == TL_OK && end) st = tl_encoder_put(e, &e->vocab->eos, 1);
    }
    *out_used = at;
    return st;
}

static tl_status bpe_take(tl_encoder *e, const char *text, size_t bytes, int last,
                          size_t *out_used)
{
    tl_bpe *b = e->vocab->state;
    if (b->lines) return bpe_take_lines(e, text, bytes, last, out_used);
    return tl_pieces_walk(b->pieces, text, bytes, last, bpe_put_piece, e, out_used);
}

static void bpe_release(void *state) { tl_bpe_free(state); }

static const tl_vocab_kind bpe_kind = {.take = bpe_take, .release = bpe_release};

tl_status tl_bpe_vocab(tl_bpe *b, tl_vocab **out_v)
{
    return tl_vocab_new(b->ctx, &bpe_kind, b, out_v);
}

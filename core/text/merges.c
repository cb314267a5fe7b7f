/* merges.c - reads the files of byte pair encoding: GPT-2's vocab.bpe and encoder.json, and
** fairseq's dictionary.
**
** vocab.bpe has a line "#version" and then one merge per line, "LEFT RIGHT", written in the
** alphabet of bpe.h. In files that Toeplab wrote, the first line contains the checksum of the
** others. encoder.json is an object of token -> id. dict.txt has lines "ID COUNT" by falling
** frequency; fairseq puts <s>, <pad>, </s> and <unk> before them and fills up to a multiple of 8
** rows. Lines "madeupwordN 0" are such fillers, of which some files have more than needed. */
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "text/bpe.h"
#include "text/json.h"

#define MAX_TOKENS   (1 << 24)
#define FAIRSEQ_HEAD 4 /* <s> <pad> </s> <unk> */
#define FAIRSEQ_EOS  2

typedef struct loader {
    tl_ctx *ctx;
    tl_bpe *bpe;
    const char *merges, *encoder, *dictionary; /* paths; NULL: none */
    int first_line;                            /* line number of the first merge, from 1 */
    size_t ids_cap;                           /* capacity of bpe->ids */
    int32_t *tokens;                           /* [count]: the token of each id; -1: none */
    int32_t count;
    char *name; /* the bytes of the token being read */
    size_t name_cap;
} loader;

/* ---- Lines ----------------------------------------------------------------------------------- */

typedef struct lines {
    const char *path, *at, *end;
    int number;
    const char *line;
    size_t bytes;
} lines;

static int next_line(lines *l)
{
    if (l->at == l->end) return 0;
    const char *end = memchr(l->at, '\n', (size_t)(l->end - l->at));
    l->line = l->at;
    l->bytes = (size_t)((end ? end : l->end) - l->at);
    l->at = end ? end + 1 : l->end;
    if (l->bytes && l->line[l->bytes - 1] == '\r') l->bytes--;
    l->number++;
    return 1;
}

/* At most 60 bytes of a line, for a message. */
#define SHOWN(l) (int)((l)->bytes < 60 ? (l)->bytes : 60), (l)->line

/* ---- vocab.bpe ------------------------------------------------------------------------------- */

/* Finds the token that text spells; -1: none, -2: text is not in the alphabet. */
static tl_status merges_find(loader *l, const char *text, size_t bytes, int32_t *out_token)
{
    tl_status st = tl_grow(l->ctx, &l->name, &l->name_cap, bytes + 1, 1);
    if (st != TL_OK) return st;
    int64_t n = tl_alphabet_read(&l->bpe->alphabet, text, bytes, l->name);
    *out_token = n < 0 ? -2 : tl_intern_find(&l->bpe->tokens, l->name, (size_t)n);
    return TL_OK;
}

static tl_status read_merge(loader *l, const lines *s)
{
    int32_t token[2], old;
    const char *space = memchr(s->line, ' ', s->bytes);
    size_t left = space ? (size_t)(space - s->line) : 0, right = space ? s->bytes - left - 1 : 0;
    if (!left || !right || memchr(space + 1, ' ', right))
        return tl_fail(l->ctx, TL_ECORRUPT, "%s:%d: not two tokens with a space between: '%.*s'",
                       s->path, s->number, SHOWN(s));
    for (int i = 0; i < 2; i++) {
        tl_status st = merges_find(l, i ? space + 1 : s->line, i ? right : left, &token[i]);
        if (st != TL_OK) return st;
        if (token[i] < 0)
            return tl_fail(l->ctx, TL_ECORRUPT, "%s:%d: '%.*s': the %s part is %s", s->path,
                           s->number, SHOWN(s), i ? "second" : "first",
                           token[i] < -1 ? "not in GPT-2's alphabet of bytes"
                                         : "not a token of an earlier line");
    }
    if (l->bpe->tokens.count >= MAX_TOKENS)
        return tl_fail(l->ctx, TL_ECORRUPT, "%s:%d: too many merges", s->path, s->number);
    tl_status st = tl_bpe_merge(l->bpe, token[0], token[1], &old);
    if (st == TL_OK && old >= 0)
        st = tl_fail(l->ctx, TL_ECORRUPT, "%s:%d: '%.*s' makes a token that exists already",
                     s->path, s->number, SHOWN(s));
    return st;
}

/* Verifies the checksum in the first line, if that line has one. */
static tl_status read_header(loader *l, const lines *s)
{
    char hex[65];
    const size_t bytes = sizeof TL_BPE_HEADER - 1;
    if (s->bytes != bytes + 64 || memcmp(s->line, TL_BPE_HEADER, bytes) != 0) return TL_OK;
    tl_sha256(s->at, (size_t)(s->end - s->at), hex);
    if (memcmp(s->line + bytes, hex, 64) == 0) return TL_OK;
    return tl_fail(l->ctx, TL_ECORRUPT, "%s: is damaged or truncated: its checksum does not match",
                   l->merges);
}

static tl_status read_merges(loader *l)
{
    char *text;
    size_t bytes;
    tl_status st = tl_file_read(l->ctx, l->merges, &text, &bytes);
    if (st != TL_OK) return st;
    lines s = {.path = l->merges, .at = text, .end = text + bytes};
    while (st == TL_OK && next_line(&s)) {
        int header = s.number == 1 && s.bytes > 1 && memcmp(s.line, "#v", 2) == 0;
        if (s.number == 1) l->first_line = 1 + header;
        st = header ? read_header(l, &s) : read_merge(l, &s);
    }
    if (st == TL_OK && !s.number) st = tl_fail(l->ctx, TL_ECORRUPT, "%s: is empty", l->merges);
    tl_release(l->ctx, text);
    return st;
}

/* ---- encoder.json ---------------------------------------------------------------------------- */

static tl_status set_id(loader *l, int32_t token, int32_t id)
{
    tl_status st = tl_grow(l->ctx, &l->bpe->ids, &l->ids_cap, (size_t)l->bpe->tokens.count,
                           sizeof *l->bpe->ids);
    if (st == TL_OK) l->bpe->ids[token] = id;
    return st;
}

/* Adds a token that no merge makes, which must look like a special token: <|endoftext|>. */
static tl_status add_special(loader *l, const char *key, size_t bytes, int32_t *out_token)
{
    if (bytes < 3 || key[0] != '<' || key[bytes - 1] != '>')
        return tl_fail(l->ctx, TL_ECORRUPT,
                       "%s: no line of %s makes the token '%.60s': they do "
                       "not belong together",
                       l->encoder, l->merges, key);
    return tl_intern_add(&l->bpe->tokens, key, bytes, out_token);
}

static tl_status encoder_entry(void *user, const char *key, size_t bytes, int64_t value)
{
    int32_t token;
    loader *l = user;
    tl_status st = merges_find(l, key, bytes, &token);
    if (st == TL_OK && token < 0) {
        st = add_special(l, key, bytes, &token);
        if (st == TL_OK) st = set_id(l, token, -1);
    }
    if (st != TL_OK) return st;
    if (value < 0 || value >= MAX_TOKENS)
        return tl_fail(l->ctx, TL_ECORRUPT, "%s: the id of '%.60s' is %lld", l->encoder, key,
                       (long long)value);
    if (l->bpe->ids[token] >= 0)
        return tl_fail(l->ctx, TL_ECORRUPT, "%s: '%.60s' has two ids", l->encoder, key);
    l->bpe->ids[token] = (int32_t)value;
    return TL_OK;
}

/* Checks that every token has one id and every id below the number of tokens has one token. */
static tl_status check_ids(loader *l)
{
    const tl_bpe *b = l->bpe;
    l->count = b->tokens.count;
    l->tokens = tl_alloc(l->ctx, (size_t)l->count * sizeof *l->tokens);
    if (!l->tokens) return TL_ENOMEM;
    memset(l->tokens, 0xff, (size_t)l->count * sizeof *l->tokens);
    for (int32_t i = 0; i < l->count; i++) {
        int32_t id = b->ids[i];
        if (id < 0 && i < TL_BPE_BYTES)
            return tl_fail(l->ctx, TL_ECORRUPT, "%s: the byte 0x%02x has no id", l->encoder,
                           b->alphabet.order[i]);
        if (id < 0)
            return tl_fail(l->ctx, TL_ECORRUPT,
                           "%s:%d: %s has no id for what this line makes: "
                           "they do not belong together",
                           l->merges, l->first_line + i - TL_BPE_BYTES, l->encoder);
        if (id >= l->count || l->tokens[id] >= 0)
            return tl_fail(l->ctx, TL_ECORRUPT, "%s: id %d %s", l->encoder, id,
                           id < l->count ? "appears twice" : "is beyond the number of tokens");
        l->tokens[id] = i;
    }
    return TL_OK;
}

static tl_status read_encoder(loader *l)
{
    char *text = NULL;
    size_t bytes;
    tl_status st = set_id(l, 0, 0); /* allocates ids */
    for (int32_t i = 0; st == TL_OK && i < l->bpe->tokens.count; i++)
        l->bpe->ids[i] = l->encoder ? -1 : i;
    if (st == TL_OK && l->encoder) st = tl_file_read(l->ctx, l->encoder, &text, &bytes);
    if (text) st = tl_json_each(l->ctx, l->encoder, text, bytes, encoder_entry, l);
    tl_release(l->ctx, text);
    return st == TL_OK ? check_ids(l) : st;
}

static tl_status add_token(tl_vocab *v, const tl_bpe *b, int32_t token)
{
    size_t bytes;
    const char *s = tl_intern_get(&b->tokens, token, &bytes);
    return tl_vocab_add(v, s, bytes);
}

/* ---- dict.txt -------------------------------------------------------------------------------- */

/* Returns NUMBER of a line "NUMBER COUNT"; -1: the line has another form. */
static int64_t first_number(const lines *s)
{
    int64_t number = 0;
    size_t i = 0, digits;
    for (; i < s->bytes && i < 10 && s->line[i] >= '0' && s->line[i] <= '9'; i++)
        number = 10 * number + (s->line[i] - '0');
    if (!i || i >= s->bytes || s->line[i] != ' ') return -1;
    for (digits = i + 1; digits < s->bytes; digits++)
        if (s->line[digits] < '0' || s->line[digits] > '9') return -1;
    return digits > i + 1 ? number : -1;
}

/* Maps the id of a line to its row and adds its token to the vocabulary; fillers are skipped. */
static tl_status read_row(loader *l, const lines *s, int32_t *rows, int *filler_seen, tl_vocab *v)
{
    static const char filler[] = "madeupword";
    int64_t id = first_number(s);
    if (s->bytes > sizeof filler && memcmp(s->line, filler, sizeof filler - 1) == 0) {
        *filler_seen = 1;
        return TL_OK;
    }
    if (id < 0 || *filler_seen)
        return tl_fail(l->ctx, TL_ECORRUPT, "%s:%d: not 'ID COUNT': '%.*s'%s", s->path, s->number,
                       SHOWN(s), id < 0 ? "" : ", after the fillers");
    if (id >= l->count || rows[id] >= 0)
        return tl_fail(l->ctx, TL_ECORRUPT, "%s:%d: id %lld %s", s->path, s->number, (long long)id,
                       id < l->count ? "appears twice" : "is not in the encoder");
    rows[id] = v->size;
    return add_token(v, l->bpe, l->tokens[id]);
}

static tl_status read_rows(loader *l, int32_t *rows, tl_vocab *v)
{
    char *text;
    size_t bytes;
    int filler_seen = 0;
    tl_status st = tl_file_read(l->ctx, l->dictionary, &text, &bytes);
    if (st != TL_OK) return st;
    lines s = {.path = l->dictionary, .at = text, .end = text + bytes};
    while (st == TL_OK && next_line(&s)) st = read_row(l, &s, rows, &filler_seen, v);
    tl_release(l->ctx, text);
    for (int32_t i = 0; st == TL_OK && i < TL_BPE_BYTES + l->bpe->pairs.count; i++)
        if (rows[l->bpe->ids[i]] < 0)
            st = tl_fail(l->ctx, TL_ECORRUPT, "%s: has no line for id %d", l->dictionary,
                         l->bpe->ids[i]);
    return st;
}

static tl_status add_rows(loader *l, tl_vocab *v)
{
    tl_status st = TL_OK;
    int32_t *rows = tl_alloc(l->ctx, (size_t)l->count * sizeof *rows);
    if (!rows) return TL_ENOMEM;
    memset(rows, 0xff, (size_t)l->count * sizeof *rows);
    for (int i = 0; st == TL_OK && i < FAIRSEQ_HEAD; i++)
        st = tl_vocab_add(v, "\n", i == FAIRSEQ_EOS);
    if (st == TL_OK) st = read_rows(l, rows, v);
    while (st == TL_OK && v->size % 8) st = tl_vocab_add(v, "", 0);
    for (int32_t i = 0; st == TL_OK && i < l->bpe->tokens.count; i++)
        l->bpe->ids[i] = rows[l->bpe->ids[i]];
    tl_release(l->ctx, rows);
    v->eos = FAIRSEQ_EOS;
    l->bpe->lines = 1;
    return st;
}

/* ---- All of them ----------------------------------------------------------------------------- */

tl_status tl_vocab_new_bpe(tl_ctx *ctx, const char *merges, const char *encoder,
                           const char *dictionary, tl_vocab **out_v)
{
    loader l = {.ctx = ctx, .merges = merges, .encoder = encoder, .dictionary = dictionary};
    tl_vocab *v = NULL;
    tl_status st = tl_bpe_new(ctx, &l.bpe);
    if (st == TL_OK) st = tl_bpe_vocab(l.bpe, &v); /* v owns l.bpe from here on */
    if (st == TL_OK) st = read_merges(&l);
    if (st == TL_OK) st = read_encoder(&l);
    for (int32_t i = 0; st == TL_OK && !dictionary && i < l.count; i++)
        st = add_token(v, l.bpe, l.tokens[i]);
    if (st == TL_OK && dictionary) st = add_rows(&l, v);
    tl_release(ctx, l.tokens);
    tl_release(ctx, l.name);
    return tl_vocab_finish(st, v, out_v);
}

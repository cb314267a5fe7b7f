/* test_bpe.c - byte pair encoding: against the definition, in parts, and how it is learnt. */
#include <stdlib.h>

#include "base/memory.h"
#include "text/bpe.h"
#include "scratch.h"
#include "test.h"
#include "toeplab-lab.h"

static tl_ctx *ctx;

/* Merges of which some compete for the same bytes, or wait for what another one changes; bytes as
** they are, not as in the file. */
static const char *const rules[][2] = {
    {"h", "e"},       {"l", "l"},    {" ", "w"},           {"o", "r"},   {"he", "ll"}, {" w", "or"},
    {"l", "d"},       {"hell", "o"}, {"a", "a"},           {"aa", "aa"}, {" ", " "},   {"1", "2"},
    {"\xe2", "\x82"}, {"he", "l"},   {"\xe2\x82", "\xac"}, {"\n", "\n"}, {"aa", "a"},  {"b", "aa"},
    {"x", "y"},       {"y", "z"},    {"w", "v"},           {"z", "wv"},  {"'", "r"}};
enum { RULES = sizeof rules / sizeof *rules };

static tl_vocab *open_rules(void)
{
    char text[2048];
    size_t n = (size_t)snprintf(text, sizeof text, "#version: 0.2\n");
    const char *path = scratch("rules");
    tl_vocab *v = NULL;
    tl_alphabet a;
    tl_alphabet_make(&a);
    for (int i = 0; i < RULES; i++) {
        for (int k = 0; k < 2; k++) {
            n += tl_alphabet_write(&a, rules[i][k], strlen(rules[i][k]), text + n);
            text[n++] = k ? '\n' : ' ';
        }
    }
    CHECK(scratch_write(path, text, n));
    CHECK_STATUS(tl_vocab_new_bpe(ctx, path, NULL, NULL, &v), TL_OK);
    CHECK(tl_vocab_size(v) == 256 + RULES);
    return v;
}

/* ---- The definition, slowly ---- */

typedef struct part {
    char bytes[64];
    size_t n;
} part;

static int is(const part *p, const char *s)
{
    return p->n == strlen(s) && memcmp(p->bytes, s, p->n) == 0;
}

/* Finds the first rule that applies to any two neighbours, applies it everywhere, and again. */
static int merge_slowly(part *p, int n)
{
    for (int rule = 0; rule < RULES; rule++) {
        int to = 0;
        for (int from = 0; from < n; to++) {
            p[to] = p[from++];
            if (from == n || !is(&p[to], rules[rule][0]) || !is(&p[from], rules[rule][1])) continue;
            memcpy(p[to].bytes + p[to].n, p[from].bytes, p[from].n);
            p[to].n += p[from++].n;
        }
        if (to < n) rule = -1;
        n = to;
    }
    return n;
}

typedef struct slow {
    const tl_vocab *v;
    const int32_t *ids;
    int64_t at, count;
    int wrong;
} slow;

static tl_status check_piece(void *user, const char *piece, size_t bytes)
{
    part parts[256];
    size_t n;
    slow *s = user;
    for (size_t i = 0; i < bytes; i++) parts[i] = (part){{piece[i]}, 1};
    int count = merge_slowly(parts, (int)bytes);
    for (int i = 0; i < count; i++, s->at++) {
        const char *token = s->at < s->count ? tl_vocab_token(s->v, s->ids[s->at], &n) : NULL;
        s->wrong += !token || n != parts[i].n || memcmp(token, parts[i].bytes, n) != 0;
    }
    return TL_OK;
}

/* Whether text becomes what the definition says. */
static int right(tl_vocab *v, tl_pieces *p, const char *text, size_t bytes)
{
    size_t used;
    tl_tensor *ids = NULL;
    CHECK_STATUS(tl_vocab_encode(v, text, bytes, &ids), TL_OK);
    slow s = {.v = v, .ids = tl_tensor_ci32(ids), .count = tl_tensor_len(ids)};
    CHECK_STATUS(tl_pieces_walk(p, text, bytes, 1, check_piece, &s, &used), TL_OK);
    tl_tensor_free(ids);
    return used == bytes && !s.wrong && s.at == s.count;
}

static size_t random_text(tl_stream *r, char *text, size_t most)
{
    static const char *const words[] = {
        "hello",        " world",   "a",    "aa", " ",  "  ",  "1", "2", "\n", "baa",
        "\xe2\x82\xac", "\xe2\x82", "\xff", "he", "ll", "'re", "'", "r", "\t", "\xc2\xa0",
        "xyzwv",        "yzwv",     "z"};
    size_t n = 0;
    for (int64_t k = tl_random_below(r, 20); k > 0; k--) {
        const char *w = words[tl_random_below(r, sizeof words / sizeof *words)];
        if (n + strlen(w) > most) break;
        memcpy(text + n, w, strlen(w));
        n += strlen(w);
    }
    return n;
}

static void it_is_what_the_definition_says(void)
{
    char text[200];
    int wrong = 0;
    tl_vocab *v = open_rules();
    tl_pieces *p = NULL;
    tl_stream r = tl_stream_new(1, "bpe");
    CHECK_STATUS(tl_pieces_new(ctx, &p), TL_OK);
    for (int i = 0; i < 3000; i++) wrong += !right(v, p, text, random_text(&r, text, sizeof text));
    CHECK(!wrong);
    tl_pieces_free(p);
    tl_vocab_free(v);
}

static void the_definition_would_notice(void) /* ids of another text */
{
    size_t used;
    tl_tensor *ids = NULL;
    tl_pieces *p = NULL;
    tl_vocab *v = open_rules();
    CHECK_STATUS(tl_pieces_new(ctx, &p), TL_OK);
    CHECK_STATUS(tl_vocab_encode(v, "hello worle", 11, &ids), TL_OK);
    slow s = {.v = v, .ids = tl_tensor_ci32(ids), .count = tl_tensor_len(ids)};
    CHECK_STATUS(tl_pieces_walk(p, "hello world", 11, 1, check_piece, &s, &used), TL_OK);
    CHECK(s.wrong > 0);
    tl_tensor_free(ids);
    tl_pieces_free(p);
    tl_vocab_free(v);
}

static void any_bytes_survive(void)
{
    char text[999], back[999];
    size_t n, at = 0;
    tl_vocab *v = open_rules();
    tl_tensor *ids = NULL;
    tl_stream r = tl_stream_new(2, "bpe");
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)tl_random_below(&r, 256);
    CHECK_STATUS(tl_vocab_encode(v, text, sizeof text, &ids), TL_OK);
    for (int64_t i = 0; i < tl_tensor_len(ids); i++) {
        const char *token = tl_vocab_token(v, tl_tensor_ci32(ids)[i], &n);
        if (at + n <= sizeof back) memcpy(back + at, token, n);
        at += n;
    }
    CHECK(at == sizeof text && memcmp(text, back, at) == 0);
    tl_tensor_free(ids);
    tl_vocab_free(v);
}

/* ---- Parts ---- */

static int same_in_parts(tl_vocab *v, tl_stream *r, const char *text, size_t bytes)
{
    tl_tensor *whole = NULL, *parts = NULL;
    tl_encoder *e = NULL;
    CHECK_STATUS(tl_vocab_encode(v, text, bytes, &whole), TL_OK);
    CHECK_STATUS(tl_encoder_new(v, &e), TL_OK);
    for (size_t at = 0; at < bytes;) {
        size_t n = 1 + (size_t)tl_random_below(r, 6);
        if (n > bytes - at) n = bytes - at;
        CHECK_STATUS(tl_encoder_feed(e, text + at, n), TL_OK);
        at += n;
    }
    CHECK_STATUS(tl_encoder_finish(e, &parts), TL_OK);
    int64_t n = tl_tensor_len(whole);
    int same = tl_encoder_count(e) == n && tl_tensor_len(parts) == n &&
               (!n || !memcmp(tl_tensor_ci32(whole), tl_tensor_ci32(parts), (size_t)n * 4));
    tl_encoder_free(e);
    tl_tensor_free(whole);
    tl_tensor_free(parts);
    return same;
}

static void parts_make_the_same_ids(void)
{
    char text[200];
    int wrong = 0;
    tl_vocab *v = open_rules();
    tl_stream r = tl_stream_new(3, "bpe");
    for (int i = 0; i < 2000; i++)
        wrong += !same_in_parts(v, &r, text, random_text(&r, text, sizeof text));
    CHECK(!wrong);
    tl_vocab_free(v);
}

static void an_ended_text_takes_no_more(void)
{
    tl_vocab *v = open_rules();
    tl_encoder *e = NULL;
    tl_tensor *ids = NULL;
    CHECK_STATUS(tl_encoder_new(v, &e), TL_OK);
    tl_vocab_free(v); /* the encoder keeps it */
    CHECK_STATUS(tl_encoder_feed(e, "hello", 5), TL_OK);
    CHECK_STATUS(tl_encoder_finish(e, &ids), TL_OK);
    CHECK(tl_tensor_len(ids) == 1);
    CHECK_STATUS(tl_encoder_feed(e, "hello", 5), TL_EINVAL);
    CHECK_STATUS(tl_encoder_finish(e, &ids), TL_EINVAL);
    tl_tensor_free(ids);
    tl_encoder_free(e);
    tl_encoder_free(NULL);
}

static void a_long_piece_takes_no_longer_than_n_log_n(void)
{
    enum { LENGTH = 1 << 20 };
    char *text = malloc(LENGTH);
    tl_vocab *v = open_rules();
    tl_tensor *ids = NULL;
    memset(text, 'a', LENGTH);
    CHECK_STATUS(tl_vocab_encode(v, text, LENGTH, &ids), TL_OK);
    CHECK(tl_tensor_len(ids) == LENGTH / 4);
    tl_tensor_free(ids);
    tl_vocab_free(v);
    free(text);
}

static void what_has_no_boundary_is_no_text(void)
{
    enum { LENGTH = 16 << 20 };
    char *text = malloc(LENGTH);
    tl_vocab *v = open_rules();
    tl_encoder *e = NULL;
    tl_status st = TL_OK;
    memset(text, 'a', LENGTH);
    CHECK_STATUS(tl_encoder_new(v, &e), TL_OK);
    for (int i = 0; st == TL_OK && i < 6; i++) st = tl_encoder_feed(e, text, LENGTH);
    CHECK_STATUS(st, TL_ECORRUPT);
    CHECK(strstr(tl_errmsg(ctx), "no place to cut") != NULL);
    tl_encoder_free(e);
    tl_vocab_free(v);
    free(text);
}

/* More different pieces than are remembered. */
static void forgetting_changes_nothing(void)
{
    enum { PIECES = 140000, HELLO = 256 + 7 };
    char text[24];
    tl_vocab *v = open_rules();
    tl_encoder *e = NULL;
    tl_tensor *ids = NULL;
    size_t n, at = 0;
    int wrong = 0, hellos = 0;
    CHECK_STATUS(tl_encoder_new(v, &e), TL_OK);
    for (int i = 0; i < PIECES; i++) {
        int bytes = snprintf(text, sizeof text, "%dhello", 100000 + i);
        wrong += tl_encoder_feed(e, text, (size_t)bytes) != TL_OK;
    }
    CHECK_STATUS(tl_encoder_finish(e, &ids), TL_OK);
    for (int64_t i = 0; i < tl_tensor_len(ids); i++) {
        int32_t id = tl_tensor_ci32(ids)[i];
        const char *token = tl_vocab_token(v, id, &n);
        (void)snprintf(text, sizeof text, "%dhello", 100000 + hellos);
        wrong += memcmp(text + at, token, n) != 0 || (id == HELLO) != (at == 6);
        at = id == HELLO ? 0 : at + n;
        hellos += id == HELLO;
    }
    CHECK(!wrong && hellos == PIECES && at == 0);
    tl_tensor_free(ids);
    tl_encoder_free(e);
    tl_vocab_free(v);
}

/* ---- Learning ---- */

static tl_status learn(const char *text, int32_t size, const char *path)
{
    tl_counter *c = NULL;
    tl_status st = tl_counter_new(ctx, TL_COUNT_PIECES, &c);
    if (st == TL_OK) st = tl_counter_feed(c, text, strlen(text));
    if (st == TL_OK) st = tl_bpe_train(c, size, path);
    tl_counter_free(c);
    return st;
}

/* Sennrich et al. 2016: low x5, lower x2, newest x6, widest x3. Ties: the lower numbers first. */
static void the_most_frequent_pairs_are_learnt(void)
{
    const char *path = scratch("learnt"), *text = "low low low low low lower lower newest newest "
                                                  "newest newest newest newest widest widest "
                                                  "widest";
    static const char want[] = "e s\nes t\nl o\nlo w\ne w\nn ew\n\xc4\xa0 low\n"
                               "\xc4\xa0 new\n\xc4\xa0new est\n";
    size_t bytes;
    CHECK_STATUS(learn(text, 256 + 9, path), TL_OK);
    char *got = (char *)scratch_read(path, &bytes);
    const char *body = got ? memchr(got, '\n', bytes) : NULL;
    CHECK(body && bytes - (size_t)(body + 1 - got) == sizeof want - 1 &&
          memcmp(body + 1, want, sizeof want - 1) == 0);
    free(got);
    tl_vocab *v = NULL;
    CHECK_STATUS(tl_vocab_new_bpe(ctx, path, NULL, NULL, &v), TL_OK);
    CHECK(tl_vocab_size(v) == 265);
    tl_vocab_free(v);
}

static void no_token_is_learnt_twice(void) /* "abc" comes from ab+c first, then from a+bc */
{
    const char *path = scratch("twice");
    tl_vocab *v = NULL;
    CHECK_STATUS(learn("abcabcabc abcxbc xbc xbc ybcabc abab abab abab ", 256 + 8, path), TL_OK);
    CHECK_STATUS(tl_vocab_new_bpe(ctx, path, NULL, NULL, &v), TL_OK);
    tl_vocab_free(v);
    CHECK_STATUS(learn("aaaaaaaaaaaaaaaa aaaaaaaaaaa aaa aa", 256 + 3, path), TL_OK);
    CHECK_STATUS(tl_vocab_new_bpe(ctx, path, NULL, NULL, &v), TL_OK);
    tl_vocab_free(v);
}

static void wrong_learning_is_refused(void)
{
    const char *path = scratch("none");
    tl_counter *c = NULL;
    tl_vocab *v = NULL;
    CHECK_STATUS(learn("abab", 258, path), TL_EINVAL); /* ab occurs twice, nothing else does */
    CHECK(strstr(tl_errmsg(ctx), "yields 257 tokens, fewer than the vocabulary of 258") != NULL);
    CHECK_STATUS(learn("", 257, path), TL_EINVAL);
    CHECK_STATUS(learn("abab", 255, path), TL_EINVAL);
    CHECK(access(path, F_OK) != 0);
    CHECK_STATUS(learn("abab", 257, scratch("no/folder")), TL_ENOTFOUND);
    CHECK_STATUS(tl_counter_new(ctx, TL_COUNT_WORDS, &c), TL_OK);
    CHECK_STATUS(tl_bpe_train(c, 257, path), TL_EINVAL);
    tl_counter_free(c);
    CHECK_STATUS(tl_counter_new(ctx, TL_COUNT_PIECES, &c), TL_OK);
    CHECK_STATUS(tl_vocab_new_words(c, &v), TL_EINVAL);
    tl_counter_free(c);
}

static tl_status learn_and_use(const char *text, const char *path)
{
    tl_vocab *v = NULL;
    tl_tensor *ids = NULL;
    tl_status st = learn(text, 256 + 5, path);
    if (st == TL_OK) st = tl_vocab_new_bpe(ctx, path, NULL, NULL, &v);
    if (st == TL_OK) st = tl_vocab_encode(v, text, strlen(text), &ids);
    tl_tensor_free(ids);
    tl_vocab_free(v);
    return st;
}

static void without_memory_nothing_is_left(void)
{
    tl_status st = TL_ENOMEM;
    int64_t n = 0;
    size_t before = tl_memory_info(ctx).live;
    for (; st == TL_ENOMEM && n < 1000; n++) {
        tl_alloc_fail_after(ctx, n);
        st = learn_and_use("the cat on the mat that the rat sat at the hat of the fat bat",
                           scratch("memory"));
        CHECK(tl_memory_info(ctx).live == before);
    }
    tl_alloc_fail_after(ctx, -1);
    CHECK(st == TL_OK && n > 30);
}

int main(void)
{
    if (!scratch_new() || tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int status = run_tests((const test[]){
        {"it_is_what_the_definition_says", it_is_what_the_definition_says},
        {"the_definition_would_notice", the_definition_would_notice},
        {"any_bytes_survive", any_bytes_survive},
        {"parts_make_the_same_ids", parts_make_the_same_ids},
        {"an_ended_text_takes_no_more", an_ended_text_takes_no_more},
        {"a_long_piece_takes_no_longer_than_n_log_n", a_long_piece_takes_no_longer_than_n_log_n},
        {"what_has_no_boundary_is_no_text", what_has_no_boundary_is_no_text},
        {"forgetting_changes_nothing", forgetting_changes_nothing},
        {"the_most_frequent_pairs_are_learnt", the_most_frequent_pairs_are_learnt},
        {"no_token_is_learnt_twice", no_token_is_learnt_twice},
        {"wrong_learning_is_refused", wrong_learning_is_refused},
        {"without_memory_nothing_is_left", without_memory_nothing_is_left},
        {0}});
    tl_ctx_free(ctx);
    scratch_free();
    return status;
}

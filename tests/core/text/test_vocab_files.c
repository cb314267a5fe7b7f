/* test_vocab_files.c - the files of byte pair encodings: right ones, and what is said of wrong
** ones. */
#include "base/memory.h"
#include "text/bpe.h"
#include "scratch.h"
#include "test.h"
#include "toeplab-lab.h"

static tl_ctx *ctx;

/* Everything about two merges: "ab" and "abc". NULL stands for the right file. */
static const char merges[] = "#version: 0.2\na b\nab c\n";
static char encoder[8192], dictionary[8192];

/* Ids from the top down, so that they are not the numbers of the tokens: the byte of number i has
** 258 - i, "ab" 2, "abc" 1, "<end>" 0. The dictionary has them in order, from row 4 on. */
static void make_files(void)
{
    tl_alphabet a;
    char token[3] = "";
    tl_alphabet_make(&a);
    int n = snprintf(encoder, sizeof encoder, "{\"<end>\": 0, \"abc\": 1, \"ab\": 2");
    for (int i = 0; i < TL_BPE_BYTES; i++) {
        size_t bytes = tl_alphabet_write(&a, &(char){(char)a.order[i]}, 1, token);
        n += snprintf(encoder + n, sizeof encoder - (size_t)n, ", \"%s%.*s\": %d",
                      *token == '"' || *token == '\\' ? "\\" : "", (int)bytes, token, 258 - i);
    }
    (void)snprintf(encoder + n, sizeof encoder - (size_t)n, "}");
    n = 0;
    for (int id = 0; id < 259; id++)
        n += snprintf(dictionary + n, sizeof dictionary - (size_t)n, "%d %d\n", id, 1000 - id);
    (void)snprintf(dictionary + n, sizeof dictionary - (size_t)n,
                   "madeupword0000 0\nmadeupword0001 0\n");
}

static const char *put(const char *name, const char *text, const char *right)
{
    const char *path = scratch(name);
    if (!text) text = right;
    CHECK(scratch_write(path, text, strlen(text)));
    return path;
}

static tl_status load(const char *m, const char *e, const char *d, int files, tl_vocab **out_v)
{
    const char *path = put("vocab.bpe", m, merges);
    const char *json = put("encoder.json", e, encoder), *dict = put("dict.txt", d, dictionary);
    return tl_vocab_new_bpe(ctx, path, files > 1 ? json : NULL, files > 2 ? dict : NULL, out_v);
}

/* Whether text becomes the ids want, ended by -1. */
static int becomes(tl_vocab *v, const char *text, const int32_t *want)
{
    tl_tensor *ids = NULL;
    CHECK_STATUS(tl_vocab_encode(v, text, strlen(text), &ids), TL_OK);
    const int32_t *got = tl_tensor_ci32(ids);
    int64_t i = 0, n = tl_tensor_len(ids);
    while (i < n && want[i] >= 0 && got[i] == want[i]) i++;
    int same = i == n && want[i] < 0;
    tl_tensor_free(ids);
    return same;
}

static int token_is(const tl_vocab *v, int32_t id, const char *text)
{
    size_t n;
    const char *s = tl_vocab_token(v, id, &n);
    return s && n == strlen(text) && memcmp(s, text, n) == 0;
}

static void merges_alone_give_ids_in_their_order(void)
{
    tl_vocab *v = NULL;
    CHECK_STATUS(load(NULL, NULL, NULL, 1, &v), TL_OK);
    CHECK(tl_vocab_size(v) == 258 && tl_vocab_eos(v) == -1);
    CHECK(becomes(v, "abcab!", (int32_t[]){257, 256, 0, -1}));
    CHECK(token_is(v, 257, "abc") && token_is(v, 220, " ") && token_is(v, 198, "\n"));
    tl_vocab_free(v);
    CHECK_STATUS(load("a b\r\nab c", NULL, NULL, 1, &v), TL_OK); /* no header, no end, CR LF */
    CHECK(becomes(v, "abc", (int32_t[]){257, -1}));
    tl_vocab_free(v);
    CHECK_STATUS(load("# #\n", NULL, NULL, 1, &v), TL_OK); /* no header either */
    CHECK(becomes(v, "##", (int32_t[]){256, -1}));
    tl_vocab_free(v);
}

static void an_encoder_gives_the_ids(void)
{
    tl_vocab *v = NULL;
    CHECK_STATUS(load(NULL, NULL, NULL, 2, &v), TL_OK);
    CHECK(tl_vocab_size(v) == 259 && tl_vocab_eos(v) == -1);
    CHECK(becomes(v, "abcab!", (int32_t[]){1, 2, 258, -1}));
    CHECK(token_is(v, 0, "<end>") && token_is(v, 1, "abc") && token_is(v, 258, "!"));
    CHECK(becomes(v, "<end>", (int32_t[]){258 - 27, 258 - 68, 258 - 77, 258 - 67, 258 - 29, -1}));
    tl_vocab_free(v);
}

static void a_dictionary_gives_rows_and_lines(void)
{
    tl_vocab *v = NULL;
    CHECK_STATUS(load(NULL, NULL, NULL, 3, &v), TL_OK);
    CHECK(tl_vocab_size(v) == 264); /* 4 + 259 and one to a multiple of 8, however many fill up */
    CHECK(tl_vocab_eos(v) == 2 && token_is(v, 2, "\n") && token_is(v, 0, "") &&
          token_is(v, 263, ""));
    CHECK(becomes(v, "abc\n\n ab \t\r\n", (int32_t[]){5, 2, 2, 6, 2, -1}));
    CHECK(becomes(v, "\xe3\x80\x80 abc \xc2\xa0", (int32_t[]){5, -1})); /* no end, no eos */
    CHECK(becomes(v, " \xff ", (int32_t[]){262 - 187, -1}));
    CHECK(becomes(v, "\xe2\x80\xa8\xe2\x82\xac\xff\xe2\x80\xa8", /* U+2028, then bytes */
                  (int32_t[]){262 - 158, 262 - 224, 262 - 105, 262 - 187, -1}));
    tl_vocab_free(v);
}

static void our_header_is_checked(void)
{
    const char *body = "a b\nab c\n";
    char text[256] = TL_BPE_HEADER;
    tl_vocab *v = NULL;
    tl_sha256(body, strlen(body), text + strlen(text));
    (void)snprintf(text + strlen(text), 32, "\n%s", body);
    CHECK_STATUS(load(text, NULL, NULL, 1, &v), TL_OK);
    CHECK(tl_vocab_size(v) == 258);
    tl_vocab_free(v);
    text[strlen(text) - 5] = '\0'; /* one merge less */
    CHECK_STATUS(load(text, NULL, NULL, 1, &v), TL_ECORRUPT);
    CHECK(strstr(tl_errmsg(ctx), "damaged or truncated") != NULL);
}

/* ---- Wrong files ---- */

typedef struct wrong { /* text in the place of one file, and what is said */
    const char *merges, *encoder, *dictionary, *message;
} wrong;

static const wrong wrongs[] = {
    {"", NULL, NULL, "vocab.bpe: is empty"},
    {"#version: 0.2\na b\nab\n", NULL, NULL, "vocab.bpe:3: not two tokens"},
    {"#version: 0.2\na b\n\nab c\n", NULL, NULL, "vocab.bpe:3: not two tokens"},
    {"a b c\n", NULL, NULL, "vocab.bpe:1: not two tokens"},
    {"a b\nabc d\n", NULL, NULL, "vocab.bpe:2: 'abc d': the first part is not a token"},
    {"a b\nc abc\n", NULL, NULL, "vocab.bpe:2: 'c abc': the second part is not a token"},
    {"a b\na b\n", NULL, NULL, "vocab.bpe:2: 'a b' makes a token that exists already"},
    {"b c\na b\nab c\na bc\n", NULL, NULL, "vocab.bpe:4: 'a bc' makes a token"},
    {"a b\n\x01\x02 \x03\n", NULL, NULL, "vocab.bpe:2"},
    {"a \xff\n", NULL, NULL, "the second part is not in GPT-2's alphabet"},
    {"#version: 0.2\na b\n", NULL, NULL, "no line of "}, /* encoder.json has "abc" */
    {"a b\nab c\nc d\n", NULL, NULL, "vocab.bpe:3: "},   /* and not "cd" */
    {NULL, "", NULL, "encoder.json: malformed JSON"},
    {NULL, "{\"a\": 1", NULL, "encoder.json: malformed JSON"},
    {NULL, "\x89PNG\r\n", NULL, "encoder.json: malformed JSON"},
    {NULL, "[1, 2]", NULL, "encoder.json: not a JSON object"},
    {NULL, "{\"a\": \"b\"}", NULL, "encoder.json: the value of 'a' is not an integer"},
    {NULL, "{\"a\": -1}", NULL, "encoder.json: the id of 'a' is -1"},
    {NULL, "{\"a\": 99999999999}", NULL, "encoder.json: the id of 'a' is 99999999999"},
    {NULL, "{\"a\": 1, \"a\": 2}", NULL, "encoder.json: 'a' has two ids"},
    {NULL, "{\"a\": 1}", NULL, "encoder.json: the byte 0x21 has no id"},
    {NULL, "{\"xy\": 1}", NULL, "makes the token 'xy': they do not belong together"},
    {NULL, NULL, "", "dict.txt: has no line for id"},
    {NULL, NULL, "12 5\n13\n", "dict.txt:2: not 'ID COUNT': '13'"},
    {NULL, NULL, "the 5\n", "dict.txt:1: not 'ID COUNT': 'the 5'"},
    {NULL, NULL, "12 x\n", "dict.txt:1: not 'ID COUNT'"},
    {NULL, NULL, "12 5\n12 4\n", "dict.txt:2: id 12 appears twice"},
    {NULL, NULL, "0 5\n259 4\n", "dict.txt:2: id 259 is not in the encoder"},
    {NULL, NULL, "madeupword0000 0\n1 5\n", "dict.txt:2: not 'ID COUNT': '1 5', after"},
};

static void what_is_wrong_is_named(void)
{
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        const wrong *w = &wrongs[i];
        tl_vocab *v = NULL;
        CHECK_STATUS(load(w->merges, w->encoder, w->dictionary, 3, &v), TL_ECORRUPT);
        CHECK(!v && strstr(tl_errmsg(ctx), w->message));
        if (!strstr(tl_errmsg(ctx), w->message)) printf("  %s\n", tl_errmsg(ctx));
    }
}

/* The right encoder with one text in it replaced. */
static const char *changed(const char *from, const char *to)
{
    static char text[sizeof encoder + 32];
    const char *at = strstr(encoder, from);
    CHECK(at != NULL);
    (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - encoder), encoder, to,
                   at + strlen(from));
    return text;
}

static void ids_have_to_fit_together(void)
{
    static const struct {
        const char *from, *to, *message;
    } cases[] = {
        {"\"ab\": 2", "\"ab\": 1", "encoder.json: id 1 appears twice"},
        {"\"ab\": 2", "\"ab\": 259", "encoder.json: id 259 is beyond the number of tokens"},
        {", \"abc\": 1", "", "vocab.bpe:3: "},
        {"\"<end>\": 0", "\"<end>\": 0, \"<x>\": 300", "id 300 is beyond"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tl_vocab *v = NULL;
        CHECK_STATUS(load(NULL, changed(cases[i].from, cases[i].to), NULL, 2, &v), TL_ECORRUPT);
        CHECK(strstr(tl_errmsg(ctx), cases[i].message) != NULL);
        if (!strstr(tl_errmsg(ctx), cases[i].message)) printf("  %s\n", tl_errmsg(ctx));
    }
}

static void every_truncation_of_a_file_is_noticed(void)
{
    char text[sizeof encoder];
    tl_vocab *v = NULL;
    for (size_t n = 0; n + 1 < sizeof merges - 1; n++) {
        (void)snprintf(text, sizeof text, "%.*s", (int)n, merges);
        CHECK_STATUS(load(text, NULL, NULL, 2, &v), TL_ECORRUPT);
    }
    for (size_t n = 0; n < strlen(encoder); n += 13) {
        (void)snprintf(text, sizeof text, "%.*s", (int)n, encoder);
        CHECK_STATUS(load(NULL, text, NULL, 2, &v), TL_ECORRUPT);
    }
    const char *filling = strstr(dictionary, "madeupword");
    for (size_t n = 0; dictionary + n + 7 < filling; n += 13) { /* without its last line */
        (void)snprintf(text, sizeof text, "%.*s", (int)n, dictionary);
        CHECK_STATUS(load(NULL, NULL, text, 3, &v), TL_ECORRUPT);
    }
    CHECK(!v);
}

static void files_that_are_not_there(void)
{
    const char *right = put("vocab.bpe", NULL, merges), *folder = scratch("folder");
    tl_vocab *v = NULL;
    CHECK_STATUS(tl_vocab_new_bpe(ctx, scratch("none"), NULL, NULL, &v), TL_ENOTFOUND);
    CHECK_STATUS(tl_vocab_new_bpe(ctx, right, scratch("none"), NULL, &v), TL_ENOTFOUND);
    CHECK_STATUS(tl_vocab_new_bpe(ctx, right, NULL, scratch("none"), &v), TL_ENOTFOUND);
    CHECK(mkdir(folder, 0777) == 0);
    CHECK_STATUS(tl_vocab_new_bpe(ctx, folder, NULL, NULL, &v), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "is not a plain file") != NULL);
}

static void without_memory_nothing_is_left(void)
{
    tl_status st = TL_ENOMEM;
    int64_t n = 0;
    size_t before = tl_memory_info(ctx).live;
    for (; st == TL_ENOMEM && n < 1000; n++) {
        tl_vocab *v = NULL;
        tl_alloc_fail_after(ctx, n);
        st = load(NULL, NULL, NULL, 3, &v);
        tl_vocab_free(v);
        CHECK(tl_memory_info(ctx).live == before);
    }
    tl_alloc_fail_after(ctx, -1);
    CHECK(st == TL_OK && n > 20);
}

int main(void)
{
    if (!scratch_new() || tl_ctx_new(1, &ctx) != TL_OK) return 1;
    make_files();
    int status = run_tests((const test[]){
        {"merges_alone_give_ids_in_their_order", merges_alone_give_ids_in_their_order},
        {"an_encoder_gives_the_ids", an_encoder_gives_the_ids},
        {"a_dictionary_gives_rows_and_lines", a_dictionary_gives_rows_and_lines},
        {"our_header_is_checked", our_header_is_checked},
        {"what_is_wrong_is_named", what_is_wrong_is_named},
        {"ids_have_to_fit_together", ids_have_to_fit_together},
        {"every_truncation_of_a_file_is_noticed", every_truncation_of_a_file_is_noticed},
        {"files_that_are_not_there", files_that_are_not_there},
        {"without_memory_nothing_is_left", without_memory_nothing_is_left},
        {0}});
    tl_ctx_free(ctx);
    scratch_free();
    return status;
}

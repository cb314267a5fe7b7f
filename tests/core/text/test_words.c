/* test_words.c - texts of words: counting, the vocabulary, and encoding in parts. */
#include <string.h>

#include "base/memory.h"
#include "test.h"
#include "toeplab-lab.h"

static tl_ctx *ctx;

static tl_status count(const char *text, size_t part, tl_vocab **out_v)
{
    tl_counter *c = NULL;
    size_t bytes = strlen(text);
    tl_status st = tl_counter_new(ctx, TL_COUNT_WORDS, &c);
    for (size_t at = 0; st == TL_OK && at < bytes; at += part)
        st = tl_counter_feed(c, text + at, bytes - at < part ? bytes - at : part);
    if (st == TL_OK) st = tl_vocab_new_words(c, out_v);
    tl_counter_free(c);
    return st;
}

static tl_vocab *words(const char *text, size_t part)
{
    tl_vocab *v = NULL;
    CHECK_STATUS(count(text, part, &v), TL_OK);
    return v;
}

/* The vocabulary in one text. */
static const char *all(const tl_vocab *v)
{
    static char text[512];
    size_t n, at = 0;
    for (int32_t i = 0; i < tl_vocab_size(v); i++) {
        const char *s = tl_vocab_token(v, i, &n);
        memcpy(text + at, s, n);
        at += n;
    }
    text[at] = '\0';
    return text;
}

static int becomes(tl_vocab *v, const char *text, size_t part, const int32_t *want)
{
    tl_encoder *e = NULL;
    tl_tensor *ids = NULL;
    size_t bytes = strlen(text);
    CHECK_STATUS(tl_encoder_new(v, &e), TL_OK);
    for (size_t at = 0; at < bytes; at += part)
        CHECK_STATUS(tl_encoder_feed(e, text + at, bytes - at < part ? bytes - at : part), TL_OK);
    CHECK_STATUS(tl_encoder_finish(e, &ids), TL_OK);
    const int32_t *got = tl_tensor_ci32(ids);
    int64_t i = 0, n = tl_tensor_len(ids);
    while (i < n && want[i] >= 0 && got[i] == want[i]) i++;
    int same = i == n && want[i] < 0;
    tl_tensor_free(ids);
    tl_encoder_free(e);
    return same;
}

static const char text[] = " \n = A b = \n \n b the  b \xc3\xa9 <unk>\n";

static void words_are_in_order_of_frequency(void)
{
    for (size_t part = 1; part < sizeof text; part++) {
        tl_vocab *v = words(text, part);
        CHECK(!strcmp(all(v), " \n b = A the \xc3\xa9 <unk>"));
        CHECK(tl_vocab_eos(v) == 0);
        tl_vocab_free(v);
    }
}

static void lines_and_unknown_words(void)
{
    tl_vocab *v = words(text, sizeof text);
    for (size_t part = 1; part < 20; part++) {
        CHECK(becomes(v, " \n the b B \n", part, (int32_t[]){0, 4, 1, 6, 0, -1}));
        CHECK(becomes(v, "the b", part, (int32_t[]){4, 1, -1}));
        CHECK(becomes(v, "", part, (int32_t[]){-1}));
        CHECK(becomes(v, "  <eos>   \n", part, (int32_t[]){0, 0, -1}));
    }
    tl_vocab_free(v);
}

static void there_is_always_an_unknown_word_and_an_end(void)
{
    tl_vocab *v = words("a b", 2);
    CHECK(!strcmp(all(v), " a b \n <unk>") && tl_vocab_eos(v) == 2);
    CHECK(becomes(v, "b c\n", 9, (int32_t[]){1, 3, 2, -1}));
    tl_vocab_free(v);
    v = words("", 1);
    CHECK(tl_vocab_size(v) == 2);
    CHECK(becomes(v, "x", 1, (int32_t[]){1, -1}));
    tl_vocab_free(v);
}

/* The tokens written as a text of one line give the same vocabulary: how it is stored. */
static void a_vocabulary_survives_being_a_text(void)
{
    tl_vocab *v = words(text, 3);
    tl_vocab *again = words("<eos> b = A the \xc3\xa9 <unk>", 5);
    CHECK(tl_vocab_size(v) == tl_vocab_size(again) && tl_vocab_eos(again) == 0);
    char first[512];
    (void)snprintf(first, sizeof first, "%s", all(v));
    CHECK(!strcmp(first, all(again)));
    tl_vocab_free(v);
    tl_vocab_free(again);
}

/* Many words: hash tables grow, blocks of ids follow one another. */
static void many_words(void)
{
    enum { WORDS = 300000 };
    char word[16];
    int wrong = 0;
    tl_counter *c = NULL;
    tl_vocab *v = NULL;
    tl_encoder *e = NULL;
    tl_tensor *ids = NULL;
    CHECK_STATUS(tl_counter_new(ctx, TL_COUNT_WORDS, &c), TL_OK);
    for (int i = 0; i < WORDS; i++) {
        int n = snprintf(word, sizeof word, "w%d ", i);
        wrong += tl_counter_feed(c, word, (size_t)n) != TL_OK;
    }
    CHECK(tl_counter_size(c) == WORDS);
    CHECK_STATUS(tl_vocab_new_words(c, &v), TL_OK);
    CHECK_STATUS(tl_encoder_new(v, &e), TL_OK);
    for (int i = WORDS; i-- > 0;) {
        int n = snprintf(word, sizeof word, "w%d ", i);
        wrong += tl_encoder_feed(e, word, (size_t)n) != TL_OK;
    }
    CHECK_STATUS(tl_encoder_finish(e, &ids), TL_OK);
    CHECK(tl_tensor_len(ids) == WORDS);
    for (int i = 0; i < WORDS; i++) wrong += tl_tensor_ci32(ids)[i] != WORDS - 1 - i;
    CHECK(!wrong);
    tl_vocab_free(v);
    CHECK_STATUS(tl_vocab_new_words(c, &v), TL_OK); /* again, of the same text */
    CHECK(tl_vocab_size(v) == WORDS + 2);
    tl_tensor_free(ids);
    tl_encoder_free(e);
    tl_vocab_free(v);
    tl_counter_free(c);
}

static void parts_of_characters_and_bytes(void)
{
    const char *s = "a\xe2\x82\xac\xf0\x9f\x98\x80z";
    tl_vocab *v = NULL;
    tl_encoder *e = NULL;
    tl_tensor *ids = NULL;
    CHECK_STATUS(tl_vocab_new_chars(ctx, s, strlen(s), &v), TL_OK);
    for (size_t part = 1; part < 9; part++) CHECK(becomes(v, s, part, (int32_t[]){0, 2, 3, 1, -1}));
    CHECK_STATUS(tl_encoder_new(v, &e), TL_OK);
    CHECK_STATUS(tl_encoder_feed(e, "az\xe2\x82", 4), TL_OK);
    CHECK_STATUS(tl_encoder_finish(e, &ids), TL_EINVAL); /* the character does not end */
    CHECK(strstr(tl_errmsg(ctx), "0xe2 at offset 2") != NULL);
    tl_encoder_free(e);
    CHECK_STATUS(tl_encoder_new(v, &e), TL_OK);
    CHECK_STATUS(tl_encoder_feed(e, "azaz", 4), TL_OK);
    CHECK_STATUS(tl_encoder_feed(e, "aq", 2), TL_ENOTFOUND);
    CHECK(strstr(tl_errmsg(ctx), "offset 5") != NULL);
    CHECK_STATUS(tl_encoder_finish(e, &ids), TL_EINVAL); /* never half a text */
    tl_encoder_free(e);
    tl_vocab_free(v);
    CHECK_STATUS(tl_vocab_new_bytes(ctx, &v), TL_OK);
    CHECK(becomes(v, "a\xff", 1, (int32_t[]){'a', 255, -1}) && tl_vocab_eos(v) == -1);
    tl_vocab_free(v);
}

static void without_memory_nothing_is_left(void)
{
    tl_status st = TL_ENOMEM;
    int64_t n = 0;
    size_t before = tl_memory_info(ctx).live;
    for (; st == TL_ENOMEM && n < 1000; n++) {
        tl_vocab *v = NULL;
        tl_tensor *ids = NULL;
        tl_alloc_fail_after(ctx, n);
        st = count(text, 5, &v);
        if (st == TL_OK) st = tl_vocab_encode(v, text, strlen(text), &ids);
        tl_vocab_free(v);
        tl_tensor_free(ids);
        CHECK(tl_memory_info(ctx).live == before);
    }
    tl_alloc_fail_after(ctx, -1);
    CHECK(st == TL_OK && n > 10);
}

static void a_text_that_failed_makes_no_vocabulary(void)
{
    tl_counter *c = NULL;
    tl_vocab *v = NULL;
    CHECK_STATUS(tl_counter_new(ctx, TL_COUNT_WORDS, &c), TL_OK);
    tl_alloc_fail_after(ctx, 0);
    CHECK_STATUS(tl_counter_feed(c, "a b\nc", 5), TL_ENOMEM);
    tl_alloc_fail_after(ctx, -1);
    CHECK_STATUS(tl_counter_feed(c, "d", 1), TL_EINVAL);
    CHECK_STATUS(tl_vocab_new_words(c, &v), TL_EINVAL);
    CHECK(v == NULL);
    tl_counter_free(c);
}

int main(void)
{
    if (tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int status = run_tests((const test[]){
        {"words_are_in_order_of_frequency", words_are_in_order_of_frequency},
        {"lines_and_unknown_words", lines_and_unknown_words},
        {"there_is_always_an_unknown_word_and_an_end", there_is_always_an_unknown_word_and_an_end},
        {"a_vocabulary_survives_being_a_text", a_vocabulary_survives_being_a_text},
        {"many_words", many_words},
        {"parts_of_characters_and_bytes", parts_of_characters_and_bytes},
        {"without_memory_nothing_is_left", without_memory_nothing_is_left},
        {"a_text_that_failed_makes_no_vocabulary", a_text_that_failed_makes_no_vocabulary},
        {0}});
    tl_ctx_free(ctx);
    return status;
}

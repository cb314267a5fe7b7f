/* test_text.c - vocabularies, windows, and n-grams against a slow model that is plainly right. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "test.h"
#include "toeplab-lab.h"

static tl_ctx *ctx;

static tl_tensor *ids_of(const int32_t *data, int64_t len)
{
    tl_tensor *t = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 1, &len, &t), TL_OK);
    if (len) memcpy(tl_tensor_i32(t), data, (size_t)len * sizeof *data);
    return t;
}

/* ---- Vocabularies ---- */

static void bytes_are_their_own_ids(void)
{
    const char text[] = "a\0\xff";
    tl_vocab *v = NULL;
    tl_tensor *ids = NULL;
    size_t n;
    CHECK_STATUS(tl_vocab_new_bytes(ctx, &v), TL_OK);
    CHECK(tl_vocab_size(v) == 256);
    CHECK_STATUS(tl_vocab_encode(v, text, 3, &ids), TL_OK);
    CHECK(tl_tensor_len(ids) == 3 && tl_tensor_i32(ids)[0] == 'a');
    CHECK(tl_tensor_i32(ids)[1] == 0 && tl_tensor_i32(ids)[2] == 255);
    CHECK(*tl_vocab_token(v, 255, &n) == '\xff' && n == 1);
    CHECK(!tl_vocab_token(v, 256, &n) && !tl_vocab_token(v, -1, &n));
    tl_tensor_free(ids);
    tl_vocab_free(v);
}

static void characters_are_in_code_point_order(void)
{
    const char *text = "z\xc3\xa9"        /* U+00E9 */
                       "\xe2\x82\xac"     /* U+20AC */
                       "\xf0\x9f\x98\x80" /* U+1F600 */
                       "az\xc3\xa9";
    static const int32_t want[] = {1, 2, 3, 4, 0, 1, 2};
    char back[64] = "";
    tl_vocab *v = NULL;
    tl_tensor *ids = NULL;
    CHECK_STATUS(tl_vocab_new_chars(ctx, text, strlen(text), &v), TL_OK);
    CHECK(tl_vocab_size(v) == 5);
    CHECK_STATUS(tl_vocab_encode(v, text, strlen(text), &ids), TL_OK);
    CHECK(tl_tensor_len(ids) == 7 && !memcmp(tl_tensor_i32(ids), want, sizeof want));
    for (int i = 0; i < 7; i++) {
        size_t n;
        const char *token = tl_vocab_token(v, tl_tensor_i32(ids)[i], &n);
        (void)strncat(back, token, n);
    }
    CHECK(!strcmp(back, text));
    tl_tensor_free(ids);
    tl_vocab_free(v);
}

static void every_code_point_survives(void)
{
    char *text = malloc(4 * 0x110000);
    size_t bytes = 0, n;
    for (uint32_t c = 0; c < 0x110000; c++) { /* written in a way of its own */
        if (c >= 0xd800 && c < 0xe000) continue;
        if (c >= 0x10000) text[bytes++] = (char)(0xf0 + (c >> 18));
        if (c >= 0x800)
            text[bytes++] = (char)(c >= 0x10000 ? 0x80 + (c >> 12 & 63) : 0xe0 + (c >> 12));
        if (c >= 0x80) text[bytes++] = (char)(c >= 0x800 ? 0x80 + (c >> 6 & 63) : 0xc0 + (c >> 6));
        text[bytes++] = (char)(c >= 0x80 ? 0x80 + (c & 63) : c);
    }
    tl_vocab *v = NULL;
    tl_tensor *ids = NULL;
    CHECK_STATUS(tl_vocab_new_chars(ctx, text, bytes, &v), TL_OK);
    CHECK(tl_vocab_size(v) == 0x110000 - 0x800);
    CHECK_STATUS(tl_vocab_encode(v, text, bytes, &ids), TL_OK);
    int wrong = 0;
    const char *at = text;
    for (int32_t i = 0; i < tl_vocab_size(v); i++) {
        const char *token = tl_vocab_token(v, i, &n);
        wrong += tl_tensor_i32(ids)[i] != i || memcmp(token, at, n) != 0;
        at += n;
    }
    CHECK(!wrong && at == text + bytes);
    tl_tensor_free(ids);
    tl_vocab_free(v);
    free(text);
}

static void bytes_that_are_not_utf8_are_named(void)
{
    static const struct {
        const char *text, *message;
    } bad[] = {{"ab\xff", "0xff at offset 2"},
               {"\x80", "0x80 at offset 0"},
               {"\xc3", "0xc3 at offset 0"},
               {"a\xc3z", "0xc3 at offset 1"},
               {"\xc0\xaf", "0xc0 at offset 0"},
               {"\xe0\x80\xaf", "0xe0 at offset 0"},
               {"\xed\xa0\x80", "0xed at offset 0"},
               {"\xf4\x90\x80\x80", "0xf4 at offset 0"},
               {"\xe2\x82", "0xe2 at offset 0"},
               {"\xf0\x80\x80\x80", "0xf0 at offset 0"},
               {"x\xf5\x80\x80\x80", "0xf5 at offset 1"}};
    tl_vocab *v = NULL, *none = NULL;
    tl_tensor *ids;
    CHECK_STATUS(tl_vocab_new_chars(ctx, "abxz", 4, &v), TL_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(tl_vocab_new_chars(ctx, bad[i].text, strlen(bad[i].text), &none), TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), bad[i].message) != NULL);
        CHECK_STATUS(tl_vocab_encode(v, bad[i].text, strlen(bad[i].text), &ids), TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), bad[i].message) != NULL);
    }
    tl_vocab_free(v);
}

static void unknown_characters_are_named(void)
{
    tl_vocab *v = NULL;
    tl_tensor *ids;
    CHECK_STATUS(tl_vocab_new_chars(ctx, "abc", 3, &v), TL_OK);
    CHECK_STATUS(tl_vocab_encode(v, "ab\xc3\xa9", 4, &ids), TL_ENOTFOUND);
    CHECK(strstr(tl_errmsg(ctx), "U+00E9") && strstr(tl_errmsg(ctx), "offset 2"));
    tl_vocab_free(v);
}

static void empty_text_is_a_text(void)
{
    tl_vocab *v = NULL;
    tl_tensor *ids = NULL;
    CHECK_STATUS(tl_vocab_new_chars(ctx, "", 0, &v), TL_OK);
    CHECK(tl_vocab_size(v) == 0);
    CHECK_STATUS(tl_vocab_encode(v, "", 0, &ids), TL_OK);
    CHECK(tl_tensor_ndim(ids) == 1 && tl_tensor_len(ids) == 0);
    tl_tensor_free(ids);
    tl_vocab_free(v);
    tl_vocab_free(NULL);
}

/* ---- Windows ---- */

static void windows_copy_rows(void)
{
    tl_tensor *rows = NULL;
    tl_tensor *ids = ids_of((int32_t[]){10, 11, 12, 13, 14}, 5);
    tl_tensor *starts = ids_of((int32_t[]){2, 0, 2}, 3);
    static const int32_t want[] = {12, 13, 14, 10, 11, 12, 12, 13, 14};
    CHECK_STATUS(tl_gather_windows(ids, starts, 3, &rows), TL_OK);
    CHECK(tl_tensor_ndim(rows) == 2 && tl_tensor_dim(rows, 0) == 3 && tl_tensor_dim(rows, 1) == 3);
    CHECK(!memcmp(tl_tensor_i32(rows), want, sizeof want));
    tl_tensor_free(rows);
    CHECK_STATUS(tl_gather_windows(ids, starts, 0, &rows), TL_OK);
    CHECK(tl_tensor_len(rows) == 0);
    tl_tensor_free(rows);
    tl_tensor_free(starts);
    starts = ids_of(NULL, 0);
    CHECK_STATUS(tl_gather_windows(ids, starts, 5, &rows), TL_OK);
    CHECK(tl_tensor_dim(rows, 0) == 0 && tl_tensor_dim(rows, 1) == 5);
    tl_tensor_free(rows);
    tl_tensor_free(starts);
    tl_tensor_free(ids);
}

static void windows_outside_are_refused(void)
{
    static const int32_t outside[] = {3, -1, INT32_MAX, INT32_MIN};
    tl_tensor *rows, *ids = ids_of((int32_t[]){10, 11, 12, 13, 14}, 5);
    for (int i = 0; i < 4; i++) {
        tl_tensor *starts = ids_of((int32_t[]){0, outside[i]}, 2);
        CHECK_STATUS(tl_gather_windows(ids, starts, 3, &rows), TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), "row 1") && strstr(tl_errmsg(ctx), "the 5 ids"));
        tl_tensor_free(starts);
    }
    tl_tensor *zero = ids_of((int32_t[]){0}, 1), *real = NULL;
    CHECK_STATUS(tl_gather_windows(ids, zero, 6, &rows), TL_EINVAL);
    CHECK_STATUS(tl_gather_windows(ids, zero, -1, &rows), TL_EINVAL);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 1, (int64_t[]){1}, &real), TL_OK);
    CHECK_STATUS(tl_gather_windows(ids, real, 1, &rows), TL_ETYPE);
    CHECK_STATUS(tl_gather_windows(real, zero, 1, &rows), TL_ETYPE);
    tl_tensor_free(real);
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 2, (int64_t[]){1, 1}, &real), TL_OK);
    CHECK_STATUS(tl_gather_windows(ids, real, 1, &rows), TL_ESHAPE);
    tl_tensor_free(real);
    tl_tensor_free(zero);
    tl_tensor_free(ids);
}

/* ---- N-grams ---- */

/* P_k(c|h) by counting through all of train; all: train and test in one. */
static double slow_probability(const int32_t *all, int64_t train, int64_t at, int k, int32_t v)
{
    if (k == 0) return 1.0 / v;
    int64_t count = 0, joint = 0, kinds = 0;
    char seen[64] = "";
    double shorter = slow_probability(all, train, at, k - 1, v);
    if (at < k - 1) return shorter; /* there are not that many before it */
    for (int64_t i = k - 1; i < train; i++) {
        if (memcmp(all + i - k + 1, all + at - k + 1, (size_t)(k - 1) * sizeof *all)) continue;
        count++;
        joint += all[i] == all[at];
        kinds += !seen[all[i]];
        seen[all[i]] = 1;
    }
    return count ? (joint + kinds * shorter) / (count + (double)kinds) : shorter;
}

static double slow_bits(const int32_t *all, int64_t train, int64_t len, int order, int32_t v)
{
    double bits = 0;
    for (int64_t i = train; i < len; i++) bits -= log2(slow_probability(all, train, i, order, v));
    return bits / (double)(len - train);
}

/* A text in which what follows depends on two tokens before. */
static void make_text(int32_t *ids, int64_t len, int32_t v, uint64_t seed)
{
    tl_stream s = tl_stream_new(seed, "text");
    for (int64_t i = 0; i < len; i++)
        ids[i] = i < 2 || tl_random_below(&s, 3) == 0 ? (int32_t)tl_random_below(&s, v)
                                                      : (ids[i - 1] * 2 + ids[i - 2]) % v;
}

static double ngram(const int32_t *all, int64_t train, int64_t len, int order, int32_t v)
{
    double bits = NAN;
    tl_tensor *a = ids_of(all, train), *b = ids_of(all + train, len - train);
    CHECK_STATUS(tl_ngram_bits(a, b, order, v, TL_WITTEN_BELL, &bits), TL_OK);
    tl_tensor_free(a);
    tl_tensor_free(b);
    return bits;
}

static void ngrams_agree_with_the_slow_model(void)
{
    static const struct {
        int64_t train, test;
        int32_t v;
    } texts[] = {{300, 60, 5}, {40, 20, 11}, {1000, 50, 3}, {1, 9, 4}, {2, 9, 4}, {0, 5, 7}};
    int32_t all[1100];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t len = texts[i].train + texts[i].test;
        make_text(all, len, texts[i].v, i);
        for (int order = 0; order <= 7; order++)
            CHECK_NEAR(ngram(all, texts[i].train, len, order, texts[i].v),
                       slow_bits(all, texts[i].train, len, order, texts[i].v), 1e-12);
    }
}

static void the_slow_model_would_notice(void) /* a fault planted in what is compared */
{
    int32_t all[360];
    make_text(all, 360, 5, 0);
    double right = slow_bits(all, 300, 360, 3, 5);
    all[150] = (all[150] + 1) % 5;
    CHECK(fabs(ngram(all, 300, 360, 3, 5) - right) > 1e-6);
    all[150] = (all[150] + 4) % 5;
    CHECK(fabs(ngram(all, 299, 360, 3, 5) - right) > 1e-6);
    CHECK(fabs(ngram(all, 300, 360, 2, 5) - right) > 1e-6);
}

static void ngrams_keep_the_bounds_of_entropy(void)
{
    enum { LEN = 60000, TRAIN = 50000 };
    int32_t *all = malloc(LEN * sizeof *all);
    tl_stream s = tl_stream_new(1, "text");
    CHECK_NEAR(ngram((int32_t[]){0, 1, 2, 3}, 2, 4, 0, 8), 3.0, 1e-12);      /* order 0: log2 8 */
    for (int i = 0; i < LEN; i++) all[i] = (int32_t)tl_random_below(&s, 16); /* 4 bits each */
    double bits = ngram(all, TRAIN, LEN, 1, 16);
    CHECK(bits > 3.999 && bits < 4.01);
    bits = ngram(all, TRAIN, LEN, 5, 16);
    CHECK(bits > 3.999 && bits < 5);
    for (int i = 0; i < LEN; i++) all[i] = i % 7; /* known from the one before: 0 bits */
    bits = ngram(all, TRAIN, LEN, 2, 7);
    CHECK(bits > 0 && bits < 0.01);
    CHECK_NEAR(ngram(all, TRAIN, LEN, 1, 7), log2(7), 0.001);
    make_text(all, LEN, 9, 3); /* needs two before: order 3 is much better than 2 */
    CHECK(ngram(all, TRAIN, LEN, 3, 9) < ngram(all, TRAIN, LEN, 2, 9) - 0.5);
    free(all);
}

static void wrong_ngrams_are_refused(void)
{
    double bits = -1;
    tl_tensor *a = ids_of((int32_t[]){0, 1, 2}, 3), *none = ids_of(NULL, 0), *real = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 1, (int64_t[]){3}, &real), TL_OK);
    CHECK_STATUS(tl_ngram_bits(a, a, 2, 2, TL_WITTEN_BELL, &bits), TL_EINVAL); /* id 2 of 2 */
    CHECK(strstr(tl_errmsg(ctx), "train[2] is 2"));
    CHECK_STATUS(tl_ngram_bits(a, a, -1, 3, TL_WITTEN_BELL, &bits), TL_EINVAL);
    CHECK_STATUS(tl_ngram_bits(a, a, 33, 3, TL_WITTEN_BELL, &bits), TL_EINVAL);
    CHECK_STATUS(tl_ngram_bits(a, none, 2, 3, TL_WITTEN_BELL, &bits), TL_EINVAL);
    CHECK_STATUS(tl_ngram_bits(a, real, 2, 3, TL_WITTEN_BELL, &bits), TL_ETYPE);
    CHECK(bits == -1);
    CHECK_STATUS(tl_ngram_bits(a, a, 32, 3, TL_WITTEN_BELL, &bits), TL_OK);
    tl_tensor_free(a);
    tl_tensor_free(none);
    tl_tensor_free(real);
}

/* Each allocation fails in turn: an error, nothing kept, until there is enough. */
static void ngrams_without_memory_say_so(void)
{
    enum { LEN = 9000 };
    int32_t *all = malloc(LEN * sizeof *all);
    double bits = 0;
    int64_t n = 0;
    make_text(all, LEN, 9, 5);
    tl_tensor *a = ids_of(all, LEN);
    size_t before = tl_memory_info(ctx).live;
    tl_status st = TL_ENOMEM;
    for (; st == TL_ENOMEM && n < 100; n++) {
        tl_alloc_fail_after(ctx, n);
        st = tl_ngram_bits(a, a, 5, 9, TL_WITTEN_BELL, &bits);
        CHECK(tl_memory_info(ctx).live == before);
    }
    tl_alloc_fail_after(ctx, -1);
    CHECK(st == TL_OK && n > 4 && bits > 0);
    tl_tensor_free(a);
    free(all);
}

int main(void)
{
    if (tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int status = run_tests(
        (const test[]){{"bytes_are_their_own_ids", bytes_are_their_own_ids},
                       {"characters_are_in_code_point_order", characters_are_in_code_point_order},
                       {"every_code_point_survives", every_code_point_survives},
                       {"bytes_that_are_not_utf8_are_named", bytes_that_are_not_utf8_are_named},
                       {"unknown_characters_are_named", unknown_characters_are_named},
                       {"empty_text_is_a_text", empty_text_is_a_text},
                       {"windows_copy_rows", windows_copy_rows},
                       {"windows_outside_are_refused", windows_outside_are_refused},
                       {"ngrams_agree_with_the_slow_model", ngrams_agree_with_the_slow_model},
                       {"the_slow_model_would_notice", the_slow_model_would_notice},
                       {"ngrams_keep_the_bounds_of_entropy", ngrams_keep_the_bounds_of_entropy},
                       {"wrong_ngrams_are_refused", wrong_ngrams_are_refused},
                       {"ngrams_without_memory_say_so", ngrams_without_memory_say_so},
                       {0}});
    tl_ctx_free(ctx);
    return status;
}

/* test_kneser_ney.c - n-grams by modified Kneser-Ney smoothing, compared with a slow model that
** counts by its definition, and with numbers that were computed elsewhere. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "test.h"
#include "toeplab-lab.h"

static tl_ctx *ctx;

/* ---- The slow model ---- */

enum { VOCAB = 12, MAX_TOKENS = 1100 };

typedef struct text { /* rows of order tokens, the last of which is predicted; -1: absent */
    int32_t rows[MAX_TOKENS][8];
    int learnt, count, order, v;
} text;

static text t;

static int32_t at(int row, int back)
{
    return t.rows[row][t.order - 1 - back];
}

static int whole(int row, int k)
{
    for (int back = 1; back < k; back++)
        if (at(row, back) < 0) return 0;
    return 1;
}

static int same(int a, int b, int from, int to)
{
    for (int back = from; back < to; back++)
        if (at(a, back) != at(b, back)) return 0;
    return 1;
}

/* Returns a(h x), where h is the k-1 tokens before the last of row. */
static int slow_count(int row, int32_t x, int k)
{
    int count = 0;
    char before[VOCAB + 1] = "";
    for (int i = 0; i < t.learnt; i++) {
        if (at(i, 0) != x || !whole(i, k) || !same(i, row, 1, k)) continue;
        char *seen = k < t.order ? &before[at(i, k) + 1] : NULL;
        count += !seen || !*seen;
        if (seen) *seen = 1;
    }
    return count;
}

static void slow_discounts(int k, double *d)
{
    double n[5] = {0};
    for (int i = 0; i < t.learnt; i++) {
        int first = whole(i, k);
        for (int j = 0; j < i && first; j++) first = !whole(j, k) || !same(i, j, 0, k);
        int a = first ? slow_count(i, at(i, 0), k) : 0;
        if (a && a < 5) n[a]++;
    }
    double y = n[1] / (n[1] + 2 * n[2]);
    d[0] = 0, d[1] = 1 - 2 * y * n[2] / n[1], d[2] = 2 - 3 * y * n[3] / n[2];
    d[3] = 3 - 4 * y * n[4] / n[3];
    if (!(d[1] > 0 && d[2] > 0 && d[3] > 0 && n[3] > 0)) d[1] = 0.5, d[2] = 1, d[3] = 1.5;
}

static double slow_probability(int row, int k, double d[][4])
{
    if (k == 0) return 1.0 / t.v;
    double shorter = slow_probability(row, k - 1, d), sum = 0, cut = 0;
    if (!whole(row, k)) return shorter;
    for (int32_t x = 0; x < t.v; x++) {
        int a = slow_count(row, x, k);
        sum += a;
        cut += d[k][a < 3 ? a : 3];
    }
    int a = slow_count(row, at(row, 0), k);
    return sum > 0 ? (a - d[k][a < 3 ? a : 3] + cut * shorter) / sum : shorter;
}

static double slow_bits(void)
{
    double bits = 0, d[8][4] = {{0}};
    for (int k = 1; k <= t.order; k++) slow_discounts(k, d[k]);
    for (int i = t.learnt; i < t.count; i++) bits -= log2(slow_probability(i, t.order, d));
    return bits / (t.count - t.learnt);
}

/* Sets t to the rows of a running text. */
static void rows_of(const int32_t *ids, int learnt, int count, int order, int v)
{
    t = (text){.learnt = learnt, .count = count, .order = order, .v = v};
    for (int i = 0; i < count; i++)
        for (int j = 0; j < order; j++)
            t.rows[i][j] = i + j + 1 < order ? -1 : ids[i + j + 1 - order];
}

/* ---- Tests ---- */

static double bits_of(int ndim, const int64_t *dims, const int32_t *ids, const int64_t *rest,
                      const int32_t *more, int order, int v)
{
    double bits = NAN;
    tl_tensor *a = NULL, *b = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, ndim, dims, &a), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, ndim, rest, &b), TL_OK);
    if (tl_tensor_len(a)) memcpy(tl_tensor_i32(a), ids, (size_t)tl_tensor_len(a) * sizeof *ids);
    memcpy(tl_tensor_i32(b), more, (size_t)tl_tensor_len(b) * sizeof *more);
    CHECK_STATUS(tl_ngram_bits(a, b, order, v, TL_KNESER_NEY, &bits), TL_OK);
    tl_tensor_free(a);
    tl_tensor_free(b);
    return bits;
}

/* Returns the bits a token of all[learnt .. count-1] after those before. */
static double running(const int32_t *all, int64_t learnt, int64_t count, int order, int v)
{
    int64_t rest = count - learnt;
    return bits_of(1, &learnt, all, &rest, all + learnt, order, v);
}

/* A text in which what follows depends on two tokens before, by a generator that is easy to write
** in another language. */
static void make_text(int32_t *ids, int len, int v)
{
    uint32_t x = 1;
    for (int i = 0; i < len; i++) {
        x = (x * 1103515245u + 12345) & 0x7fffffff;
        ids[i] = i < 2 || (x >> 16) % 3 == 0 ? (int32_t)((x >> 16) % (uint32_t)v)
                                             : (2 * ids[i - 1] + ids[i - 2]) % v;
    }
}

static void a_running_text_agrees_with_the_slow_model(void)
{
    static const struct {
        int learnt, test, v;
    } texts[] = {{300, 60, 5}, {40, 20, 11}, {500, 20, 3}, {1, 9, 4},
                 {2, 9, 4},    {0, 5, 7},    {7, 3, 1},    {60, 30, 12}};
    int32_t all[MAX_TOKENS];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int learnt = texts[i].learnt, count = learnt + texts[i].test, v = texts[i].v;
        make_text(all, count, v);
        if (v == 12) /* the second half, and so the test, has tokens that the first has not */
            for (int j = 0; j < learnt; j++) all[j] %= 6;
        for (int order = 1; order <= 6; order++) {
            rows_of(all, learnt, count, order, v);
            CHECK_NEAR(running(all, learnt, count, order, v), slow_bits(), 1e-10);
        }
    }
}

static void rows_on_their_own_agree_with_the_slow_model(void)
{
    enum { LEARNT = 200, COUNT = 260, V = 4 };
    int32_t flat[COUNT * 6];
    tl_stream s = tl_stream_new(1, "rows");
    for (int order = 1; order <= 6; order++) {
        t = (text){.learnt = LEARNT, .count = COUNT, .order = order, .v = V};
        for (int i = 0; i < COUNT * order; i++) {
            int context = (i + 1) % order != 0;
            int32_t id = (int32_t)tl_random_below(&s, V + context) - context;
            t.rows[i / order][i % order] = flat[i] = id;
        }
        int64_t dims[] = {LEARNT, order}, rest[] = {COUNT - LEARNT, order};
        CHECK_NEAR(bits_of(2, dims, flat, rest, flat + LEARNT * order, order, V), slow_bits(),
                   1e-10);
    }
}

static void windows_of_a_text_are_the_text(void)
{
    enum { LEARNT = 400, COUNT = 450, ORDER = 4 };
    int32_t all[COUNT], flat[COUNT * ORDER];
    make_text(all, COUNT, 9);
    rows_of(all, LEARNT, COUNT, ORDER, 9);
    for (int i = 0; i < COUNT * ORDER; i++) flat[i] = t.rows[i / ORDER][i % ORDER];
    int64_t dims[] = {LEARNT, ORDER}, rest[] = {COUNT - LEARNT, ORDER};
    CHECK_NEAR(bits_of(2, dims, flat, rest, flat + LEARNT * ORDER, ORDER, 9),
               running(all, LEARNT, COUNT, ORDER, 9), 1e-13);
}

static void other_texts_give_other_bits(void) /* a fault planted in what is compared */
{
    int32_t all[360];
    make_text(all, 360, 5);
    rows_of(all, 300, 360, 3, 5);
    double right = slow_bits();
    CHECK(fabs(running(all, 299, 360, 3, 5) - right) > 1e-6);
    CHECK(fabs(running(all, 300, 360, 2, 5) - right) > 1e-6);
    all[150] = (all[150] + 1) % 5;
    CHECK(fabs(running(all, 300, 360, 3, 5) - right) > 1e-6);
}

/* By a program in Python that keeps the sequences and what comes before them in dictionaries. */
static void a_longer_text_agrees_with_another_program(void)
{
    enum { LEARNT = 18000, COUNT = 20000 };
    static const double bits[] = {5.645495978895715,  5.739163416472601,  3.1446604206601534,
                                  3.2771089910189093, 3.2621830518388406, 3.2413805057351297};
    int32_t *all = malloc(COUNT * sizeof *all);
    make_text(all, COUNT, 50);
    for (int order = 1; order <= 6; order++)
        CHECK_NEAR(running(all, LEARNT, COUNT, order, 50), bits[order - 1], 1e-12);
    free(all);
}

static void the_probabilities_of_all_tokens_have_the_sum_1(void)
{
    int32_t all[301];
    for (int v = 1; v <= 9; v += 4)
        for (int order = 0; order <= 6; order++)
            for (int learnt = 0; learnt <= 300; learnt += 60) {
                double sum = 0;
                make_text(all, learnt, v);
                for (all[learnt] = 0; all[learnt] < v; all[learnt]++)
                    sum += exp2(-running(all, learnt, learnt + 1, order, v));
                CHECK_NEAR(sum, 1, 1e-12);
            }
}

/* "a b a": of the bigrams, "a b" and "b a" have been counted once, and nothing else. */
static void a_tiny_text_by_hand(void)
{
    static const int32_t aba[] = {0, 1, 0};
    double d = 0.5, uniform = 1.0 / 3; /* too few sequences to estimate discounts */
    /* a follows the beginning and b, b follows a: counts 2 and 1 */
    double b = (1 - d + (d + 1) * uniform) / 3, c = (d + 1) * uniform / 3;
    for (int32_t x = 1; x < 3; x++) { /* after a, of which b has followed once */
        int32_t all[] = {aba[0], aba[1], aba[2], x};
        double p = x == 1 ? 1 - d + d * b : d * c;
        CHECK_NEAR(running(all, 3, 4, 2, 3), -log2(p), 1e-12);
    }
    CHECK_NEAR(running((int32_t[]){4, 2}, 1, 2, 6, 8), log2(16), 1e-12); /* 1/2 x 1/8 */
}

static void wrong_rows_are_refused(void)
{
    double bits = -1;
    tl_tensor *flat = NULL, *rows = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 1, (int64_t[]){4}, &flat), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 2, (int64_t[]){2, 2}, &rows), TL_OK);
    memcpy(tl_tensor_i32(rows), (int32_t[]){-1, 1, 1, 0}, 4 * sizeof(int32_t));
    CHECK_STATUS(tl_ngram_bits(rows, rows, 2, 2, TL_KNESER_NEY, &bits), TL_OK);
    CHECK(bits > 0);
    bits = -1;
    CHECK_STATUS(tl_ngram_bits(rows, rows, 2, 2, TL_WITTEN_BELL, &bits), TL_ESHAPE);
    CHECK_STATUS(tl_ngram_bits(rows, flat, 2, 2, TL_KNESER_NEY, &bits), TL_ESHAPE);
    CHECK(strstr(tl_errmsg(ctx), "train is [2,2] and test [4]"));
    CHECK_STATUS(tl_ngram_bits(rows, rows, 3, 2, TL_KNESER_NEY, &bits), TL_ESHAPE);
    CHECK(strstr(tl_errmsg(ctx), "train is [2,2]: the rows of order 3 have 3 columns"));
    CHECK_STATUS(tl_ngram_bits(rows, rows, 0, 2, TL_KNESER_NEY, &bits), TL_ESHAPE);
    tl_tensor_i32(rows)[0] = -2;
    CHECK_STATUS(tl_ngram_bits(rows, rows, 2, 2, TL_KNESER_NEY, &bits), TL_EINVAL);
    tl_tensor_i32(rows)[0] = 0, tl_tensor_i32(rows)[3] = -1; /* to predict nothing */
    CHECK_STATUS(tl_ngram_bits(rows, rows, 2, 2, TL_KNESER_NEY, &bits), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "train[3] is -1, the vocabulary has 2"));
    CHECK(bits == -1);
    tl_tensor_free(flat);
    tl_tensor_free(rows);
}

/* Each allocation fails in turn: an error, nothing kept, until there is enough. */
static void without_memory_it_says_so(void)
{
    double bits = 0;
    int64_t n = 0;
    tl_tensor *a = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 1, (int64_t[]){900}, &a), TL_OK);
    make_text(tl_tensor_i32(a), 900, 9);
    size_t before = tl_memory_info(ctx).live;
    tl_status st = TL_ENOMEM;
    for (; st == TL_ENOMEM && n < 100; n++) {
        tl_alloc_fail_after(ctx, n);
        st = tl_ngram_bits(a, a, 5, 9, TL_KNESER_NEY, &bits);
        CHECK(tl_memory_info(ctx).live == before);
    }
    tl_alloc_fail_after(ctx, -1);
    CHECK(st == TL_OK && n == 7 && bits > 0);
    tl_tensor_free(a);
}

int main(void)
{
    if (tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int status = run_tests((const test[]){
        {"a_running_text_agrees_with_the_slow_model", a_running_text_agrees_with_the_slow_model},
        {"rows_on_their_own_agree_with_the_slow_model",
         rows_on_their_own_agree_with_the_slow_model},
        {"windows_of_a_text_are_the_text", windows_of_a_text_are_the_text},
        {"other_texts_give_other_bits", other_texts_give_other_bits},
        {"a_longer_text_agrees_with_another_program", a_longer_text_agrees_with_another_program},
        {"the_probabilities_of_all_tokens_have_the_sum_1",
         the_probabilities_of_all_tokens_have_the_sum_1},
        {"a_tiny_text_by_hand", a_tiny_text_by_hand},
        {"wrong_rows_are_refused", wrong_rows_are_refused},
        {"without_memory_it_says_so", without_memory_it_says_so},
        {NULL, NULL}});
    tl_ctx_free(ctx);
    return status;
}

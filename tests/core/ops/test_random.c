/* test_random.c - random streams: known answers, distributions, and what they may not depend on. */
#include <string.h>

#include "base/philox.h"
#include "test.h"

#define N 100003 /* not a multiple of anything */

/* A float32 vector in a new context of its own, which lives as long as the vector. */
static tl_tensor *vector(int threads, int64_t n)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *t = NULL;
    CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 1, &n, &t), TL_OK);
    tl_ctx_free(ctx);
    return t;
}

static int equal(const tl_tensor *a, const tl_tensor *b, int64_t count)
{
    return memcmp(tl_tensor_cf32(a), tl_tensor_cf32(b), (size_t)count * sizeof(float)) == 0;
}

/* From the authors' file kat_vectors: philox4x32, 10 rounds. */
static void known_answers(void)
{
    static const struct answer {
        uint64_t key;
        uint32_t counter[4], block[4];
    } answers[] = {
        {0, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX,
         {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822u,
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        uint32_t c[4];
        memcpy(c, answers[i].counter, sizeof c);
        philox_block(answers[i].key, c);
        CHECK(memcmp(c, answers[i].block, sizeof c) == 0);
    }
    uint32_t c[4];
    tl_philox(0, 0, c);
    CHECK(memcmp(c, answers[0].block, sizeof c) == 0);
}

/* The rounds made side by side for tensors give the words of single blocks, also where the counter
** passes 2^32. */
static void tensors_hold_the_blocks(void)
{
    tl_tensor *t = vector(2, 1000);
    tl_stream  s = {.key = 0x0123456789abcdefu, .offset = 0xffffff80u}, start = s;
    CHECK_STATUS(tl_random_uniform(t, &s, 0, 1), TL_OK);
    for (int64_t i = 0; i < 1000; i++) {
        uint32_t w[4];
        tl_philox(start.key, start.offset + (uint64_t)i / 4, w);
        CHECK_NEAR((double)tl_tensor_cf32(t)[i], w[i % 4] / 4294967296.0, 1e-7);
    }
    CHECK(s.offset == start.offset + 250);
    tl_tensor_free(t);
}

static void check_moments(const tl_tensor *t, double mean, double variance, double fourth)
{
    double m = 0, v = 0, k = 0, n = (double)tl_tensor_len(t);
    for (int64_t i = 0; i < tl_tensor_len(t); i++) m += (double)tl_tensor_cf32(t)[i] / n;
    for (int64_t i = 0; i < tl_tensor_len(t); i++) {
        double d = (double)tl_tensor_cf32(t)[i] - mean;
        v += d * d / n;
        k += d * d * d * d / n;
    }
    CHECK_NEAR(m, mean, 4 * sqrt(variance / n));
    CHECK_NEAR(v, variance, 4 * sqrt((fourth - variance * variance) / n));
    CHECK_NEAR(k, fourth, 0.05 * fourth);
}

static void moments(void)
{
    tl_tensor *t = vector(2, N);
    tl_stream  s = tl_stream_new(1, "init");
    CHECK_STATUS(tl_random_uniform(t, &s, -1, 3), TL_OK);
    check_moments(t, 1, 16.0 / 12, 256.0 / 80);
    for (int64_t i = 0; i < N; i++) CHECK(tl_tensor_cf32(t)[i] >= -1 && tl_tensor_cf32(t)[i] <= 3);
    CHECK_STATUS(tl_random_normal(t, &s, -2, 0.5), TL_OK);
    check_moments(t, -2, 0.25, 3 * 0.25 * 0.25);
    double together = 0; /* neighbours come from one pair of words, yet do not go together */
    for (int64_t i = 0; i + 1 < N; i++)
        together += ((double)tl_tensor_cf32(t)[i] + 2) * ((double)tl_tensor_cf32(t)[i + 1] + 2) / N;
    CHECK_NEAR(together, 0, 4 * 0.25 / sqrt(N));
    tl_tensor_free(t);
}

static void any_number_of_threads(void)
{
    static const int threads[] = {1, 2, 3, 7};
    tl_tensor *first[3] = {NULL};
    for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
        tl_tensor *t[3] = {vector(threads[k], N), vector(threads[k], N), NULL};
        tl_stream  s = tl_stream_new(9, "data");
        CHECK_STATUS(tl_random_uniform(t[0], &s, 0, 1), TL_OK);
        CHECK_STATUS(tl_random_normal(t[1], &s, 0, 1), TL_OK);
        CHECK_STATUS(tl_dropout(t[1], 0.3, &s, &t[2]), TL_OK);
        for (int i = 0; i < 3; i++) {
            if (k == 0) first[i] = tl_tensor_retain(t[i]);
            CHECK(equal(t[i], first[i], N));
            tl_tensor_free(t[i]);
        }
    }
    for (int i = 0; i < 3; i++) tl_tensor_free(first[i]);
}

/* On any number of threads, indices equal scalar draws, and use as much of the stream. */
static void indices_are_scalar_draws(void)
{
    enum { COUNT = 5003 };
    static const int threads[] = {1, 2, 3, 7};
    for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
        tl_tensor *lengths = vector(threads[k], 2), *ids = NULL, *places = NULL;
        tl_stream  s = tl_stream_new(9, "indices"), scalar = s;
        int64_t    wrong = 0;
        tl_tensor_f32(lengths)[0] = 4096;
        tl_tensor_f32(lengths)[1] = 77;
        CHECK_STATUS(tl_tensor_new(tl_tensor_ctx(lengths), TL_I32, 1, &(int64_t){COUNT}, &ids),
                     TL_OK);
        CHECK_STATUS(tl_random_integers(ids, &s, 1000), TL_OK);
        CHECK_STATUS(tl_random_places(lengths, COUNT, &s, &places), TL_OK);
        const int32_t *p = tl_tensor_ci32(places);
        for (int i = 0; i < COUNT; i++)
            wrong += tl_tensor_ci32(ids)[i] != tl_random_below(&scalar, 1000);
        for (int i = 0; i < COUNT; i++) {
            double u = tl_random_unit(&scalar);
            wrong += p[i] != (int32_t)(4096 * u) || p[COUNT + i] != (int32_t)(77 * u);
        }
        CHECK(wrong == 0 && s.offset == scalar.offset);
        CHECK_STATUS(tl_random_integers(ids, &s, 0), TL_EINVAL);
        CHECK_STATUS(tl_random_integers(lengths, &s, 5), TL_ETYPE);
        CHECK(s.offset == scalar.offset); /* a failure draws nothing */
        tl_tensor_free(ids);
        tl_tensor_free(places);
        tl_tensor_free(lengths);
    }
}

/* A stream is its key and offset: a copy goes on where the original does. */
static void resumes_by_offset(void)
{
    tl_tensor *a = vector(2, 1001), *b = vector(2, 1001);
    tl_stream  s = tl_stream_new(5, "init");
    (void)tl_random_unit(&s);
    CHECK_STATUS(tl_random_normal(a, &s, 0, 1), TL_OK);
    tl_stream copy = {.key = s.key, .offset = s.offset};
    CHECK_STATUS(tl_random_normal(a, &s, 0, 1), TL_OK);
    CHECK_STATUS(tl_random_normal(b, &copy, 0, 1), TL_OK);
    CHECK(equal(a, b, 1001));
    CHECK(tl_random_unit(&s) == tl_random_unit(&copy));
    CHECK(s.offset == copy.offset);
    tl_tensor_free(a);
    tl_tensor_free(b);
}

static void streams_differ(void)
{
    static const char *const purposes[] = {"init", "dropout", "data", "", "inis"};
    for (int i = 0; i < 10; i++) {
        for (int j = 0; j < i; j++) {
            tl_stream a = tl_stream_new((uint64_t)(i % 2), purposes[i / 2]);
            tl_stream b = tl_stream_new((uint64_t)(j % 2), purposes[j / 2]);
            CHECK(a.key != b.key && tl_random_unit(&a) != tl_random_unit(&b));
        }
    }
    CHECK(tl_stream_new(7, "init").key == tl_stream_new(7, "init").key);
}

static void scalars(void)
{
    tl_stream s = tl_stream_new(2, "scalars");
    int64_t   counts[5] = {0};
    double    mean = 0;
    for (int i = 0; i < 50000; i++) {
        double  u = tl_random_unit(&s);
        int64_t k = tl_random_below(&s, 5);
        CHECK(u >= 0 && u < 1 && k >= 0 && k < 5);
        mean += u / 50000;
        if (k >= 0 && k < 5) counts[k]++;
    }
    CHECK_NEAR(mean, 0.5, 0.006);
    for (int k = 0; k < 5; k++) CHECK_NEAR((double)counts[k], 10000, 400);
    CHECK(tl_random_below(&s, 1) == 0);
    for (int i = 0; i < 100; i++) CHECK(tl_random_below(&s, INT64_MAX) >= 0);
}

static void permutation(void)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *p = NULL;
    tl_stream  s = tl_stream_new(3, "data");
    int64_t    n = 1000, moved = 0, first = 0;
    char       seen[1000] = {0};
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 1, &n, &p), TL_OK);
    unsigned version = tl_tensor_version(p);
    CHECK_STATUS(tl_random_permutation(p, &s), TL_OK);
    CHECK(tl_tensor_version(p) != version); /* or a gradient would use the new numbers unnoticed */
    for (int64_t i = 0; i < n; i++) {
        int32_t v = tl_tensor_i32(p)[i];
        CHECK(v >= 0 && v < n && !seen[v]);
        if (v >= 0 && v < n) seen[v] = 1;
        moved += v != i;
    }
    CHECK(moved > 950);
    tl_tensor_free(p);
    n = 3;
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 1, &n, &p), TL_OK);
    for (int i = 0; i < 6000; i++) { /* each of the 6 orders comes up once in six */
        CHECK_STATUS(tl_random_permutation(p, &s), TL_OK);
        first += tl_tensor_i32(p)[0] == 1 && tl_tensor_i32(p)[1] == 2;
    }
    CHECK_NEAR((double)first, 1000, 120);
    tl_tensor_free(p);
    tl_ctx_free(ctx);
}

static void dropout_keeps_its_share(void)
{
    tl_tensor *x = vector(2, N), *y = NULL;
    tl_stream  s = tl_stream_new(4, "dropout");
    double     kept = 0;
    CHECK_STATUS(tl_tensor_fill(x, 3), TL_OK);
    tl_tensor_f32(x)[0] = NAN; /* dropped or not, it must not spread */
    CHECK_STATUS(tl_dropout(x, 0.25, &s, &y), TL_OK);
    for (int64_t i = 1; i < N; i++) {
        float v = tl_tensor_cf32(y)[i];
        CHECK(v == 0 || fabsf(v - 4) < 1e-6f);
        kept += v != 0;
    }
    CHECK_NEAR(kept / N, 0.75, 0.006);
    CHECK(s.offset == (N + 3) / 4);
    tl_tensor_free(y);
    CHECK_STATUS(tl_dropout(x, 1, &s, &y), TL_EINVAL);
    CHECK_STATUS(tl_dropout(x, -0.1, &s, &y), TL_EINVAL);
    CHECK_STATUS(tl_dropout(x, NAN, &s, &y), TL_EINVAL);
    CHECK(s.offset == (N + 3) / 4); /* a failure draws nothing */
    tl_tensor_free(x);
}

/* Frequencies of 20000 draws against probabilities p [4]. */
static void check_draws(const tl_tensor *logits, double temperature, int top_k, const double *p)
{
    tl_stream s = tl_stream_new(6, "sample");
    int       counts[4] = {0};
    for (int i = 0; i < 20000; i++) {
        int32_t id = -1;
        CHECK_STATUS(tl_sample(logits, temperature, top_k, &s, &id), TL_OK);
        CHECK(id >= 0 && id < 4);
        if (id >= 0 && id < 4) counts[id]++;
    }
    for (int k = 0; k < 4; k++) CHECK_NEAR(counts[k] / 20000.0, p[k], p[k] > 0 ? 0.015 : 0);
}

static void sampling(void)
{
    tl_tensor *logits = vector(1, 4);
    float     *x = tl_tensor_f32(logits);
    for (int i = 0; i < 4; i++) x[i] = logf((float)i + 1) + 100; /* probabilities 1 2 3 4 / 10 */
    check_draws(logits, 1, 0, (const double[]){0.1, 0.2, 0.3, 0.4});
    check_draws(logits, 1, 2, (const double[]){0, 0, 3.0 / 7, 4.0 / 7});
    check_draws(logits, 1, 9, (const double[]){0.1, 0.2, 0.3, 0.4});
    check_draws(logits, 0.5, 0, (const double[]){1.0 / 30, 4.0 / 30, 9.0 / 30, 16.0 / 30});
    check_draws(logits, 0, 0, (const double[]){0, 0, 0, 1});
    x[1] = x[2] = x[3]; /* a tie: the k first of the largest */
    check_draws(logits, 1, 2, (const double[]){0, 0.5, 0.5, 0});
    x[0] = -INFINITY;
    check_draws(logits, 1, 0, (const double[]){0, 1.0 / 3, 1.0 / 3, 1.0 / 3});
    tl_tensor_free(logits);
}

static void sampling_refuses(void)
{
    tl_tensor *logits = vector(1, 4);
    tl_stream  s = tl_stream_new(6, "sample");
    int32_t    id = -7;
    CHECK_STATUS(tl_sample(logits, -1, 0, &s, &id), TL_EINVAL);
    CHECK_STATUS(tl_sample(logits, 1, -1, &s, &id), TL_EINVAL);
    tl_tensor_f32(logits)[2] = NAN;
    CHECK_STATUS(tl_sample(logits, 1, 0, &s, &id), TL_EINVAL);
    CHECK_STATUS(tl_tensor_fill(logits, -INFINITY), TL_OK);
    CHECK_STATUS(tl_sample(logits, 1, 0, &s, &id), TL_EINVAL);
    CHECK(id == -7 && s.offset == 0);
    tl_tensor_free(logits);
}

int main(void)
{
    return run_tests((const test[]){{"known answers", known_answers},
                                    {"tensors hold the blocks", tensors_hold_the_blocks},
                                    {"moments", moments},
                                    {"any number of threads", any_number_of_threads},
                                    {"indices are scalar draws", indices_are_scalar_draws},
                                    {"resumes by offset", resumes_by_offset},
                                    {"streams differ", streams_differ},
                                    {"scalars", scalars},
                                    {"permutation", permutation},
                                    {"dropout keeps its share", dropout_keeps_its_share},
                                    {"sampling", sampling},
                                    {"sampling refuses", sampling_refuses},
                                    {0}});
}

/* test_sort.c - what sorting promises of every row, on any number of threads, and its errors.
** tests/lua/glue/test_sort.lua compares with a plain sort, on devices too. */
#include <string.h>

#include "tensors.h"

/* Rows of many lengths, with ties: x[i] is one of `values` numbers. */
static tl_tensor *some_rows(tl_ctx *ctx, tl_type type, int64_t rows, int64_t n, int64_t values)
{
    tl_tensor *t = NULL;
    tl_stream  s = tl_stream_new(5, "rows");
    CHECK_STATUS(tl_tensor_new(ctx, type, 2, (const int64_t[]){rows, n}, &t), TL_OK);
    for (int64_t i = 0; i < rows * n; i++) {
        int64_t v = tl_random_below(&s, values) - values / 2;
        if (type == TL_F32)
            tl_tensor_f32(t)[i] = (float)v / 4;
        else
            tl_tensor_i32(t)[i] = (int32_t)v;
    }
    return t;
}

static double at(const tl_tensor *t, int64_t i)
{
    return tl_tensor_type(t) == TL_F32 ? (double)tl_tensor_cf32(t)[i]
                                       : (double)tl_tensor_ci32(t)[i];
}

/* Neighbours are in order, equal ones by position, and rank undoes order. */
static void check_order(const tl_tensor *x, const tl_tensor *order, const tl_tensor *rank)
{
    int64_t n = tl_tensor_dim(x, 1), wrong = 0;
    for (int64_t r = 0; r < tl_tensor_dim(x, 0); r++) {
        const int32_t *o = tl_tensor_ci32(order) + r * n, *k = tl_tensor_ci32(rank) + r * n;
        for (int64_t i = 0; i < n; i++) {
            if (o[i] < 0 || o[i] >= n || k[o[i]] != i) wrong++;
            if (i == 0 || wrong) continue;
            double a = at(x, r * n + o[i - 1]), b = at(x, r * n + o[i]);
            wrong += !(a < b || (a == b && o[i - 1] < o[i]));
        }
    }
    CHECK(wrong == 0);
}

/* A position is chosen if and only if fewer than k elements come before it. */
static void check_top(const tl_tensor *x, const tl_tensor *places, const tl_tensor *slots)
{
    int64_t n = tl_tensor_dim(x, 1), k = tl_tensor_dim(places, 1), wrong = 0;
    for (int64_t r = 0; r < tl_tensor_dim(x, 0); r++) {
        const int32_t *p = tl_tensor_ci32(places) + r * k, *s = tl_tensor_ci32(slots) + r * n;
        int64_t        chosen = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t first = 0;
            for (int64_t j = 0; j < n; j++) {
                double a = at(x, r * n + j), b = at(x, r * n + i);
                first += a > b || (a == b && j < i);
            }
            if (first >= k)
                wrong += s[i] != 0;
            else
                wrong += chosen >= k || p[chosen] != i || s[i] != ++chosen;
        }
        wrong += chosen != k;
    }
    CHECK(wrong == 0);
}

static void every_row(void)
{
    static const int64_t sizes[][3] = {{40, 1, 3},    {33, 2, 2},  {9, 31, 5},     {5, 256, 1},
                                       {3, 1000, 70}, {2, 700, 9}, {7, 300, 90000}};
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        const int64_t *s = sizes[i / 2];
        tl_tensor     *x = some_rows(ctx, i % 2 ? TL_I32 : TL_F32, s[0], s[1], s[2]);
        tl_tensor     *order = NULL, *rank = NULL, *places = NULL, *slots = NULL;
        CHECK_STATUS(tl_argsort(x, &order, &rank), TL_OK);
        check_order(x, order, rank);
        CHECK_STATUS(tl_topk(x, 1 + s[1] / 3, &places, &slots), TL_OK);
        check_top(x, places, slots);
        tl_tensor_free(x);
        tl_tensor_free(order);
        tl_tensor_free(rank);
        tl_tensor_free(places);
        tl_tensor_free(slots);
    }
    tl_ctx_free(ctx);
}

static void any_number_of_threads(void)
{
    enum { ROWS = 61, N = 333, K = 50 };
    static const int threads[] = {1, 2, 3, 7};
    static int32_t   first[4][ROWS * N];
    for (size_t k = 0; k < sizeof threads / sizeof *threads; k++) {
        tl_ctx    *ctx = NULL;
        tl_tensor *t[4] = {NULL};
        CHECK_STATUS(tl_ctx_new(threads[k], &ctx), TL_OK);
        tl_tensor *x = some_rows(ctx, TL_F32, ROWS, N, 40);
        CHECK_STATUS(tl_argsort(x, &t[0], &t[1]), TL_OK);
        CHECK_STATUS(tl_topk(x, K, &t[2], &t[3]), TL_OK);
        for (int i = 0; i < 4; i++) {
            size_t bytes = (size_t)tl_tensor_len(t[i]) * sizeof **first;
            if (k == 0) memcpy(first[i], tl_tensor_ci32(t[i]), bytes);
            CHECK(memcmp(first[i], tl_tensor_ci32(t[i]), bytes) == 0);
            tl_tensor_free(t[i]);
        }
        tl_tensor_free(x);
        tl_ctx_free(ctx);
    }
}

static void refuses(void)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *a = NULL, *b = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    tl_tensor *x = zeros(ctx, 2, (const int64_t[]){2, 4}), *one = zeros(ctx, 0, NULL);
    CHECK_STATUS(tl_topk(x, 0, &a, &b), TL_EINVAL);
    CHECK_STATUS(tl_topk(x, 5, &a, &b), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "k is 5, x is [2,4]") != NULL);
    CHECK_STATUS(tl_topk(one, 1, &a, &b), TL_ESHAPE);
    CHECK_STATUS(tl_argsort(one, &a, &b), TL_ESHAPE);
    CHECK(strstr(tl_errmsg(ctx), "argsort: x is []") != NULL);
    CHECK_STATUS(tl_batch_gather(x, x, &a), TL_ETYPE);
    CHECK(a == NULL && b == NULL);
    tl_tensor_free(x);
    tl_tensor_free(one);
    tl_ctx_free(ctx);
}

int main(void)
{
    return run_tests((const test[]){{"every row", every_row},
                                    {"any number of threads", any_number_of_threads},
                                    {"refuses", refuses},
                                    {0}});
}

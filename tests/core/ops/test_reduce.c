/* test_reduce.c - reductions of whole tensors, which threads share in blocks: beside float64, with
** the same bits for any number of threads. */
#include <string.h>

#include "base/memory.h"
#include "tensors.h"

#define BLOCK   16384 /* as in core/ops/reduce.c */
#define THREADS 5

static tl_ctx *contexts[THREADS + 1]; /* by their number of threads */

static float reduced(tl_reduce_kind kind, int threads, const float *x, int64_t n, int axis)
{
    tl_tensor *t = zeros(contexts[threads], 1, &n), *y = NULL;
    float      value = NAN;
    memcpy(tl_tensor_f32(t), x, (size_t)n * sizeof *x);
    CHECK_STATUS(tl_reduce(kind, t, axis, 0, &y), TL_OK);
    if (y) value = tl_tensor_cf32(y)[0];
    tl_tensor_free(y);
    tl_tensor_free(t);
    return value;
}

/* Checks the result with each number of threads, over all axes and over the only one. */
static void check_reduced(tl_reduce_kind kind, const float *x, int64_t n, double want, double tol)
{
    float first = reduced(kind, 1, x, n, TL_ALL_AXES);
    if (isnan(want))
        CHECK(isnan(first));
    else
        CHECK_NEAR((double)first, want, tol * fabs(want));
    for (int threads = 1; threads <= THREADS; threads++) {
        for (int axis = 0; axis < 2; axis++) {
            float y = reduced(kind, threads, x, n, axis ? TL_ALL_AXES : 0);
            CHECK(memcmp(&y, &first, sizeof y) == 0);
        }
    }
}

/* Around the borders of blocks, and from 8 blocks on on several threads. */
static const int64_t sizes[] = {1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK - 1,
                                8 * BLOCK, 13 * BLOCK + 7, 23 * BLOCK - 1};
enum { SIZES = sizeof sizes / sizeof *sizes, MAX_LEN = 23 * BLOCK };

static float x[MAX_LEN];

static void sums_and_means_are_those_of_float64(void)
{
    tl_stream s = tl_stream_new(1, "reduce");
    for (int64_t i = 0; i < MAX_LEN; i++) x[i] = (float)(2 * tl_random_unit(&s) - 0.5);
    for (int k = 0; k < SIZES; k++) {
        double sum = 0;
        for (int64_t i = 0; i < sizes[k]; i++) sum += (double)x[i];
        check_reduced(TL_REDUCE_SUM, x, sizes[k], sum, 6e-8);
        check_reduced(TL_REDUCE_MEAN, x, sizes[k], sum / (double)sizes[k], 6e-8);
    }
}

/* The last block cancels to 0 and rounds nothing else away: a sum that is not taken in blocks adds
** its 1e30 to the ones before it. */
static void blocks_are_summed_apart(void)
{
    for (int k = 0; k < SIZES; k++) {
        int64_t ones = (sizes[k] - 1) / BLOCK * BLOCK, rest = sizes[k] - ones;
        if (ones == 0 || rest < 2) continue;
        for (int64_t i = 0; i < sizes[k]; i++) x[i] = i < ones ? 1 : 0;
        x[ones] = 1e30f;
        x[sizes[k] - 1] = -1e30f;
        check_reduced(TL_REDUCE_SUM, x, sizes[k], (double)ones, 0);
        check_reduced(TL_REDUCE_MEAN, x, sizes[k], (double)ones / (double)sizes[k], 6e-8);
    }
}

/* The maximum in the first, a middle or the last element of a block; a NaN wins from anywhere. */
static void maxima_are_found_anywhere(void)
{
    for (int k = 0; k < SIZES; k++) {
        int64_t n = sizes[k], at[] = {0, n / 2, n - 1, n > BLOCK ? BLOCK - 1 : 0,
                                      n > BLOCK ? BLOCK : 0};
        for (int i = 0; i < 5; i++) {
            for (int64_t e = 0; e < n; e++) x[e] = -2 - (float)(e % 7);
            x[at[i]] = -1;
            check_reduced(TL_REDUCE_MAX, x, n, -1, 0);
            x[at[4 - i]] = NAN;
            check_reduced(TL_REDUCE_MAX, x, n, NAN, 0);
        }
    }
}

static void memory_may_be_short(void)
{
    const int64_t n = BLOCK + 1;
    tl_ctx       *ctx = contexts[2];
    tl_tensor    *t = zeros(ctx, 1, &n), *y = NULL;
    size_t        live = tl_memory_info(ctx).live;
    int           failed = 0;
    tl_status     st = TL_ENOMEM;
    for (; st == TL_ENOMEM && failed < 100; failed += st == TL_ENOMEM) {
        tl_memory_trim(ctx); /* else the cache serves the request */
        tl_alloc_fail_after(ctx, failed);
        st = tl_reduce(TL_REDUCE_SUM, t, TL_ALL_AXES, 0, &y);
        tl_alloc_fail_after(ctx, -1);
        if (st == TL_ENOMEM) CHECK(tl_memory_info(ctx).live == live);
    }
    CHECK_STATUS(st, TL_OK);
    CHECK(failed == 2); /* for y and for the blocks */
    tl_tensor_free(y);
    tl_tensor_free(t);
    CHECK(tl_memory_info(ctx).live < live);
}

int main(void)
{
    for (int i = 1; i <= THREADS; i++) CHECK_STATUS(tl_ctx_new(i, &contexts[i]), TL_OK);
    int status = run_tests((const test[]){
        {"sums and means are those of float64", sums_and_means_are_those_of_float64},
        {"blocks are summed apart", blocks_are_summed_apart},
        {"maxima are found anywhere", maxima_are_found_anywhere},
        {"memory may be short", memory_may_be_short},
        {0}});
    for (int i = 1; i <= THREADS; i++) tl_ctx_free(contexts[i]);
    return status;
}

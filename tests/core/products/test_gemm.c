/* test_gemm.c - matrix products against plain sums in double: all transpositions, odd shapes,
** strides, thread counts, precisions. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "products/gemm.h"
#include "test.h"

#define MAX_LEN (69 * 8210)

typedef struct shape {
    int64_t m, n, k;
} shape;

static const shape shapes[] = {{1, 1, 1},    {1, 7, 5},    {5, 1, 9},     {2, 3, 1},
                               {16, 16, 16}, {17, 33, 65}, {64, 128, 31}, {129, 2, 200},
                               {3, 130, 70}, {200, 64, 3}, {97, 101, 103}, {1, 66, 8200},
                               {66, 1, 8200}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static float a[MAX_LEN], b[MAX_LEN], c[MAX_LEN], before[MAX_LEN];

static void fill(float *x, uint64_t seed)
{
    tl_stream s = tl_stream_new(seed, "gemm");
    for (int i = 0; i < MAX_LEN; i++) x[i] = (float)(2 * tl_random_unit(&s) - 1);
}

/* To 8 bits of significand, ties to even: not by the bits, as the engine does it. */
static double rounded(float x)
{
    int    exponent;
    double fraction = frexp((double)x, &exponent);
    return ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

typedef struct call {
    int     trans_a, trans_b;
    shape   s;
    int64_t more; /* elements between the end of a row and the next */
    float   alpha, beta;
} call;

static int64_t stride_a(const call *p) { return (p->trans_a ? p->s.m : p->s.k) + p->more; }
static int64_t stride_b(const call *p) { return (p->trans_b ? p->s.k : p->s.n) + p->more; }

static float item(const float *x, int64_t ld, int trans, int64_t i, int64_t j)
{
    return trans ? x[j * ld + i] : x[i * ld + j];
}

/* Element i, j of the product; *size becomes the sum of absolute terms. */
static double expected(const call *p, int low, int64_t i, int64_t j, double *size)
{
    double sum = 0;
    *size = 0;
    for (int64_t l = 0; l < p->s.k; l++) {
        float  x = item(a, stride_a(p), p->trans_a, i, l);
        float  y = item(b, stride_b(p), p->trans_b, l, j);
        double term = low ? rounded(x) * rounded(y) : (double)x * (double)y;
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

static tl_status multiply(tl_ctx *ctx, const call *p)
{
    return tl_gemm(ctx, &(tl_product){p->s.m, p->s.n, p->s.k, stride_a(p), stride_b(p),
                                      p->s.n + p->more, p->alpha, p->beta, p->trans_a, p->trans_b,
                                      0, 0, 0}, a, b, c);
}

/* The largest error of c beside the sums, as a part of their terms' sizes. */
static double error_of(const call *p, int low)
{
    double worst = 0;
    for (int64_t i = 0; i < p->s.m; i++) {
        for (int64_t j = 0; j < p->s.n; j++) {
            double  size, sum = expected(p, low, i, j, &size);
            int64_t at = i * (p->s.n + p->more) + j;
            double  want = (double)p->alpha * sum + (double)p->beta * (double)before[at];
            double  off = fabs((double)c[at] - want) / (size + fabs((double)before[at]) + 1e-30);
            if (!(off <= worst)) worst = off;
        }
    }
    return worst;
}

/* What lies between the rows of c must stay. */
static int strangers_kept(const call *p)
{
    for (int64_t i = 0; i < p->s.m; i++)
        for (int64_t j = p->s.n; j < p->s.n + p->more; j++)
            if (c[i * (p->s.n + p->more) + j] != before[i * (p->s.n + p->more) + j]) return 0;
    return 1;
}

static void check_call(tl_ctx *ctx, const call *p)
{
    int low = tl_precision(ctx) == TL_PRECISION_BF16;
    memcpy(c, before, sizeof c);
    if (p->beta == 0) c[0] = NAN; /* is not read then */
    CHECK_STATUS(multiply(ctx, p), TL_OK);
    double error = error_of(p, low);
    CHECK(strangers_kept(p));
    CHECK_NEAR(error, 0, 1e-6);
    if (error > 1e-6)
        printf("  %c%c %lldx%lldx%lld alpha %g beta %g\n", p->trans_a ? 'T' : 'N',
               p->trans_b ? 'T' : 'N', (long long)p->s.m, (long long)p->s.n, (long long)p->s.k,
               (double)p->alpha, (double)p->beta);
    if (low && p->s.k > 60) CHECK(error_of(p, 0) > 1e-5); /* so it did round */
}

static void all_calls(tl_precision_kind kind)
{
    static const float scales[][2] = {{1, 0}, {1, 1}, {0.5f, 0}, {-2, 0.25f}};
    for (int threads = 1; threads <= 6; threads += threads == 3 ? 3 : 1) {
        tl_ctx *ctx = NULL;
        CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
        CHECK(tl_precision(ctx) == TL_PRECISION_F32);
        CHECK_STATUS(tl_set_precision(ctx, kind), TL_OK);
        for (int i = 0; i < SHAPES * 4 * 4; i += STRIDE) {
            call p = {i & 1, i >> 1 & 1, shapes[i / 16], i % 16 == 5 ? 3 : 0, scales[i / 4 % 4][0],
                      scales[i / 4 % 4][1]};
            if (p.s.k < 1000 || i / 4 % 4 == 3) check_call(ctx, &p);
        }
        tl_ctx_free(ctx);
    }
}

static void float32_is_the_sum(void) { all_calls(TL_PRECISION_F32); }
static void bf16_is_the_sum_of_rounded_factors(void) { all_calls(TL_PRECISION_BF16); }

static void what_cards_have_is_refused(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    CHECK_STATUS(tl_set_precision(ctx, TL_PRECISION_BF16), TL_OK);
    CHECK(!tl_has_precision(ctx, TL_PRECISION_TF32));
    CHECK_STATUS(tl_set_precision(ctx, TL_PRECISION_TF32), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "device cpu has float32 and bf16 only"));
    CHECK_STATUS(tl_set_precision(ctx, (tl_precision_kind)7), TL_EINVAL);
    CHECK(tl_precision(ctx) == TL_PRECISION_BF16);
    tl_ctx_free(ctx);
}

static void ties_go_to_even_and_nan_stays(void)
{
    static const float from[] = {1, 1.00390625f, 1.01171875f, 1.0039064f, -1.00390625f, 3.4e38f,
                                 INFINITY, 1e-30f};
    static const float to[] = {1, 1, 1.015625f, 1.0078125f, -1, INFINITY, INFINITY, 1e-30f};
    const tl_product single = {.m = 1, .n = 1, .k = 1, .alpha = 1};
    tl_ctx          *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    (void)tl_set_precision(ctx, TL_PRECISION_BF16);
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        float x = from[i], one = 1, y = 0;
        CHECK_STATUS(tl_gemm(ctx, &single, &x, &one, &y), TL_OK);
        if (isinf(to[i]))
            CHECK(y == to[i]);
        else
            CHECK((double)y == (i == 7 ? rounded(to[i]) : (double)to[i]));
    }
    uint32_t bits = 0x7f800001u; /* its upper half alone would be infinity */
    float    nan, one = 1, y = 0;
    memcpy(&nan, &bits, sizeof nan);
    CHECK_STATUS(tl_gemm(ctx, &single, &nan, &one, &y), TL_OK);
    CHECK(isnan(y));
    tl_ctx_free(ctx);
}

/* The same bits again, and from operands that lie elsewhere. */
static void results_repeat(void)
{
    static float moved[3][MAX_LEN + 5];
    for (int i = 0; i < 4 * SHAPES; i++) {
        tl_ctx *ctx = NULL;
        call    p = {i & 1, i >> 1 & 1, shapes[i / 4], 0, 1, 0};
        size_t  bytes = (size_t)(p.s.m * p.s.n) * sizeof(float);
        CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
        for (int kind = TL_PRECISION_F32; kind <= TL_PRECISION_BF16; kind++) {
            (void)tl_set_precision(ctx, (tl_precision_kind)kind);
            CHECK_STATUS(multiply(ctx, &p), TL_OK);
            for (int at = 1; at <= 5; at += 2) { /* not at the same place of a line */
                float *x = moved[0] + at, *y = moved[1] + (at + 1) % 6;
                float *z = moved[2] + (at + 2) % 6;
                memcpy(x, a, sizeof a);
                memcpy(y, b, sizeof b);
                tl_product same = {.m = p.s.m, .n = p.s.n, .k = p.s.k, .lda = stride_a(&p),
                                   .ldb = stride_b(&p), .alpha = 1, .trans_a = p.trans_a,
                                   .trans_b = p.trans_b};
                CHECK_STATUS(tl_gemm(ctx, &same, x, y, z), TL_OK);
                CHECK(memcmp(z, c, bytes) == 0);
            }
        }
        tl_ctx_free(ctx);
    }
}

static void batches_are_their_products(void)
{
    const shape s = {9, 11, 20};
    const int   count = 7;
    for (int i = 0; i < 16; i++) {
        static float whole[MAX_LEN];
        tl_ctx      *ctx = NULL;
        tl_product   p = {.m = s.m, .n = s.n, .k = s.k, .alpha = 1, .beta = i & 8 ? 1 : 0,
                          .trans_a = i & 1, .trans_b = i >> 1 & 1};
        memcpy(whole, before, sizeof whole);
        CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
        (void)tl_set_precision(ctx, i & 4 ? TL_PRECISION_BF16 : TL_PRECISION_F32);
        CHECK_STATUS(tl_gemm_batch(ctx, count, &p, a, b, whole), TL_OK);
        for (int j = 0; j < count; j++) {
            memcpy(c, before + j * s.m * s.n, (size_t)(s.m * s.n) * sizeof *c);
            CHECK_STATUS(tl_gemm(ctx, &p, a + j * s.m * s.k, b + j * s.k * s.n, c), TL_OK);
            for (int64_t e = 0; e < s.m * s.n; e++)
                CHECK_NEAR((double)whole[j * s.m * s.n + e], (double)c[e], 1e-5);
        }
        tl_ctx_free(ctx);
    }
}

/* More shapes than kernels are kept for: those that went are made again. */
static void many_shapes(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    (void)tl_set_precision(ctx, TL_PRECISION_BF16);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 300; i += STRIDE) {
            call p = {0, 1, {1 + i % 20, 1 + i / 20, 1 + i % 7}, 0, 1, 0};
            CHECK_STATUS(multiply(ctx, &p), TL_OK);
            CHECK_NEAR(error_of(&p, 1), 0, 1e-6);
        }
    }
    tl_ctx_free(ctx);
}

static int threads_of_process(void)
{
    int            count = 0;
    DIR           *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    while (tasks && (entry = readdir(tasks))) count += entry->d_name[0] != '.';
    if (tasks) closedir(tasks);
    return count;
}

/* OpenMP's, where a library of matrix products brings it along. */
__attribute__((weak)) int  omp_get_max_threads(void);
__attribute__((weak)) void omp_set_num_threads(int count);

/* What the program around us allows OpenMP is the same after a product. */
static void openmp_is_left_as_it_was(void)
{
    tl_ctx    *ctx = NULL;
    const call p = {0, 1, {60, 60, 60}, 0, 1, 0};
    if (!omp_get_max_threads || !omp_set_num_threads) return;
    omp_set_num_threads(3);
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    for (int kind = TL_PRECISION_F32; kind <= TL_PRECISION_BF16; kind++) {
        (void)tl_set_precision(ctx, (tl_precision_kind)kind);
        CHECK_STATUS(multiply(ctx, &p), TL_OK);
        CHECK(omp_get_max_threads() == 3);
    }
    tl_ctx_free(ctx);
}

/* The libraries have thread pools of their own, which would fight with ours. */
static void libraries_start_no_threads(void)
{
    tl_ctx    *ctx = NULL;
    const call p = {0, 1, {200, 200, 200}, 0, 1, 0};
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    int count = threads_of_process();
    CHECK(count >= 2);
    for (int kind = TL_PRECISION_F32; kind <= TL_PRECISION_BF16; kind++) {
        (void)tl_set_precision(ctx, (tl_precision_kind)kind);
        CHECK_STATUS(multiply(ctx, &p), TL_OK);
        CHECK(threads_of_process() == count);
    }
    tl_ctx_free(ctx);
}

static void memory_may_be_short(void)
{
    tl_ctx    *ctx = NULL;
    const call p = {0, 1, {40, 40, 40}, 0, 1, 0};
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    (void)tl_set_precision(ctx, TL_PRECISION_BF16);
    size_t live = tl_memory_info(ctx).live;
    tl_alloc_fail_after(ctx, 0);
    CHECK_STATUS(multiply(ctx, &p), TL_ENOMEM);
    tl_alloc_fail_after(ctx, -1);
    check_call(ctx, &p);
    CHECK(tl_memory_info(ctx).live == live);
    tl_ctx_free(ctx);
}

static void empty_products(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    for (int kind = TL_PRECISION_F32; kind <= TL_PRECISION_BF16; kind++) {
        (void)tl_set_precision(ctx, (tl_precision_kind)kind);
        c[0] = 5;
        CHECK_STATUS(tl_gemm(ctx, &(tl_product){.n = 3, .k = 2, .alpha = 1}, a, b, c), TL_OK);
        CHECK(c[0] == 5);
        tl_product p = {.m = 3, .n = 3, .k = 2, .alpha = 1};
        CHECK_STATUS(tl_gemm_batch(ctx, 0, &p, a, b, c), TL_OK);
        CHECK(c[0] == 5);
    }
    tl_ctx_free(ctx);
}

int main(void)
{
    fill(a, 1);
    fill(b, 2);
    fill(before, 3);
    return run_tests((const test[]){
        {"float32 is the sum", float32_is_the_sum},
        {"bf16 is the sum of rounded factors", bf16_is_the_sum_of_rounded_factors},
        {"what cards have is refused", what_cards_have_is_refused},
        {"ties go to even, NaN stays", ties_go_to_even_and_nan_stays},
        {"results repeat", results_repeat},
        {"batches are their products", batches_are_their_products},
        {"many shapes", many_shapes},
        {"libraries start no threads", libraries_start_no_threads},
        {"OpenMP is left as it was", openmp_is_left_as_it_was},
        {"memory may be short", memory_may_be_short},
        {"empty products", empty_products},
        {0}});
}

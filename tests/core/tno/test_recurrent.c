/* test_recurrent.c - rings and modes against the sum that they stand for, and the errors of ETSC
** that its specification gives. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tensors.h"

static tl_ctx *ctx;

static const tl_recurrence_kind kinds[] = {TL_RECURRENCE_RING, TL_RECURRENCE_ETSC_EXACT,
                                           TL_RECURRENCE_ETSC_PUBLISHED};

/* gamma^k t_k, 0 from lag lags on */
static double kernel(const tl_tensor *t, double gamma, int64_t k, int64_t c)
{
    int64_t lags = tl_tensor_dim(t, 0), d = tl_tensor_dim(t, 1);
    return k < lags ? pow(gamma, (double)k) * (double)tl_tensor_cf32(t)[k * d + c] : 0;
}

static tl_tensor *number(double x)
{
    tl_tensor *t = zeros(ctx, 1, (int64_t[]){1});
    tl_tensor_f32(t)[0] = (float)x;
    return t;
}

/* The answer [1,n,d] of kind to an impulse in every channel. */
static tl_tensor *impulse(tl_tensor *t, double gamma, tl_recurrence_kind kind, int64_t n)
{
    int64_t        d = tl_tensor_dim(t, 1);
    tl_recurrence *r = NULL;
    tl_tensor     *x = zeros(ctx, 3, (int64_t[]){1, n, d}), *g = number(gamma);
    for (int64_t c = 0; c < d; c++) tl_tensor_f32(x)[c] = 1;
    CHECK_STATUS(tl_recurrence_new(t, g, kind, 1, &r), TL_OK);
    if (r) CHECK_STATUS(tl_recurrence_step(r, x, x), TL_OK);
    tl_recurrence_free(r);
    tl_tensor_free(g);
    return x;
}

/* ||answer - kernel|| / ||kernel|| over the lags from..to-1, kernel's norm over all. */
static double error_of(const tl_tensor *t, double gamma, const tl_tensor *y, int64_t from,
                       int64_t to)
{
    int64_t lags = tl_tensor_dim(t, 0), d = tl_tensor_dim(t, 1);
    double  off = 0, norm = 0;
    for (int64_t c = 0; c < d; c++) {
        for (int64_t k = from; k < to; k++)
            off += pow((double)tl_tensor_cf32(y)[k * d + c] - kernel(t, gamma, k, c), 2);
        for (int64_t k = 0; k < lags; k++) norm += pow(kernel(t, gamma, k, c), 2);
    }
    return sqrt(off / norm);
}

/* ---- SPEC 4's figures ------------------------------------------------------------------------ */

typedef struct figure {
    int64_t n;
    double  low, high, gamma;
    double  published, exact; /* what the errors may be, without fused products too */
} figure;

static void figures(void)
{
    static const figure all[] = {
        {512, -1, 1, 1, 8e-6, 4e-6},    {1024, -1, 1, 1, 1.6e-5, 8e-6},
        {512, -1, 1, 0.99, 2e-6, 1e-6}, {1024, -1, 1, 0.99, 2e-6, 1e-6},
        {512, 0, 10, 1, 1.2e-4, 3e-6},  {1024, 0, 10, 1, 4e-4, 5e-6},
        {512, 0, 10, 0.99, 3e-5, 1e-6}, {1024, 0, 10, 0.99, 5e-5, 1e-6},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const figure *f = all + i;
        double        gamma = (double)(float)f->gamma;
        tl_tensor    *t = uniforms(ctx, 2, (int64_t[]){f->n, 20}, f->low, f->high, 1);
        tl_tensor    *p = impulse(t, f->gamma, TL_RECURRENCE_ETSC_PUBLISHED, f->n);
        tl_tensor    *e = impulse(t, f->gamma, TL_RECURRENCE_ETSC_EXACT, f->n);
        tl_tensor    *r = impulse(t, f->gamma, TL_RECURRENCE_RING, f->n);
        printf("  n %lld, t %g..%g, gamma %g: published %.1e, exact %.1e, ring %.1e\n",
               (long long)f->n, f->low, f->high, f->gamma, error_of(t, gamma, p, 0, f->n),
               error_of(t, gamma, e, 0, f->n), error_of(t, gamma, r, 0, f->n));
        CHECK(error_of(t, gamma, p, 0, f->n) < f->published);
        CHECK(error_of(t, gamma, e, 0, f->n) < f->exact);
        CHECK(error_of(t, gamma, r, 0, f->n) < 1e-7);
        tl_tensor *list[] = {t, p, e, r};
        for (int k = 0; k < 4; k++) tl_tensor_free(list[k]);
    }
}

/* Lag n answers -gamma^n sum t; from lag n + 1 on the kernel comes again. */
static void published_has_a_spurious_tap(void)
{
    const int64_t n = 100, d = 3;
    const double  gamma = (double)0.99f;
    tl_tensor    *t = uniforms(ctx, 2, (int64_t[]){n, d}, 0, 10, 2);
    tl_tensor    *y = impulse(t, gamma, TL_RECURRENCE_ETSC_PUBLISHED, 2 * n);
    for (int64_t c = 0; c < d; c++) {
        double sum = 0, want;
        for (int64_t k = 0; k < n; k++) sum += (double)tl_tensor_cf32(t)[k * d + c];
        want = -pow(gamma, (double)n) * sum;
        CHECK_NEAR((double)tl_tensor_cf32(y)[n * d + c], want, 1e-5 * fabs(want));
        sum = pow(gamma, (double)n) * sum;
        want = pow(gamma, (double)n + 1) * (double)tl_tensor_cf32(t)[c];
        CHECK_NEAR((double)tl_tensor_cf32(y)[(n + 1) * d + c], want, 1e-6 * sum);
    }
    tl_tensor_free(t);
    tl_tensor_free(y);
}

static void exact_is_silent_after_the_last_lag(void)
{
    static const double gammas[] = {1, 0.999, 0.99, 0.9, 0.3};
    for (int64_t n = 1; n <= 512; n = 3 * n - (n > 1)) {
        tl_tensor *t = uniforms(ctx, 2, (int64_t[]){n, 5}, 0, 10, 3);
        for (size_t i = 0; i < sizeof gammas / sizeof *gammas; i++) {
            double     gamma = (double)(float)gammas[i];
            tl_tensor *y = impulse(t, gamma, TL_RECURRENCE_ETSC_EXACT, 5 * n);
            CHECK(error_of(t, gamma, y, 0, n) < 1e-6);
            CHECK(error_of(t, gamma, y, n, 5 * n) < 1e-6);
            tl_tensor_free(y);
        }
        tl_tensor_free(t);
    }
}

/* ---- Any input ------------------------------------------------------------------------------- */

/* The worst difference of y from the sum over the last positions `from` on, over the largest. */
static double worst(const tl_tensor *t, double gamma, const tl_tensor *x, const tl_tensor *y,
                    int64_t from)
{
    int64_t b = tl_tensor_dim(x, 0), n = tl_tensor_dim(x, 1), d = tl_tensor_dim(x, 2);
    double  off = 0, largest = 0;
    for (int64_t s = 0; s < b; s++)
        for (int64_t i = from; i < n; i++)
            for (int64_t c = 0; c < d; c++) {
                double want = 0;
                for (int64_t k = 0; k <= i && k < tl_tensor_dim(t, 0); k++)
                    want += kernel(t, gamma, k, c) *
                            (double)tl_tensor_cf32(x)[(s * n + i - k) * d + c];
                off = worse(off, fabs((double)tl_tensor_cf32(y)[(s * n + i) * d + c] - want));
                largest = fmax(largest, fabs(want));
            }
    return off / largest;
}

/* One position after another, or several at once, of several sequences. */
static void compare(tl_recurrence_kind kind, int64_t d, int64_t lags)
{
    int64_t        n = 37, b = 3;
    tl_recurrence *one = NULL, *many = NULL;
    tl_tensor     *t = normals(ctx, 2, (int64_t[]){lags, d}, 0, 1, 4), *g = number(0.9);
    tl_tensor     *x = normals(ctx, 3, (int64_t[]){b, n, d}, 0, 1, 5);
    tl_tensor     *y = zeros(ctx, 3, (int64_t[]){b, n, d}), *row = zeros(ctx, 2, (int64_t[]){b, d});
    CHECK_STATUS(tl_recurrence_new(t, g, kind, b, &one), TL_OK);
    CHECK_STATUS(tl_recurrence_new(t, g, kind, b, &many), TL_OK);
    CHECK_STATUS(tl_recurrence_step(many, x, y), TL_OK); /* to be forgotten */
    tl_recurrence_reset(many);
    CHECK_STATUS(tl_recurrence_step(many, x, y), TL_OK);
    if (kind != TL_RECURRENCE_ETSC_PUBLISHED) CHECK(worst(t, (double)0.9f, x, y, 0) < 2e-6);
    for (int64_t p = 0; p < n; p++) {
        for (int64_t e = 0; e < b * d; e++)
            tl_tensor_f32(row)[e] = tl_tensor_cf32(x)[(e / d * n + p) * d + e % d];
        CHECK_STATUS(tl_recurrence_step(one, row, row), TL_OK);
        for (int64_t e = 0; e < b * d; e++)
            CHECK(tl_tensor_cf32(row)[e] == tl_tensor_cf32(y)[(e / d * n + p) * d + e % d]);
    }
    tl_recurrence_free(one);
    tl_recurrence_free(many);
    tl_tensor *list[] = {t, g, x, y, row};
    for (int k = 0; k < 5; k++) tl_tensor_free(list[k]);
}

static void equal_the_sum(void)
{
    static const int64_t widths[] = {1, 15, 16, 33, 200};
    for (int i = 0; i < 5 * 3; i++) compare(kinds[i % 3], widths[i / 3], 20);
}

static void on_three_threads(void)
{
    tl_ctx *before = ctx;
    CHECK_STATUS(tl_ctx_new(3, &ctx), TL_OK);
    for (int i = 0; i < 3; i++) compare(kinds[i], 150, 400); /* large enough to be shared out */
    tl_ctx_free(ctx);
    ctx = before;
}

/* Without decay nothing makes an old error small, but the form does. */
static void exact_does_not_drift(void)
{
    const int64_t  lags = 256, d = 16, rounds = 64;
    tl_recurrence *modes = NULL, *ring = NULL;
    tl_tensor     *t = uniforms(ctx, 2, (int64_t[]){lags, d}, 0, 10, 6);
    double         first = 0, last = 0;
    CHECK_STATUS(tl_recurrence_new(t, NULL, TL_RECURRENCE_ETSC_EXACT, 1, &modes), TL_OK);
    CHECK_STATUS(tl_recurrence_new(t, NULL, TL_RECURRENCE_RING, 1, &ring), TL_OK);
    for (int64_t i = 0; i < rounds; i++) {
        tl_tensor *x = normals(ctx, 3, (int64_t[]){1, lags, d}, 0.5, 1, (uint64_t)(7 + i));
        tl_tensor *y = zeros(ctx, 3, (int64_t[]){1, lags, d});
        CHECK_STATUS(tl_recurrence_step(modes, x, y), TL_OK);
        CHECK_STATUS(tl_recurrence_step(ring, x, x), TL_OK);
        if (i == 1) first = distance(y, x);
        if (i > 1) last = worse(last, distance(y, x));
        tl_tensor_free(x);
        tl_tensor_free(y);
    }
    printf("  %lld lags: error %.1e after 2 times as many positions, %.1e at most after %lld\n",
           (long long)lags, first, last, (long long)rounds);
    CHECK(last < 4 * first && last < 1e-5);
    tl_recurrence_free(modes);
    tl_recurrence_free(ring);
    tl_tensor_free(t);
}

/* ---- Modes as tensors, sizes, errors --------------------------------------------------------- */

/* sum over the modes of b_j lambda_j^k, those that are not real twice */
static double sum_of(const tl_tensor *b, const tl_tensor *lambda, int64_t period, int64_t first,
                     int64_t k, int64_t c)
{
    int64_t d = tl_tensor_dim(b, 1);
    double  sum = 0;
    for (int64_t j = 0; j < tl_tensor_dim(b, 0); j++) {
        const float *z = tl_tensor_cf32(b) + (j * d + c) * 2;
        const float *l = tl_tensor_cf32(lambda) + (j * d + c) * 2;
        double       size = pow(hypot(l[0], l[1]), (double)k);
        double       turn = (double)k * atan2(l[1], l[0]);
        int          real = j + first == 0 || 2 * (j + first) == period;
        sum += (real ? 1 : 2) * size * (z[0] * cos(turn) - z[1] * sin(turn));
    }
    return sum;
}

static void modes_are_the_kernel(void)
{
    for (int i = 1; i < 3; i++)
        for (int64_t lags = 1; lags < 40; lags += 7) {
            tl_tensor     *t = normals(ctx, 2, (int64_t[]){lags, 3}, 1, 1, 8), *g = number(0.95);
            tl_tensor     *b = NULL, *lambda = NULL, *decay = NULL;
            tl_recurrence *r = NULL, *again = NULL;
            CHECK_STATUS(tl_recurrence_new(t, g, kinds[i], 1, &r), TL_OK);
            CHECK_STATUS(tl_recurrence_modes(r, &b, &lambda, &decay), TL_OK);
            tl_recurrence_size s = tl_recurrence_sizes(r);
            int published = kinds[i] == TL_RECURRENCE_ETSC_PUBLISHED;
            CHECK(s.modes == s.period / 2 + !published && s.lags == lags);
            for (int64_t k = 0; k < lags; k++)
                CHECK_NEAR(sum_of(b, lambda, s.period, published, k, 2),
                           kernel(t, (double)0.95f, k, 2), 1e-5);
            CHECK_STATUS(tl_recurrence_from_modes(b, decay, kinds[i], lags, s.period, 1, &again),
                         TL_OK);
            tl_tensor *x = normals(ctx, 3, (int64_t[]){1, 50, 3}, 0, 1, 9);
            tl_tensor *y = zeros(ctx, 3, (int64_t[]){1, 50, 3});
            CHECK_STATUS(tl_recurrence_step(r, x, y), TL_OK);
            CHECK_STATUS(tl_recurrence_step(again, x, x), TL_OK);
            CHECK(memcmp(tl_tensor_cf32(x), tl_tensor_cf32(y), 150 * sizeof(float)) == 0);
            tl_recurrence_free(r);
            tl_recurrence_free(again);
            tl_tensor *list[] = {t, g, b, lambda, decay, x, y};
            for (int k = 0; k < 7; k++) tl_tensor_free(list[k]);
        }
}

static void sizes_are_told(void)
{
    tl_tensor *t = normals(ctx, 2, (int64_t[]){512, 32}, 0, 1, 1), *g = number(0.9);
    struct {
        tl_recurrence_kind kind;
        tl_tensor         *gamma;
        size_t             rows; /* of 32 channels, per sequence */
        int64_t            modes;
    } rows[] = {{TL_RECURRENCE_RING, g, 512, 0},
                {TL_RECURRENCE_ETSC_PUBLISHED, g, 512, 256},
                {TL_RECURRENCE_ETSC_EXACT, g, 514, 257}, /* 0.9^512 is not seen: no inputs kept */
                {TL_RECURRENCE_ETSC_EXACT, NULL, 514 + 512, 257}};
    for (int i = 0; i < 4; i++) {
        tl_recurrence *r = NULL;
        size_t         before = tl_memory_info(ctx).live;
        CHECK_STATUS(tl_recurrence_new(t, rows[i].gamma, rows[i].kind, 2, &r), TL_OK);
        tl_recurrence_size s = tl_recurrence_sizes(r);
        size_t modes = (size_t)rows[i].modes; /* and in the kernel, r, r^m and an angle for each */
        size_t kernel = modes ? (2 * modes + 2) * 32 + 4 * modes : 512 * 32;
        CHECK(s.state_bytes == 2 * rows[i].rows * 32 * sizeof(float) && s.modes == rows[i].modes);
        CHECK(s.kernel_bytes == kernel * sizeof(float));
        CHECK(tl_memory_info(ctx).live - before >= s.state_bytes + s.kernel_bytes);
        tl_recurrence_free(r);
        CHECK(tl_memory_info(ctx).live == before);
    }
    tl_tensor_free(t);
    tl_tensor_free(g);
}

static void a_step_allocates_nothing(void)
{
    tl_tensor *t = normals(ctx, 2, (int64_t[]){64, 32}, 0, 1, 1);
    tl_tensor *x = zeros(ctx, 2, (int64_t[]){1, 32});
    for (int i = 0; i < 3; i++) {
        tl_recurrence *r = NULL;
        CHECK_STATUS(tl_recurrence_new(t, NULL, kinds[i], 1, &r), TL_OK);
        tl_alloc_fail_after(ctx, 0);
        CHECK_STATUS(tl_recurrence_step(r, x, x), TL_OK);
        tl_alloc_fail_after(ctx, -1);
        tl_recurrence_free(r);
    }
    tl_tensor_free(t);
    tl_tensor_free(x);
}

static void memory_runs_out_anywhere(void)
{
    tl_tensor *t = normals(ctx, 2, (int64_t[]){30, 5}, 0, 1, 1);
    for (int i = 0; i < 3; i++) {
        tl_recurrence *kept = NULL; /* leaves a plan of the transforms with the context */
        CHECK_STATUS(tl_recurrence_new(t, NULL, kinds[i], 1, &kept), TL_OK);
        size_t    before = tl_memory_info(ctx).live;
        tl_status st = TL_ENOMEM;
        for (int64_t after = 0; st == TL_ENOMEM && after < 40; after++) {
            tl_recurrence *r = NULL;
            tl_alloc_fail_after(ctx, after);
            st = tl_recurrence_new(t, NULL, kinds[i], 1, &r);
            tl_alloc_fail_after(ctx, -1);
            CHECK((st == TL_OK) == (r != NULL) && (after > 2 || st == TL_ENOMEM));
            tl_recurrence_free(r);
        }
        CHECK_STATUS(st, TL_OK);
        CHECK(tl_memory_info(ctx).live == before);
        tl_recurrence_free(kept);
    }
    tl_tensor_free(t);
}

static void wrong_arguments(void)
{
    tl_recurrence *r = NULL;
    tl_tensor     *t = normals(ctx, 2, (int64_t[]){6, 4}, 0, 1, 1);
    tl_tensor     *empty = zeros(ctx, 2, (int64_t[]){0, 4}), *bad = number(1.5);
    tl_tensor     *three = zeros(ctx, 1, (int64_t[]){3}), *nan = number(NAN);
    tl_tensor     *x = zeros(ctx, 2, (int64_t[]){1, 5}), *y = zeros(ctx, 2, (int64_t[]){1, 4});
    tl_tensor     *b = zeros(ctx, 3, (int64_t[]){4, 4, 2}), *four = zeros(ctx, 1, (int64_t[]){4});
    CHECK_STATUS(tl_tensor_fill(four, 0.5), TL_OK);
    CHECK_STATUS(tl_recurrence_new(empty, NULL, TL_RECURRENCE_RING, 1, &r), TL_ESHAPE);
    CHECK_STATUS(tl_recurrence_new(four, NULL, TL_RECURRENCE_RING, 1, &r), TL_ESHAPE);
    CHECK_STATUS(tl_recurrence_new(t, three, TL_RECURRENCE_RING, 1, &r), TL_ESHAPE);
    CHECK_STATUS(tl_recurrence_new(t, bad, TL_RECURRENCE_RING, 1, &r), TL_EINVAL);
    CHECK_STATUS(tl_recurrence_new(t, nan, TL_RECURRENCE_RING, 1, &r), TL_EINVAL);
    CHECK_STATUS(tl_recurrence_new(t, NULL, TL_RECURRENCE_RING, 0, &r), TL_EINVAL);
    CHECK_STATUS(tl_recurrence_new(t, NULL, TL_RECURRENCE_RING, INT64_MAX / 4, &r), TL_EINVAL);
    CHECK_STATUS(tl_recurrence_new(t, NULL, (tl_recurrence_kind)7, 1, &r), TL_EINVAL);
    CHECK_STATUS(tl_recurrence_from_modes(b, four, TL_RECURRENCE_RING, 6, 6, 1, &r), TL_EINVAL);
    const tl_recurrence_kind exact = TL_RECURRENCE_ETSC_EXACT;
    CHECK_STATUS(tl_recurrence_from_modes(b, four, exact, 6, 8, 1, &r), TL_EINVAL);
    CHECK_STATUS(tl_recurrence_from_modes(b, four, exact, 7, 6, 1, &r), TL_EINVAL);
    CHECK_STATUS(tl_recurrence_from_modes(b, four, TL_RECURRENCE_ETSC_PUBLISHED, INT64_MAX, 6, 1,
                                          &r), TL_EINVAL);
    CHECK_STATUS(tl_recurrence_from_modes(b, three, exact, 6, 6, 1, &r), TL_ESHAPE);
    CHECK(r == NULL);
    CHECK_STATUS(tl_recurrence_from_modes(b, four, exact, 6, 6, 1, &r), TL_OK);
    CHECK_STATUS(tl_recurrence_step(r, x, x), TL_ESHAPE);
    CHECK_STATUS(tl_recurrence_step(r, y, x), TL_ESHAPE);
    CHECK_STATUS(tl_recurrence_step(r, four, four), TL_ESHAPE);
    CHECK_STATUS(tl_recurrence_step(r, y, y), TL_OK);
    tl_recurrence_free(r);
    tl_recurrence_free(NULL);
    tl_tensor *list[] = {t, empty, bad, three, nan, x, y, b, four};
    for (size_t k = 0; k < sizeof list / sizeof *list; k++) tl_tensor_free(list[k]);
}

int main(void)
{
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    int failed = run_tests((const test[]){
        {"errors are within the figures of SPEC 4", figures},
        {"published form has a spurious tap", published_has_a_spurious_tap},
        {"exact form is silent after the last lag", exact_is_silent_after_the_last_lag},
        {"equal the sum", equal_the_sum},
        {"equal the sum on three threads", on_three_threads},
        {"exact form does not drift", exact_does_not_drift},
        {"modes are the kernel", modes_are_the_kernel},
        {"sizes are told", sizes_are_told},
        {"a step allocates nothing", a_step_allocates_nothing},
        {"memory runs out anywhere", memory_runs_out_anywhere},
        {"wrong arguments", wrong_arguments},
        {0}});
    tl_ctx_free(ctx);
    return failed;
}

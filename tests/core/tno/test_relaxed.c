/* test_relaxed.c - the relaxed form of a causal Toeplitz operator against the sum that it stands
** for, position by position and after prompts. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "tensors.h"
#include "tno/lazy.h"

/* The thread sanitizer forbids new threads in a child of a process with threads. */
#ifdef __SANITIZE_THREAD__
#define NEW_THREADS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NEW_THREADS 0
#endif
#endif
#ifndef NEW_THREADS
#define NEW_THREADS 1
#endif

static tl_ctx *ctx;

typedef struct problem {
    int64_t n, prompt, lags, positions, b, d; /* n positions, of which the prompt has some */
    double  gamma;
} problem;

static double at(const tl_tensor *t, int64_t row, int64_t c)
{
    return (double)tl_tensor_cf32(t)[row * tl_tensor_dim(t, tl_tensor_ndim(t) - 1) + c];
}

/* The output of position i of sequence s, as the sum in float64. */
static double sum_of(const problem *p, const tl_tensor *t, const tl_tensor *x, int64_t s,
                     int64_t i, int64_t c)
{
    double sum = 0, scale = 1;
    for (int64_t k = 0; k <= i && k < p->lags; k++, scale *= p->gamma)
        sum += scale * at(t, k, c) * at(x, s * p->n + i - k, c);
    return sum;
}

/* y [b,n,d]: what r computes from x, the prompt at once and the others one by one. */
static void steps(const problem *p, tl_recurrence *r, const tl_tensor *x, tl_tensor *y)
{
    int64_t done = 0, row = p->d;
    while (done < p->n) {
        int64_t    count = done == 0 && p->prompt > 0 ? p->prompt : 1;
        tl_tensor *part = zeros(ctx, 3, (int64_t[]){p->b, count, p->d});
        size_t     bytes = (size_t)(count * row) * sizeof(float);
        for (int64_t s = 0; s < p->b; s++)
            memcpy(tl_tensor_f32(part) + s * count * row,
                   tl_tensor_cf32(x) + (s * p->n + done) * row, bytes);
        CHECK_STATUS(tl_recurrence_step(r, part, part), TL_OK);
        for (int64_t s = 0; s < p->b; s++)
            memcpy(tl_tensor_f32(y) + (s * p->n + done) * row,
                   tl_tensor_cf32(part) + s * count * row, bytes);
        tl_tensor_free(part);
        done += count;
    }
}

/* Whether position i is one of every `stride`, or at an edge of a lazy tile. */
static int is_checked(int64_t i, int64_t stride)
{
    int64_t in_tile = i % TL_LAZY_FROM;
    return i % stride == 0 || in_tile <= 1 || in_tile == TL_LAZY_FROM - 1;
}

/* The worst difference from the sum, over the largest, of the positions that are checked. */
static double error_of(const problem *p, int64_t stride)
{
    tl_recurrence *r = NULL;
    double         off = 0, largest = 0;
    tl_tensor *t = normals(ctx, 2, (int64_t[]){p->lags, p->d}, 0, 1, 1);
    tl_tensor *x = normals(ctx, 3, (int64_t[]){p->b, p->n, p->d}, 0, 1, 2);
    tl_tensor *y = zeros(ctx, 3, (int64_t[]){p->b, p->n, p->d});
    tl_tensor *gamma = zeros(ctx, 1, (int64_t[]){1});
    tl_tensor_f32(gamma)[0] = (float)p->gamma;
    CHECK_STATUS(tl_recurrence_new_relaxed(t, gamma, p->b, p->positions, &r), TL_OK);
    steps(p, r, x, y);
    for (int64_t s = 0; s < p->b; s++)
        for (int64_t i = 0; i < p->n; i++)
            for (int64_t c = 0; is_checked(i, stride) && c < p->d; c += p->d > 1 ? p->d - 1 : 1) {
                double want = sum_of(p, t, x, s, i, c);
                double difference = fabs(at(y, s * p->n + i, c) - want);
                if (!(difference < 1e30)) difference = INFINITY;
                off = fmax(off, difference);
                largest = fmax(largest, fabs(want));
            }
    tl_recurrence_free(r);
    tl_tensor *list[] = {t, x, y, gamma};
    for (int k = 0; k < 4; k++) tl_tensor_free(list[k]);
    return off / largest;
}

static void equals_the_sum(void)
{
    static const problem all[] = {
        /* n, prompt, lags, positions, b, d, gamma */
        {1, 0, 1, 1, 1, 1, 1},           {2, 0, 2, 2, 1, 3, 1},
        {3, 0, 3, 3, 2, 17, 1},          {63, 0, 63, 63, 1, 5, 1},
        {64, 0, 64, 64, 3, 16, 0.5},     {65, 0, 65, 65, 1, 33, 0.5},
        {1000, 0, 1000, 1000, 2, 19, 1}, {1000, 0, 1000, 0, 2, 3, 1},
        {1000, 0, 1, 0, 1, 2, 1},        {1000, 0, 2, 0, 1, 2, 1},
        {1000, 0, 32, 0, 1, 2, 1},       {1000, 0, 33, 0, 1, 2, 1},
        {1000, 0, 34, 0, 1, 2, 1},       {1000, 0, 64, 0, 2, 2, 1},
        {1000, 0, 65, 0, 1, 2, 1},       {1000, 0, 66, 0, 1, 2, 0.5},
        {1000, 0, 100, 1000, 2, 7, 1},   {1000, 0, 1001, 1000, 1, 2, 1},
        {1000, 0, 129, 1000, 1, 2, 1},   {129, 0, 128, 129, 1, 2, 1},
        {300, 0, 300, 5000, 1, 2, 1},    {300, 0, 5000, 300, 1, 2, 1},
        {1000, 1, 1000, 1000, 1, 4, 1},  {1000, 2, 1000, 998, 1, 4, 1},
        {1000, 500, 1000, 500, 2, 4, 1}, {1000, 999, 1000, 1, 2, 35, 0.5},
        {1000, 1000, 1000, 1, 1, 4, 1},  {1000, 300, 1000, 0, 2, 4, 1},
        {1000, 300, 50, 0, 1, 4, 1},     {1000, 300, 50, 700, 1, 4, 0.5},
        {1000, 31, 100, 969, 2, 4, 1},   {1000, 900, 70, 100, 1, 4, 1},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i += STRIDE) {
        double off = error_of(&all[i], 1);
        if (!(off < 2e-6)) printf("  row %d: %.1e\n", (int)i, off);
        CHECK(off < 2e-6);
    }
}

/* Rows with lazy tiles, which have a thread of their own in a context of several threads. */
static void lazy_tiles(int threads)
{
    tl_ctx *before = ctx;
    enum { F = TL_LAZY_FROM };
    static const problem all[] = {
        /* n, prompt, lags, positions, b, d, gamma */
        {2 * F, 0, 2 * F, 2 * F, 1, 2, 1},
        {2 * F + 1, 0, 2 * F + 1, 2 * F + 1, 1, 2, 1},
        {3 * F, 0, 3 * F, 3 * F, 1, 2, 1},
        {3 * F + 1, 0, 3 * F + 1, 3 * F + 1, 2, 1, 1},
        {4 * F + 8, 0, 4 * F + 8, 4 * F + 8, 1, 70, 1},
        {8 * F, 0, 8 * F, 8 * F, 1, 1, 1},
        {5 * F, 0, F + 1, 5 * F, 1, 2, 1},
        {5 * F, 0, F + 2, 5 * F, 1, 2, 1},
        {5 * F, 0, F + 2, 0, 1, 2, 1},
        {9 * F, 0, 2 * F + 1, 0, 1, 2, 1},
        {9 * F, 0, 2 * F + 2, 0, 1, 2, 1},
        {9 * F, 0, F + 900, 9 * F, 1, 2, 0.9990234375},
        {19 * F, 0, 3 * F, 0, 1, 2, 1},
        {17 * F + 5, 0, 4 * F + 9, 0, 1, 1, 1},
        {17 * F, 0, 4 * F + 9, 17 * F, 1, 1, 1},
        {15 * F, 3 * F + 7, 2 * F + 9, 0, 1, 2, 1},
        {9 * F, 2 * F, 9 * F, 7 * F, 1, 2, 1},
        {6 * F, 2, 6 * F, 6 * F - 2, 2, 3, 1},
    };
    CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
    for (size_t i = 0; i < sizeof all / sizeof *all; i += STRIDE) {
        double off = error_of(&all[i], 331);
        if (!(off < 3e-6)) printf("  row %d: %.1e\n", (int)i, off);
        CHECK(off < 3e-6);
    }
    tl_ctx_free(ctx);
    ctx = before;
}

static void equals_the_sum_with_lazy_tiles(void)
{
    lazy_tiles(1);
    lazy_tiles(2);
}

static void equals_the_sum_of_many_positions(void)
{
    const int64_t n = 1 << (STRIDE > 1 ? 13 : 16);
    const problem online = {n, 0, n, n, 1, 2, 1}, half = {n, n / 2, n, n / 2, 1, 2, 1};
    double        first = error_of(&online, 61), second = error_of(&half, 61);
    printf("  %lld positions: %.1e, after a prompt of half of them %.1e\n", (long long)n, first,
           second);
    CHECK(first < 1e-5 && second < 1e-5);
}

static void on_three_threads(void)
{
    tl_ctx *before = ctx;
    CHECK_STATUS(tl_ctx_new(3, &ctx), TL_OK);
    CHECK(error_of(&(problem){700, 100, 600, 600, 3, 150, 1}, 1) < 2e-6);
    tl_ctx_free(ctx);
    ctx = before;
}

/* A stream is the same for any number of sequences beside it, and again after a reset. */
static void numbers_repeat(void)
{
    const problem p = {200, 0, 200, 200, 2, 20, 1};
    tl_recurrence *r = NULL;
    tl_tensor *t = normals(ctx, 2, (int64_t[]){p.lags, p.d}, 0, 1, 1);
    tl_tensor *x = normals(ctx, 3, (int64_t[]){p.b, p.n, p.d}, 0, 1, 2);
    tl_tensor *y = zeros(ctx, 3, (int64_t[]){p.b, p.n, p.d}), *again = zeros(ctx, 3, (int64_t[]){
        p.b, p.n, p.d});
    CHECK_STATUS(tl_recurrence_new_relaxed(t, NULL, p.b, p.positions, &r), TL_OK);
    steps(&p, r, x, y);
    tl_recurrence_reset(r);
    steps(&p, r, x, again);
    CHECK(memcmp(tl_tensor_cf32(y), tl_tensor_cf32(again),
                 (size_t)tl_tensor_len(y) * sizeof(float)) == 0);
    tl_recurrence_reset(r); /* at once, but no prompt: the same numbers */
    CHECK_STATUS(tl_recurrence_step(r, x, again), TL_OK);
    CHECK(memcmp(tl_tensor_cf32(y), tl_tensor_cf32(again),
                 (size_t)tl_tensor_len(y) * sizeof(float)) == 0);
    tl_recurrence_free(r);
    tl_tensor *list[] = {t, x, y, again};
    for (int k = 0; k < 4; k++) tl_tensor_free(list[k]);
}

/* The numbers with lazy tiles are the same for two streams in turns, for a fork, after a reset in
** the middle, and beside the making of others. */
static void lazy_numbers(int threads)
{
    tl_ctx *before = ctx;
    CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
    const int64_t n = 6 * TL_LAZY_FROM + 500, half[] = {1, 4 * TL_LAZY_FROM + 800, 5};
    const problem p = {n, 0, n, n, 1, 5, 1};
    const int64_t dims[] = {1, p.n, p.d};
    tl_recurrence *r = NULL, *fork = NULL, *other = NULL;
    tl_tensor *t = normals(ctx, 2, (int64_t[]){p.lags, p.d}, 0, 1, 1);
    tl_tensor *x = normals(ctx, 3, dims, 0, 1, 2), *part = zeros(ctx, 3, half);
    tl_tensor *y = zeros(ctx, 3, dims), *again = zeros(ctx, 3, dims);
    tl_tensor *row = zeros(ctx, 2, (int64_t[]){1, p.d}), *twin = zeros(ctx, 2, (int64_t[]){1, p.d});
    size_t     bytes = (size_t)(p.n * p.d) * sizeof(float);
    CHECK_STATUS(tl_recurrence_new_relaxed(t, NULL, 1, p.positions, &r), TL_OK);
    CHECK_STATUS(tl_recurrence_fork(r, &fork), TL_OK);
    steps(&p, r, x, y);
    steps(&p, fork, x, again);
    CHECK(memcmp(tl_tensor_cf32(y), tl_tensor_cf32(again), bytes) == 0);
    tl_recurrence_reset(r);
    CHECK_STATUS(tl_recurrence_step(r, part, part), TL_OK);
    tl_recurrence_reset(r);
    tl_recurrence_reset(fork);
    for (int64_t i = 0; i < p.n; i++) {
        memcpy(tl_tensor_f32(row), tl_tensor_cf32(x) + i * p.d, (size_t)p.d * sizeof(float));
        memcpy(tl_tensor_f32(twin), tl_tensor_cf32(row), (size_t)p.d * sizeof(float));
        CHECK_STATUS(tl_recurrence_step(r, row, row), TL_OK);
        CHECK_STATUS(tl_recurrence_step(fork, twin, twin), TL_OK);
        CHECK(memcmp(tl_tensor_cf32(row), tl_tensor_cf32(y) + i * p.d,
                     (size_t)p.d * sizeof(float)) == 0);
        CHECK(memcmp(tl_tensor_cf32(row), tl_tensor_cf32(twin), (size_t)p.d * sizeof(float)) == 0);
        if (i % 3000 == 100) { /* made and freed while tiles are computed */
            tl_recurrence_free(other);
            CHECK_STATUS(tl_recurrence_new_relaxed(t, NULL, 1, p.positions, &other), TL_OK);
        }
    }
    tl_recurrence *all[] = {r, fork, other};
    for (int k = 0; k < 3; k++) tl_recurrence_free(all[k]);
    tl_tensor *list[] = {t, x, part, y, again, row, twin};
    for (int k = 0; k < 7; k++) tl_tensor_free(list[k]);
    tl_ctx_free(ctx);
    ctx = before;
}

static void lazy_numbers_repeat(void)
{
    lazy_numbers(1);
    lazy_numbers(2); /* with a thread in the background */
}

/* In a child: the recurrence of before fails where its thread is needed, and a new one works. */
static void lazy_child(const problem *p, tl_recurrence *r, tl_tensor *t, tl_tensor *x,
                       const tl_tensor *y)
{
    const int64_t  dims[] = {1, p->n, p->d};
    tl_recurrence *own = NULL;
    tl_tensor     *again = zeros(ctx, 3, dims);
    CHECK_STATUS(tl_recurrence_step(r, x, again), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "after fork()"));
    tl_recurrence_reset(r);
    tl_recurrence_free(r);
    if (NEW_THREADS) {
        CHECK_STATUS(tl_recurrence_new_relaxed(t, NULL, 1, p->positions, &own), TL_OK);
        steps(p, own, x, again);
        CHECK(distance(again, y) == 0);
    }
    tl_recurrence_free(own);
    tl_tensor *list[] = {t, x, again};
    for (int k = 0; k < 3; k++) tl_tensor_free(list[k]);
    tl_ctx_free(ctx);
}

static void lazy_tiles_after_a_fork_of_the_process(void)
{
    tl_ctx *before = ctx;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    const problem  p = {4 * TL_LAZY_FROM, 0, 4 * TL_LAZY_FROM, 4 * TL_LAZY_FROM, 1, 5, 1};
    const int64_t  dims[] = {1, p.n, p.d};
    tl_recurrence *r = NULL;
    tl_tensor *t = normals(ctx, 2, (int64_t[]){p.lags, p.d}, 0, 1, 1);
    tl_tensor *x = normals(ctx, 3, dims, 0, 1, 2), *y = zeros(ctx, 3, dims);
    int        status = -1;
    CHECK_STATUS(tl_recurrence_new_relaxed(t, NULL, 1, p.positions, &r), TL_OK);
    steps(&p, r, x, y);
    tl_recurrence_reset(r);
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(60);
        lazy_child(&p, r, t, x, y);
        (void)fflush(stdout);
        _exit(test_failures > 0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    steps(&p, r, x, y);
    tl_recurrence_free(r);
    tl_tensor *list[] = {t, x, y};
    for (int k = 0; k < 3; k++) tl_tensor_free(list[k]);
    tl_ctx_free(ctx);
    ctx = before;
}

/* Forks share the kernel; those of a relaxed recurrence only until the last of them has begun. */
static void forks_share_the_kernel(void)
{
    const problem p = {100, 0, 90, 100, 1, 5, 1};
    tl_tensor *t = normals(ctx, 2, (int64_t[]){p.lags, p.d}, 0, 1, 1), *gamma = zeros(ctx, 1,
        (int64_t[]){1});
    tl_tensor *x = normals(ctx, 3, (int64_t[]){1, p.n, p.d}, 0, 1, 2);
    tl_tensor *y = zeros(ctx, 3, (int64_t[]){1, p.n, p.d}), *again = zeros(ctx, 3, (int64_t[]){
        1, p.n, p.d});
    tl_tensor_f32(gamma)[0] = 0.75f;
    for (int kind = TL_RECURRENCE_RING; kind <= TL_RECURRENCE_RELAXED; kind++) {
        tl_recurrence *r = NULL, *fork = NULL, *none = NULL;
        CHECK_STATUS(tl_recurrence_new(t, gamma, (tl_recurrence_kind)kind, 1, &r), TL_OK);
        tl_recurrence_free(r); /* plans of transforms stay */
        size_t before = tl_memory_info(ctx).live;
        CHECK_STATUS(tl_recurrence_new(t, gamma, (tl_recurrence_kind)kind, 1, &r), TL_OK);
        CHECK_STATUS(tl_recurrence_fork(r, &fork), TL_OK);
        CHECK_STATUS(tl_recurrence_step(r, x, y), TL_OK);
        tl_recurrence_free(r);
        CHECK_STATUS(tl_recurrence_step(fork, x, again), TL_OK);
        CHECK(memcmp(tl_tensor_cf32(y), tl_tensor_cf32(again),
                     (size_t)tl_tensor_len(y) * sizeof(float)) == 0);
        if (kind == TL_RECURRENCE_RELAXED) CHECK_STATUS(tl_recurrence_fork(fork, &none), TL_EINVAL);
        for (int64_t after = 0; after < 20 && !none && kind != TL_RECURRENCE_RELAXED; after++) {
            tl_alloc_fail_after(ctx, after);
            tl_status st = tl_recurrence_fork(fork, &none);
            tl_alloc_fail_after(ctx, -1);
            CHECK((st == TL_OK) == (none != NULL));
        }
        tl_recurrence_free(none);
        tl_recurrence_free(fork);
        CHECK(tl_memory_info(ctx).live == before);
    }
    tl_tensor *list[] = {t, gamma, x, y, again};
    for (int k = 0; k < 5; k++) tl_tensor_free(list[k]);
}

static void memory_of_positions(void)
{
    const int64_t lags = 1 << 14, d = 16, few = 100;
    size_t        before = tl_memory_info(ctx).live;
    tl_recurrence *r = NULL;
    tl_tensor *t = normals(ctx, 2, (int64_t[]){lags, d}, 0, 1, 1);
    tl_tensor *x = zeros(ctx, 3, (int64_t[]){1, lags - few, d}), *one = zeros(ctx, 2, (int64_t[]){
        1, d});
    CHECK_STATUS(tl_recurrence_new_relaxed(t, NULL, 1, few, &r), TL_OK);
    CHECK(tl_recurrence_sizes(r).kernel_bytes > (size_t)(lags * d) * sizeof(float));
    CHECK_STATUS(tl_recurrence_step(r, x, x), TL_OK);
    tl_recurrence_size s = tl_recurrence_sizes(r);
    CHECK(s.kind == TL_RECURRENCE_RELAXED && s.lags == lags && s.modes == 0 && s.period == 0);
    CHECK(s.state_bytes == (size_t)(few * d) * sizeof(float));
    CHECK(s.kernel_bytes < 5 * s.state_bytes);
    tl_alloc_fail_after(ctx, 0); /* a step allocates nothing */
    for (int64_t i = 0; i < few; i++) CHECK_STATUS(tl_recurrence_step(r, one, one), TL_OK);
    CHECK_STATUS(tl_recurrence_step(r, one, one), TL_EINVAL); /* no room is left */
    tl_alloc_fail_after(ctx, -1);
    CHECK(strstr(tl_errmsg(ctx), "1 positions after 100 others"));
    tl_recurrence_free(r);
    tl_tensor *list[] = {t, x, one};
    for (int k = 0; k < 3; k++) tl_tensor_free(list[k]);
    CHECK(tl_memory_info(ctx).live == before);
}

static void memory_runs_out(int64_t lags, int64_t positions)
{
    tl_tensor *t = normals(ctx, 2, (int64_t[]){lags, 5}, 0, 1, 1);
    tl_tensor *x = normals(ctx, 3, (int64_t[]){1, 90, 5}, 0, 1, 2);
    size_t     before = tl_memory_info(ctx).live;
    tl_status  st = TL_ENOMEM;
    int64_t    after = 0;
    for (; st == TL_ENOMEM && after < 400; after++) {
        tl_recurrence *r = NULL;
        tl_alloc_fail_after(ctx, after);
        st = tl_recurrence_new_relaxed(t, NULL, 1, positions, &r);
        CHECK((st == TL_OK) == (r != NULL));
        if (st == TL_OK) st = tl_recurrence_step(r, x, x);
        tl_alloc_fail_after(ctx, -1);
        tl_recurrence_free(r);
        CHECK(tl_memory_info(ctx).live == before);
    }
    CHECK_STATUS(st, TL_OK);
    CHECK(after > 10);
    tl_tensor_free(t);
    tl_tensor_free(x);
}

static void memory_runs_out_anywhere(void)
{
    memory_runs_out(200, 100);
    memory_runs_out(3 * TL_LAZY_FROM, 3 * TL_LAZY_FROM);
}

static void wrong_arguments(void)
{
    tl_recurrence *r = NULL;
    tl_tensor     *t = normals(ctx, 2, (int64_t[]){6, 4}, 0, 1, 1);
    tl_tensor     *b = NULL, *lambda = NULL, *decay = NULL;
    CHECK_STATUS(tl_recurrence_new_relaxed(t, NULL, 1, -1, &r), TL_EINVAL);
    CHECK_STATUS(tl_recurrence_new_relaxed(t, NULL, 0, 1, &r), TL_EINVAL);
    CHECK(r == NULL);
    CHECK_STATUS(tl_recurrence_new(t, NULL, TL_RECURRENCE_RELAXED, 1, &r), TL_OK);
    CHECK_STATUS(tl_recurrence_modes(r, &b, &lambda, &decay), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "the relaxed form has no modes"));
    tl_recurrence_free(r);
    tl_tensor_free(t);
}

int main(void)
{
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    int failed = run_tests((const test[]){
        {"equals the sum", equals_the_sum},
        {"equals the sum with lazy tiles", equals_the_sum_with_lazy_tiles},
        {"equals the sum of many positions", equals_the_sum_of_many_positions},
        {"equals the sum on three threads", on_three_threads},
        {"numbers repeat", numbers_repeat},
        {"numbers repeat with lazy tiles", lazy_numbers_repeat},
        {"lazy tiles after a fork of the process", lazy_tiles_after_a_fork_of_the_process},
        {"forks share the kernel", forks_share_the_kernel},
        {"memory grows with the positions to come", memory_of_positions},
        {"memory runs out anywhere", memory_runs_out_anywhere},
        {"wrong arguments", wrong_arguments},
        {0}});
    tl_ctx_free(ctx);
    return failed;
}

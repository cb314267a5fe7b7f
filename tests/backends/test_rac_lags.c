/* test_rac_lags.c - the backend rac with coefficients for few lags: what it gives with all lags and
** zeros there, block by block. */
#include <stdlib.h>

#include "rac.h"

/* The rows of lags nearer than some, of an array by all lags, or into one of zeros. */
static tl_tensor *cut(tl_tensor *all, const shape *s, int64_t lags)
{
    int64_t    before = s->causal ? 0 : lags - 1, dims[] = {before + lags, s->d};
    tl_tensor *some = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 2, dims, &some), TL_OK);
    const float *from = tl_tensor_cf32(all) + (s->causal ? 0 : (s->n - lags) * s->d);
    memcpy(tl_tensor_f32(some), from, (size_t)tl_tensor_len(some) * sizeof *from);
    return some;
}

static tl_tensor *padded(tl_tensor *some, const shape *s, int64_t lags)
{
    int64_t    dims[] = {s->causal ? s->n : 2 * s->n - 1, s->d};
    tl_tensor *all = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 2, dims, &all), TL_OK);
    float *to = tl_tensor_f32(all) + (s->causal ? 0 : (s->n - lags) * s->d);
    memcpy(to, tl_tensor_cf32(some), (size_t)tl_tensor_len(some) * sizeof *to);
    return all;
}

/* The result with coefficients for that many lags. */
static answer run_cut(int wanted, const char *set, const shape *s, int64_t lags)
{
    char    text[40];
    tl_tno *tno = NULL;
    (void)snprintf(text, sizeof text, "lags=%lld", (long long)lags);
    CHECK_STATUS(tl_tno_new(ctx, "rac", s->n, s->d, s->causal,
                            (const char *[]){set, text, NULL}, &tno), TL_OK);
    if (!tno) exit(1);
    return run_for(wanted, tno, s);
}

static void compare_cut(const char *set, const shape *s, int64_t lags)
{
    int64_t    most = lags < s->n ? lags : s->n;
    answer     got = run_cut(DX | DCOEF, set, s, lags);
    tl_tensor *coef = padded(got.coef, s, most);
    tl_tno    *tno = operator_of("fft", NULL, s);
    answer     want = run_with(DX | DCOEF, tno, s, coef);
    tl_tensor *dcoef = cut(want.dcoef, s, most);
    double     y = distance(got.y, want.y), dx = distance(got.dx, want.dx);
    double     dc = distance(got.dcoef, dcoef);
    CHECK(y <= TOLERANCE && dx <= TOLERANCE && dc <= TOLERANCE);
    if (!(y <= TOLERANCE && dx <= TOLERANCE && dc <= TOLERANCE))
        printf("  %s n %lld lags %lld b %lld d %lld %s: y %.2g dx %.2g dcoef %.2g\n", set,
               (long long)s->n, (long long)lags, (long long)s->b, (long long)s->d,
               s->causal ? "causal" : "not causal", y, dx, dc);
    double size = sqrt(dot(got.y, got.y) * dot(got.dy, got.dy));
    CHECK_NEAR(dot(got.y, got.dy), dot(got.x, got.dx), 1e-6 * size);
    CHECK_NEAR(dot(got.y, got.dy), dot(got.coef, got.dcoef), 1e-6 * size);
    tl_tensor_free(dcoef);
    tl_tensor_free(coef);
    answer_free(&got);
    answer_free(&want);
}

/* Against all lags with zeros from there on: lengths that are whole blocks or not, one block, and
** shorter than the kernel; channels that fill tiles or not. */
static void short_kernels(void)
{
    static const struct { int64_t n, lags; } sizes[] = {
        {1, 1}, {2, 1}, {7, 9}, {13, 13}, {64, 1}, {64, 2}, {96, 5}, {100, 7}, {100, 12},
        {100, 13}, {200, 16}, {255, 17}, {256, 16}, {257, 31}, {300, 150}, {500, 64}, {513, 100},
        {1000, 50}, {1024, 128}, {2048, 500}, {4096, 33}, {5000, 700}, {8192, 1000}};
    for (int i = 0; i < SETS; i++) {
        tl_tno *there = operator_of("rac", sets[i], &(shape){4, 1, 1, 1});
        if (!there) continue;
        tl_tno_free(there);
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k += STRIDE)
            for (int causal = 0; causal < 2; causal++) {
                shape s = {sizes[k].n, 2, 19, causal};
                compare_cut(sets[i], &s, sizes[k].lags);
                s = (shape){sizes[k].n, 1, 32, causal};
                compare_cut(sets[i], &s, sizes[k].lags);
            }
    }
}

/* The matrix is the one of the definition, and only the given lags are points. */
static void short_kernels_in_full(void)
{
    for (int causal = 0; causal < 2; causal++) {
        shape      s = {12, 1, 3, causal};
        tl_tno    *tno = NULL, *naive = operator_of("naive", NULL, &s);
        tl_tensor *points = NULL, *got = NULL, *want = NULL;
        CHECK_STATUS(tl_tno_new(ctx, "rac", 12, 3, causal, (const char *[]){"lags=4", NULL}, &tno),
                     TL_OK);
        CHECK_STATUS(tl_tno_points(tno, &points), TL_OK);
        CHECK(tl_tensor_len(points) == (causal ? 4 : 7));
        for (int k = 0; k < tl_tensor_len(points); k++)
            CHECK(tl_tensor_cf32(points)[k] == (float)(causal ? k : k - 3));
        tl_tensor *some = uniforms(ctx, 2, (int64_t[]){tl_tensor_len(points), 3}, -1, 1, 5);
        tl_tensor *all = padded(some, &s, 4);
        CHECK_STATUS(tl_tno_dense(tno, some, NULL, &got), TL_OK);
        CHECK_STATUS(tl_tno_dense(naive, all, NULL, &want), TL_OK);
        CHECK(distance(got, want) == 0);
        tl_tensor *list[] = {points, some, all, got, want};
        for (int k = 0; k < 5; k++) tl_tensor_free(list[k]);
        tl_tno_free(tno);
        tl_tno_free(naive);
    }
}

/* As for all lags: bits do not depend on the threads, nor on what else is wanted. */
static void short_kernels_repeat(void)
{
    static const shape shapes[] = {{300, 3, 5, 0}, {500, 2, 40, 1}};
    tl_ctx *kept = ctx;
    for (int k = 0; k < 2; k++) {
        answer first = run_cut(DX | DCOEF, "isa=auto", &shapes[k], 20);
        answer x = run_cut(DX, "isa=auto", &shapes[k], 20);
        answer coef = run_cut(DCOEF, "isa=auto", &shapes[k], 20);
        CHECK_STATUS(tl_ctx_new(5, &ctx), TL_OK);
        answer more = run_cut(DX | DCOEF, "isa=auto", &shapes[k], 20);
        tl_ctx_free(ctx);
        ctx = kept;
        CHECK(distance(more.y, first.y) == 0);
        CHECK(distance(more.dx, first.dx) == 0 && distance(x.dx, first.dx) == 0);
        CHECK(distance(more.dcoef, first.dcoef) == 0 && distance(coef.dcoef, first.dcoef) == 0);
        answer_free(&first);
        answer_free(&x);
        answer_free(&coef);
        answer_free(&more);
    }
}

int main(void)
{
    (void)setenv("TOEPLAB_CACHE", "", 1);
    if (tl_ctx_new(2, &ctx) != TL_OK) return 1;
    int failed = run_tests((const test[]){
        {"short kernels", short_kernels},
        {"short kernels in full", short_kernels_in_full},
        {"short kernels repeat", short_kernels_repeat},
        {0},
    });
    tl_ctx_free(ctx);
    return failed;
}

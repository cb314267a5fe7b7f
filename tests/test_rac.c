/* test_rac.c - the backend rac with each instruction set of this processor: every short length and
** some long ones against naive and fft, and what is true of any operator and its adjoints. */
#include <stdlib.h>
#include <string.h>

#include "tensors.h"

#define TOLERANCE 2e-6 /* of the largest entry */

static tl_ctx *ctx;

static const char *const sets[] = {"isa=portable", "isa=avx2", "isa=avx512"};

enum { SETS = sizeof sets / sizeof *sets };

typedef struct shape {
    int64_t n, b, d;
    int     causal;
} shape;

/* What goes in and what comes out. */
typedef struct answer {
    tl_tensor *x, *dy, *coef, *y, *dx, *dcoef;
} answer;

/* NULL if this processor has not the instructions. */
static tl_tno *operator_of(const char *backend, const char *option, const shape *s)
{
    tl_tno   *tno = NULL;
    tl_status st = tl_tno_new(ctx, backend, s->n, s->d, s->causal,
                              option ? (const char *[]){option, NULL} : NULL, &tno);
    if (st != TL_EBACKEND || !option || strcmp(option, "isa=portable") == 0)
        CHECK_STATUS(st, TL_OK);
    else
        CHECK(strstr(tl_errmsg(ctx), "this processor has no avx"));
    return tno;
}

enum { DX = 1, DCOEF = 2 };

/* y, and those gradients of the sum of y dy that are wanted. */
static answer run_with(int wanted, tl_tno *tno, const shape *s, tl_tensor *coef)
{
    answer     r = {.coef = tl_tensor_retain(coef)};
    int64_t    dims[] = {s->b, s->n, s->d};
    tl_tensor *product = NULL, *loss = NULL;
    r.x = uniforms(ctx, 3, dims, -1, 1, 1);
    r.dy = uniforms(ctx, 3, dims, -1, 1, 2);
    CHECK_STATUS(tl_require_grad(r.x, (wanted & DX) != 0), TL_OK);
    CHECK_STATUS(tl_require_grad(r.coef, (wanted & DCOEF) != 0), TL_OK);
    CHECK_STATUS(tl_tno_apply(tno, r.coef, NULL, r.x, &r.y), TL_OK);
    CHECK_STATUS(tl_binary(TL_MUL, r.y, r.dy, &product), TL_OK);
    CHECK_STATUS(tl_reduce(TL_SUM, product, TL_ALL, 0, &loss), TL_OK);
    CHECK_STATUS(tl_backward(ctx, loss), TL_OK);
    if (wanted & DX) r.dx = tl_tensor_retain(tl_grad(r.x));
    if (wanted & DCOEF) r.dcoef = tl_tensor_retain(tl_grad(r.coef));
    tl_tensor_free(loss);
    tl_tensor_free(product);
    tl_tno_free(tno);
    return r;
}

static answer run_for(int wanted, tl_tno *tno, const shape *s)
{
    tl_tensor *points = NULL;
    CHECK_STATUS(tl_tno_points(tno, &points), TL_OK);
    int64_t    dims[] = {tl_tensor_len(points), s->d};
    tl_tensor *coef = uniforms(ctx, 2, dims, -1, 1, 3);
    answer     r = run_with(wanted, tno, s, coef);
    tl_tensor_free(coef);
    tl_tensor_free(points);
    return r;
}

static answer run(tl_tno *tno, const shape *s) { return run_for(DX | DCOEF, tno, s); }

static void answer_free(answer *r)
{
    tl_tensor *all[] = {r->x, r->dy, r->coef, r->y, r->dx, r->dcoef};
    for (int i = 0; i < 6; i++) tl_tensor_free(all[i]);
}

/* How many outputs of rac differ from those of another backend, over the instruction sets. */
static int differences(const char *backend, const shape *s)
{
    int    bad = 0;
    answer want = run(operator_of(backend, NULL, s), s);
    for (int i = 0; i < SETS; i++) {
        tl_tno *tno = operator_of("rac", sets[i], s);
        if (!tno) continue;
        answer got = run(tno, s);
        double y = distance(got.y, want.y), dx = distance(got.dx, want.dx);
        double dcoef = distance(got.dcoef, want.dcoef);
        int    wrong = (y > TOLERANCE) + (dx > TOLERANCE) + (dcoef > TOLERANCE);
        if (wrong)
            printf("  %s n %lld b %lld d %lld %s: y %.2g dx %.2g dcoef %.2g\n", sets[i],
                   (long long)s->n, (long long)s->b, (long long)s->d,
                   s->causal ? "causal" : "not causal", y, dx, dcoef);
        bad += wrong;
        answer_free(&got);
    }
    answer_free(&want);
    return bad;
}

/* 19 channels: whole tiles and parts of one, in 4, 8 and 16 lanes. */
static void short_lengths(void)
{
    for (int64_t n = 1; n <= 200; n++)
        for (int causal = 0; causal < 2; causal++) {
            int64_t d = n < 50 || n % 16 == 0 ? 19 : 3;
            CHECK(differences("naive", &(shape){n, 2, d, causal}) == 0);
        }
}

static void long_lengths(void)
{
    static const int64_t lengths[] = {211, 256, 257, 384, 509, 512, 625, 1000, 1009, 1021, 1024,
                                      1536, 2048, 2187, 3001, 4093, 4096, 5000, 8192};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int causal = 0; causal < 2; causal++) {
            shape s = {lengths[i], 2, 19, causal};
            CHECK(differences("fft", &s) == 0);
            if (s.n > 1100) continue;
            s = (shape){lengths[i], 1, 1, causal};
            CHECK(differences("naive", &s) == 0);
        }
}

/* A fault in one entry of the coefficients must show. */
static void a_planted_fault_is_seen(void)
{
    shape  s = {31, 1, 5, 0};
    answer want = run(operator_of("naive", NULL, &s), &s);
    answer got = run(operator_of("rac", "isa=portable", &s), &s);
    CHECK(distance(got.dcoef, want.dcoef) <= TOLERANCE);
    tl_tensor_f32(got.dcoef)[7] += 1e-3f;
    CHECK(distance(got.dcoef, want.dcoef) > TOLERANCE);
    answer_free(&want);
    answer_free(&got);
}

static double dot(const tl_tensor *a, const tl_tensor *b)
{
    double sum = 0;
    CHECK(tl_tensor_len(a) == tl_tensor_len(b));
    for (int64_t k = 0; k < tl_tensor_len(a); k++)
        sum += (double)tl_tensor_cf32(a)[k] * tl_tensor_cf32(b)[k];
    return sum;
}

/* y is linear in x and in the coefficients, so y dy = x dx = coef dcoef. */
static void adjoints_agree(void)
{
    static const shape shapes[] = {{1, 1, 1, 1},     {37, 3, 20, 0},   {100, 5, 2, 1},
                                   {512, 2, 32, 1},  {512, 2, 32, 0},  {1500, 1, 16, 0},
                                   {4096, 1, 16, 1}};
    int checked = 0;
    for (int i = 0; i < SETS; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            tl_tno *tno = operator_of("rac", sets[i], &shapes[k]);
            if (!tno) continue;
            answer r = run(tno, &shapes[k]);
            double size = sqrt(dot(r.y, r.y) * dot(r.dy, r.dy)), y = dot(r.y, r.dy);
            CHECK(size > 0.1);
            CHECK_NEAR(y, dot(r.x, r.dx), 1e-6 * size);
            CHECK_NEAR(y, dot(r.coef, r.dcoef), 1e-6 * size);
            answer_free(&r);
            checked++;
        }
    CHECK(checked >= 7);
}

/* A gradient that is not wanted changes nothing about the other one. */
static void gradients_are_independent(void)
{
    shape s = {60, 3, 21, 0};
    for (int i = 0; i < SETS; i++) {
        tl_tno *tno = operator_of("rac", sets[i], &s);
        if (!tno) continue;
        answer both = run(tno, &s);
        answer x = run_for(DX, operator_of("rac", sets[i], &s), &s);
        answer coef = run_for(DCOEF, operator_of("rac", sets[i], &s), &s);
        CHECK(distance(x.dx, both.dx) == 0);
        CHECK(distance(coef.dcoef, both.dcoef) == 0);
        answer_free(&both);
        answer_free(&x);
        answer_free(&coef);
    }
}

/* Few channels: the sums over the batch are made in groups. */
static void threads_give_equal_bits(void)
{
    static const shape shapes[] = {{50, 7, 3, 0}, {64, 5, 35, 1}, {200, 2, 70, 0}, {33, 9, 20, 1}};
    tl_ctx *kept = ctx;
    for (int i = 0; i < SETS; i++)
        for (int k = 0; k < 4; k++) {
            answer first = {0};
            for (int threads = 1; threads < 8; threads += 2) {
                CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
                tl_tno *tno = operator_of("rac", sets[i], &shapes[k]);
                answer  r = {0};
                if (tno) r = run(tno, &shapes[k]);
                tl_ctx_free(ctx);
                if (!tno) continue;
                if (!first.y) {
                    first = r;
                    continue;
                }
                CHECK(distance(r.y, first.y) == 0);
                CHECK(distance(r.dx, first.dx) == 0);
                CHECK(distance(r.dcoef, first.dcoef) == 0);
                answer_free(&r);
            }
            answer_free(&first);
        }
    ctx = kept;
}

/* ---- Short kernels --------------------------------------------------------------------------- */

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

/* The answer with coefficients for so many lags. */
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
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            for (int causal = 0; causal < 2; causal++) {
                shape s = {sizes[k].n, 2, 19, causal};
                compare_cut(sets[i], &s, sizes[k].lags);
                s = (shape){sizes[k].n, 1, 32, causal};
                compare_cut(sets[i], &s, sizes[k].lags);
            }
    }
}

/* The matrix is that of the definition, and only the lags that are asked for are points. */
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

/* Later inputs reach earlier outputs of a causal operator by rounding only. */
static void causal_to_rounding(void)
{
    shape s = {300, 1, 16, 1};
    for (int i = 0; i < SETS; i++) {
        tl_tno *tno = operator_of("rac", sets[i], &s);
        if (!tno) continue;
        answer     r = run(tno, &s);
        tl_tensor *y = NULL;
        double     before = 0, after = 0;
        for (int64_t k = 150 * s.d; k < s.n * s.d; k++) tl_tensor_f32(r.x)[k] += 1;
        tno = operator_of("rac", sets[i], &s);
        CHECK_STATUS(tl_tno_apply(tno, r.coef, NULL, r.x, &y), TL_OK);
        for (int64_t k = 0; k < s.n * s.d; k++) {
            double change = fabs((double)tl_tensor_cf32(y)[k] - tl_tensor_cf32(r.y)[k]);
            double *side = k < 150 * s.d ? &before : &after;
            *side = fmax(*side, change);
        }
        CHECK(before <= 1e-5); /* entries of y are about 10 */
        CHECK(after > 0.1);
        tl_tensor_free(y);
        tl_tno_free(tno);
        answer_free(&r);
    }
}

static void words_are_checked(void)
{
    tl_tno *tno = NULL;
    CHECK_STATUS(tl_tno_new(ctx, "rac", 8, 1, 1, (const char *[]){"isa=sse9", NULL}, &tno),
                 TL_EINVAL);
    CHECK(tno == NULL);
}

int main(void)
{
    (void)setenv("TOEPLAB_CACHE", "", 1);
    if (tl_ctx_new(2, &ctx) != TL_OK) return 1;
    int failed = run_tests((const test[]){
        {"every length to 200", short_lengths},
        {"long lengths", long_lengths},
        {"a planted fault is seen", a_planted_fault_is_seen},
        {"adjoints agree", adjoints_agree},
        {"gradients are independent", gradients_are_independent},
        {"threads give equal bits", threads_give_equal_bits},
        {"causal to rounding", causal_to_rounding},
        {"short kernels", short_kernels},
        {"short kernels in full", short_kernels_in_full},
        {"short kernels repeat", short_kernels_repeat},
        {"words are checked", words_are_checked},
        {0},
    });
    tl_ctx_free(ctx);
    return failed;
}

/* test_fd.c - the frequency-domain backend against its definition in float64, and its gradients. */
#include "fd.h"

/* ---- The definition in float64 --------------------------------------------------------------- */

/* What frequency m adds to the kernel at lag k, for 1 of its real and of its imaginary part. */
static void wave(const problem *p, int64_t half, int64_t k, int64_t m, double *re, double *im)
{
    int    end = m == 0 || m == half;
    double weight = (end ? 1 : 2) * (p->causal && k > 0 ? 2 : 1) / (2.0 * (double)half);
    double angle = PI * (double)(m * k % (2 * half)) / (double)half;
    *re = weight * cos(angle);
    *im = end ? 0 : -weight * sin(angle);
}

/* The kernel of channel c at lag k. */
static double kernel(const problem *p, const result *r, int64_t k, int64_t c)
{
    double       sum = 0, re, im;
    const float *coef = tl_tensor_cf32(r->coef);
    int64_t      width = (p->causal ? 1 : 2) * p->d;
    for (int64_t m = 0; m <= r->half; m++) {
        wave(p, r->half, k, m, &re, &im);
        sum += re * coef[m * width + c];
        if (!p->causal) sum += im * coef[m * width + p->d + c];
    }
    return sum;
}

/* Channel c of y, dx and dense; adds the gradient of each lag to dt[0..2n-2]. */
static void define_channel(const problem *p, const result *r, result *want, int64_t c, double *t,
                           double *dt)
{
    int64_t      n = p->n, d = p->d;
    const float *x = tl_tensor_cf32(r->x) + c, *dy = tl_tensor_cf32(r->dy) + c;
    float       *y = tl_tensor_f32(want->y) + c, *dx = tl_tensor_f32(want->dx) + c;
    for (int64_t k = 1 - n; k < n; k++)
        t[n - 1 + k] = k < 0 && p->causal ? 0 : kernel(p, r, k, c);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            tl_tensor_f32(want->dense)[(c * n + i) * n + j] = (float)t[n - 1 + i - j];
    for (int64_t b = 0; b < p->b; b++)
        for (int64_t i = 0; i < n; i++) {
            double sum = 0, dsum = 0;
            for (int64_t j = 0; j < n; j++) {
                int64_t at = (b * n + j) * d;
                sum += t[n - 1 + i - j] * x[at];
                dsum += t[n - 1 + j - i] * dy[at];
                dt[n - 1 + i - j] += (double)dy[(b * n + i) * d] * x[at];
            }
            y[(b * n + i) * d] = (float)sum;
            dx[(b * n + i) * d] = (float)dsum;
        }
}

static result define(const problem *p, const result *r)
{
    int64_t n = p->n, d = p->d, width = (p->causal ? 1 : 2) * d, three[] = {p->b, n, d};
    result  want = {0};
    double *t = calloc((size_t)(4 * n), sizeof *t), *dt = t + 2 * n;
    if (!t) exit(1);
    want.y = zeros(ctx, 3, three);
    want.dx = zeros(ctx, 3, three);
    want.dense = zeros(ctx, 3, (int64_t[]){d, n, n});
    want.dcoef = zeros(ctx, 2, (int64_t[]){r->half + 1, width});
    for (int64_t c = 0; c < d; c++) {
        for (int64_t k = 0; k < 2 * n; k++) dt[k] = 0;
        define_channel(p, r, &want, c, t, dt);
        for (int64_t m = 0; m <= r->half; m++) {
            double re, im, dre = 0, dim = 0;
            for (int64_t k = p->causal ? 0 : 1 - n; k < n; k++) {
                wave(p, r->half, k, m, &re, &im);
                dre += re * dt[n - 1 + k];
                dim += im * dt[n - 1 + k];
            }
            float *to = tl_tensor_f32(want.dcoef) + m * width + c;
            to[0] = (float)dre;
            if (!p->causal) to[d] = (float)dim;
        }
    }
    free(t);
    return want;
}

/* Whether all four outputs of got equal those of want. */
static int equal(const problem *p, const result *got, const result *want)
{
    double y = distance(got->y, want->y), dx = distance(got->dx, want->dx);
    double dcoef = distance(got->dcoef, want->dcoef), dense = distance(got->dense, want->dense);
    int    good = y <= TOLERANCE && dx <= TOLERANCE && dcoef <= TOLERANCE && dense <= TOLERANCE;
    if (!good)
        printf("  n %lld b %lld d %lld %s %s: y %.2g dx %.2g dcoef %.2g dense %.2g\n",
               (long long)p->n, (long long)p->b, (long long)p->d,
               p->causal ? "causal" : "bidirectional", p->size, y, dx, dcoef, dense);
    return good;
}

static void as_defined(const problem *p)
{
    result got = run(p), want = define(p, &got);
    CHECK(equal(p, &got, &want));
    result_free(&want);
    result_free(&got);
}

static void equals_the_definition(void)
{
    static const int64_t channels[] = {1, 16, 19};
    for (int64_t n = 1; n <= 9; n++)
        for (int k = 0; k < 6; k++) as_defined(&(problem){n, 2, 3, k % 2, sizes[k / 2], NULL});
    for (int k = 0; k < 6; k++) {
        as_defined(&(problem){37, 3, channels[k / 2], k % 2, sizes[k / 2], NULL});
        as_defined(&(problem){64, 1, 5, k % 2, sizes[k / 2], NULL});
        as_defined(&(problem){331, 1, 2, k % 2, sizes[k / 2], NULL});
    }
}

/* Lengths for which channels share vectors, whole tiles and parts of one; 24 to 192: one transform
** and several, and n short of M/2 where the next power of two is M. */
static void equals_it_with_every_instruction_set(void)
{
    static const char *const sets[] = {"isa=portable", "isa=avx2", "isa=avx512"};
    static const int64_t     lengths[] = {24, 32, 48, 65, 96, 120, 128, 192};
    for (int i = 0; i < 3; i++) {
        tl_tno   *tno = NULL;
        tl_status st = tl_tno_new(ctx, "fd", 32, 1, 1, (const char *[]){sets[i], NULL}, &tno);
        tl_tno_free(tno);
        CHECK(st == TL_OK || (i > 0 && strstr(tl_errmsg(ctx), "this processor has no avx")));
        for (int k = 0; st == TL_OK && k < 8; k++) {
            as_defined(&(problem){lengths[k], 2, 3, 0, sizes[1], sets[i]});
            as_defined(&(problem){lengths[k], 1, 19, 0, sizes[2], sets[i]});
            as_defined(&(problem){lengths[k], 2, 3, 1, sizes[0], sets[i]});
            as_defined(&(problem){lengths[k], 1, 35, 1, sizes[1], sets[i]});
        }
    }
}

/* The comparison must see an error in a single entry of any output. */
static void planted_faults_are_seen(void)
{
    problem    p = {13, 2, 3, 0, sizes[0], NULL};
    result     got = run(&p), want = define(&p, &got);
    tl_tensor *outputs[] = {got.y, got.dx, got.dcoef, got.dense};
    CHECK(equal(&p, &got, &want));
    for (int k = 0; k < 4; k++) {
        float *value = tl_tensor_f32(outputs[k]) + tl_tensor_len(outputs[k]) / 2, kept = *value;
        *value += 1e-3f;
        CHECK(!equal(&p, &got, &want));
        *value = kept;
    }
    result_free(&want);
    result_free(&got);
}

/* ---- What is true of it ---------------------------------------------------------------------- */

/* A real kernel has no imaginary part at 0 and pi: there it neither acts nor learns. */
static void ends_are_real_at(int64_t n)
{
    problem p = {n, 2, 3, 0, sizes[0], NULL};
    result  before = run(&p), after = inputs(&p);
    int64_t last = before.half * 2 * p.d;
    for (int64_t c = 0; c < p.d; c++) {
        tl_tensor_f32(after.coef)[p.d + c] += 100;
        tl_tensor_f32(after.coef)[last + p.d + c] -= 100;
        CHECK(tl_tensor_cf32(before.dcoef)[p.d + c] == 0);
        CHECK(tl_tensor_cf32(before.dcoef)[last + p.d + c] == 0);
        CHECK(tl_tensor_cf32(before.dcoef)[c] != 0);
    }
    apply("fd", &p, &after, "coef x");
    CHECK(distance(after.y, before.y) == 0 && distance(after.dx, before.dx) == 0);
    CHECK(distance(after.dcoef, before.dcoef) == 0 && distance(after.dense, before.dense) == 0);
    result_free(&before);
    result_free(&after);
}

/* Imaginary parts that are not used may have any value, also none. */
static void unused_parts_are_not_read_at(int64_t n, float value)
{
    problem p = {n, 2, 3, 0, sizes[0], NULL};
    result  before = run(&p), after = inputs(&p);
    float  *coef = tl_tensor_f32(after.coef);
    for (int64_t c = 0; c < p.d; c++) coef[p.d + c] = coef[(2 * before.half + 1) * p.d + c] = value;
    apply("fd", &p, &after, "coef x");
    CHECK(distance(after.y, before.y) == 0 && distance(after.dx, before.dx) == 0);
    CHECK(distance(after.dcoef, before.dcoef) == 0 && distance(after.dense, before.dense) == 0);
    result_free(&before);
    result_free(&after);
}

static void ends_are_real(void)
{
    static const int64_t lengths[] = {12, 32}; /* channel by channel, and in lanes */
    for (int k = 0; k < 2; k++) {
        ends_are_real_at(lengths[k]);
        unused_parts_are_not_read_at(lengths[k], NAN);
        unused_parts_are_not_read_at(lengths[k], INFINITY);
    }
}

/* y is linear in x and in the coefficients. */
static void adjoint_identities(void)
{
    for (int k = 0; k < 6; k++) {
        problem p = {200 + k, 3, 33, k % 2, sizes[k / 2], NULL};
        result  r = run(&p);
        double  want = dot(r.y, r.dy), size = sqrt(dot(r.y, r.y) * dot(r.dy, r.dy));
        CHECK_NEAR(dot(r.x, r.dx), want, 1e-6 * size);
        CHECK_NEAR(dot(r.coef, r.dcoef), want, 1e-6 * size);
        result_free(&r);
    }
}

/* One gradient alone is what it is beside the other, but for the rounding of a kernel of its own;
** without a batch they are zeros. */
static void gradients_not_wanted(void)
{
    for (int causal = 0; causal < 2; causal++) {
        const char *size = sizes[causal]; /* of 21, and of 32 with vectors of channels */
        problem     p = {21, 2, 5, causal, size, NULL}, none = {21, 0, 5, causal, size, NULL};
        result  both = run(&p), x = inputs(&p), coef = inputs(&p), empty = run(&none);
        apply("fd", &p, &x, "x");
        apply("fd", &p, &coef, "coef");
        CHECK(x.dcoef == NULL && distance(x.dx, both.dx) < TOLERANCE);
        CHECK(coef.dx == NULL && distance(coef.dcoef, both.dcoef) < TOLERANCE);
        CHECK(tl_tensor_len(empty.y) == 0 && dot(empty.dcoef, empty.dcoef) == 0);
        result *all[] = {&both, &x, &coef, &empty};
        for (int k = 0; k < 4; k++) result_free(all[k]);
    }
}

int main(void)
{
    (void)setenv("TOEPLAB_CACHE", "", 1);
    if (tl_ctx_new(2, &ctx) != TL_OK) return 1;
    int failed = run_tests((const test[]){
        {"equals the definition in float64", equals_the_definition},
        {"the same with every instruction set", equals_it_with_every_instruction_set},
        {"planted faults are seen", planted_faults_are_seen},
        {"the ends of a response are real", ends_are_real},
        {"adjoint identities", adjoint_identities},
        {"gradients that are not wanted", gradients_not_wanted},
        {0},
    });
    tl_ctx_free(ctx);
    return failed;
}

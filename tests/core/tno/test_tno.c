/* test_tno.c - every backend that takes lags against the definition (naive), and what is true of
** any operator: linear, causal, and of lags the response to an impulse. */
#include <stdlib.h>
#include <string.h>

#include "tensors.h"

#define TOLERANCE 2e-6 /* of the largest entry; float32 sums of up to 512 terms */

static tl_ctx *ctx;

typedef struct shape {
    int64_t n, b, d;
    int     causal;
} shape;

/* What an operator gives for one problem; each NULL until made. */
typedef struct result {
    tl_tensor *y, *dx, *dcoef, *dense;
} result;

static tl_tensor *random_x(const shape *s, uint64_t seed)
{
    return uniforms(ctx, 3, (int64_t[]){s->b, s->n, s->d}, -1, 1, seed);
}

static tl_tno *operator_of(const char *backend, const shape *s)
{
    tl_tno *tno = NULL;
    CHECK_STATUS(tl_tno_new(ctx, backend, s->n, s->d, s->causal, NULL, &tno), TL_OK);
    if (!tno) {
        printf("  %s: %s\n", backend, tl_errmsg(ctx));
        exit(1);
    }
    return tno;
}

/* As many as there are points. */
static tl_tensor *random_coef(tl_tno *tno, const shape *s, uint64_t seed)
{
    tl_tensor *points = NULL;
    CHECK_STATUS(tl_tno_points(tno, &points), TL_OK);
    int64_t dims[] = {tl_tensor_len(points), tl_tno_width(tno) * s->d};
    tl_tensor_free(points);
    return uniforms(ctx, 2, dims, -1, 1, seed);
}

/* The backend's own parameters, NULL after the last. */
static void random_params(tl_tno *tno, tl_tensor *params[8])
{
    int count = tl_tno_param_count(tno);
    for (int i = 0; i < 8; i++) {
        const char *name, *init;
        int         ndim = 0;
        int64_t     dims[TL_MAXDIMS];
        params[i] = NULL;
        if (i >= count) continue;
        CHECK_STATUS(tl_tno_param(tno, i, &name, &ndim, dims, &init), TL_OK);
        params[i] = uniforms(ctx, ndim, dims, -1, 1, 10 + (uint64_t)i);
    }
}

static void free_all(tl_tensor **list, int count)
{
    for (int k = 0; k < count; k++) tl_tensor_free(list[k]);
}

/* y, and through the tape the gradients of the sum of y dy. */
static result run(const char *backend, const shape *s)
{
    result     r = {0};
    tl_tno    *tno = operator_of(backend, s);
    tl_tensor *x = random_x(s, 1), *dy = random_x(s, 2), *coef = random_coef(tno, s, 3);
    tl_tensor *product = NULL, *loss = NULL, *params[8];
    random_params(tno, params);
    CHECK_STATUS(tl_set_requires_grad(x, 1), TL_OK);
    CHECK_STATUS(tl_set_requires_grad(coef, 1), TL_OK);
    CHECK_STATUS(tl_tno_apply(tno, coef, params, x, &r.y), TL_OK);
    CHECK_STATUS(tl_tno_dense(tno, coef, params, &r.dense), TL_OK);
    free_all(params, 8);
    tl_tno_free(tno); /* the tape keeps what it needs */
    CHECK_STATUS(tl_binary(TL_BINARY_MUL, r.y, dy, &product), TL_OK);
    CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, product, TL_ALL_AXES, 0, &loss), TL_OK);
    CHECK_STATUS(tl_backward(ctx, loss), TL_OK);
    r.dx = tl_tensor_retain(tl_grad(x));
    r.dcoef = tl_tensor_retain(tl_grad(coef));
    tl_tensor_free(loss);
    tl_tensor_free(product);
    tl_tensor_free(coef);
    tl_tensor_free(dy);
    tl_tensor_free(x);
    return r;
}

static void result_free(result *r)
{
    tl_tensor_free(r->y);
    tl_tensor_free(r->dx);
    tl_tensor_free(r->dcoef);
    tl_tensor_free(r->dense);
}

/* How many of the four outputs differ from want. */
static int differences(const result *got, const result *want)
{
    return (distance(got->y, want->y) > TOLERANCE) + (distance(got->dx, want->dx) > TOLERANCE) +
           (distance(got->dcoef, want->dcoef) > TOLERANCE) +
           (distance(got->dense, want->dense) > 0);
}

static int takes_lags(int i) /* whether backend i is one of ours that is to equal naive */
{
    shape   s = {4, 1, 1, 1};
    tl_tno *tno = operator_of(tl_backend_name(ctx, i), &s);
    int     lags = strcmp(tl_tno_domain(tno), "lag") == 0 && tl_tno_param_count(tno) == 0;
    tl_tno_free(tno);
    return lags;
}

/* ---- Against the definition ------------------------------------------------------------------ */

static int compare_all(const shape *s)
{
    int    compared = 0;
    result want = run("naive", s);
    for (int i = 0; i < tl_backend_count(ctx); i++) {
        const char *name = tl_backend_name(ctx, i);
        if (strcmp(name, "naive") == 0 || !takes_lags(i)) continue;
        result got = run(name, s);
        CHECK(differences(&got, &want) == 0);
        if (differences(&got, &want))
            printf("  %s n %lld b %lld d %lld %s: y %.2g dx %.2g dcoef %.2g dense %.2g\n", name,
                   (long long)s->n, (long long)s->b, (long long)s->d,
                   s->causal ? "causal" : "not causal", distance(got.y, want.y),
                   distance(got.dx, want.dx), distance(got.dcoef, want.dcoef),
                   distance(got.dense, want.dense));
        result_free(&got);
        compared++;
    }
    result_free(&want);
    return compared;
}

static void backends_equal_naive(void)
{
    static const int64_t lengths[] = {1, 2, 3, 5, 16, 31, 64, 97, 100, 257, 512};
    static const int64_t channels[] = {1, 3, 16, 33};
    int                  compared = 0;
    for (int n = 0; n < 11; n += STRIDE)
        for (int64_t b = 1; b <= 3; b++)
            for (int d = 0; d < 4; d++)
                for (int causal = 0; causal < 2; causal++) {
                    shape s = {lengths[n], b, channels[d], causal};
                    if (s.n * s.n * s.d * b > 3000000) continue; /* naive is slow */
                    compared += compare_all(&s);
                }
    CHECK(compared >= 400 / STRIDE / 2); /* matrix and fft at least */
}

/* More sequences than the matrix backend takes at once, and none at all. */
static void batches_of_any_size(void)
{
    CHECK(compare_all(&(shape){20, 67, 2, 1}) >= 2);
    CHECK(compare_all(&(shape){20, 0, 2, 0}) >= 2);
    result r = run("fft", &(shape){8, 0, 2, 1});
    CHECK(tl_tensor_len(r.y) == 0 && tl_tensor_len(r.dcoef) == 16);
    for (int64_t k = 0; k < tl_tensor_len(r.dcoef); k++) CHECK(tl_tensor_cf32(r.dcoef)[k] == 0);
    result_free(&r);
}

/* The comparison must see an error in a single entry of any output. */
static void planted_faults_are_seen(void)
{
    shape  s = {31, 2, 3, 0};
    result want = run("naive", &s), got = run("naive", &s);
    tl_tensor *outputs[] = {got.y, got.dx, got.dcoef, got.dense};
    CHECK(differences(&got, &want) == 0);
    for (int k = 0; k < 4; k++) {
        float *value = tl_tensor_f32(outputs[k]) + tl_tensor_len(outputs[k]) / 2, kept = *value;
        *value += 1e-3f;
        CHECK(differences(&got, &want) == 1);
        *value = NAN;
        CHECK(differences(&got, &want) == 1);
        *value = kept;
    }
    CHECK(differences(&got, &want) == 0);
    result_free(&want);
    result_free(&got);
}

/* ---- What is true of any Toeplitz operator --------------------------------------------------- */

static void linear(const char *backend, const shape *s)
{
    tl_tno    *tno = operator_of(backend, s);
    tl_tensor *x1 = random_x(s, 1), *x2 = random_x(s, 2), *coef = random_coef(tno, s, 3);
    tl_tensor *x3 = random_x(s, 4), *y1 = NULL, *y2 = NULL, *y3 = NULL, *params[8];
    random_params(tno, params);
    for (int64_t k = 0; k < tl_tensor_len(x3); k++)
        tl_tensor_f32(x3)[k] = 3 * tl_tensor_f32(x1)[k] - tl_tensor_f32(x2)[k];
    CHECK_STATUS(tl_tno_apply(tno, coef, params, x1, &y1), TL_OK);
    CHECK_STATUS(tl_tno_apply(tno, coef, params, x2, &y2), TL_OK);
    CHECK_STATUS(tl_tno_apply(tno, coef, params, x3, &y3), TL_OK);
    for (int64_t k = 0; k < tl_tensor_len(y1); k++)
        tl_tensor_f32(y1)[k] = 3 * tl_tensor_f32(y1)[k] - tl_tensor_f32(y2)[k];
    CHECK(distance(y3, y1) < 2 * TOLERANCE);
    free_all((tl_tensor *[]){x1, x2, x3, coef, y1, y2, y3}, 7);
    free_all(params, 8);
    tl_tno_free(tno);
}

/* An impulse at j gives column j of T: the coefficients, shifted. exact: without any rounding, so
** with true zeros above the diagonal of a causal T. */
static void impulses(const char *backend, const shape *s, int exact)
{
    tl_tno    *tno = operator_of(backend, s);
    tl_tensor *x = random_x(s, 1), *coef = random_coef(tno, s, 3), *y = NULL, *t = NULL;
    double     worst = 0;
    CHECK_STATUS(tl_tno_dense(tno, coef, NULL, &t), TL_OK);
    for (int64_t j = 0; j < s->n; j += s->n / 4 + 1) {
        CHECK_STATUS(tl_tensor_fill(x, 0), TL_OK);
        for (int64_t c = 0; c < s->d; c++) tl_tensor_f32(x)[j * s->d + c] = 1;
        CHECK_STATUS(tl_tno_apply(tno, coef, NULL, x, &y), TL_OK);
        for (int64_t i = 0; i < s->n; i++)
            for (int64_t c = 0; c < s->d; c++) {
                int64_t row = i - j + (s->causal ? 0 : s->n - 1);
                float   want = row < 0 ? 0 : tl_tensor_cf32(coef)[row * s->d + c];
                CHECK(tl_tensor_cf32(t)[(c * s->n + i) * s->n + j] == want);
                worst = worse(worst, fabs(tl_tensor_cf32(y)[i * s->d + c] - (double)want));
            }
        tl_tensor_free(y);
    }
    CHECK(worst <= (exact ? 0 : TOLERANCE));
    tl_tensor_free(x);
    tl_tensor_free(coef);
    tl_tensor_free(t);
    tl_tno_free(tno);
}

/* Later inputs do not reach earlier outputs, nor in the matrix. */
static void causal(const char *backend, const shape *s, int exact)
{
    tl_tno    *tno = operator_of(backend, s);
    tl_tensor *x = random_x(s, 1), *coef = random_coef(tno, s, 3), *before = NULL, *after = NULL;
    tl_tensor *t = NULL, *params[8];
    int64_t    cut = s->n / 2 * s->d;
    double     worst = 0, later = 0;
    random_params(tno, params);
    CHECK_STATUS(tl_tno_dense(tno, coef, params, &t), TL_OK);
    for (int64_t k = 0; k < tl_tensor_len(t); k++)
        if (k % s->n > k / s->n % s->n) CHECK(tl_tensor_cf32(t)[k] == 0);
    CHECK_STATUS(tl_tno_apply(tno, coef, params, x, &before), TL_OK);
    for (int64_t k = cut; k < s->n * s->d; k++) tl_tensor_f32(x)[k] += 1;
    CHECK_STATUS(tl_tno_apply(tno, coef, params, x, &after), TL_OK);
    for (int64_t k = 0; k < s->n * s->d; k++) {
        double change = fabs((double)tl_tensor_cf32(after)[k] - tl_tensor_cf32(before)[k]);
        double *side = k < cut ? &worst : &later;
        *side = worse(*side, change);
    }
    CHECK(worst <= (exact ? 0 : 20 * TOLERANCE)); /* entries of y are about 10 */
    CHECK(later > 0.1);
    free_all((tl_tensor *[]){x, coef, before, after, t}, 5);
    free_all(params, 8);
    tl_tno_free(tno);
}

static void properties_hold(void)
{
    static const shape shapes[] = {{1, 1, 2, 1},  {2, 1, 1, 0},  {17, 1, 3, 1}, {17, 1, 3, 0},
                                   {64, 1, 16, 1}, {97, 1, 2, 0}, {101, 1, 5, 1}};
    int checked = 0;
    for (int i = 0; i < tl_backend_count(ctx); i++) {
        const char *name = tl_backend_name(ctx, i);
        int         exact = !strstr("fft rac fd", name);
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            linear(name, &shapes[k]);
            if (takes_lags(i)) impulses(name, &shapes[k], exact);
            if (shapes[k].causal) causal(name, &shapes[k], exact);
            checked++;
        }
    }
    CHECK(checked >= 35);
}

/* ---- The host's part ------------------------------------------------------------------------- */

static void points_are_lags(void)
{
    tl_tno    *tno = operator_of("fft", &(shape){3, 1, 2, 0});
    tl_tensor *points = NULL;
    CHECK_STATUS(tl_tno_points(tno, &points), TL_OK);
    CHECK(tl_tensor_len(points) == 5);
    for (int k = 0; k < 5; k++) CHECK(tl_tensor_cf32(points)[k] == (float)(k - 2));
    CHECK(tl_tno_width(tno) == 1);
    CHECK(strcmp(tl_tno_domain(tno), "lag") == 0);
    tl_tensor_free(points);
    tl_tno_free(tno);
}

/* tl_tno_gradients gives what the tape gives, with a cache or without. */
static void gradients_without_a_tape(void)
{
    static const char *const names[] = {"naive", "fft", "rac", "matrix", "ski", "fd"};
    const shape s = {.n = 33, .b = 3, .d = 5, .causal = 0};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        tl_tno    *tno = operator_of(names[k], &s);
        tl_tensor *params[8], *dparams[8] = {0}, *cache = NULL, *y[2] = {0};
        tl_tensor *coef = random_coef(tno, &s, 1), *x = random_x(&s, 2), *dy = random_x(&s, 3);
        tl_tensor *dcoef = NULL, *dx = NULL, *none = NULL;
        random_params(tno, params);
        CHECK_STATUS(tl_tno_apply_cached(tno, coef, params, x, &cache, &y[0]), TL_OK);
        CHECK_STATUS(tl_tno_gradients(tno, coef, params, x, cache, dy, &dcoef, dparams, &dx),
                     TL_OK);
        CHECK_STATUS(tl_tno_gradients(tno, coef, params, x, NULL, dy, &none, NULL, NULL), TL_OK);
        CHECK(distance(none, dcoef) < 1e-6);
        CHECK_STATUS(tl_tno_gradients(tno, coef, params, x, NULL, coef, NULL, NULL, &none),
                     TL_ESHAPE);
        CHECK(tl_tape_len(ctx) == 0);
        CHECK_STATUS(tl_set_requires_grad(coef, 1), TL_OK);
        CHECK_STATUS(tl_set_requires_grad(x, 1), TL_OK);
        for (int i = 0; params[i]; i++) CHECK_STATUS(tl_set_requires_grad(params[i], 1), TL_OK);
        CHECK_STATUS(tl_tno_apply(tno, coef, params, x, &y[1]), TL_OK);
        CHECK_STATUS(tl_backward_from(ctx, y[1], dy), TL_OK);
        CHECK(distance(tl_grad(coef), dcoef) < 1e-6);
        CHECK(distance(tl_grad(x), dx) < 1e-6);
        for (int i = 0; params[i]; i++) CHECK(distance(tl_grad(params[i]), dparams[i]) < 1e-6);
        free_all(params, 8);
        free_all(dparams, 8);
        free_all((tl_tensor *[]){cache, y[0], y[1], coef, x, dy, dcoef, dx, none}, 9);
        tl_tno_free(tno);
    }
}

static void wrong_shapes_are_refused(void)
{
    shape      s = {4, 2, 3, 1};
    tl_tno    *tno = operator_of("naive", &s);
    tl_tensor *x = random_x(&s, 1), *coef = random_coef(tno, &s, 2), *y = NULL;
    CHECK_STATUS(tl_tno_apply(tno, x, NULL, x, &y), TL_ESHAPE);
    CHECK(strcmp(tl_errmsg(ctx), "tno: coef is [2,4,3], backend 'naive' needs [4,3]") == 0);
    CHECK_STATUS(tl_tno_apply(tno, coef, NULL, coef, &y), TL_ESHAPE);
    CHECK(strcmp(tl_errmsg(ctx), "tno: x is [4,3], the plan is for [b,4,3]") == 0);
    CHECK_STATUS(tl_tno_dense(tno, x, NULL, &y), TL_ESHAPE);
    CHECK(y == NULL);
    tl_tensor    *ids = NULL;
    const int64_t dims[] = {2, 4, 3};
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 3, dims, &ids), TL_OK);
    CHECK_STATUS(tl_tno_gradients(tno, coef, NULL, x, NULL, ids, NULL, NULL, &y), TL_ETYPE);
    tl_tensor_free(ids);
    tl_tensor_free(x);
    tl_tensor_free(coef);
    tl_tno_free(tno);
}

/* A cache of the right size that begins elsewhere than the one a call made, as a view may. */
static void a_cache_that_is_not_aligned_is_refused(void)
{
    static const char *const names[] = {"rac", "fd"};
    const shape s = {.n = 64, .b = 3, .d = 5, .causal = 1};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        tl_tno    *tno = operator_of(names[k], &s);
        tl_tensor *coef = random_coef(tno, &s, 1), *x = random_x(&s, 2), *cache = NULL;
        tl_tensor *longer = NULL, *part = NULL, *y = NULL;
        CHECK_STATUS(tl_tno_apply_cached(tno, coef, NULL, x, &cache, &y), TL_OK);
        int64_t count = cache ? tl_tensor_len(cache) : 0, more = count + 1;
        tl_tensor_free(y);
        CHECK(count > 0);
        CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 1, &more, &longer), TL_OK);
        CHECK_STATUS(tl_tensor_view(longer, 1, 1, &count, &part), TL_OK);
        CHECK_STATUS(tl_tno_apply_cached(tno, coef, NULL, x, &part, &y), TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), "the cache does not begin at a multiple of 64 bytes") != NULL);
        free_all((tl_tensor *[]){coef, x, cache, longer, part}, 5);
        tl_tno_free(tno);
    }
}

static void threads_do_not_change_results(void)
{
    static const char *const names[] = {"naive", "matrix", "fft", "rac", "ski", "fd"};
    tl_ctx *kept = ctx;
    for (int k = 0; k < 12; k++) {
        shape  s = {50, 2, 70, k % 2};
        result r[2];
        for (int t = 0; t < 2; t++) {
            CHECK_STATUS(tl_ctx_new(t ? 5 : 1, &ctx), TL_OK);
            tl_tno *tno = operator_of(names[k / 2], &s);
            r[t] = run(names[k / 2], &s);
            tl_ctx_free(ctx);
            tl_tno_free(tno);
        }
        CHECK(distance(r[0].y, r[1].y) == 0);
        CHECK(distance(r[0].dx, r[1].dx) == 0);
        CHECK(distance(r[0].dcoef, r[1].dcoef) == 0);
        result_free(&r[0]);
        result_free(&r[1]);
    }
    ctx = kept;
}

int main(void)
{
    (void)setenv("TOEPLAB_CACHE", "", 1);
    if (tl_ctx_new(2, &ctx) != TL_OK) return 1;
    int failed = run_tests((const test[]){
        {"every backend equals naive", backends_equal_naive},
        {"a batch may have any size", batches_of_any_size},
        {"planted faults are seen", planted_faults_are_seen},
        {"linear, shifted, causal", properties_hold},
        {"points are lags", points_are_lags},
        {"a cache that is not aligned is refused", a_cache_that_is_not_aligned_is_refused},
        {"gradients without a tape equal gradients by the tape", gradients_without_a_tape},
        {"wrong shapes are refused", wrong_shapes_are_refused},
        {"threads do not change results", threads_do_not_change_results},
        {0},
    });
    tl_ctx_free(ctx);
    return failed;
}

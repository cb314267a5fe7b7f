/* test_ski.c - the backend ski against its definition, and what is true of it whatever the
** coefficients. */
#include "base/context.h"
#include "ski.h"

#define TOLERANCE 2e-6 /* of the largest entry, or of 1: the size of what is summed up */

static tl_ctx *ctx;

/* ---- Against the definition ------------------------------------------------------------------ */

/* As distance, but what cancels to almost nothing is not divided by that. */
static double apart(const tl_tensor *a, const tl_tensor *b)
{
    double largest = 0;
    for (int64_t k = 0; k < tl_tensor_len(b); k++)
        largest = fmax(largest, fabs((double)tl_tensor_cf32(b)[k]));
    return distance(a, b) * (largest > 0 && largest < 1 ? largest : 1);
}

static void compare(const shape *s)
{
    inputs in = inputs_of(ctx, s);
    result want = definition(ctx, s, &in), got = apply(ctx, s, &in);
    double e[] = {apart(got.y, want.y), apart(got.dx, want.dx),
                  apart(got.dcoef, want.dcoef), apart(got.dtaps, want.dtaps),
                  apart(got.dense, want.dense)};
    double worst = 0;
    for (int k = 0; k < 5; k++) worst = worse(worst, e[k]);
    CHECK(worst <= TOLERANCE);
    if (!(worst <= TOLERANCE))
        printf("  n %lld b %lld d %lld r %lld m %lld causal %d cubic %d zero %d published %d: "
               "y %.2g dx %.2g dcoef %.2g dtaps %.2g dense %.2g\n",
               (long long)s->n, (long long)s->b, (long long)s->d, (long long)s->r, (long long)s->m,
               s->causal, s->cubic, (int)s->zero, s->published, e[0], e[1], e[2], e[3], e[4]);
    result_free(&want);
    result_free(&got);
    inputs_free(&in);
}

/* Every variant at lengths below, at and above the number of inducing points, one token included,
** and at more than a block of tokens. */
static void equals_the_definition(void)
{
    static const int64_t lengths[] = {1, 2, 3, 7, 16, 31, 64, 65, 150};
    static const int64_t ranks[] = {2, 3, 4, 5, 16, 40}, taps[] = {0, 1, 2, 5, 32};
    for (int n = 0; n < 9; n++)
        for (int r = 0; r < 6; r++)
            for (int variant = 0; variant < 24; variant += STRIDE) {
                int   form = variant % 4; /* two-sided, published, causal twice */
                shape s = {lengths[n], 1 + (n + r) % 3, 1 + (variant + 5 * r) % 7, ranks[r],
                           taps[(n + r + variant) % 5], form >= 2, form != 1 && variant / 4 % 2,
                           form != 1 && (variant + n) % 3 == 0, (zero)(variant / 8), NULL,
                           form == 1, form == 3, (variant + r) % 2 ? 0.999 : 0.7};
                compare(&s);
            }
}

static void parts_alone(void)
{
    for (int causal = 0; causal < 2; causal++) {
        compare(&(shape){50, 2, 3, 8, 5, causal, 0, 0, PLUS, "low-rank", 0, 0, 0});
        compare(&(shape){50, 2, 3, 8, 5, causal, 0, 0, PLUS, "sparse", 0, 0, 0});
        compare(&(shape){5, 2, 3, 8, 64, causal, 0, 0, PLUS, "sparse", 0, 0, 0});
    }
}

/* Channels that fill no group, one, more than one, more than a tile; and no sequence at all. */
static void any_number_of_channels(void)
{
    static const int64_t channels[] = {1, 15, 16, 17, 64, 65, 200};
    for (int c = 0; c < 7; c++)
        for (int causal = 0; causal < 2; causal++) {
            compare(&(shape){70, 2, channels[c], 9, 4, causal, c % 2, 0, PLUS, NULL, 0, 0, 0});
            compare(&(shape){70, 0, channels[c], 9, 4, causal, 0, 0, MEAN, NULL, 0, 0, 0});
        }
}

/* Where A is applied by Fourier transforms. */
static void many_inducing_points(void)
{
    compare(&(shape){60, 2, 3, 257, 4, 0, 0, 0, PLUS, NULL, 0, 0, 0.999});
    compare(&(shape){50, 1, 18, 300, 3, 0, 1, 1, MEAN, NULL, 0, 0, 0.999});
}

static void planted_faults_are_seen(void)
{
    shape  s = {31, 2, 3, 6, 5, 0, 0, 0, PLUS, NULL, 0, 0, 0};
    inputs in = inputs_of(ctx, &s);
    result want = definition(ctx, &s, &in), got = apply(ctx, &s, &in);
    s.cubic = 1;
    result other = definition(ctx, &s, &in);
    CHECK(distance(got.y, want.y) <= TOLERANCE);
    CHECK(distance(other.y, want.y) > 1e-3);
    tl_tensor_f32(want.dcoef)[7] += 1e-3f;
    CHECK(distance(got.dcoef, want.dcoef) > TOLERANCE);
    result_free(&want);
    result_free(&got);
    result_free(&other);
    inputs_free(&in);
}

/* ---- Properties ------------------------------------------------------------------------------ */

/* With A full of ones, T_ij is the sum of row i of W times the sum of row j. */
static void rows_of_w_sum_to_one(void)
{
    static const int64_t ranks[] = {2, 3, 4, 7, 64};
    for (int r = 0; r < 5; r++)
        for (int cubic = 0; cubic < 2; cubic++)
            for (int span_n = 0; span_n < 2; span_n++) {
                shape      s = {90, 1, 1, ranks[r], 0, 0, cubic, span_n, PLUS, NULL, 0, 0, 0};
                inputs     in = inputs_of(ctx, &s);
                tl_tno    *tno = operator_of(ctx, &s);
                tl_tensor *t = NULL;
                CHECK_STATUS(tl_tensor_fill(in.coef, 1), TL_OK);
                CHECK_STATUS(tl_tno_dense(tno, in.coef, &in.taps, &t), TL_OK);
                for (int64_t k = 0; k < tl_tensor_len(t); k++)
                    CHECK_NEAR((double)tl_tensor_cf32(t)[k], 1, 5e-7);
                tl_tensor_free(t);
                tl_tno_free(tno);
                inputs_free(&in);
            }
}

/* With as many inducing points as tokens W is the identity: T_ij is the coefficient of lag i-j. */
static void exact_where_every_token_is_an_inducing_point(void)
{
    for (int64_t n = 2; n < 70; n += 13)
        for (int cubic = 0; cubic < 2; cubic++) {
            shape        s = {n, 1, 2, n, 0, 0, cubic, 0, PLUS, NULL, 0, 0, 0};
            inputs       in = inputs_of(ctx, &s);
            tl_tno      *tno = operator_of(ctx, &s);
            tl_tensor   *t = NULL;
            const float *coef = tl_tensor_cf32(in.coef);
            CHECK_STATUS(tl_tno_dense(tno, in.coef, &in.taps, &t), TL_OK);
            for (int64_t c = 0; c < 2; c++)
                for (int64_t i = 0; i < n; i++)
                    for (int64_t j = 0; j < n; j++)
                        CHECK(tl_tensor_cf32(t)[(c * n + i) * n + j] ==
                              coef[(i - j + n - 1) * 2 + c]);
            tl_tensor_free(t);
            tl_tno_free(tno);
            inputs_free(&in);
            compare(&s);
        }
}

/* Later inputs change nothing in earlier outputs, not even by rounding. */
static void causal_to_the_last_bit(void)
{
    for (int variant = 0; variant < 4; variant++) {
        shape      s = {150, 1, 3, 9, 8, 1, variant % 2, 0, PLUS, NULL, 0, variant / 2, 0};
        inputs     in = inputs_of(ctx, &s);
        tl_tno    *tno = operator_of(ctx, &s);
        tl_tensor *before = NULL, *after = NULL;
        CHECK_STATUS(tl_tno_apply(tno, in.coef, &in.taps, in.x, &before), TL_OK);
        for (int64_t cut = 1; cut < s.n; cut += 37) {
            int64_t at = cut * s.d, size = s.n * s.d;
            for (int64_t k = at; k < size; k++) tl_tensor_f32(in.x)[k] += 1;
            CHECK_STATUS(tl_tno_apply(tno, in.coef, &in.taps, in.x, &after), TL_OK);
            const float *p = tl_tensor_cf32(before), *q = tl_tensor_cf32(after);
            CHECK(memcmp(p, q, (size_t)at * sizeof *p) == 0);
            CHECK(memcmp(p + at, q + at, (size_t)(size - at) * sizeof *p) != 0);
            for (int64_t k = at; k < size; k++) tl_tensor_f32(in.x)[k] -= 1;
            tl_tensor_free(after);
            tl_tensor_free(before);
            CHECK_STATUS(tl_tno_apply(tno, in.coef, &in.taps, in.x, &before), TL_OK);
        }
        tl_tensor_free(before);
        tl_tno_free(tno);
        inputs_free(&in);
    }
}

static double dot(const tl_tensor *a, const tl_tensor *b)
{
    double sum = 0;
    for (int64_t k = 0; k < tl_tensor_len(a); k++)
        sum += (double)tl_tensor_cf32(a)[k] * (double)tl_tensor_cf32(b)[k];
    return sum;
}

/* <T x, dy> = <x, T' dy>; and T is linear in coef and taps together, so the same number is
** <coef, dcoef> + <taps, dtaps>. At lengths where nobody would write T out. */
static void adjoints_agree(void)
{
    for (int variant = 0; variant < 6; variant++) {
        shape  s = {3000, 2, 20, variant == 5 ? 400 : 64, 32, variant % 2 && variant < 5,
                    variant / 2 == 1, 0, variant == 2 ? MEAN : PLUS, NULL, 0, variant == 3, 0.999};
        inputs in = inputs_of(ctx, &s);
        tl_tensor *wanted[] = {in.x, in.coef, in.taps}, *y = NULL, *product = NULL, *loss = NULL;
        tl_tno    *tno = operator_of(ctx, &s);
        for (int k = 0; k < 3; k++) CHECK_STATUS(tl_set_requires_grad(wanted[k], 1), TL_OK);
        CHECK_STATUS(tl_tno_apply(tno, in.coef, &in.taps, in.x, &y), TL_OK);
        CHECK_STATUS(tl_binary(TL_BINARY_MUL, y, in.dy, &product), TL_OK);
        CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, product, TL_ALL_AXES, 0, &loss), TL_OK);
        CHECK_STATUS(tl_backward(ctx, loss), TL_OK);
        double left = dot(y, in.dy), size = sqrt(dot(y, y) * dot(in.dy, in.dy));
        double by_kernel = dot(in.coef, tl_grad(in.coef)) + dot(in.taps, tl_grad(in.taps));
        CHECK_NEAR(left, dot(in.x, tl_grad(in.x)), 1e-6 * size);
        CHECK_NEAR(left, by_kernel, 1e-6 * size);
        tl_tensor_free(loss);
        tl_tensor_free(product);
        tl_tensor_free(y);
        tl_tno_free(tno);
        inputs_free(&in);
    }
}

static void threads_do_not_change_results(void)
{
    tl_ctx *kept = ctx;
    for (int variant = 0; variant < 4; variant++) {
        shape  s = {200, 3, 130, variant == 3 ? 300 : 12, 5, variant == 1, variant == 2, 0, MEAN,
                    NULL, 0, 0, 0.99};
        result r[3];
        for (int t = 0; t < 3; t++) {
            CHECK_STATUS(tl_ctx_new(1 + 2 * t, &ctx), TL_OK);
            inputs in = inputs_of(ctx, &s);
            r[t] = apply(ctx, &s, &in);
            inputs_free(&in);
            tl_ctx_free(ctx);
        }
        for (int t = 1; t < 3; t++) {
            CHECK(distance(r[t].y, r[0].y) == 0);
            CHECK(distance(r[t].dx, r[0].dx) == 0);
            CHECK(distance(r[t].dcoef, r[0].dcoef) == 0);
            CHECK(distance(r[t].dtaps, r[0].dtaps) == 0);
        }
        for (int t = 0; t < 3; t++) result_free(&r[t]);
    }
    ctx = kept;
}

/* What is left of the published W: nothing beyond the first tokens. */
static void the_published_low_rank_is_dead(void)
{
    shape      s = {512, 1, 1, 32, 0, 0, 0, 0, PLUS, NULL, 1, 0, 0.99};
    inputs     in = inputs_of(ctx, &s);
    tl_tno    *tno = operator_of(ctx, &s);
    tl_tensor *t = NULL;
    int        alive = 0;
    CHECK_STATUS(tl_tno_dense(tno, in.coef, &in.taps, &t), TL_OK);
    const float *p = tl_tensor_cf32(t);
    for (int64_t i = 0; i < s.n; i++) {
        double most = 0;
        for (int64_t j = 0; j < s.n; j++) most = fmax(most, fabs((double)p[i * s.n + j]));
        alive += most > 1e-3;
    }
    CHECK(p[0] == tl_tensor_cf32(in.coef)[31]); /* token 0 meets itself: k(0) */
    CHECK(alive >= 1 && alive <= 2);
    tl_tensor_free(t);
    tl_tno_free(tno);
    inputs_free(&in);
}

/* ---- What it asks and says ------------------------------------------------------------------- */

static void points_are_warped_lags(void)
{
    static const double want[3][8] = {{-0.25, -0.5, 1, 0.5, 0.25}, {-0.25, -0.5, 0, 0.5, 0.25},
                                      {-0.25, -0.5, -1, 1, 0.5, 0.25}};
    for (int causal = 0; causal < 2; causal++)
        for (int z = 0; z < 3; z++) {
            shape      s = {3, 1, 1, 3, 0, causal, 0, 0, (zero)z, NULL, 0, 0, 0.5};
            tl_tno    *tno = operator_of(ctx, &s);
            tl_tensor *points = NULL;
            CHECK_STATUS(tl_tno_points(tno, &points), TL_OK);
            CHECK(tl_tensor_len(points) == (causal ? 3 : 5) + (z == MEAN));
            for (int64_t k = 0; k < tl_tensor_len(points); k++)
                CHECK_NEAR((double)tl_tensor_cf32(points)[k], want[z][k + 2 * causal], 1e-7);
            tl_tensor_free(points);
            tl_tno_free(tno);
        }
}

static void refuse(int causal, const char *a, const char *b, tl_status want, const char *reason)
{
    tl_tno     *tno = NULL;
    const char *options[] = {a, b, NULL};
    CHECK_STATUS(tl_tno_new(ctx, "ski", 8, 2, causal, options, &tno), want);
    CHECK(strstr(tl_errmsg(ctx), reason) != NULL);
    CHECK(tno == NULL);
}

static void nonsense_is_refused(void)
{
    refuse(0, "lambda=0", NULL, TL_EBACKEND, "lambda");
    refuse(0, "lambda=1.5", NULL, TL_EINVAL, "0..1");
    refuse(0, "inducing=1", NULL, TL_EINVAL, "inducing");
    refuse(0, "inducing=99999999", NULL, TL_EBACKEND, "16777216");
    refuse(0, "taps=-1", NULL, TL_EINVAL, "taps");
    refuse(0, "taps=99999999", NULL, TL_EBACKEND, "16777216");
    refuse(0, "parts=sparse", "taps=0", TL_EBACKEND, "no terms");
    refuse(0, "parts=dense", NULL, TL_EINVAL, "low-rank");
    refuse(1, "as_published=1", NULL, TL_EBACKEND, "no causal");
    refuse(0, "as_published=1", "interpolation=cubic", TL_EBACKEND, "linearly");
}

static const tl_transforms *no_transforms(const tl_host *h)
{
    (void)h;
    return NULL;
}

/* Without them it would do r^2 products per channel, in silence. */
static void many_inducing_points_need_transforms(void)
{
    const tl_transforms *(*kept)(const tl_host *h) = ctx->host.transforms;
    tl_tno *tno = NULL;
    ctx->host.transforms = no_transforms;
    refuse(0, "inducing=257", NULL, TL_EBACKEND, "'fft' does");
    CHECK_STATUS(tl_tno_new(ctx, "ski", 8, 2, 1, (const char *[]){"inducing=257", NULL}, &tno),
                 TL_OK); /* causal: there they are not used */
    tl_tno_free(tno);
    ctx->host.transforms = kept;
}

static const char *warning(tl_tno **out_tno, int64_t n, const char *option)
{
    const char *options[] = {option, NULL};
    CHECK_STATUS(tl_tno_new(ctx, "ski", n, 2, 0, options, out_tno), TL_OK);
    return tl_tno_warning(*out_tno);
}

/* The published lambda 0.6 of the task AAN, at its length; and what the warning says is enough. */
static void a_small_lambda_is_warned_of(void)
{
    tl_tno     *tno = NULL;
    char        safe[64] = "lambda=";
    const char *text = warning(&tno, 4000, "lambda=0.6"), *told;
    CHECK(text && strstr(text, "lambda 0.6") && strstr(text, "h = 63.476"));
    told = text ? strstr(text, "exp(-1/h) = ") : NULL;
    CHECK(told != NULL);
    if (told) (void)snprintf(safe + 7, sizeof safe - 7, "%.40s", told + 12);
    tl_tno_free(tno);
    safe[7 + strspn(safe + 7, "0123456789.")] = 0;
    CHECK(warning(&tno, 4000, safe) == NULL);
    tl_tno_free(tno);
    CHECK(warning(&tno, 4096, "lambda=0.98") != NULL);
    tl_tno_free(tno);
    CHECK(warning(&tno, 4096, "lambda=0.99") == NULL);
    tl_tno_free(tno);
    CHECK(warning(&tno, 1, "lambda=0.01") == NULL);
    tl_tno_free(tno);
}

int main(void)
{
    (void)setenv("TOEPLAB_CACHE", "", 1);
    if (tl_ctx_new(2, &ctx) != TL_OK) return 1;
    int failed = run_tests((const test[]){
        {"equals the definition", equals_the_definition},
        {"either part alone", parts_alone},
        {"any number of channels", any_number_of_channels},
        {"many inducing points", many_inducing_points},
        {"planted faults are seen", planted_faults_are_seen},
        {"rows of W sum to one", rows_of_w_sum_to_one},
        {"exact where every token is an inducing point",
         exact_where_every_token_is_an_inducing_point},
        {"causal to the last bit", causal_to_the_last_bit},
        {"adjoints agree", adjoints_agree},
        {"threads do not change results", threads_do_not_change_results},
        {"the published low rank is dead", the_published_low_rank_is_dead},
        {"points are warped lags", points_are_warped_lags},
        {"nonsense is refused", nonsense_is_refused},
        {"many inducing points need transforms", many_inducing_points_need_transforms},
        {"a small lambda is warned of", a_small_lambda_is_warned_of},
        {0},
    });
    tl_ctx_free(ctx);
    return failed;
}

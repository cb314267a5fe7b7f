/* test_fd_kernel.c - the kernels of the frequency-domain backend: what is true of them, and fft
** with the same one; its frequencies, and what it refuses. */
#include "engine/plugin.h"
#include "fd.h"

/* ---- Frequencies ----------------------------------------------------------------------------- */

static void points_are_even_frequencies(void)
{
    static const int64_t lengths[] = {1, 3, 11, 16, 17, 97};
    static const int64_t halves[3][6] = {
        {1, 3, 11, 16, 17, 97}, {1, 4, 16, 16, 32, 128}, {1, 3, 12, 16, 18, 98}};
    for (int s = 0; s < 3; s++)
        for (int i = 0; i < 6; i++) {
            tl_tensor *points = NULL;
            tl_tno    *tno = operator_of("fd", &(problem){lengths[i], 1, 2, i % 2, sizes[s], NULL});
            int64_t    half = halves[s][i];
            CHECK(strcmp(tl_tno_domain(tno), "frequency") == 0);
            CHECK(tl_tno_width(tno) == (i % 2 ? 1 : 2));
            CHECK(tl_tno_param_count(tno) == 0 && tl_tno_warning(tno) == NULL);
            CHECK_STATUS(tl_tno_points(tno, &points), TL_OK);
            CHECK(tl_tensor_len(points) == half + 1);
            for (int64_t m = 0; m < tl_tensor_len(points); m++)
                CHECK(tl_tensor_cf32(points)[m] == (float)(PI * (double)m / (double)half));
            tl_tensor_free(points);
            tl_tno_free(tno);
        }
}

/* ---- Kernels --------------------------------------------------------------------------------- */

/* A random kernel of p as time-domain coefficients in t, and as the response to it in r->coef. */
static void same_kernel(const problem *p, const result *r, tl_tensor **out_t)
{
    int64_t    n = p->n, d = p->d, size = 2 * r->half, zero = p->causal ? 0 : n - 1;
    tl_tensor *t = uniforms(ctx, 2, (int64_t[]){zero + n, d}, -1, 1, 7);
    tl_tensor *whole = zeros(ctx, 2, (int64_t[]){size, d}), *spectrum = NULL;
    for (int64_t k = -zero; k < n; k++)
        for (int64_t c = 0; c < d; c++) {
            float value = tl_tensor_cf32(t)[(zero + k) * d + c];
            float half = p->causal && k > 0 ? value / 2 : value;
            tl_tensor_f32(whole)[(k + size) % size * d + c] = half;
            if (p->causal) tl_tensor_f32(whole)[(size - k) % size * d + c] = half;
        }
    CHECK_STATUS(tl_rfft(whole, 0, &spectrum), TL_OK);
    for (int64_t m = 0; m <= r->half; m++)
        for (int64_t c = 0; c < d; c++) {
            const float *bin = tl_tensor_cf32(spectrum) + (m * d + c) * 2;
            float       *coef = tl_tensor_f32(r->coef) + m * (p->causal ? 1 : 2) * d + c;
            coef[0] = bin[0];
            if (!p->causal) coef[d] = bin[1];
        }
    tl_tensor_free(spectrum);
    tl_tensor_free(whole);
    *out_t = t;
}

static void equals_fft(void)
{
    static const int64_t lengths[] = {1, 2, 5, 48, 97, 300, 512, 1000, 1536, 2048};
    for (int i = 0; i < 10; i++)
        for (int k = 0; k < 6; k++) {
            problem p = {lengths[i], 2, lengths[i] < 1000 ? 17 : 1, k % 2, sizes[k / 2], NULL};
            result  r = inputs(&p), s = {0};
            same_kernel(&p, &r, &s.coef);
            s.x = random_x(&p, 1);
            s.dy = random_x(&p, 2);
            apply("fd", &p, &r, "coef x");
            apply("fft", &p, &s, "coef x");
            CHECK(distance(r.y, s.y) < TOLERANCE);
            CHECK(distance(r.dx, s.dx) < TOLERANCE);
            CHECK(distance(r.dense, s.dense) < TOLERANCE);
            result_free(&r);
            result_free(&s);
        }
}

/* t_0 = r_0 and t_k = 2 r_k with r the inverse transform of the response; nothing looks ahead: not
** at all in dense, to rounding in a product. */
static void causal_kernels(void)
{
    for (int i = 0; i < 3; i++) {
        problem    p = {29, 1, 4, 1, sizes[i], NULL};
        int64_t    n = p.n, d = p.d;
        result     r = inputs(&p);
        tl_tensor *bins = zeros(ctx, 3, (int64_t[]){r.half + 1, d, 2}), *even = NULL;
        for (int64_t k = 0; k < (r.half + 1) * d; k++)
            tl_tensor_f32(bins)[2 * k] = tl_tensor_cf32(r.coef)[k];
        CHECK_STATUS(tl_irfft(bins, 0, 2 * r.half, &even), TL_OK);
        CHECK_STATUS(tl_tensor_fill(r.x, 0), TL_OK);
        for (int64_t c = 0; c < d; c++) tl_tensor_f32(r.x)[n / 2 * d + c] = 1;
        apply("fd", &p, &r, "coef x");
        for (int64_t row = 0; row < n; row++)
            for (int64_t c = 0; c < d; c++) {
                int64_t k = row - n / 2;
                float   half = k < 0 ? 0 : tl_tensor_cf32(even)[k * d + c];
                CHECK_NEAR(tl_tensor_cf32(r.y)[row * d + c], k > 0 ? 2 * half : half, 2e-7);
                for (int64_t j = row + 1; j < n; j++)
                    CHECK(tl_tensor_cf32(r.dense)[(c * n + row) * n + j] == 0);
            }
        tl_tensor_free(even);
        tl_tensor_free(bins);
        result_free(&r);
    }
}

/* ---- The host's part ------------------------------------------------------------------------- */

static void threads_do_not_change_results(void)
{
    tl_ctx *kept = ctx;
    for (int k = 0; k < 4; k++) {
        problem p = {k < 2 ? 50 : 64, 2, 70, k % 2, sizes[0], NULL};
        result  r[2];
        for (int t = 0; t < 2; t++) {
            CHECK_STATUS(tl_ctx_new(t ? 5 : 1, &ctx), TL_OK);
            r[t] = run(&p);
            tl_ctx_free(ctx);
        }
        CHECK(distance(r[0].y, r[1].y) == 0 && distance(r[0].dx, r[1].dx) == 0);
        CHECK(distance(r[0].dcoef, r[1].dcoef) == 0);
        result_free(&r[0]);
        result_free(&r[1]);
    }
    ctx = kept;
}

/* Memory that is used again is of NaNs: what nobody writes, nobody reads. */
static void soil(void)
{
    int64_t    size = 1 << 20;
    tl_tensor *dirt = zeros(ctx, 1, &size);
    CHECK_STATUS(tl_tensor_fill(dirt, NAN), TL_OK);
    tl_tensor_free(dirt);
}

/* What was kept takes the place of the coefficients, forward and backward; dx by itself may round
** otherwise than beside dcoef. */
static void what_is_kept_serves(void)
{
    for (int causal = 0; causal < 2; causal++) {
        problem    p = {64, 2, 19, causal, sizes[0], NULL};
        result     r = run(&p);
        soil();
        tl_tno    *tno = operator_of("fd", &p);
        tl_tensor *kept = NULL, *y = NULL, *product = NULL, *loss = NULL, *x = random_x(&p, 1);
        CHECK_STATUS(tl_set_requires_grad(r.coef, 0), TL_OK);
        CHECK_STATUS(tl_tno_apply_cached(tno, r.coef, NULL, x, &kept, &y), TL_OK);
        CHECK(kept != NULL && distance(y, r.y) == 0);
        tl_tensor_free(y);
        CHECK_STATUS(tl_tensor_fill(r.coef, 0), TL_OK);
        CHECK_STATUS(tl_set_requires_grad(x, 1), TL_OK);
        CHECK_STATUS(tl_tno_apply_cached(tno, r.coef, NULL, x, &kept, &y), TL_OK);
        CHECK_STATUS(tl_binary(TL_BINARY_MUL, y, r.dy, &product), TL_OK);
        CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, product, TL_ALL_AXES, 0, &loss), TL_OK);
        CHECK_STATUS(tl_backward(ctx, loss), TL_OK);
        CHECK(distance(y, r.y) == 0 && distance(tl_grad(x), r.dx) < TOLERANCE);
        tl_tensor *all[] = {kept, y, product, loss, x};
        for (int k = 0; k < 5; k++) tl_tensor_free(all[k]);
        tl_tno_free(tno);
        result_free(&r);
    }
}

/* Without a plugin that transforms there is no plan, and the message says what is missing. */
static void transforms_are_needed(void)
{
    tl_tno     *tno = NULL;
    tl_plugin **link = &ctx->plugins, *fft;
    while (*link && !(*link)->entry->transforms) link = &(*link)->next;
    CHECK((fft = *link) != NULL);
    *link = fft->next;
    CHECK_STATUS(tl_tno_new(ctx, "fd", 4, 1, 1, NULL, &tno), TL_EBACKEND);
    CHECK(strstr(tl_errmsg(ctx), "provides Fourier transforms; 'fft' does") != NULL);
    *link = fft;
    CHECK(tno == NULL);
}

static void wrong_problems_are_refused(void)
{
    tl_tno *tno = NULL;
    CHECK_STATUS(tl_tno_new(ctx, "fd", 1LL << 40, 1, 1, NULL, &tno), TL_EBACKEND);
    CHECK(strstr(tl_errmsg(ctx), "268435456") != NULL);
    CHECK_STATUS(tl_tno_new(ctx, "fd", 8, 1, 1, (const char *const[]){"size=3", NULL}, &tno),
                 TL_EINVAL);
    CHECK_STATUS(tl_tno_new(ctx, "fd", 8, 1, 1, (const char *const[]){"isa=sse9", NULL}, &tno),
                 TL_EINVAL);
    CHECK(tno == NULL);
}

int main(void)
{
    (void)setenv("TOEPLAB_CACHE", "", 1);
    if (tl_ctx_new(2, &ctx) != TL_OK) return 1;
    int failed = run_tests((const test[]){
        {"points are even frequencies", points_are_even_frequencies},
        {"equals fft given the same kernel", equals_fft},
        {"causal kernels", causal_kernels},
        {"threads do not change results", threads_do_not_change_results},
        {"what is kept serves", what_is_kept_serves},
        {"transforms are needed", transforms_are_needed},
        {"wrong problems are refused", wrong_problems_are_refused},
        {0},
    });
    tl_ctx_free(ctx);
    return failed;
}

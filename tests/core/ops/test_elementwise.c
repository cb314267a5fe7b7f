/* test_elementwise.c - values of elementwise functions where rounding is hardest. */
#include <string.h>

#include "tensors.h"

/* e^x - 1 itself would lose all of an x of 1e-8. */
static void elu_near_zero(void)
{
    enum { N = 4001 };
    tl_ctx    *ctx = NULL;
    tl_tensor *y = NULL;
    double     worst = 0;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    tl_tensor *x = zeros(ctx, 1, (int64_t[]){N});
    for (int i = 0; i < N; i++) tl_tensor_f32(x)[i] = -powf(10, (float)i / 400 - 8); /* 1e-8..100 */
    CHECK_STATUS(tl_unary(TL_UNARY_elu, x, &y), TL_OK);
    for (int i = 0; i < N; i++) {
        double want = expm1((double)tl_tensor_cf32(x)[i]);
        worst = worse(worst, fabs((double)tl_tensor_cf32(y)[i] / want - 1));
    }
    CHECK_NEAR(worst, 0, 4e-7);
    tl_tensor_free(x);
    tl_tensor_free(y);
    tl_ctx_free(ctx);
}

/* The formula for the other side is worked out as well; it may not show. */
static void elu_far_from_zero(void)
{
    static const float in[] = {0, 1, 20, 200, INFINITY, -0.0f, -200, -INFINITY, NAN};
    static const float out[] = {0, 1, 20, 200, INFINITY, 0, -1, -1, NAN};
    const int64_t      n = sizeof in / sizeof *in;
    tl_ctx            *ctx = NULL;
    tl_tensor         *y = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    tl_tensor *x = zeros(ctx, 1, &n);
    for (int i = 0; i < n; i++) tl_tensor_f32(x)[i] = in[i];
    CHECK_STATUS(tl_unary(TL_UNARY_elu, x, &y), TL_OK);
    for (int i = 0; i < n; i++) {
        float got = tl_tensor_cf32(y)[i];
        CHECK(isnan(out[i]) ? isnan(got) : got == out[i]);
    }
    tl_tensor_free(x);
    tl_tensor_free(y);
    tl_ctx_free(ctx);
}

/* Where the tanh is 1, its slope of 0 was multiplied by an infinite square: NaN. */
static void gelu_tanh_slope_far_from_zero(void)
{
    static const float in[] = {10, 1e19f, 1e20f, INFINITY, -10, -1e19f, -1e20f, -INFINITY, NAN};
    static const float out[] = {1, 1, 1, 1, 0, 0, 0, 0, NAN};
    const int64_t      n = sizeof in / sizeof *in;
    tl_ctx            *ctx = NULL;
    tl_tensor         *y = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    tl_tensor *x = zeros(ctx, 1, &n), *dy = zeros(ctx, 1, &n);
    for (int i = 0; i < n; i++) tl_tensor_f32(x)[i] = in[i];
    CHECK_STATUS(tl_tensor_fill(dy, 1), TL_OK);
    CHECK_STATUS(tl_set_requires_grad(x, 1), TL_OK);
    CHECK_STATUS(tl_unary(TL_UNARY_gelu_tanh, x, &y), TL_OK);
    CHECK_STATUS(tl_backward_from(ctx, y, dy), TL_OK);
    for (int i = 0; i < n; i++) {
        float got = tl_tensor_cf32(tl_grad(x))[i];
        CHECK(isnan(out[i]) ? isnan(got) : got == out[i]);
    }
    tl_tensor *all[] = {x, dy, y};
    for (int i = 0; i < 3; i++) tl_tensor_free(all[i]);
    tl_ctx_free(ctx);
}

static double off(float got, double want) /* in units in the last place of want */
{
    return fabs((double)got - want) / ldexp(1, ilogb((float)want) - 23);
}

/* Angles of all sizes beside one another, and small ones alone, which other loops compute. */
static void sines_and_cosines(void)
{
    enum { N = 60000 };
    float small = 119.99f;
    for (int only_small = 0; only_small < 2; only_small++) {
        tl_ctx *ctx = NULL;
        CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
        tl_tensor *x = zeros(ctx, 1, (int64_t[]){N}), *dy = zeros(ctx, 1, (int64_t[]){N});
        uint32_t   end = 0x7f800000;
        if (only_small) memcpy(&end, &small, sizeof end);
        for (uint32_t i = 0; i < N; i++) {
            uint32_t bits = (uint32_t)((uint64_t)end * (i / 2) / (N / 2)) | (i % 2) << 31;
            memcpy(tl_tensor_f32(x) + i, &bits, sizeof bits);
        }
        CHECK_STATUS(tl_tensor_fill(dy, 2), TL_OK);
        CHECK_STATUS(tl_set_requires_grad(x, 1), TL_OK);
        for (int cosine = 0; cosine < 2; cosine++) {
            tl_tensor *y = NULL;
            double     worst = 0;
            CHECK_STATUS(tl_unary(cosine ? TL_UNARY_cos : TL_UNARY_sin, x, &y), TL_OK);
            CHECK_STATUS(tl_backward_from(ctx, y, dy), TL_OK);
            for (int i = 0; i < N; i++) {
                double angle = (double)tl_tensor_cf32(x)[i], of[] = {sin(angle), cos(angle)};
                if (fabs(of[0]) < 1e-37) continue;
                worst = worse(worst, off(tl_tensor_cf32(y)[i], of[cosine]));
                double slope = cosine ? -2 * of[0] : 2 * of[1];
                worst = worse(worst, off(tl_tensor_cf32(tl_grad(x))[i], slope));
            }
            CHECK_NEAR(worst, 0.5, 0.07);
            CHECK((signbit(tl_tensor_cf32(y)[1]) != 0) == !cosine);
            tl_tensor_free(y);
            CHECK_STATUS(tl_tensor_fill(tl_grad(x), 0), TL_OK);
        }
        tl_tensor_f32(x)[0] = INFINITY;
        tl_tensor_f32(x)[1] = NAN;
        tl_tensor *y = NULL;
        CHECK_STATUS(tl_unary(TL_UNARY_cos, x, &y), TL_OK);
        CHECK(isnan(tl_tensor_cf32(y)[0]) && isnan(tl_tensor_cf32(y)[1]));
        CHECK(tl_tensor_cf32(y)[2] == 1);
        tl_tensor_free(y);
        tl_tensor_free(x);
        tl_tensor_free(dy);
        tl_ctx_free(ctx);
    }
}

int main(void)
{
    return run_tests((const test[]){
        {"elu near zero", elu_near_zero}, {"elu far from zero", elu_far_from_zero},
        {"gelu_tanh's slope far from zero", gelu_tanh_slope_far_from_zero},
        {"sines and cosines", sines_and_cosines}, {0}});
}

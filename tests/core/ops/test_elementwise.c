/* test_elementwise.c - values of elementwise functions where rounding is hardest. */
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

int main(void)
{
    return run_tests((const test[]){
        {"elu near zero", elu_near_zero}, {"elu far from zero", elu_far_from_zero},
        {"gelu_tanh's slope far from zero", gelu_tanh_slope_far_from_zero}, {0}});
}

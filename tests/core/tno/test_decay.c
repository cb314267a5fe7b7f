/* test_decay.c - coef_k gamma^|k| against float64, and its gradients. */
#include <stdlib.h>
#include <string.h>

#include "tensors.h"

static tl_ctx *ctx;

/* -before..p-1-before */
static tl_tensor *lags_from(int64_t p, int64_t before)
{
    tl_tensor *t = zeros(ctx, 1, &p);
    for (int64_t k = 0; k < p; k++) tl_tensor_f32(t)[k] = (float)(k - before);
    return t;
}

/* Worst relative error of y where the true factor is a normal float32; all others have to be below
** the smallest one. */
static double worst(tl_tensor *coef, tl_tensor *lags, tl_tensor *gamma, tl_tensor *y)
{
    int64_t d = tl_tensor_dim(coef, 1);
    double  error = 0;
    for (int64_t k = 0; k < tl_tensor_len(coef); k++) {
        float  g = tl_tensor_cf32(gamma)[tl_tensor_len(gamma) > 1 ? k % d : 0];
        double factor = pow((double)g, fabs((double)tl_tensor_cf32(lags)[k / d]));
        double want = factor * tl_tensor_cf32(coef)[k], got = tl_tensor_cf32(y)[k];
        if (factor < 1.2e-38)
            CHECK(fabs(got) < 1.2e-38);
        else
            error = worse(error, fabs(got - want) / fabs(want));
    }
    return error;
}

static void values_are_right_to_rounding(void)
{
    static const float single[] = {1.0f, 0.999f, 0.99f, 0.9f, 0.5f, 0.01f, 1e-30f};
    for (int i = 0; i < 7; i++) {
        tl_tensor *coef = uniforms(ctx, 2, (int64_t[]){3001, 5}, 0.5, 1, 1);
        tl_tensor *lags = lags_from(3001, 1500);
        tl_tensor *gamma = zeros(ctx, 1, (int64_t[]){1}), *y = NULL;
        tl_tensor_f32(gamma)[0] = single[i];
        CHECK_STATUS(tl_decay(coef, lags, gamma, &y), TL_OK);
        CHECK(worst(coef, lags, gamma, y) < 4e-7);
        if (single[i] == 1) CHECK(worst(coef, lags, gamma, y) == 0);
        tl_tensor_free(y);
        tl_tensor_free(gamma);
        gamma = uniforms(ctx, 1, (int64_t[]){5}, 0.9, 1, 2);
        CHECK_STATUS(tl_decay(coef, lags, gamma, &y), TL_OK);
        CHECK(worst(coef, lags, gamma, y) < 4e-7);
        tl_tensor_free(y);
        tl_tensor_free(gamma);
        tl_tensor_free(lags);
        tl_tensor_free(coef);
    }
}

/* d loss/d coef = dy gamma^|k|;  d loss/d gamma = sum over k of dy coef |k| gamma^(|k|-1) */
static void gradients(int64_t p, int64_t d, int64_t gammas)
{
    int64_t    dims[] = {p, d};
    tl_tensor *coef = uniforms(ctx, 2, dims, -1, 1, 3), *dy = uniforms(ctx, 2, dims, 0, 1, 4);
    tl_tensor *lags = lags_from(p, p / 3), *gamma = uniforms(ctx, 1, &gammas, 0.8, 1, 5);
    tl_tensor *y = NULL, *product = NULL, *loss = NULL;
    CHECK_STATUS(tl_set_requires_grad(coef, 1), TL_OK);
    CHECK_STATUS(tl_set_requires_grad(gamma, 1), TL_OK);
    CHECK_STATUS(tl_decay(coef, lags, gamma, &y), TL_OK);
    CHECK_STATUS(tl_binary(TL_BINARY_MUL, y, dy, &product), TL_OK);
    CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, product, TL_ALL_AXES, 0, &loss), TL_OK);
    CHECK_STATUS(tl_backward(ctx, loss), TL_OK);
    CHECK(worst(dy, lags, gamma, tl_grad(coef)) < 4e-7);
    for (int64_t c = 0; c < gammas; c++) {
        double want = 0, size = 0, g = tl_tensor_cf32(gamma)[c];
        for (int64_t k = 0; k < p * d; k++) {
            double lag = fabs((double)tl_tensor_cf32(lags)[k / d]);
            double term = (double)tl_tensor_cf32(dy)[k] * tl_tensor_cf32(coef)[k];
            if (gammas > 1 && k % d != c) continue;
            want += lag > 0 ? term * lag * pow(g, lag - 1) : 0;
            size += lag > 0 ? fabs(term) * lag * pow(g, lag - 1) : 0;
        }
        CHECK_NEAR(tl_tensor_cf32(tl_grad(gamma))[c], want, 1e-6 * size);
        CHECK(size > 0 || p < 3);
    }
    tl_tensor *all[] = {coef, dy, lags, gamma, y, product, loss};
    for (int i = 0; i < 7; i++) tl_tensor_free(all[i]);
}

static void gradients_are_right(void)
{
    gradients(101, 7, 7);
    gradients(101, 7, 1);
    gradients(64, 600, 600);
    gradients(1, 1, 1);
    gradients(9, 1, 1);
}

static void wrong_arguments_are_refused(void)
{
    tl_tensor *coef = uniforms(ctx, 2, (int64_t[]){4, 3}, -1, 1, 6), *lags = lags_from(4, 0);
    tl_tensor *gamma = uniforms(ctx, 1, (int64_t[]){3}, 0.5, 1, 7), *y = NULL;
    tl_tensor *two = uniforms(ctx, 1, (int64_t[]){2}, 0.5, 1, 8);
    CHECK_STATUS(tl_decay(coef, gamma, gamma, &y), TL_ESHAPE);
    CHECK_STATUS(tl_decay(coef, lags, two, &y), TL_ESHAPE);
    CHECK(strstr(tl_errmsg(ctx), "gamma is [2], not one number and not [3]") != NULL);
    tl_tensor_f32(gamma)[1] = 0;
    CHECK_STATUS(tl_decay(coef, lags, gamma, &y), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "gamma 1 is 0, outside (0,1]") != NULL);
    tl_tensor_f32(gamma)[1] = 1.5f;
    CHECK_STATUS(tl_decay(coef, lags, gamma, &y), TL_EINVAL);
    CHECK(y == NULL);
    tl_tensor_f32(gamma)[1] = NAN; /* goes through, for the loss to show it */
    CHECK_STATUS(tl_decay(coef, lags, gamma, &y), TL_OK);
    for (int k = 0; k < 12; k++) CHECK(isnan(tl_tensor_cf32(y)[k]) == (k % 3 == 1));
    tl_tensor *all[] = {coef, lags, gamma, two, y};
    for (int i = 0; i < 5; i++) tl_tensor_free(all[i]);
}

int main(void)
{
    (void)setenv("TOEPLAB_CACHE", "", 1);
    if (tl_ctx_new(2, &ctx) != TL_OK) return 1;
    int failed = run_tests((const test[]){
        {"values are right to rounding", values_are_right_to_rounding},
        {"gradients are right", gradients_are_right},
        {"wrong arguments are refused", wrong_arguments_are_refused},
        {0},
    });
    tl_ctx_free(ctx);
    return failed;
}

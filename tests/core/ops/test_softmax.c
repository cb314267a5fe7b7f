/* test_softmax.c - softmax and cross entropies against float64. */
#include <stdlib.h>
#include <string.h>

#include "tensors.h"

#define ROWS 300
#define COLS 1537

/* Targets i * 7 % v, every fourth of them -100. */
static tl_tensor *some_targets(tl_ctx *ctx, int64_t rows, int64_t v)
{
    tl_tensor *t = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 1, &rows, &t), TL_OK);
    for (int64_t i = 0; i < rows; i++)
        tl_tensor_i32(t)[i] = i % 4 == 3 ? -100 : (int32_t)(i * 7 % v);
    return t;
}

/* ln of the sum of exp of n numbers */
static double log_sum_exp(const float *x, int64_t n)
{
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) top = fmax(top, (double)x[i]);
    for (int64_t i = 0; i < n; i++) sum += exp((double)x[i] - top);
    return top + log(sum);
}

static void against_float64(void)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *p = NULL, *l = NULL;
    double     worst = 0, worst_log = 0;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    tl_tensor *x = normals(ctx, 2, (const int64_t[]){ROWS, COLS}, 0, 5, 1);
    CHECK_STATUS(tl_softmax(x, 0, &p), TL_OK);
    CHECK_STATUS(tl_log_softmax(x, &l), TL_OK);
    for (int64_t r = 0; r < ROWS; r++) {
        const float *row = tl_tensor_cf32(x) + r * COLS;
        double       z = log_sum_exp(row, COLS), sum = 0;
        for (int64_t i = 0; i < COLS; i++) {
            double want = exp((double)row[i] - z), got = (double)tl_tensor_cf32(p)[r * COLS + i];
            worst = worse(worst, fabs(got - want) / want);
            worst_log = worse(worst_log, fabs((double)tl_tensor_cf32(l)[r * COLS + i] -
                                              ((double)row[i] - z)));
            sum += got;
        }
        CHECK_NEAR(sum, 1, 2e-6);
    }
    CHECK(worst < 5e-6); /* x - max x, up to 40, is rounded before it is raised */
    CHECK(worst_log < 1e-5);
    tl_tensor_free(x);
    tl_tensor_free(p);
    tl_tensor_free(l);
    tl_ctx_free(ctx);
}

/* Adding a constant changes nothing; weights stay finite however large the numbers are. */
static void extremes(void)
{
    tl_ctx       *ctx = NULL;
    tl_tensor    *y = NULL, *x = NULL;
    const int64_t dims[2] = {3, 2};
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 2, dims, &x), TL_OK);
    memcpy(tl_tensor_f32(x), (const float[]){3e38f, 3e38f, -3e38f, 3e38f, -INFINITY, 0}, 24);
    CHECK_STATUS(tl_softmax(x, 0, &y), TL_OK);
    const float want[6] = {0.5f, 0.5f, 0, 1, 0, 1};
    for (int i = 0; i < 6; i++) CHECK_NEAR((double)tl_tensor_cf32(y)[i], (double)want[i], 0);
    tl_tensor_free(y);
    tl_tensor_f32(x)[0] = NAN;
    CHECK_STATUS(tl_softmax(x, 0, &y), TL_OK);
    CHECK(isnan(tl_tensor_cf32(y)[0]) && isnan(tl_tensor_cf32(y)[1]));
    CHECK(tl_tensor_cf32(y)[3] == 1);
    tl_tensor_free(y);
    tl_tensor_free(x);
    tl_ctx_free(ctx);
}

static void causal_is_masked(void)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *y = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    tl_tensor *x = normals(ctx, 3, (const int64_t[]){2, 5, 5}, 0, 1, 2);
    CHECK_STATUS(tl_softmax(x, 1, &y), TL_OK);
    for (int64_t r = 0; r < 10; r++) {
        const float *row = tl_tensor_cf32(x) + r * 5;
        double       z = log_sum_exp(row, r % 5 + 1);
        for (int64_t i = 0; i < 5; i++)
            CHECK_NEAR((double)tl_tensor_cf32(y)[r * 5 + i],
                       i <= r % 5 ? exp((double)row[i] - z) : 0, 1e-6);
    }
    tl_tensor_free(x);
    tl_tensor_free(y);
    tl_ctx_free(ctx);
}

static void cross_entropy(void)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *loss = NULL;
    double     want = 0, count = 0;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    tl_tensor *x = normals(ctx, 2, (const int64_t[]){ROWS, COLS}, 0, 2, 3);
    tl_tensor *targets = some_targets(ctx, ROWS, COLS);
    for (int64_t r = 0; r < ROWS; r++) {
        const float *row = tl_tensor_cf32(x) + r * COLS;
        int32_t      t = tl_tensor_i32(targets)[r];
        if (t < 0) continue;
        want += log_sum_exp(row, COLS) - (double)row[t];
        count++;
    }
    CHECK_STATUS(tl_cross_entropy(x, targets, -100, &loss), TL_OK);
    CHECK_NEAR((double)tl_tensor_cf32(loss)[0], want / count, 1e-6 * want / count);
    tl_tensor_free(loss);
    tl_tensor_free(x);
    tl_tensor_free(targets);
    tl_ctx_free(ctx);
}

/* One of the two losses of x w^T + bias and, in grads [3], its gradients. */
static double loss_of(tl_ctx *ctx, int fused, tl_tensor *const *in, tl_tensor *targets,
                      double scale, tl_tensor **grads)
{
    tl_tensor *logits = NULL, *loss = NULL, *scaled = NULL;
    double     value;
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(tl_set_requires_grad(in[i], 0), TL_OK);
        CHECK_STATUS(tl_set_requires_grad(in[i], 1), TL_OK);
    }
    if (fused) {
        CHECK_STATUS(tl_linear_cross_entropy(in[0], in[1], in[2], targets, -100, &loss), TL_OK);
    } else {
        CHECK_STATUS(tl_linear(in[0], in[1], in[2], &logits), TL_OK);
        CHECK_STATUS(tl_cross_entropy(logits, targets, -100, &loss), TL_OK);
    }
    CHECK_STATUS(tl_affine(loss, scale, 0, &scaled), TL_OK);
    CHECK_STATUS(tl_backward(ctx, scale == 1 ? loss : scaled), TL_OK);
    value = (double)tl_tensor_cf32(loss)[0];
    for (int i = 0; i < 3; i++) grads[i] = tl_tensor_retain(tl_grad(in[i]));
    tl_tensor_free(logits);
    tl_tensor_free(loss);
    tl_tensor_free(scaled);
    return value;
}

/* Several blocks of rows give what one matrix of logits gives, for any upstream gradient. */
static void linear_form_is_the_same(void)
{
    static const double scales[2] = {1, 0.25};
    const int64_t       rows = 2500, v = 103, d = 19;
    tl_ctx             *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    tl_tensor *in[3] = {normals(ctx, 2, (const int64_t[]){rows, d}, 0, 1, 4),
                        normals(ctx, 2, (const int64_t[]){v, d}, 0, 0.5, 5),
                        normals(ctx, 1, &v, 0, 1, 6)};
    tl_tensor *targets = some_targets(ctx, rows, v);
    for (int k = 0; k < 2; k++) {
        tl_tensor *one[3], *two[3];
        double     a = loss_of(ctx, 1, in, targets, scales[k], one);
        double     b = loss_of(ctx, 0, in, targets, scales[k], two);
        CHECK_NEAR(a, b, 1e-5);
        for (int i = 0; i < 3; i++) {
            double worst = 0, largest = 0;
            for (int64_t e = 0; e < tl_tensor_len(in[i]); e++) {
                double p = (double)tl_tensor_cf32(one[i])[e], q = (double)tl_tensor_cf32(two[i])[e];
                worst = worse(worst, fabs(p - q));
                largest = fmax(largest, fabs(q));
            }
            CHECK(largest > 0 && worst < 1e-4 * largest);
            tl_tensor_free(one[i]);
            tl_tensor_free(two[i]);
        }
    }
    for (int i = 0; i < 3; i++) tl_tensor_free(in[i]);
    tl_tensor_free(targets);
    tl_ctx_free(ctx);
}

/* Nothing to predict: the loss is 0 and so are its gradients. */
static void all_ignored(void)
{
    const int64_t rows = 5, v = 7, d = 3;
    tl_ctx       *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    tl_tensor *in[3] = {normals(ctx, 2, (const int64_t[]){rows, d}, 0, 1, 4),
                        normals(ctx, 2, (const int64_t[]){v, d}, 0, 0.5, 5),
                        normals(ctx, 1, &v, 0, 1, 6)};
    tl_tensor *targets = some_targets(ctx, rows, v);
    CHECK_STATUS(tl_tensor_fill(targets, -100), TL_OK);
    for (int fused = 0; fused < 2; fused++) {
        tl_tensor *grads[3];
        CHECK(loss_of(ctx, fused, in, targets, 1, grads) == 0);
        for (int i = 0; i < 3; i++) {
            for (int64_t e = 0; e < tl_tensor_len(in[i]); e++)
                CHECK(tl_tensor_cf32(grads[i])[e] == 0);
            tl_tensor_free(grads[i]);
        }
    }
    for (int i = 0; i < 3; i++) tl_tensor_free(in[i]);
    tl_tensor_free(targets);
    tl_ctx_free(ctx);
}

/* The linear form never holds all logits: its peak stays below their size. */
static void linear_form_is_small(void)
{
    const int64_t rows = 8000, v = 3001, d = 4;
    tl_ctx       *ctx = NULL;
    tl_tensor    *loss = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    tl_tensor *x = normals(ctx, 2, (const int64_t[]){rows, d}, 0, 1, 7);
    tl_tensor *w = normals(ctx, 2, (const int64_t[]){v, d}, 0, 1, 8);
    tl_tensor *targets = some_targets(ctx, rows, v);
    CHECK_STATUS(tl_set_requires_grad(x, 1), TL_OK);
    CHECK_STATUS(tl_set_requires_grad(w, 1), TL_OK);
    CHECK_STATUS(tl_linear_cross_entropy(x, w, NULL, targets, -100, &loss), TL_OK);
    CHECK(tl_memory_info(ctx).peak < (size_t)(rows * v));
    tl_tensor_free(loss);
    tl_tensor_free(x);
    tl_tensor_free(w);
    tl_tensor_free(targets);
    tl_ctx_free(ctx);
}

int main(void)
{
    return run_tests((const test[]){{"softmax against float64", against_float64},
                                    {"extremes", extremes},
                                    {"causal is masked", causal_is_masked},
                                    {"cross entropy against float64", cross_entropy},
                                    {"the linear form is the same", linear_form_is_the_same},
                                    {"all ignored", all_ignored},
                                    {"the linear form is small", linear_form_is_small},
                                    {0}});
}

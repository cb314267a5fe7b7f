/* test_norm.c - the norms against float64, and the row of zeros. */
#include <string.h>

#include "tensors.h"

#define ROWS 501
#define COLS 129

static tl_ctx *context(int threads)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
    return ctx;
}

typedef struct inputs {
    tl_ctx    *ctx;
    tl_tensor *x, *w, *b, *y;
} inputs;

static inputs make(int threads)
{
    const int64_t d = COLS;
    inputs        in = {.ctx = context(threads)};
    in.x = normals(in.ctx, 3, (const int64_t[]){3, ROWS / 3, COLS}, 0.5, 1, 1);
    in.w = normals(in.ctx, 1, &d, 0.5, 1, 2);
    in.b = normals(in.ctx, 1, &d, 0.5, 1, 3);
    return in;
}

static void drop(inputs *in)
{
    tl_tensor_free(in->x);
    tl_tensor_free(in->w);
    tl_tensor_free(in->b);
    tl_tensor_free(in->y);
    tl_ctx_free(in->ctx);
}

typedef void (*rule_fn)(double mean, double square, double *m, double *s);

/* y = (x - mean) s w + b, with mean and s of each row by rule. */
static void check_rows(const inputs *in, rule_fn rule, int weight, int bias)
{
    double worst = 0;
    for (int64_t r = 0; r < ROWS; r++) {
        const float *x = tl_tensor_cf32(in->x) + r * COLS, *y = tl_tensor_cf32(in->y) + r * COLS;
        double       mean = 0, square = 0, m = 0, s = 0;
        for (int i = 0; i < COLS; i++) {
            mean += (double)x[i] / COLS;
            square += (double)x[i] * (double)x[i] / COLS;
        }
        rule(mean, square, &m, &s);
        for (int i = 0; i < COLS; i++) {
            double want = ((double)x[i] - m) * s * (weight ? (double)tl_tensor_cf32(in->w)[i] : 1) +
                          (bias ? (double)tl_tensor_cf32(in->b)[i] : 0);
            worst = worse(worst, fabs(want - (double)y[i]));
        }
    }
    CHECK(worst < 5e-6);
}

static void layer_rule(double mean, double square, double *m, double *s)
{
    *m = mean;
    *s = 1 / sqrt(square - mean * mean + 1e-5);
}

static void rms_rule(double mean, double square, double *m, double *s)
{
    *m = 0 * mean;
    *s = 1 / sqrt(square + 0.25);
}

static void simple_rule(double mean, double square, double *m, double *s)
{
    *m = 0 * mean;
    *s = 1 / (sqrt(square) + 0.25);
}

static void scale_rule(double mean, double square, double *m, double *s)
{
    *m = 0 * mean;
    *s = 3 / fmax(sqrt(square), 1.1);
}

static void rows(void)
{
    for (int threads = 1; threads <= 3; threads++) {
        inputs     in = make(threads);
        tl_tensor *three = NULL;
        CHECK_STATUS(tl_layer_norm(in.x, in.w, in.b, 1e-5, &in.y), TL_OK);
        check_rows(&in, layer_rule, 1, 1);
        tl_tensor_free(in.y);
        CHECK_STATUS(tl_layer_norm(in.x, NULL, in.b, 1e-5, &in.y), TL_OK);
        check_rows(&in, layer_rule, 0, 1);
        tl_tensor_free(in.y);
        CHECK_STATUS(tl_rms_norm(in.x, in.w, 0.25, &in.y), TL_OK);
        check_rows(&in, rms_rule, 1, 0);
        tl_tensor_free(in.y);
        CHECK_STATUS(tl_simple_rms_norm(in.x, 0.25, &in.y), TL_OK);
        check_rows(&in, simple_rule, 0, 0);
        tl_tensor_free(in.y);
        CHECK_STATUS(tl_tensor_new(in.ctx, TL_F32, 0, NULL, &three), TL_OK);
        CHECK_STATUS(tl_tensor_fill(three, 3), TL_OK);
        CHECK_STATUS(tl_scale_norm(in.x, three, 1.1, &in.y), TL_OK);
        check_rows(&in, scale_rule, 0, 0);
        tl_tensor_free(three);
        drop(&in);
    }
}

/* A mean far from 0 does not swallow the variance. */
static void far_from_zero(void)
{
    inputs in = make(1);
    for (int64_t i = 0; i < tl_tensor_len(in.x); i++)
        tl_tensor_f32(in.x)[i] = 1e6f + (float)(i % 5);
    CHECK_STATUS(tl_layer_norm(in.x, NULL, NULL, 0, &in.y), TL_OK);
    double square = 0;
    for (int i = 0; i < COLS; i++)
        square += (double)tl_tensor_cf32(in.y)[i] * (double)tl_tensor_cf32(in.y)[i] / COLS;
    CHECK_NEAR(square, 1, 0.1); /* the mean, as float32, is off by 1/32 */
    drop(&in);
}

/* A row of zeros gives zeros and a gradient of zeros, whatever eps; a tiny row is not one. */
static void row_of_zeros(void)
{
    static const double eps[] = {1e-8, 0};
    for (int k = 0; k < 4; k++) {
        tl_ctx    *ctx = context(1);
        tl_tensor *x = normals(ctx, 2, (const int64_t[]){3, 4}, 0.5, 1, 5);
        tl_tensor *y = NULL, *loss = NULL, *one;
        CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 0, NULL, &one), TL_OK);
        CHECK_STATUS(tl_tensor_fill(one, 1), TL_OK);
        for (int i = 0; i < 4; i++) tl_tensor_f32(x)[i] = 0;
        for (int i = 4; i < 8; i++) tl_tensor_f32(x)[i] = 1e-30f;
        CHECK_STATUS(tl_set_requires_grad(x, 1), TL_OK);
        if (k < 2)
            CHECK_STATUS(tl_simple_rms_norm(x, eps[k], &y), TL_OK);
        else
            CHECK_STATUS(tl_scale_norm(x, one, eps[k - 2], &y), TL_OK);
        CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, y, TL_ALL_AXES, 0, &loss), TL_OK);
        CHECK_STATUS(tl_backward(ctx, loss), TL_OK);
        for (int i = 0; i < 4; i++) {
            CHECK(tl_tensor_cf32(y)[i] == 0);
            CHECK(tl_tensor_cf32(tl_grad(x))[i] == 0);
        }
        for (int i = 4; i < 12; i++) CHECK(isfinite(tl_tensor_cf32(tl_grad(x))[i]));
        CHECK_NEAR((double)tl_tensor_cf32(y)[4], k % 2 ? 1 : 0, 1e-6); /* 1e-30 against eps */
        tl_tensor_free(x);
        tl_tensor_free(y);
        tl_tensor_free(one);
        tl_tensor_free(loss);
        tl_ctx_free(ctx);
    }
}

static void check_batch(const inputs *in, const tl_tensor *mean, const tl_tensor *var)
{
    double worst = 0, worst_mean = 0, worst_var = 0;
    for (int c = 0; c < COLS; c++) {
        double m = 0, v = 0;
        for (int64_t r = 0; r < ROWS; r++) m += (double)tl_tensor_cf32(in->x)[r * COLS + c] / ROWS;
        for (int64_t r = 0; r < ROWS; r++) {
            double z = (double)tl_tensor_cf32(in->x)[r * COLS + c] - m;
            v += z * z / ROWS;
        }
        for (int64_t r = 0; r < ROWS; r++) {
            double want = ((double)tl_tensor_cf32(in->x)[r * COLS + c] - m) / sqrt(v + 1e-5) *
                              (double)tl_tensor_cf32(in->w)[c] + (double)tl_tensor_cf32(in->b)[c];
            worst = worse(worst, fabs(want - (double)tl_tensor_cf32(in->y)[r * COLS + c]));
        }
        worst_mean =
            worse(worst_mean, fabs((double)tl_tensor_cf32(mean)[c] - (0.9 * 2 + 0.1 * m)));
        worst_var = worse(worst_var, fabs((double)tl_tensor_cf32(var)[c] -
                                          (0.9 * 4 + 0.1 * v * ROWS / (ROWS - 1.0))));
    }
    CHECK(worst < 5e-6);
    CHECK(worst_mean < 1e-6 && worst_var < 1e-6);
}

/* Training uses the batch and moves the running statistics; otherwise they are used and stay. */
static void batch(void)
{
    const int64_t d = COLS;
    for (int threads = 1; threads <= 3; threads++) {
        inputs     in = make(threads);
        tl_tensor *mean = normals(in.ctx, 1, &d, 0.5, 1, 4);
        tl_tensor *var = normals(in.ctx, 1, &d, 0.5, 1, 4);
        CHECK_STATUS(tl_tensor_fill(mean, 2), TL_OK);
        CHECK_STATUS(tl_tensor_fill(var, 4), TL_OK);
        CHECK_STATUS(tl_batch_norm(in.x, in.w, in.b, mean, var, 1, 0.1, 1e-5, &in.y), TL_OK);
        check_batch(&in, mean, var);
        tl_tensor_free(in.y);
        CHECK_STATUS(tl_tensor_fill(mean, 2), TL_OK);
        CHECK_STATUS(tl_tensor_fill(var, 4), TL_OK);
        CHECK_STATUS(tl_batch_norm(in.x, NULL, NULL, mean, var, 0, 0.1, 0, &in.y), TL_OK);
        for (int64_t i = 0; i < tl_tensor_len(in.x); i += 97)
            CHECK_NEAR((double)tl_tensor_cf32(in.y)[i], ((double)tl_tensor_cf32(in.x)[i] - 2) / 2,
                       1e-6);
        CHECK(tl_tensor_cf32(mean)[7] == 2 && tl_tensor_cf32(var)[7] == 4);
        tl_tensor_free(mean);
        tl_tensor_free(var);
        drop(&in);
    }
}

static void batch_norm_refuses(void)
{
    static const struct {
        int64_t   d;
        double    eps;
        tl_status want;
    } all[] = {{3, 0, TL_OK}, {3, -1e-9, TL_EINVAL}, {3, NAN, TL_EINVAL}, {0, 0, TL_ESHAPE}};
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tl_tensor *x = normals(ctx, 2, (int64_t[]){5, all[i].d}, 0, 1, 1), *y = NULL;
        tl_tensor *mean = zeros(ctx, 1, &all[i].d), *var = zeros(ctx, 1, &all[i].d);
        CHECK_STATUS(tl_batch_norm(x, NULL, NULL, mean, var, 1, 0.1, all[i].eps, &y), all[i].want);
        CHECK(all[i].want == TL_OK || (y == NULL && strstr(tl_errmsg(ctx), "batch_norm: ")));
        tl_tensor *used[] = {x, y, mean, var};
        for (int k = 0; k < 4; k++) tl_tensor_free(used[k]);
    }
    tl_ctx_free(ctx);
}

int main(void)
{
    return run_tests((const test[]){{"norms of rows against float64", rows},
                                    {"far from zero", far_from_zero},
                                    {"a row of zeros", row_of_zeros},
                                    {"batch norm against float64", batch},
                                    {"batch norm refuses", batch_norm_refuses},
                                    {0}});
}

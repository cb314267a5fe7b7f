/* test_cauchy.c - sums over simple poles and their gradients against their definition in float64,
** also beside a pole, against differences, and with any number of threads. */
#include <complex.h>
#include <string.h>

#include "operations.h"
#include "tensors.h"

typedef double complex number;

typedef struct size {
    int64_t r, d, m, f;
} size;

/* One state, one node, and tiles of 256 nodes, whole and cut. */
static const size sizes[] = {{1, 1, 1, 1},   {4, 3, 1, 1},   {1, 2, 1, 40},  {4, 2, 32, 255},
                             {6, 3, 3, 256}, {1, 5, 4, 257}, {2, 33, 2, 600}, {0, 2, 3, 4},
                             {2, 0, 3, 4},   {2, 3, 0, 4},   {2, 3, 4, 0}};

enum { INPUTS = 3 };

/* v, poles, nodes: as in S4, the poles are left of the imaginary axis; the nodes are around it. */
static void make(tl_ctx *ctx, const size *z, tl_tensor *in[INPUTS])
{
    in[0] = normals(ctx, 4, (const int64_t[]){z->r, z->d, z->m, 2}, 0, 1, 1);
    in[1] = uniforms(ctx, 3, (const int64_t[]){z->d, z->m, 2}, -3, -0.1, 2);
    in[2] = uniforms(ctx, 2, (const int64_t[]){z->f, 2}, 0, 5, 3);
}

static void drop(tl_tensor **t, int count)
{
    for (int i = 0; i < count; i++) tl_tensor_free(t[i]);
}

static number at(const tl_tensor *t, int64_t i)
{
    return (double)tl_tensor_cf32(t)[2 * i] + (double)tl_tensor_cf32(t)[2 * i + 1] * I;
}

/* The error of value i of got, in units of `scale`, the sum of the sizes of the terms. */
static double error_of(const tl_tensor *got, int64_t i, number want, double scale)
{
    double off = cabs(at(got, i) - want);
    return off == 0 ? 0 : off / scale;
}

/* The worst relative error of y. */
static double sums_off(const size *z, tl_tensor *const *in, int pairs, const tl_tensor *y)
{
    double worst = 0;
    for (int64_t i = 0; i < z->r * z->d * z->f; i++) {
        number sum = 0, g = at(in[2], i % z->f);
        double scale = 0;
        for (int64_t k = 0; k < z->m; k++) {
            number v = at(in[0], i / z->f * z->m + k);
            number pole = at(in[1], i / z->f % z->d * z->m + k);
            number term = v / (g - pole), other = pairs ? conj(v) / (g - conj(pole)) : 0;
            sum += term + other;
            scale += cabs(term) + cabs(other);
        }
        worst = worse(worst, error_of(y, i, sum, scale));
    }
    return worst;
}

/* The worst relative error of the gradients for dy. */
static double gradients_off(const size *z, tl_tensor *const *in, int pairs, const tl_tensor *dy)
{
    double worst = 0;
    for (int64_t p = 0; p < z->d * z->m; p++) {
        number dpole = 0, pole = at(in[1], p);
        double pole_scale = 0;
        for (int64_t r = 0; r < z->r; r++) {
            int64_t row = r * z->d + p / z->m;
            number  dv = 0, v = at(in[0], r * z->d * z->m + p);
            double  scale = 0;
            for (int64_t i = 0; i < z->f; i++) {
                number g = at(in[2], i), by = at(dy, row * z->f + i);
                number a = 1 / (g - pole), b = pairs ? 1 / (g - conj(pole)) : 0;
                dv += conj(a) * by + b * conj(by);
                scale += cabs(by) * (cabs(a) + cabs(b));
                dpole += conj(v * a * a) * by + conj(v) * b * b * conj(by);
                pole_scale += cabs(by) * cabs(v) * (cabs(a * a) + cabs(b * b));
            }
            worst = worse(worst, error_of(tl_grad(in[0]), r * z->d * z->m + p, dv, scale));
        }
        worst = worse(worst, error_of(tl_grad(in[1]), p, dpole, pole_scale));
    }
    return worst;
}

/* The worst relative error of the sums and their gradients. */
static double all_off(tl_ctx *ctx, const size *z, tl_tensor *const *in, int pairs)
{
    tl_tensor *y = NULL;
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(tl_set_requires_grad(in[i], 0), TL_OK); /* forgets its gradient */
        CHECK_STATUS(tl_set_requires_grad(in[i], 1), TL_OK);
    }
    CHECK_STATUS(tl_cauchy(in[0], in[1], in[2], pairs, &y), TL_OK);
    double off = sums_off(z, in, pairs, y);
    CHECK_STATUS(tl_backward_from(ctx, y, y), TL_OK);
    off = worse(off, gradients_off(z, in, pairs, y));
    tl_tensor_free(y);
    return off;
}

static void definition(void)
{
    for (int threads = 1; threads <= 3; threads += 2) {
        tl_ctx *ctx = NULL;
        CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            tl_tensor *in[INPUTS];
            make(ctx, sizes + i, in);
            for (int pairs = 0; pairs < 2; pairs++) {
                double off = all_off(ctx, sizes + i, in, pairs);
                if (!(off < 1e-6)) printf("size %d, pairs %d: %g\n", (int)i, pairs, off);
                CHECK(off < 1e-6);
            }
            drop(in, INPUTS);
        }
        CHECK(tl_memory_info(ctx).tensors == 0);
        tl_ctx_free(ctx);
    }
}

/* Beside a pole whose distance from the origin is up to 10^8 times as long, and between a pole and
** its conjugate that are as close, no digits are lost. */
static void beside_a_pole(void)
{
    static const struct {
        float pole[2], node[2];
    } cases[] = {
        {{-0.5f, 100}, {-0.5f, 100.0001f}},    {{-0x1p-20f, 100}, {0, 100}},
        {{-0x1p-26f, -1300}, {0, -1300}},      {{-0x1p-20f, 0x1p-20f}, {0, 0}},
        {{-100, 0x1p-20f}, {-100, 0x1p-19f}}, {{-1, 3}, {-1 + 0x1p-24f, 3}},
    };
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size z = {3, 1, 1, 1};
        tl_tensor *in[INPUTS];
        make(ctx, &z, in);
        memcpy(tl_tensor_f32(in[1]), cases[i].pole, sizeof cases[i].pole);
        memcpy(tl_tensor_f32(in[2]), cases[i].node, sizeof cases[i].node);
        for (int pairs = 0; pairs < 2; pairs++) {
            double off = all_off(ctx, &z, in, pairs);
            if (!(off < 5e-7)) printf("pole %d, pairs %d: %g\n", (int)i, pairs, off);
            CHECK(off < 5e-7);
        }
        drop(in, INPUTS);
    }
    tl_ctx_free(ctx);
}

static void differences(void)
{
    static const int64_t nodes[] = {1, 2, 255, 300};
    for (int threads = 1; threads <= 3; threads += 2) {
        tl_ctx *ctx = NULL;
        CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
        for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
            for (int pairs = 0; pairs < 2; pairs++) {
                const gradient_case c = {
                    "cauchy", cauchy, 2,
                    .in = {{ANY, 4, {2, 3, 2, 2}}, {NEGATIVE, 3, {3, 2, 2}}},
                    .i = {nodes[i], pairs}};
                double worst = gradient_error(ctx, &c);
                if (!(worst <= 1)) printf("%d nodes, pairs %d: %g\n", (int)nodes[i], pairs, worst);
                CHECK(worst <= 1);
            }
        tl_ctx_free(ctx);
    }
}

/* Writes y and the gradients to out, one after another; returns how many numbers. */
static size_t everything(int threads, float *out)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *in[INPUTS], *y = NULL;
    size_t     total = 0;
    CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
    make(ctx, &(const size){4, 37, 16, 300}, in);
    for (int i = 0; i < 2; i++) CHECK_STATUS(tl_set_requires_grad(in[i], 1), TL_OK);
    CHECK_STATUS(tl_cauchy(in[0], in[1], in[2], 1, &y), TL_OK);
    CHECK_STATUS(tl_backward_from(ctx, y, y), TL_OK);
    for (int i = -1; i < 2; i++) {
        const tl_tensor *t = i < 0 ? y : tl_grad(in[i]);
        memcpy(out + total, tl_tensor_cf32(t), (size_t)tl_tensor_len(t) * sizeof *out);
        total += (size_t)tl_tensor_len(t);
    }
    tl_tensor_free(y);
    drop(in, INPUTS);
    tl_ctx_free(ctx);
    return total;
}

static void any_threads(void)
{
    enum { MAX_LEN = 100000 };
    static float one[MAX_LEN], other[MAX_LEN];
    size_t       total = everything(1, one);
    for (int threads = 2; threads <= 5; threads++) {
        CHECK(everything(threads, other) == total);
        CHECK(memcmp(one, other, total * sizeof *one) == 0);
    }
}

/* No tensor holds all nodes of all poles, which would take 32 times as much as y. */
static void memory(void)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *in[INPUTS], *y = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    make(ctx, &(const size){1, 64, 32, 1024}, in);
    size_t before = tl_memory_info(ctx).live;
    for (int i = 0; i < 2; i++) CHECK_STATUS(tl_set_requires_grad(in[i], 1), TL_OK);
    tl_memory_reset_peak(ctx);
    CHECK_STATUS(tl_cauchy(in[0], in[1], in[2], 1, &y), TL_OK);
    CHECK_STATUS(tl_backward_from(ctx, y, y), TL_OK);
    CHECK(tl_memory_info(ctx).peak - before < 4 * (size_t)tl_tensor_len(y) * sizeof(float));
    tl_tensor_free(y);
    drop(in, INPUTS);
    tl_ctx_free(ctx);
}

int main(void)
{
    return run_tests((const test[]){{"definition", definition},
                                    {"beside a pole", beside_a_pole},
                                    {"differences", differences},
                                    {"any number of threads", any_threads},
                                    {"memory", memory},
                                    {0}});
}

/* test_scan.c - the scans against their definitions, their gradients against differences, at and
** around the borders of chunks, and with any number of threads. */
#include <string.h>

#include "operations.h"
#include "tensors.h"

/* ---- Selective scan -------------------------------------------------------------------------- */

typedef struct size {
    int64_t b, n, d, s;
} size;

static const size sizes[] = {{1, 1, 1, 1}, {2, 1, 3, 2},  {1, 63, 2, 3},  {2, 64, 17, 4},
                             {1, 65, 33, 16}, {2, 128, 5, 2}, {1, 129, 16, 1}, {2, 200, 70, 5},
                             {0, 4, 3, 2}, {2, 0, 3, 2},  {2, 4, 0, 2},   {2, 4, 3, 0}};

enum { INPUTS = 6 };

/* x, delta, a, b, c, skip: a is negative, so that states fade. */
static void make(tl_ctx *ctx, const size *z, tl_tensor *in[INPUTS])
{
    const int64_t wide[3] = {z->b, z->n, z->d}, narrow[3] = {z->b, z->n, z->s};
    in[0] = normals(ctx, 3, wide, 0, 1, 1);
    in[1] = uniforms(ctx, 3, wide, 0.05, 0.5, 2);
    in[2] = uniforms(ctx, 2, (const int64_t[]){z->d, z->s}, -2, -0.1, 3);
    in[3] = normals(ctx, 3, narrow, 0, 1, 4);
    in[4] = normals(ctx, 3, narrow, 0, 1, 5);
    in[5] = normals(ctx, 1, &z->d, 0, 1, 6);
}

static void drop(tl_tensor **t, int count)
{
    for (int i = 0; i < count; i++) tl_tensor_free(t[i]);
}

/* The worst difference of y from the definition, in float64. */
static double selective_off(const size *z, tl_tensor *const *in, const tl_tensor *y, int skips)
{
    const float *x = tl_tensor_cf32(in[0]), *delta = tl_tensor_cf32(in[1]);
    const float *a = tl_tensor_cf32(in[2]), *b = tl_tensor_cf32(in[3]), *c = tl_tensor_cf32(in[4]);
    double       off = 0, h[16];
    for (int64_t p = 0; p < z->b * z->d; p++) {
        memset(h, 0, sizeof h);
        for (int64_t i = 0; i < z->n; i++) {
            int64_t row = p / z->d * z->n + i, at = row * z->d + p % z->d;
            double  sum = skips ? (double)(tl_tensor_cf32(in[5])[p % z->d] * x[at]) : 0;
            for (int64_t k = 0; k < z->s; k++) {
                double step = (double)delta[at];
                h[k] = exp(step * (double)a[p % z->d * z->s + k]) * h[k] +
                       step * (double)x[at] * (double)b[row * z->s + k];
                sum += h[k] * (double)c[row * z->s + k];
            }
            off = worse(off, fabs(sum - (double)tl_tensor_cf32(y)[at]));
        }
    }
    return off;
}

static void selective_definition(void)
{
    for (int threads = 1; threads <= 3; threads += 2) {
        tl_ctx *ctx = NULL;
        CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            tl_tensor *in[INPUTS], *y = NULL;
            make(ctx, sizes + i, in);
            for (int skips = 0; skips < 2; skips++) {
                CHECK_STATUS(tl_selective_scan(in[0], in[1], in[2], in[3], in[4],
                                               skips ? in[5] : NULL, &y), TL_OK);
                CHECK(selective_off(sizes + i, in, y, skips) < 3e-5);
                tl_tensor_free(y);
            }
            drop(in, INPUTS);
        }
        tl_ctx_free(ctx);
    }
}

/* ---- Linear recurrence ----------------------------------------------------------------------- */

typedef struct head_size {
    int64_t b, n, h, k, v, g;
} head_size;

static const head_size head_sizes[] = {
    {1, 1, 1, 1, 1, 1},  {2, 1, 2, 3, 2, 3},  {1, 63, 2, 4, 5, 4}, {2, 64, 1, 3, 17, 1},
    {1, 65, 3, 8, 16, 8}, {2, 128, 2, 2, 3, 1}, {1, 129, 1, 5, 1, 5}, {2, 200, 2, 16, 33, 16},
    {1, 70, 1, 41, 35, 41}, {1, 66, 2, 64, 32, 1}, {1, 70, 1, 1, 40, 1}, {2, 130, 67, 1, 1, 1},
    {0, 4, 2, 3, 2, 3},  {2, 0, 2, 3, 2, 1},  {2, 4, 2, 3, 0, 3}};

enum { HEAD_INPUTS = 4 };

static void make_heads(tl_ctx *ctx, const head_size *z, tl_tensor *in[HEAD_INPUTS])
{
    const int64_t keys[4] = {z->b, z->n, z->h, z->k}, values[4] = {z->b, z->n, z->h, z->v};
    const int64_t decays[4] = {z->b, z->n, z->h, z->g};
    in[0] = normals(ctx, 4, keys, 0, 1, 1);
    in[1] = normals(ctx, 4, keys, 0, 1, 2);
    in[2] = normals(ctx, 4, values, 0, 1, 3);
    in[3] = uniforms(ctx, 4, decays, -2, -0.02, 4);
}

/* Without states: y_i = sum over j <= i of (q_i exp(g_(j+1) + .. + g_i)) . k_j times v_j. */
static double heads_off(const head_size *z, tl_tensor *const *in, const tl_tensor *y)
{
    const float *q = tl_tensor_cf32(in[0]), *k = tl_tensor_cf32(in[1]);
    const float *v = tl_tensor_cf32(in[2]), *g = tl_tensor_cf32(in[3]);
    double       off = 0, sum[64], faded[64];
    for (int64_t p = 0; p < z->b * z->n * z->h; p++) {
        int64_t head = p % z->h, i = p / z->h % z->n;
        memset(sum, 0, sizeof sum);
        memset(faded, 0, sizeof faded);
        for (int64_t j = i; j >= 0; j--) {
            int64_t row = (p / z->h - i + j) * z->h + head;
            double  weight = 0;
            for (int64_t c = 0; c < z->k; c++)
                weight += (double)q[p * z->k + c] * exp(faded[c]) * (double)k[row * z->k + c];
            for (int64_t c = 0; c < z->k; c++)
                faded[c] += (double)g[row * z->g + (z->g == 1 ? 0 : c)];
            for (int64_t m = 0; m < z->v; m++) sum[m] += weight * (double)v[row * z->v + m];
        }
        for (int64_t m = 0; m < z->v; m++)
            off = worse(off, fabs(sum[m] - (double)tl_tensor_cf32(y)[p * z->v + m]));
    }
    return off;
}

/* Returns the worst difference of the gradients from those of the recurrence in float64, for the
** gradient dy of y, over the largest number of each.
**   S_i = diag(e_i) S_(i-1) + k_i v_i^T, and R_i, its gradient, is q_i dy_i^T + e_(i+1) R_(i+1). */
static double head_grads_off(const head_size *z, tl_tensor *const *in, const tl_tensor *dy)
{
    const float *x[HEAD_INPUTS], *out = tl_tensor_cf32(dy);
    int64_t area = z->k * z->v;
    double *want[HEAD_INPUTS], *states = calloc((size_t)((z->n + 2) * area + 1), sizeof *states);
    double  off = 0, *grad = states + (z->n + 1) * area;
    for (int a = 0; a < HEAD_INPUTS; a++) {
        x[a] = tl_tensor_cf32(in[a]);
        want[a] = calloc((size_t)tl_tensor_len(in[a]) + 1, sizeof *want[a]);
    }
    for (int64_t p = 0; p < z->b * z->h; p++) {
        memset(grad, 0, (size_t)area * sizeof *grad);
        for (int64_t at = 0; at < 2 * z->n; at++) { /* over the positions, and back */
            int64_t i = at < z->n ? at : 2 * z->n - 1 - at;
            int64_t row = (p / z->h * z->n + i) * z->h + p % z->h;
            for (int64_t c = 0; c < z->k; c++) {
                int64_t key = row * z->k + c, gate = row * z->g + (z->g == 1 ? 0 : c);
                double  e = exp((double)x[3][gate]), q = (double)x[0][key], k = (double)x[1][key];
                for (int64_t m = 0; m < z->v; m++) {
                    int64_t value = row * z->v + m;
                    double *s = states + i * area + c * z->v + m, *r = grad + c * z->v + m;
                    if (at < z->n) {
                        s[area] = e * *s + k * (double)x[2][value];
                    } else {
                        *r += q * (double)out[value];
                        want[0][key] += s[area] * (double)out[value];
                        want[1][key] += *r * (double)x[2][value];
                        want[2][value] += *r * k;
                        want[3][gate] += *r * e * *s;
                        *r *= e;
                    }
                }
            }
        }
    }
    for (int a = 0; a < HEAD_INPUTS; a++) {
        double largest = 1e-30, worst = 0;
        for (int64_t i = 0; i < tl_tensor_len(in[a]); i++) {
            largest = worse(largest, fabs(want[a][i]));
            worst = worse(worst, fabs((double)tl_tensor_cf32(tl_grad(in[a]))[i] - want[a][i]));
        }
        off = worse(off, worst / largest);
        free(want[a]);
    }
    free(states);
    return off;
}

static void linear_definition(void)
{
    for (int threads = 1; threads <= 3; threads += 2) {
        tl_ctx *ctx = NULL;
        CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
        for (size_t i = 0; i < sizeof head_sizes / sizeof *head_sizes; i++) {
            tl_tensor *in[HEAD_INPUTS], *y = NULL;
            make_heads(ctx, head_sizes + i, in);
            for (int a = 0; a < HEAD_INPUTS; a++)
                CHECK_STATUS(tl_set_requires_grad(in[a], 1), TL_OK);
            CHECK_STATUS(tl_linear_recurrence(in[0], in[1], in[2], in[3], &y), TL_OK);
            CHECK(heads_off(head_sizes + i, in, y) < 3e-5);
            CHECK_STATUS(tl_backward_from(ctx, y, y), TL_OK);
            CHECK(head_grads_off(head_sizes + i, in, y) < 3e-6);
            tl_tensor_free(y);
            drop(in, HEAD_INPUTS);
        }
        tl_ctx_free(ctx);
    }
}

/* ---- Gradients ------------------------------------------------------------------------------- */

static void gradients(void)
{
    static const int64_t lengths[] = {1, 2, 63, 64, 65, 130};
    for (int threads = 1; threads <= 3; threads += 2) {
        tl_ctx *ctx = NULL;
        CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            int64_t n = lengths[i], wide = n < 3 ? 70 : 2, b = n < 3 ? 2 : 1;
            const gradient_case cases[] = {
                {"selective", selective, 6,
                 .in = {{ANY, 3, {b, n, wide}}, {FRACTION, 3, {b, n, wide}},
                        {NEGATIVE, 2, {wide, 2}}, {ANY, 3, {b, n, 2}}, {ANY, 3, {b, n, 2}},
                        {ANY, 1, {wide}}}},
                {"linear, a decay per channel", linear_recurrence, 4,
                 .in = {{ANY, 4, {b, n, 1, 2}}, {ANY, 4, {b, n, 1, 2}}, {ANY, 4, {b, n, 1, 3}},
                        {NEGATIVE, 4, {b, n, 1, 2}}}},
                {"linear, a decay per head", linear_recurrence, 4,
                 .in = {{ANY, 4, {b, n, 2, 2}}, {ANY, 4, {b, n, 2, 2}}, {ANY, 4, {b, n, 2, 1}},
                        {NEGATIVE, 4, {b, n, 2, 1}}}},
            };
            for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
                double worst = gradient_error(ctx, cases + k);
                if (!(worst <= 1)) printf("%s, n = %d: %g\n", cases[k].name, (int)n, worst);
                CHECK(worst <= 1);
            }
        }
        tl_ctx_free(ctx);
    }
}

/* Writes y and all gradients to out, one after another; returns how many numbers. */
static size_t everything(int threads, int which, float *out)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *in[INPUTS], *y = NULL;
    int        count = which ? HEAD_INPUTS : INPUTS;
    static const head_size of[] = {{3, 150, 5, 7, 9, 7}, {3, 150, 130, 1, 1, 1}};
    size_t     total = 0;
    CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
    if (which)
        make_heads(ctx, of + which - 1, in);
    else
        make(ctx, &(const size){3, 150, 150, 4}, in);
    for (int i = 0; i < count; i++) CHECK_STATUS(tl_set_requires_grad(in[i], 1), TL_OK);
    CHECK_STATUS(which ? tl_linear_recurrence(in[0], in[1], in[2], in[3], &y)
                       : tl_selective_scan(in[0], in[1], in[2], in[3], in[4], in[5], &y), TL_OK);
    CHECK_STATUS(tl_backward_from(ctx, y, y), TL_OK);
    for (int i = -1; i < count; i++) {
        const tl_tensor *t = i < 0 ? y : tl_grad(in[i]);
        memcpy(out + total, tl_tensor_cf32(t), (size_t)tl_tensor_len(t) * sizeof *out);
        total += (size_t)tl_tensor_len(t);
    }
    tl_tensor_free(y);
    drop(in, count);
    tl_ctx_free(ctx);
    return total;
}

/* Every sum has an order of its own, whoever computes it. */
static void any_threads(void)
{
    enum { MAX_LEN = 400000 };
    static float one[MAX_LEN], other[MAX_LEN];
    for (int which = 0; which < 3; which++) {
        size_t total = everything(1, which, one);
        for (int threads = 2; threads <= 5; threads++) {
            CHECK(everything(threads, which, other) == total);
            CHECK(memcmp(one, other, total * sizeof *one) == 0);
        }
    }
}

/* The gradient keeps a state in 64 positions, not one at each. */
static void memory(void)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *in[INPUTS], *y = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    make(ctx, &(const size){1, 2048, 64, 16}, in);
    size_t plane = (size_t)2048 * 64 * sizeof(float), before = tl_memory_info(ctx).live;
    for (int i = 0; i < INPUTS; i++) CHECK_STATUS(tl_set_requires_grad(in[i], 1), TL_OK);
    tl_memory_reset_peak(ctx);
    CHECK_STATUS(tl_selective_scan(in[0], in[1], in[2], in[3], in[4], in[5], &y), TL_OK);
    CHECK_STATUS(tl_backward_from(ctx, y, y), TL_OK);
    CHECK(tl_memory_info(ctx).peak - before < 6 * plane); /* all states: 16 planes */
    tl_tensor_free(y);
    drop(in, INPUTS);
    tl_ctx_free(ctx);
}

int main(void)
{
    return run_tests((const test[]){{"selective: its definition", selective_definition},
                                    {"linear: its definition", linear_definition},
                                    {"gradients", gradients},
                                    {"any number of threads", any_threads},
                                    {"memory", memory},
                                    {0}});
}

/* test_attention.c - attention and its gradients against float64, at and around the borders of
** blocks; with any number of threads, in bf16, with dropout; its memory. */
#include <string.h>

#include "tensors.h"

enum { INPUTS = 4 }; /* q, k, v, the bias */

typedef struct size {
    int64_t b, h, m, n, w, c;
} size;

/* What a case has besides q, k and v. */
enum { CAUSAL = 1, WINDOW = 2, BIAS = 4, MASK = 8, ALL = 16 };

#define SCALE 0.6

static void make(tl_ctx *ctx, const size *z, tl_tensor *in[INPUTS], tl_tensor **mask)
{
    in[0] = normals(ctx, 4, (const int64_t[]){z->b, z->h, z->m, z->w}, 0, 1, 1);
    in[1] = normals(ctx, 4, (const int64_t[]){z->b, z->h, z->n, z->w}, 0, 1, 2);
    in[2] = normals(ctx, 4, (const int64_t[]){z->b, z->h, z->n, z->c}, 0, 1, 3);
    in[3] = normals(ctx, 2, (const int64_t[]){z->h, z->m + z->n - 1}, 0, 1, 4);
    for (int i = 0; i < INPUTS; i++) CHECK_STATUS(tl_set_requires_grad(in[i], 1), TL_OK);
    *mask = zeros(ctx, 2, (const int64_t[]){z->b, z->n}); /* hides all keys of the last sequence */
    for (int64_t i = 0; i < (z->b - 1) * z->n; i++)
        tl_tensor_f32(*mask)[i] = i * 7 % 5 > 1 ? 1.0f : 0.0f;
}

static void drop(tl_tensor *in[INPUTS], tl_tensor *mask)
{
    for (int i = 0; i < INPUTS; i++) tl_tensor_free(in[i]);
    tl_tensor_free(mask);
}

static tl_attention_options options(int mode, tl_tensor *const in[INPUTS], tl_tensor *mask)
{
    return (tl_attention_options){.bytes = sizeof(tl_attention_options), .scale = SCALE,
                                  .causal = mode & CAUSAL, .window = mode & WINDOW ? 17 : 0,
                                  .bias = mode & BIAS ? in[3] : NULL,
                                  .mask = mode & MASK ? mask : NULL};
}

/* ---- The definition -------------------------------------------------------------------------- */

/* y and the gradients of sum(y^2)/2, one after another. */
typedef struct answer {
    double *y, *dq, *dk, *dv, *dbias;
    int64_t len[1 + INPUTS];
} answer;

static answer answer_new(const size *z)
{
    int64_t pairs = z->b * z->h;
    answer  a = {.len = {pairs * z->m * z->c, pairs * z->m * z->w, pairs * z->n * z->w,
                         pairs * z->n * z->c, z->h * (z->m + z->n - 1)}};
    double **to[] = {&a.y, &a.dq, &a.dk, &a.dv, &a.dbias};
    for (int i = 0; i <= INPUTS; i++) *to[i] = calloc((size_t)a.len[i] + 1, sizeof(double));
    return a;
}

static void answer_free(answer *a)
{
    double *list[] = {a->y, a->dq, a->dk, a->dv, a->dbias};
    for (int i = 0; i <= INPUTS; i++) free(list[i]);
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* One query: p [n] are the weights, 0 where a key is hidden. */
static void weigh(const size *z, int mode, tl_tensor *const *in, const tl_tensor *mask,
                  int64_t pair, int64_t i, double *p)
{
    const float *q = tl_tensor_cf32(in[0]) + (pair * z->m + i) * z->w;
    double       top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < z->n; j++) {
        int64_t lag = i + z->n - z->m - j;
        int     seen = !(mode & CAUSAL && lag < 0) && !(mode & WINDOW && llabs(lag) >= 17);
        if (mode & MASK && tl_tensor_cf32(mask)[pair / z->h * z->n + j] == 0) seen = 0;
        p[j] = SCALE * dot(q, tl_tensor_cf32(in[1]) + (pair * z->n + j) * z->w, z->w);
        if (mode & BIAS)
            p[j] += (double)tl_tensor_cf32(in[3])[pair % z->h * (z->m + z->n - 1) + j - i +
                                                  z->m - 1];
        if (!seen) p[j] = -INFINITY;
        top = fmax(top, p[j]);
    }
    for (int64_t j = 0; j < z->n; j++) {
        p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - top);
        sum += p[j];
    }
    for (int64_t j = 0; j < z->n; j++) p[j] = sum > 0 ? p[j] / sum : 0;
}

static void define(const size *z, int mode, tl_tensor *const *in, const tl_tensor *mask,
                   const answer *a)
{
    const float *q = tl_tensor_cf32(in[0]), *k = tl_tensor_cf32(in[1]), *v = tl_tensor_cf32(in[2]);
    double      *p = calloc((size_t)z->n + 1, sizeof *p);
    for (int64_t row = 0; p && row < z->b * z->h * z->m; row++) {
        int64_t pair = row / z->m, i = row % z->m;
        double *y = a->y + row * z->c, delta = 0;
        weigh(z, mode, in, mask, pair, i, p);
        for (int64_t j = 0; j < z->n; j++)
            for (int64_t x = 0; x < z->c; x++)
                y[x] += p[j] * (double)v[(pair * z->n + j) * z->c + x];
        for (int64_t x = 0; x < z->c; x++) delta += y[x] * y[x];
        for (int64_t j = 0; j < z->n; j++) {
            int64_t key = pair * z->n + j;
            double  g = 0;
            for (int64_t x = 0; x < z->c; x++) {
                g += y[x] * (double)v[key * z->c + x];
                a->dv[key * z->c + x] += p[j] * y[x];
            }
            g = p[j] * (g - delta);
            a->dbias[pair % z->h * (z->m + z->n - 1) + j - i + z->m - 1] += g;
            for (int64_t x = 0; x < z->w; x++) {
                a->dq[row * z->w + x] += SCALE * g * (double)k[key * z->w + x];
                a->dk[key * z->w + x] += SCALE * g * (double)q[row * z->w + x];
            }
        }
    }
    free(p);
}

/* The largest difference, relative to the largest number or 1. */
static double off(const tl_tensor *t, const double *from, int64_t len)
{
    double worst = 0, largest = 1;
    if (!t || tl_tensor_len(t) != len) return INFINITY;
    for (int64_t i = 0; i < len; i++) {
        double difference = fabs((double)tl_tensor_cf32(t)[i] - from[i]);
        if (!(difference <= worst)) worst = isnan(difference) ? INFINITY : difference;
        largest = fmax(largest, fabs(from[i]));
    }
    return worst / largest;
}

static void check_case(tl_ctx *ctx, const size *z, int mode, double tolerance)
{
    tl_tensor *in[INPUTS], *mask, *y = NULL;
    answer     a = answer_new(z);
    double    *d[] = {a.dq, a.dk, a.dv, a.dbias}, worst;
    make(ctx, z, in, &mask);
    tl_attention_options o = options(mode, in, mask);
    define(z, mode, in, mask, &a);
    CHECK_STATUS(tl_attention(in[0], in[1], in[2], &o, &y), TL_OK);
    worst = off(y, a.y, a.len[0]);
    CHECK_STATUS(tl_backward_from(ctx, y, y), TL_OK);
    for (int i = 0; i < (mode & BIAS ? 4 : 3); i++)
        worst = fmax(worst, off(tl_grad(in[i]), d[i], a.len[1 + i]));
    if (!(worst < tolerance))
        printf("m %lld, n %lld, w %lld, c %lld, mode %d: off by %g\n", (long long)z->m,
               (long long)z->n, (long long)z->w, (long long)z->c, mode, worst);
    CHECK(worst < tolerance);
    tl_tensor_free(y);
    drop(in, mask);
    answer_free(&a);
}

static void definition(void)
{
    static const int64_t lengths[] = {1, 2, 63, 64, 65, 200}, widths[] = {1, 8, 33, 64};
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    for (size_t i = 0; i < 6; i++)
        for (size_t w = 0; w < 4; w++)
            for (int mode = 0; mode < ALL; mode += STRIDE) {
                int64_t n = lengths[i], m = mode == WINDOW ? n / 2 + 1 : n;
                check_case(ctx, &(const size){2, n < 200 ? 2 : 1, m, n, widths[w], widths[3 - w]},
                           mode, 2e-5);
            }
    for (int mode = 0; mode < ALL; mode++) {
        check_case(ctx, &(const size){2, 1, 129, 513, 8, 3}, mode, 2e-5);
        check_case(ctx, &(const size){2, 1, 260, 50, 3, 8}, mode, 2e-5); /* fewer keys */
    }
    tl_ctx_free(ctx);
}

/* Products of operands rounded to 8 bits. */
static void low_precision(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    CHECK_STATUS(tl_set_precision(ctx, TL_PRECISION_BF16), TL_OK);
    for (int mode = 0; mode < ALL; mode++)
        check_case(ctx, &(const size){2, 2, 150, 150, 16, 16}, mode, 0.04);
    tl_ctx_free(ctx);
}

/* Scores far apart, and infinite and undefined ones, are as in a softmax. */
static void extremes(void)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *in[INPUTS], *mask, *y = NULL;
    const size z = {1, 1, 3, 300, 1, 1};
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    make(ctx, &z, in, &mask);
    tl_attention_options o = options(0, in, NULL);
    for (int i = 0; i < 3; i++) tl_tensor_f32(in[0])[i] = i == 0 ? 1e4f : i == 1 ? NAN : -1e4f;
    for (int i = 0; i < 300; i++) tl_tensor_f32(in[1])[i] = (float)i;
    CHECK_STATUS(tl_attention(in[0], in[1], in[2], &o, &y), TL_OK);
    CHECK(tl_tensor_cf32(y)[0] == tl_tensor_cf32(in[2])[299]); /* the maximum rises all along */
    CHECK(isnan(tl_tensor_cf32(y)[1]));
    CHECK(tl_tensor_cf32(y)[2] == tl_tensor_cf32(in[2])[0]);
    tl_tensor_free(y);
    drop(in, mask);
    tl_ctx_free(ctx);
}

/* ---- Dropout --------------------------------------------------------------------------------- */

/* The same weights are dropped as by tl_dropout of all weights, forward and backward. */
static void dropout(void)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *in[INPUTS], *mask, *y = NULL, *scaled = NULL, *s = NULL, *p = NULL, *kept = NULL;
    tl_tensor *want = NULL, *grads[3];
    const size z = {2, 2, 131, 131, 5, 7};
    tl_stream  one = tl_stream_new(3, "dropout"), other = one;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    make(ctx, &z, in, &mask);
    tl_attention_options o = options(CAUSAL, in, NULL);
    CHECK_STATUS(tl_affine(in[0], SCALE, 0, &scaled), TL_OK);
    CHECK_STATUS(tl_matmul(scaled, 0, in[1], 1, &s), TL_OK);
    CHECK_STATUS(tl_softmax(s, 1, &p), TL_OK);
    CHECK_STATUS(tl_dropout(p, 0.3, &one, &kept), TL_OK);
    CHECK_STATUS(tl_matmul(kept, 0, in[2], 0, &want), TL_OK);
    CHECK_STATUS(tl_backward_from(ctx, want, want), TL_OK);
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(tl_affine(tl_grad(in[i]), 1, 0, &grads[i]), TL_OK);
        CHECK_STATUS(tl_set_grad(in[i], NULL), TL_OK);
    }
    o.dropout = 0.3;
    CHECK_STATUS(tl_attention(in[0], in[1], in[2], &o, &y), TL_EINVAL); /* without a stream */
    o.stream = &other;
    CHECK_STATUS(tl_attention(in[0], in[1], in[2], &o, &y), TL_OK);
    CHECK(one.offset == other.offset);
    CHECK(distance(y, want) < 1e-5);
    CHECK_STATUS(tl_backward_from(ctx, y, y), TL_OK);
    for (int i = 0; i < 3; i++) CHECK(distance(tl_grad(in[i]), grads[i]) < 1e-5);
    for (int i = 0; i < 3; i++) tl_tensor_free(grads[i]);
    tl_tensor *all[] = {y, scaled, s, p, kept, want};
    for (int i = 0; i < 6; i++) tl_tensor_free(all[i]);
    drop(in, mask);
    tl_ctx_free(ctx);
}

/* ---- Threads and memory ---------------------------------------------------------------------- */

/* Writes y and all gradients to out, one after another; returns how many numbers. */
static size_t everything(int threads, int mode, tl_precision_kind precision, float *out)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *in[INPUTS], *mask, *y = NULL;
    size_t     total = 0;
    CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
    CHECK_STATUS(tl_set_precision(ctx, precision), TL_OK);
    make(ctx, &(const size){1, 3, 300, 600, 17, 9}, in, &mask);
    tl_attention_options o = options(mode, in, mask);
    CHECK_STATUS(tl_attention(in[0], in[1], in[2], &o, &y), TL_OK);
    CHECK_STATUS(tl_backward_from(ctx, y, y), TL_OK);
    for (int i = -1; i < (mode & BIAS ? 4 : 3); i++) {
        const tl_tensor *t = i < 0 ? y : tl_grad(in[i]);
        memcpy(out + total, tl_tensor_cf32(t), (size_t)tl_tensor_len(t) * sizeof *out);
        total += (size_t)tl_tensor_len(t);
    }
    tl_tensor_free(y);
    drop(in, mask);
    tl_ctx_free(ctx);
    return total;
}

/* With 3 pairs, 1 and 3 threads go over pairs, the others over blocks. */
static void any_threads(void)
{
    enum { MAX_LEN = 100000 };
    static float one[MAX_LEN], other[MAX_LEN];
    for (int mode = 0; mode < MASK; mode += STRIDE)
        for (int low = 0; low < 2; low++) {
            tl_precision_kind precision = low ? TL_PRECISION_BF16 : TL_PRECISION_F32;
            size_t            total = everything(1, mode, precision, one);
            for (int threads = 2; threads <= 5; threads++) {
                CHECK(everything(threads, mode, precision, other) == total);
                CHECK(memcmp(one, other, total * sizeof *one) == 0);
            }
        }
}

/* The bytes that attention of n positions and its gradient take. */
static size_t taken(int64_t n)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *in[INPUTS], *mask, *y = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    make(ctx, &(const size){1, 1, n, n, 16, 16}, in, &mask);
    tl_attention_options o = options(CAUSAL | BIAS, in, mask);
    size_t before = tl_memory_info(ctx).live;
    tl_memory_reset_peak(ctx);
    CHECK_STATUS(tl_attention(in[0], in[1], in[2], &o, &y), TL_OK);
    CHECK_STATUS(tl_backward_from(ctx, y, y), TL_OK);
    size_t bytes = tl_memory_info(ctx).peak - before;
    tl_tensor_free(y);
    drop(in, mask);
    tl_ctx_free(ctx);
    return bytes;
}

static void memory(void)
{
    size_t half = taken(2000), whole = taken(4000), tile = (size_t)2 * 129 * 256 * sizeof(float);
    CHECK(whole <= 2 * half + tile);
    CHECK(whole < (size_t)4000 * 16 * sizeof(float) * 10); /* all scores: 250 such arrays */
}

int main(void)
{
    return run_tests((const test[]){{"its definition", definition},
                                    {"bf16", low_precision},
                                    {"extremes", extremes},
                                    {"dropout", dropout},
                                    {"any number of threads", any_threads},
                                    {"memory", memory},
                                    {0}});
}

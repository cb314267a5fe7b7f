/* test_conv.c - depthwise convolution against its definition. */
#include "tensors.h"

typedef struct shape {
    int64_t b, n, d, taps, origin;
} shape;

/* The worst difference from y[b,i,c] = sum over k of taps[k,c] x[b, i - (k - origin), c]. */
static double worst(const shape *s, const float *x, const float *taps, const float *y)
{
    double off = 0;
    for (int64_t e = 0; e < s->b * s->n * s->d; e++) {
        int64_t c = e % s->d, i = e / s->d % s->n, first = e - c - i * s->d;
        double  want = 0;
        for (int64_t k = 0; k < s->taps; k++) {
            int64_t at = i - (k - s->origin);
            if (at >= 0 && at < s->n)
                want += (double)taps[k * s->d + c] * (double)x[first + at * s->d + c];
        }
        off = worse(off, fabs(want - (double)y[e]));
    }
    return off;
}

static void against_definition(void)
{
    static const shape shapes[] = {
        {1, 1, 1, 1, 0}, {2, 7, 3, 1, 0}, {2, 7, 3, 4, 0},   {2, 7, 3, 4, 2},
        {1, 3, 2, 9, 0}, {1, 3, 2, 9, 4}, {1, 3, 2, 9, 8},   {3, 33, 65, 5, 2},
        {2, 0, 3, 2, 0}, {0, 4, 3, 2, 1}, {2, 4, 0, 2, 1},   {2, 200, 130, 32, 16},
    };
    for (int threads = 1; threads <= 3; threads += 2) {
        tl_ctx *ctx = NULL;
        CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const shape *s = shapes + i;
            tl_tensor   *x = normals(ctx, 3, (const int64_t[]){s->b, s->n, s->d}, 0, 1, 1);
            tl_tensor   *y = NULL;
            tl_tensor   *taps = normals(ctx, 2, (const int64_t[]){s->taps, s->d}, 0, 1, 2);
            CHECK_STATUS(tl_depthwise_conv(x, taps, s->origin, &y), TL_OK);
            CHECK(worst(s, tl_tensor_cf32(x), tl_tensor_cf32(taps), tl_tensor_cf32(y)) < 1e-5);
            tl_tensor_free(x);
            tl_tensor_free(y);
            tl_tensor_free(taps);
        }
        tl_ctx_free(ctx);
    }
}

/* What must not show in y: positions outside, other sequences, other channels, later positions. */
static void causal_does_not_look_ahead(void)
{
    const shape s = {2, 9, 2, 4, 0};
    tl_ctx     *ctx = NULL;
    tl_tensor  *y = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    tl_tensor *x = normals(ctx, 3, (const int64_t[]){s.b, s.n, s.d}, 0, 1, 1);
    tl_tensor *taps = normals(ctx, 2, (const int64_t[]){s.taps, s.d}, 0, 1, 2);
    tl_tensor_f32(x)[(0 * 9 + 5) * 2 + 1] = NAN; /* sequence 0, position 5, channel 1 */
    CHECK_STATUS(tl_depthwise_conv(x, taps, 0, &y), TL_OK);
    for (int64_t e = 0; e < tl_tensor_len(y); e++) {
        int64_t c = e % 2, i = e / 2 % 9, b = e / 18;
        CHECK(isnan(tl_tensor_cf32(y)[e]) == (b == 0 && c == 1 && i >= 5 && i < 9));
    }
    tl_tensor_free(x);
    tl_tensor_free(y);
    tl_tensor_free(taps);
    tl_ctx_free(ctx);
}

int main(void)
{
    return run_tests((const test[]){{"against its definition", against_definition},
                                    {"causal does not look ahead", causal_does_not_look_ahead},
                                    {0}});
}

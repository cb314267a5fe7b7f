/* tensors.h - tensors for tests: of zeros, of random numbers, and how far apart two are. */
#ifndef TL_TENSORS_H
#define TL_TENSORS_H

#include <stdlib.h>

#include "test.h"

static inline tl_tensor *zeros(tl_ctx *ctx, int ndim, const int64_t *dims)
{
    tl_tensor *t = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, ndim, dims, &t), TL_OK);
    if (!t) exit(1); /* nothing below can be said */
    return t;
}

static inline tl_tensor *uniforms(tl_ctx *ctx, int ndim, const int64_t *dims, double low,
                                  double high, uint64_t seed)
{
    tl_tensor *t = zeros(ctx, ndim, dims);
    tl_stream  s = tl_stream_new(seed, "test");
    CHECK_STATUS(tl_random_uniform(t, &s, low, high), TL_OK);
    return t;
}

static inline tl_tensor *normals(tl_ctx *ctx, int ndim, const int64_t *dims, double mean,
                                 double deviation, uint64_t seed)
{
    tl_tensor *t = zeros(ctx, ndim, dims);
    tl_stream  s = tl_stream_new(seed, "test");
    CHECK_STATUS(tl_random_normal(t, &s, mean, deviation), TL_OK);
    return t;
}

/* max |a - b| / max |b|; infinite if the sizes differ or a NaN is met. */
static inline double distance(const tl_tensor *a, const tl_tensor *b)
{
    double       worst = 0, largest = 0;
    const float *p = tl_tensor_cf32(a), *q = tl_tensor_cf32(b);
    if (tl_tensor_len(a) != tl_tensor_len(b)) return INFINITY;
    for (int64_t k = 0; k < tl_tensor_len(a); k++) {
        double difference = fabs((double)p[k] - (double)q[k]);
        if (!(difference <= 1e30)) return INFINITY;
        worst = fmax(worst, difference);
        largest = fmax(largest, fabs((double)q[k]));
    }
    return largest > 0 ? worst / largest : worst;
}

#endif

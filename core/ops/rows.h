/* rows.h - maxima, sums and dot products of one row, written so that compilers vectorise them. */
#ifndef TL_ROWS_H
#define TL_ROWS_H

#include <math.h>
#include <stdint.h>

#include "base/vecmath.h"

#define ROWS_LANES 64
#define ROWS_CHUNK 256 /* elements per float32 partial sum, which is added in float64 */

/* Returns the maximum and skips NaN, which shows in the sums that follow. The separate lanes let
** compilers vectorise, because they do not reorder a maximum that might meet NaN. */
static inline float row_max(const float *x, int64_t n)
{
    float   lane[ROWS_LANES];
    float   m = -INFINITY;
    int64_t i = 0;
    for (int l = 0; l < ROWS_LANES; l++) lane[l] = -INFINITY;
    for (; i + ROWS_LANES <= n; i += ROWS_LANES)
        for (int l = 0; l < ROWS_LANES; l++) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (int l = 0; l < ROWS_LANES; l++) m = lane[l] > m ? lane[l] : m;
    for (; i < n; i++) m = x[i] > m ? x[i] : m;
    return m;
}

/* Returns the sum of exp(x - top). */
static inline double row_exp_sum(const float *x, int64_t n, float top)
{
    double sum = 0;
    for (int64_t from = 0; from < n; from += ROWS_CHUNK) {
        int64_t to = n - from < ROWS_CHUNK ? n : from + ROWS_CHUNK;
        float   s = 0;
#pragma omp simd reduction(+ : s)
        for (int64_t i = from; i < to; i++) s += tl_expf(x[i] - top);
        sum += (double)s;
    }
    return sum;
}

/* Writes y = exp(x - top) and returns its sum; y may be x. */
static inline double row_exp(const float *x, float *y, int64_t n, float top)
{
    double sum = 0;
    for (int64_t from = 0; from < n; from += ROWS_CHUNK) {
        int64_t to = n - from < ROWS_CHUNK ? n : from + ROWS_CHUNK;
        float   s = 0;
#pragma omp simd reduction(+ : s)
        for (int64_t i = from; i < to; i++) {
            float e = tl_expf(x[i] - top);
            y[i] = e;
            s += e;
        }
        sum += (double)s;
    }
    return sum;
}

static inline double row_sum(const float *x, int64_t n)
{
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) s += (double)x[i];
    return s;
}

static inline double row_dot(const float *x, const float *y, int64_t n)
{
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) s += (double)x[i] * (double)y[i];
    return s;
}

#endif

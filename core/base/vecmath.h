/* vecmath.h - elementary functions without branches and calls, so that compilers vectorise loops
** over them. */
#ifndef TL_VECMATH_H
#define TL_VECMATH_H

#include <stdint.h>
#include <string.h>

/* Computes e^x to about 1.2 units in the last place: x = k ln 2 + r with |r| <= ln 2 / 2, a
** polynomial in r, scaled by 2^k. Below -86.9 the result is 0, above 88.7 infinity; NaN stays
** NaN. */
static inline float tl_expf(float x)
{
    /* 1.5 * 2^23: adding it leaves the rounded integer in the low bits */
    const float shift = 12582912.0f;
    float       c = x < -87.0f ? -87.0f : x;
    c = c > 88.72f ? 88.72f : c;
    float    t = c * 1.44269504f + shift, k = t - shift;
    float    r = c - k * 0.693145752f - k * 1.42860677e-6f;
    float    p = 1.98756912e-4f, scale;
    uint32_t bits;
    p = p * r + 1.39819994e-3f;
    p = p * r + 8.33345205e-3f;
    p = p * r + 4.16657962e-2f;
    p = p * r + 1.66666657e-1f;
    p = p * r + 5.0e-1f;
    p = p * r * r + r + 1.0f;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits + 126u) << 23; /* 2^(k-1), doubled below because 2^128 is out of range */
    memcpy(&scale, &bits, sizeof scale);
    p = p * scale * 2.0f;
    p = x < -86.9f ? 0.0f : p;
    p = x > 88.72f ? __builtin_inff() : p;
    return x != x ? x : p;
}

static inline float tl_sigmoidf(float x) { return 1.0f / (1.0f + tl_expf(-x)); }

/* Uses e^-2|x| where |x| is large enough, and an odd polynomial near 0, where e^-2|x| would
** cancel. */
static inline float tl_tanhf(float x)
{
    float a = x < 0 ? -x : x, e = tl_expf(-2.0f * a), s = x * x;
    float far = (1.0f - e) / (1.0f + e);
    float near = a * (1.0f + s * (-0.333333333f + s * (0.133333333f + s * (-0.0539682540f +
                 s * (0.0218694885f - s * 0.00886323553f)))));
    float y = a < 0.3f ? near : far;
    return x < 0 ? -y : y;
}

/* Computes e^x - 1 for x <= 0 from t = tanh(x/2), so that nothing cancels near 0. */
static inline float tl_expm1f(float x)
{
    float t = tl_tanhf(0.5f * x);
    return 2.0f * t / (1.0f - t);
}

#define TL_WAVE_LIMIT 120.0f

/* The sine of y (quarter 0), or its cosine (quarter 1), for |y| < TL_WAVE_LIMIT, by the formulas of
** sinf and cosf in glibc (and in Arm's optimized routines), in float64, with their bits, but for
** about one in ten million where glibc has FMA and this build has not: y is n quarter turns and a
** rest x. The factor is 2^24 2 / pi, which rounds n without a branch. */
static inline float tl_wavef(float y, int quarter)
{
    double  x = (double)y;
    int32_t n = ((int32_t)(x * 0x1.45F306DC9C883p+23) + 0x800000) >> 24;
    x = x - n * 0x1.921FB54442D18p0;
    double odd = (n + 1) & 2 ? -x : x, x2 = x * x, x3 = odd * x2, x4 = x2 * x2;
    double s = odd + x3 * -0x1.555545995a603p-3;
    double sine = s + x3 * x2 * (0x1.1107605230bc4p-7 + x2 * -0x1.994eb3774cf24p-13);
    double c = 1 + x2 * -0x1.ffffffd0c621cp-2 + x4 * 0x1.55553e1068f19p-5;
    double cosine = c + x4 * x2 * (-0x1.6c087e89a359dp-10 + x2 * 0x1.99343027bf8c3p-16);
    cosine = n & 2 ? -cosine : cosine;
    float f = (float)((n + quarter) & 1 ? cosine : sine);
    return quarter == 0 && (y < 0 ? -y : y) < 0x1p-12f ? y : f; /* keeps the sign of 0 */
}

#endif

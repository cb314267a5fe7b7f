/* unary.h - defines the functions of TL_UNARY_MAP and their derivatives for one element.
**
** CPU loops pass kind as a constant, so that the compiler makes a loop for each formula;
** TL_EVERY_KIND expands to a switch over these loops. */
#ifndef TL_UNARY_H
#define TL_UNARY_H

#include <math.h>

#include "toeplab.h"

#ifndef INLINE /* unary.cuh defines its own, and CUDA's functions for vecmath.h's */
#include "base/vecmath.h"
#define INLINE static inline __attribute__((always_inline))
#endif

INLINE float unary_value(tl_unary_kind kind, float x)
{
    switch (kind) {
    case TL_UNARY_identity: return x;
    case TL_UNARY_neg: return -x;
    case TL_UNARY_abs: return fabsf(x);
    case TL_UNARY_square: return x * x;
    case TL_UNARY_sqrt: return sqrtf(x);
    case TL_UNARY_rsqrt: return 1.0f / sqrtf(x);
    case TL_UNARY_reciprocal: return 1.0f / x;
    case TL_UNARY_exp: return tl_expf(x);
    case TL_UNARY_log: return logf(x);
    case TL_UNARY_sin: return sinf(x);
    case TL_UNARY_cos: return cosf(x);
    case TL_UNARY_tanh: return tl_tanhf(x);
    case TL_UNARY_sigmoid: return tl_sigmoidf(x);
    case TL_UNARY_relu: return x > 0 ? x : x != x ? x : 0.0f;
    case TL_UNARY_relu2: return x > 0 ? x * x : x != x ? x : 0.0f;
    case TL_UNARY_leaky_relu: return x > 0 ? x : 0.01f * x;
    case TL_UNARY_elu: return x > 0 ? x : tl_expm1f(x);
    case TL_UNARY_elu1: return x > 0 ? x + 1.0f : tl_expf(x);
    case TL_UNARY_elu2: return x > 0 ? x + 2.0f : 1.0f + tl_expf(x);
    case TL_UNARY_silu: return x * tl_sigmoidf(x);
    case TL_UNARY_gelu: return 0.5f * x * (1.0f + erff(x * 0.707106781f));
    case TL_UNARY_gelu_tanh:
        return 0.5f * x * (1.0f + tl_tanhf(0.797884561f * (x + 0.044715f * x * x * x)));
    case TL_UNARY_softplus: return (x > 0 ? x : 0.0f) + log1pf(tl_expf(-fabsf(x)));
    case TL_UNARY_KINDS: break;
    }
    return x;
}

INLINE float silu_slope(float x)
{
    float s = tl_sigmoidf(x);
    return s * (1.0f + x * (1.0f - s));
}

/* The bound is beyond where the slope is 0 or 1 but keeps x^2 finite: t^2 is 1 there, and 0 times
** infinity would be NaN. Bounding x leaves the rounding of all other slopes as it is. */
INLINE float gelu_tanh_slope(float x)
{
    x = x > 1e18f ? 1e18f : x < -1e18f ? -1e18f : x;
    float u = 0.797884561f * (x + 0.044715f * x * x * x), t = tl_tanhf(u);
    return 0.5f * (1.0f + t) +
           0.5f * x * (1.0f - t * t) * 0.797884561f * (1.0f + 3.0f * 0.044715f * x * x);
}

INLINE float unary_slope(tl_unary_kind kind, float x)
{
    switch (kind) {
    case TL_UNARY_identity: return 1.0f;
    case TL_UNARY_neg: return -1.0f;
    case TL_UNARY_abs: return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
    case TL_UNARY_square: return 2.0f * x;
    case TL_UNARY_sqrt: return 0.5f / sqrtf(x);
    case TL_UNARY_rsqrt: return -0.5f / (x * sqrtf(x));
    case TL_UNARY_reciprocal: return -1.0f / (x * x);
    case TL_UNARY_exp: return tl_expf(x);
    case TL_UNARY_log: return 1.0f / x;
    case TL_UNARY_sin: return cosf(x);
    case TL_UNARY_cos: return -sinf(x);
    case TL_UNARY_tanh: return 1.0f - tl_tanhf(x) * tl_tanhf(x);
    case TL_UNARY_sigmoid: return tl_sigmoidf(x) * (1.0f - tl_sigmoidf(x));
    case TL_UNARY_relu: return x > 0 ? 1.0f : 0.0f;
    case TL_UNARY_relu2: return x > 0 ? 2.0f * x : 0.0f;
    case TL_UNARY_leaky_relu: return x > 0 ? 1.0f : 0.01f;
    case TL_UNARY_elu:
    case TL_UNARY_elu1:
    case TL_UNARY_elu2: return x > 0 ? 1.0f : tl_expf(x);
    case TL_UNARY_silu: return silu_slope(x);
    case TL_UNARY_gelu:
        return 0.5f * (1.0f + erff(x * 0.707106781f)) + x * 0.398942280f * tl_expf(-0.5f * x * x);
    case TL_UNARY_gelu_tanh: return gelu_tanh_slope(x);
    case TL_UNARY_softplus: return tl_sigmoidf(x);
    case TL_UNARY_KINDS: break;
    }
    return 1.0f;
}

/* A switch with one case per kind; loop is a macro of (name, text), as in TL_UNARY_MAP. */
#define TL_EVERY_KIND(kind, loop)                                                                  \
    switch (kind) {                                                                                \
        TL_UNARY_MAP(loop)                                                                         \
    case TL_UNARY_KINDS: break;                                                                    \
    }

#endif

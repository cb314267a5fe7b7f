/* unary.cuh - the functions of TL_UNARY_MAP and their derivatives on a card, as core/unary.h has
** them. kind is the same in all threads of a launch. */
#ifndef TL_UNARY_CUH
#define TL_UNARY_CUH

#include "cuda.cuh"

static __device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static __device__ float unary_value(int kind, float x)
{
    switch (kind) {
    case TL_UNARY_identity: return x;
    case TL_UNARY_neg: return -x;
    case TL_UNARY_abs: return fabsf(x);
    case TL_UNARY_square: return x * x;
    case TL_UNARY_sqrt: return sqrtf(x);
    case TL_UNARY_rsqrt: return 1.0f / sqrtf(x);
    case TL_UNARY_reciprocal: return 1.0f / x;
    case TL_UNARY_exp: return expf(x);
    case TL_UNARY_log: return logf(x);
    case TL_UNARY_sin: return sinf(x);
    case TL_UNARY_cos: return cosf(x);
    case TL_UNARY_tanh: return tanhf(x);
    case TL_UNARY_sigmoid: return sigmoid(x);
    case TL_UNARY_relu: return x > 0 ? x : x != x ? x : 0.0f;
    case TL_UNARY_relu2: return x > 0 ? x * x : x != x ? x : 0.0f;
    case TL_UNARY_leaky_relu: return x > 0 ? x : 0.01f * x;
    case TL_UNARY_elu: return x > 0 ? x : expm1f(x);
    case TL_UNARY_elu1: return x > 0 ? x + 1.0f : expf(x);
    case TL_UNARY_silu: return x * sigmoid(x);
    case TL_UNARY_gelu: return 0.5f * x * (1.0f + erff(x * 0.707106781f));
    case TL_UNARY_gelu_tanh:
        return 0.5f * x * (1.0f + tanhf(0.797884561f * (x + 0.044715f * x * x * x)));
    case TL_UNARY_softplus: return (x > 0 ? x : 0.0f) + log1pf(expf(-fabsf(x)));
    default: return x;
    }
}

static __device__ float gelu_tanh_slope(float x)
{
    float t = tanhf(0.797884561f * (x + 0.044715f * x * x * x));
    return 0.5f * (1.0f + t) +
           0.5f * x * (1.0f - t * t) * 0.797884561f * (1.0f + 3.0f * 0.044715f * x * x);
}

static __device__ float unary_slope(int kind, float x)
{
    float s;
    switch (kind) {
    case TL_UNARY_identity: return 1.0f;
    case TL_UNARY_neg: return -1.0f;
    case TL_UNARY_abs: return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
    case TL_UNARY_square: return 2.0f * x;
    case TL_UNARY_sqrt: return 0.5f / sqrtf(x);
    case TL_UNARY_rsqrt: return -0.5f / (x * sqrtf(x));
    case TL_UNARY_reciprocal: return -1.0f / (x * x);
    case TL_UNARY_exp: return expf(x);
    case TL_UNARY_log: return 1.0f / x;
    case TL_UNARY_sin: return cosf(x);
    case TL_UNARY_cos: return -sinf(x);
    case TL_UNARY_tanh: s = tanhf(x); return 1.0f - s * s;
    case TL_UNARY_sigmoid: s = sigmoid(x); return s * (1.0f - s);
    case TL_UNARY_relu: return x > 0 ? 1.0f : 0.0f;
    case TL_UNARY_relu2: return x > 0 ? 2.0f * x : 0.0f;
    case TL_UNARY_leaky_relu: return x > 0 ? 1.0f : 0.01f;
    case TL_UNARY_elu:
    case TL_UNARY_elu1: return x > 0 ? 1.0f : expf(x);
    case TL_UNARY_silu: s = sigmoid(x); return s * (1.0f + x * (1.0f - s));
    case TL_UNARY_gelu:
        return 0.5f * (1.0f + erff(x * 0.707106781f)) + x * 0.398942280f * expf(-0.5f * x * x);
    case TL_UNARY_gelu_tanh: return gelu_tanh_slope(x);
    case TL_UNARY_softplus: return sigmoid(x);
    default: return 1.0f;
    }
}

#endif

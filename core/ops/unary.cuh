/* unary.cuh - compiles the formulas of core/ops/unary.h for kernels, with CUDA's math functions.
** All threads of a launch have the same kind, so that the switch does not diverge. */
#ifndef TL_UNARY_CUH
#define TL_UNARY_CUH

#include "cuda/cuda.cuh"

#define INLINE static __device__

#define tl_expf   expf
#define tl_expm1f expm1f
#define tl_tanhf  tanhf
INLINE float tl_sigmoidf(float x) { return 1.0f / (1.0f + expf(-x)); }

#include "ops/unary.h"

#endif

/* runs.cuh - declares the sums over runs of tokens for the backend ski on a GPU. T = S + W A W',
** where W has width non-zeros in row i, from column start[i] on (ski.h).
**
** The tokens of a run have the same start; runs are numbered by it, from 0 to r-1, and may be
** empty. part[q] [b,r,d] is, for each run, the sum over its tokens of w_i[q] x_i; so row a of W' x
** is the sum over q of row a-q of part[q]. */
#ifndef TL_SKI_RUNS_CUH
#define TL_SKI_RUNS_CUH

#include "../common/apply.cuh"
#include "weights.h"

typedef struct ski_mesh {
    int64_t n, d, r;
    int width;
    int32_t *start, *first; /* [n]; [r+1]: run a has tokens first[a] .. first[a+1]-1 */
    float *weight;          /* [n,width] */
} ski_mesh;

typedef struct ski_parts { /* each array is [b,r,d] */
    float *part[WIDTH];
    float *all; /* W' x, called z in runs.cu */
} ski_parts;

/* Computes the parts of x [b,n,d]. */
tl_status ski_gpu_gather(tl_ctx *ctx, const ski_mesh *m, int64_t b, const float *x,
                         const ski_parts *to);

/* Apply the lower triangle of W A W', and its adjoints. A is lower triangular, with the lags kernel
** [r,d]. u provides `width` scratch buffers of [b,r,d]. */
tl_status ski_causal(tl_ctx *ctx, const ski_mesh *m, int64_t b, const float *kernel,
                     const ski_parts *of_x, float *const *u, const float *x, float *y); /* y += */
tl_status ski_causal_back(tl_ctx *ctx, const ski_mesh *m, int64_t b, const float *kernel,
                          const ski_parts *of_dy, float *const *u, const float *dy,
                          float *dx); /* dx += */
tl_status ski_causal_kernel(tl_ctx *ctx, const ski_mesh *m, int64_t b, const ski_parts *of_x,
                            const ski_parts *of_dy, const float *x, const float *dy,
                            float *dkernel);

#endif

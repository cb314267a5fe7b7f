/* fused.cuh - declares the right-angle convolution in one kernel: a block reads sequences, applies
** T in shared memory, and writes the results. A cache has the table of roots, then the spectra of
** the coefficients in the order of the passes. */
#ifndef FUSED_CUH
#define FUSED_CUH

#include "passes.cuh"
#include "tno/tno.cuh"

typedef struct fused {
    tl_ctx *ctx;
    int n, d;
    int zero, lags; /* of coef [lags,d]; row zero is lag 0 */
    shape apply;    /* of the blocks that apply T */
    shape sums;     /* of those that sum the gradient of coef */
    int points;     /* of a thread of them */
} fused;

/* Returns whether a block's shared memory holds a sequence; only then is *s set. */
int fused_set(fused *s, tl_ctx *ctx, int64_t n, int64_t d, int64_t zero, int64_t lags);
int64_t fused_longest(const tl_ctx *ctx); /* the n up to which one fits */
int64_t fused_cache_size(const fused *s); /* floats */
tl_status fused_forward(const fused *s, const tl_tno_args *a);
tl_status fused_backward(const fused *s, const tl_tno_args *a);

#endif

/* relaxed.h - declares the relaxed form of a causal Toeplitz operator, which relaxed.c computes. */
#ifndef TL_RELAXED_H
#define TL_RELAXED_H

#include "base/context.h"

typedef struct tl_relaxed tl_relaxed;

/* Creates the state of b sequences of d channels, each 0. all [lags,d] holds g^k t_k and is copied.
** positions: how many positions may follow the prompt; 0: any number. */
tl_status tl_relaxed_new(tl_ctx *ctx, const float *all, int64_t lags, int64_t d, int64_t b,
                         int64_t positions, tl_relaxed **out_s);
/* Creates another state for the kernel of s. TL_EINVAL: s and all other streams of its kernel have
** begun. */
tl_status tl_relaxed_fork(const tl_relaxed *s, tl_relaxed **out_s);
void tl_relaxed_free(tl_relaxed *s);
/* The next n positions, x and y [b,n,d]; y may be x. TL_EINVAL: no memory is left for them. */
tl_status tl_relaxed_step(tl_relaxed *s, const float *x, float *y, int64_t n);
void tl_relaxed_reset(tl_relaxed *s);
size_t tl_relaxed_state_bytes(const tl_relaxed *s);
size_t tl_relaxed_kernel_bytes(const tl_relaxed *s);

#endif

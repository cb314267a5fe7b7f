/* tile.h - declares the Toeplitz operators that relaxed.c and lazy.c compute by a backend. */
#ifndef TL_TILE_H
#define TL_TILE_H

#include "tno/lanes.h"
#include "tno/plan.h"

/* A plan and the host that it sees: its threads, or the caller's alone. */
typedef struct tl_hosted_plan {
    tl_host host;
    tl_plan plan;
} tl_hosted_plan;

/* Opens an operator for sequences of n positions, by a backend that caches the transform of its
** coefficients, one per lag. It runs on one thread, the caller's, if alone is set or the operator
** is small. o must stay where it is until its plan is closed. */
tl_status tl_hosted_plan_open(tl_ctx *ctx, int64_t n, int64_t channels, int causal, int alone,
                              tl_hosted_plan *o);

/* The operator of all tiles of one size and width, with buffers for an input and a result.
** Recurrences share it, because the scratch buffers of a large plan exceed the state of a narrow
** layer. */
typedef struct tl_tile_plan {
    int                  refs;
    int                  owner; /* 0: relaxed.c, or which thread of lazy.c, from 1 on */
    tl_hosted_plan       hosted;
    float               *x, *y; /* [q,width]; x only for lazy.c */
    struct tl_tile_plan *next;
} tl_tile_plan;

tl_status tl_tile_plan_find(tl_ctx *ctx, int64_t q, int64_t width, int owner,
                            tl_tile_plan **out_p);
void tl_tile_plan_drop(tl_ctx *ctx, tl_tile_plan *p); /* NULL is harmless */
/* Allocates and fills the cache of a plan from coef [2q-1,width]. Overwrites y of the plan. */
tl_status tl_tile_plan_cache(tl_ctx *ctx, tl_tile_plan *p, const float *coef, float **out_cache);

/* to [count,channels] = the rows of a kernel [lags,d] from row `first` on and its channels from
** `channel` on; 0 where the kernel has no such row or channel. */
void tl_kernel_part(const float *kernel, int64_t lags, int64_t d, int64_t first, int64_t count,
                    int64_t channel, int64_t channels, float *to);

#endif

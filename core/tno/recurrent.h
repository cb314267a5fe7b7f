/* recurrent.h - what recurrent.c and etsc.c share. */
#ifndef TL_RECURRENT_H
#define TL_RECURRENT_H

#include "base/context.h"

#define LANE 16 /* channels side by side; a lane of them is a task for a thread */

struct tl_recurrence {
    tl_ctx              *ctx;
    tl_recurrence_kind   kind;
    int64_t              b, d, lanes;
    int64_t              lags;
    int64_t              m;     /* of the ring, or the period of the modes */
    int64_t              first; /* number of the first mode kept */
    int64_t              rows;  /* of the kernel in a lane: lags, or twice the modes kept */
    int64_t              at;    /* where in the ring the next input goes */
    int64_t              seen;  /* inputs in the ring */
    float               *kernel; /* [lanes, rows, LANE]: g^k t_k, or b_j real and imaginary */
    float               *decay;  /* [lanes, 2, LANE]: r, r^m */
    float               *turn;   /* [modes, 4]: e^(-2 pi i j / m) real and imaginary, their rests */
    float               *modes;  /* [b, lanes, rows, LANE]: u_j real and imaginary */
    float               *inputs; /* [b, lanes, m, LANE]: the ring, or NULL */
};

/* Where channel c stands in row number row of an array [lanes, rows, LANE]. */
static inline int64_t tl_lane_at(int64_t rows, int64_t row, int64_t c)
{
    return (c / LANE * rows + row) * LANE + c % LANE;
}

/* TL_EINVAL unless kind and the sizes can be. */
tl_status tl_recurrence_check(tl_ctx *ctx, tl_recurrence_kind kind, int64_t b, int64_t d,
                              int64_t rows);
/* Memory for kind, with the decay r [d] of its modes (unused by a ring); state 0, and the kernel is
** still to be filled. */
tl_status tl_recurrence_make(tl_ctx *ctx, tl_recurrence_kind kind, int64_t b, int64_t d,
                             int64_t lags, int64_t m, const float *decay, tl_recurrence **out_r);

#endif

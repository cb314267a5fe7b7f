/* recurrent.h - declares the state of a recurrence, which etsc.c fills and recurrent.c steps. */
#ifndef TL_RECURRENT_H
#define TL_RECURRENT_H

#include "tno/relaxed.h"
#include "tno/tile.h"

struct tl_recurrence {
    tl_ctx              *ctx;
    tl_recurrence_kind   kind;
    int64_t              b, d, lanes;
    int64_t              lags;
    int64_t              m;     /* rows of the ring, or period of the modes */
    int64_t              first; /* number of the first mode in use */
    int64_t              rows;  /* of the kernel in a lane: lags, or twice the number of modes */
    int64_t              at;    /* row of the ring for the next input */
    int64_t              seen;  /* inputs in the ring */
    int                 *forks; /* how many recurrences share kernel, decay and turn */
    float               *kernel; /* [lanes, rows, LANE]: g^k t_k, or b_j real and imaginary */
    float               *decay;  /* [lanes, 2, LANE]: r, r^m */
    float               *turn;   /* [modes, 4]: e^(-2 pi i j / m), and the rounding error of it */
    float               *modes;  /* [b, lanes, rows, LANE]: u_j real and imaginary */
    float               *inputs; /* [b, lanes, m, LANE]: the ring, or NULL */
    tl_relaxed          *relaxed; /* kernel and state of a relaxed one; the arrays are NULL */
};

/* The index of channel c in row number `row` of an array [lanes, rows, LANE]. */
static inline int64_t tl_lane_at(int64_t rows, int64_t row, int64_t c)
{
    return (c / LANE * rows + row) * LANE + c % LANE;
}

/* TL_EINVAL unless kind and the sizes are valid. */
tl_status tl_recurrence_check(tl_ctx *ctx, tl_recurrence_kind kind, int64_t b, int64_t d,
                              int64_t rows);
/* Allocates a recurrence with state 0, whose kernel the caller fills. decay [d] holds the decay r
** of the modes; a ring ignores it. */
tl_status tl_recurrence_make(tl_ctx *ctx, tl_recurrence_kind kind, int64_t b, int64_t d,
                             int64_t lags, int64_t m, const float *decay, tl_recurrence **out_r);

#endif

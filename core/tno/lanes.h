/* lanes.h - arrays [.., lanes, rows, LANE], where LANE channels lie side by side and are computed
** as a vector, and recurrences whose kernel and state are such arrays. */
#ifndef TL_LANES_H
#define TL_LANES_H

#include "engine/tensor.h"

#define LANE 16

static inline int64_t tl_lanes(int64_t d) { return (d + LANE - 1) / LANE; }

/* The index of channel c in row number `row` of an array [lanes, rows, LANE]. */
static inline int64_t tl_lane_at(int64_t rows, int64_t row, int64_t c)
{
    return (c / LANE * rows + row) * LANE + c % LANE;
}

/* What a recurrence in lanes begins with. Its memory and positions are 0 at the start. Kernel and
** memory are where the last step was computed, so that members hold no pointers into them. */
typedef struct tl_lane_state {
    size_t     bytes; /* of the struct that this begins */
    tl_ctx    *ctx;
    int64_t    b, d;   /* sequences, channels */
    int64_t    at;     /* row of the last inputs for the next one */
    int64_t    seen;   /* inputs in the memory */
    tl_tensor *kernel; /* shared with forks */
    tl_tensor *memory;
} tl_lane_state;

/* Allocates a state with a kernel and a memory of these numbers of elements, all 0. size: bytes of
** the struct */
tl_status tl_lanes_new(tl_ctx *ctx, size_t size, int64_t b, int64_t d, int64_t kernel,
                       int64_t memory, void **out_state);
/* Computes y of one position from x in lane number i, of all lanes of all sequences. */
typedef void (*tl_lane_body)(const void *state, int64_t i, int64_t at, int64_t seen,
                             float x[LANE], float y[LANE]);
/* Steps a form that stores the last `rows` inputs and computes a position by body. work: the
** products of a lane for a position */
tl_status tl_lanes_step(void *state, const float *x, float *y, int64_t n, int64_t rows,
                        int64_t work, tl_lane_body body);
/* Counts n positions more of a state that stores the last `rows` inputs. */
TL_PRIVATE void tl_lanes_advance(void *state, int64_t n, int64_t rows);

/* n positions of a recurrence in lanes, for the kernel of a device. */
typedef struct tl_lane_job {
    void        *state;    /* of the form */
    int64_t      b, d, n;
    int64_t      stride;   /* elements between two sequences of x and y */
    int64_t      rows, at, seen;
    int64_t      modes;    /* of etsc; 0: a ring */
    int64_t      inputs;   /* where the inputs of etsc begin in memory; 0: it stores none */
    const float *kernel, *x;
    float       *memory, *y; /* y may be x */
} tl_lane_job;

/* Functions of a form (recurrent.h). */
void tl_lanes_reset(void *state);
tl_status tl_lanes_fork(const void *state, void **out_state);
void tl_lanes_release(void *state);
void tl_lanes_sizes(const void *state, tl_recurrence_size *out_size);

/* The decay of channel c; 1 without gamma, which has one element or d. */
static inline float tl_gamma_of(const tl_tensor *gamma, int64_t c)
{
    return gamma ? F32(gamma)[gamma->len > 1 ? c : 0] : 1;
}

/* Returns gamma^k t_k as [lags,d]; NULL: out of memory. tl_release frees it. */
float *tl_decayed_kernel(const tl_tensor *t, const tl_tensor *gamma);

#endif

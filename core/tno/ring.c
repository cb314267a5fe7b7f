/* ring.c - a causal Toeplitz operator one position at a time, from a ring buffer of the last inputs
** (see lanes.h for the arrays). */
#include <string.h>

#include "base/memory.h"
#include "tno/recurrent.h"

#define LAGS 256 /* lags whose sum is added to the total at once */

typedef struct ring {
    tl_lane_state s; /* kernel [lanes, lags, LANE]: g^k t_k   memory [b, lanes, lags, LANE] */
    int64_t       lags;
} ring;

/* sum[e] += the sum of t[k] x[-k] over k < count, for a lane of channels. */
static inline void dot(const float *t, const float *x, int64_t count, float sum[LANE])
{
    float   s0[LANE] = {0}, s1[LANE] = {0}, s2[LANE] = {0}, s3[LANE] = {0};
    int64_t k = 0;
    for (; k + 4 <= count; k += 4, t += 4 * LANE, x -= 4 * LANE)
        for (int e = 0; e < LANE; e++) {
            s0[e] += t[e] * x[e];
            s1[e] += t[LANE + e] * x[e - LANE];
            s2[e] += t[2 * LANE + e] * x[e - 2 * LANE];
            s3[e] += t[3 * LANE + e] * x[e - 3 * LANE];
        }
    for (; k < count; k++, t += LANE, x -= LANE)
        for (int e = 0; e < LANE; e++) s0[e] += t[e] * x[e];
    for (int e = 0; e < LANE; e++) sum[e] += (s0[e] + s1[e]) + (s2[e] + s3[e]);
}

/* As dot, in parts: one sum over thousands of lags would lose digits. */
static void dot_parts(const float *t, const float *x, int64_t count, float sum[LANE])
{
    for (; count > LAGS; count -= LAGS, t += LAGS * LANE, x -= LAGS * LANE) dot(t, x, LAGS, sum);
    dot(t, x, count, sum);
}

/* y = the kernel times the `seen` inputs in the ring, of which the newest is in row `at`. */
static void sum_ring(const float *kernel, const float *inputs, int64_t m, int64_t at, int64_t seen,
                     float y[LANE])
{
    int64_t before = seen < at + 1 ? seen : at + 1; /* rows at, at-1, .. 0 and then m-1, .. */
    for (int e = 0; e < LANE; e++) y[e] = 0;
    dot_parts(kernel, inputs + at * LANE, before, y);
    dot_parts(kernel + before * LANE, inputs + (m - 1) * LANE, seen - before, y);
}

static void ring_body(const void *state, int64_t i, int64_t at, int64_t seen, float x[LANE],
                      float y[LANE])
{
    const ring  *r = state;
    const float *taps = F32(r->s.kernel) + i % tl_lanes(r->s.d) * r->lags * LANE;
    float       *inputs = F32(r->s.memory) + i * r->lags * LANE;
    memcpy(inputs + at * LANE, x, LANE * sizeof *x);
    sum_ring(taps, inputs, r->lags, at, seen, y);
}

static tl_status ring_step(void *state, const float *x, float *y, int64_t n)
{
    int64_t lags = ((const ring *)state)->lags;
    return tl_lanes_step(state, x, y, n, lags, lags * LANE, ring_body);
}

static tl_status ring_create(const tl_tensor *t, const tl_tensor *gamma, tl_recurrence_kind kind,
                             int64_t b, int64_t positions, void **out_state)
{
    int64_t   lags = t->dims[0], d = t->dims[1], floats = tl_lanes(d) * lags * LANE;
    float    *all = tl_decayed_kernel(t, gamma);
    void     *state = NULL;
    tl_status st = all ? tl_lanes_new(t->ctx, sizeof(ring), b, d, floats, b * floats, &state)
                       : TL_ENOMEM;
    (void)kind;
    (void)positions;
    ring *r = *out_state = state;
    if (st == TL_OK) r->lags = lags;
    for (int64_t i = 0; i < t->len && st == TL_OK; i++)
        F32(r->s.kernel)[tl_lane_at(lags, i / d, i % d)] = all[i];
    tl_release(t->ctx, all);
    return st;
}

static void ring_job(const void *state, tl_lane_job *out)
{
    out->rows = ((const ring *)state)->lags;
}

const tl_recurrence_form tl_ring_form = {
    "a ring", ring_create, ring_step, tl_lanes_reset, tl_lanes_fork, tl_lanes_release,
    tl_lanes_sizes, NULL, ring_job};

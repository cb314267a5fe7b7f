/* lanes.c - the parts that ring.c and etsc.c share: the memory of a recurrence in lanes, its forks,
** and the loop over positions. It also makes the decayed kernel gamma^k t_k (TNN, Eq. 5) for ring.c
** and relaxed.c.
**
** A position depends on those before it, but channels and sequences do not depend on each other. So
** the outer loop, which threads share, runs over lanes of all sequences, and the inner one over
** positions: the state of a lane, which is contiguous, is read again while it is in the cache. The
** last lane is padded with zeros to LANE channels, so that loops over channels have a constant
** length and the compiler makes vectors of them. */
#include "tno/lanes.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"

#define GRAIN (1 << 19) /* products that justify another thread: a tenth of a millisecond */

static tl_status zeros(tl_ctx *ctx, int64_t count, tl_tensor **out_t)
{
    tl_status st = tl_tensor_new_host(ctx, TL_F32, 1, &count, out_t);
    if (st != TL_OK) return st;
    tl_scope_leave(*out_t);
    memset(DATA(*out_t), 0, (size_t)count * sizeof(float));
    return TL_OK;
}

void tl_lanes_release(void *state)
{
    tl_lane_state *s = state;
    tl_tensor_free(s->kernel);
    tl_tensor_free(s->memory);
    free(s);
}

tl_status tl_lanes_new(tl_ctx *ctx, size_t size, int64_t b, int64_t d, int64_t kernel,
                       int64_t memory, void **out_state)
{
    tl_lane_state *s = calloc(1, size);
    if (!s) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    *s = (tl_lane_state){.bytes = size, .ctx = ctx, .b = b, .d = d};
    tl_status st = zeros(ctx, kernel, &s->kernel);
    if (st == TL_OK) st = zeros(ctx, memory, &s->memory);
    if (st == TL_OK)
        *out_state = s;
    else
        tl_lanes_release(s);
    return st;
}

void tl_lanes_reset(void *state)
{
    tl_lane_state *s = state;
    (void)tl_tensor_fill(s->memory, 0); /* fails only on a device that the next step finds broken */
    s->at = s->seen = 0;
}

/* The struct is copied as a whole, with the members of the form. The fork shares the kernel. Its
** memory is new, so the fork is before its first position. */
tl_status tl_lanes_fork(const void *state, void **out_state)
{
    const tl_lane_state *from = state;
    tl_lane_state       *s = malloc(from->bytes);
    if (!s) return tl_fail(from->ctx, TL_ENOMEM, "out of memory");
    memcpy(s, from, from->bytes);
    s->kernel = tl_tensor_retain(from->kernel);
    s->memory = NULL;
    s->at = s->seen = 0;
    tl_status st = zeros(s->ctx, from->memory->len, &s->memory);
    if (st == TL_OK)
        *out_state = s;
    else
        tl_lanes_release(s);
    return st;
}

typedef struct job {
    const tl_lane_state *s;
    const float         *x;
    float               *y;
    int64_t              n, rows;
    tl_lane_body         body;
} job;

/* Computes all positions of lanes begin..end-1, which are counted through all sequences. Every lane
** begins at the same `at` and `seen`, which tl_lanes_step advances when all lanes are done. At each
** position x is copied before y is written, since y may be x. */
static void step_lanes(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    int64_t    d = j->s->d, lanes = tl_lanes(d);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t c = i % lanes * LANE, at = j->s->at, seen = j->s->seen;
        size_t  bytes = (size_t)(d - c < LANE ? d - c : LANE) * sizeof(float);
        for (int64_t p = 0; p < j->n; p++) {
            int64_t offset = (i / lanes * j->n + p) * d + c;
            float   x[LANE] = {0}, y[LANE];
            memcpy(x, j->x + offset, bytes);
            if (seen < j->rows) seen++;
            j->body(j->s, i, at, seen, x, y);
            memcpy(j->y + offset, y, bytes);
            at = at + 1 < j->rows ? at + 1 : 0;
        }
    }
}

/* The grain is the number of lanes whose positions take GRAIN products: a single position of a
** small layer stays on the calling thread, since starting others would take longer. */
tl_status tl_lanes_step(void *state, const float *x, float *y, int64_t n, int64_t rows,
                        int64_t work, tl_lane_body body)
{
    tl_lane_state *s = state;
    job            j = {s, x, y, n, rows, body};
    tl_parallel(s->ctx, s->b * tl_lanes(s->d), GRAIN / ((n + 1) * work) + 1, step_lanes, &j);
    tl_lanes_advance(s, n, rows);
    return TL_OK;
}

void tl_lanes_advance(void *state, int64_t n, int64_t rows)
{
    tl_lane_state *s = state;
    s->at = (s->at + n) % rows;
    s->seen = n < rows - s->seen ? s->seen + n : rows;
}

void tl_lanes_sizes(const void *state, tl_recurrence_size *out_size)
{
    const tl_lane_state *s = state;
    out_size->state_bytes = s->memory->storage->bytes;
    out_size->kernel_bytes = s->kernel->storage->bytes;
}

/* The powers of gamma are multiplied up in float64: in float32 their rounding errors would add up
** over thousands of lags. */
float *tl_decayed_kernel(const tl_tensor *t, const tl_tensor *gamma)
{
    int64_t d = t->dims[1];
    float  *all = tl_alloc(t->ctx, (size_t)t->len * sizeof *all);
    for (int64_t c = 0; all && c < d; c++) {
        double scale = 1, g = (double)tl_gamma_of(gamma, c);
        for (int64_t i = c; i < t->len; i += d, scale *= g) all[i] = (float)(F32(t)[i] * scale);
    }
    return all;
}

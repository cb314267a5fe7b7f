/* matrix.c - writes T out and multiplies by it, a block of rows at a time, so that memory grows
** with n and not n^2. Of a causal T only the columns up to the diagonal block are written. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "../common/lag.h"
#include "../common/tile.h"

#define BLOCK 128 /* rows of T at a time */
#define BATCH 32  /* sequences at a time */

typedef struct plan {
    const tl_host *h;
    int64_t        n, d, zero;
    int            causal;
    int64_t        each; /* floats of scratch per thread */
    float         *scratch;
} plan;

/* The scratch buffers of one thread, for one channel. */
typedef struct scratch {
    double *dcoef; /* [2n] */
    float  *t;     /* [2n]: lag k at zero + k */
    float  *block; /* [BLOCK,n] */
    float  *x, *y; /* [BATCH,n] */
} scratch;

typedef struct job {
    plan              *s;
    const tl_tno_args *a;
} job;

static scratch carve(const plan *s, int thread)
{
    float *p = s->scratch + thread * s->each;
    float *block = p + 6 * s->n, *x = block + BLOCK * s->n;
    return (scratch){(double *)p, p + 4 * s->n, block, x, x + BATCH * s->n};
}

static int matrix_accepts(const tl_tno_problem *p, char *why, size_t size)
{
    if (p->n <= INT_MAX) return 1;
    (void)snprintf(why, size, "its products have at most %d rows", INT_MAX);
    return 0;
}

static void matrix_release(void *state)
{
    plan *s = state;
    s->h->free(s->h, s->scratch);
    s->h->free(s->h, s);
}

static tl_status matrix_make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    int64_t each = ((6 + BLOCK + 2 * BATCH) * p->n + 15) / 16 * 16;
    plan   *s = h->alloc(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    *s = (plan){h, p->n, p->d, lag_zero(p), p->causal, each, NULL};
    size_t bytes = (size_t)(each * tile_threads(p->d, h->threads)) * sizeof *s->scratch;
    s->scratch = h->alloc(h, bytes);
    if (!s->scratch) {
        matrix_release(s);
        return TL_ENOMEM;
    }
    *out_plan = s;
    return TL_OK;
}

/* to[k] = from[k,c] for `count` rows */
static void gather(const float *from, int64_t count, int64_t d, int64_t c, float *to)
{
    for (int64_t k = 0; k < count; k++) to[k] = from[k * d + c];
}

static void scatter(const float *from, int64_t count, int64_t d, int64_t c, float *to)
{
    for (int64_t k = 0; k < count; k++) to[k * d + c] = from[k];
}

/* Writes rows first..first+rows-1 and columns 0..columns-1 of T, with leading dimension n. */
static void materialise(const plan *s, const float *t, int64_t first, int64_t rows, int64_t columns,
                        float *block)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t lag = first + r - j;
            block[r * s->n + j] = s->causal && lag < 0 ? 0 : t[s->zero + lag];
        }
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* y = T x for b sequences of one channel. */
static void matrix_apply(const plan *s, const scratch *w, int64_t b)
{
    for (int64_t i = 0; i < s->n; i += BLOCK) {
        int64_t rows = smaller(BLOCK, s->n - i), columns = s->causal ? i + rows : s->n;
        materialise(s, w->t, i, rows, columns, w->block);
        s->h->gemm(0, 1, b, rows, columns, 1, w->x, s->n, w->block, s->n, 0, w->y + i, s->n);
    }
}

/* x = the transpose of T times y. */
static void apply_transposed(const plan *s, const scratch *w, int64_t b)
{
    memset(w->x, 0, (size_t)(b * s->n) * sizeof *w->x);
    for (int64_t i = 0; i < s->n; i += BLOCK) {
        int64_t rows = smaller(BLOCK, s->n - i), columns = s->causal ? i + rows : s->n;
        materialise(s, w->t, i, rows, columns, w->block);
        s->h->gemm(0, 0, b, columns, rows, 1, w->y + i, s->n, w->block, s->n, 1, w->x, s->n);
    }
}

/* dcoef[lag] += the sum along its diagonal of dT, which is the sum over b of y x^T. */
static void add_diagonals(const plan *s, const scratch *w, int64_t b)
{
    for (int64_t i = 0; i < s->n; i += BLOCK) {
        int64_t rows = smaller(BLOCK, s->n - i), columns = s->causal ? i + rows : s->n;
        s->h->gemm(1, 0, rows, columns, b, 1, w->y + i, s->n, w->x, s->n, 0, w->block, s->n);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < (s->causal ? i + r + 1 : columns); j++)
                w->dcoef[s->zero + i + r - j] += w->block[r * s->n + j];
    }
}

static void forward_channels(void *user, int64_t begin, int64_t end, int thread)
{
    const job         *j = user;
    const plan        *s = j->s;
    const tl_tno_args *a = j->a;
    scratch            w = carve(s, thread);
    for (int64_t c = begin; c < end; c++) {
        gather(a->coef, s->zero + s->n, s->d, c, w.t);
        for (int64_t b = 0; b < a->b; b += BATCH) {
            int64_t count = smaller(BATCH, a->b - b), at = b * s->n * s->d;
            gather(a->x + at, count * s->n, s->d, c, w.x);
            matrix_apply(s, &w, count);
            scatter(w.y, count * s->n, s->d, c, a->y + at);
        }
    }
}

static void backward_channels(void *user, int64_t begin, int64_t end, int thread)
{
    const job         *j = user;
    const plan        *s = j->s;
    const tl_tno_args *a = j->a;
    scratch            w = carve(s, thread);
    int64_t            points = s->zero + s->n;
    for (int64_t c = begin; c < end; c++) {
        gather(a->coef, points, s->d, c, w.t);
        memset(w.dcoef, 0, (size_t)points * sizeof *w.dcoef);
        for (int64_t b = 0; b < a->b; b += BATCH) {
            int64_t count = smaller(BATCH, a->b - b), at = b * s->n * s->d;
            gather(a->dy + at, count * s->n, s->d, c, w.y);
            if (a->dcoef) {
                gather(a->x + at, count * s->n, s->d, c, w.x);
                add_diagonals(s, &w, count);
            }
            if (a->dx) {
                apply_transposed(s, &w, count);
                scatter(w.x, count * s->n, s->d, c, a->dx + at);
            }
        }
        for (int64_t k = 0; a->dcoef && k < points; k++)
            a->dcoef[k * s->d + c] = (float)w.dcoef[k];
    }
}

static tl_status matrix_forward(void *state, const tl_tno_args *a)
{
    plan *s = state;
    s->h->parallel(s->h, s->d, 1, forward_channels, &(job){s, a});
    return TL_OK;
}

static tl_status matrix_backward(void *state, const tl_tno_args *a)
{
    plan *s = state;
    s->h->parallel(s->h, s->d, 1, backward_channels, &(job){s, a});
    return TL_OK;
}

static tl_status matrix_dense(void *state, const tl_tno_args *a)
{
    const plan *s = state;
    lag_dense(s->n, s->d, s->causal, a->coef, a->dense);
    return TL_OK;
}

const tl_tno_backend tl_tno_backend_entry = {
    .abi = TL_TNO_ABI,
    .name = "matrix",
    .summary = "the matrix of each channel, written out and multiplied",
    .domain = "lag",
    .accepts = matrix_accepts,
    .points = lag_points,
    .plan = matrix_make,
    .forward = matrix_forward,
    .backward = matrix_backward,
    .dense = matrix_dense,
    .release = matrix_release,
    .auto_length = 128, /* since its work is O(n^2) */
};

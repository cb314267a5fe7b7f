/* ski.h - what the files of the backend ski share: its plan, and rows of channels side by side.
**
** T = S + W A W' in each channel (SKI, Algorithm 1). S is a band of taps. A [r,r] is Toeplitz: the
** kernel between r inducing points, evenly spaced. W [n,r] interpolates from them to the tokens and
** has two or four non-zeros in a row, which stand side by side.
**
** A tile is 1 to 8 groups of LANES channels; a block is up to BLOCK tokens of a tile. All work is
** on rows of LANES floats, copied out of x and into y a block at a time, so that every loop below
** runs along memory. The sums of the last d mod LANES channels are made in another order. */
#ifndef SKI_H
#define SKI_H

#include "backend.h"

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif
#define GROUPS 8
#define BLOCK  128
#define STEP   8 /* outputs of one inner loop; rows are padded to a multiple of it */
#define WIDTH  4 /* most non-zeros of a row of W */

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

typedef struct ski_plan {
    const tl_host *h;
    int64_t        n, d, r;
    int64_t        taps, origin; /* tap k is of lag k - origin; no taps: 0 */
    int64_t        lags, zero;   /* lags of A: -zero..r-1 */
    int64_t        points;
    int            causal, low;  /* low: whether there is W A W' */
    int            mean;         /* k(0) is the mean of two points */
    int            each_token;   /* causal: App. B's sums, renewed at each token */
    int            width;        /* non-zeros of a row of W */
    int32_t       *start;        /* [n] column of the first */
    float         *weight;       /* [n,width] */
    int64_t        size;         /* of the transforms that apply A; 0: directly */
    void          *there, *back; /* plans of theirs */
    const tl_transforms *transforms;
    int64_t        groups;       /* of a tile */
    int64_t        window;       /* rows of ski_group.x */
    int64_t        stride;       /* rows from one group's scratch to the next one's */
    int64_t        line;         /* floats of a transform */
    int64_t        each;         /* rows of scratch per thread */
    lanes         *scratch;
} ski_plan;

/* What one thread has for one group: rows of LANES, at the same places for each group. */
typedef struct ski_group {
    lanes  *x, *other;  /* [window], [BLOCK] of the block at hand */
    lanes  *taps;       /* [taps], the last lag first where forward */
    lanes  *kernel;     /* [lags] of A */
    lanes  *z, *g, *v;  /* [r]: W'x, W'dy, and A or A' times one of them; zeros around z and g */
    double *tap_sums;   /* [taps,LANES] gradients so far */
    double *kernel_sums; /* [lags,LANES] */
    float  *spectra;     /* [LANES,line] of kernel */
    lanes   pending[2][WIDTH]; /* causal: see causal.c */
    int64_t column;
} ski_group;

typedef struct ski_work {
    const ski_plan *s;
    int64_t         channels; /* of the tile */
    int64_t         groups;   /* that they fill */
    lanes          *out, *flip, *sums; /* [BLOCK], [r], [taps or lags] */
    float          *line[3];  /* of transforms */
    ski_group       group[GROUPS];
} ski_work;

static inline int64_t ski_up(int64_t rows) { return (rows + STEP - 1) / STEP * STEP; }

/* ---- rows.c ---------------------------------------------------------------------------------- */

/* What the next block will want: reads[0], reads[1] and writes rows of LANES floats, step apart, at
** most BLOCK. Fetched all at once they would be waited for; a few at a time between sums, not. */
typedef struct ski_ahead {
    const float *read[2], *write;
    int64_t      reads[2], writes, step;
} ski_ahead;

/* out[p] = sum over q < count of b[q] w[p+q], for p < rows rounded up to STEP: out and w have as
** many. ahead: fetched meanwhile, or NULL. */
void ski_correlate(const lanes *b, int64_t count, const lanes *w, int64_t rows, lanes *out,
                   const ski_ahead *ahead);
/* Rows first..first+count-1 of from [n,d], zero outside it, to each group; to is that of the first
** group. */
void ski_load(const ski_work *w, const float *from, int64_t n, int64_t first, int64_t count,
              lanes *to);
/* Rows of group g to [.,d]. */
void ski_store(const ski_work *w, int64_t g, const lanes *rows, int64_t count, float *to);
/* z += W' x for tokens first..first+count-1 (at most BLOCK) of x [n,d], in all groups: z is that of
** the first */
void ski_gather(const ski_work *w, const float *x, int64_t first, int64_t count, lanes *z);
/* the same in one group, whose rows of these tokens are x */
void ski_gather_rows(const ski_plan *s, const lanes *x, int64_t first, int64_t count, lanes *z);
/* the same tokens of y [n,d], in group g = rows + W v; rows may be overwritten */
void ski_spread(const ski_work *w, int64_t g, int64_t first, int64_t count, const lanes *v,
                lanes *rows, float *y);
void ski_add(double *sums, const lanes *rows, int64_t count);

/* ---- kernel.c: A ----------------------------------------------------------------------------- */

void ski_prepare(ski_work *w, ski_group *g);    /* once kernel is there */
void ski_multiply(ski_work *w, ski_group *g);   /* v = A z */
void ski_transpose(ski_work *w, ski_group *g);  /* v = A' g */
void ski_kernel_sums(ski_work *w, ski_group *g); /* kernel_sums += those of g z' */

/* ---- causal.c -------------------------------------------------------------------------------- */

/* A sequence begins with z, v and pending 0 and column -1. */
void ski_causal_forward(const ski_plan *s, ski_group *g, int64_t first, int64_t count,
                        const lanes *x, lanes *y);
void ski_causal_back(const ski_plan *s, ski_group *g, int64_t first, int64_t count,
                     const lanes *dy, lanes *dx);
void ski_causal_sums(const ski_plan *s, ski_group *g, int64_t first, int64_t count, const lanes *x,
                     const lanes *dy);

/* ---- apply.c --------------------------------------------------------------------------------- */

tl_status ski_forward(void *plan, const tl_tno_args *a);
tl_status ski_backward(void *plan, const tl_tno_args *a);
tl_status ski_dense(void *plan, const tl_tno_args *a);
void      ski_layout(ski_plan *s); /* sets window, stride, line and each */

/* ---- weights.c ------------------------------------------------------------------------------- */

typedef struct ski_grid { /* where the inducing points are, and how to interpolate */
    int64_t n, r, span;   /* points a span/(r-1) */
    int     cubic, as_published;
    double  lambda;
} ski_grid;

int  ski_width(const ski_grid *g);
void ski_weights(const ski_grid *g, int32_t *start, float *weight);

#endif

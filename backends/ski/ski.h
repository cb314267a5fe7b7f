/* ski.h - declares the plan of the backend ski and its loops over rows of channels.
**
** T = S + W A W' in each channel (SKI, Algorithm 1). S is a band of taps. A [r,r] is the Toeplitz
** matrix of the kernel between r evenly spaced inducing points. W [n,r] interpolates from them to
** the tokens; each row has two or four adjacent non-zeros.
**
** A tile is 1 to 8 groups of LANES channels; a block is up to BLOCK tokens of a tile. All loops run
** over contiguous rows of LANES floats, which are copied from x and to y a block at a time: in x
** rows are d floats apart, at which distance they may share a few cache sets. What the sums over
** the taps touch in one block and group, BLOCK + taps rows of x, the taps and BLOCK rows of y,
** takes 20 KiB with AVX-512 and 32 taps and fits into an L1 cache of 32 KiB. A tile has several
** groups so that more of each row of x is read at a time: 512 adjacent bytes with AVX-512, where
** one group alone would take 64.
**
** The last d mod LANES channels are summed in another order. */
#ifndef SKI_H
#define SKI_H

#include "backend.h"
#include "weights.h"

/* As wide as a register: where that has 4 floats, vectors of 8 take up to 1.8 times as long. */
#if defined __AVX512F__
#define LANES 16
#elif defined __AVX__
#define LANES 8
#else
#define LANES 4
#endif
#define GROUPS 8
#define BLOCK  128
#define STEP   8 /* outputs of one inner loop, which registers hold; rows are padded to it */

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

typedef struct ski_plan {
    const tl_host *h;
    int64_t        n, d, r;
    int64_t        taps, origin; /* tap k has lag k - origin; taps is 0 if there are none */
    int64_t        lags, zero;   /* lags of A: -zero..r-1 */
    int64_t        points;
    int            causal, low;  /* low: whether T has the term W A W' */
    int            mean;         /* k(0) is the mean of two points */
    int            each_token;   /* causal: update the sums of App. B at each token */
    int            width;        /* non-zeros of a row of W */
    int32_t       *start;        /* [n]: the column of the first */
    float         *weight;       /* [n,width] */
    int64_t        size;         /* of the transforms that apply A; 0 for direct sums */
    void          *there, *back; /* the plans of these transforms */
    const tl_transforms *transforms;
    int64_t        groups;       /* of a tile */
    int64_t        window;       /* rows of ski_group.x */
    int64_t        stride;       /* rows from a group's scratch to the next group's */
    int64_t        line;         /* floats of a transform */
    int64_t        each;         /* rows of scratch per thread */
    lanes         *scratch;
} ski_plan;

/* The scratch buffers of one thread for one group: rows of LANES, at the same offsets in each
** group. */
typedef struct ski_group {
    lanes  *x, *other;  /* [window], [BLOCK]: rows of the current block */
    lanes  *taps;       /* [taps]; a forward call reverses them */
    lanes  *kernel;     /* [lags]: of A */
    lanes  *z, *g, *v;  /* [r]: W'x, W'dy, and A or A' times one; z, g have zero margins */
    double *tap_sums;   /* [taps,LANES]: gradients so far */
    double *kernel_sums; /* [lags,LANES]: gradients so far */
    float  *spectra;     /* [LANES,line]: of the kernel */
    lanes   pending[2][WIDTH]; /* causal: see causal.c */
    int64_t column;
} ski_group;

typedef struct ski_work {
    const ski_plan *s;
    int64_t         channels; /* of the tile */
    int64_t         groups;   /* groups of the tile */
    lanes          *out, *flip, *sums; /* [BLOCK], [r], [taps or lags] */
    float          *line[3];  /* of transforms */
    ski_group       group[GROUPS];
} ski_work;

static inline int64_t ski_tiles(const ski_plan *s)
{
    int64_t most = s->groups * LANES;
    return (s->d + most - 1) / most;
}

static inline int64_t ski_up(int64_t rows) { return (rows + STEP - 1) / STEP * STEP; }

/* ---- rows.c ---------------------------------------------------------------------------------- */

/* What the next block will read or write: reads[0] rows of LANES floats from read[0] on, reads[1]
** rows from read[1] on and `writes` rows from `write` on, at most BLOCK each. Within each list the
** rows are `step` floats apart, which is too far for the hardware to prefetch them. ski_correlate
** prefetches a few of them before every STEP sums: a core waits when too many cache misses are
** outstanding, so that all of them at once would hold up the block that is being computed. */
typedef struct ski_ahead {
    const float *read[2], *write;
    int64_t      reads[2], writes, step;
} ski_ahead;

/* out[p] = the sum over q < count of b[q] w[p+q], for all p < rows rounded up to STEP, which out
** and w must hold. Meanwhile it prefetches `ahead`, which may be NULL. The taps, their gradients
** and, without transforms, A and its gradient are such sums, where a convolution has one operand
** reversed. */
void ski_correlate(const lanes *b, int64_t count, const lanes *w, int64_t rows, lanes *out,
                   const ski_ahead *ahead);
/* Copies rows first..first+count-1 of from [n,d], zeros outside it, to each group; `to` belongs to
** the first group. */
void ski_load(const ski_work *w, const float *from, int64_t n, int64_t first, int64_t count,
              lanes *to);
/* Copies rows of group g to the channels of the group in to [.,d]. */
void ski_store(const ski_work *w, int64_t g, const lanes *rows, int64_t count, float *to);
/* z += W' x for tokens first..first+count-1, at most BLOCK, of x [n,d], in all groups; z belongs to
** the first group. */
void ski_gather(const ski_work *w, const float *x, int64_t first, int64_t count, lanes *z);
/* The same in one group, where x holds the rows of these tokens. */
void ski_gather_rows(const ski_plan *s, const lanes *x, int64_t first, int64_t count, lanes *z);
/* Writes rows + W v to these tokens of y [n,d], in group g. May overwrite rows. */
void ski_spread(const ski_work *w, int64_t g, int64_t first, int64_t count, const lanes *v,
                lanes *rows, float *y);
void ski_add(double *sums, const lanes *rows, int64_t count);

/* ---- kernel.c: A ----------------------------------------------------------------------------- */

void ski_prepare(ski_work *w, ski_group *g);    /* call it when kernel has been set */
void ski_multiply(ski_work *w, ski_group *g);   /* v = A z */
void ski_transpose(ski_work *w, ski_group *g);  /* v = A' g */
void ski_kernel_sums(ski_work *w, ski_group *g); /* adds the diagonal sums of g z' */

/* ---- causal.c -------------------------------------------------------------------------------- */

/* Each takes the tokens first..first+count-1 of a sequence and keeps its state in z, v, pending and
** column: at the start of a sequence z, v and pending must be 0, and column -1. */
/* y += the low-rank part of T x; blocks in ascending order */
void ski_causal_forward(const ski_plan *s, ski_group *g, int64_t first, int64_t count,
                        const lanes *x, lanes *y);
/* dx += its adjoint of dy; blocks in descending order */
void ski_causal_back(const ski_plan *s, ski_group *g, int64_t first, int64_t count,
                     const lanes *dy, lanes *dx);
/* kernel_sums += the gradient of A; blocks in ascending order. v is 0 after each. */
void ski_causal_sums(const ski_plan *s, ski_group *g, int64_t first, int64_t count, const lanes *x,
                     const lanes *dy);

/* ---- apply.c --------------------------------------------------------------------------------- */

tl_status ski_forward(void *plan, const tl_tno_args *a);
tl_status ski_backward(void *plan, const tl_tno_args *a);
tl_status ski_dense(void *plan, const tl_tno_args *a);
void      ski_layout(ski_plan *s); /* sets window, stride, line and each */

#endif

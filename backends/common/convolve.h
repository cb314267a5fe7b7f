/* convolve.h - applies the operator by right-angle convolutions (angle.h), a tile of channels at a
** time, for the backends fft and fd. The plan of such a backend begins with a convolution, and the
** backend provides the transforms and the conversions between coefficients and spectra. */
#ifndef CONVOLVE_H
#define CONVOLVE_H

#include "angle.h"
#include "backend.h"
#include "size.h"
#include "tile.h"

/* The scratch buffers of one thread. */
typedef struct convolve_scratch {
    float *x, *y;      /* [width] rows */
    float *coef, *sum; /* [width] lines: the spectra of the kernel and of its gradient */
    float *a, *b, *c;  /* one line each, reused for every channel */
} convolve_scratch;

typedef struct convolution convolution;
struct convolution {
    const tl_host *h;
    int64_t        n, d;
    int            causal;
    int64_t        size;      /* N */
    int64_t        width;     /* channels of a tile */
    int64_t        row, line; /* floats from a vector of a tile to the next: real, complex */
    int64_t        temporary; /* floats of a, b and c */
    int64_t        each;      /* floats of scratch per thread */
    float         *twist, *scratch;
    /* to [N,2] = F from, and N F^-1 from */
    void (*there)(const convolution *s, float *from, float *to);
    void (*back)(const convolution *s, float *from, float *to);
    /* Sets w.coef = F W T' / N for the channels first..first+channels-1 of coef. */
    void (*spectra)(const convolution *s, const convolve_scratch *w, const float *coef,
                    int64_t first, int64_t channels);
    /* Sets these channels of dcoef from w.sum, the spectra of dT'. */
    void (*gradients)(const convolution *s, const convolve_scratch *w, float *dcoef, int64_t first,
                      int64_t channels);
};

typedef struct convolve_job {
    const convolution *s;
    const tl_tno_args *a;
} convolve_job;

/* ---- Plan ------------------------------------------------------------------------------------ */

static inline int64_t convolve_tiles(const convolution *s)
{
    return (s->d + s->width - 1) / s->width;
}

/* Allocates the twist and the scratch buffers. The caller has set h, n and d; `longest` is the
** least number of floats of a row. TL_ENOMEM; the caller must call convolve_free even then. */
static inline tl_status convolve_plan(convolution *s, int64_t longest)
{
    s->size = good_size(s->n);
    s->width = tile_width(s->d, s->h->threads);
    s->row = tile_padded(longest);
    s->line = tile_padded(2 * s->size);
    s->temporary = tile_padded(2 * (longest > s->size ? longest : s->size));
    s->each = 2 * s->width * (s->row + s->line) + 3 * s->temporary;
    s->twist = s->h->alloc(s->h, (size_t)s->size * 2 * sizeof *s->twist);
    int64_t threads = tile_threads(convolve_tiles(s), s->h->threads);
    s->scratch = s->h->alloc(s->h, (size_t)(s->each * threads) * sizeof *s->scratch);
    if (!s->twist || !s->scratch) return TL_ENOMEM;
    angle_table(s->size, s->twist);
    return TL_OK;
}

static inline void convolve_free(const convolution *s)
{
    s->h->free(s->h, s->twist);
    s->h->free(s->h, s->scratch);
}

static inline convolve_scratch convolve_carve(const convolution *s, int thread)
{
    convolve_scratch w;
    w.x = s->scratch + thread * s->each;
    w.y = w.x + s->width * s->row;
    w.coef = w.y + s->width * s->row;
    w.sum = w.coef + s->width * s->line;
    w.a = w.sum + s->width * s->line;
    w.b = w.a + s->temporary;
    w.c = w.b + s->temporary;
    return w;
}

static inline int64_t convolve_channels(const convolution *s, int64_t tile)
{
    int64_t left = s->d - tile * s->width;
    return left < s->width ? left : s->width;
}

/* ---- Kernels --------------------------------------------------------------------------------- */

/* The number of negative lags. */
static inline int64_t convolve_negative(const convolution *s) { return s->causal ? 0 : s->n - 1; }

/* line = F W T' / N, from the coefficients t of the lags 0..n-1 and `before` of the negative ones.
** Overwrites w.a. */
static inline void convolve_spectrum(const convolution *s, const convolve_scratch *w,
                                     const float *t, const float *before, float *line)
{
    float scale = 1.0f / (float)s->size;
    angle_twist(s->twist, s->size, s->n, t, w->a);
    angle_fold(s->twist, s->size, convolve_negative(s), before, w->a);
    s->there(s, w->a, line);
    for (int64_t k = 0; k < 2 * s->size; k++) line[k] *= scale;
}

/* Sets t and `before` to N times the lags of dT' from its spectrum in line. Overwrites w.a. */
static inline void convolve_kernel(const convolution *s, const convolve_scratch *w, float *line,
                                   float *t, float *before)
{
    s->back(s, line, w->a);
    angle_untwist(s->twist, s->n, w->a, t);
    angle_unfold(s->twist, s->size, convolve_negative(s), w->a, before);
}

/* ---- Application ----------------------------------------------------------------------------- */

static inline void convolve_forward_tiles(void *user, int64_t begin, int64_t end, int thread)
{
    const convolve_job *j = user;
    const convolution  *s = j->s;
    convolve_scratch    w = convolve_carve(s, thread);
    for (int64_t tile = begin; tile < end; tile++) {
        int64_t first = tile * s->width, channels = convolve_channels(s, tile);
        s->spectra(s, &w, j->a->coef, first, channels);
        for (int64_t b = 0; b < j->a->b; b++) {
            int64_t at = b * s->n * s->d + first;
            tile_gather(j->a->x + at, s->d, s->n, channels, w.x, s->row);
            for (int64_t c = 0; c < channels; c++) {
                angle_twist(s->twist, s->size, s->n, w.x + c * s->row, w.a);
                s->there(s, w.a, w.b);
                angle_multiply(s->size, w.b, w.coef + c * s->line);
                s->back(s, w.b, w.a);
                angle_untwist(s->twist, s->n, w.a, w.x + c * s->row);
            }
            tile_scatter(w.x, s->row, s->n, channels, j->a->y + at, s->d);
        }
    }
}

/* Processes one sequence, x in w.x and dy in w.y: adds to w.sum and leaves dx in w.y. */
static inline void convolve_backward_sequence(const convolution *s, const convolve_scratch *w,
                                              int64_t channels, int want_coef, int want_x)
{
    for (int64_t c = 0; c < channels; c++) {
        angle_twist(s->twist, s->size, s->n, w->y + c * s->row, w->a);
        s->there(s, w->a, w->b);
        if (want_coef) {
            angle_twist(s->twist, s->size, s->n, w->x + c * s->row, w->a);
            s->there(s, w->a, w->c);
            angle_correlate(s->size, w->sum + c * s->line, w->b, w->c);
        }
        if (want_x) {
            angle_multiply_conjugate(s->size, w->b, w->coef + c * s->line);
            s->back(s, w->b, w->a);
            angle_untwist(s->twist, s->n, w->a, w->y + c * s->row);
        }
    }
}

static inline void convolve_backward_tiles(void *user, int64_t begin, int64_t end, int thread)
{
    const convolve_job *j = user;
    const convolution  *s = j->s;
    const tl_tno_args  *a = j->a;
    convolve_scratch    w = convolve_carve(s, thread);
    for (int64_t tile = begin; tile < end; tile++) {
        int64_t first = tile * s->width, channels = convolve_channels(s, tile);
        if (a->dx) s->spectra(s, &w, a->coef, first, channels);
        if (a->dcoef) memset(w.sum, 0, (size_t)(channels * s->line) * sizeof *w.sum);
        for (int64_t b = 0; b < a->b; b++) {
            int64_t at = b * s->n * s->d + first;
            tile_gather(a->dy + at, s->d, s->n, channels, w.y, s->row);
            if (a->dcoef) tile_gather(a->x + at, s->d, s->n, channels, w.x, s->row);
            convolve_backward_sequence(s, &w, channels, a->dcoef != NULL, a->dx != NULL);
            if (a->dx) tile_scatter(w.y, s->row, s->n, channels, a->dx + at, s->d);
        }
        if (a->dcoef) s->gradients(s, &w, a->dcoef, first, channels);
    }
}

/* Runs body in parallel over all tiles; its user is a convolve_job. */
static inline tl_status convolve_run(const convolution *s, const tl_tno_args *a, tl_body body)
{
    s->h->parallel(s->h, convolve_tiles(s), 1, body, &(convolve_job){s, a});
    return TL_OK;
}

static inline tl_status convolve_forward(void *plan, const tl_tno_args *a)
{
    return convolve_run(plan, a, convolve_forward_tiles);
}

static inline tl_status convolve_backward(void *plan, const tl_tno_args *a)
{
    return convolve_run(plan, a, convolve_backward_tiles);
}

#endif

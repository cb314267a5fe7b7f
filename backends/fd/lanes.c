/* lanes.c - applies fd's operator by the transforms of circle.h, to a tile of as many channels as a
** vector has lanes at a time:
**     y = F^-1 (H . F x)    dx = F^-1 (conj(H) . F dy)    F dT = sum over b of F dy . conj(F x)
** where dT is the gradient of the kernel, r or t of fd.c, and b counts sequences. Bidirectional
** (SKI, Section 3.3.2), H is the given response, and coefficients need no transform. Causal
** (Algorithm 2), H is the transform of the windowed kernel, which takes two transforms per tile and
** call.
**
** The loops, from the outermost: tiles, which are shared among threads; sequences; the parts of a
** transform. A thread has whole tiles, for all sequences of the batch, so that sums over the batch
** do not depend on the number of threads, and H is computed once per tile. With one channel per
** lane no transform has to exchange lanes, which one along a contiguous vector would.
**
** A transform mixes all positions, so the scratch memory of a thread holds whole sequences of M
** rows of a tile and their spectra. Rows from n to M are padded with zeros; the zeros from M to 2M
** are not stored, since the transforms of circle.h know of them. Lanes behind the last channel
** compute numbers that nobody reads.
**
** The caller may give a cache, in which H stays for calls with the same coefficients: inference
** then transforms x only. */
#include <math.h>
#include <string.h>

#include "../common/tile.h"
#include "circle.h"
#include "fd.h"

typedef struct plan {
    const tl_host *h;
    fd_problem     p;
    circle         c;
    int64_t        lanes;
    int64_t        row, block, part; /* floats of rows, of a block, of one transform */
    int64_t        each;        /* floats of scratch per thread */
    float         *scratch;
} plan;

/* The scratch buffers of one thread. */
typedef struct scratch {
    float *rows, *others, *x; /* [M, lanes] */
    float *spectrum, *sum;    /* blocks of circle.h */
    float *blocks[2];
} scratch;

typedef struct job {
    const plan        *s;
    const tl_tno_args *a;
} job;

/* ---- Plan ------------------------------------------------------------------------------------ */

int fd_has(const char *isa) { return rac_kernel_named(isa) != NULL; }

static scratch carve(const plan *s, int thread)
{
    float *p = s->scratch + thread * s->each, *blocks = p + 3 * s->row;
    return (scratch){.rows = p, .others = p + s->row, .x = p + 2 * s->row, .spectrum = blocks,
                  .sum = blocks + s->block,
                  .blocks = {blocks + 2 * s->block, blocks + 2 * s->block + s->part}};
}

static int64_t tiles(const plan *s) { return (s->p.d + s->lanes - 1) / s->lanes; }

static void lanes_release(void *state)
{
    plan *s = state;
    circle_free(&s->c);
    s->h->free(s->h, s->scratch);
    s->h->free(s->h, s);
}

static tl_status lanes_make(const tl_host *h, const fd_problem *p, void **out_plan)
{
    plan *s = h->alloc(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    *s = (plan){.h = h, .p = *p};
    const rac_kernel *kernel = rac_kernel_named(p->isa);
    tl_status         st = circle_make(h, kernel, p->half, &s->c);
    if (st == TL_OK && s->c.depth > 0) {
        s->lanes = kernel->lanes;
        s->row = p->half * s->lanes;
        s->block = (2 * s->c.points * s->lanes + 15) / 16 * 16;
        s->part = s->c.splits[0].vectors * s->lanes;
        s->each = 3 * s->row + 2 * s->block + 2 * s->part;
        size_t bytes = (size_t)(s->each * tile_threads(tiles(s), h->threads)) * sizeof *s->scratch;
        s->scratch = h->alloc(h, bytes);
        if (!s->scratch) st = TL_ENOMEM;
    }
    *out_plan = NULL;
    if (st == TL_OK && s->c.depth > 0)
        *out_plan = s;
    else
        lanes_release(s);
    return st;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Rows are d channels apart, too far for the hardware prefetcher. The code prefetches this many
** rows ahead, into the L2 cache, since they share few sets of L1. */
#define AHEAD 24
#define PREFETCH(address, write) __builtin_prefetch(address, write, 2)

/* Calls a loop over channels with a constant number of them, `width`, so that the compiler unrolls
** it. */
#define UNROLL_CHANNELS(channels, call)                                                          \
    do {                                                                                         \
        switch (channels) {                                                                      \
        case 16: { enum { width = 16 }; call; break; }                                           \
        case 8: { enum { width = 8 }; call; break; }                                             \
        case 4: { enum { width = 4 }; call; break; }                                             \
        default: { int64_t width = (channels); call; }                                           \
        }                                                                                        \
    } while (0)

static inline void scale(int64_t channels, float by, const float *restrict from,
                         float *restrict to)
{
    for (int64_t c = 0; c < channels; c++) to[c] = by * from[c];
}

/* Writes zeros with the signs of `from`: what 0 times a finite number gives. A product would turn
** the NaN or infinity of a number that the operator does not use into NaN. */
static inline void zero(int64_t channels, const float *restrict from, float *restrict to)
{
    for (int64_t c = 0; c < channels; c++) to[c] = copysignf(0, from[c]);
}

/* Copies rows of a tile out of x. Prefetching beyond the end of x does no harm: it never faults. */
static inline void read_rows(const float *from, int64_t stride, int64_t count, float sign,
                             int64_t channels, int64_t lanes, float *to)
{
    for (int64_t k = 0; k < count; k++, from += stride, to += lanes) {
        PREFETCH(from + AHEAD * stride, 0);
        scale(channels, sign, from, to);
    }
}

static inline void add_scaled(int64_t channels, float by, const float *restrict a,
                              const float *restrict b, float *restrict to)
{
    for (int64_t c = 0; c < channels; c++) to[c] = by * (a[c] + b[c]);
}

/* Writes half the sums of the rows a and b: the first M entries of a result (circle_merge). */
static inline void write_rows(const float *a, const float *b, int64_t lanes, int64_t count,
                              float sign, int64_t channels, float *to, int64_t stride)
{
    for (int64_t k = 0; k < count; k++, a += lanes, b += lanes, to += stride) {
        PREFETCH(to + AHEAD * stride, 1);
        add_scaled(channels, 0.5f * sign, a, b, to);
    }
}

/* The channels of a tile. */
typedef struct tile {
    int64_t first, channels;
} tile;

static tile tile_of(const plan *s, int64_t number)
{
    tile t = {.first = number * s->lanes};
    t.channels = s->p.d - t.first < s->lanes ? s->p.d - t.first : s->lanes;
    return t;
}

/* rows = the rows of x [n,d], in the form of circle.h: with the opposite sign from M/2 on. */
static void load(const plan *s, const tile *t, const float *x, float *rows)
{
    int64_t n = s->p.n, d = s->p.d, middle = s->p.half / 2, low = n < middle ? n : middle;
    if (t->channels < s->lanes) memset(rows, 0, (size_t)s->row * sizeof *rows);
    memset(rows + n * s->lanes, 0, (size_t)(s->row - n * s->lanes) * sizeof *rows);
    x += t->first;
    UNROLL_CHANNELS(t->channels, read_rows(x, d, low, 1, width, s->lanes, rows));
    if (n > low)
        UNROLL_CHANNELS(t->channels, read_rows(x + low * d, d, n - low, -1, width, s->lanes,
                                               rows + low * s->lanes));
}

/* Writes y [n,d] from the rows and others of circle_merge. */
static void deliver(const plan *s, const tile *t, const scratch *w, float *y)
{
    int64_t n = s->p.n, d = s->p.d, middle = s->p.half / 2, low = n < middle ? n : middle;
    y += t->first;
    UNROLL_CHANNELS(t->channels, write_rows(w->rows, w->others, s->lanes, low, 1, width, y, d));
    if (n > low)
        UNROLL_CHANNELS(t->channels,
                        write_rows(w->rows + low * s->lanes, w->others + low * s->lanes, s->lanes,
                                   n - low, -1, width, y + low * d, d));
}

/* ---- Coefficients ---------------------------------------------------------------------------- */

/* The point of frequency m, and the sign for imaginary parts: values are at exp(+i w), responses at
** exp(-i w). */
static inline float *point_of(const plan *s, int64_t m, const float *block, float *sign)
{
    int64_t place = s->c.place[m];
    *sign = m == 0 || m == s->p.half ? 0 : place < 0 ? 1 : -1;
    return (float *)block + (place < 0 ? ~place : place) * 2 * s->lanes;
}

/* Frequencies are in order in coef but not in a block, whose points are the leaves of splits in
** place (rac.h), so that they are prefetched too. */
static inline void ask_for_point(const plan *s, int64_t m, const float *block)
{
    float sign, *point = point_of(s, m < s->p.half ? m : s->p.half, block, &sign);
    PREFETCH(point, 1);
    PREFETCH(point + s->lanes, 1);
}

/* block = the response in coef [M+1,width d]. The imaginary parts of a causal response, and those
** at 0 and pi, which a real kernel does not have, are 0 whatever coef holds there. */
static inline void read_response(const plan *s, int64_t channels, const float *coef, float *block)
{
    int64_t d = s->p.d, other = s->p.causal ? 0 : d, stride = d + other;
    for (int64_t m = 0; m <= s->p.half; m++, coef += stride) {
        float sign, *to = point_of(s, m, block, &sign);
        ask_for_point(s, m + AHEAD, block);
        PREFETCH(coef + AHEAD * stride, 0);
        PREFETCH(coef + AHEAD * stride + other, 0);
        scale(channels, 1, coef, to);
        if (s->p.causal || sign == 0) zero(channels, coef + other, to + s->lanes);
        else scale(channels, sign, coef + other, to + s->lanes);
    }
}

/* dcoef = the values F dr times w_m / N, where w_m is 1 at the ends and else 2 (fd.c). The gradient
** of an imaginary part that is not used is 0. */
static inline void write_gradient(const plan *s, int64_t channels, const float *block,
                                  float *dcoef)
{
    int64_t d = s->p.d, other = s->p.causal ? 0 : d, stride = d + other;
    float   weight = 1 / (float)s->p.half;
    for (int64_t m = 0; m <= s->p.half; m++, dcoef += stride) {
        float sign, *from = point_of(s, m, block, &sign);
        ask_for_point(s, m + AHEAD, block);
        PREFETCH(dcoef + AHEAD * stride, 1);
        PREFETCH(dcoef + AHEAD * stride + other, 1);
        if (other && sign == 0) zero(channels, from + s->lanes, dcoef + other);
        else if (other) scale(channels, sign * weight, from + s->lanes, dcoef + other);
        scale(channels, sign != 0 ? weight : 0.5f * weight, from, dcoef);
    }
}

/* Turns the kernel r in the form of circle_merge into the causal kernel t, in w.rows: r_k, half the
** sum of rows and others, times `first` at lag 0 and `second` at the lags 1..n-1, and 0 at lags
** from n on. Negative lags, half the difference of rows and others, are dropped. With 1 and 2 this
** is what Algorithm 2 does in frequency by the Hilbert transform. As the window only scales lags,
** it is its own adjoint, from dt to dr. */
static void window(const plan *s, const scratch *w, float first, float second)
{
    float  *a = w->rows, *b = w->others;
    int64_t count = s->p.n * s->lanes;
    for (int64_t k = 0; k < count; k++)
        a[k] = 0.5f * (k < s->lanes ? first : second) * (a[k] + b[k]);
    memset(a + count, 0, (size_t)(s->row - count) * sizeof *a);
}

/* Returns H of a tile: from the cache if that is filled, else computed into the cache or, without
** one, into scratch. Causal, H is the spectrum of t_0 = r_0, t_k = 2 r_k for 0 < k < n. */
static const float *spectrum(const plan *s, const tile *t, const scratch *w, const tl_tno_args *a)
{
    float *to = a->cache ? a->cache + t->first / s->lanes * s->block : w->spectrum;
    if (a->cache && a->cached) return to;
    UNROLL_CHANNELS(t->channels, read_response(s, width, a->coef + t->first, to));
    if (!s->p.causal) return to;
    circle_merge(&s->c, to, w->rows, w->others);
    window(s, w, 1, 2);
    circle_split(&s->c, w->rows, to);
    return to;
}

/* Turns w.sum, the spectrum of the kernel's gradient, into dcoef. Only a causal kernel has a window
** to go back through, and needs the gradient in time for that. */
static void gradient(const plan *s, const tile *t, const scratch *w, float *dcoef)
{
    if (s->p.causal) {
        circle_merge(&s->c, w->sum, w->rows, w->others);
        window(s, w, 1, 2);
        circle_split(&s->c, w->rows, w->sum);
    }
    UNROLL_CHANNELS(t->channels, write_gradient(s, width, w->sum, dcoef + t->first));
}

/* ---- Application ----------------------------------------------------------------------------- */

static void forward_tiles(void *user, int64_t begin, int64_t end, int thread)
{
    const job  *j = user;
    const plan *s = j->s;
    scratch     w = carve(s, thread);
    for (int64_t number = begin; number < end; number++) {
        tile         t = tile_of(s, number);
        const float *h = spectrum(s, &t, &w, j->a);
        for (int64_t b = 0; b < j->a->b; b++) {
            int64_t at = b * s->p.n * s->p.d;
            load(s, &t, j->a->x + at, w.rows);
            circle_apply(&s->c, 0, h, w.rows, w.others, w.blocks[0]);
            deliver(s, &t, &w, j->a->y + at);
        }
    }
}

/* Adds the sequence at `at` to w.sum if dcoef is required. Without h it does not compute dx. Both
** share the transform of dy. */
static void backward_sequence(const plan *s, const tile *t, const scratch *w, const tl_tno_args *a,
                              const float *h, int64_t at)
{
    load(s, t, a->dy + at, w->rows);
    if (a->dcoef) {
        load(s, t, a->x + at, w->x);
        circle_adjoints(&s->c, h, w->x, w->rows, w->others, w->sum, w->blocks);
    } else if (h) {
        circle_apply(&s->c, 1, h, w->rows, w->others, w->blocks[0]);
    }
    if (h) deliver(s, t, w, a->dx + at);
}

static void backward_tiles(void *user, int64_t begin, int64_t end, int thread)
{
    const job         *j = user;
    const plan        *s = j->s;
    const tl_tno_args *a = j->a;
    scratch            w = carve(s, thread);
    for (int64_t number = begin; number < end; number++) {
        tile         t = tile_of(s, number);
        const float *h = a->dx ? spectrum(s, &t, &w, a) : NULL;
        if (a->dcoef) memset(w.sum, 0, (size_t)s->block * sizeof *w.sum);
        for (int64_t b = 0; b < a->b; b++)
            backward_sequence(s, &t, &w, a, h, b * s->p.n * s->p.d);
        if (a->dcoef) gradient(s, &t, &w, a->dcoef);
    }
}

static void lanes_run(const plan *s, const tl_tno_args *a, tl_body body)
{
    s->h->parallel(s->h, tiles(s), 1, body, &(job){s, a});
}

static tl_status lanes_forward(void *state, const tl_tno_args *a)
{
    lanes_run(state, a, forward_tiles);
    return TL_OK;
}

static tl_status lanes_backward(void *state, const tl_tno_args *a)
{
    lanes_run(state, a, backward_tiles);
    return TL_OK;
}

static int64_t lanes_cache_size(void *state)
{
    const plan *s = state;
    return tiles(s) * s->block;
}

/* ---- The matrix ------------------------------------------------------------------------------ */

/* The kernel of channel c at a lag -M..M-1, from the rows and others of circle_merge, which hold
** entries from M/2 on with the opposite sign. Lags below 0 are the last M entries. */
static float kernel_at(const plan *s, const scratch *w, int64_t lag, int64_t c)
{
    int64_t k = lag < 0 ? lag + s->p.half : lag, at = k * s->lanes + c;
    float   sign = 2 * k < s->p.half ? 0.5f : -0.5f;
    if (lag < 0) return s->p.causal ? 0 : sign * (w->rows[at] - w->others[at]);
    return (s->p.causal && lag > 0 ? 2 : 1) * sign * (w->rows[at] + w->others[at]);
}

/* Writes out T from the kernel in time, so that a causal T is 0 above the diagonal exactly. */
static void dense_tiles(void *user, int64_t begin, int64_t end, int thread)
{
    const job  *j = user;
    const plan *s = j->s;
    scratch     w = carve(s, thread);
    int64_t     n = s->p.n;
    for (int64_t number = begin; number < end; number++) {
        tile t = tile_of(s, number);
        UNROLL_CHANNELS(t.channels, read_response(s, width, j->a->coef + t.first, w.spectrum));
        circle_merge(&s->c, w.spectrum, w.rows, w.others);
        for (int64_t c = 0; c < t.channels; c++)
            for (int64_t i = 0; i < n; i++)
                for (int64_t k = 0; k < n; k++)
                    j->a->dense[((t.first + c) * n + i) * n + k] = kernel_at(s, &w, i - k, c);
    }
}

static tl_status lanes_dense(void *state, const tl_tno_args *a)
{
    lanes_run(state, a, dense_tiles);
    return TL_OK;
}

const fd_way fd_lanes = {lanes_make, lanes_forward, lanes_backward, lanes_dense, lanes_release,
                         lanes_cache_size};

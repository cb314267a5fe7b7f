/* convolve.c - implements the backend rac by the right-angle convolution of rac.h, for tiles of as
** many channels as a vector has lanes.
**
** The unit of work is a tile and a group of sequences. The groups of a backward call depend on the
** problem alone and their sums are added in order, so that results do not depend on the threads. */
#include <stdio.h>
#include <string.h>

#include "../common/lag.h"
#include "rac.h"
#include "rows.h"

#define SUMS 4 /* with fewer tiles than this, sums over the batch are divided into groups */

typedef struct plan {
    const tl_host    *h;
    const rac_kernel *kernel;
    rac_split         split;
    int64_t           n, d, tiles;
    int               causal;
    int64_t           lags;     /* lags below this in magnitude have coefficients; at most n */
    int64_t           blocks;   /* of a sequence; several only for a short kernel (rac.h) */
    int64_t           shift;    /* entry 0 of a short kernel is lag -shift */
    int64_t           negative; /* without blocks: the negative lags, which are folded */
    int64_t           block, each; /* floats of a block, of the scratch buffer of a thread */
    float            *scratch;
    float            *sums;     /* [tiles groups] blocks, or NULL without groups */
} plan;

/* The scratch buffers of one thread: blocks, and rows that cannot be used in place. */
typedef struct scratch {
    float *spectrum, *sum, *blocks[2];
    float *rows[2], *carry; /* [N, lanes] */
} scratch;

typedef struct job {
    const plan        *s;
    const tl_tno_args *a;
    int64_t            groups; /* of the batch */
} job;

/* ---- Plan ------------------------------------------------------------------------------------ */

enum { ISA, LAGS }; /* options */

/* The problem for a sequence as long as the option `lags`, which has the same points. */
static tl_tno_problem within(const tl_tno_problem *p)
{
    tl_tno_problem cut = *p;
    int64_t        lags = p->options[LAGS].i;
    if (lags > 0 && lags < p->n) cut.n = lags;
    return cut;
}

static int64_t rac_points(const tl_tno_problem *p, double *out)
{
    tl_tno_problem cut = within(p);
    return lag_points(&cut, out);
}

static int rac_accepts(const tl_tno_problem *p, char *why, size_t size)
{
    if (rac_kernel_named(p->options[ISA].s)) return 1;
    (void)snprintf(why, size, "this processor has no %s", p->options[ISA].s);
    return 0;
}

static scratch carve(const plan *s, int thread)
{
    float  *p = s->scratch + thread * s->each, *rows = p + 4 * s->block;
    int64_t each = s->split.size * s->kernel->lanes;
    return (scratch){.spectrum = p, .sum = p + s->block,
                  .blocks = {p + 2 * s->block, p + 3 * s->block},
                  .rows = {rows, rows + each}, .carry = rows + 2 * each};
}

static void rac_release(void *state)
{
    plan *s = state;
    rac_split_free(s->h, &s->split);
    s->h->free(s->h, s->scratch);
    s->h->free(s->h, s->sums);
    s->h->free(s->h, s);
}

/* Chooses the length of blocks; the caller has set h, kernel and the problem. */
static tl_status set_blocks(plan *s)
{
    int64_t   shift = s->causal ? 0 : s->lags - 1;
    tl_status st = rac_split_make(s->h, s->n, s->lags < s->n ? s->lags + shift : s->n,
                                  s->kernel->widest, &s->split);
    s->blocks = (s->n + s->split.size - 1) / s->split.size;
    s->shift = s->blocks > 1 ? shift : 0;
    s->negative = s->blocks > 1 ? 0 : shift;
    return st;
}

static tl_status rac_make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    plan *s = h->alloc(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    *s = (plan){.h = h, .kernel = rac_kernel_named(p->options[ISA].s), .n = p->n, .d = p->d,
                .causal = p->causal, .lags = within(p).n};
    tl_status st = set_blocks(s);
    if (st == TL_OK) {
        int64_t lanes = s->kernel->lanes;
        s->tiles = (s->d + lanes - 1) / lanes;
        s->block = s->split.vectors * lanes;
        s->each = 4 * s->block + 3 * s->split.size * lanes;
        s->scratch = h->alloc(h, (size_t)(s->each * h->threads) * sizeof *s->scratch);
        if (s->tiles < SUMS) {
            s->sums = h->alloc(h, (size_t)(SUMS * s->block) * sizeof *s->sums);
            if (!s->sums) st = TL_ENOMEM;
        }
        if (!s->scratch) st = TL_ENOMEM;
    }
    if (st != TL_OK) {
        rac_release(s);
        return st;
    }
    rac_split_fill(&s->split);
    *out_plan = s;
    return TL_OK;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

typedef struct tile { int64_t first, channels; } tile;

static tile tile_of(const plan *s, int64_t number)
{
    tile t = {.first = number * s->kernel->lanes};
    t.channels = s->d - t.first < s->kernel->lanes ? s->d - t.first : s->kernel->lanes;
    return t;
}

/* N rows of an array [count,d] from row `first` on. Rows outside the array read as 0 and are not
** written. `buffer` holds the rows if they cannot be used in place. */
typedef struct window {
    float  *array;
    int64_t first, count;
    float  *buffer;
} window;

static int in_place(const plan *s, const tile *t, const window *w)
{
    int64_t end = w->first + s->split.size;
    return t->channels == s->kernel->lanes && w->first >= 0 && end <= w->count;
}

/* The rows begin..end-1 of the N lie within the array. */
static void present(const plan *s, const window *w, int64_t *begin, int64_t *end)
{
    int64_t size = s->split.size, left = w->count - w->first;
    *begin = w->first >= 0 ? 0 : w->first > -size ? -w->first : size;
    *end = left > size ? size : left > *begin ? left : *begin;
}

static rac_rows rows_to(const plan *s, const tile *t, const window *w)
{
    if (in_place(s, t, w)) return (rac_rows){w->array + w->first * s->d + t->first, s->d};
    return (rac_rows){w->buffer, s->kernel->lanes};
}

static rac_rows rows_of(const plan *s, const tile *t, const window *w)
{
    rac_rows rows = rows_to(s, t, w);
    int64_t  lanes = s->kernel->lanes, size = s->split.size, begin, end;
    if (rows.at != w->buffer) return rows;
    present(s, w, &begin, &end);
    if (t->channels < lanes) memset(w->buffer, 0, (size_t)(size * lanes) * sizeof *w->buffer);
    memset(w->buffer, 0, (size_t)(begin * lanes) * sizeof *w->buffer);
    copy_rows(w->array + (w->first + begin) * s->d + t->first, s->d, w->buffer + begin * lanes,
              lanes, end - begin, t->channels);
    memset(w->buffer + end * lanes, 0, (size_t)((size - end) * lanes) * sizeof *w->buffer);
    return rows;
}

/* Copies rows that were written to the buffer to the array; call it after writing to rows_to. */
static void deliver(const plan *s, const tile *t, const window *w)
{
    int64_t lanes = s->kernel->lanes, begin, end;
    if (in_place(s, t, w)) return;
    present(s, w, &begin, &end);
    copy_rows(w->buffer + begin * lanes, lanes, w->array + (w->first + begin) * s->d + t->first,
              s->d, end - begin, t->channels);
}

static const rac_rows none = {NULL, 0};

/* ---- Coefficients ---------------------------------------------------------------------------- */

/* The real and the imaginary rows of the kernel; the negative lags are the last rows of T'. */
static void coef_windows(const plan *s, const scratch *w, const float *coef, window *re, window *im)
{
    float *array = (float *)coef;
    *re = (window){array + s->negative * s->d, 0, s->lags + s->shift, w->rows[0]};
    *im = (window){array, s->negative - s->split.size, s->negative, w->rows[1]};
}

/* Returns T^ of an item's tile, from the cache or computed into it if there is one. */
static const float *spectrum(const job *j, const scratch *w, int64_t item)
{
    const plan        *s = j->s;
    const tl_tno_args *a = j->a;
    int64_t            number = item / j->groups;
    tile               t = tile_of(s, number);
    float             *cache = a->cache ? a->cache + number * s->block : NULL, *to = w->spectrum;
    if (cache && a->cached) return cache;
    if (cache && item % j->groups == 0) to = cache; /* other threads may have the other groups */
    window re, im;
    coef_windows(s, w, a->coef, &re, &im);
    rac_rows below = s->negative ? rows_of(s, &t, &im) : none;
    s->kernel->analyse(&s->split, rows_of(s, &t, &re), below, to);
    return to;
}

static void coef_gradient(const plan *s, const tile *t, const scratch *w, float *sum, float *dcoef)
{
    window re, im;
    coef_windows(s, w, dcoef, &re, &im);
    rac_rows below = s->negative ? rows_to(s, t, &im) : none;
    s->kernel->synthesise(&s->split, sum, rows_to(s, t, &re), below);
    deliver(s, t, &re);
    if (s->negative) deliver(s, t, &im);
}

/* ---- Application ----------------------------------------------------------------------------- */

static void forward_sequence(const plan *s, const tile *t, const scratch *w, const float *spectra,
                             const float *x, float *y)
{
    int64_t  size = s->split.size;
    rac_rows carry = none;
    if (s->blocks > 1) {
        carry = (rac_rows){w->carry, s->kernel->lanes};
        memset(w->carry, 0, (size_t)(size * s->kernel->lanes) * sizeof *w->carry);
    }
    for (int64_t at = 0; at < s->n; at += size) {
        window in = {(float *)x, at, s->n, w->rows[0]};
        window out = {y, at - s->shift, s->n, w->rows[0]};
        s->kernel->apply(&s->split, 0, spectra, rows_of(s, t, &in), none, rows_to(s, t, &out),
                         carry, w->blocks[0]);
        deliver(s, t, &out);
    }
    window last = {y, s->blocks * size - s->shift, s->n, w->carry};
    if (s->shift) deliver(s, t, &last);
}

static void forward_items(void *user, int64_t begin, int64_t end, int thread)
{
    const job         *j = user;
    const plan        *s = j->s;
    const tl_tno_args *a = j->a;
    scratch            w = carve(s, thread);
    const float       *spectra = NULL;
    for (int64_t item = begin; item < end; item++) {
        tile    t = tile_of(s, item / j->groups);
        int64_t g = item % j->groups;
        if (!spectra || g == 0) spectra = spectrum(j, &w, item);
        for (int64_t b = a->b * g / j->groups; b < a->b * (g + 1) / j->groups; b++)
            forward_sequence(s, &t, &w, spectra, a->x + b * s->n * s->d, a->y + b * s->n * s->d);
    }
}

/* Computes a block of rows of dx, from row `at` on, and adds its part of dT' to sum. */
static void backward_block(const job *j, const tile *t, const scratch *w, const float *spectra,
                           int64_t b, int64_t at, float *sum)
{
    const plan        *s = j->s;
    const tl_tno_args *a = j->a;
    int64_t  start = b * s->n * s->d;
    window   x = {(float *)a->x + start, at, s->n, w->rows[1]};
    window   dx = {a->dx ? a->dx + start : NULL, at, s->n, w->rows[0]};
    window   of_dy = {(float *)a->dy + start, at - s->shift, s->n, w->rows[0]}, after = of_dy;
    rac_rows dy = rows_of(s, t, &of_dy), next = none, to = none;
    after.first += s->split.size;
    after.buffer = w->carry;
    if (s->blocks > 1) next = rows_of(s, t, &after);
    if (a->dx) to = rows_to(s, t, &dx);
    if (a->dcoef)
        s->kernel->adjoints(&s->split, spectra, rows_of(s, t, &x), dy, next, to, sum, w->blocks);
    else if (a->dx)
        s->kernel->apply(&s->split, 1, spectra, dy, next, to, none, w->blocks[0]);
    if (a->dx) deliver(s, t, &dx);
}

static void backward_items(void *user, int64_t begin, int64_t end, int thread)
{
    const job         *j = user;
    const plan        *s = j->s;
    const tl_tno_args *a = j->a;
    scratch            w = carve(s, thread);
    const float       *spectra = NULL;
    for (int64_t item = begin; item < end; item++) {
        tile    t = tile_of(s, item / j->groups);
        int64_t g = item % j->groups;
        float  *sum = j->groups > 1 ? s->sums + item * s->block : w.sum;
        if (a->dx && (!spectra || g == 0)) spectra = spectrum(j, &w, item);
        if (a->dcoef) memset(sum, 0, (size_t)s->block * sizeof *sum);
        for (int64_t b = a->b * g / j->groups; b < a->b * (g + 1) / j->groups; b++)
            for (int64_t at = 0; at < s->n; at += s->split.size)
                backward_block(j, &t, &w, spectra, b, at, sum);
        if (a->dcoef && j->groups == 1) coef_gradient(s, &t, &w, sum, a->dcoef);
    }
}

/* Adds the sums of the groups of each tile and computes dcoef from them. */
static void sum_groups(void *user, int64_t begin, int64_t end, int thread)
{
    const job  *j = user;
    const plan *s = j->s;
    scratch     w = carve(s, thread);
    for (int64_t number = begin; number < end; number++) {
        tile   t = tile_of(s, number);
        float *sum = s->sums + number * j->groups * s->block;
        for (int64_t g = 1; g < j->groups; g++)
            for (int64_t k = 0; k < s->block; k++) sum[k] += sum[g * s->block + k];
        coef_gradient(s, &t, &w, sum, j->a->dcoef);
    }
}

/* The number of groups into which a batch is divided so that there are `count` items of work. */
static int64_t groups_for(const plan *s, int64_t batch, int64_t count)
{
    int64_t groups = count / s->tiles < batch ? count / s->tiles : batch;
    return groups > 1 ? groups : 1;
}

static tl_status rac_forward(void *state, const tl_tno_args *a)
{
    plan *s = state;
    job   j = {s, a, groups_for(s, a->b, s->h->threads)};
    s->h->parallel(s->h, s->tiles * j.groups, 1, forward_items, &j);
    return TL_OK;
}

static tl_status rac_backward(void *state, const tl_tno_args *a)
{
    plan *s = state;
    job   j = {s, a, groups_for(s, a->b, SUMS)};
    s->h->parallel(s->h, s->tiles * j.groups, 1, backward_items, &j);
    if (a->dcoef && j.groups > 1) s->h->parallel(s->h, s->tiles, 1, sum_groups, &j);
    return TL_OK;
}

/* The floats of T^. */
static int64_t rac_cache_size(void *state)
{
    const plan *s = state;
    return s->tiles * s->block;
}

static tl_status rac_dense(void *state, const tl_tno_args *a)
{
    const plan *s = state;
    lag_dense_within(s->lags, s->n, s->d, s->causal, a->coef, a->dense);
    return TL_OK;
}

static const tl_option options[] = {
    {"isa", 's', "auto", "auto avx512 avx2 portable",
     "the instruction set to use; auto: the best of the processor"},
    {"lags", 'i', "0", "0..",
     "coefficients of lags of this magnitude or more are 0; 0: all lags"},
    {0},
};

const tl_tno_backend tl_tno_backend_entry = {
    .abi = TL_TNO_ABI,
    .name = "rac",
    .summary = "right-angle convolution with channels in vector lanes, O(n log n)",
    .domain = "lag",
    .options = options,
    .accepts = rac_accepts,
    .points = rac_points,
    .plan = rac_make,
    .forward = rac_forward,
    .backward = rac_backward,
    .dense = rac_dense,
    .release = rac_release,
    .cache_size = rac_cache_size,
    .auto_length = INT64_MAX,
};

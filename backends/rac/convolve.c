/* convolve.c - the backend rac: tiles of as many channels as a vector has lanes, for whose
** coefficients, sequences and gradients a kernel does what rac.h says.
**
** The unit of work is a tile and a group of sequences. The groups of a backward call depend on the
** problem alone, as their sums are added up in turn: results do not depend on the threads. */
#include <stdio.h>
#include <string.h>

#include "../lag.h"
#include "rac.h"

#define SUMS 4 /* with fewer tiles than this, sums over the batch are made in several groups */

typedef struct plan {
    const tl_host    *h;
    const rac_kernel *kernel;
    rac_split         split;
    int64_t           n, d, tiles;
    int               causal;
    int64_t           negative; /* lags below 0: n - 1, or none */
    int64_t           block, each; /* floats of a block; of a thread's scratch */
    float            *scratch;
    float            *sums;     /* [tiles groups] blocks, if there are groups; NULL */
} plan;

/* What one thread works with: blocks, and rows for channels and lengths that do not fit. */
typedef struct lane {
    float *spectrum, *sum, *blocks[2];
    float *rows[2]; /* [N, lanes] */
} lane;

typedef struct job {
    const plan        *s;
    const tl_tno_args *a;
    int64_t            groups; /* of the batch */
} job;

/* ---- Plan ------------------------------------------------------------------------------------ */

static const rac_kernel *const kernels[] = {
#if defined(__x86_64__)
    &rac_avx512, &rac_avx2,
#endif
    &rac_portable,
};

enum { KERNELS = sizeof kernels / sizeof *kernels };

/* The kernel of that name, "auto": the first that the processor has; NULL: it has not that one. */
static const rac_kernel *kernel_named(const char *name)
{
    for (int i = 0; i < KERNELS; i++)
        if ((strcmp(name, "auto") == 0 || strcmp(name, kernels[i]->name) == 0) &&
            kernels[i]->supported())
            return kernels[i];
    return NULL;
}

static int accepts(const tl_tno_problem *p, char *why, size_t size)
{
    if (kernel_named(p->options[0].s)) return lag_accepts(p, why, size);
    (void)snprintf(why, size, "this processor has no %s", p->options[0].s);
    return 0;
}

static lane carve(const plan *s, int thread)
{
    float *p = s->scratch + thread * s->each;
    return (lane){.spectrum = p, .sum = p + s->block,
                  .blocks = {p + 2 * s->block, p + 3 * s->block},
                  .rows = {p + 4 * s->block, p + 4 * s->block + s->split.size * s->kernel->lanes}};
}

static void release(void *state)
{
    plan *s = state;
    rac_split_free(s->h, &s->split);
    s->h->free(s->h, s->scratch);
    s->h->free(s->h, s->sums);
    s->h->free(s->h, s);
}

static tl_status make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    plan *s = h->alloc(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    *s = (plan){.h = h, .kernel = kernel_named(p->options[0].s), .n = p->n, .d = p->d,
                .causal = p->causal, .negative = lag_zero(p)};
    tl_status st = rac_split_make(h, s->n, s->kernel->widest, &s->split);
    if (st == TL_OK) {
        int64_t lanes = s->kernel->lanes;
        s->tiles = (s->d + lanes - 1) / lanes;
        s->block = s->split.vectors * lanes;
        s->each = 4 * s->block + 2 * s->split.size * lanes;
        s->scratch = h->alloc(h, (size_t)(s->each * h->threads) * sizeof *s->scratch);
        if (s->tiles < SUMS) {
            s->sums = h->alloc(h, (size_t)(SUMS * s->block) * sizeof *s->sums);
            if (!s->sums) st = TL_ENOMEM;
        }
        if (!s->scratch) st = TL_ENOMEM;
    }
    if (st != TL_OK) {
        release(s);
        return st;
    }
    *out_plan = s;
    return TL_OK;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

typedef struct tile {
    int64_t first, channels;
    int     whole; /* its rows can be used where they are */
} tile;

static tile tile_of(const plan *s, int64_t number)
{
    tile t = {.first = number * s->kernel->lanes};
    t.channels = s->d - t.first < s->kernel->lanes ? s->d - t.first : s->kernel->lanes;
    t.whole = t.channels == s->kernel->lanes && s->n == s->split.size;
    return t;
}

#define AHEAD 16 /* rows that are asked for before they are needed: they are far apart */

static inline void copy_each(const float *from, int64_t stride, float *to, int64_t to_stride,
                             int64_t count, int64_t channels)
{
    for (int64_t k = 0; k < count; k++, from += stride, to += to_stride) {
        __builtin_prefetch(from + AHEAD * stride, 0);
        __builtin_prefetch(to + AHEAD * to_stride, 1);
        memcpy(to, from, (size_t)channels * sizeof *to);
    }
}

/* count rows; of a size that the compiler knows where all lanes are in use */
static void copy_rows(const float *from, int64_t stride, float *to, int64_t to_stride,
                      int64_t count, int64_t channels)
{
    switch (channels) {
    case 16: copy_each(from, stride, to, to_stride, count, 16); return;
    case 8: copy_each(from, stride, to, to_stride, count, 8); return;
    case 4: copy_each(from, stride, to, to_stride, count, 4); return;
    default: copy_each(from, stride, to, to_stride, count, channels);
    }
}

/* Rows first.. of to, count of them, are those of from; the others and further channels are 0. */
static rac_rows gathered(const plan *s, const tile *t, const float *from, int64_t first,
                         int64_t count, float *to)
{
    int64_t lanes = s->kernel->lanes;
    if (t->channels < lanes) memset(to, 0, (size_t)(s->split.size * lanes) * sizeof *to);
    memset(to, 0, (size_t)(first * lanes) * sizeof *to);
    copy_rows(from, s->d, to + first * lanes, lanes, count, t->channels);
    memset(to + (first + count) * lanes, 0,
           (size_t)((s->split.size - first - count) * lanes) * sizeof *to);
    return (rac_rows){to, lanes};
}

/* Tile t of n rows that are read only. */
static rac_rows rows_of(const plan *s, const tile *t, const float *x, float *room)
{
    if (t->whole) return (rac_rows){(float *)x + t->first, s->d};
    return gathered(s, t, x + t->first, 0, s->n, room);
}

/* Where rows for tile t of y go first, and then. */
static rac_rows rows_to(const plan *s, const tile *t, float *y, float *room)
{
    return t->whole ? (rac_rows){y + t->first, s->d} : (rac_rows){room, s->kernel->lanes};
}

static void scatter(const plan *s, const tile *t, const float *room, int64_t count, float *y)
{
    copy_rows(room, s->kernel->lanes, y + t->first, s->d, count, t->channels);
}

/* ---- Coefficients ---------------------------------------------------------------------------- */

/* The lags below 0 are the last rows of T', imaginary. */
static void spectrum(const plan *s, const tile *t, const lane *w, const float *coef)
{
    rac_rows re = rows_of(s, t, coef + s->negative * s->d, w->rows[0]), im = {NULL, 0};
    if (s->negative)
        im = gathered(s, t, coef + t->first, s->split.size - s->negative, s->negative, w->rows[1]);
    s->kernel->analyse(&s->split, re, im, w->spectrum);
}

static void coef_gradient(const plan *s, const tile *t, const lane *w, float *sum, float *dcoef)
{
    int64_t  lanes = s->kernel->lanes;
    float   *positive = dcoef + s->negative * s->d;
    rac_rows re = rows_to(s, t, positive, w->rows[0]), im = {NULL, 0};
    if (s->negative) im = (rac_rows){w->rows[1], lanes};
    s->kernel->synthesise(&s->split, sum, re, im);
    if (!t->whole) scatter(s, t, w->rows[0], s->n, positive);
    scatter(s, t, w->rows[1] + (s->split.size - s->negative) * lanes, s->negative, dcoef);
}

/* ---- Application ----------------------------------------------------------------------------- */

static void forward_items(void *user, int64_t begin, int64_t end, int thread)
{
    const job         *j = user;
    const plan        *s = j->s;
    const tl_tno_args *a = j->a;
    lane               w = carve(s, thread);
    for (int64_t item = begin; item < end; item++) {
        tile    t = tile_of(s, item / j->groups);
        int64_t g = item % j->groups;
        if (item == begin || g == 0) spectrum(s, &t, &w, a->coef);
        for (int64_t b = a->b * g / j->groups; b < a->b * (g + 1) / j->groups; b++) {
            int64_t  at = b * s->n * s->d;
            rac_rows x = rows_of(s, &t, a->x + at, w.rows[0]);
            rac_rows y = rows_to(s, &t, a->y + at, w.rows[0]);
            s->kernel->apply(&s->split, 0, w.spectrum, x, y, w.blocks[0]);
            if (!t.whole) scatter(s, &t, w.rows[0], s->n, a->y + at);
        }
    }
}

/* One sequence: dx, and its part of dT' is added to sum. */
static void backward_sequence(const plan *s, const tile *t, const lane *w, const tl_tno_args *a,
                              int64_t b, float *sum)
{
    int64_t  at = b * s->n * s->d;
    rac_rows dy = rows_of(s, t, a->dy + at, w->rows[0]), dx = {NULL, 0};
    if (a->dx) dx = rows_to(s, t, a->dx + at, w->rows[0]);
    if (a->dcoef) {
        rac_rows x = rows_of(s, t, a->x + at, w->rows[1]);
        s->kernel->adjoints(&s->split, w->spectrum, x, dy, dx, sum, w->blocks);
    } else if (a->dx) {
        s->kernel->apply(&s->split, 1, w->spectrum, dy, dx, w->blocks[0]);
    }
    if (a->dx && !t->whole) scatter(s, t, w->rows[0], s->n, a->dx + at);
}

static void backward_items(void *user, int64_t begin, int64_t end, int thread)
{
    const job         *j = user;
    const plan        *s = j->s;
    const tl_tno_args *a = j->a;
    lane               w = carve(s, thread);
    for (int64_t item = begin; item < end; item++) {
        tile    t = tile_of(s, item / j->groups);
        int64_t g = item % j->groups;
        float  *sum = j->groups > 1 ? s->sums + item * s->block : w.sum;
        if (a->dx && (item == begin || g == 0)) spectrum(s, &t, &w, a->coef);
        if (a->dcoef) memset(sum, 0, (size_t)s->block * sizeof *sum);
        for (int64_t b = a->b * g / j->groups; b < a->b * (g + 1) / j->groups; b++)
            backward_sequence(s, &t, &w, a, b, sum);
        if (a->dcoef && j->groups == 1) coef_gradient(s, &t, &w, sum, a->dcoef);
    }
}

/* The sums of the groups of each tile, and dcoef from them. */
static void sum_groups(void *user, int64_t begin, int64_t end, int thread)
{
    const job  *j = user;
    const plan *s = j->s;
    lane        w = carve(s, thread);
    for (int64_t number = begin; number < end; number++) {
        tile   t = tile_of(s, number);
        float *sum = s->sums + number * j->groups * s->block;
        for (int64_t g = 1; g < j->groups; g++)
            for (int64_t k = 0; k < s->block; k++) sum[k] += sum[g * s->block + k];
        coef_gradient(s, &t, &w, sum, j->a->dcoef);
    }
}

/* How many groups a batch is parted into so that there are count items of work. */
static int64_t groups_for(const plan *s, int64_t batch, int64_t count)
{
    int64_t groups = count / s->tiles < batch ? count / s->tiles : batch;
    return groups > 1 ? groups : 1;
}

static tl_status forward(void *state, const tl_tno_args *a)
{
    plan *s = state;
    job   j = {s, a, groups_for(s, a->b, s->h->threads)};
    s->h->parallel(s->h, s->tiles * j.groups, 1, forward_items, &j);
    return TL_OK;
}

static tl_status backward(void *state, const tl_tno_args *a)
{
    plan *s = state;
    job   j = {s, a, groups_for(s, a->b, SUMS)};
    s->h->parallel(s->h, s->tiles * j.groups, 1, backward_items, &j);
    if (a->dcoef && j.groups > 1) s->h->parallel(s->h, s->tiles, 1, sum_groups, &j);
    return TL_OK;
}

static tl_status dense(void *state, const tl_tno_args *a)
{
    const plan *s = state;
    lag_dense(s->n, s->d, s->causal, a->coef, a->dense);
    return TL_OK;
}

static const tl_option options[] = {
    {"isa", 's', "auto", "auto avx512 avx2 portable",
     "the processor's instructions to use; auto: the best that it has"},
    {0},
};

const tl_tno_backend tl_tno_backend_entry = {
    .abi = TL_TNO_ABI,
    .name = "rac",
    .summary = "right-angle convolution of our own, channels in vector lanes, O(n log n)",
    .domain = "lag",
    .options = options,
    .accepts = accepts,
    .points = lag_points,
    .plan = make,
    .forward = forward,
    .backward = backward,
    .dense = dense,
    .release = release,
};

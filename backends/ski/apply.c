/* apply.c - applies the operator and its adjoints (SKI, Algorithm 1), in each channel
**     y = S x + W A (W'x)          S[i,j] = t_(i-j+origin): tap k has lag k - origin
**     dx = S'dy + W A'(W'dy)       dt_k = sum over i of dy_i x_(i-k+origin)
**     dk_l = sum over a of (W'dy)_(a+l) (W'x)_a      k_l: A at the lag l of inducing points
** where dt and dk are sums over the batch too. In a causal operator the lower triangle of W A W'
** takes the place of W A W' (causal.c).
**
** The loops, from the outermost: tiles of channels, which are shared among threads; sequences;
** blocks of tokens; groups of channels. A thread has whole channels for all sequences, so that sums
** over the batch do not depend on the number of threads, and taps and A are loaded once per tile.
**
** A bidirectional operator passes over a sequence twice: no output is known before W'x is complete.
** A causal one needs only earlier tokens and passes once (causal.c). The backward call passes first
** for the sums, then for dx.
**
** The gradients of taps and of a causal A are summed in float32 within a block only, the gradient
** of a bidirectional A within a sequence; beyond that they are summed in float64, so that they do
** not lose digits as the batch or the number of blocks grows.
**
** Nothing that depends on coefficients or taps is kept from one call to the next. */
#include <string.h>

#include "ski.h"

typedef struct job {
    const ski_plan    *s;
    const tl_tno_args *a;
} job;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- Scratch --------------------------------------------------------------------------------- */

/* Allocates rows of the scratch buffer; without base it only counts them, so that the same code
** first measures the layout, for the plan, and then carves it for each thread. */
typedef struct heap {
    lanes  *base;
    int64_t rows;
} heap;

static void *ski_take(heap *h, int64_t rows)
{
    h->rows += rows;
    return h->base ? h->base + (h->rows - rows) : NULL;
}

/* Allocates rows with margins of END rows of zeros. Sums are computed STEP outputs at a time and so
** read beyond either end; W has WIDTH columns even for 3 inducing points, where its fourth, of
** weight 0, lies beyond the last. */
enum { END = STEP + WIDTH };
static void *take_padded(heap *h, int64_t rows)
{
    lanes *p = ski_take(h, END + rows + END);
    return p ? p + END : NULL;
}

static ski_group carve_group(const ski_plan *s, heap *h)
{
    const int64_t twice = sizeof(double) / sizeof(float);
    ski_group     g = {.column = -1};
    g.x = ski_take(h, s->window);
    g.other = ski_take(h, BLOCK);
    g.taps = ski_take(h, s->taps);
    g.kernel = ski_take(h, s->lags + END);
    g.z = take_padded(h, s->r);
    g.g = take_padded(h, s->r);
    g.v = ski_take(h, s->r + END);
    g.tap_sums = ski_take(h, s->taps * twice);
    g.kernel_sums = ski_take(h, s->lags * twice);
    g.spectra = ski_take(h, s->line);
    return g;
}

static int64_t carve(const ski_plan *s, lanes *base, ski_work *w)
{
    heap h = {base, 0};
    w->s = s;
    w->out = ski_take(&h, BLOCK);
    w->flip = ski_take(&h, ski_up(s->r));
    w->sums = ski_take(&h, larger(ski_up(s->taps), ski_up(s->lags + 1)));
    for (int k = 0; k < 3; k++) w->line[k] = ski_take(&h, s->line / LANES);
    for (int64_t g = 0; g < s->groups; g++) w->group[g] = carve_group(s, &h);
    return h.rows;
}

void ski_layout(ski_plan *s)
{
    heap     h = {0};
    ski_work w;
    s->window = BLOCK + ski_up(s->taps);
    s->line = (s->size + 2 + LANES - 1) / LANES * LANES;
    if (!s->size) s->line = 0;
    (void)carve_group(s, &h);
    s->stride = h.rows;
    s->each = carve(s, NULL, &w);
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

/* Loads the taps and A of the tile whose channels begin at `first`. With zero=mean the coefficient
** of lag 0 is the mean of two rows: the rows behind them move up by one, and the one that becomes
** free behind the last lag has to be 0, as the margin is. */
static void load_operator(ski_work *w, const tl_tno_args *a, int64_t first)
{
    const ski_plan *s = w->s;
    if (s->taps) ski_load(w, a->params[0] + first, s->taps, 0, s->taps, w->group[0].taps);
    if (!s->low) return;
    ski_load(w, a->coef + first, s->points, 0, s->points, w->group[0].kernel);
    for (int64_t g = 0; g < w->groups; g++) {
        lanes *kernel = w->group[g].kernel, *middle = kernel + s->zero;
        if (s->mean) {
            middle[0] = 0.5f * (middle[0] + middle[1]);
            memmove(middle + 1, middle + 2, (size_t)(s->r - 1) * sizeof *middle);
            kernel[s->lags] = (lanes){0};
        }
        ski_prepare(w, &w->group[g]);
    }
}

/* The forward call convolves with the taps and the adjoint correlates; both use ski_correlate. */
static void reverse_taps(ski_work *w)
{
    for (int64_t g = 0; g < w->groups; g++)
        for (lanes *a = w->group[g].taps, *b = a + w->s->taps - 1; a < b; a++, b--) {
            lanes old = *a;
            *a = *b;
            *b = old;
        }
}

static void begin_tile(ski_work *w, const tl_tno_args *a, int64_t first)
{
    int64_t most = w->s->groups * LANES;
    w->channels = smaller(w->s->d - first, most);
    w->groups = (w->channels + LANES - 1) / LANES;
    load_operator(w, a, first);
}

/* Clears the state at the start of a sequence, and the rows behind it to which W may have added 0
** times a NaN. */
static void clear_state(ski_work *w)
{
    size_t bytes = (size_t)(w->s->r + WIDTH) * sizeof(lanes);
    for (int64_t k = 0; w->s->low && k < w->groups; k++) {
        ski_group *g = &w->group[k];
        memset(g->z, 0, bytes);
        memset(g->g, 0, bytes);
        memset(g->v, 0, bytes);
        memset(g->pending, 0, sizeof g->pending);
        g->column = -1;
    }
}

/* ---- Prefetching ----------------------------------------------------------------------------- */

/* The number of rows first..first+BLOCK-1 that lie in group k of x [n,d]; *row is the first. */
static int64_t there(const ski_work *w, int64_t k, const float *x, int64_t first, const float **row)
{
    int64_t from = larger(first, 0), to = smaller(first + BLOCK, w->s->n);
    if (from >= to) return 0;
    *row = x + from * w->s->d + k * LANES;
    return to - from;
}

/* Lists, for group k, the rows of a from `first` on and of b and y from `at` on; b or y may be
** NULL. */
static ski_ahead ahead_of(const ski_work *w, int64_t k, const float *a, int64_t first,
                          const float *b, const float *y, int64_t at)
{
    ski_ahead next = {.step = w->s->d};
    next.reads[0] = there(w, k, a, first, &next.read[0]);
    if (b) next.reads[1] = there(w, k, b, at, &next.read[1]);
    if (y) next.writes = there(w, k, y, at, &next.write);
    return next;
}

/* ---- Forward --------------------------------------------------------------------------------- */

/* The second pass: y = S x + W v a block at a time, or in the causal case the only one. Output i of
** the taps needs x from i - lead to i + origin, so that a block loads taps - 1 rows more than it
** has outputs; of the rows of the next block, only those from first + BLOCK + origin on are new and
** are prefetched. Rows outside the sequence are loaded as 0. Without taps the correlation writes
** zeros, to which the low-rank part is added. */
static void forward_blocks(ski_work *w, const float *x, float *y)
{
    const ski_plan *s = w->s;
    int64_t         more = s->taps ? s->taps - 1 : 0, lead = more - s->origin;
    for (int64_t first = 0; first < s->n; first += BLOCK) {
        int64_t count = smaller(BLOCK, s->n - first);
        if (s->taps || s->causal)
            ski_load(w, x, s->n, first - lead, count + more, w->group[0].x);
        for (int64_t k = 0; k < w->groups; k++) {
            ski_group *g = &w->group[k];
            ski_ahead  next = ahead_of(w, k, x, first + BLOCK + s->origin, NULL, y, first + BLOCK);
            ski_correlate(g->taps, s->taps, g->x, count, w->out,
                          s->taps ? &next : NULL);
            if (s->low && s->causal)
                ski_causal_forward(s, g, first, count, g->x + lead, w->out);
            if (s->low && !s->causal)
                ski_spread(w, k, first, count, g->v, w->out, y);
            else
                ski_store(w, k, w->out, count, y + first * s->d);
        }
    }
}

/* The first pass of a bidirectional operator computes v = A W'x. It reads x in place, for all
** groups at once, since it uses each row only once. */
static void forward_sequence(ski_work *w, const float *x, float *y)
{
    const ski_plan *s = w->s;
    clear_state(w);
    if (s->low && !s->causal) {
        for (int64_t first = 0; first < s->n; first += BLOCK)
            ski_gather(w, x, first, smaller(BLOCK, s->n - first), w->group[0].z);
        for (int64_t g = 0; g < w->groups; g++) ski_multiply(w, &w->group[g]);
    }
    forward_blocks(w, x, y);
}

static void forward_tiles(void *user, int64_t begin, int64_t end, int thread)
{
    const job  *j = user;
    ski_work    w = {0};
    const int64_t each = j->s->n * j->s->d;
    (void)carve(j->s, j->s->scratch + thread * j->s->each, &w);
    for (int64_t tile = begin; tile < end; tile++) {
        int64_t first = tile * j->s->groups * LANES;
        begin_tile(&w, j->a, first);
        reverse_taps(&w);
        for (int64_t b = 0; b < j->a->b; b++)
            forward_sequence(&w, j->a->x + b * each + first, j->a->y + b * each + first);
    }
}

/* ---- Backward -------------------------------------------------------------------------------- */

/* Which gradients a backward call computes. */
typedef struct gradients {
    int x, coef, taps;
} gradients;

/* Processes one block of one group: the gradients of the taps and of a causal A, or W'x and W'dy
** for a bidirectional one. dy at lag k - origin from token `first` is row k of g->x, whose first
** row is token first - origin: the gradients of all taps are one correlation. */
static void block_sums(ski_work *w, int64_t k, int64_t first, int64_t count, gradients needed,
                       const ski_ahead *next)
{
    const ski_plan *s = w->s;
    ski_group      *g = &w->group[k];
    const lanes    *x = g->other, *dy = g->x + s->origin;
    if (needed.taps) {
        ski_correlate(x, count, g->x, s->taps, w->sums, next);
        ski_add(g->tap_sums, w->sums, s->taps);
    }
    if (!s->low) return;
    if (s->causal) {
        if (needed.coef) ski_causal_sums(s, g, first, count, x, dy);
        return;
    }
    if (needed.coef) ski_gather_rows(s, x, first, count, g->z);
    ski_gather_rows(s, dy, first, count, g->g);
}

/* The first pass of a backward call: all sums over a sequence, blocks in ascending order. */
static void backward_sums(ski_work *w, const float *x, const float *dy, gradients needed)
{
    const ski_plan *s = w->s;
    int64_t         more = s->taps ? s->taps - 1 : 0;
    for (int64_t first = 0; first < s->n; first += BLOCK) {
        int64_t count = smaller(BLOCK, s->n - first);
        if (!needed.taps && !s->causal) { /* all groups at once, as nothing else needs their rows */
            ski_gather(w, dy, first, count, w->group[0].g);
            if (needed.coef) ski_gather(w, x, first, count, w->group[0].z);
            continue;
        }
        ski_load(w, dy, s->n, first - s->origin, count + more, w->group[0].x);
        if (needed.taps || needed.coef) ski_load(w, x, s->n, first, count, w->group[0].other);
        for (int64_t k = 0; k < w->groups; k++) {
            ski_ahead next = ahead_of(w, k, dy, first + BLOCK + more - s->origin, x, NULL,
                                      first + BLOCK);
            block_sums(w, k, first, count, needed, &next);
        }
    }
}

/* The second pass: dx = S'dy + W v with v = A'W'dy. Blocks run from the last to the first, because
** causally dx of a token depends on dy of later ones. */
static void backward_blocks(ski_work *w, const float *dy, float *dx)
{
    const ski_plan *s = w->s;
    int64_t         more = s->taps ? s->taps - 1 : 0;
    for (int64_t first = (s->n - 1) / BLOCK * BLOCK; first >= 0; first -= BLOCK) {
        int64_t count = smaller(BLOCK, s->n - first);
        if (s->taps || s->causal)
            ski_load(w, dy, s->n, first - s->origin, count + more, w->group[0].x);
        for (int64_t k = 0; k < w->groups; k++) {
            ski_group *g = &w->group[k];
            ski_ahead  next = ahead_of(w, k, dy, first - BLOCK - s->origin, NULL, dx,
                                       first - BLOCK);
            ski_correlate(g->taps, s->taps, g->x, count, w->out,
                          s->taps ? &next : NULL);
            if (s->low && s->causal)
                ski_causal_back(s, g, first, count, g->x + s->origin, w->out);
            if (s->low && !s->causal)
                ski_spread(w, k, first, count, g->v, w->out, dx);
            else
                ski_store(w, k, w->out, count, dx + first * s->d);
        }
    }
}

/* The causal gradient of A (backward_sums) and the causal adjoint (backward_blocks) use the same
** state, which is therefore cleared between them. */
static void backward_sequence(ski_work *w, const float *x, const float *dy, float *dx,
                              gradients needed)
{
    const ski_plan *s = w->s;
    int             two_sided = s->low && !s->causal;
    clear_state(w);
    if ((two_sided && (needed.x || needed.coef)) || needed.taps || needed.coef)
        backward_sums(w, x, dy, needed);
    for (int64_t g = 0; two_sided && g < w->groups; g++) {
        if (needed.x) ski_transpose(w, &w->group[g]);
        if (needed.coef) ski_kernel_sums(w, &w->group[g]);
    }
    if (!two_sided) clear_state(w);
    if (needed.x) backward_blocks(w, dy, dx);
}

/* Rounds sums of group g to float32 and stores them. With zero=mean the sum of lag 0 is the
** gradient of the mean of two coefficients: each of their two rows receives half of it. */
static void store_sums(const ski_work *w, int64_t g, const double *sums, int64_t count, float *to)
{
    const ski_plan *s = w->s;
    for (int64_t k = 0; k < count; k++)
        for (int c = 0; c < LANES; c++) w->sums[k][c] = (float)sums[k * LANES + c];
    if (s->mean && sums == w->group[g].kernel_sums) {
        lanes *middle = w->sums + s->zero;
        memmove(middle + 1, middle, (size_t)s->r * sizeof *middle);
        middle[0] *= 0.5f;
        middle[1] *= 0.5f;
        count++;
    }
    ski_store(w, g, w->sums, count, to);
}

static void backward_tile(ski_work *w, const tl_tno_args *a, int64_t first)
{
    const ski_plan *s = w->s;
    float          *dtaps = s->taps && a->dparams ? a->dparams[0] : NULL;
    gradients            needed = {a->dx != NULL, a->dcoef && s->low, dtaps != NULL};
    begin_tile(w, a, first);
    for (int64_t g = 0; g < w->groups; g++) {
        memset(w->group[g].tap_sums, 0, (size_t)s->taps * LANES * sizeof(double));
        memset(w->group[g].kernel_sums, 0, (size_t)s->lags * LANES * sizeof(double));
    }
    for (int64_t b = 0; b < a->b; b++) {
        int64_t at = b * s->n * s->d + first;
        backward_sequence(w, a->x + at, a->dy + at, a->dx ? a->dx + at : NULL, needed);
    }
    for (int64_t g = 0; g < w->groups; g++) {
        if (dtaps) store_sums(w, g, w->group[g].tap_sums, s->taps, dtaps + first);
        if (needed.coef)
            store_sums(w, g, w->group[g].kernel_sums, s->lags, a->dcoef + first);
    }
    if (a->dcoef && !s->low) /* the coefficients are not used */
        memset(a->dcoef + first, 0, (size_t)w->channels * sizeof(float));
}

static void backward_tiles(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    ski_work   w = {0};
    (void)carve(j->s, j->s->scratch + thread * j->s->each, &w);
    for (int64_t tile = begin; tile < end; tile++)
        backward_tile(&w, j->a, tile * j->s->groups * LANES);
}

static void ski_run(const ski_plan *s, const tl_tno_args *a, tl_body body)
{
    s->h->parallel(s->h, ski_tiles(s), 1, body, &(job){s, a});
}

tl_status ski_forward(void *plan, const tl_tno_args *a)
{
    ski_run(plan, a, forward_tiles);
    return TL_OK;
}

tl_status ski_backward(void *plan, const tl_tno_args *a)
{
    ski_run(plan, a, backward_tiles);
    return TL_OK;
}

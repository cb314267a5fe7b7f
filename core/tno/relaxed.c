/* relaxed.c - multiplies a causal Toeplitz operator with an input that arrives one position at a
** time, in O(n log^2 n) for n positions (relaxed multiplication, van der Hoeven 2002; for long
** convolutions Flash Inference, 2024).
**
** Let p inputs have arrived, p a multiple of BLOCK, and let q be the largest power of two that
** divides p. Then the tile of p adds what the last q inputs contribute to the next q outputs:
**     y_(p+i) += sum over j < q of k_(q+i-j) x_(p-q+j)      0 <= i < q.
** Every pair of an input and a later output in different blocks of BLOCK positions belongs to
** exactly one tile; pairs within a block are summed directly. A tile is a Toeplitz matrix of
** length q with the lags 1-q .. q-1 and the coefficients k_1 .. k_(2q-1), an operator that a
** backend computes. The backend's cache holds their transform, which all tiles of one size share.
**
** Position p would wait for a tile of p, of any size. So q is TL_LAZY_FROM at most: then the tiles
** pair each input with the outputs of its own block of TL_LAZY_FROM positions and of the next one,
** and lazy.c adds the others in the background, long before they are needed.
**
** A kernel of finitely many lags needs no tile larger than Q, the least power of two from lags - 1
** on: older inputs have no effect any more, their rows of the state are used again, and the stream
** can go on for ever.
**
** Memory. Row i of the state holds what is known of output i until input i arrives, and from then
** on that input, because output i is then complete. The state has as many rows as positions may
** follow, but at most Q, or 2Q with lazy tiles, which write later outputs while others read old
** inputs.
**
** A prompt is the first call, if it has several positions. It costs one product of the whole
** operator, which also gives what the prompt contributes to later outputs. Positions are then
** counted from the end of the prompt. The product is computed for some channels at a time, in
** temporary memory. The kernel itself is stored until all its streams have begun; later the first
** taps and the transforms suffice. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "tno/lazy.h"
#include "tno/recurrent.h"

#define BLOCK          32 /* positions of a block that is summed directly */
#define RELAXED_LEVELS 8  /* from BLOCK to TL_LAZY_FROM at most */
#define GRAIN          (1 << 17) /* products that justify another thread */

/* ---- Kernels --------------------------------------------------------------------------------- */

typedef struct relaxed_level { /* number l has tiles of BLOCK 2^l */
    tl_tile_plan *plan;
    float        *cache; /* of the backend */
} relaxed_level;

/* What streams with the same kernel share. */
typedef struct kernel {
    int             refs;
    int             fresh; /* streams that have not begun, which may need the lags for a prompt */
    tl_ctx         *ctx;
    int64_t         d, width, lags;
    int64_t         positions; /* of a stream; 0: any number */
    int64_t         largest;   /* Q */
    int             levels;
    relaxed_level   level[RELAXED_LEVELS];
    float          *taps; /* [BLOCK,width] */
    float          *all;  /* [lags,d], while a stream is fresh */
    tl_lazy_kernel *lazy; /* the lazy tiles, or NULL */
} kernel;

static void kernel_drop(kernel *k)
{
    if (--k->refs > 0) return;
    for (int l = 0; l < k->levels; l++) {
        tl_release(k->ctx, k->level[l].cache);
        tl_tile_plan_drop(k->ctx, k->level[l].plan);
    }
    tl_lazy_kernel_free(k->lazy);
    tl_release(k->ctx, k->taps);
    tl_release(k->ctx, k->all);
    free(k);
}

static tl_status kernel_fill(kernel *k, const float *all)
{
    tl_ctx *ctx = k->ctx;
    int64_t end = k->positions > 0 ? k->positions : INT64_MAX, top = BLOCK;
    tl_status st = tl_lazy_kernel_new(ctx, all, k->lags, k->d, k->positions, &k->lazy);
    if (st != TL_OK) return st;
    while (2 * top < end && top < (k->lazy ? TL_LAZY_FROM : k->largest)) top *= 2;
    k->taps = tl_alloc(ctx, (size_t)(BLOCK * k->width) * sizeof *k->taps);
    k->all = tl_alloc(ctx, (size_t)(k->lags * k->d) * sizeof *k->all);
    float *coef = tl_alloc(ctx, (size_t)(2 * top * k->width) * sizeof *coef);
    if (k->taps && k->all && coef) {
        memcpy(k->all, all, (size_t)(k->lags * k->d) * sizeof *all);
        tl_kernel_part(all, k->lags, k->d, 0, BLOCK, 0, k->width, k->taps);
        tl_kernel_part(all, k->lags, k->d, 1, 2 * top, 0, k->width, coef);
    } else {
        st = TL_ENOMEM;
    }
    for (int64_t q = BLOCK; q < end && q <= top && st == TL_OK; q *= 2) {
        relaxed_level *l = &k->level[k->levels];
        st = tl_tile_plan_find(ctx, q, k->width, 0, &l->plan);
        if (st != TL_OK) break;
        k->levels++;
        st = tl_tile_plan_cache(ctx, l->plan, coef, &l->cache);
    }
    tl_release(ctx, coef);
    return st;
}

static tl_status kernel_new(tl_ctx *ctx, const float *all, int64_t lags, int64_t d,
                            int64_t positions, kernel **out_k)
{
    kernel *k = calloc(1, sizeof *k);
    if (!k) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    *k = (kernel){.refs = 1, .ctx = ctx, .d = d, .lags = lags, .positions = positions,
                  .width = tl_lanes(d) * LANE, .largest = BLOCK};
    while (k->largest < lags - 1) k->largest *= 2;
    tl_status st = kernel_fill(k, all);
    if (st == TL_OK)
        *out_k = k;
    else
        kernel_drop(k);
    return st;
}

/* ---- Streams --------------------------------------------------------------------------------- */

typedef struct relaxed {
    kernel  *k;
    int64_t  b, rows; /* sequences, and rows of the state of each */
    int64_t  at;      /* inputs since the prompt */
    int      begun;
    float   *state; /* [b,rows,width] */
    tl_lazy *lazy;  /* or NULL */
} relaxed;

/* The stream needs the lags no longer. */
static void begin(relaxed *s)
{
    if (s->begun) return;
    s->begun = 1;
    if (--s->k->fresh > 0) return;
    tl_release(s->k->ctx, s->k->all);
    s->k->all = NULL;
}

static void relaxed_release(void *state)
{
    relaxed *s = state;
    tl_lazy_free(s->lazy);
    tl_release(s->k->ctx, s->state);
    begin(s);
    kernel_drop(s->k);
    free(s);
}

static size_t state_bytes(const relaxed *s)
{
    return (size_t)(s->b * s->rows * s->k->width) * sizeof *s->state;
}

static void relaxed_sizes(const void *state, tl_recurrence_size *out_size)
{
    const relaxed *s = state;
    const kernel  *k = s->k;
    int64_t       floats = BLOCK * k->width + (k->all ? k->lags * k->d : 0);
    for (int l = 0; l < k->levels; l++)
        floats += tl_plan_cache_floats(&k->level[l].plan->hosted.plan);
    out_size->state_bytes = state_bytes(s);
    out_size->kernel_bytes = (size_t)floats * sizeof(float) + tl_lazy_kernel_bytes(k->lazy);
}

static void relaxed_reset(void *state)
{
    relaxed *s = state;
    if (s->lazy) tl_lazy_cancel(s->lazy);
    memset(s->state, 0, state_bytes(s));
    s->at = 0;
}

/* Makes a stream of a kernel. Takes over the caller's reference to k, also on failure. */
static tl_status stream_new(kernel *k, int64_t b, void **out_state)
{
    int64_t     ring = k->lazy ? 2 * k->largest : k->largest;
    relaxed *s = calloc(1, sizeof *s);
    if (!s) {
        tl_ctx *ctx = k->ctx;
        kernel_drop(k);
        return tl_fail(ctx, TL_ENOMEM, "out of memory");
    }
    k->fresh++;
    *s = (relaxed){.k = k, .b = b};
    s->rows = k->positions && k->positions < ring ? k->positions : ring;
    s->state = tl_alloc(k->ctx, state_bytes(s));
    tl_status st = s->state ? TL_OK : TL_ENOMEM;
    if (st == TL_OK && k->lazy)
        st = tl_lazy_new(k->lazy, s->state, b, s->rows, k->width, &s->lazy);
    if (st != TL_OK) {
        relaxed_release(s);
        return st;
    }
    memset(s->state, 0, state_bytes(s));
    *out_state = s;
    return TL_OK;
}

static tl_status relaxed_create(const tl_tensor *t, const tl_tensor *gamma,
                                tl_recurrence_kind kind, int64_t b, int64_t positions,
                                void **out_state)
{
    kernel   *k = NULL;
    float    *all = tl_decayed_kernel(t, gamma);
    tl_status st = all ? kernel_new(t->ctx, all, t->dims[0], t->dims[1], positions, &k) : TL_ENOMEM;
    (void)kind;
    tl_release(t->ctx, all);
    return st == TL_OK ? stream_new(k, b, out_state) : st;
}

static tl_status relaxed_fork(const void *state, void **out_state)
{
    const relaxed *s = state;
    if (!s->k->all)
        return tl_fail(s->k->ctx, TL_EINVAL, "recurrence: a relaxed one that has begun has no "
                       "kernel left to share");
    s->k->refs++;
    return stream_new(s->k, s->b, out_state);
}

/* ---- One position ---------------------------------------------------------------------------- */

/* Adds the tile of p to the rows that follow; p is a multiple of BLOCK and p < positions. */
static tl_status relaxed_add_tile(relaxed *s, int64_t p)
{
    const kernel *k = s->k;
    int64_t       q = BLOCK, first = p % s->rows;
    int           l = 0;
    for (; l + 1 < k->levels && p % (2 * q) == 0; q *= 2) l++;
    tl_tile_plan *plan = k->level[l].plan;
    int64_t       count = (s->rows - first < q ? s->rows - first : q) * k->width;
    for (int64_t i = 0; i < s->b; i++) {
        float      *rows = s->state + i * s->rows * k->width;
        int64_t     from = (first > 0 ? first : s->rows) - q;
        tl_tno_args a = {.b = 1, .x = rows + from * k->width, .y = plan->y,
                         .cache = k->level[l].cache, .cached = 1};
        tl_status   st = tl_plan_forward(&plan->hosted.plan, &a);
        if (st != TL_OK) return st;
        rows += first * k->width;
        if (q == s->rows) /* the inputs in these rows have had their last effect */
            memcpy(rows, plan->y, (size_t)count * sizeof *rows);
        else
            for (int64_t e = 0; e < count; e++) rows[e] += plan->y[e];
    }
    return TL_OK;
}

/* The tiles of p with the lazy ones. Where the state is a ring, this also clears the rows of inputs
** that have had their last effect, for the outputs from p + Q on. */
static tl_status add_tiles(relaxed *s, int64_t p)
{
    if (s->lazy) tl_lazy_advance(s->lazy, p);
    if (!s->lazy || p % TL_LAZY_FROM != 0) return relaxed_add_tile(s, p);
    int64_t   width = s->k->width, expired = (p + s->k->largest) % s->rows;
    tl_status st = tl_lazy_await(s->lazy, p);
    if (st == TL_OK) st = relaxed_add_tile(s, p);
    if (st != TL_OK) return st;
    for (int64_t i = 0; i < s->b && s->rows == 2 * s->k->largest; i++)
        memset(s->state + (i * s->rows + expired) * width, 0,
               (size_t)(TL_LAZY_FROM * width) * sizeof *s->state);
    tl_lazy_begin(s->lazy, p);
    return TL_OK;
}

typedef struct job {
    const relaxed *s;
    const float      *x; /* of the position, the sequences apart by stride */
    float            *y;
    int64_t           stride;
} job;

/* One position of the sequences begin..end-1: adds the inputs of its block, and stores its own. */
static void sum_block(void *user, int64_t begin, int64_t end, int thread)
{
    const job        *j = user;
    const relaxed *s = j->s;
    const kernel     *k = s->k;
    int64_t           before = s->at % BLOCK;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float *row = s->state + (i * s->rows + s->at % s->rows) * k->width;
        for (int64_t c = 0; c < k->d; c += LANE) {
            int64_t width = k->d - c < LANE ? k->d - c : LANE;
            float   x[LANE] = {0}, y[LANE];
            memcpy(x, j->x + i * j->stride + c, (size_t)width * sizeof *x);
            for (int e = 0; e < LANE; e++) y[e] = row[c + e] + k->taps[c + e] * x[e];
            for (int64_t lag = 1; lag <= before; lag++)
                for (int e = 0; e < LANE; e++)
                    y[e] += k->taps[lag * k->width + c + e] * row[c + e - lag * k->width];
            memcpy(row + c, x, sizeof x);
            memcpy(j->y + i * j->stride + c, y, (size_t)width * sizeof *y);
        }
    }
}

/* ---- A prompt -------------------------------------------------------------------------------- */

/* The parts of a prompt: some channels of one sequence after the other. */
typedef struct part {
    tl_hosted_plan hosted; /* of the positions of the prompt, and those after it that it reaches */
    int64_t     length, after, channels;
    float      *coef, *x, *y, *cache;
} part;

static void part_close(tl_ctx *ctx, part *p)
{
    tl_plan_close(&p->hosted.plan);
    float *const blocks[] = {p->coef, p->x, p->y, p->cache};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) tl_release(ctx, blocks[i]);
}

static tl_status part_open(const relaxed *s, int64_t n, part *p)
{
    tl_ctx *ctx = s->k->ctx;
    int64_t after = s->rows < s->k->largest ? s->rows : s->k->largest;
    *p = (part){.length = n + after, .after = after, .channels = LANE * ctx->threads};
    if (p->channels > s->k->width) p->channels = s->k->width;
    tl_status st = tl_hosted_plan_open(ctx, p->length, p->channels, 1, 0, &p->hosted);
    if (st != TL_OK) return st;
    size_t bytes = (size_t)(p->length * p->channels) * sizeof(float);
    p->coef = tl_alloc(ctx, bytes);
    p->x = p->coef ? tl_alloc(ctx, bytes) : NULL;
    p->y = p->x ? tl_alloc(ctx, bytes) : NULL;
    if (p->y)
        p->cache = tl_alloc(ctx, (size_t)tl_plan_cache_floats(&p->hosted.plan) * sizeof(float));
    if (p->cache) return TL_OK;
    part_close(ctx, p);
    return TL_ENOMEM;
}

/* to [count, to_stride] = from [count, from_stride], `channels` of each row. */
static void copy(const float *from, int64_t from_stride, float *to, int64_t to_stride,
                 int64_t count, int64_t channels)
{
    for (int64_t k = 0; k < count; k++)
        memcpy(to + k * to_stride, from + k * from_stride, (size_t)channels * sizeof *to);
}

/* y = the operator times x, both [b,n,d], and the state = what x contributes after it. */
static tl_status prompt(relaxed *s, const float *x, float *y, int64_t n)
{
    const kernel *k = s->k;
    part          p;
    tl_status     st = part_open(s, n, &p);
    if (st != TL_OK) return st;
    int64_t w = p.channels, d = k->d;
    for (int64_t c = 0; c < d && st == TL_OK; c += w) {
        int64_t count = d - c < w ? d - c : w;
        tl_kernel_part(k->all, k->lags, d, 0, p.length, c, w, p.coef);
        memset(p.x, 0, (size_t)(p.length * w) * sizeof *p.x);
        for (int64_t i = 0; i < s->b && st == TL_OK; i++) {
            tl_tno_args a = {.b = 1, .coef = p.coef, .x = p.x, .y = p.y, .cache = p.cache,
                             .cached = i > 0};
            copy(x + i * n * d + c, d, p.x, w, n, count);
            st = tl_plan_forward(&p.hosted.plan, &a);
            copy(p.y, w, y + i * n * d + c, d, n, count);
            copy(p.y + n * w, w, s->state + i * s->rows * k->width + c, k->width, p.after, count);
        }
    }
    part_close(k->ctx, &p);
    return st;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static tl_status no_room(const relaxed *s, int64_t n)
{
    return tl_fail(s->k->ctx, TL_EINVAL,
                   "recurrence: %lld positions after %lld others, but the relaxed form was made "
                   "for %lld after the prompt",
                   (long long)n, (long long)s->at, (long long)s->k->positions);
}

static tl_status relaxed_step(void *state, const float *x, float *y, int64_t n)
{
    relaxed      *s = state;
    const kernel *k = s->k;
    tl_status     st = TL_OK;
    if (n > 1 && !s->begun) {
        st = prompt(s, x, y, n);
    } else {
        if (k->positions && n > k->positions - s->at) return no_room(s, n);
        for (int64_t i = 0; i < n && st == TL_OK; i++) {
            job j = {s, x + i * k->d, y + i * k->d, n * k->d};
            if (s->at > 0 && s->at % BLOCK == 0) st = add_tiles(s, s->at);
            if (st != TL_OK) break;
            tl_parallel(k->ctx, s->b, GRAIN / (BLOCK * k->width) + 1, sum_block, &j);
            s->at++;
        }
    }
    if (st == TL_OK && n > 0) begin(s);
    return st;
}

const tl_recurrence_form tl_relaxed_form = {"the relaxed form", relaxed_create, relaxed_step,
                                            relaxed_reset, relaxed_fork, relaxed_release,
                                            relaxed_sizes, NULL, NULL};

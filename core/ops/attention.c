/* attention.c - computes attention by softmax in tiles, blocks of queries times blocks of keys,
** so that the scores are never all in memory.
**
** The forward pass goes over the keys of a block of queries with a running maximum, and rescales
** what it has summed when the maximum rises (Milakov and Gimelshein 2018; Dao et al. 2022). The
** gradient computes the weights again, from the saved maxima and sums. A tile depends on the sizes
** only, and sums over tiles go in one order, so that any number of threads gives the same bits. */
#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "base/memory.h"
#include "base/threads.h"
#include "base/vecmath.h"
#include "engine/gradient.h"
#include "ops/attention.h"
#include "ops/random.h"
#include "ops/rows.h"
#include "products/gemm.h"

#define QUERIES 128    /* of a block */
#define KEYS    256
#define GRAIN   262144 /* products that justify another thread */

typedef struct task {
    tl_attention_job j;
    int              bf16;    /* operands of products are rounded */
    int              what;    /* the gradients that a pass computes */
    int64_t          blocks;  /* of queries or of keys, whichever a pass goes over */
    float           *scratch; /* of each thread: two tiles and a row of factors */
    float           *delta;   /* [pairs,m]: y . dy */
    double          *lags;    /* [pairs,m+n-1]: sums of the gradient of the bias */
} task;

/* The queries first .. first + rows - 1 of a pair, and the keys from .. from + cols - 1, which some
** of them see. */
typedef struct tile {
    int64_t pair, first, rows, from, cols;
} tile;

/* ---- Tiles ----------------------------------------------------------------------------------- */

static int64_t blocks_of(int64_t length, int64_t size) { return (length + size - 1) / size; }

/* The tile of a block of queries and a block of keys; without columns where no query sees a key. */
static tile tile_of(const tl_attention_job *j, int64_t pair, int64_t queries, int64_t keys)
{
    tile    c = {.pair = pair, .first = queries * QUERIES, .from = keys * KEYS};
    int64_t to = c.from + KEYS;
    c.rows = j->m - c.first < QUERIES ? j->m - c.first : QUERIES;
    int64_t low = tl_attention_seen(j, c.first).from;
    int64_t high = tl_attention_seen(j, c.first + c.rows - 1).to;
    if (c.from < low) c.from = low;
    if (to > high) to = high;
    c.cols = to > c.from ? to - c.from : 0;
    return c;
}

/* The columns of the tile that its row i sees. */
static tl_attention_span columns_of(const tl_attention_job *j, const tile *c, int64_t i)
{
    tl_attention_span s = tl_attention_seen(j, c->first + i);
    s.from = s.from > c->from ? s.from - c->from : 0;
    s.to = s.to - c->from < c->cols ? s.to - c->from : c->cols;
    if (s.to < s.from) s.from = s.to = 0;
    return s;
}

static void product(const tl_product *p, const float *a, const float *b, float *c)
{
    if (p->m == 0 || p->n == 0) return;
    if (p->k > 0)
        tl_gemm_serial(p->trans_a, p->trans_b, p->m, p->n, p->k, p->alpha, a, p->lda, b, p->ldb,
                       p->beta, c, p->ldc);
    else if (p->beta == 0)
        memset(c, 0, (size_t)(p->m * p->n) * sizeof *c);
}

/* s [rows,cols] = the scores of a tile; hidden ones are -infinity, or lie outside the columns that
** their row sees. */
static void scores_of(const tl_attention_job *j, const tile *c, float *s)
{
    const float *mask = j->mask ? j->mask + c->pair / j->shared * j->n + c->from : NULL;
    tl_product   p = {c->rows, c->cols, j->w, j->w, j->w, c->cols, j->scale, 0, 0, 1, 1, 1, 1};
    product(&p, j->q + (c->pair * j->m + c->first) * j->w,
            j->k + (c->pair * j->n + c->from) * j->w, s);
    for (int64_t i = 0; (j->bias || mask) && i < c->rows; i++) {
        tl_attention_span seen = columns_of(j, c, i);
        float *restrict row = s + i * c->cols;
        if (j->bias) {
            const float *restrict bias = j->bias + c->pair % j->rows * (j->m + j->n - 1) +
                                         c->from - (c->first + i) + j->m - 1;
            for (int64_t x = seen.from; x < seen.to; x++) row[x] += bias[x];
        }
        if (mask)
            for (int64_t x = seen.from; x < seen.to; x++)
                row[x] = mask[x] != 0 ? row[x] : -INFINITY;
    }
}

/* factors [cols]: 0 where the dropout drops a weight of row i of the tile, else j->kept. */
static void draw_row(const tl_attention_job *j, const tile *c, int64_t i, float *factors)
{
    uint32_t words[TL_DRAWN];
    int64_t  at = (c->pair * j->m + c->first + i) * j->n + c->from, end = at + c->cols;
    while (at < end) {
        int64_t group = at / TL_DRAWN, last = (group + 1) * TL_DRAWN;
        tl_draw_group(j->key, j->offset, group, words);
        for (; at < end && at < last; at++)
            *factors++ = words[at % TL_DRAWN] >= j->threshold ? j->kept : 0;
    }
}

static void round_array(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = tl_bf16_of(x[i]);
}

static int64_t tile_size(const tl_attention_job *j) /* of the largest tile, in cache lines */
{
    return ((j->m < QUERIES ? j->m : QUERIES) * (j->n < KEYS ? j->n : KEYS) + 15) / 16 * 16;
}

static float *scratch_of(const task *t, int thread)
{
    return t->scratch + thread * (2 * tile_size(&t->j) + KEYS);
}

/* ---- Forward --------------------------------------------------------------------------------- */

/* Turns the scores s of row i of a tile into weights relative to the row's largest score so far,
** to which y and *sum are rescaled. */
static void fold_row(const tl_attention_job *j, const tile *c, int64_t i, float *s, float *top,
                     double *sum, float *y)
{
    tl_attention_span seen = columns_of(j, c, i);
    int64_t n = seen.to - seen.from;
    float   best = row_max(s + seen.from, n), before = *top;
    if (best > before) *top = best;
    float base = *top == -INFINITY ? 0 : *top;
    float fade = before == -INFINITY ? 0 : tl_expf(before - base);
    *sum = *sum * (double)fade + row_exp(s + seen.from, s + seen.from, n, base);
    if (fade != 1)
        for (int64_t x = 0; x < j->c; x++) y[x] *= fade;
    memset(s, 0, (size_t)seen.from * sizeof *s);
    memset(s + seen.to, 0, (size_t)(c->cols - seen.to) * sizeof *s);
}

static void forward_block(const task *t, int64_t pair, int64_t block, float *s)
{
    const tl_attention_job *j = &t->j;
    tile    c = tile_of(j, pair, block, 0);
    int64_t first = pair * j->m + c.first, rows = c.rows;
    float  *y = j->y + first * j->c, *factors = s + 2 * tile_size(j), top[QUERIES];
    double  sum[QUERIES] = {0};
    for (int i = 0; i < QUERIES; i++) top[i] = -INFINITY;
    memset(y, 0, (size_t)(rows * j->c) * sizeof *y);
    for (int64_t b = 0; b < blocks_of(j->n, KEYS); b++) {
        c = tile_of(j, pair, block, b);
        if (c.cols == 0) continue;
        scores_of(j, &c, s);
        for (int64_t i = 0; i < rows; i++) {
            float *restrict row = s + i * c.cols;
            fold_row(j, &c, i, row, top + i, sum + i, y + i * j->c);
            if (j->threshold) {
                draw_row(j, &c, i, factors);
                for (int64_t x = 0; x < c.cols; x++) row[x] *= factors[x];
            }
        }
        if (t->bf16) round_array(s, rows * c.cols);
        tl_product p = {rows, j->c, c.cols, c.cols, j->c, j->c, 1, 1, 0, 0, 1, 1, 1};
        product(&p, s, j->v + (pair * j->n + c.from) * j->c, y);
    }
    for (int64_t i = 0; i < rows; i++) {
        float part = sum[i] == 0 ? 0 : (float)(1 / sum[i]);
        for (int64_t x = 0; x < j->c; x++) y[i * j->c + x] *= part;
        if (!j->stats) continue;
        j->stats[2 * (first + i)] = top[i] == -INFINITY ? 0 : top[i];
        j->stats[2 * (first + i) + 1] = part;
    }
}

/* Block number i of `count` in an order in which parts of it cost about the same, though with a
** causal mask later blocks see more: first, last, second, .. */
static int64_t balanced(int64_t i, int64_t count) { return i % 2 ? count - 1 - i / 2 : i / 2; }

static void forward_blocks(void *user, int64_t begin, int64_t end, int thread)
{
    const task *t = user;
    for (int64_t i = begin; i < end; i++)
        forward_block(t, i / t->blocks, balanced(i % t->blocks, t->blocks),
                      scratch_of(t, thread));
}

/* ---- Gradient -------------------------------------------------------------------------------- */

/* With the weights p of a row, the factors f of its dropout, u = f p, and g = v dy:
**   dv = u^T dy   ds = p (f g - y . dy)   dq = scale ds k   dk = scale ds^T q   dbias: sums of ds
*/
enum { DQ = 1, DKV = 2, DBIAS = 4 };

/* s: scores, to become u; g: v dy, to become ds. */
static void grad_row(const task *t, const tile *c, int64_t i, float *restrict s, float *restrict g,
                     float *restrict factors)
{
    const tl_attention_job *j = &t->j;
    tl_attention_span seen = columns_of(j, c, i);
    int64_t row = c->pair * j->m + c->first + i;
    float   top = j->stats[2 * row], part = j->stats[2 * row + 1], delta = t->delta[row];
    for (int64_t x = seen.from; x < seen.to; x++) s[x] = tl_expf(s[x] - top) * part;
    if (j->threshold) {
        draw_row(j, c, i, factors);
        for (int64_t x = seen.from; x < seen.to; x++) {
            g[x] = s[x] * (factors[x] * g[x] - delta);
            s[x] *= factors[x];
        }
    } else {
        for (int64_t x = seen.from; x < seen.to; x++) g[x] = s[x] * (g[x] - delta);
    }
    memset(s, 0, (size_t)seen.from * sizeof *s);
    memset(g, 0, (size_t)seen.from * sizeof *g);
    memset(s + seen.to, 0, (size_t)(c->cols - seen.to) * sizeof *s);
    memset(g + seen.to, 0, (size_t)(c->cols - seen.to) * sizeof *g);
    if (!(t->what & DBIAS)) return;
    double *restrict lags = t->lags + c->pair * (j->m + j->n - 1) + c->from - (c->first + i) +
                            j->m - 1;
    for (int64_t x = seen.from; x < seen.to; x++) lags[x] += (double)g[x];
}

/* Adds what a tile contributes to the gradients. */
static void grad_tile(const task *t, int64_t pair, int64_t queries, int64_t keys, float *s)
{
    const tl_attention_job *j = &t->j;
    tile    c = tile_of(j, pair, queries, keys);
    float  *g = s + tile_size(j), *factors = g + tile_size(j);
    int64_t first = pair * j->m + c.first, from = pair * j->n + c.from, rows = c.rows;
    if (c.cols == 0) return;
    scores_of(j, &c, s);
    tl_product p = {rows, c.cols, j->c, j->c, j->c, c.cols, 1, 0, 0, 1, 1, 1, 1};
    product(&p, j->dy + first * j->c, j->v + from * j->c, g);
    for (int64_t i = 0; i < rows; i++)
        grad_row(t, &c, i, s + i * c.cols, g + i * c.cols, factors);
    if (t->bf16) {
        round_array(s, rows * c.cols);
        round_array(g, rows * c.cols);
    }
    if (t->what & DQ) {
        p = (tl_product){rows, j->w, c.cols, c.cols, j->w, j->w, j->scale, 1, 0, 0, 1, 1, 1};
        product(&p, g, j->k + from * j->w, j->dq + first * j->w);
    }
    if (t->what & DKV) {
        p = (tl_product){c.cols, j->w, rows, c.cols, j->w, j->w, j->scale, 1, 1, 0, 1, 1, 1};
        product(&p, g, j->q + first * j->w, j->dk + from * j->w);
        p = (tl_product){c.cols, j->c, rows, c.cols, j->c, j->c, 1, 1, 1, 0, 1, 1, 1};
        product(&p, s, j->dy + first * j->c, j->dv + from * j->c);
    }
}

/* Each of the three goes over the tiles of a block of queries by ascending keys, and over the tiles
** of a block of keys by ascending queries, so that their sums have the same bits. */
static void grad_pairs(void *user, int64_t begin, int64_t end, int thread)
{
    const task *t = user;
    for (int64_t pair = begin; pair < end; pair++)
        for (int64_t b = 0; b < blocks_of(t->j.n, KEYS); b++)
            for (int64_t a = 0; a < blocks_of(t->j.m, QUERIES); a++)
                grad_tile(t, pair, a, b, scratch_of(t, thread));
}

static void grad_queries(void *user, int64_t begin, int64_t end, int thread)
{
    const task *t = user;
    for (int64_t i = begin; i < end; i++)
        for (int64_t b = 0; b < blocks_of(t->j.n, KEYS); b++)
            grad_tile(t, i / t->blocks, balanced(i % t->blocks, t->blocks), b,
                      scratch_of(t, thread));
}

static void grad_keys(void *user, int64_t begin, int64_t end, int thread)
{
    const task *t = user;
    for (int64_t i = begin; i < end; i++)
        for (int64_t a = 0; a < blocks_of(t->j.m, QUERIES); a++)
            grad_tile(t, i / t->blocks, a, balanced(i % t->blocks, t->blocks),
                      scratch_of(t, thread));
}

static void deltas(void *user, int64_t begin, int64_t end, int thread)
{
    const task *t = user;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        t->delta[i] = (float)row_dot(t->j.y + i * t->j.c, t->j.dy + i * t->j.c, t->j.c);
}

/* Adds the sums of the pairs with the same row of the bias. */
static void add_lags(const task *t)
{
    const tl_attention_job *j = &t->j;
    int64_t length = j->m + j->n - 1;
    for (int64_t r = 0; r < j->rows; r++)
        for (int64_t x = 0; x < length; x++) {
            double sum = 0;
            for (int64_t pair = r; pair < j->pairs; pair += j->rows)
                sum += t->lags[pair * length + x];
            j->dbias[r * length + x] = (float)sum;
        }
}

/* ---- Running --------------------------------------------------------------------------------- */

/* Replaces *x, an operand of n elements, by a rounded copy at *copy, which it moves on. */
static void round_operand(const float **x, int64_t n, float **copy)
{
    memcpy(*copy, *x, (size_t)n * sizeof **copy);
    round_array(*copy, n);
    *x = *copy;
    *copy += n;
}

/* Allocates the scratch, and with bf16 rounds the operands to *out_low. */
static tl_status prepare(tl_ctx *ctx, task *t, float **out_low)
{
    tl_attention_job *j = &t->j;
    int64_t q = j->pairs * j->m * j->w, k = j->pairs * j->n * j->w, v = j->pairs * j->n * j->c;
    int64_t dy = j->dy ? j->pairs * j->m * j->c : 0;
    t->bf16 = ctx->precision == TL_PRECISION_BF16;
    *out_low = NULL;
    tl_status st = tl_gemm_ready(ctx);
    if (st != TL_OK) return st;
    t->scratch = tl_alloc(ctx, (size_t)(ctx->threads * (2 * tile_size(j) + KEYS)) * sizeof(float));
    if (!t->scratch || !t->bf16) return t->scratch ? TL_OK : TL_ENOMEM;
    float *low = *out_low = tl_alloc(ctx, (size_t)(q + k + v + dy + 1) * sizeof(float));
    if (!low) return TL_ENOMEM;
    round_operand(&j->q, q, &low);
    round_operand(&j->k, k, &low);
    round_operand(&j->v, v, &low);
    if (j->dy) round_operand(&j->dy, dy, &low);
    return TL_OK;
}

static int64_t grain(const tl_attention_job *j, int64_t blocks)
{
    return 1 + GRAIN * blocks / (1 + j->m * j->n * (j->w + j->c));
}

tl_status tl_cpu_attention(tl_ctx *ctx, const tl_args *a)
{
    task   t = {.j = tl_attention_job_of(a, 0)};
    float *low;
    t.blocks = blocks_of(t.j.m, QUERIES);
    tl_status st = prepare(ctx, &t, &low);
    if (st == TL_OK)
        tl_parallel(ctx, t.j.pairs * t.blocks, grain(&t.j, t.blocks), forward_blocks, &t);
    tl_release(ctx, low);
    tl_release(ctx, t.scratch);
    return st;
}

/* A pass over pairs takes five products for a tile. Where there are too few pairs for the threads,
** two passes over blocks take seven, but divide better. */
static void grad_passes(tl_ctx *ctx, task *t)
{
    const tl_attention_job *j = &t->j;
    int64_t turns = blocks_of(j->pairs, ctx->threads);
    if (j->dbias || 5 * turns * ctx->threads <= 7 * j->pairs) {
        t->what = DQ | DKV | (j->dbias ? DBIAS : 0);
        tl_parallel(ctx, j->pairs, grain(j, 1), grad_pairs, t);
        return;
    }
    t->what = DQ;
    t->blocks = blocks_of(j->m, QUERIES);
    tl_parallel(ctx, j->pairs * t->blocks, grain(j, t->blocks), grad_queries, t);
    t->what = DKV;
    t->blocks = blocks_of(j->n, KEYS);
    tl_parallel(ctx, j->pairs * t->blocks, grain(j, t->blocks), grad_keys, t);
}

tl_status tl_cpu_attention_grad(tl_ctx *ctx, const tl_args *a)
{
    task    t = {.j = tl_attention_job_of(a, 1)};
    float  *low;
    int64_t rows = t.j.pairs * t.j.m, lags = t.j.dbias ? t.j.pairs * (t.j.m + t.j.n - 1) : 0;
    tl_status st = prepare(ctx, &t, &low);
    t.delta = tl_alloc(ctx, (size_t)(rows + 1) * sizeof(float));
    t.lags = tl_alloc(ctx, (size_t)(lags + 1) * sizeof(double));
    if (st == TL_OK && !(t.delta && t.lags)) st = TL_ENOMEM;
    if (st == TL_OK) {
        memset(t.j.dq, 0, (size_t)(rows * t.j.w) * sizeof(float));
        memset(t.j.dk, 0, (size_t)(t.j.pairs * t.j.n * t.j.w) * sizeof(float));
        memset(t.j.dv, 0, (size_t)(t.j.pairs * t.j.n * t.j.c) * sizeof(float));
        memset(t.lags, 0, (size_t)lags * sizeof(double));
        tl_parallel(ctx, rows, 1 + GRAIN / (1 + t.j.c), deltas, &t);
        grad_passes(ctx, &t);
        if (t.j.dbias) add_lags(&t);
    }
    tl_release(ctx, low);
    tl_release(ctx, t.scratch);
    tl_release(ctx, t.delta);
    tl_release(ctx, t.lags);
    return st;
}

/* ---- The operator ---------------------------------------------------------------------------- */

#define INPUTS 4 /* q, k, v and the bias, which have gradients */

/* saved: the arguments of the gradient, without dy */
static tl_status attention_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args   a = node->saved;
    tl_status st = TL_OK;
    a.attention_grad.dy = dy;
    for (int i = 0; i < INPUTS && st == TL_OK; i++)
        if (i < 3 || node->in[i]) st = tl_new_like(a.list.in[i], &a.list.out[i]);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_attention_grad, &a);
    return tl_accumulate_all(ctx, node, st, a.list.out, INPUTS);
}

static tl_status check_operands(const struct tl_args_attention *s)
{
    const tl_tensor *q = s->q, *k = s->k, *v = s->v;
    tl_ctx          *ctx = q->ctx;
    int              last = q->ndim - 1;
    if (q->type != TL_F32 || k->type != TL_F32 || v->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "attention: q, k or v is int32, not float32");
    int fits = q->ndim >= 2 && k->ndim == q->ndim && v->ndim == q->ndim &&
               k->dims[last] == q->dims[last] && v->dims[last - 1] == k->dims[last - 1];
    for (int i = 0; fits && i < last - 1; i++)
        fits = k->dims[i] == q->dims[i] && v->dims[i] == q->dims[i];
    if (fits) return TL_OK;
    return tl_fail(ctx, TL_ESHAPE, "attention: q is %s, k is %s, v is %s, not [..,m,w], "
                   "[..,n,w] and [..,n,c]", SHAPE(q), SHAPE(k), SHAPE(v));
}

static tl_status check_options(const struct tl_args_attention *s, const tl_attention_options *o)
{
    const tl_tensor *q = s->q, *k = s->k, *bias = o->bias, *mask = o->mask;
    tl_ctx          *ctx = q->ctx;
    int64_t          pairs = 1, m = tl_tensor_dim(q, -2), n = tl_tensor_dim(k, -2);
    for (int i = 0; i < q->ndim - 2; i++) pairs *= q->dims[i];
    if (o->window < 0)
        return tl_fail(ctx, TL_EINVAL, "attention: window is %lld, not 0 or more",
                       (long long)o->window);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return tl_fail(ctx, TL_EINVAL, "attention: dropout is %g, not in [0,1)", o->dropout);
    if (o->dropout > 0 && !o->stream)
        return tl_fail(ctx, TL_EINVAL, "attention: dropout needs a stream");
    if ((bias && bias->type != TL_F32) || (mask && mask->type != TL_F32))
        return tl_fail(ctx, TL_ETYPE, "attention: the bias or the mask is int32, not float32");
    if (bias && (bias->ndim != 2 || bias->dims[1] != m + n - 1 || bias->dims[0] < 1 ||
                 pairs % bias->dims[0] != 0))
        return tl_fail(ctx, TL_ESHAPE, "attention: q is %s, k is %s, the bias is %s, not "
                       "[heads,%lld]", SHAPE(q), SHAPE(k), SHAPE(bias), (long long)(m + n - 1));
    if (mask && (mask->ndim != 2 || mask->dims[1] != n ||
                 (mask->dims[0] == 0 ? pairs != 0 : pairs % mask->dims[0] != 0)))
        return tl_fail(ctx, TL_ESHAPE, "attention: k is %s, the mask is %s, not [b,%lld]", SHAPE(k),
                       SHAPE(mask), (long long)n);
    return TL_OK;
}

tl_status tl_attention(tl_tensor *q, tl_tensor *k, tl_tensor *v, const tl_attention_options *o,
                       tl_tensor **out_y)
{
    tl_ctx   *ctx = q->ctx;
    tl_args   a = {.attention = {.q = q, .k = k, .v = v, .bias = o->bias, .mask = o->mask,
                                 .causal = o->causal != 0, .window = o->window,
                                 .scale = o->scale, .p = o->dropout}}, saved;
    struct tl_args_attention *s = &a.attention;
    tl_status st = tl_check_bytes(ctx, "attention", o->bytes, sizeof *o);
    int64_t   dims[TL_MAXDIMS];
    int       needed = 0;
    if (st == TL_OK) st = check_operands(s);
    if (st == TL_OK) st = check_options(s, o);
    if (st != TL_OK) return st;
    if (o->dropout > 0) {
        s->key = (int64_t)o->stream->key;
        s->offset = (int64_t)o->stream->offset;
    }
    for (int i = 0; i < INPUTS; i++) needed |= tl_needs_grad(ctx, a.list.in[i]);
    memcpy(dims, q->dims, sizeof dims);
    dims[q->ndim - 1] = tl_cols(v);
    st = tl_new(ctx, TL_F32, q->ndim, dims, &s->y);
    dims[q->ndim - 1] = 2;
    if (st == TL_OK && needed) st = tl_new(ctx, TL_F32, q->ndim, dims, &s->stats);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_attention, &a);
    saved = a;
    saved.attention_grad.y = s->y;
    saved.attention_grad.stats = s->stats;
    memset(saved.list.out, 0, sizeof saved.list.out);
    if (st == TL_OK) st = tl_record(ctx, s->y, attention_grad, a.list.in, INPUTS, &saved, NULL);
    if (st == TL_OK && o->dropout > 0)
        o->stream->offset += (uint64_t)(q->len / (tl_cols(q) > 0 ? tl_cols(q) : 1) *
                                        tl_tensor_dim(k, -2) + 3) / 4;
    tl_tensor_free(s->stats);
    return tl_finish(st, s->y, out_y);
}

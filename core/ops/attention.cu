/* attention.cu - computes attention by softmax for some pairs of a sequence and a head at a time,
** as products by cuBLAS and kernels for the rows of their scores. */
#include "cuda/cuda.cuh"
#include "base/philox.h"
extern "C" {
#include "ops/attention.h"
}

#ifdef TL_EMULATE
#define SCORES ((int64_t)1 << 12) /* so small that tests cover several groups of pairs */
#else
#define SCORES ((int64_t)1 << 26) /* at the same time, unless a pair has more */
#endif

/* ---- Rows of scores -------------------------------------------------------------------------- */

/* Row r of the scores of the pairs from `first` on: the numbers of the pair and of the query, and
** the keys that it sees. */
struct row {
    int64_t pair, query;
    tl_attention_span seen;
    __device__ row(const tl_attention_job &j, int64_t first, int64_t r)
        : pair(first + r / j.m), query(r % j.m), seen(tl_attention_seen(&j, r % j.m))
    {
    }
};

static __device__ float score(const tl_attention_job &j, const row &at, float qk, int64_t x)
{
    float s = j.scale * qk;
    if (j.bias) s += j.bias[at.pair % j.rows * (j.m + j.n - 1) + x - at.query + j.m - 1];
    if (j.mask && j.mask[at.pair / j.shared * j.n + x] == 0) s = -INFINITY;
    return s;
}

/* The factor of a weight: that of its dropout, or 1. */
static __device__ float factor(const tl_attention_job &j, const uint64_t *shift, const row &at,
                               int64_t x)
{
    if (j.threshold == 0) return 1;
    int64_t  e = (at.pair * j.m + at.query) * j.n + x;
    uint32_t w[4];
    tl_philox(j.key, j.offset + (shift ? *shift : 0) + (uint64_t)(e / 4), w);
    return w[e % 4] >= j.threshold ? j.kept : 0.0f;
}

static __global__ void weigh_rows(tl_attention_job j, const uint64_t *shift, int64_t first,
                                  float *s)
{
    __shared__ double scratch[THREADS / 32];
    row    at(j, first, blockIdx.x);
    float *x = s + (int64_t)blockIdx.x * j.n;
    double top = -INFINITY, sum = 0;
    for (int64_t i = at.seen.from + threadIdx.x; i < at.seen.to; i += THREADS)
        top = larger()(top, (double)score(j, at, x[i], i));
    top = block_reduce(top, larger(), scratch);
    if (top == -INFINITY) top = 0;
    for (int64_t i = at.seen.from + threadIdx.x; i < at.seen.to; i += THREADS)
        sum += (double)expf(score(j, at, x[i], i) - (float)top);
    sum = block_reduce(sum, add(), scratch);
    float part = sum == 0 ? 0.0f : (float)(1 / sum);
    for (int64_t i = threadIdx.x; i < j.n; i += THREADS)
        x[i] = i >= at.seen.from && i < at.seen.to
                   ? expf(score(j, at, x[i], i) - (float)top) * part * factor(j, shift, at, i)
                   : 0.0f;
    if (j.stats && threadIdx.x == 0) {
        float *stats = j.stats + 2 * (at.pair * j.m + at.query);
        stats[0] = (float)top;
        stats[1] = part;
    }
}

/* s: products of queries and keys, to become the weights; g: those of dy and v, to become the
** gradients of the scores (attention.c). */
static __global__ void grad_rows(tl_attention_job j, const uint64_t *shift, int64_t first,
                                 float *s, float *g)
{
    __shared__ double scratch[THREADS / 32];
    row     at(j, first, blockIdx.x);
    int64_t number = at.pair * j.m + at.query;
    float  *x = s + (int64_t)blockIdx.x * j.n, *dx = g + (int64_t)blockIdx.x * j.n;
    float   top = j.stats[2 * number], part = j.stats[2 * number + 1];
    double  sum = 0;
    for (int64_t i = threadIdx.x; i < j.c; i += THREADS)
        sum += (double)j.y[number * j.c + i] * (double)j.dy[number * j.c + i];
    float delta = (float)block_reduce(sum, add(), scratch);
    for (int64_t i = threadIdx.x; i < j.n; i += THREADS) {
        float p = 0, f = 1;
        if (i >= at.seen.from && i < at.seen.to) {
            p = expf(score(j, at, x[i], i) - top) * part;
            f = factor(j, shift, at, i);
        }
        dx[i] = p * (f * dx[i] - delta);
        x[i] = p * f;
    }
}

/* Adds to sums [rows,m+n-1] the gradients of the scores of `count` pairs from `first` on. */
static __global__ void add_lags(tl_attention_job j, int64_t first, int64_t count, const float *g,
                                double *sums)
{
    int64_t length = j.m + j.n - 1;
    EACH(e, j.rows * length)
    {
        double sum = first == 0 ? 0 : sums[e];
        for (int64_t p = 0; p < count; p++) {
            if ((first + p) % j.rows != e / length) continue;
            for (int64_t i = 0; i < j.m; i++) {
                int64_t x = e % length - (j.m - 1) + i;
                if (x >= 0 && x < j.n) sum += (double)g[(p * j.m + i) * j.n + x];
            }
        }
        sums[e] = sum;
    }
}

static __global__ void write_lags(const double *sums, float *dbias, int64_t n)
{
    EACH(i, n) dbias[i] = (float)sums[i];
}

static __global__ void scale_all(float *x, float scale, int64_t n)
{
    EACH(i, n) x[i] *= scale;
}

static __global__ void clear(float *x, int64_t n)
{
    EACH(i, n) x[i] = 0;
}

/* ---- Running --------------------------------------------------------------------------------- */

static void clear_all(tl_ctx *ctx, float *x, int64_t n)
{
    if (n > 0) LAUNCH(clear, blocks_for(n), THREADS, x, n);
}

/* c [m,n] = op(a) op(b) for `count` matrices; k may be 0. */
static tl_status product(tl_ctx *ctx, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                         const float *a, const float *b, float *c, int64_t count)
{
    if (k > 0) return gpu_product(ctx, trans_a, trans_b, m, n, k, a, b, 0, c, count);
    clear_all(ctx, c, m * n * count);
    return TL_OK;
}

/* How many pairs are computed at the same time. */
static int64_t group_of(const tl_attention_job *j)
{
    int64_t fit = SCORES / (j->m * j->n);
    return fit < 1 ? 1 : fit < j->pairs ? fit : j->pairs;
}

tl_status gpu_attention(tl_ctx *ctx, const tl_args *a)
{
    tl_attention_job j = tl_attention_job_of(a, 0);
    const uint64_t *shift = j.threshold ? gpu_graph_shift(ctx, j.key) : NULL;
    void *scratch;
    if (j.pairs * j.m * j.n == 0) {
        clear_all(ctx, j.y, j.pairs * j.m * j.c);
        return launched(ctx, "attention");
    }
    int64_t group = group_of(&j);
    tl_status st = gpu_alloc(ctx, (size_t)(group * j.m * j.n) * 4, &scratch);
    if (st != TL_OK) return st;
    float *s = (float *)scratch;
    for (int64_t first = 0; st == TL_OK && first < j.pairs; first += group) {
        int64_t count = j.pairs - first < group ? j.pairs - first : group;
        st = product(ctx, 0, 1, j.m, j.n, j.w, j.q + first * j.m * j.w, j.k + first * j.n * j.w,
                     s, count);
        if (st != TL_OK) break;
        LAUNCH_SYNC(weigh_rows, count * j.m, THREADS, j, shift, first, s);
        st = launched(ctx, "attention");
        if (st == TL_OK)
            st = product(ctx, 0, 0, j.m, j.c, j.n, s, j.v + first * j.n * j.c,
                         j.y + first * j.m * j.c, count);
    }
    gpu_free(ctx, scratch);
    return st;
}

/* The gradients of `count` pairs from `first` on. */
static tl_status grad_group(tl_ctx *ctx, const tl_attention_job *j, int64_t first, int64_t count,
                            float *s, float *g, double *sums)
{
    const float *q = j->q + first * j->m * j->w, *k = j->k + first * j->n * j->w;
    const float *dy = j->dy + first * j->m * j->c;
    const uint64_t *shift = j->threshold ? gpu_graph_shift(ctx, j->key) : NULL;
    tl_status st = product(ctx, 0, 1, j->m, j->n, j->w, q, k, s, count);
    if (st == TL_OK)
        st = product(ctx, 0, 1, j->m, j->n, j->c, dy, j->v + first * j->n * j->c, g, count);
    if (st != TL_OK) return st;
    LAUNCH_SYNC(grad_rows, count * j->m, THREADS, *j, shift, first, s, g);
    if (j->dbias)
        LAUNCH(add_lags, blocks_for(j->rows * (j->m + j->n - 1)), THREADS, *j, first, count,
               (const float *)g, sums);
    st = launched(ctx, "attention_grad");
    if (st == TL_OK)
        st = product(ctx, 0, 0, j->m, j->w, j->n, g, k, j->dq + first * j->m * j->w, count);
    if (st == TL_OK)
        st = product(ctx, 1, 0, j->n, j->w, j->m, g, q, j->dk + first * j->n * j->w, count);
    if (st == TL_OK)
        st = product(ctx, 1, 0, j->n, j->c, j->m, s, dy, j->dv + first * j->n * j->c, count);
    return st;
}

static void end_gradient(tl_ctx *ctx, const tl_attention_job *j, const double *sums, int64_t lags)
{
    int64_t queries = j->pairs * j->m * j->w, keys = j->pairs * j->n * j->w;
    if (queries > 0) LAUNCH(scale_all, blocks_for(queries), THREADS, j->dq, j->scale, queries);
    if (keys > 0) LAUNCH(scale_all, blocks_for(keys), THREADS, j->dk, j->scale, keys);
    if (lags > 0) LAUNCH(write_lags, blocks_for(lags), THREADS, sums, j->dbias, lags);
}

tl_status gpu_attention_grad(tl_ctx *ctx, const tl_args *a)
{
    tl_attention_job j = tl_attention_job_of(a, 1);
    int64_t lags = j.dbias ? j.rows * (j.m + j.n - 1) : 0;
    void *scratch;
    if (j.pairs * j.m * j.n == 0) {
        clear_all(ctx, j.dq, j.pairs * j.m * j.w);
        clear_all(ctx, j.dk, j.pairs * j.n * j.w);
        clear_all(ctx, j.dv, j.pairs * j.n * j.c);
        clear_all(ctx, j.dbias, lags);
        return launched(ctx, "attention_grad");
    }
    int64_t group = group_of(&j), size = group * j.m * j.n;
    int64_t before = (lags + 31) / 32 * 32; /* so that s is aligned to 256 bytes */
    tl_status st = gpu_alloc(ctx, (size_t)before * 8 + (size_t)(2 * size) * 4, &scratch);
    if (st != TL_OK) return st;
    double *sums = (double *)scratch;
    float  *s = (float *)(sums + before);
    for (int64_t first = 0; st == TL_OK && first < j.pairs; first += group) {
        int64_t count = j.pairs - first < group ? j.pairs - first : group;
        st = grad_group(ctx, &j, first, count, s, s + size, sums);
    }
    if (st == TL_OK) end_gradient(ctx, &j, sums, lags);
    if (st == TL_OK) st = launched(ctx, "attention_grad");
    gpu_free(ctx, scratch);
    return st;
}

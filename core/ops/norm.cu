/* norm.cu - normalises each row by the formulas of norm.c, a block per row. */
#include "cuda/cuda.cuh"

extern "C" {
#include "ops/arguments.h"
#include "ops/norm.h"
}

/* A weight or bias: NULL, one number for all columns, or one per column. */
typedef struct column {
    const float *at;
    int          each;
} column;

static column column_of(const tl_tensor *t)
{
    column c = {t ? F32(t) : NULL, t ? t->len > 1 : 0};
    return c;
}

static __device__ float pick(column c, int64_t i, float preset)
{
    return c.at ? c.at[c.each ? i : 0] : preset;
}

static __global__ void norm_rows(tl_norm_kind kind, double eps, const float *x, column weight,
                                 column bias, float *y, float *s, float *t, int64_t n)
{
    __shared__ double scratch[THREADS / 32];
    const float *row = x + (int64_t)blockIdx.x * n;
    double mean = 0, square = 0;
    float scale, shift;
    if (kind == TL_NORM_LAYER) {
        for (int64_t i = threadIdx.x; i < n; i += THREADS) mean += (double)row[i];
        mean = block_reduce(mean, add(), scratch) / (double)n;
    }
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        square += ((double)row[i] - mean) * ((double)row[i] - mean);
    square = block_reduce(square, add(), scratch) / (double)n;
    tl_norm_statistics(kind, square, eps, &scale, &shift);
    if (kind == TL_NORM_LAYER) shift = (float)mean;
    if (threadIdx.x == 0) {
        s[blockIdx.x] = scale;
        t[blockIdx.x] = shift;
    }
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        y[(int64_t)blockIdx.x * n + i] =
            (row[i] - (kind == TL_NORM_LAYER ? shift : 0.0f)) * scale * pick(weight, i, 1) +
            pick(bias, i, 0);
}

GPU_ROWS(norm, a->x->len > 0 ? tl_rows(a->x) : 0, norm_rows, (tl_norm_kind)a->kind, a->eps,
         F32(a->x), column_of(a->weight), column_of(a->bias), F32(a->y), F32(a->stats),
         F32(a->stats) + tl_rows(a->x), tl_cols(a->x))

/* ---- Gradients ------------------------------------------------------------------------------- */

/* dx = s (g - mean g - q z mean(g z)), g = dy weight, z = (x - mean) s; dx may be dy */
static __global__ void norm_grad_rows(int kind, const float *x, column weight, const float *dy,
                                      const float *s, const float *t, int more, float *dx,
                                      int64_t n)
{
    __shared__ double scratch[THREADS / 32];
    int64_t base = (int64_t)blockIdx.x * n;
    float scale = s[blockIdx.x], q = t[blockIdx.x], mean = 0;
    double sum = 0, dot = 0;
    if (kind == TL_NORM_LAYER) {
        mean = q;
        q = 1;
    }
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        float g = dy[base + i] * pick(weight, i, 1);
        sum += (double)g;
        dot += (double)(g * ((x[base + i] - mean) * scale));
    }
    sum = block_reduce(sum, add(), scratch) / (double)n;
    dot = block_reduce(dot, add(), scratch) / (double)n;
    float level = kind == TL_NORM_LAYER ? (float)sum : 0.0f, tilt = (float)dot * q;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        float z = (x[base + i] - mean) * scale;
        float d = scale * (dy[base + i] * pick(weight, i, 1) - level - z * tilt);
        dx[base + i] = more ? dx[base + i] + d : d;
    }
}

#define PARTS 64 /* partial sums over the rows */

/* parts [2,PARTS,n]: sums of dy z and of dy over one part of the rows */
static __global__ void norm_parts(int kind, const float *x, const float *dy, const float *s,
                                  const float *t, int64_t rows, int64_t n, double *parts)
{
    EACH(e, PARTS *n)
    {
        int64_t p = e / n, i = e % n;
        double dot = 0, sum = 0;
        for (int64_t r = rows * p / PARTS; r < rows * (p + 1) / PARTS; r++) {
            float g = dy[r * n + i], mean = kind == TL_NORM_LAYER ? t[r] : 0.0f;
            dot += (double)g * (double)((x[r * n + i] - mean) * s[r]);
            sum += (double)g;
        }
        parts[e] = dot;
        parts[PARTS * n + e] = sum;
    }
}

/* Adds the parts to `to` [n], or to [1] if all columns share one weight. */
static __global__ void sum_parts(const double *parts, int64_t n, int all, float *to)
{
    EACH(i, all ? 1 : n)
    {
        double sum = 0;
        for (int64_t c = all ? 0 : i; c < (all ? n : i + 1); c++)
            for (int p = 0; p < PARTS; p++) sum += parts[p * n + c];
        to[i] = (float)sum;
    }
}

/* Must run before norm_grad_rows, whose dx may overwrite dy. */
static tl_status weights(tl_ctx *ctx, const struct tl_args_norm_grad *a, int64_t rows, int64_t n)
{
    tl_tensor *dweight = a->dweight, *dbias = a->dbias;
    float     *stats = F32(a->stats);
    double    *parts;
    tl_status  st = gpu_alloc(ctx, (size_t)(2 * PARTS * n) * sizeof *parts, (void **)&parts);
    if (st != TL_OK) return st;
    LAUNCH(norm_parts, blocks_for(PARTS * n), THREADS, (int)a->kind, F32(a->x), F32(a->dy), stats,
           stats + rows, rows, n, parts);
    if (dweight)
        LAUNCH(sum_parts, blocks_for(n), THREADS, parts, n, dweight->len < n, F32(dweight));
    if (dbias)
        LAUNCH(sum_parts, blocks_for(n), THREADS, parts + PARTS * n, n, dbias->len < n, F32(dbias));
    gpu_free(ctx, parts);
    return launched(ctx, "norm_grad");
}

tl_status gpu_norm_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_norm_grad *g = &a->norm_grad;
    int64_t   rows = tl_rows(g->x), n = tl_cols(g->x);
    float    *stats = F32(g->stats);
    tl_status st = TL_OK;
    if (g->x->len == 0) { /* empty sums */
        if (g->dweight) st = tl_tensor_fill(g->dweight, 0);
        return st == TL_OK && g->dbias ? tl_tensor_fill(g->dbias, 0) : st;
    }
    if (g->dweight || g->dbias) st = weights(ctx, g, rows, n);
    if (st != TL_OK || !g->dx) return st;
    LAUNCH_SYNC(norm_grad_rows, rows, THREADS, (int)g->kind, F32(g->x), column_of(g->weight),
                F32(g->dy), stats, stats + rows, g->add != 0, F32(g->dx), n);
    return launched(ctx, "norm_grad");
}

/* loss.cu - computes cross entropy of logits, or of a linear layer whose logits exist for a block
** of rows at a time only.
**
** In bf16 the weights are rounded once, and the rows of x and of the gradient once for all products
** that read them. The gradient is written in bf16 where nothing reads it in float32. */
#include "cuda/cuda.cuh"

extern "C" {
#include "base/bf16.h"
#include "ops/arguments.h"
}

/* The bytes of logits, and of rows of x, in memory at a time; at least 64 rows. */
#ifdef TL_EMULATE
#define BLOCK_BYTES ((int64_t)1 << 10) /* so small that tests cover several blocks */
#else
#define BLOCK_BYTES ((int64_t)256 << 20)
#endif

typedef struct loss {
    const float   *x, *w, *bias;    /* without w, x holds the logits */
    float         *dx, *dw, *dbias; /* a NULL gradient is not computed */
    const int32_t *targets;
    int64_t        rows, d, v;
    int64_t        ld;              /* elements between rows of logits and of their gradient */
    int32_t        ignore;
    float         *losses;          /* one per row, 0 for an ignored one */
    const float   *scale;           /* 1/count, in GPU memory */
    int64_t       *fault;
} loss;

typedef struct scratch {
    float    *logits, *xs;   /* of a block of rows */
    uint16_t *w, *x, *g;     /* rounded: all weights, and rows of x and of the gradient */
} scratch;

/* scale = 1 / the number of targets that are not ignored, or 0 if there are none */
static __global__ void count_targets(const int32_t *targets, int64_t rows, int32_t ignore,
                                     float *scale)
{
    __shared__ double scratch[THREADS / 32];
    double count = 0;
    for (int64_t r = threadIdx.x; r < rows; r += THREADS) count += targets[r] != ignore;
    count = block_reduce(count, add(), scratch);
    if (threadIdx.x == 0) *scale = count > 0 ? (float)(1 / count) : 0.0f;
}

/* Returns the sum of exp(x - top) over a row, with its maximum in *top, to all threads of a block.
** The row is read once: the sum so far shrinks when the maximum grows. */
static __device__ double sum_row(const float *x, int64_t v, float *top)
{
    __shared__ double scratch[THREADS / 32];
    float  most = -INFINITY;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < v; i += THREADS) {
        float value = x[i];
        if (value > most) {
            sum = sum * (double)expf(most - value) + 1;
            most = value;
        } else if (value != -INFINITY) { /* whose difference from most may be NaN */
            sum += (double)expf(value - most);
        }
    }
    *top = (float)block_reduce((double)most, larger(), scratch);
    return block_reduce(sum * (double)expf(most - *top), add(), scratch);
}

/* Computes the loss of row first + k from row k of logits and writes scale times its gradient to g,
** which may be the logits, and rounded to low, unless they are NULL. */
static __global__ void loss_rows(loss j, int64_t first, const float *logits, float *g,
                                 uint16_t *low)
{
    int64_t      k = blockIdx.x, r = first + k, at = k * j.ld;
    const float *x = logits + at;
    int32_t      t = j.targets[r];
    int          bad = t != j.ignore && (t < 0 || t >= j.v);
    if (t == j.ignore || bad) {
        if (threadIdx.x == 0) j.losses[r] = 0;
        if (threadIdx.x == 0 && bad) *j.fault = FAULT_INDEX(t);
        for (int64_t i = threadIdx.x; g && i < j.v; i += THREADS) g[at + i] = 0;
        for (int64_t i = threadIdx.x; low && i < j.v; i += THREADS) low[at + i] = 0;
        return;
    }
    float  top;
    double target = (double)x[t], sum = sum_row(x, j.v, &top);
    if (threadIdx.x == 0) j.losses[r] = (float)(log(sum) - (target - (double)top));
    float scale = *j.scale, f = (float)((double)scale / sum);
    for (int64_t i = threadIdx.x; (g || low) && i < j.v; i += THREADS) {
        float slope = expf(x[i] - top) * f - (i == t ? scale : 0.0f);
        if (g) g[at + i] = slope;
        if (low) low[at + i] = tl_round_bf16(__float_as_uint(slope));
    }
}

static __global__ void total(const float *losses, int64_t rows, const float *scale, float *y)
{
    __shared__ double scratch[THREADS / 32];
    double sum = 0;
    for (int64_t r = threadIdx.x; r < rows; r += THREADS) sum += (double)losses[r];
    sum = block_reduce(sum, add(), scratch);
    if (threadIdx.x == 0) *y = *scale > 0 ? (float)(sum * (double)*scale) : 0.0f;
}

static __global__ void spread_bias(loss j, float *y, int64_t n)
{
    EACH(i, n) y[i / j.v * j.ld + i % j.v] = j.bias[i % j.v];
}

/* dbias = (or += if more) the column sums of g */
static __global__ void sum_columns(loss j, const float *g, int64_t rows, int more)
{
    EACH(c, j.v)
    {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += (double)g[r * j.ld + c];
        j.dbias[c] = more ? j.dbias[c] + (float)sum : (float)sum;
    }
}

/* Returns element e of the rows first.. of x, and 0 where the target is ignored: the gradient of
** such a row is 0, but 0 times a value that is not finite would spoil dw. */
static __device__ float counted(const loss *j, int64_t first, int64_t e)
{
    return j->targets[first + e / j->d] == j->ignore ? 0.0f : j->x[first * j->d + e];
}

static __global__ void counted_rows(loss j, int64_t first, float *xs, int64_t n)
{
    EACH(e, n) xs[e] = counted(&j, first, e);
}

static __global__ void counted_rounded(loss j, int64_t first, uint16_t *xs, int64_t n)
{
    EACH(e, n) xs[e] = tl_round_bf16(__float_as_uint(counted(&j, first, e)));
}

/* ---- A block of n rows from `first` on ------------------------------------------------------- */

static tl_status logits_of(tl_ctx *ctx, const loss *j, const scratch *s, int64_t first, int64_t n)
{
    float beta = j->bias ? 1.0f : 0.0f;
    if (j->bias) LAUNCH(spread_bias, blocks_for(n * j->v), THREADS, *j, s->logits, n * j->v);
    gpu_spaced p = {0, 1, n, j->v, j->d, j->x + first * j->d, j->w, j->d, j->d, j->ld, beta,
                    s->logits};
    if (s->w) {
        LAUNCH(counted_rounded, blocks_for(n * j->d), THREADS, *j, first, s->x, n * j->d);
        p.a = s->x;
        p.b = s->w;
    }
    return gpu_product_spaced(ctx, &p);
}

static tl_status weight_gradient(tl_ctx *ctx, const loss *j, const scratch *s, int64_t first,
                                 int64_t n)
{
    float      more = first > 0 ? 1.0f : 0.0f;
    gpu_spaced p = {1, 0, j->v, j->d, n, s->g, s->x, j->ld, j->d, j->d, more, j->dw};
    if (!s->w) {
        LAUNCH(counted_rows, blocks_for(n * j->d), THREADS, *j, first, s->xs, n * j->d);
        p.a = s->logits;
        p.b = s->xs;
    }
    return gpu_product_spaced(ctx, &p);
}

static tl_status input_gradient(tl_ctx *ctx, const loss *j, const scratch *s, int64_t first,
                                int64_t n)
{
    float     *dx = j->dx + first * j->d;
    gpu_spaced p = {0, 0, n, j->d, j->v, s->g, s->w, j->ld, j->d, j->d, 0, dx};
    if (!s->w) {
        p.a = s->logits;
        p.b = j->w;
    }
    return gpu_product_spaced(ctx, &p);
}

/* Computes the logits, turns them into gradients, in place if they are float32, and multiplies
** them on. */
static tl_status block(tl_ctx *ctx, const loss *j, const scratch *s, int64_t first, int64_t n)
{
    int       products = j->dx || j->dw;
    float    *g = j->dbias || (products && !s->w) ? s->logits : NULL;
    tl_status st = logits_of(ctx, j, s, first, n);
    if (st != TL_OK) return st;
    LAUNCH_SYNC(loss_rows, n, THREADS, *j, first, (const float *)s->logits, g,
                products ? s->g : (uint16_t *)NULL);
    st = launched(ctx, "cross_entropy");
    if (st == TL_OK && j->dw) st = weight_gradient(ctx, j, s, first, n);
    if (st == TL_OK && j->dbias)
        LAUNCH(sum_columns, blocks_for(j->v), THREADS, *j, (const float *)s->logits, n, first > 0);
    if (st == TL_OK && j->dx) st = input_gradient(ctx, j, s, first, n);
    return st;
}

/* Allocates scratch space for blocks of `limit` rows, and rounds the weights in bf16. */
static tl_status open_scratch(tl_ctx *ctx, const loss *j, int64_t limit, scratch *s)
{
    int64_t   weights = (j->v * j->d + 127) / 128 * 128; /* each part is aligned to 256 bytes */
    int64_t   rows = (limit * j->d + 127) / 128 * 128;
    int       low = ctx->precision == TL_PRECISION_BF16;
    tl_status st = gpu_alloc(ctx, (size_t)(limit * (j->ld + (j->dw && !low ? j->d : 0))) * 4,
                             (void **)&s->logits);
    s->xs = s->logits + limit * j->ld;
    if (st != TL_OK || !low) return st;
    st = gpu_alloc(ctx, (size_t)(weights + rows + limit * (j->dx || j->dw ? j->ld : 0)) * 2,
                   (void **)&s->w);
    if (st != TL_OK) return st;
    s->x = s->w + weights;
    s->g = s->x + rows;
    return gpu_round_bf16(ctx, j->w, s->w, j->v * j->d);
}

static tl_status projected(tl_ctx *ctx, loss *j)
{
    scratch s = {};
    int64_t limit = BLOCK_BYTES / 4 / (j->v > j->d ? j->v : j->d);
    limit = limit < 64 ? 64 : limit;
    limit = limit > j->rows ? j->rows : limit;
    j->ld = (j->v + 7) / 8 * 8; /* tensor cores read rows aligned to 16 bytes, also in bf16 */
    tl_status st = open_scratch(ctx, j, limit, &s);
    for (int64_t first = 0; first < j->rows && st == TL_OK; first += limit)
        st = block(ctx, j, &s, first, j->rows - first < limit ? j->rows - first : limit);
    gpu_free(ctx, s.w);
    gpu_free(ctx, s.logits);
    return st;
}

static tl_status clear(tl_tensor *t) { return t ? tl_tensor_fill(t, 0) : TL_OK; }

/* Handles a batch without rows. */
static tl_status clear_all(const struct tl_args_cross_entropy *c)
{
    tl_status st = clear(c->loss);
    if (st == TL_OK) st = clear(c->dx);
    if (st == TL_OK) st = clear(c->dw);
    return st == TL_OK ? clear(c->dbias) : st;
}

tl_status gpu_cross_entropy(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_cross_entropy *c = &a->cross_entropy;
    loss   j = {};
    float *scratch;
    j.rows = c->targets->len;
    if (j.rows == 0) return clear_all(c);
    tl_status st = gpu_alloc(ctx, (size_t)(j.rows + 1) * 4, (void **)&scratch);
    if (st != TL_OK) return st;
    j.x = F32(c->x);
    j.w = tl_f32_or_null(c->w);
    j.bias = tl_f32_or_null(c->bias);
    j.targets = I32(c->targets);
    j.d = tl_cols(c->x);
    j.v = j.ld = j.w ? c->w->dims[0] : j.d;
    j.ignore = (int32_t)c->ignore;
    j.dx = tl_f32_or_null(c->dx);
    j.dw = tl_f32_or_null(c->dw);
    j.dbias = tl_f32_or_null(c->dbias);
    j.losses = scratch + 1;
    j.scale = scratch;
    j.fault = gpu_of(ctx)->fault;
    LAUNCH_SYNC(count_targets, 1, THREADS, j.targets, j.rows, j.ignore, scratch);
    if (j.w)
        st = projected(ctx, &j);
    else
        LAUNCH_SYNC(loss_rows, j.rows, THREADS, j, 0, j.x, j.dx, (uint16_t *)NULL);
    LAUNCH_SYNC(total, 1, THREADS, j.losses, j.rows, scratch, F32(c->loss));
    if (st == TL_OK) st = launched(ctx, "cross_entropy");
    gpu_free(ctx, scratch);
    return st;
}

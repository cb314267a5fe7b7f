/* loss.cu - computes cross entropy of logits, or of a linear layer whose logits exist for a block
** of rows at a time only. */
#include "cuda/cuda.cuh"

extern "C" {
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
    int32_t        ignore;
    float         *losses;          /* one per row, 0 for an ignored one */
    const float   *scale;           /* 1/count, in GPU memory */
    int64_t       *fault;
} loss;

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

/* Computes the loss of row first + k from row k of logits and, unless g is NULL, writes scale times
** its gradient to g, which may be the logits. */
static __global__ void loss_rows(loss j, int64_t first, const float *logits, float *g)
{
    __shared__ double scratch[THREADS / 32];
    int64_t      k = blockIdx.x, r = first + k;
    const float *x = logits + k * j.v;
    int32_t      t = j.targets[r];
    int          bad = t != j.ignore && (t < 0 || t >= j.v);
    if (t == j.ignore || bad) {
        if (threadIdx.x == 0) j.losses[r] = 0;
        if (threadIdx.x == 0 && bad) *j.fault = FAULT_INDEX(t);
        for (int64_t i = threadIdx.x; g && i < j.v; i += THREADS) g[k * j.v + i] = 0;
        return;
    }
    double top = -INFINITY, sum = 0, target = (double)x[t];
    for (int64_t i = threadIdx.x; i < j.v; i += THREADS) top = larger()(top, (double)x[i]);
    top = block_reduce(top, larger(), scratch);
    for (int64_t i = threadIdx.x; i < j.v; i += THREADS) sum += (double)expf(x[i] - (float)top);
    sum = block_reduce(sum, add(), scratch);
    if (threadIdx.x == 0) j.losses[r] = (float)(log(sum) - (target - top));
    float scale = *j.scale, f = (float)((double)scale / sum);
    for (int64_t i = threadIdx.x; g && i < j.v; i += THREADS)
        g[k * j.v + i] = expf(x[i] - (float)top) * f - (i == t ? scale : 0.0f);
}

static __global__ void total(const float *losses, int64_t rows, const float *scale, float *y)
{
    __shared__ double scratch[THREADS / 32];
    double sum = 0;
    for (int64_t r = threadIdx.x; r < rows; r += THREADS) sum += (double)losses[r];
    sum = block_reduce(sum, add(), scratch);
    if (threadIdx.x == 0) *y = *scale > 0 ? (float)(sum * (double)*scale) : 0.0f;
}

static __global__ void spread_bias(const float *bias, float *y, int64_t v, int64_t n)
{
    EACH(i, n) y[i] = bias[i % v];
}

/* dbias = (or += if more) the column sums of g */
static __global__ void sum_columns(const float *g, int64_t rows, int64_t v, int more, float *dbias)
{
    EACH(c, v)
    {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += (double)g[r * v + c];
        dbias[c] = more ? dbias[c] + (float)sum : (float)sum;
    }
}

/* xs = rows first.. of x, and 0 where the target is ignored: the gradient of such a row is 0, but
** 0 times a value that is not finite would spoil dw. */
static __global__ void counted_rows(loss j, int64_t first, float *xs, int64_t n)
{
    EACH(e, n) xs[e] = j.targets[first + e / j.d] == j.ignore ? 0.0f : j.x[first * j.d + e];
}

static tl_status weight_gradient(tl_ctx *ctx, const loss *j, int64_t first, int64_t n,
                                 const float *g, float *xs)
{
    LAUNCH(counted_rows, blocks_for(n * j->d), THREADS, *j, first, xs, n * j->d);
    tl_status st = launched(ctx, "cross_entropy");
    if (st != TL_OK) return st;
    return gpu_product(ctx, 1, 0, j->v, j->d, n, g, xs, first > 0 ? 1 : 0, j->dw, 1);
}

/* Computes the logits of rows first..first+n-1, turns them into gradients in place, and multiplies
** them on. xs is scratch space for as many rows of x. */
static tl_status block(tl_ctx *ctx, const loss *j, int64_t first, int64_t n, float *logits,
                       float *xs)
{
    const float *x = j->x + first * j->d;
    int          grads = j->dx || j->dw || j->dbias;
    if (j->bias)
        LAUNCH(spread_bias, blocks_for(n * j->v), THREADS, j->bias, logits, j->v, n * j->v);
    tl_status st = gpu_product(ctx, 0, 1, n, j->v, j->d, x, j->w, j->bias ? 1 : 0, logits, 1);
    if (st != TL_OK) return st;
    LAUNCH_SYNC(loss_rows, n, THREADS, *j, first, logits, grads ? logits : (float *)NULL);
    st = launched(ctx, "cross_entropy");
    if (st == TL_OK && j->dw) st = weight_gradient(ctx, j, first, n, logits, xs);
    if (st == TL_OK && j->dbias)
        LAUNCH(sum_columns, blocks_for(j->v), THREADS, logits, n, j->v, first > 0, j->dbias);
    if (st == TL_OK && j->dx)
        st = gpu_product(ctx, 0, 0, n, j->d, j->v, logits, j->w, 0, j->dx + first * j->d, 1);
    return st;
}

static tl_status projected(tl_ctx *ctx, const loss *j)
{
    int64_t limit = BLOCK_BYTES / 4 / (j->v > j->d ? j->v : j->d);
    limit = limit < 64 ? 64 : limit;
    limit = limit > j->rows ? j->rows : limit;
    float    *logits;
    tl_status st = gpu_alloc(ctx, (size_t)(limit * (j->v + (j->dw ? j->d : 0))) * 4,
                             (void **)&logits);
    if (st != TL_OK) return st;
    for (int64_t first = 0; first < j->rows && st == TL_OK; first += limit)
        st = block(ctx, j, first, j->rows - first < limit ? j->rows - first : limit, logits,
                   logits + limit * j->v);
    gpu_free(ctx, logits);
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
    j.v = j.w ? c->w->dims[0] : j.d;
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
        LAUNCH_SYNC(loss_rows, j.rows, THREADS, j, 0, j.x, j.dx);
    LAUNCH_SYNC(total, 1, THREADS, j.losses, j.rows, scratch, F32(c->loss));
    if (st == TL_OK) st = launched(ctx, "cross_entropy");
    gpu_free(ctx, scratch);
    return st;
}

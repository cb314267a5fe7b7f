/* optim.cu - updates parameters by Adam or SGD and computes the norm of all gradients. One launch
** processes many parameters, since most are small. */
#include <math.h>

#include "cuda/cuda.cuh"

extern "C" {
#include "ops/optim.h"
}

/* ---- Lists of parameters --------------------------------------------------------------------- */

#define CHUNK  4096 /* elements per block at a time; a constant, so that sums repeat exactly */
#define LISTED 64   /* parameters per launch: kernel arguments are limited to 4096 bytes */

typedef struct batch {
    int        count;
    int64_t    first[LISTED + 1]; /* the first chunk of each, then the number of chunks */
    tl_trained of[LISTED];
} batch;

/* The elements begin..end-1 of t, which one block processes. */
typedef struct piece {
    tl_trained t;
    int64_t    begin, end;
} piece;

static __device__ piece piece_of(const batch &l, int64_t chunk)
{
    int low = 0, high = l.count; /* first[low] <= chunk < first[high] */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (l.first[middle] <= chunk)
            low = middle;
        else
            high = middle;
    }
    piece p;
    p.t = l.of[low];
    p.begin = (chunk - l.first[low]) * CHUNK;
    p.end = p.begin + CHUNK < p.t.len ? p.begin + CHUNK : p.t.len;
    return p;
}

/* Loops over the chunks of this block, and over the elements of a piece of this thread. */
#define EACH_CHUNK(chunk, l) \
    for (int64_t chunk = blockIdx.x; chunk < (l).first[(l).count]; chunk += gridDim.x)
#define EACH_OF(i, p) for (int64_t i = (p).begin + threadIdx.x; i < (p).end; i += THREADS)

/* Fills l with the next parameters from *at on, advances *at, and returns their number of
** chunks. */
static int64_t next_batch(const tl_trained_list *list, int *at, batch *l)
{
    l->count = 0;
    l->first[0] = 0;
    for (; *at < list->count && l->count < LISTED; ++*at) {
        const tl_trained *t = &list->of[*at];
        l->of[l->count] = *t;
        l->first[l->count + 1] = l->first[l->count] + (t->len + CHUNK - 1) / CHUNK;
        l->count++;
    }
    return l->first[l->count];
}

static int64_t blocks_of(int64_t chunks) { return chunks < 8192 ? chunks : 8192; }

/* ---- Steps ----------------------------------------------------------------------------------- */

static __global__ void adam_all(tl_adam_numbers a, const __grid_constant__ batch l)
{
    EACH_CHUNK(chunk, l)
    {
        const piece c = piece_of(l, chunk);
        const float *__restrict__ grad = c.t.grad;
        float *__restrict__ p = c.t.p, *__restrict__ m = c.t.m, *__restrict__ v = c.t.v;
        EACH_OF(i, c) tl_adam_update(&a, grad[i], p + i, m + i, v + i);
    }
}

tl_status gpu_adam(tl_ctx *ctx, const tl_args *a)
{
    const tl_trained_list *list = (const tl_trained_list *)a->p;
    tl_adam_numbers        by = tl_adam_numbers_of(list);
    batch                  l;
    for (int at = 0; at < list->count;) {
        int64_t chunks = next_batch(list, &at, &l);
        if (chunks > 0) LAUNCH(adam_all, blocks_of(chunks), THREADS, by, l);
    }
    return launched(ctx, "adam");
}

static __global__ void sgd_all(tl_sgd_numbers a, const __grid_constant__ batch l)
{
    EACH_CHUNK(chunk, l)
    {
        const piece c = piece_of(l, chunk);
        const float *__restrict__ grad = c.t.grad;
        float *__restrict__ p = c.t.p, *__restrict__ buf = c.t.m;
        EACH_OF(i, c) tl_sgd_update(&a, grad[i], p + i, buf ? buf + i : NULL);
    }
}

tl_status gpu_sgd(tl_ctx *ctx, const tl_args *a)
{
    const tl_trained_list *list = (const tl_trained_list *)a->p;
    tl_sgd_numbers         by = tl_sgd_numbers_of(list);
    batch                  l;
    for (int at = 0; at < list->count;) {
        int64_t chunks = next_batch(list, &at, &l);
        if (chunks > 0) LAUNCH(sgd_all, blocks_of(chunks), THREADS, by, l);
    }
    return launched(ctx, "sgd");
}

/* ---- Norm ------------------------------------------------------------------------------------ */

/* sums[k] = the sum of squares in chunk k */
static __global__ void squares_all(const __grid_constant__ batch l, double *sums)
{
    __shared__ double scratch[THREADS / 32];
    EACH_CHUNK(chunk, l)
    {
        const piece c = piece_of(l, chunk);
        double      sum = 0;
        EACH_OF(i, c) sum += (double)c.t.grad[i] * (double)c.t.grad[i];
        sum = block_reduce(sum, add(), scratch);
        if (threadIdx.x == 0) sums[chunk] = sum;
    }
}

/* Runs as one block: *total = the sum of n numbers. */
static __global__ void add_up(const double *sums, double *total, int64_t n)
{
    __shared__ double scratch[THREADS / 32];
    double            sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) sum += sums[i];
    sum = block_reduce(sum, add(), scratch);
    if (threadIdx.x == 0) *total = sum;
}

/* Sets the list's sum of squares; only one number is downloaded for all parameters. */
tl_status gpu_norm2(tl_ctx *ctx, const tl_args *a)
{
    tl_trained_list *list = (tl_trained_list *)a->p;
    batch            l;
    double          *sums;
    int64_t          total = 0, done = 0;
    list->sum = 0;
    for (int k = 0; k < list->count; k++) total += (list->of[k].len + CHUNK - 1) / CHUNK;
    if (total == 0) return TL_OK;
    tl_status st = gpu_alloc(ctx, (size_t)(total + 1) * sizeof *sums, (void **)&sums);
    if (st != TL_OK) return st;
    for (int at = 0; at < list->count;) {
        int64_t chunks = next_batch(list, &at, &l);
        if (chunks > 0) LAUNCH_SYNC(squares_all, blocks_of(chunks), THREADS, l, sums + done);
        done += chunks;
    }
    LAUNCH_SYNC(add_up, 1, THREADS, sums, sums + total, total);
    st = launched(ctx, "norm2");
    if (st == TL_OK) st = ctx->engine->download(ctx, &list->sum, sums + total, sizeof *sums);
    gpu_free(ctx, sums);
    return st;
}

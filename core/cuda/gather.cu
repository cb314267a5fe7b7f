/* gather.cu - selects rows of a table by index, as an embedding does, and windows of a text. */
#include "cuda/cuda.cuh"

static __device__ bool bad(int32_t index, int64_t count, int64_t *fault)
{
    if (index >= 0 && index < count) return false;
    *fault = FAULT_INDEX(index);
    return true;
}

static __global__ void gather_each(const float *table, int64_t rows, const int32_t *index,
                                   int64_t cols, float *y, int64_t n, int64_t *fault)
{
    EACH(i, n)
    {
        int32_t row = index[i / cols];
        y[i] = bad(row, rows, fault) ? 0.0f : table[row * cols + i % cols];
    }
}

/* out[0] = the rows of in[0] that in[1] selects */
static tl_status gather(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    if (n == 0) return TL_OK;
    LAUNCH(gather_each, blocks_for(n), THREADS, F32(a->in[0]), a->in[0]->dims[0], I32(a->in[1]),
           n / a->in[1]->len, F32(a->out[0]), n, gpu_of(ctx)->fault);
    return launched(ctx, "gather");
}

/* ---- Gradient: positions sorted by index ----------------------------------------------------- */

/* A radix sort orders positions by their index, 8 bits at a time, the lowest first. A block has
** consecutive tiles of positions, and each of its threads one digit, so that the sort is stable and
** does not depend on timing. */

#define TILE       THREADS
#define MOST_PARTS 256 /* blocks */

typedef struct part { /* tiles of this block */
    int64_t from, to;
} part;

static __device__ part part_of(int64_t n)
{
    int64_t tiles = (n + TILE - 1) / TILE;
    return part{tiles * blockIdx.x / gridDim.x, tiles * (blockIdx.x + 1) / gridDim.x};
}

static __device__ int digit(const uint32_t *keys, int64_t k, int64_t n, int shift)
{
    return k < n ? (int)(keys[k] >> shift & 255u) : -1;
}

/* Copies the indices as keys; an index out of range becomes `last`, which sorts after all rows. */
static __global__ void make_keys(const int32_t *index, int64_t n, int64_t rows, uint32_t last,
                                 uint32_t *keys, int32_t *positions)
{
    EACH(k, n)
    {
        keys[k] = index[k] >= 0 && index[k] < rows ? (uint32_t)index[k] : last;
        positions[k] = (int32_t)k;
    }
}

/* counts [blocks,256] = how often each digit occurs in the part of each block */
static __global__ void count_digits(const uint32_t *keys, int64_t n, int shift, int32_t *counts)
{
    __shared__ int digits[TILE];
    int     me = (int)threadIdx.x;
    part    p = part_of(n);
    int32_t count = 0;
    for (int64_t tile = p.from; tile < p.to; tile++) {
        digits[me] = digit(keys, tile * TILE + me, n, shift);
        __syncthreads();
        for (int u = 0; u < TILE; u++) count += digits[u] == me;
        __syncthreads(); /* all have read digits */
    }
    counts[blockIdx.x * TILE + me] = count;
}

/* Runs as one block: each count becomes the place where that digit of that part begins. */
static __global__ void place_digits(int32_t *counts, int parts)
{
    __shared__ int32_t totals[TILE];
    int     me = (int)threadIdx.x;
    int32_t sum = 0;
    for (int b = 0; b < parts; b++) sum += counts[b * TILE + me];
    totals[me] = sum;
    __syncthreads();
    sum = 0;
    for (int d = 0; d < me; d++) sum += totals[d];
    for (int b = 0; b < parts; b++) {
        int32_t own = counts[b * TILE + me];
        counts[b * TILE + me] = sum;
        sum += own;
    }
}

static __global__ void move_digits(const uint32_t *keys, const int32_t *positions, int64_t n,
                                   int shift, const int32_t *places, uint32_t *to_keys,
                                   int32_t *to_positions)
{
    __shared__ int     digits[TILE];
    __shared__ int32_t next[TILE];
    int  me = (int)threadIdx.x;
    part p = part_of(n);
    next[me] = places[blockIdx.x * TILE + me];
    for (int64_t tile = p.from; tile < p.to; tile++) {
        int64_t k = tile * TILE + me;
        int     own = digits[me] = digit(keys, k, n, shift);
        __syncthreads();
        int32_t before = 0, all = 0; /* equal digits before this element; digits equal to me */
        for (int u = 0; u < TILE; u++) {
            before += u < me && digits[u] == own;
            all += digits[u] == me;
        }
        if (k < n) {
            to_keys[next[own] + before] = keys[k];
            to_positions[next[own] + before] = positions[k];
        }
        __syncthreads(); /* all have read digits and next */
        next[me] += all;
    }
}

/* first[r] = the number of keys below r */
static __global__ void find_rows(const uint32_t *keys, int64_t n, int64_t rows, int32_t *first)
{
    EACH(r, rows + 1)
    {
        int64_t low = 0, high = n;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (keys[middle] < r)
                low = middle + 1;
            else
                high = middle;
        }
        first[r] = (int32_t)low;
    }
}

/* ---- Gradient: sums over positions ----------------------------------------------------------- */

#define RUN 64 /* positions with a partial sum, if all belong to one row */

/* sums [n/RUN,cols] = the sums over sorted positions RUN j .. RUN j + RUN-1 */
static __global__ void sum_runs(const float *dy, const uint32_t *keys, const int32_t *order,
                                int64_t cols, float *sums, int64_t total)
{
    EACH(e, total)
    {
        int64_t begin = e / cols * RUN, c = e % cols;
        float   sum = 0;
        if (keys[begin] != keys[begin + RUN - 1]) continue; /* sum_rows does not read it */
        for (int64_t k = begin; k < begin + RUN; k++) sum += dy[order[k] * cols + c];
        sums[e] = sum;
    }
}

/* Sums over all positions of a row of the table, in order of position. */
static __global__ void sum_rows(const float *dy, const int32_t *order, const int32_t *first,
                                const float *sums, int64_t cols, int more, float *dx, int64_t n)
{
    EACH(i, n)
    {
        int64_t row = i / cols, c = i % cols, end = first[row + 1];
        float   sum = more ? dx[i] : 0.0f;
        for (int64_t k = first[row]; k < end;) {
            bool run = k % RUN == 0 && k + RUN <= end;
            sum += run ? sums[k / RUN * cols + c] : dy[order[k] * cols + c];
            k += run ? RUN : 1;
        }
        dx[i] = sum;
    }
}

typedef struct sorting { /* scratch buffers for n positions */
    int64_t   n, rows;
    int       parts;
    uint32_t *keys, *to_keys;
    int32_t  *order, *to_order, *counts, *first;
    float    *sums;
} sorting;

static tl_status reserve(tl_ctx *ctx, int64_t n, int64_t rows, int64_t cols, sorting *s)
{
    int64_t tiles = (n + TILE - 1) / TILE;
    s->n = n;
    s->rows = rows;
    s->parts = tiles < MOST_PARTS ? (int)tiles : MOST_PARTS;
    if (n > INT32_MAX)
        return tl_fail(ctx, TL_ESHAPE, "gather: %lld indices, a GPU sorts at most %d for a "
                       "gradient", (long long)n, INT32_MAX);
    int64_t   words = 4 * n + s->parts * TILE + rows + 1 + n / RUN * cols;
    tl_status st = gpu_alloc(ctx, (size_t)words * 4, (void **)&s->keys);
    if (st != TL_OK) return st;
    s->to_keys = s->keys + n;
    s->order = (int32_t *)(s->to_keys + n);
    s->to_order = s->order + n;
    s->counts = s->to_order + n;
    s->first = s->counts + s->parts * TILE;
    s->sums = (float *)(s->first + rows + 1);
    return TL_OK;
}

static void sort(tl_ctx *ctx, const int32_t *index, sorting *s)
{
    uint32_t last = s->rows <= INT32_MAX ? (uint32_t)s->rows : 0x80000000u;
    if (s->n == 0) return;
    LAUNCH(make_keys, blocks_for(s->n), THREADS, index, s->n, s->rows, last, s->keys, s->order);
    for (int shift = 0; shift < 32 && last >> shift > 0; shift += 8) {
        LAUNCH_SYNC(count_digits, s->parts, TILE, s->keys, s->n, shift, s->counts);
        LAUNCH_SYNC(place_digits, 1, TILE, s->counts, s->parts);
        LAUNCH_SYNC(move_digits, s->parts, TILE, s->keys, s->order, s->n, shift, s->counts,
                    s->to_keys, s->to_order);
        uint32_t *keys = s->keys;
        int32_t  *order = s->order;
        s->keys = s->to_keys, s->to_keys = keys;
        s->order = s->to_order, s->to_order = order;
    }
}

/* Clears out[0] [p,..] unless i[0] is set, then adds row i of in[0] to its row in[1][i]. */
static tl_status gather_grad(tl_ctx *ctx, const tl_args *a)
{
    tl_tensor   *dx = a->out[0];
    const float *dy = F32(a->in[0]);
    sorting      s;
    if (dx->len == 0) return TL_OK;
    int64_t   n = a->in[1]->len, rows = dx->dims[0], cols = dx->len / rows;
    tl_status st = reserve(ctx, n, rows, cols, &s);
    if (st != TL_OK) return st;
    void   *block = s.keys; /* the sort swaps keys and to_keys */
    int64_t runs = n / RUN * cols;
    sort(ctx, I32(a->in[1]), &s);
    LAUNCH(find_rows, blocks_for(rows + 1), THREADS, s.keys, n, rows, s.first);
    if (runs > 0)
        LAUNCH(sum_runs, blocks_for(runs), THREADS, dy, s.keys, s.order, cols, s.sums, runs);
    LAUNCH(sum_rows, blocks_for(dx->len), THREADS, dy, s.order, s.first, s.sums, cols,
           a->i[0] != 0, F32(dx), dx->len);
    st = launched(ctx, "gather_grad");
    gpu_free(ctx, block);
    return st;
}

/* ---- Windows --------------------------------------------------------------------------------- */

static __global__ void windows_each(const int32_t *ids, int64_t len, const int32_t *starts,
                                    int64_t n, int32_t *rows, int64_t total, int64_t *fault)
{
    EACH(i, total)
    {
        int32_t start = starts[i / n];
        rows[i] = bad(start, len - n + 1, fault) ? 0 : ids[start + i % n];
    }
}

/* in: ids [t], starts [b]   out: rows [b,n] */
static tl_status windows(tl_ctx *ctx, const tl_args *a)
{
    int64_t total = a->out[0]->len;
    if (total == 0) return TL_OK;
    LAUNCH(windows_each, blocks_for(total), THREADS, I32(a->in[0]), a->in[0]->len, I32(a->in[1]),
           a->out[0]->dims[1], I32(a->out[0]), total, gpu_of(ctx)->fault);
    return launched(ctx, "windows");
}

const tl_kernel_row gpu_gather[] = {{TL_OP_gather, gather},
                                    {TL_OP_gather_grad, gather_grad},
                                    {TL_OP_windows, windows},
                                    {}};

/* sort.cu - sorts rows and finds their largest elements. A radix sort, 8 bits at a time, the lowest
** first. A block has consecutive tiles of a row, and each of its threads one digit, so that the
** sort is stable and does not depend on timing. */
#include "ops/sort.cuh"
#include "ops/sort.h"

#define TILE      THREADS
#define MAX_PARTS 256

/* ---- The sort -------------------------------------------------------------------------------- */

typedef struct part { /* the tiles of this block */
    int64_t row, from, to;
} part;

static __device__ part part_of(int64_t n, int parts)
{
    int64_t tiles = (n + TILE - 1) / TILE, at = blockIdx.x % parts;
    return part{blockIdx.x / parts, tiles * at / parts, tiles * (at + 1) / parts};
}

static __device__ int digit(const uint32_t *keys, int64_t k, int64_t n, int shift)
{
    return k < n ? (int)(keys[k] >> shift & 255u) : -1;
}

/* counts [rows,parts,256] = how often each digit occurs in the part of each block */
static __global__ void count_digits(const uint32_t *keys, int64_t n, int parts, int shift,
                                    int32_t *counts)
{
    __shared__ int digits[TILE];
    int     me = (int)threadIdx.x;
    part    p = part_of(n, parts);
    int32_t count = 0;
    keys += p.row * n;
    for (int64_t tile = p.from; tile < p.to; tile++) {
        digits[me] = digit(keys, tile * TILE + me, n, shift);
        __syncthreads();
        for (int u = 0; u < TILE; u++) count += digits[u] == me;
        __syncthreads(); /* all have read digits */
    }
    counts[(int64_t)blockIdx.x * TILE + me] = count;
}

/* Runs as one block for each row: each count becomes the place where that digit of that part
** begins. */
static __global__ void place_digits(int32_t *counts, int parts)
{
    __shared__ int32_t totals[TILE];
    int     me = (int)threadIdx.x;
    int32_t sum = 0;
    counts += (int64_t)blockIdx.x * parts * TILE;
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
                                   int parts, int shift, const int32_t *places, uint32_t *to_keys,
                                   int32_t *to_positions)
{
    __shared__ int     digits[TILE];
    __shared__ int32_t next[TILE];
    int     me = (int)threadIdx.x;
    part    p = part_of(n, parts);
    int64_t first = p.row * n;
    next[me] = places[(int64_t)blockIdx.x * TILE + me];
    for (int64_t tile = p.from; tile < p.to; tile++) {
        int64_t k = tile * TILE + me;
        int     own = digits[me] = digit(keys + first, k, n, shift);
        __syncthreads();
        int32_t before = 0, all = 0; /* equal digits before this element; digits equal to me */
        for (int u = 0; u < TILE; u++) {
            before += u < me && digits[u] == own;
            all += digits[u] == me;
        }
        if (k < n) {
            int64_t to = first + next[own] + before;
            to_keys[to] = keys[first + k];
            to_positions[to] = positions[first + k];
        }
        __syncthreads(); /* all have read digits and next */
        next[me] += all;
    }
}

static int parts_of(int64_t n)
{
    int64_t tiles = (n + TILE - 1) / TILE;
    return tiles < MAX_PARTS ? (int)tiles : MAX_PARTS;
}

int64_t gpu_sort_words(int64_t rows, int64_t n)
{
    return rows * (4 * n + parts_of(n) * TILE);
}

sorting gpu_sort_buffers(int64_t rows, int64_t n, uint32_t *block)
{
    sorting s = {rows, n, parts_of(n)};
    s.keys = block;
    s.to_keys = s.keys + rows * n;
    s.order = (int32_t *)(s.to_keys + rows * n);
    s.to_order = s.order + rows * n;
    s.counts = s.to_order + rows * n;
    return s;
}

static void swap_buffers(sorting *s)
{
    uint32_t *keys = s->keys;
    int32_t  *order = s->order;
    s->keys = s->to_keys, s->to_keys = keys;
    s->order = s->to_order, s->to_order = order;
}

void gpu_sort(tl_ctx *ctx, sorting *s, uint32_t last)
{
    int64_t blocks = s->rows * s->parts;
    if (blocks == 0) return;
    for (int shift = 0; shift < 32 && last >> shift > 0; shift += 8) {
        LAUNCH_SYNC(count_digits, blocks, TILE, s->keys, s->n, s->parts, shift, s->counts);
        LAUNCH_SYNC(place_digits, s->rows, TILE, s->counts, s->parts);
        LAUNCH_SYNC(move_digits, blocks, TILE, s->keys, s->order, s->n, s->parts, shift, s->counts,
                    s->to_keys, s->to_order);
        swap_buffers(s);
    }
}

/* ---- Operators, with the arguments of sort.c ------------------------------------------------- */

/* Keys are complemented by flip, to sort in descending order. */
static __global__ void make_keys(const uint32_t *x, int is_float, uint32_t flip, int64_t n,
                                 uint32_t *keys, int32_t *order, int64_t total)
{
    EACH(i, total)
    {
        keys[i] = sort_key(x[i], is_float) ^ flip;
        order[i] = (int32_t)(i % n);
    }
}

static __global__ void order_each(const int32_t *from, int64_t n, int32_t *order, int32_t *rank,
                                  int64_t total)
{
    EACH(i, total)
    {
        order[i] = from[i];
        rank[i / n * n + from[i]] = (int32_t)(i % n);
    }
}

/* The next sort moves the first k in order to the front, in the order of their positions. */
static __global__ void flag_each(const int32_t *order, int64_t n, int64_t k, uint32_t *to_keys,
                                 int32_t *to_order, int64_t total)
{
    EACH(i, total)
    {
        to_keys[i / n * n + order[i]] = i % n >= k;
        to_order[i] = (int32_t)(i % n);
    }
}

static __global__ void take_each(const int32_t *order, int64_t n, int64_t k, int32_t *places,
                                 int32_t *slots, int64_t total)
{
    EACH(i, total)
    {
        int64_t row = i / n, at = i % n;
        if (at < k) places[row * k + at] = order[i];
        slots[row * n + order[i]] = at < k ? (int32_t)at + 1 : 0;
    }
}

/* Sorts the rows of x, which has elements, into new buffers in *out_block. */
static tl_status sort_rows(tl_ctx *ctx, const tl_tensor *x, uint32_t flip, sorting *s,
                           void **out_block)
{
    int64_t   n = tl_cols(x), rows = x->len / n;
    tl_status st = gpu_alloc(ctx, (size_t)gpu_sort_words(rows, n) * 4, out_block);
    if (st != TL_OK) return st;
    *s = gpu_sort_buffers(rows, n, (uint32_t *)*out_block);
    LAUNCH(make_keys, blocks_for(x->len), THREADS, (const uint32_t *)DATA(x), x->type == TL_F32,
           flip, n, s->keys, s->order, x->len);
    gpu_sort(ctx, s, UINT32_MAX);
    return TL_OK;
}

tl_status gpu_argsort(tl_ctx *ctx, const tl_args *a)
{
    const tl_tensor *x = a->argsort.x;
    void            *block;
    sorting          s;
    if (x->len == 0) return TL_OK;
    tl_status st = sort_rows(ctx, x, 0, &s, &block);
    if (st != TL_OK) return st;
    LAUNCH(order_each, blocks_for(x->len), THREADS, s.order, s.n, I32(a->argsort.order),
           I32(a->argsort.rank), x->len);
    st = launched(ctx, "argsort");
    gpu_free(ctx, block);
    return st;
}

/* places [..,k], slots: of the k largest elements of the rows of x */
tl_status gpu_topk(tl_ctx *ctx, const tl_args *a)
{
    const tl_tensor *x = a->topk.x;
    int64_t          k = tl_cols(a->topk.places);
    void            *block;
    sorting          s;
    if (x->len == 0) return TL_OK;
    tl_status st = sort_rows(ctx, x, UINT32_MAX, &s, &block);
    if (st != TL_OK) return st;
    LAUNCH(flag_each, blocks_for(x->len), THREADS, s.order, s.n, k, s.to_keys, s.to_order, x->len);
    swap_buffers(&s);
    gpu_sort(ctx, &s, 1);
    LAUNCH(take_each, blocks_for(x->len), THREADS, s.order, s.n, k, I32(a->topk.places),
           I32(a->topk.slots), x->len);
    st = launched(ctx, "topk");
    gpu_free(ctx, block);
    return st;
}

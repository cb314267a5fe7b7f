/* gather.cu - rows by index: embeddings and table look-ups; windows of a text. */
#include "cuda.cuh"

/* A fault is the bad index, moved off 0: see check_fault in engine.cu. */
static __device__ bool bad(int32_t index, int64_t count, int *fault)
{
    if (index >= 0 && index < count) return false;
    *fault = index < 0 ? index : index + 1;
    return true;
}

static __global__ void gather_each(const float *table, int64_t rows, const int32_t *index,
                                   int64_t cols, float *y, int64_t n, int *fault)
{
    EACH(i, n)
    {
        int32_t row = index[i / cols];
        y[i] = bad(row, rows, fault) ? 0.0f : table[row * cols + i % cols];
    }
}

/* out[0] = rows in[1] of in[0] */
static tl_status gather(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    if (n == 0) return TL_OK;
    LAUNCH(gather_each, blocks_for(n), THREADS, F32(a->in[0]), a->in[0]->dims[0], I32(a->in[1]),
           n / a->in[1]->len, F32(a->out[0]), n, card_of(ctx)->fault);
    return launched(ctx, "gather");
}

/* The sum over all positions of one row of the table, in order of position: `order` lists positions
** sorted by index, first[r] is where row r's begin. */
static __global__ void gather_grad_rows(const float *dy, const int32_t *order, const int32_t *first,
                                        int64_t cols, int more, float *dx, int64_t n)
{
    EACH(i, n)
    {
        int64_t row = i / cols, c = i % cols;
        float sum = more ? dx[i] : 0.0f;
        for (int32_t k = first[row]; k < first[row + 1]; k++) sum += dy[order[k] * cols + c];
        dx[i] = sum;
    }
}

/* A counting sort by one block: counts, running sums, places. Each thread owns a range of rows, so
** that positions keep their order within a row and nothing depends on timing. */
static __global__ void sort_positions(const int32_t *index, int64_t count, int64_t rows,
                                      int32_t *order, int32_t *first)
{
    __shared__ int32_t sums[THREADS];
    int64_t from = rows * threadIdx.x / THREADS, to = rows * (threadIdx.x + 1) / THREADS;
    for (int64_t r = from; r < to; r++) first[r + 1] = 0;
    if (threadIdx.x == 0) first[0] = 0;
    for (int64_t k = 0; k < count; k++)
        if (index[k] >= from && index[k] < to) first[index[k] + 1]++;
    __syncthreads();
    int32_t sum = 0;
    for (int64_t r = from; r < to; r++) sum += first[r + 1];
    sums[threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (unsigned t = 0; t < threadIdx.x; t++) sum += sums[t];
    for (int64_t r = from; r < to; r++) { /* first[r + 1]: where row r begins, for now */
        int32_t rows_own = first[r + 1];
        first[r + 1] = sum;
        sum += rows_own;
    }
    __syncthreads();
    for (int64_t k = 0; k < count; k++)
        if (index[k] >= from && index[k] < to) order[first[index[k] + 1]++] = (int32_t)k;
}

/* out[0] [p,..] = 0 unless i[0], then row in[1][i] of it += row i of in[0] */
static tl_status gather_grad(tl_ctx *ctx, const tl_args *a)
{
    tl_tensor *dx = a->out[0];
    int64_t    count = a->in[1]->len, rows = dx->dims[0];
    void      *order, *first;
    if (dx->len == 0) return TL_OK;
    tl_status st = card_alloc(ctx, (size_t)count * 4, &order);
    if (st != TL_OK) return st;
    st = card_alloc(ctx, (size_t)(rows + 1) * 4, &first);
    if (st == TL_OK) {
        LAUNCH_SYNC(sort_positions, 1, THREADS, I32(a->in[1]), count, rows, (int32_t *)order,
                    (int32_t *)first);
        LAUNCH(gather_grad_rows, blocks_for(dx->len), THREADS, F32(a->in[0]),
               (const int32_t *)order, (const int32_t *)first, dx->len / rows, a->i[0] != 0,
               F32(dx), dx->len);
        st = launched(ctx, "gather_grad");
        card_free(ctx, first);
    }
    card_free(ctx, order);
    return st;
}

static __global__ void windows_each(const int32_t *ids, int64_t len, const int32_t *starts,
                                    int64_t n, int32_t *rows, int64_t total, int *fault)
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
           a->out[0]->dims[1], I32(a->out[0]), total, card_of(ctx)->fault);
    return launched(ctx, "windows");
}

const tl_kernel_row card_gather[] = {{TL_OP_gather, gather},
                                     {TL_OP_gather_grad, gather_grad},
                                     {TL_OP_windows, windows},
                                     {}};

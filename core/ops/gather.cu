/* gather.cu - selects rows of a table by index, as an embedding does, or of a batch of tables, and
** windows of a text. */
#include "ops/sort.cuh"
#include "ops/arguments.h"

static __device__ bool bad(int32_t index, int64_t count, int64_t *fault)
{
    if (index >= 0 && index < count) return false;
    *fault = FAULT_INDEX(index);
    return true;
}

/* Each of the tables has `rows` rows and `each` indices. */
static __global__ void gather_each(const float *tables, int64_t rows, const int32_t *index,
                                   int64_t each, int64_t cols, float *y, int64_t *fault, int64_t n)
{
    EACH(i, n)
    {
        int64_t k = i / cols, row = k / each * rows + index[k];
        y[i] = bad(index[k], rows, fault) ? 0.0f : tables[row * cols + i % cols];
    }
}

GPU_EACH(gather, a->y->len, gather_each, F32(a->x), a->table, I32(a->index), a->each, a->cols,
         F32(a->y), gpu_of(ctx)->fault)

/* ---- Gradient: positions sorted by index ----------------------------------------------------- */

/* Makes keys of the rows that are selected, counted through all tables; an index out of range
** becomes `last`, which sorts after all rows. */
static __global__ void make_keys(const int32_t *index, int64_t n, int64_t each, int64_t rows,
                                 uint32_t last, uint32_t *keys, int32_t *positions)
{
    EACH(k, n)
    {
        bool fits = index[k] >= 0 && index[k] < rows;
        keys[k] = fits ? (uint32_t)(k / each * rows + index[k]) : last;
        positions[k] = (int32_t)k;
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

/* Sums over all positions of a row of the table, in order of position and in float64. */
static __global__ void sum_rows(const float *dy, const int32_t *order, const int32_t *first,
                                const float *sums, int64_t cols, int more, float *dx, int64_t n)
{
    EACH(i, n)
    {
        int64_t row = i / cols, c = i % cols, end = first[row + 1];
        double  sum = more ? (double)dx[i] : 0.0;
        for (int64_t k = first[row]; k < end;) {
            bool run = k % RUN == 0 && k + RUN <= end;
            sum += run ? sums[k / RUN * cols + c] : dy[order[k] * cols + c];
            k += run ? RUN : 1;
        }
        dx[i] = (float)sum;
    }
}

/* Clears dx unless add, then adds row i of dy to the row that index i selects. */
tl_status gpu_gather_grad(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_gather_grad *g = &a->gather_grad;
    tl_tensor   *dx = g->dx;
    const float *dy = F32(g->dy);
    uint32_t    *block;
    if (dx->len == 0) return TL_OK;
    int64_t n = g->index->len, cols = g->cols, rows = dx->len / cols;
    int64_t runs = n / RUN * cols, words = gpu_sort_words(1, n);
    if (n > INT32_MAX || rows >= UINT32_MAX)
        return tl_fail(ctx, TL_ESHAPE, "gather: %lld indices of %lld rows, a GPU sorts at most %d "
                       "of %u for a gradient", (long long)n, (long long)rows, INT32_MAX,
                       UINT32_MAX - 1);
    tl_status st = gpu_alloc(ctx, (size_t)(words + rows + 1 + runs) * 4, (void **)&block);
    if (st != TL_OK) return st;
    sorting  s = gpu_sort_buffers(1, n, block);
    int32_t *first = (int32_t *)block + words;
    float   *sums = (float *)(first + rows + 1);
    uint32_t last = (uint32_t)rows;
    if (n > 0)
        LAUNCH(make_keys, blocks_for(n), THREADS, I32(g->index), n, g->each, g->table,
               last, s.keys, s.order);
    gpu_sort(ctx, &s, last);
    LAUNCH(find_rows, blocks_for(rows + 1), THREADS, s.keys, n, rows, first);
    if (runs > 0)
        LAUNCH(sum_runs, blocks_for(runs), THREADS, dy, s.keys, s.order, cols, sums, runs);
    LAUNCH(sum_rows, blocks_for(dx->len), THREADS, dy, s.order, first, sums, cols, g->add != 0,
           F32(dx), dx->len);
    st = launched(ctx, "gather_grad");
    gpu_free(ctx, block);
    return st;
}

/* ---- Windows --------------------------------------------------------------------------------- */

static __global__ void windows_each(const int32_t *ids, int64_t len, const int32_t *starts,
                                    int64_t n, int32_t *rows, int64_t *fault, int64_t total)
{
    EACH(i, total)
    {
        int32_t start = starts[i / n];
        rows[i] = bad(start, len - n + 1, fault) ? 0 : ids[start + i % n];
    }
}

/* ids [t], starts [b], rows [b,n] */
GPU_EACH(windows, a->rows->len, windows_each, I32(a->ids), a->ids->len, I32(a->starts),
         a->rows->dims[1], I32(a->rows), gpu_of(ctx)->fault)

/* binary.cu - computes arithmetic of two tensors with broadcasting, and the sum that is its
** adjoint. */
#include "cuda/cuda.cuh"

extern "C" {
#include "ops/walk.h"
}

/* The offsets of element i of the walk in both operands. */
static __device__ void places(const tl_walk &w, int64_t i, int64_t *a, int64_t *b)
{
    int64_t n = w.dims[w.ndim - 1];
    tl_walk_offsets(&w, i / n, a, b);
    *a += i % n * w.a[w.ndim - 1];
    *b += i % n * w.b[w.ndim - 1];
}

static __global__ void even_each(tl_binary_kind kind, const float *a, int64_t sa, const float *b,
                                 int64_t sb, float *y, int64_t n)
{
    EACH(i, n) y[i] = tl_binary_value(kind, a[i * sa], b[i * sb]);
}

static __global__ void walked_each(tl_binary_kind kind, tl_walk w, const float *a, const float *b,
                                   float *y, int64_t n)
{
    EACH(i, n)
    {
        int64_t p, q;
        places(w, i, &p, &q);
        y[i] = tl_binary_value(kind, a[p], b[q]);
    }
}

/* y = a op b, in the broadcast shape */
tl_status gpu_binary(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_binary *b = &a->binary;
    const tl_tensor *y = b->y;
    int64_t          n = y->len;
    tl_binary_kind   kind = (tl_binary_kind)b->kind;
    if (n == 0) return TL_OK;
    tl_walk w = tl_walk_of(b->a, b->b, y->ndim, y->dims);
    if (w.ndim == 1)
        LAUNCH(even_each, blocks_for(n), THREADS, kind, F32(b->a), w.a[0], F32(b->b), w.b[0],
               F32(y), n);
    else
        LAUNCH(walked_each, blocks_for(n), THREADS, kind, w, F32(b->a), F32(b->b), F32(y), n);
    return launched(ctx, "binary");
}

static __global__ void to_float_each(const int32_t *x, float *y, int64_t n)
{
    EACH(i, n) y[i] = (float)x[i];
}

/* y = x, int32 */
GPU_EACH(to_float, a->y->len, to_float_each, I32(a->x), F32(a->y))

static __global__ void pick_each(tl_walk w, const float *a, const float *y, const float *dy,
                                 float *da, int64_t n)
{
    EACH(i, n)
    {
        int64_t p, q;
        places(w, i, &p, &q);
        da[i] = tl_binary_selects(a[p], y[i]) ? dy[i] : 0.0f;
    }
}

/* The gradient of a maximum or minimum: da = dy where the result y equals a, broadcast, or a is
** NaN, and 0 elsewhere. */
GPU_EACH(pick, a->y->len, pick_each, tl_walk_of(a->a, a->y, a->y->ndim, a->y->dims), F32(a->a),
         F32(a->y), F32(a->dy), F32(a->da))

/* ---- The adjoint of a broadcast -------------------------------------------------------------- */

/* Separates the dimensions of x into those that y has and those over which y was broadcast.
** Adjacent dimensions of one kind are merged. */
typedef struct stretch {
    int     kept, summed;
    int64_t kept_dims[TL_MAXDIMS], kept_steps[TL_MAXDIMS];
    int64_t summed_dims[TL_MAXDIMS], summed_steps[TL_MAXDIMS];
    int64_t count;  /* elements summed into one */
    int     across; /* whether the innermost dimension is summed */
} stretch;

static void add_dim(int *count, int64_t *dims, int64_t *steps, int merge, int64_t size,
                    int64_t step)
{
    int at = merge ? *count - 1 : (*count)++;
    dims[at] = merge ? dims[at] * size : size;
    steps[at] = step;
}

static stretch stretch_of(const tl_tensor *x, const tl_tensor *y)
{
    stretch s;
    int64_t step = x->len;
    int     before = 0; /* whether the last dimension is: 1 kept, 2 summed */
    s.kept = s.summed = s.across = 0;
    s.count = 1;
    for (int i = 0; i < x->ndim; i++) {
        int     j = i - x->ndim + y->ndim;
        int64_t size = x->dims[i];
        step /= size;
        if (size == 1) continue;
        int keep = j >= 0 && y->dims[j] == size, merge = before == (keep ? 1 : 2);
        if (keep) {
            add_dim(&s.kept, s.kept_dims, s.kept_steps, merge, size, step);
        } else {
            add_dim(&s.summed, s.summed_dims, s.summed_steps, merge, size, step);
            s.count *= size;
        }
        s.across = !keep;
        before = keep ? 1 : 2;
    }
    return s;
}

/* The offset of element i of the given dimensions. */
static __device__ int64_t place(int ndim, const int64_t *dims, const int64_t *steps, int64_t i)
{
    int64_t at = 0;
    for (int k = ndim - 1; k > 0; k--) {
        at += i % dims[k] * steps[k];
        i /= dims[k];
    }
    return ndim > 0 ? at + i * steps[0] : at;
}

/* The sum of the terms first, first + every, ... of the element of y whose terms begin at x. */
static __device__ double sum_terms(const stretch &s, const float *x, int64_t first, int64_t every)
{
    double  sum = 0;
    int64_t step = s.summed == 1 ? s.summed_steps[0] : 0;
    for (int64_t i = first; i < s.count && step; i += every) sum += (double)x[i * step];
    for (int64_t i = first; i < s.count && !step; i += every)
        sum += (double)x[place(s.summed, s.summed_dims, s.summed_steps, i)];
    return sum;
}

static __device__ const float *terms_of(const stretch &s, const float *x, int64_t i)
{
    return x + place(s.kept, s.kept_dims, s.kept_steps, i);
}

static __global__ void sum_few(stretch s, int more, const float *x, float *y, int64_t n)
{
    EACH(i, n)
    {
        float sum = (float)sum_terms(s, terms_of(s, x, i), 0, 1);
        y[i] = more ? y[i] + sum : sum;
    }
}

/* sums [parts,n]: in part p, every parts-th of the terms from p on. A thread sums each, and
** neighbours read neighbouring elements of x, if its innermost dimension is kept. */
static __global__ void sum_down(stretch s, const float *x, int64_t parts, int64_t n, double *sums)
{
    EACH(e, parts * n) sums[e] = sum_terms(s, terms_of(s, x, e % n), e / n, parts);
}

/* The same by a block each, whose threads read neighbouring elements if the innermost dimension is
** summed; part p begins at THREADS p. */
static __global__ void sum_across(stretch s, const float *x, int64_t parts, int64_t n,
                                  double *sums)
{
    __shared__ double scratch[THREADS / 32];
    int64_t p = blockIdx.x / n;
    double  sum = sum_terms(s, terms_of(s, x, blockIdx.x % n), p * THREADS + threadIdx.x,
                            parts * THREADS);
    sum = block_reduce(sum, add(), scratch);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

static __global__ void add_parts(const double *sums, int64_t parts, int more, float *y, int64_t n)
{
    EACH(i, n)
    {
        double sum = 0;
        for (int64_t p = 0; p < parts; p++) sum += sums[p * n + i];
        y[i] = more ? y[i] + (float)sum : (float)sum;
    }
}

#ifdef TL_EMULATE
#define BUSY_THREADS ((int64_t)1 << 10) /* so small that tests cover sums with and without parts */
#else
#define BUSY_THREADS ((int64_t)1 << 17) /* threads that keep a GPU busy */
#endif
#define MIN_TERMS 16 /* terms of a thread that justify another part */
#define MAX_PARTS 256

/* The number of parts into which the sums of n elements, of `threads` threads each, are divided. It
** depends on shapes only, so that results repeat. */
static int64_t parts_of(const stretch *s, int64_t n, int64_t threads)
{
    int64_t parts = BUSY_THREADS / threads / n, most = s->count / threads / MIN_TERMS;
    if (parts > most) parts = most;
    return parts < 1 ? 1 : parts > MAX_PARTS ? MAX_PARTS : parts;
}

static tl_status sum_many(tl_ctx *ctx, const stretch *s, int more, const float *x, float *y,
                          int64_t n, int64_t parts)
{
    double   *sums;
    tl_status st = gpu_alloc(ctx, (size_t)(parts * n) * sizeof *sums, (void **)&sums);
    if (st != TL_OK) return st;
    if (s->across)
        LAUNCH_SYNC(sum_across, parts * n, THREADS, *s, x, parts, n, sums);
    else
        LAUNCH(sum_down, blocks_for(parts * n), THREADS, *s, x, parts, n, sums);
    LAUNCH(add_parts, blocks_for(n), THREADS, sums, parts, more, y, n);
    st = launched(ctx, "reduce_to");
    gpu_free(ctx, sums);
    return st;
}

/* y = (or += if add) x summed over the dimensions along which y was broadcast */
tl_status gpu_reduce_to(tl_ctx *ctx, const tl_args *a)
{
    const tl_tensor *x = a->reduce_to.x;
    tl_tensor       *y = a->reduce_to.y;
    if (y->len == 0) return TL_OK;
    int more = a->reduce_to.add != 0;
    if (x->len == 0) return more ? TL_OK : tl_tensor_fill(y, 0);
    stretch s = stretch_of(x, y);
    s.across = s.across && s.count >= THREADS / 2;
    int64_t parts = parts_of(&s, y->len, s.across ? THREADS : 1);
    if (s.across || parts > 1) return sum_many(ctx, &s, more, F32(x), F32(y), y->len, parts);
    LAUNCH(sum_few, blocks_for(y->len), THREADS, s, more, F32(x), F32(y), y->len);
    return launched(ctx, "reduce_to");
}

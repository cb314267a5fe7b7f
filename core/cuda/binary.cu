/* binary.cu - computes arithmetic of two tensors with broadcasting, and the sum that is its
** adjoint. */
#include "cuda/cuda.cuh"

extern "C" {
#include "ops/walk.h"
}

static __device__ float binary_gpu_apply(int kind, float a, float b)
{
    switch (kind) {
    case TL_ADD: return a + b;
    case TL_SUB: return a - b;
    case TL_MUL: return a * b;
    case TL_DIV: return a / b;
    case TL_MAX: return a >= b || a != a ? a : b;
    case TL_MIN: return a <= b || a != a ? a : b;
    }
    return a;
}

/* The offsets of element i of the walk in both operands. */
static __device__ void places(const tl_walk &w, int64_t i, int64_t *a, int64_t *b)
{
    int64_t n = w.dims[w.ndim - 1];
    tl_walk_offsets(&w, i / n, a, b);
    *a += i % n * w.a[w.ndim - 1];
    *b += i % n * w.b[w.ndim - 1];
}

static __global__ void even_each(int kind, const float *a, int64_t sa, const float *b, int64_t sb,
                                 float *y, int64_t n)
{
    EACH(i, n) y[i] = binary_gpu_apply(kind, a[i * sa], b[i * sb]);
}

static __global__ void walked_each(int kind, tl_walk w, const float *a, const float *b, float *y,
                                   int64_t n)
{
    EACH(i, n)
    {
        int64_t p, q;
        places(w, i, &p, &q);
        y[i] = binary_gpu_apply(kind, a[p], b[q]);
    }
}

/* out[0] = in[0] op in[1], op = i[0]; out's shape is the broadcast one */
static tl_status binary(tl_ctx *ctx, const tl_args *a)
{
    const tl_tensor *y = a->out[0];
    int64_t          n = y->len;
    if (n == 0) return TL_OK;
    tl_walk w = tl_walk_of(a->in[0], a->in[1], y->ndim, y->dims);
    if (w.ndim == 1)
        LAUNCH(even_each, blocks_for(n), THREADS, (int)a->i[0], F32(a->in[0]), w.a[0],
               F32(a->in[1]), w.b[0], F32(y), n);
    else
        LAUNCH(walked_each, blocks_for(n), THREADS, (int)a->i[0], w, F32(a->in[0]), F32(a->in[1]),
               F32(y), n);
    return launched(ctx, "binary");
}

static __global__ void pick_each(tl_walk w, const float *a, const float *y, const float *dy,
                                 float *da, int64_t n)
{
    EACH(i, n)
    {
        int64_t p, q;
        places(w, i, &p, &q);
        da[i] = a[p] == y[i] || a[p] != a[p] ? dy[i] : 0.0f;
    }
}

/* The gradient of a maximum or minimum: out[0] = in[2] where the result in[1] equals in[0],
** broadcast, or in[0] is NaN, and 0 elsewhere. */
static tl_status pick(tl_ctx *ctx, const tl_args *a)
{
    const tl_tensor *y = a->in[1];
    if (y->len == 0) return TL_OK;
    tl_walk w = tl_walk_of(a->in[0], y, y->ndim, y->dims);
    LAUNCH(pick_each, blocks_for(y->len), THREADS, w, F32(a->in[0]), F32(y), F32(a->in[2]),
           F32(a->out[0]), y->len);
    return launched(ctx, "pick");
}

/* ---- The adjoint of a broadcast -------------------------------------------------------------- */

/* Separates the dimensions of x into those that y has and those over which y was broadcast. */
typedef struct stretch {
    int     kept, summed;
    int64_t kept_dims[TL_MAXDIMS], kept_steps[TL_MAXDIMS];
    int64_t summed_dims[TL_MAXDIMS], summed_steps[TL_MAXDIMS];
    int64_t count; /* elements summed into one */
} stretch;

static stretch stretch_of(const tl_tensor *x, const tl_tensor *y)
{
    stretch s;
    int64_t step = x->len;
    s.kept = s.summed = 0;
    s.count = 1;
    for (int i = 0; i < x->ndim; i++) {
        int     j = i - x->ndim + y->ndim;
        int64_t size = x->dims[i];
        step /= size;
        if (size == 1) continue;
        if (j >= 0 && y->dims[j] == size) {
            s.kept_dims[s.kept] = size;
            s.kept_steps[s.kept++] = step;
        } else {
            s.summed_dims[s.summed] = size;
            s.summed_steps[s.summed++] = step;
            s.count *= size;
        }
    }
    return s;
}

static __device__ int64_t place(int ndim, const int64_t *dims, const int64_t *steps, int64_t i)
{
    int64_t at = 0;
    for (int k = ndim - 1; k >= 0; k--) {
        at += i % dims[k] * steps[k];
        i /= dims[k];
    }
    return at;
}

/* Each block sums one element of y; in sum_few each thread does, for few terms. */
static __global__ void sum_many(stretch s, int more, const float *x, float *y)
{
    __shared__ double scratch[THREADS / 32];
    double sum = 0;
    int64_t base = place(s.kept, s.kept_dims, s.kept_steps, blockIdx.x);
    for (int64_t i = threadIdx.x; i < s.count; i += THREADS)
        sum += (double)x[base + place(s.summed, s.summed_dims, s.summed_steps, i)];
    sum = block_reduce(sum, add(), scratch);
    if (threadIdx.x == 0) y[blockIdx.x] = more ? y[blockIdx.x] + (float)sum : (float)sum;
}

static __global__ void sum_few(stretch s, int more, const float *x, float *y, int64_t n)
{
    EACH(i, n)
    {
        double sum = 0;
        int64_t base = place(s.kept, s.kept_dims, s.kept_steps, i);
        for (int64_t k = 0; k < s.count; k++)
            sum += (double)x[base + place(s.summed, s.summed_dims, s.summed_steps, k)];
        y[i] = more ? y[i] + (float)sum : (float)sum;
    }
}

/* out[0] = (or += if i[0]) in[0] summed over the dimensions along which out[0] was broadcast.
** Neighbouring threads compute neighbouring elements of y if there are enough of them. */
static tl_status reduce_to(tl_ctx *ctx, const tl_args *a)
{
    const tl_tensor *x = a->in[0];
    tl_tensor       *y = a->out[0];
    if (y->len == 0) return TL_OK;
    int more = a->i[0] != 0;
    if (x->len == 0) return more ? TL_OK : tl_tensor_fill(y, 0);
    stretch s = stretch_of(x, y);
    if (y->len < 1024 && s.count > 256)
        LAUNCH_SYNC(sum_many, y->len, THREADS, s, more, F32(x), F32(y));
    else
        LAUNCH(sum_few, blocks_for(y->len), THREADS, s, more, F32(x), F32(y), y->len);
    return launched(ctx, "reduce_to");
}

const tl_kernel_row gpu_binary[] = {
    {TL_OP_binary, binary}, {TL_OP_pick, pick}, {TL_OP_reduce_to, reduce_to}, {}};

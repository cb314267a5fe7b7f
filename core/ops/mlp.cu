/* mlp.cu - computes the network of linear layers, norms and activations of mlp.c, such as the
** relative position encoder of TNN, Section 3.3. For the layers l = 0, 1, .. of each row
**     a_0 = x     a_l = act(norm_l(y_(l-1)))     y_l = a_l W_l' + bias_l
** where a shortcut adds y_(l-1) to y_l, and row r of the last y is multiplied by scale_r.
**
** The CPU takes a block of rows through all layers while it stays in the cache. On a GPU that would
** need a matrix product inside a kernel. Instead each layer is one product of the library for all
** rows, and one kernel does everything between two products. `ascend` prepares a product: it writes
** a_l, and also y_l = bias_l plus the shortcut, to which the product is added, so that no pass over
** y follows it. The scale is applied to a_l and the bias instead of y_l for the same reason.
**
** A row has few numbers, 64 in the published language models, and its norm needs their sums. So a
** warp has a row: its lanes read adjacent numbers and sum them by shuffles, without shared memory
** and without waiting for other warps. A block has WARPS rows.
**
** For the gradient the forward pass stores the outputs y_l of all layers but the last (j->states),
** from which `descend` computes norms and activations again: so a_l takes memory for one layer
** only, and the statistics of the norms take none between the passes. */
#include "ops/unary.cuh"

extern "C" {
#include "ops/mlp.h"
#include "ops/norm.h"
}

#define WARPS (THREADS / 32) /* rows of a block */

/* ---- A row ----------------------------------------------------------------------------------- */

typedef struct between { /* act(norm(x)) between two linear layers, for rows of n numbers */
    tl_norm_kind  norm;
    tl_unary_kind act;
    float         eps;
    int64_t       rows, n;
    const float  *weight, *bias; /* of the norm, or NULL */
    const float  *scale;         /* of each row, or NULL for 1 */
} between;

typedef struct statistics { /* z = (x - mean) s; q as in norm.c */
    float mean, s, q;
} statistics;

static __device__ double warp_sum(double value)
{
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

/* Returns the statistics of a row to all lanes of its warp. In float64 the squares of float32
** numbers neither overflow nor vanish. The mean is subtracted before squaring, in a second pass
** over the row, since in a difference of two large sums digits would cancel. */
static __device__ statistics measure(const between &b, const float *x, int lane)
{
    statistics t = {0, 1, 1};
    double     sum = 0, square = 0;
    if (b.norm == TL_NORM_NONE) return t;
    for (int64_t i = lane; b.norm == TL_NORM_LAYER && i < b.n; i += 32) sum += (double)x[i];
    t.mean = (float)(warp_sum(sum) / (double)b.n);
    for (int64_t i = lane; i < b.n; i += 32) {
        double off = (double)x[i] - (double)t.mean;
        square += off * off;
    }
    tl_norm_statistics(b.norm, warp_sum(square) / (double)b.n, (double)b.eps, &t.s, &t.q);
    return t;
}

static __device__ float z_of(const statistics &t, float x) { return (x - t.mean) * t.s; }

static __device__ float normed(const between &b, const statistics &t, float x, int64_t i)
{
    return z_of(t, x) * (b.weight ? b.weight[i] : 1) + (b.bias ? b.bias[i] : 0);
}

/* ---- Passes ---------------------------------------------------------------------------------- */

/* a = scale act(norm(x)) unless a is NULL, and unless y is NULL, y [rows,outputs] = scale bias,
** plus x if more is set: the product of the layer is then added to y. A warp whose row does not
** exist returns as a whole, so that no shuffle waits for a lane that is gone. */
static __global__ void ascend(between b, const float *x, const float *bias, int more,
                              int64_t outputs, float *a, float *y)
{
    int     lane = threadIdx.x % 32;
    int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (r >= b.rows) return;
    const float *row = x + r * b.n;
    float f = b.scale ? b.scale[r] : 1;
    if (a) {
        statistics t = measure(b, row, lane);
        for (int64_t i = lane; i < b.n; i += 32)
            a[r * b.n + i] = f * unary_value(b.act, normed(b, t, row[i], i));
    }
    for (int64_t i = lane; y && i < outputs; i += 32)
        y[r * outputs + i] = (bias ? f * bias[i] : 0) + (more ? row[i] : 0);
}

/* Turns da from the gradient of a into the gradient of x, plus dy unless dy is NULL: with u =
** norm(x), z as in norm.c and g = scale da act'(u) weight,
**     dx = s (g - mean g - q z mean(g z)) + dy     (the term mean g for layer norm only)
** The means are known only after a pass over the row, which leaves g in da for the second one; each
** lane reads back only what it wrote itself. The outputs that are not NULL are recomputed a, the
** gradient du of u, and stats [rows,2], mean and s, from which sum_rows computes z again. */
static __global__ void descend(between b, const float *x, const float *dy, float *da, float *a,
                               float *du, float *stats)
{
    int     lane = threadIdx.x % 32;
    int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, at = r * b.n;
    if (r >= b.rows) return;
    const float *row = x + at;
    float        f = b.scale ? b.scale[r] : 1;
    double       sum = 0, dot = 0;
    statistics   t = measure(b, row, lane);
    for (int64_t i = lane; i < b.n; i += 32) {
        float u = normed(b, t, row[i], i), d = f * da[at + i] * unary_slope(b.act, u);
        float g = d * (b.weight ? b.weight[i] : 1);
        if (a) a[at + i] = f * unary_value(b.act, u);
        if (du) du[at + i] = d;
        da[at + i] = g;
        sum += (double)g;
        dot += (double)(g * z_of(t, row[i]));
    }
    if (b.norm != TL_NORM_NONE) {
        sum = b.norm == TL_NORM_LAYER ? warp_sum(sum) / (double)b.n : 0;
        dot = warp_sum(dot) * (double)t.q / (double)b.n;
    } else {
        sum = dot = 0;
    }
    for (int64_t i = lane; i < b.n; i += 32) {
        float d = t.s * (da[at + i] - (float)sum - z_of(t, row[i]) * (float)dot);
        da[at + i] = d + (dy ? dy[at + i] : 0);
    }
    if (stats && lane == 0) {
        stats[2 * r] = t.mean;
        stats[2 * r + 1] = t.s;
    }
}

#define LAUNCH_ROWS(kernel, rows, ...) \
    LAUNCH_SYNC(kernel, ((rows) + WARPS - 1) / WARPS, THREADS, __VA_ARGS__)

/* ---- Sums over rows -------------------------------------------------------------------------- */

#define PARTS 64 /* of the rows: n columns alone would be too few threads for a GPU */

/* sums [PARTS,n] = partial sums of d over the rows, each term times the factor f of its row and
** times z of its x, unless these are NULL. A thread sums a column of one part, in float64, so that
** threads of a warp read adjacent numbers. The parts depend on the rows alone and add_parts adds
** them in order, so that the result repeats exactly. */
static __global__ void sum_rows(const float *d, const float *f, const float *x, const float *stats,
                                int64_t rows, int64_t n, double *sums)
{
    EACH(e, PARTS *n)
    {
        int64_t p = e / n, i = e % n;
        double  sum = 0;
        for (int64_t r = rows * p / PARTS; r < rows * (p + 1) / PARTS; r++) {
            float z = x ? (x[r * n + i] - stats[2 * r]) * stats[2 * r + 1] : 1;
            sum += (double)d[r * n + i] * (double)(f ? f[r] * z : z);
        }
        sums[e] = sum;
    }
}

static __global__ void add_parts(const double *sums, int64_t n, float *to)
{
    EACH(i, n)
    {
        double sum = 0;
        for (int p = 0; p < PARTS; p++) sum += sums[p * n + i];
        to[i] = (float)sum;
    }
}

static tl_status add_rows(tl_ctx *ctx, const float *d, const float *f, const float *x,
                          const float *stats, int64_t rows, int64_t n, float *to)
{
    double   *sums;
    tl_status st = gpu_alloc(ctx, (size_t)(PARTS * n) * sizeof *sums, (void **)&sums);
    if (st != TL_OK) return st;
    LAUNCH(sum_rows, blocks_for(PARTS * n), THREADS, d, f, x, stats, rows, n, sums);
    LAUNCH(add_parts, blocks_for(n), THREADS, sums, n, to);
    gpu_free(ctx, sums);
    return launched(ctx, "mlp_grad");
}

/* ---- Layers ---------------------------------------------------------------------------------- */

static int is_last(const mlp *j, int l) { return l == j->count - 1; }
static int shortcut(const mlp *j, int l) { return j->residual && l > 0 && !is_last(j, l); }

/* A parameter of layer l, or NULL if it was not given. */
static const float *given(const mlp *j, int l, int k)
{
    const float *p = j->layers[l].param[k];
    return p == j->zeros || p == j->ones ? NULL : p;
}

static between before(const mlp *j, int l)
{
    const mlp_layer *p = &j->layers[l];
    return between{p->norm, j->act, p->eps, j->rows, p->inputs, given(j, l, MLP_NORM_WEIGHT),
                   given(j, l, MLP_NORM_BIAS), is_last(j, l) ? j->scale : NULL};
}

/* y = linear layer l of act(norm(x)), which a receives, or of x if l is the first layer. Without a
** bias and a shortcut nothing is written to y first, and the product overwrites it. */
static tl_status forward_layer(tl_ctx *ctx, const mlp *j, int l, const float *x, float *a, float *y)
{
    const mlp_layer *p = &j->layers[l];
    const float     *bias = given(j, l, MLP_BIAS);
    int              ready = bias || shortcut(j, l);
    if (l > 0 || ready)
        LAUNCH_ROWS(ascend, j->rows, before(j, l), x, bias, shortcut(j, l), p->outputs,
                    l > 0 ? a : NULL, ready ? y : NULL);
    tl_status st = launched(ctx, "mlp");
    if (st != TL_OK) return st;
    return gpu_gemm(ctx, 0, 1, j->rows, p->outputs, p->inputs, l > 0 ? a : x, p->param[MLP_WEIGHT],
                    ready ? 1.0f : 0.0f, y, 1);
}

/* p: the network. Without states, layers write y to two scratch buffers
** in turns, since a shortcut reads the previous y; the third buffer holds a. */
tl_status gpu_mlp(tl_ctx *ctx, const tl_args *args)
{
    const mlp *j = (const mlp *)args->p;
    int64_t    each = j->rows * j->width;
    float     *scratch, *y = NULL;
    tl_status  st = gpu_alloc(ctx, (size_t)(3 * each) * 4, (void **)&scratch);
    if (st != TL_OK) return st;
    const float *x = j->x;
    for (int l = 0; l < j->count && st == TL_OK; l++, x = y) {
        y = j->states ? j->states + j->rows * j->layers[l].before : scratch + (1 + l % 2) * each;
        if (is_last(j, l)) y = j->y;
        st = forward_layer(ctx, j, l, x, scratch, y);
    }
    gpu_free(ctx, scratch);
    return st;
}

/* The gradients of a linear layer's parameters; a is its input. In the last layer a contains the
** scale (descend), which the bias's gradient therefore needs as a factor of its own. */
static tl_status map_sums(tl_ctx *ctx, const mlp *j, int l, const float *dy, const float *a)
{
    const mlp_layer *p = &j->layers[l];
    tl_status        st = TL_OK;
    if (p->grad[MLP_WEIGHT])
        st = gpu_gemm(ctx, 1, 0, p->outputs, p->inputs, j->rows, dy, a, 0, p->grad[MLP_WEIGHT], 1);
    if (st == TL_OK && p->grad[MLP_BIAS])
        st = add_rows(ctx, dy, is_last(j, l) ? j->scale : NULL, NULL, NULL, j->rows, p->outputs,
                      p->grad[MLP_BIAS]);
    return st;
}

typedef struct buffers { /* scratch: [rows,width], but stats [rows,2] */
    float *a, *du, *stats, *da[2];
} buffers;

/* da = the gradient of layer l's input, y_(l-1), from dy, the gradient of its output: the product
** gives the gradient of a_l, which descend takes back through activation and norm. a_l is
** recomputed only if the gradient of the weight needs it, du and stats only if those of the norm's
** parameters do. */
static tl_status backward_layer(tl_ctx *ctx, const mlp *j, int l, const buffers *m,
                                const float *dy, float *da)
{
    const mlp_layer *p = &j->layers[l];
    const float     *x = j->states + j->rows * j->layers[l - 1].before;
    int              sums = p->grad[MLP_NORM_WEIGHT] || p->grad[MLP_NORM_BIAS];
    tl_status st = gpu_gemm(ctx, 0, 0, j->rows, p->inputs, p->outputs, dy, p->param[MLP_WEIGHT], 0,
                            da, 1);
    if (st != TL_OK) return st;
    LAUNCH_ROWS(descend, j->rows, before(j, l), x, shortcut(j, l) ? dy : NULL, da,
                p->grad[MLP_WEIGHT] ? m->a : NULL, sums ? m->du : NULL, sums ? m->stats : NULL);
    st = launched(ctx, "mlp_grad");
    if (st == TL_OK) st = map_sums(ctx, j, l, dy, m->a);
    if (st == TL_OK && p->grad[MLP_NORM_WEIGHT])
        st = add_rows(ctx, m->du, NULL, x, m->stats, j->rows, p->inputs, p->grad[MLP_NORM_WEIGHT]);
    if (st == TL_OK && p->grad[MLP_NORM_BIAS])
        st = add_rows(ctx, m->du, NULL, NULL, NULL, j->rows, p->inputs, p->grad[MLP_NORM_BIAS]);
    return st;
}

/* p: the network, with pointers to its gradients. Layers write their gradient to two buffers in
** turns, since each reads the gradient of the layer above. */
tl_status gpu_mlp_grad(tl_ctx *ctx, const tl_args *args)
{
    const mlp       *j = (const mlp *)args->p;
    const mlp_layer *p = &j->layers[0];
    int64_t          each = j->rows * j->width;
    float           *block;
    const float     *dy = j->dy;
    tl_status        st = gpu_alloc(ctx, (size_t)(4 * each + 2 * j->rows) * 4, (void **)&block);
    if (st != TL_OK) return st;
    buffers m = {block, block + each, block + 4 * each, {block + 2 * each, block + 3 * each}};
    for (int l = j->count - 1; l > 0 && st == TL_OK; l--) {
        st = backward_layer(ctx, j, l, &m, dy, m.da[l % 2]);
        dy = m.da[l % 2];
    }
    if (st == TL_OK) st = map_sums(ctx, j, 0, dy, j->x);
    if (st == TL_OK && j->dx)
        st = gpu_gemm(ctx, 0, 0, j->rows, p->inputs, p->outputs, dy, p->param[MLP_WEIGHT], 0,
                      j->dx, 1);
    gpu_free(ctx, block);
    return st;
}

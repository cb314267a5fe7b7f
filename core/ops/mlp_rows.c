/* mlp_rows.c - computes the network of mlp.c for blocks of rows, forward and backward.
**
** The product of a block of MLP_ROWS rows with a layer is cut into panels so small that OpenBLAS
** multiplies them without packing, at nearly peak speed. It can do so for a b and a^T b but not for
** a b^T, so the forward pass uses transposed weights. */
#include <math.h>
#include <string.h>

#include "ops/mlp.h"
#include "ops/norm.h"
#include "ops/rows.h"
#include "ops/unary.h"
#include "products/gemm.h"

#define LANES 16
#define PANEL (1 << 19) /* m n k of a product: OpenBLAS packs from about 100^3 on */

/* The optional scale multiplies the rows of the last layer's output. */
static int is_last(const mlp *j, int l) { return l == j->count - 1; }
static int shortcut(const mlp *j, int l) { return j->residual && l > 0 && !is_last(j, l); }

static float *scratch(const mlp *j, int thread, int i)
{
    return j->scratch + ((int64_t)thread * MLP_SCRATCH + i) * MLP_ROWS * j->width;
}

/* The output of layer l for the rows from `first` on. If no states are saved, all layers share one
** scratch buffer. */
static float *state(const mlp *j, int l, int64_t first, int thread)
{
    const mlp_layer *p = &j->layers[l];
    if (!j->states) return scratch(j, thread, 3);
    return j->states + j->rows * p->before + first * p->outputs;
}

/* ---- Products, of m rows --------------------------------------------------------------------- */

static int64_t panel(int64_t inputs)
{
    int64_t columns = PANEL / (MLP_ROWS * inputs) / 16 * 16;
    return columns < 16 ? 16 : columns;
}

/* y += scale bias in some columns; a NULL scale means 1 */
static void add_bias(const mlp_layer *p, int64_t m, int64_t first, int64_t columns,
                     const float *scale, float *y)
{
    const float *restrict bias = p->param[MLP_BIAS] + first;
    for (int64_t r = 0; r < m; r++) {
        float *restrict row = y + r * p->outputs + first;
        float s = scale ? scale[r] : 1;
        for (int64_t i = 0; i < columns; i++) row[i] += s * bias[i];
    }
}

/* y = a w^T + scale bias, or adds it to y if add is set */
static void mlp_rows_apply(const mlp_layer *p, int64_t m, const float *a, int add,
                           const float *scale, float *y)
{
    int64_t k = p->inputs, n = p->outputs, step = panel(k);
    for (int64_t c = 0; c < n; c += step) {
        int64_t    columns = n - c < step ? n - c : step;
        tl_product product = {.m = m, .n = columns, .k = k, .ldb = n, .ldc = n, .alpha = 1,
                              .beta = add ? 1 : 0};
        tl_gemm_small(&product, a, p->transposed + c, y + c);
        add_bias(p, m, c, columns, scale, y);
    }
}

/* da = dy w */
static void apply_adjoint(const mlp_layer *p, int64_t m, const float *dy, float *da)
{
    int64_t k = p->inputs, n = p->outputs, step = panel(k);
    for (int64_t c = 0; c < n; c += step) {
        tl_product product = {.m = m, .n = k, .k = n - c < step ? n - c : step, .lda = n,
                              .alpha = 1, .beta = c > 0};
        tl_gemm_small(&product, dy + c, p->param[MLP_WEIGHT] + c * k, da);
    }
}

/* dw += dy^T a */
static void add_outer(const mlp_layer *p, int64_t m, const float *dy, const float *a, float *dw)
{
    int64_t k = p->inputs, n = p->outputs, step = panel(k);
    for (int64_t c = 0; c < n; c += step) {
        tl_product product = {.m = n - c < step ? n - c : step, .n = k, .k = m, .lda = n,
                              .alpha = 1, .beta = 1, .trans_a = 1};
        tl_gemm_small(&product, dy + c, a, dw + c * k);
    }
}

/* sum += the rows of x, each times its scale; a NULL scale means 1 */
static void add_rows(int64_t m, int64_t n, const float *x, const float *scale, float *restrict sum)
{
    for (int64_t c = 0; c < n; c += LANES) {
        int64_t columns = n - c < LANES ? n - c : LANES;
        double  part[LANES] = {0};
        for (int64_t r = 0; r < m; r++) {
            double s = scale ? (double)scale[r] : 1;
            for (int64_t i = 0; i < columns; i++) part[i] += s * (double)x[r * n + c + i];
        }
        for (int64_t i = 0; i < columns; i++) sum[c + i] += (float)part[i];
    }
}

static void scale_rows(int64_t m, int64_t n, const float *scale, float *x)
{
    for (int64_t r = 0; r < m; r++)
        for (int64_t i = 0; i < n; i++) x[r * n + i] *= scale[r];
}

/* ---- Norm and activation (the formulas are norm.c's) ----------------------------------------- */

/* For each row, z = (x - mean) s, and q as in norm.c. */
typedef struct statistics {
    float mean[MLP_ROWS], s[MLP_ROWS], q[MLP_ROWS];
} statistics;

/* Sums along a row use explicit vector lanes, since compilers add the lanes of a reduction one by
** one. */
typedef float lanes __attribute__((vector_size(4 * LANES), may_alias, aligned(4)));

static inline float fold(const lanes *sum)
{
    const float *lane = (const float *)sum;
    float        half[LANES / 2], quarter[LANES / 4];
    for (int l = 0; l < LANES / 2; l++) half[l] = lane[l] + lane[l + LANES / 2];
    for (int l = 0; l < LANES / 4; l++) quarter[l] = half[l] + half[l + LANES / 4];
    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

/* The mean of (x - mean)^2. */
static float mean_square(const float *x, int64_t n, float mean)
{
    lanes   sum = {0};
    float   rest = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes z = *(const lanes *)(x + i) - mean;
        sum += z * z;
    }
    for (; i < n; i++) rest += (x[i] - mean) * (x[i] - mean);
    return (fold(&sum) + rest) / (float)n;
}

/* Computes s and q of one row in float64, where the squares might overflow or underflow in float32,
** and for a row of zeros, whose s and q are 0. */
static void measure_wide(const mlp_layer *p, const float *x, float mean, float *s, float *q)
{
    double square = 0;
    for (int64_t i = 0; i < p->inputs; i++)
        square += ((double)x[i] - mean) * ((double)x[i] - mean);
    tl_norm_statistics(p->norm, square / (double)p->inputs, p->eps, s, q);
}

static void measure(const mlp_layer *p, int64_t m, const float *x, statistics *t)
{
    int64_t  n = p->inputs;
    uint64_t wide = 0; /* a bit for each row that needs float64 */
    float    eps = p->eps, *s = t->s, *q = t->q;
    for (int64_t r = 0; r < m; r++) {
        t->mean[r] = p->norm == TL_NORM_LAYER ? (float)(row_sum(x + r * n, n) / (double)n) : 0;
        s[r] = p->norm == TL_NORM_NONE ? 1 : mean_square(x + r * n, n, t->mean[r]);
        if (!(s[r] > 1e-30f && s[r] < 1e30f)) wide |= (uint64_t)1 << r;
        q[r] = 1;
    }
    if (p->norm == TL_NORM_NONE) return;
    for (int64_t r = 0; r < m; r++) {
        float root = sqrtf(p->norm == TL_NORM_SIMPLE ? s[r] : s[r] + eps);
        s[r] = p->norm == TL_NORM_SIMPLE ? 1 / (root + eps) : 1 / root;
        if (p->norm == TL_NORM_SIMPLE) q[r] = 1 + eps / root;
    }
    for (int64_t r = 0; wide != 0 && r < m; r++)
        if (wide >> r & 1) measure_wide(p, x + r * n, t->mean[r], &s[r], &q[r]);
}

INLINE void value_rows(tl_unary_kind act, const mlp_layer *p, int64_t m, const float *x,
                       const statistics *t, float *restrict a)
{
    const float *weight = p->param[MLP_NORM_WEIGHT], *bias = p->param[MLP_NORM_BIAS];
    int64_t      n = p->inputs;
    for (int64_t r = 0; r < m; r++) {
        float mean = t->mean[r], s = t->s[r];
        for (int64_t i = 0; i < n; i++)
            a[r * n + i] = unary_value(act, (x[r * n + i] - mean) * s * weight[i] + bias[i]);
    }
}

INLINE void slope_rows(tl_unary_kind act, const mlp_layer *p, int64_t m, const float *x,
                       const statistics *t, float *restrict da)
{
    const float *weight = p->param[MLP_NORM_WEIGHT], *bias = p->param[MLP_NORM_BIAS];
    int64_t      n = p->inputs;
    for (int64_t r = 0; r < m; r++) {
        float mean = t->mean[r], s = t->s[r];
        for (int64_t i = 0; i < n; i++)
            da[r * n + i] *= unary_slope(act, (x[r * n + i] - mean) * s * weight[i] + bias[i]);
    }
}

/* a = act(norm(x)) */
static void activate(const mlp *j, const mlp_layer *p, int64_t m, const float *x, statistics *t,
                     float *a)
{
    measure(p, m, x, t);
#define CASE(name, text) \
    case TL_UNARY_##name: value_rows(TL_UNARY_##name, p, m, x, t, a); break;
    TL_EVERY_KIND(j->act, CASE)
#undef CASE
}

/* Sums over a row of g = d weight and of g z. */
static inline void sums_of(const float *d, const float *weight, const float *x, int64_t n,
                           float mean, float s, float *out_g, float *out_gz)
{
    lanes   sum = {0}, dot = {0};
    float   rest = 0, rest_dot = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes g = *(const lanes *)(d + i) * *(const lanes *)(weight + i);
        sum += g;
        dot += g * ((*(const lanes *)(x + i) - mean) * s);
    }
    for (; i < n; i++) {
        rest += d[i] * weight[i];
        rest_dot += d[i] * weight[i] * ((x[i] - mean) * s);
    }
    *out_g = fold(&sum) + rest;
    *out_gz = fold(&dot) + rest_dot;
}

/* Turns da from the gradient of norm(x) into the gradient of x. */
static void norm_adjoint(const mlp_layer *p, int64_t m, const float *x, const statistics *t,
                         float *da)
{
    const float *restrict weight = p->param[MLP_NORM_WEIGHT];
    int64_t n = p->inputs;
    for (int64_t r = 0; r < m; r++) {
        const float *restrict xr = x + r * n;
        float *restrict d = da + r * n;
        float mean = t->mean[r], s = t->s[r], sum, dot;
        if (p->norm == TL_NORM_NONE) {
            for (int64_t i = 0; i < n; i++) d[i] *= weight[i];
            continue;
        }
        sums_of(d, weight, xr, n, mean, s, &sum, &dot);
        sum = p->norm == TL_NORM_LAYER ? sum / (float)n : 0;
        dot *= t->q[r] / (float)n;
        for (int64_t i = 0; i < n; i++)
            d[i] = s * (d[i] * weight[i] - sum - (xr[i] - mean) * s * dot);
    }
}

/* sum += z du over the rows: the gradient of the norm's weight */
static void add_normed(const mlp_layer *p, int64_t m, const float *x, const statistics *t,
                       const float *du, float *restrict sum)
{
    int64_t n = p->inputs;
    for (int64_t r = 0; r < m; r++)
        for (int64_t i = 0; i < n; i++)
            sum[i] += du[r * n + i] * ((x[r * n + i] - t->mean[r]) * t->s[r]);
}

/* Turns da from the gradient of act(norm(x)) into the gradient of x, and adds to the gradients of
** the norm's parameters. */
static void activate_adjoint(const mlp *j, const mlp_layer *p, int64_t m, const float *x,
                             const statistics *t, float *da, float *sums)
{
#define CASE(name, text) \
    case TL_UNARY_##name: slope_rows(TL_UNARY_##name, p, m, x, t, da); break;
    TL_EVERY_KIND(j->act, CASE)
#undef CASE
    if (p->grad[MLP_NORM_WEIGHT]) add_normed(p, m, x, t, da, sums + p->at[MLP_NORM_WEIGHT]);
    if (p->grad[MLP_NORM_BIAS]) add_rows(m, p->inputs, da, NULL, sums + p->at[MLP_NORM_BIAS]);
    norm_adjoint(p, m, x, t, da);
}

/* ---- A block of rows ------------------------------------------------------------------------- */

static void forward_block(const mlp *j, int64_t first, int64_t m, int thread)
{
    const float *a = j->x + first * j->layers[0].inputs, *x = NULL;
    for (int l = 0; l < j->count; l++) {
        const mlp_layer *p = &j->layers[l];
        const float *scale = is_last(j, l) && j->scale ? j->scale + first : NULL;
        float *y = is_last(j, l) ? j->y + first * p->outputs : state(j, l, first, thread);
        statistics t;
        if (l > 0) {
            float *to = scratch(j, thread, 0);
            activate(j, p, m, x, &t, to);
            if (scale) scale_rows(m, p->inputs, scale, to);
            a = to;
        }
        if (shortcut(j, l) && y != x) memcpy(y, x, (size_t)(m * p->outputs) * sizeof *y);
        mlp_rows_apply(p, m, a, shortcut(j, l), scale, y);
        x = y;
    }
}

/* Adds to the gradients of a linear layer's parameters; a is its input. */
static void map_sums(const mlp_layer *p, int64_t m, const float *dy, const float *a,
                     const float *scale, float *sums)
{
    if (p->grad[MLP_WEIGHT]) add_outer(p, m, dy, a, sums + p->at[MLP_WEIGHT]);
    if (p->grad[MLP_BIAS]) add_rows(m, p->outputs, dy, scale, sums + p->at[MLP_BIAS]);
}

static void backward_block(const mlp *j, int64_t first, int64_t m, int thread)
{
    float       *a = scratch(j, thread, 0), *sums = j->sums + thread * j->total;
    const float *dy = j->dy + first * j->layers[j->count - 1].outputs;
    for (int l = j->count - 1; l > 0; l--) {
        const mlp_layer *p = &j->layers[l];
        const float *scale = is_last(j, l) && j->scale ? j->scale + first : NULL;
        const float *x = state(j, l - 1, first, thread);
        float       *da = scratch(j, thread, 1 + l % 2);
        statistics   t;
        activate(j, p, m, x, &t, a);
        if (scale) scale_rows(m, p->inputs, scale, a);
        map_sums(p, m, dy, a, scale, sums);
        apply_adjoint(p, m, dy, da);
        if (scale) scale_rows(m, p->inputs, scale, da);
        activate_adjoint(j, p, m, x, &t, da, sums);
        for (int64_t i = 0; shortcut(j, l) && i < m * p->inputs; i++) da[i] += dy[i];
        dy = da;
    }
    const mlp_layer *p = &j->layers[0];
    map_sums(p, m, dy, j->x + first * p->inputs, NULL, sums);
    if (j->dx) apply_adjoint(p, m, dy, j->dx + first * p->inputs);
}

/* ---- Parts of the rows ----------------------------------------------------------------------- */

/* Calls run for blocks of about the same size. */
static void each_block(const mlp *j, int64_t begin, int64_t end, int thread,
                       void (*run)(const mlp *j, int64_t first, int64_t m, int thread))
{
    int64_t n = end - begin, blocks = (n + MLP_ROWS - 1) / MLP_ROWS;
    for (int64_t i = 0; i < blocks; i++) {
        int64_t from = n * i / blocks, to = n * (i + 1) / blocks;
        run(j, begin + from, to - from, thread);
    }
}

void tl_mlp_forward(void *user, int64_t begin, int64_t end, int thread)
{
    each_block(user, begin, end, thread, forward_block);
}

void tl_mlp_backward(void *user, int64_t begin, int64_t end, int thread)
{
    const mlp *j = user;
    memset(j->sums + thread * j->total, 0, (size_t)j->total * sizeof *j->sums);
    j->ran[thread] = 1;
    each_block(j, begin, end, thread, backward_block);
}

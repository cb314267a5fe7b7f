/* ski.cu - computes the backend ski on a GPU: T = S + W A W' in each channel, S by direct sums over
** its taps, A by direct sums if it is small and else by transforms. Options and W are the same as
** in the CPU backend. `masking` has no effect: it chooses between two orders of the same sums, and
** the GPU uses a third. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runs.cuh"
#include "weights.c" /* compiled here too, as C++ */

#ifdef TL_EMULATE
#define DIRECT 16 /* so small that tests cover transforms */
#else
#define DIRECT 128 /* inducing points; with more, transforms are faster */
#endif

typedef struct plan {
    tl_ctx          *ctx;
    int64_t          points, taps, origin;
    int64_t          lags, zero; /* of A */
    int              causal, low, mean; /* whether T has W A W'; whether k(0) is a mean */
    ski_mesh         mesh;
    gpu_convolution  transforms; /* that apply A */
} plan;

/* ---- Plan ------------------------------------------------------------------------------------ */

static void ski_gpu_release(void *state)
{
    plan *s = (plan *)state;
    gpu_free(s->ctx, s->mesh.start);
    gpu_free(s->ctx, s->mesh.first);
    gpu_free(s->ctx, s->mesh.weight);
    gpu_plan_free(s);
}

static tl_status ski_gpu_upload(tl_ctx *ctx, const void *from, size_t bytes, void **out)
{
    tl_status st = gpu_alloc(ctx, bytes, out);
    return st == TL_OK ? ctx->engine->upload(ctx, *out, from, bytes) : st;
}

/* Computes the rows of W, reduced to at most r columns, since three inducing points use only three
** of four, and the starts of runs. */
static void ski_gpu_fill(const ski_mesh *m, const ski_grid *grid, int32_t *start,
                         int32_t *first, float *weight)
{
    int     wide = ski_width(grid);
    int64_t a = 0;
    ski_weights(grid, start, weight);
    for (int64_t i = 0; i < m->n; i++) {
        for (int q = 0; q < m->width; q++) weight[i * m->width + q] = weight[i * wide + q];
        while (a <= start[i]) first[a++] = (int32_t)i;
    }
    while (a <= m->r) first[a++] = (int32_t)m->n;
}

static tl_status plan_mesh(plan *s, const ski_grid *grid)
{
    ski_mesh *m = &s->mesh;
    int       wide = ski_width(grid);
    m->r = grid->r;
    m->width = wide < m->r ? wide : (int)m->r;
    int32_t  *start = (int32_t *)malloc((size_t)m->n * sizeof *start);
    int32_t  *first = (int32_t *)malloc((size_t)(m->r + 1) * sizeof *first);
    float    *weight = (float *)malloc((size_t)(m->n * wide) * sizeof *weight);
    tl_status st = TL_OK;
    if (start && first && weight)
        ski_gpu_fill(m, grid, start, first, weight);
    else
        st = tl_fail(s->ctx, TL_ENOMEM, "out of memory");
    if (st == TL_OK) st = ski_gpu_upload(s->ctx, start, (size_t)m->n * 4, (void **)&m->start);
    if (st == TL_OK) st = ski_gpu_upload(s->ctx, first, (size_t)(m->r + 1) * 4, (void **)&m->first);
    if (st == TL_OK)
        st = ski_gpu_upload(s->ctx, weight, (size_t)(m->n * m->width) * 4, (void **)&m->weight);
    free(start);
    free(first);
    free(weight);
    return st;
}

typedef struct ski_options {
    tl_option_value inducing, taps, interpolation, lambda, span, zero, parts, as_published;
} ski_options;

static tl_status read_options(const tl_host *h, const tl_tno_problem *p, ski_options *o)
{
    static const char *const names[] = {"inducing", "taps", "interpolation", "lambda",
                                        "span",     "zero", "parts",         "as_published"};
    tl_option_value *values[] = {&o->inducing, &o->taps, &o->interpolation, &o->lambda,
                                 &o->span,     &o->zero, &o->parts,         &o->as_published};
    tl_status st = TL_OK;
    for (int i = 0; i < 8 && st == TL_OK; i++) st = gpu_option(h, "ski", p, names[i], values[i]);
    return st;
}

static tl_status ski_gpu_describe(plan *s, const tl_tno_problem *p, const ski_options *o)
{
    s->causal = p->causal;
    s->taps = strcmp(o->parts.s, "low-rank") == 0 ? 0 : o->taps.i;
    s->origin = p->causal ? 0 : s->taps / 2;
    s->low = strcmp(o->parts.s, "sparse") != 0;
    s->mesh.n = p->n;
    s->mesh.d = p->d;
    if (!s->low) return TL_OK;
    ski_grid grid = {p->n, o->inducing.i, p->n - (strcmp(o->span.s, "n-1") == 0),
                          strcmp(o->interpolation.s, "cubic") == 0, o->as_published.i != 0,
                          o->lambda.f};
    s->zero = p->causal ? 0 : grid.r - 1;
    s->lags = s->zero + grid.r;
    s->mean = strcmp(o->zero.s, "mean") == 0;
    gpu_convolution_set(&s->transforms, s->ctx, grid.r, p->d, s->zero, s->lags);
    return plan_mesh(s, &grid);
}

static tl_status ski_gpu_make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    ski_options o;
    int64_t     points;
    tl_status   st = read_options(h, p, &o);
    if (st == TL_OK) st = gpu_points(h, "ski", p, &points);
    if (st != TL_OK) return st;
    plan *s = (plan *)gpu_plan(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    s->ctx = gpu_ctx(h);
    s->points = points;
    st = ski_gpu_describe(s, p, &o);
    if (st == TL_OK)
        *out_plan = s;
    else
        ski_gpu_release(s);
    return st;
}

/* ---- The coefficient of lag 0 as the mean of two --------------------------------------------- */

static __global__ void take_mean(const float *coef, int64_t zero, int64_t d, float *kernel,
                                 int64_t total)
{
    EACH(e, total)
    {
        int64_t row = e / d;
        if (row == zero)
            kernel[e] = 0.5f * (coef[e] + coef[e + d]);
        else
            kernel[e] = coef[row > zero ? e + d : e];
    }
}

static __global__ void give_mean(const float *dkernel, int64_t zero, int64_t d, float *dcoef,
                                 int64_t total)
{
    EACH(e, total)
    {
        int64_t row = e / d;
        float   f = row == zero || row == zero + 1 ? 0.5f : 1;
        dcoef[e] = f * dkernel[row > zero ? e - d : e];
    }
}

/* ---- Scratch buffers ------------------------------------------------------------------------- */

typedef struct buffers {
    float    *block, *kernel, *dkernel;
    ski_parts of_x, of_dy;
    float    *u[WIDTH]; /* [b,r,d]; a bidirectional plan uses the first only, for A W' x */
} buffers;

static float *ski_gpu_take(float **next, int64_t floats)
{
    *next += floats;
    return *next - floats;
}

static void take_parts(const plan *s, int64_t b, float **next, ski_parts *to)
{
    int64_t each = b * s->mesh.r * s->mesh.d;
    for (int q = 0; q < s->mesh.width; q++) to->part[q] = ski_gpu_take(next, each);
    to->all = ski_gpu_take(next, each);
}

static tl_status ski_gpu_reserve(const plan *s, int64_t b, int backward, buffers *m)
{
    int64_t each = b * s->mesh.r * s->mesh.d, kernel = s->mean ? s->lags * s->mesh.d : 0;
    int     used = s->causal ? s->mesh.width : 1, arrays = s->mesh.width + 1;
    *m = buffers();
    size_t    floats = (size_t)(each * (arrays * (1 + backward) + used) + 2 * kernel);
    tl_status st = gpu_alloc(s->ctx, floats * 4, (void **)&m->block);
    if (st != TL_OK) return st;
    float *next = m->block;
    m->kernel = ski_gpu_take(&next, kernel);
    m->dkernel = ski_gpu_take(&next, kernel);
    for (int q = 0; q < used; q++) m->u[q] = ski_gpu_take(&next, each);
    take_parts(s, b, &next, &m->of_x);
    if (backward) take_parts(s, b, &next, &m->of_dy);
    return TL_OK;
}

/* *out = the kernel of A: coef, or with zero=mean m->kernel, which it computes. */
static tl_status load_kernel(const plan *s, const buffers *m, const float *coef, const float **out)
{
    tl_ctx *ctx = s->ctx;
    int64_t total = s->lags * s->mesh.d;
    *out = coef;
    if (!s->mean) return TL_OK;
    LAUNCH(take_mean, blocks_for(total), THREADS, coef, s->zero, s->mesh.d, m->kernel, total);
    *out = m->kernel;
    return launched(ctx, "ski");
}

static tl_status store_kernel(const plan *s, const buffers *m, float *dcoef)
{
    tl_ctx *ctx = s->ctx;
    int64_t total = (s->lags + 1) * s->mesh.d;
    if (!s->mean) return TL_OK;
    LAUNCH(give_mean, blocks_for(total), THREADS, m->dkernel, s->zero, s->mesh.d, dcoef, total);
    return launched(ctx, "ski");
}

/* ---- Parts of the operator ------------------------------------------------------------------- */

static gpu_band taps_of(const plan *s)
{
    return gpu_band{s->mesh.n, s->mesh.d, s->taps, s->origin, 0};
}

static gpu_band matrix_of(const plan *s)
{
    return gpu_band{s->mesh.r, s->mesh.d, s->lags, s->zero, 0};
}

static gpu_interpolation interpolation_of(const plan *s, const float *v)
{
    return gpu_interpolation{s->mesh.start, s->mesh.weight, s->mesh.width, s->mesh.r, v};
}

static tl_status multiply(const plan *s, int64_t b, const float *kernel, const float *z, float *v)
{
    gpu_band band = matrix_of(s);
    if (s->mesh.r <= DIRECT) return gpu_band_apply(s->ctx, &band, 0, b, kernel, z, NULL, v);
    tl_tno_args a = {};
    a.b = b;
    a.coef = kernel;
    a.x = z;
    a.y = v;
    return gpu_convolve(&s->transforms, &a);
}

/* Computes v = A' g and dkernel, unless they are NULL. */
static tl_status multiply_back(const plan *s, int64_t b, const float *kernel, const float *z,
                               const float *g, float *v, float *dkernel)
{
    gpu_band  band = matrix_of(s);
    tl_status st = TL_OK;
    if (s->mesh.r <= DIRECT) {
        if (v) st = gpu_band_apply(s->ctx, &band, 1, b, kernel, g, NULL, v);
        if (st == TL_OK && dkernel) st = gpu_band_grad(s->ctx, &band, b, z, g, 0, dkernel);
        return st;
    }
    tl_tno_args a = {};
    a.b = b;
    a.coef = kernel;
    a.x = z;
    a.dy = g;
    a.dx = v;
    a.dcoef = dkernel;
    return gpu_convolve_back(&s->transforms, &a);
}

/* ---- Forward --------------------------------------------------------------------------------- */

static tl_status forward_low(const plan *s, const buffers *m, const tl_tno_args *a)
{
    gpu_band          taps = taps_of(s);
    gpu_interpolation w = interpolation_of(s, m->u[0]);
    const float      *kernel;
    tl_status         st = load_kernel(s, m, a->coef, &kernel);
    if (st == TL_OK) st = ski_gpu_gather(s->ctx, &s->mesh, a->b, a->x, &m->of_x);
    if (st == TL_OK && !s->causal) st = multiply(s, a->b, kernel, m->of_x.all, m->u[0]);
    if (st == TL_OK)
        st = gpu_band_apply(s->ctx, &taps, 0, a->b, a->params[0], a->x, s->causal ? NULL : &w,
                            a->y);
    if (st == TL_OK && s->causal)
        st = ski_causal(s->ctx, &s->mesh, a->b, kernel, &m->of_x, m->u, a->x, a->y);
    return st;
}

static tl_status ski_gpu_forward(void *state, const tl_tno_args *a)
{
    const plan *s = (const plan *)state;
    gpu_band    taps = taps_of(s);
    buffers     m;
    if (a->b == 0) return TL_OK;
    if (!s->low) return gpu_band_apply(s->ctx, &taps, 0, a->b, a->params[0], a->x, NULL, a->y);
    tl_status st = ski_gpu_reserve(s, a->b, 0, &m);
    if (st != TL_OK) return st;
    st = forward_low(s, &m, a);
    gpu_free(s->ctx, m.block);
    return st;
}

/* ---- Backward -------------------------------------------------------------------------------- */

/* Computes dx and dcoef. A causal dx starts as S' dy, to which the rest is added. */
static tl_status backward_low(const plan *s, const buffers *m, const tl_tno_args *a)
{
    gpu_band          taps = taps_of(s);
    gpu_interpolation w = interpolation_of(s, m->u[0]);
    float            *dkernel = s->mean && a->dcoef ? m->dkernel : a->dcoef;
    const float      *kernel;
    tl_status         st = load_kernel(s, m, a->coef, &kernel);
    if (st == TL_OK) st = ski_gpu_gather(s->ctx, &s->mesh, a->b, a->dy, &m->of_dy);
    if (st == TL_OK && dkernel) st = ski_gpu_gather(s->ctx, &s->mesh, a->b, a->x, &m->of_x);
    if (st == TL_OK && !s->causal)
        st = multiply_back(s, a->b, kernel, m->of_x.all, m->of_dy.all, a->dx ? m->u[0] : NULL,
                           dkernel);
    if (st == TL_OK && a->dx)
        st = gpu_band_apply(s->ctx, &taps, 1, a->b, a->params[0], a->dy, s->causal ? NULL : &w,
                            a->dx);
    if (st == TL_OK && a->dx && s->causal)
        st = ski_causal_back(s->ctx, &s->mesh, a->b, kernel, &m->of_dy, m->u, a->dy, a->dx);
    if (st == TL_OK && dkernel && s->causal)
        st = ski_causal_kernel(s->ctx, &s->mesh, a->b, &m->of_x, &m->of_dy, a->x, a->dy, dkernel);
    return st == TL_OK && a->dcoef ? store_kernel(s, m, a->dcoef) : st;
}

/* Without W A W', or without sequences, dx has the term of the taps only, and dcoef is 0. */
static tl_status backward_taps(const plan *s, const tl_tno_args *a)
{
    gpu_band  taps = taps_of(s);
    tl_status st = TL_OK;
    if (a->dx) st = gpu_band_apply(s->ctx, &taps, 1, a->b, a->params[0], a->dy, NULL, a->dx);
    if (st == TL_OK && a->dcoef)
        st = gpu_clear(s->ctx, a->dcoef, (size_t)(s->points * s->mesh.d) * 4);
    return st;
}

static tl_status ski_gpu_backward(void *state, const tl_tno_args *a)
{
    const plan *s = (const plan *)state;
    gpu_band    taps = taps_of(s);
    float      *dtaps = a->dparams ? a->dparams[0] : NULL;
    tl_status   st = TL_OK;
    if (dtaps) st = gpu_band_grad(s->ctx, &taps, a->b, a->x, a->dy, 0, dtaps);
    if (st != TL_OK || (!a->dx && !a->dcoef)) return st;
    if (!s->low || a->b == 0) return backward_taps(s, a);
    buffers m;
    st = ski_gpu_reserve(s, a->b, 1, &m);
    if (st != TL_OK) return st;
    st = backward_low(s, &m, a);
    gpu_free(s->ctx, m.block);
    return st;
}

const gpu_form gpu_ski_form = {"ski", {ski_gpu_make, ski_gpu_forward, ski_gpu_backward,
                                       ski_gpu_release}};

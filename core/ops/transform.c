/* transform.c - Fourier transforms along one axis, by those that a loaded backend provides. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "engine/plugin.h"
#include "engine/tape.h"
#include "ops/ops.h"

#define GROUP 8 /* neighbouring vectors moved together: 8 complex numbers are one cache line */

typedef struct entry { /* a plan that is kept until the context ends */
    tl_transform_kind    kind;
    int64_t              n;
    const tl_transforms *provider;
    void                *plan;
    struct entry        *next;
} entry;

void tl_transforms_close(tl_ctx *ctx)
{
    for (entry *e = ctx->transform_plans, *next; e; e = next) {
        next = e->next;
        e->provider->release(e->plan);
        free(e);
    }
    ctx->transform_plans = NULL;
}

static tl_status find(tl_ctx *ctx, tl_transform_kind kind, int64_t n, const entry **out_entry)
{
    entry *e = ctx->transform_plans;
    while (e && (e->kind != kind || e->n != n)) e = e->next;
    if (!e) {
        const tl_transforms *provider = tl_find_transforms(ctx);
        if (!provider)
            return tl_fail(ctx, TL_EBACKEND, "no loaded backend provides Fourier transforms");
        e = malloc(sizeof *e);
        if (!e) return tl_fail(ctx, TL_ENOMEM, "out of memory");
        *e = (entry){kind, n, provider, NULL, ctx->transform_plans};
        tl_status st = provider->plan(&ctx->host, kind, n, &e->plan);
        if (st != TL_OK) {
            free(e);
            return st;
        }
        ctx->transform_plans = e;
    }
    *out_entry = e;
    return TL_OK;
}

/* ---- Kernel ---------------------------------------------------------------------------------- */

typedef struct job {
    const entry *e;
    const float *x;
    float       *y, *scratch;
    int64_t      inner, groups;           /* groups of neighbours in an inner axis */
    int64_t      from, to;                /* entries of a vector before and after */
    int64_t      from_width, to_width;    /* floats of an entry: 2 if complex */
    int64_t      from_line, line;         /* floats kept for one vector before, and for both */
    float        scale, middle;
} job;

/* Multiplies the bins that stand for two of a whole spectrum: 0 < 2k < n. */
static void scale_middle(const job *j, float *spectrum)
{
    for (int64_t k = 1; 2 * k < j->e->n; k++) {
        spectrum[2 * k] *= j->middle;
        spectrum[2 * k + 1] *= j->middle;
    }
}

static void transform(const job *j, float *from, float *to)
{
    if (j->e->kind == TL_C2R && j->middle != 1) scale_middle(j, from);
    j->e->provider->run(j->e->plan, from, to);
    if (j->e->kind == TL_R2C && j->middle != 1) scale_middle(j, to);
    if (j->scale != 1)
        for (int64_t k = 0; k < j->to * j->to_width; k++) to[k] *= j->scale;
}

/* Groups begin..end-1: gathered into contiguous vectors, transformed, scattered. */
static void run_groups(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    float     *lines = j->scratch + thread * GROUP * j->line;
    for (int64_t g = begin; g < end; g++) {
        int64_t      outer = g / j->groups, first = g % j->groups * GROUP;
        int64_t      count = j->inner - first < GROUP ? j->inner - first : GROUP;
        int64_t      fw = j->from_width, tw = j->to_width;
        const float *x = j->x + (outer * j->from * j->inner + first) * fw;
        float       *y = j->y + (outer * j->to * j->inner + first) * tw;
        for (int64_t i = 0; i < j->from; i++)
            for (int64_t v = 0; v < count; v++)
                for (int64_t w = 0; w < fw; w++)
                    lines[v * j->line + i * fw + w] = x[(i * j->inner + v) * fw + w];
        for (int64_t v = 0; v < count; v++)
            transform(j, lines + v * j->line, lines + v * j->line + j->from_line);
        for (int64_t i = 0; i < j->to; i++)
            for (int64_t v = 0; v < count; v++)
                for (int64_t w = 0; w < tw; w++)
                    y[(i * j->inner + v) * tw + w] =
                        lines[v * j->line + j->from_line + i * tw + w];
    }
}

static int64_t padded(int64_t floats) { return (floats + 15) / 16 * 16; }

/* out[0] = f[0] times the transform of in[0] along axis i[2], of kind i[0] and length i[1]; f[1]
** multiplies the middle bins of the half spectrum, before TL_C2R and after TL_R2C */
static tl_status transform_kernel(tl_ctx *ctx, const tl_args *a)
{
    tl_transform_kind kind = (tl_transform_kind)a->i[0];
    int64_t n = a->i[1], outer = 1, bins = n / 2 + 1;
    int     axis = (int)a->i[2];
    job     j = {.x = F32(a->in[0]), .y = F32(a->out[0]), .inner = 1};
    j.from_width = kind == TL_R2C ? 1 : 2;
    j.to_width = kind == TL_C2R ? 1 : 2;
    j.from = kind == TL_C2R ? bins : n;
    j.to = kind == TL_R2C ? bins : n;
    j.scale = (float)a->f[0];
    j.middle = (float)a->f[1];
    for (int i = 0; i < axis; i++) outer *= a->in[0]->dims[i];
    for (int i = axis + 1; i < a->in[0]->ndim - (kind != TL_R2C); i++) j.inner *= a->in[0]->dims[i];
    if (outer * j.inner == 0) return TL_OK;
    tl_status st = find(ctx, kind, n, &j.e);
    if (st != TL_OK) return st;
    j.groups = (j.inner + GROUP - 1) / GROUP;
    j.from_line = padded(j.from * j.from_width);
    j.line = j.from_line + padded(j.to * j.to_width);
    j.scratch = tl_alloc(ctx, (size_t)(ctx->threads * GROUP * j.line) * sizeof *j.scratch);
    if (!j.scratch) return TL_ENOMEM;
    tl_parallel(ctx, outer * j.groups, 4096 / (n * GROUP) + 1, run_groups, &j);
    tl_release(ctx, j.scratch);
    return TL_OK;
}

const tl_kernel_row tl_cpu_transform[] = {{TL_OP_transform, transform_kernel}, {0}};

/* ---- Operators ------------------------------------------------------------------------------- */

static tl_status launch(tl_ctx *ctx, tl_tensor *x, tl_tensor *y, tl_transform_kind kind, int64_t n,
                        int axis, double scale, double middle)
{
    tl_args a = {.in = {x}, .out = {y}, .i = {kind, n, axis}, .f = {scale, middle}};
    return tl_launch(ctx, TL_OP_transform, &a);
}

/* The adjoint of scale times a transform. The half spectrum of a real vector stands for a whole
** one, so TL_C2R counts the middle bins twice where the adjoint of TL_R2C counts them once, and the
** reverse. */
static tl_status grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    static const tl_transform_kind adjoint[] = {TL_C2C_BACKWARD, TL_C2C_FORWARD, TL_C2R, TL_R2C};
    static const double            middle[] = {1, 1, 0.5, 2};
    tl_transform_kind kind = (tl_transform_kind)node->saved.i[0];
    int        axis = (int)node->saved.i[2];
    tl_tensor *dx = NULL;
    tl_status  st = tl_new_shaped(ctx, &node->saved.shape[0], &dx);
    if (st == TL_OK)
        st = launch(ctx, dy, dx, adjoint[kind], node->saved.i[1], axis, node->saved.f[0],
                    middle[kind]);
    return tl_hand_over(ctx, node, st, &dx, 1);
}

/* Checks x and makes axis non-negative; the last axis of a complex tensor is not counted. */
static tl_status check(tl_tensor *x, const char *op, int complex, int *axis)
{
    if (x->type != TL_F32) return tl_fail(x->ctx, TL_ETYPE, "%s: x is not float32", op);
    if (complex && (x->ndim < 2 || x->dims[x->ndim - 1] != 2))
        return tl_fail(x->ctx, TL_ESHAPE, "%s: x is %s, a complex tensor is [..,2]", op, SHAPE(x));
    int count = x->ndim - complex, at = *axis < 0 ? *axis + count : *axis;
    if (at < 0 || at >= count)
        return tl_fail(x->ctx, TL_EINVAL, "%s: %s has no axis %lld", op, SHAPE(x),
                       *axis < 0 ? (long long)*axis : *axis + 1LL);
    if (x->dims[at] < 1)
        return tl_fail(x->ctx, TL_ESHAPE, "%s: x is %s, the axis needs at least 1", op, SHAPE(x));
    *axis = at;
    return TL_OK;
}

/* Makes the output, runs and records. */
static tl_status apply(tl_tensor *x, tl_transform_kind kind, int64_t n, int axis, double scale,
                       int ndim, const int64_t *dims, tl_tensor **out_y)
{
    tl_ctx    *ctx = x->ctx;
    tl_tensor *y;
    tl_args    saved = {.i = {kind, n, axis}, .f = {scale}, .shape = {tl_shape_of(x)}};
    tl_status  st = tl_new(ctx, TL_F32, ndim, dims, &y);
    if (st != TL_OK) return st;
    st = launch(ctx, x, y, kind, n, axis, scale, 1);
    if (st == TL_OK) st = tl_record(ctx, y, grad, &x, 1, &saved, NULL);
    return tl_finish(st, y, out_y);
}

tl_status tl_fft(tl_tensor *x, int axis, int inverse, tl_tensor **out_y)
{
    tl_status st = check(x, inverse ? "ifft" : "fft", 1, &axis);
    if (st != TL_OK) return st;
    int64_t           n = x->dims[axis];
    tl_transform_kind kind = inverse ? TL_C2C_BACKWARD : TL_C2C_FORWARD;
    return apply(x, kind, n, axis, inverse ? 1.0 / (double)n : 1, x->ndim, x->dims, out_y);
}

tl_status tl_rfft(tl_tensor *x, int axis, tl_tensor **out_y)
{
    int64_t   dims[TL_MAXDIMS + 1];
    tl_status st = check(x, "rfft", 0, &axis);
    if (st != TL_OK) return st;
    memcpy(dims, x->dims, sizeof x->dims);
    dims[axis] = x->dims[axis] / 2 + 1;
    dims[x->ndim] = 2;
    return apply(x, TL_R2C, x->dims[axis], axis, 1, x->ndim + 1, dims, out_y);
}

tl_status tl_irfft(tl_tensor *x, int axis, int64_t n, tl_tensor **out_y)
{
    int64_t   dims[TL_MAXDIMS];
    tl_status st = check(x, "irfft", 1, &axis);
    if (st != TL_OK) return st;
    if (n < 1 || n / 2 + 1 != x->dims[axis])
        return tl_fail(x->ctx, TL_ESHAPE, "irfft: x is %s with %lld bins, n %lld needs %lld",
                       SHAPE(x), (long long)x->dims[axis], (long long)n,
                       (long long)(n < 1 ? 0 : n / 2 + 1));
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = n;
    return apply(x, TL_C2R, n, axis, 1.0 / (double)n, x->ndim - 1, dims, out_y);
}

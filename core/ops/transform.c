/* transform.c - computes Fourier transforms along one axis by the library of a loaded backend. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "engine/plugin.h"
#include "engine/gradient.h"
#include "ops/arguments.h"

#define GROUP 8 /* neighbouring vectors copied together: 8 complex numbers are one cache line */

typedef struct tl_transform_plan { /* a cached plan; it lives as long as the context */
    tl_transform_kind    kind;
    int64_t              n;
    const tl_transforms *provider;
    void                *plan;
    struct tl_transform_plan *next;
} tl_transform_plan;

void tl_transforms_close(tl_ctx *ctx)
{
    for (tl_transform_plan *e = ctx->transform_plans, *next; e; e = next) {
        next = e->next;
        e->provider->release(e->plan);
        free(e);
    }
    ctx->transform_plans = NULL;
}

static tl_status transform_find(tl_ctx *ctx, tl_transform_kind kind, int64_t n,
                                const tl_transform_plan **out_entry)
{
    tl_transform_plan *e = ctx->transform_plans;
    while (e && (e->kind != kind || e->n != n)) e = e->next;
    if (!e) {
        const tl_transforms *provider = tl_find_transforms(ctx);
        if (!provider)
            return tl_fail(ctx, TL_EBACKEND, "no loaded backend provides Fourier transforms");
        e = malloc(sizeof *e);
        if (!e) return tl_fail(ctx, TL_ENOMEM, "out of memory");
        *e = (tl_transform_plan){kind, n, provider, NULL, ctx->transform_plans};
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
    const tl_transform_args *a;
    const tl_transform_plan *e;
    const float *x;
    float       *y, *scratch;
    int64_t      groups, most;    /* groups of neighbours along the inner axis, the size of one */
    int64_t      from_line, line; /* scratch floats of a vector before its transform, and in all */
} job;

/* Multiplies the bins that stand for a conjugate pair: those with 0 < 2k < n. */
static void scale_middle(const job *j, float *spectrum)
{
    for (int64_t k = 1; 2 * k < j->e->n; k++) {
        spectrum[2 * k] *= j->a->middle;
        spectrum[2 * k + 1] *= j->a->middle;
    }
}

static void transform(const job *j, float *from, float *to)
{
    const tl_transform_args *a = j->a;
    if (a->kind == TL_C2R && a->middle != 1) scale_middle(j, from);
    j->e->provider->run(j->e->plan, from, to);
    if (a->kind == TL_R2C && a->middle != 1) scale_middle(j, to);
    if (a->scale != 1)
        for (int64_t k = 0; k < a->to * a->to_width; k++) to[k] *= a->scale;
}

/* Gathers each group into contiguous vectors, transforms them, and scatters the results. */
static void run_groups(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    const tl_transform_args *a = j->a;
    float     *lines = j->scratch + thread * j->most * j->line;
    for (int64_t g = begin; g < end; g++) {
        int64_t      outer = g / j->groups, first = g % j->groups * GROUP;
        int64_t      count = a->inner - first < GROUP ? a->inner - first : GROUP;
        int64_t      fw = a->from_width, tw = a->to_width;
        const float *x = j->x + (outer * a->from * a->inner + first) * fw;
        float       *y = j->y + (outer * a->to * a->inner + first) * tw;
        for (int64_t i = 0; i < a->from; i++)
            for (int64_t v = 0; v < count; v++)
                for (int64_t w = 0; w < fw; w++)
                    lines[v * j->line + i * fw + w] = x[(i * a->inner + v) * fw + w];
        for (int64_t v = 0; v < count; v++)
            transform(j, lines + v * j->line, lines + v * j->line + j->from_line);
        for (int64_t i = 0; i < a->to; i++)
            for (int64_t v = 0; v < count; v++)
                for (int64_t w = 0; w < tw; w++)
                    y[(i * a->inner + v) * tw + w] =
                        lines[v * j->line + j->from_line + i * tw + w];
    }
}

static int64_t padded(int64_t floats) { return (floats + 15) / 16 * 16; }

tl_status tl_cpu_transform(tl_ctx *ctx, const tl_args *args)
{
    const tl_transform_args *a = args->p;
    job j = {.a = a, .x = F32(args->transform.x), .y = F32(args->transform.y)};
    if (a->outer * a->inner == 0) return TL_OK;
    tl_status st = transform_find(ctx, a->kind, a->n, &j.e);
    if (st != TL_OK) return st;
    j.groups = (a->inner + GROUP - 1) / GROUP;
    j.most = a->inner < GROUP ? a->inner : GROUP;
    j.from_line = padded(a->from * a->from_width);
    j.line = j.from_line + padded(a->to * a->to_width);
    int64_t count = a->outer * j.groups, grain = 4096 / (a->n * GROUP) + 1;
    int64_t parts = tl_parallel_parts(ctx, count, grain);
    j.scratch = tl_alloc(ctx, (size_t)(parts * j.most * j.line) * sizeof *j.scratch);
    if (!j.scratch) return TL_ENOMEM;
    tl_parallel(ctx, count, grain, run_groups, &j);
    tl_release(ctx, j.scratch);
    return TL_OK;
}

/* ---- Operators ------------------------------------------------------------------------------- */

static tl_status launch(tl_ctx *ctx, tl_tensor *x, tl_tensor *y, tl_transform_kind kind, int64_t n,
                        int axis, double scale, double middle)
{
    tl_axis_view s = tl_axis_view_of(x, axis);
    int64_t   bins = n / 2 + 1;
    tl_transform_args t = {.kind = kind, .n = n, .outer = s.outer,
                           .from = kind == TL_C2R ? bins : n, .to = kind == TL_R2C ? bins : n,
                           .from_width = kind == TL_R2C ? 1 : 2, .to_width = kind == TL_C2R ? 1 : 2,
                           .scale = (float)scale, .middle = (float)middle};
    t.inner = s.inner / t.from_width; /* the last axis of a complex tensor holds re and im */
    return tl_launch(ctx, TL_OP_transform, &(tl_args){.transform = {.x = x, .y = y}, .p = &t});
}

/* The gradient is the adjoint of scale times a transform. A bin of a half spectrum stands for a
** conjugate pair: TL_C2R counts it twice where the adjoint of TL_R2C counts it once, so `middle`
** halves it, and doubles it in the other direction. */
static tl_status transform_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    static const tl_transform_kind adjoint[] = {TL_C2C_BACKWARD, TL_C2C_FORWARD, TL_C2R, TL_R2C};
    static const double            middle[] = {1, 1, 0.5, 2};
    const struct tl_args_transform *s = &node->saved.transform;
    tl_transform_kind kind = (tl_transform_kind)s->kind;
    tl_tensor *dx = NULL;
    tl_status  st = tl_new_shaped(ctx, &node->saved.shape[0], &dx);
    if (st == TL_OK)
        st = launch(ctx, dy, dx, adjoint[kind], s->n, (int)s->axis, s->scale, middle[kind]);
    return tl_accumulate_all(ctx, node, st, &dx, 1);
}

/* Checks x and makes axis non-negative. The last axis of a complex tensor, re and im, is not one of
** its axes. */
static tl_status transform_check(tl_tensor *x, const char *op, int complex, int *axis)
{
    if (x->type != TL_F32) return tl_fail(x->ctx, TL_ETYPE, "%s: x is not float32", op);
    if (complex && (x->ndim < 2 || x->dims[x->ndim - 1] != 2))
        return tl_fail(x->ctx, TL_ESHAPE, "%s: x is %s, a complex tensor is [..,2]", op, SHAPE(x));
    int count = x->ndim - complex, at = *axis < 0 ? *axis + count : *axis;
    if (at < 0 || at >= count)
        return tl_fail(x->ctx, TL_EINVAL, "%s: %s has no axis %lld", op, SHAPE(x),
                       tl_axis_number(x->ctx, *axis));
    if (x->dims[at] < 1)
        return tl_fail(x->ctx, TL_ESHAPE, "%s: x is %s, the axis needs at least 1", op, SHAPE(x));
    *axis = at;
    return TL_OK;
}

static tl_status transform_apply(tl_tensor *x, tl_transform_kind kind, int64_t n, int axis,
                                 double scale, int ndim, const int64_t *dims, tl_tensor **out_y)
{
    tl_ctx    *ctx = x->ctx;
    tl_tensor *y;
    tl_args    saved = {.transform = {.kind = kind, .n = n, .axis = axis, .scale = scale},
                        .shape = {tl_shape_of(x)}};
    tl_status  st = tl_new(ctx, TL_F32, ndim, dims, &y);
    if (st != TL_OK) return st;
    st = launch(ctx, x, y, kind, n, axis, scale, 1);
    if (st == TL_OK) st = tl_record(ctx, y, transform_grad, &x, 1, &saved, NULL);
    return tl_finish(st, y, out_y);
}

tl_status tl_fft(tl_tensor *x, int axis, int inverse, tl_tensor **out_y)
{
    tl_status st = transform_check(x, inverse ? "ifft" : "fft", 1, &axis);
    if (st != TL_OK) return st;
    int64_t           n = x->dims[axis];
    tl_transform_kind kind = inverse ? TL_C2C_BACKWARD : TL_C2C_FORWARD;
    return transform_apply(x, kind, n, axis, inverse ? 1.0 / (double)n : 1, x->ndim, x->dims,
                           out_y);
}

tl_status tl_rfft(tl_tensor *x, int axis, tl_tensor **out_y)
{
    int64_t   dims[TL_MAXDIMS + 1];
    tl_status st = transform_check(x, "rfft", 0, &axis);
    if (st != TL_OK) return st;
    memcpy(dims, x->dims, sizeof x->dims);
    dims[axis] = x->dims[axis] / 2 + 1;
    dims[x->ndim] = 2;
    return transform_apply(x, TL_R2C, x->dims[axis], axis, 1, x->ndim + 1, dims, out_y);
}

tl_status tl_irfft(tl_tensor *x, int axis, int64_t n, tl_tensor **out_y)
{
    int64_t   dims[TL_MAXDIMS];
    tl_status st = transform_check(x, "irfft", 1, &axis);
    if (st != TL_OK) return st;
    if (n < 1 || n / 2 + 1 != x->dims[axis])
        return tl_fail(x->ctx, TL_ESHAPE, "irfft: x is %s with %lld bins, n %lld needs %lld",
                       SHAPE(x), (long long)x->dims[axis], (long long)n,
                       (long long)(n < 1 ? 0 : n / 2 + 1));
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = n;
    return transform_apply(x, TL_C2R, n, axis, 1.0 / (double)n, x->ndim - 1, dims, out_y);
}

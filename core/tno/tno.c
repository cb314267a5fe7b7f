/* tno.c - plans a Toeplitz neural operator with a backend and applies the plan to tensors. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engine/capture.h"
#include "engine/gradient.h"
#include "engine/plugin.h"
#include "ops/arguments.h"
#include "products/gemm.h"
#include "tno/plan.h"

#define MAX_NUMBERS ((int64_t)1 << 40) /* elements of a sequence */

struct tl_tno {
    int     refs; /* the caller's, and one per use by the tape or a graph */
    tl_ctx *ctx;
    tl_plan plan;
};

/* ---- Life ------------------------------------------------------------------------------------ */

void tl_tno_free(tl_tno *tno)
{
    if (!tno || --tno->refs > 0) return;
    tl_ctx *ctx = tno->ctx;
    tl_plan_close(&tno->plan);
    free(tno);
    tl_ctx_unref(ctx);
}

static void tno_release(void *tno) { tl_tno_free(tno); }

tl_status tl_tno_new(tl_ctx *ctx, const char *backend, int64_t n, int64_t d, int causal,
                     const char *const *options, tl_tno **out_tno)
{
    const tl_tno_backend *b;
    const tl_tno_problem  problem = {n, d, causal != 0, TL_CPU, NULL};
    if (n < 1 || d < 1)
        return tl_fail(ctx, TL_EINVAL, "tno: n is %lld and d is %lld, both need at least 1",
                       (long long)n, (long long)d);
    if (n > MAX_NUMBERS / d) /* leaves a margin to 2^63 for the sizes of plans */
        return tl_fail(ctx, TL_ENOMEM, "tno: out of memory: n is %lld and d is %lld", (long long)n,
                       (long long)d);
    tl_status st = ctx->device == TL_CPU ? tl_gemm_ready(ctx) : TL_OK; /* backends multiply */
    if (st != TL_OK) return st;
    if (strcmp(backend, "auto") == 0) {
        if (options && options[0])
            return tl_fail(ctx, TL_EINVAL, "backend 'auto' has no option '%s': it takes none",
                           options[0]);
        st = tl_choose(ctx, &problem, &backend);
    }
    if (st == TL_OK) st = tl_find_backend(ctx, backend, &b);
    if (st != TL_OK) return st;
    tl_tno *tno = calloc(1, sizeof *tno);
    if (!tno) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    ctx->refs++;
    tno->refs = 1;
    tno->ctx = ctx;
    st = tl_plan_open(&ctx->host, ctx->device, b, &problem, options, &tno->plan);
    if (st == TL_OK)
        *out_tno = tno;
    else
        tl_tno_free(tno);
    return st;
}

/* ---- Questions ------------------------------------------------------------------------------- */

int tl_tno_width(const tl_tno *tno) { return tno->plan.width; }
const char *tl_tno_backend_name(const tl_tno *tno) { return tno->plan.backend->name; }
const char *tl_tno_domain(const tl_tno *tno) { return tno->plan.backend->domain; }
int tl_tno_param_count(const tl_tno *tno) { return tno->plan.params; }
const char *tl_tno_warning(const tl_tno *tno) { return tno->plan.why[0] ? tno->plan.why : NULL; }

tl_status tl_tno_points(tl_tno *tno, tl_tensor **out_points)
{
    tl_tensor *t = NULL;
    double    *all = tl_alloc(tno->ctx, (size_t)tno->plan.points * sizeof *all);
    tl_status  st = TL_ENOMEM;
    if (all) st = tl_tensor_new_host(tno->ctx, TL_F32, 1, &tno->plan.points, &t);
    if (st == TL_OK) {
        (void)tno->plan.backend->points(&tno->plan.problem, all);
        for (int64_t i = 0; i < tno->plan.points; i++) F32(t)[i] = (float)all[i];
        *out_points = t;
    }
    tl_release(tno->ctx, all);
    return st;
}

tl_status tl_tno_param(tl_tno *tno, int i, const char **out_name, int *out_ndim,
                       int64_t out_dims[TL_MAXDIMS], const char **out_init)
{
    if (i < 0 || i >= tno->plan.params)
        return tl_fail(tno->ctx, TL_EINVAL, "backend '%s' has %d parameters, but no parameter %d",
                       tno->plan.backend->name, tno->plan.params, i + 1);
    const tl_param *p = &tno->plan.backend->params[i];
    int             ndim = p->shape(&tno->plan.problem, out_dims);
    if (ndim < 0 || ndim > TL_MAXDIMS)
        return tl_fail(tno->ctx, TL_EBACKEND, "backend '%s': parameter %s has %d dimensions",
                       tno->plan.backend->name, p->name, ndim);
    *out_name = p->name;
    *out_ndim = ndim;
    *out_init = p->init;
    return TL_OK;
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static tl_status check_coef(tl_tno *tno, const char *op, tl_tensor *coef)
{
    if (!coef) return tl_fail(tno->ctx, TL_EINVAL, "%s: coef is missing and nothing is cached", op);
    if (coef->type != TL_F32) return tl_fail(tno->ctx, TL_ETYPE, "%s: coef is not float32", op);
    if (coef->ndim == 2 && coef->dims[0] == tno->plan.points &&
        coef->dims[1] == tno->plan.width * tno->plan.problem.d)
        return TL_OK;
    return tl_fail(tno->ctx, TL_ESHAPE, "%s: coef is %s, backend '%s' needs [%lld,%lld]", op,
                   SHAPE(coef), tno->plan.backend->name, (long long)tno->plan.points,
                   (long long)(tno->plan.width * tno->plan.problem.d));
}

static tl_status check_params(tl_tno *tno, const char *op, tl_tensor *const *params)
{
    for (int i = 0; i < tno->plan.params; i++) {
        const char *name = NULL, *init;
        int         ndim = 0;
        tl_tensor   like = {0};
        tl_status   st = tl_tno_param(tno, i, &name, &ndim, like.dims, &init);
        if (st != TL_OK) return st;
        like.ndim = ndim;
        if (!params || !params[i])
            return tl_fail(tno->ctx, TL_EINVAL, "%s: parameter %s of backend '%s' is missing", op,
                           name, tno->plan.backend->name);
        if (params[i]->type != TL_F32)
            return tl_fail(tno->ctx, TL_ETYPE, "%s: parameter %s is not float32", op, name);
        if (!tl_same_shape(params[i], &like))
            return tl_fail(tno->ctx, TL_ESHAPE, "%s: parameter %s is %s, backend '%s' needs %s", op,
                           name, SHAPE(params[i]), tno->plan.backend->name, SHAPE(&like));
    }
    return TL_OK;
}

static tl_status check_x(tl_tno *tno, tl_tensor *x)
{
    const tl_tno_problem *p = &tno->plan.problem;
    if (x->type != TL_F32) return tl_fail(tno->ctx, TL_ETYPE, "tno: x is not float32");
    if (x->ndim == 3 && x->dims[1] == p->n && x->dims[2] == p->d) return TL_OK;
    return tl_fail(tno->ctx, TL_ESHAPE, "tno: x is %s, the plan is for [b,%lld,%lld]", SHAPE(x),
                   (long long)p->n, (long long)p->d);
}

/* ---- Kernels --------------------------------------------------------------------------------- */

/* Adds a message to a failure of a backend that set none, and turns an unknown status into
** TL_EINVAL. */
static tl_status said_by(tl_ctx *ctx, const tl_tno *tno, tl_status st)
{
    if (st == TL_OK || *tl_errmsg(ctx)) return st;
    int known = strcmp(tl_status_name(st), "unknown") != 0;
    return tl_fail(ctx, known ? st : TL_EINVAL, "backend '%s' failed: %s (%d)",
                   tno->plan.backend->name, tl_status_text(st), (int)st);
}

/* p: the tno. cache is what an earlier call filled, and coef may be NULL with it; new_cache is to
** be filled. */
tl_status tl_cpu_tno(tl_ctx *ctx, const tl_args *a)
{
    const tl_tno *tno = a->p;
    const float  *params[TL_TNO_PARAMS] = {0};
    const struct tl_args_tno *o = &a->tno;
    for (int i = 0; i < tno->plan.params; i++) params[i] = F32(o->params[i]);
    tl_tno_args t = {.b = o->x->dims[0], .coef = tl_f32_or_null(o->coef), .params = params,
                     .x = F32(o->x), .y = F32(o->y), .cached = o->cache != NULL,
                     .cache = tl_f32_or_null(o->cache ? o->cache : o->new_cache)};
    return said_by(ctx, tno, tl_plan_forward(&tno->plan, &t));
}

/* p: the tno. A NULL gradient is not computed. */
tl_status tl_cpu_tno_grad(tl_ctx *ctx, const tl_args *a)
{
    const tl_tno *tno = a->p;
    const float  *params[TL_TNO_PARAMS] = {0};
    float        *dparams[TL_TNO_PARAMS] = {0};
    const struct tl_args_tno_grad *g = &a->tno_grad;
    for (int i = 0; i < tno->plan.params; i++) {
        params[i] = F32(g->params[i]);
        dparams[i] = tl_f32_or_null(g->dparams[i]);
    }
    tl_tno_args t = {.b = g->x->dims[0], .coef = tl_f32_or_null(g->coef), .params = params,
                     .x = F32(g->x), .dy = F32(g->dy), .dx = tl_f32_or_null(g->dx),
                     .dcoef = tl_f32_or_null(g->dcoef), .dparams = dparams,
                     .cache = tl_f32_or_null(g->cache), .cached = g->cache != NULL};
    return said_by(ctx, tno, tno->plan.form.backward(tno->plan.state, &t));
}

/* ---- Application ----------------------------------------------------------------------------- */

/* How many inputs have gradients, at the same places: coef, x and the parameters. */
static int inputs_of(const tl_tno *tno) { return 2 + tno->plan.params; }

static tl_status tno_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args   a = node->saved;
    tl_status st = TL_OK;
    int       count = inputs_of(a.p);
    a.tno_grad.dy = dy;
    for (int i = 0; i < count && st == TL_OK; i++)
        if (node->in[i]) st = tl_new_like(a.list.in[i], &a.list.out[i]);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_tno_grad, &a);
    return tl_accumulate_all(ctx, node, st, a.list.out, count);
}

/* Adds the cache to the arguments: the given one, or a new one for the call to fill. */
static tl_status add_cache(tl_tno *tno, tl_tensor *cache, tl_tensor **out_old, tl_tensor **out_new)
{
    const tl_tno_backend *b = tno->plan.backend;
    int64_t               count = tl_plan_cache_floats(&tno->plan);
    if (count <= 0) return TL_OK;
    if (!cache) return tl_new(tno->ctx, TL_F32, 1, &count, out_new);
    *out_old = cache;
    if (cache->type != TL_F32 || cache->ndim != 1 || cache->dims[0] != count)
        return tl_fail(tno->ctx, TL_ESHAPE, "tno: the cache is %s, backend '%s' needs [%lld]",
                       SHAPE(cache), b->name, (long long)count);
    if ((uintptr_t)DATA(cache) % TL_ALIGNED == 0) return TL_OK; /* backends load aligned vectors */
    return tl_fail(tno->ctx, TL_EINVAL, "tno: the cache does not begin at a multiple of %d bytes, "
                   "as the one that a call returns does", TL_ALIGNED);
}

tl_status tl_tno_apply_cached(tl_tno *tno, tl_tensor *coef, tl_tensor *const *params, tl_tensor *x,
                              tl_tensor **cache, tl_tensor **out_y)
{
    tl_ctx    *ctx = tno->ctx;
    tl_tensor *y = NULL, *made;
    tl_args    a = {.tno = {.coef = coef, .x = x}, .p = tno};
    int        cached = !coef && cache && *cache && tl_plan_cache_floats(&tno->plan) > 0;
    tl_status  st = cached ? TL_OK : check_coef(tno, "tno", coef);
    if (st == TL_OK) st = check_params(tno, "tno", params);
    if (st == TL_OK) st = check_x(tno, x);
    if (st != TL_OK) return st;
    for (int i = 0; i < tno->plan.params; i++) a.tno.params[i] = params[i];
    if (cache) st = add_cache(tno, *cache, &a.tno.cache, &a.tno.new_cache);
    made = a.tno.new_cache;
    if (st == TL_OK) st = tl_new_like(x, &y);
    a.tno.y = y;
    if (st == TL_OK && ctx->capture) {
        tno->refs++;
        st = tl_graph_own(ctx->capture, tno, tno_release);
    }
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_tno, &a);
    if (made) a.tno.cache = made;
    if (st == TL_OK) {
        tno->refs++;
        st = tl_record(ctx, y, tno_grad, a.list.in, inputs_of(tno), &a, tno_release);
    }
    if (made && st == TL_OK) *cache = made;
    else tl_tensor_free(made);
    return tl_finish(st, y, out_y);
}

tl_status tl_tno_apply(tl_tno *tno, tl_tensor *coef, tl_tensor *const *params, tl_tensor *x,
                       tl_tensor **out_y)
{
    return tl_tno_apply_cached(tno, coef, params, x, NULL, out_y);
}

tl_status tl_tno_gradients(tl_tno *tno, tl_tensor *coef, tl_tensor *const *params, tl_tensor *x,
                           tl_tensor *cache, tl_tensor *dy, tl_tensor **out_dcoef,
                           tl_tensor **out_dparams, tl_tensor **out_dx)
{
    tl_ctx    *ctx = tno->ctx;
    tl_args    a = {.tno_grad = {.coef = coef, .x = x, .dy = dy}, .p = tno};
    struct tl_args_tno_grad *g = &a.tno_grad;
    tl_status  st = check_coef(tno, "gradients", coef);
    if (st == TL_OK) st = check_params(tno, "gradients", params);
    if (st == TL_OK) st = check_x(tno, x);
    if (st == TL_OK && dy->type != TL_F32)
        st = tl_fail(ctx, TL_ETYPE, "gradients: dy is not float32");
    if (st == TL_OK && !tl_same_shape(dy, x))
        st = tl_fail(ctx, TL_ESHAPE, "gradients: dy is %s, x is %s: the shapes must be equal",
                     SHAPE(dy), SHAPE(x));
    for (int i = 0; st == TL_OK && i < tno->plan.params; i++) g->params[i] = params[i];
    if (st == TL_OK && cache) st = add_cache(tno, cache, &g->cache, NULL);
    if (st == TL_OK && out_dcoef) st = tl_new_like(coef, &g->dcoef);
    if (st == TL_OK && out_dx) st = tl_new_like(x, &g->dx);
    for (int i = 0; out_dparams && i < tno->plan.params && st == TL_OK; i++)
        st = tl_new_like(params[i], &g->dparams[i]);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_tno_grad, &a);
    for (int i = 0; i < inputs_of(tno) && st != TL_OK; i++) tl_tensor_free(a.list.out[i]);
    if (st != TL_OK) return st;
    if (out_dcoef) *out_dcoef = g->dcoef;
    if (out_dx) *out_dx = g->dx;
    for (int i = 0; out_dparams && i < tno->plan.params; i++) out_dparams[i] = g->dparams[i];
    return TL_OK;
}

/* ---- The matrix ------------------------------------------------------------------------------ */

/* Column j of T is T applied to the unit vector at j, in all channels at once. */
static tl_status tno_columns(tl_tno *tno, const tl_args *args, tl_tensor *t)
{
    tl_args   a = *args;
    int64_t   n = tno->plan.problem.n, d = tno->plan.problem.d, dims[] = {1, n, d};
    tl_status st = tl_tensor_new(tno->ctx, TL_F32, 3, dims, &a.tno.x);
    if (st == TL_OK) st = tl_new(tno->ctx, TL_F32, 3, dims, &a.tno.y);
    for (int64_t j = 0; j < n && st == TL_OK; j++) {
        if ((st = tl_to_cpu(a.tno.x)) != TL_OK) break;
        for (int64_t c = 0; c < d; c++) F32(a.tno.x)[j * d + c] = 1;
        st = tl_launch(tno->ctx, TL_OP_tno, &a);
        if (st == TL_OK) st = tl_to_cpu(a.tno.x);
        if (st == TL_OK) st = tl_to_cpu(a.tno.y);
        for (int64_t c = 0; c < d && st == TL_OK; c++) F32(a.tno.x)[j * d + c] = 0;
        for (int64_t i = 0; i < n && st == TL_OK; i++)
            for (int64_t c = 0; c < d; c++)
                F32(t)[(c * n + i) * n + j] = F32(a.tno.y)[i * d + c];
    }
    tl_tensor_free(a.tno.x);
    tl_tensor_free(a.tno.y);
    return st;
}

/* Computes T by the backend's function for it, on the CPU, wherever the tensors are. */
static tl_status dense_by_backend(tl_tno *tno, tl_tensor *coef, tl_tensor *const *params,
                                  tl_tensor *t)
{
    const tl_tno_backend *b = tno->plan.backend;
    const float          *raw[TL_TNO_PARAMS] = {0};
    void                 *plan = tno->plan.state, *own = NULL;
    tl_status             st = tl_to_cpu(coef);
    for (int i = 0; i < tno->plan.params && st == TL_OK; i++) {
        st = tl_to_cpu(params[i]);
        raw[i] = F32(params[i]);
    }
    if (st == TL_OK && tno->plan.form.plan != b->plan) { /* tno->plan.state belongs to a device */
        st = tl_gemm_ready(tno->ctx);
        if (st == TL_OK) st = b->plan(&tno->ctx->host, &tno->plan.problem, &own);
        plan = own;
    }
    tl_tno_args args = {.coef = F32(coef), .params = raw, .dense = F32(t)};
    if (st == TL_OK) st = b->dense(plan, &args);
    if (own) b->release(own);
    return st;
}

/* Creates x [n,n,d] whose sequence j is the unit vector at j in all channels. */
static tl_status unit_vectors(const tl_tno *tno, tl_tensor **out_x)
{
    int64_t    n = tno->plan.problem.n, d = tno->plan.problem.d, dims[] = {n, n, d};
    tl_tensor *x;
    tl_status  st = tl_tensor_new_host(tno->ctx, TL_F32, 3, dims, &x);
    if (st != TL_OK) return st;
    memset(F32(x), 0, (size_t)x->len * sizeof(float));
    for (int64_t j = 0; j < n; j++)
        for (int64_t c = 0; c < d; c++) F32(x)[(j * n + j) * d + c] = 1;
    *out_x = x;
    return TL_OK;
}

/* The columns of T are T applied to unit vectors: its gradients are those of this application. */
static tl_status dense_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dt)
{
    tl_node    applied = *node;
    tl_tensor *x = NULL, *dy = NULL;
    tl_status  st = unit_vectors(node->saved.p, &x);
    applied.saved.tno.x = x;
    if (st == TL_OK) st = tl_transpose(dt, (const int[]){2, 1, 0}, &dy); /* [j,i,d] of [d,i,j] */
    if (st == TL_OK) st = tno_grad(ctx, &applied, dy);
    tl_tensor_free(x);
    tl_tensor_free(dy);
    return st;
}

tl_status tl_tno_dense(tl_tno *tno, tl_tensor *coef, tl_tensor *const *params, tl_tensor **out_t)
{
    int64_t    n = tno->plan.problem.n, dims[] = {tno->plan.problem.d, n, n};
    tl_tensor *t;
    tl_args    a = {.tno = {.coef = coef}, .p = tno};
    tl_status  st = check_coef(tno, "dense", coef);
    if (st == TL_OK) st = check_params(tno, "dense", params);
    if (st == TL_OK) st = tl_tensor_new_host(tno->ctx, TL_F32, 3, dims, &t);
    if (st != TL_OK) return st;
    for (int i = 0; i < tno->plan.params; i++) a.tno.params[i] = params[i];
    st = tno->plan.backend->dense ? dense_by_backend(tno, coef, params, t)
                                  : tno_columns(tno, &a, t);
    if (st == TL_OK) {
        tno->refs++;
        st = tl_record(tno->ctx, t, dense_grad, a.list.in, inputs_of(tno), &a, tno_release);
    }
    return tl_finish(st, t, out_t);
}

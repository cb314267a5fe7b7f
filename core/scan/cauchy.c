/* cauchy.c - computes sums over simple poles, a channel after another. */
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "engine/gradient.h"
#include "scan/cauchy.h"

#define TILE  256   /* nodes that are computed at once */
#define GRAIN 16384 /* terms that justify another thread */

typedef struct tile {
    float re[TILE], im[TILE];
} tile;

typedef struct task {
    tl_cauchy_job j;
    double       *sums;  /* [r+1,m,2] of each thread, for the gradient */
    tile         *tiles; /* [r] of each thread */
    float        *nodes; /* [2,f]: their real, then their imaginary parts */
} task;

/* ---- Functions of a pole --------------------------------------------------------------------- */

/* With D = 1/(g - pole) and D' = 1/(g - conj pole), or D' = 0 without pairs, a term of the sum is
** Re v E + Im v F for E = D + D' and F = i (D - D'). Its derivatives by the pole's parts are
** Re v P + Im v Q and Re v Q - Im v P, for P = D^2 + D'^2 and Q = i (D^2 - D'^2). */
typedef struct functions {
    tile e, f, p, q;
} functions;

/* Computes E and F, and with `more` P and Q, of a pole at `width` nodes. */
static inline void functions_of(const task *t, const float *pole, int64_t first, int64_t width,
                                int more, functions *restrict out)
{
    const float *restrict g_re = t->nodes + first, *restrict g_im = g_re + t->j.f;
    const float re = pole[0], im = pole[1];
    const int   pairs = t->j.pairs;
    for (int64_t i = 0; i < width; i++) {
        float p = g_re[i] - re, s = g_im[i] - im, u = g_im[i] + im;
        float a = 1.0f / (p * p + s * s), b = pairs ? 1.0f / (p * p + u * u) : 0.0f;
        float a_re = p * a, a_im = -s * a, b_re = p * b, b_im = -u * b;
        out->e.re[i] = a_re + b_re;
        out->e.im[i] = a_im + b_im;
        out->f.re[i] = b_im - a_im;
        out->f.im[i] = a_re - b_re;
        if (!more) continue;
        float a2_re = a_re * a_re - a_im * a_im, a2_im = 2 * a_re * a_im;
        float b2_re = b_re * b_re - b_im * b_im, b2_im = 2 * b_re * b_im;
        out->p.re[i] = a2_re + b2_re;
        out->p.im[i] = a2_im + b2_im;
        out->q.re[i] = b2_im - a2_im;
        out->q.im[i] = a2_re - b2_re;
    }
}

static int64_t width_at(const tl_cauchy_job *j, int64_t first)
{
    return j->f - first < TILE ? j->f - first : TILE;
}

/* ---- Forward --------------------------------------------------------------------------------- */

/* sum += Re v E + Im v F */
static inline void add_terms(const float *v, const functions *restrict of, int64_t width,
                             tile *restrict sum)
{
    const float re = v[0], im = v[1];
    for (int64_t i = 0; i < width; i++) {
        sum->re[i] += re * of->e.re[i] + im * of->f.re[i];
        sum->im[i] += re * of->e.im[i] + im * of->f.im[i];
    }
}

static void sum_channels(void *user, int64_t begin, int64_t end, int thread)
{
    const task          *t = user;
    const tl_cauchy_job *j = &t->j;
    tile                *sum = t->tiles + thread * j->r;
    functions            of;
    for (int64_t c = begin; c < end; c++)
        for (int64_t first = 0; first < j->f; first += TILE) {
            int64_t width = width_at(j, first);
            memset(sum, 0, (size_t)j->r * sizeof *sum);
            for (int64_t k = 0; k < j->m; k++) {
                functions_of(t, j->poles + 2 * (c * j->m + k), first, width, 0, &of);
                for (int64_t r = 0; r < j->r; r++)
                    add_terms(j->v + 2 * ((r * j->d + c) * j->m + k), &of, width, sum + r);
            }
            for (int64_t r = 0; r < j->r; r++) {
                float *restrict y = j->y + 2 * ((r * j->d + c) * j->f + first);
                for (int64_t i = 0; i < width; i++) {
                    y[2 * i] = sum[r].re[i];
                    y[2 * i + 1] = sum[r].im[i];
                }
            }
        }
}

/* ---- Gradient -------------------------------------------------------------------------------- */

/* Returns in out the sums over the nodes of Re(conj dy z), for z = E, F, P and Q. */
static inline void products(const tile *restrict dy, const functions *restrict of, int64_t width,
                            float out[4])
{
    float a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
    for (int64_t i = 0; i < width; i++) {
        float re = dy->re[i], im = dy->im[i];
        a += re * of->e.re[i] + im * of->e.im[i];
        b += re * of->f.re[i] + im * of->f.im[i];
        c += re * of->p.re[i] + im * of->p.im[i];
        d += re * of->q.re[i] + im * of->q.im[i];
    }
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
}

/* Adds the nodes first.. to the gradients of channel c: of v [r,m,2], and after them of the poles
** [m,2].   dy [r] */
static void grad_tile(const task *t, int64_t c, int64_t first, const tile *dy, double *sums)
{
    const tl_cauchy_job *j = &t->j;
    int64_t              width = width_at(j, first);
    functions            of;
    for (int64_t k = 0; k < j->m; k++) {
        double *dpole = sums + 2 * (j->r * j->m + k);
        functions_of(t, j->poles + 2 * (c * j->m + k), first, width, 1, &of);
        for (int64_t r = 0; r < j->r; r++) {
            const float *v = j->v + 2 * ((r * j->d + c) * j->m + k);
            double      *dv = sums + 2 * (r * j->m + k);
            float        by[4];
            products(dy + r, &of, width, by);
            dv[0] += (double)by[0];
            dv[1] += (double)by[1];
            dpole[0] += (double)v[0] * (double)by[2] + (double)v[1] * (double)by[3];
            dpole[1] += (double)v[0] * (double)by[3] - (double)v[1] * (double)by[2];
        }
    }
}

static void grad_channels(void *user, int64_t begin, int64_t end, int thread)
{
    const task          *t = user;
    const tl_cauchy_job *j = &t->j;
    int64_t              count = 2 * (j->r + 1) * j->m;
    tile                *dy = t->tiles + thread * j->r;
    double              *sums = t->sums + thread * count;
    for (int64_t c = begin; c < end; c++) {
        memset(sums, 0, (size_t)count * sizeof *sums);
        for (int64_t first = 0; first < j->f; first += TILE) {
            for (int64_t r = 0; r < j->r; r++) {
                const float *from = j->dy + 2 * ((r * j->d + c) * j->f + first);
                for (int64_t i = 0; i < width_at(j, first); i++) {
                    dy[r].re[i] = from[2 * i];
                    dy[r].im[i] = from[2 * i + 1];
                }
            }
            grad_tile(t, c, first, dy, sums);
        }
        for (int64_t r = 0; r <= j->r; r++) {
            float *to = r < j->r ? j->dv + 2 * (r * j->d + c) * j->m : j->dpoles + 2 * c * j->m;
            for (int64_t i = 0; i < 2 * j->m; i++) to[i] = (float)sums[2 * r * j->m + i];
        }
    }
}

/* ---- Kernels --------------------------------------------------------------------------------- */

static tl_status over_channels(tl_ctx *ctx, tl_cauchy_job j, tl_body body)
{
    task    t = {.j = j};
    int64_t sums = ctx->threads * 2 * (j.r + 1) * j.m, tiles = ctx->threads * j.r;
    t.sums = tl_alloc(ctx, (size_t)sums * sizeof *t.sums + (size_t)tiles * sizeof *t.tiles +
                               (size_t)(2 * j.f + 1) * sizeof *t.nodes);
    if (!t.sums) return TL_ENOMEM;
    t.tiles = (tile *)(t.sums + sums);
    t.nodes = (float *)(t.tiles + tiles);
    for (int64_t i = 0; i < j.f; i++) {
        t.nodes[i] = j.nodes[2 * i];
        t.nodes[j.f + i] = j.nodes[2 * i + 1];
    }
    tl_parallel(ctx, j.d, 1 + GRAIN / (1 + j.r * j.m * j.f), body, &t);
    tl_release(ctx, t.sums);
    return TL_OK;
}

tl_status tl_cpu_cauchy(tl_ctx *ctx, const tl_args *a)
{
    return over_channels(ctx, tl_cauchy_job_of(a, 0), sum_channels);
}

tl_status tl_cpu_cauchy_grad(tl_ctx *ctx, const tl_args *a)
{
    return over_channels(ctx, tl_cauchy_job_of(a, 1), grad_channels);
}

/* ---- The operator ---------------------------------------------------------------------------- */

#define INPUTS TL_OUT_cauchy_grad /* v and poles */

/* saved: the arguments of the forward kernel, with which the gradient's arguments begin */
static tl_status cauchy_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args a = node->saved;
    a.cauchy_grad.dy = dy;
    return tl_run_gradient(ctx, node, TL_OP_cauchy_grad, &a, INPUTS);
}

static tl_status cauchy_check(const tl_args *a)
{
    static const char *const names[] = {"v", "poles", "nodes"};
    const tl_tensor *v = a->cauchy.v, *poles = a->cauchy.poles, *nodes = a->cauchy.nodes;
    tl_ctx          *ctx = v->ctx;
    for (int i = 0; i < TL_IN_cauchy; i++)
        if (a->list.in[i]->type != TL_F32)
            return tl_fail(ctx, TL_ETYPE, "cauchy: %s is int32, not float32", names[i]);
    if (v->ndim != 4 || v->dims[3] != 2)
        return tl_fail(ctx, TL_ESHAPE, "cauchy: v is %s, not [r,d,m,2]", SHAPE(v));
    if (poles->ndim != 3 || poles->dims[0] != v->dims[1] || poles->dims[1] != v->dims[2] ||
        poles->dims[2] != 2)
        return tl_fail(ctx, TL_ESHAPE, "cauchy: v is %s, poles is %s, not [%lld,%lld,2]", SHAPE(v),
                       SHAPE(poles), (long long)v->dims[1], (long long)v->dims[2]);
    if (nodes->ndim != 2 || nodes->dims[1] != 2)
        return tl_fail(ctx, TL_ESHAPE, "cauchy: nodes is %s, not [f,2]", SHAPE(nodes));
    if (tl_needs_grad(ctx, nodes))
        return tl_fail(ctx, TL_EINVAL, "cauchy: nodes %s requires a gradient, but cauchy computes "
                       "none for it", SHAPE(nodes));
    return TL_OK;
}

tl_status tl_cauchy(tl_tensor *v, tl_tensor *poles, tl_tensor *nodes, int pairs, tl_tensor **out_y)
{
    tl_args   a = {.cauchy = {.v = v, .poles = poles, .nodes = nodes, .pairs = pairs != 0}};
    tl_status st = cauchy_check(&a);
    if (st != TL_OK) return st;
    st = tl_new(v->ctx, TL_F32, 4, (int64_t[]){v->dims[0], v->dims[1], nodes->dims[0], 2},
                &a.cauchy.y);
    if (st != TL_OK) return st;
    return tl_run_recorded(TL_OP_cauchy, &a, INPUTS, cauchy_grad, &a, out_y);
}

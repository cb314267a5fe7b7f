/* optim.c - one step of Adam and of gradient descent, and the norm of all gradients. */
#include <math.h>

#include "internal.h"
#include "rows.h"

#define GRAIN 16384 /* elements worth a thread */

/* ---- Adam ------------------------------------------------------------------------------------ */

typedef struct adam {
    const float *grad;
    float       *p, *m, *v;
    float        beta1, beta2, rest1, rest2; /* rest: 1 - beta, rounded after the subtraction */
    float        eps, scale;
    float        coupled, decoupled; /* weight decay: in the gradient, or lr times it of p */
    float        step, root;         /* p -= step m / (root sqrt v + eps) */
} adam;

static void adam_part(void *user, int64_t begin, int64_t end, int thread)
{
    const adam a = *(const adam *)user;
    const float *restrict grad = a.grad;
    float *restrict p = a.p, *restrict m = a.m, *restrict v = a.v;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float g = grad[i] * a.scale + a.coupled * p[i];
        m[i] = a.beta1 * m[i] + a.rest1 * g;
        v[i] = a.beta2 * v[i] + a.rest2 * g * g;
        p[i] = p[i] - a.decoupled * p[i] - a.step * (m[i] / (a.root * sqrtf(v[i]) + a.eps));
    }
}

/* adam: in: grad   out: p, m, v   i: kind, step   f: lr, beta1, beta2, eps, weight decay, scale */
static tl_status adam_kernel(tl_ctx *ctx, const tl_args *a)
{
    double lr = a->f[0], beta1 = a->f[1], beta2 = a->f[2], t = (double)a->i[1];
    double bias1 = 1 - pow(beta1, t), root2 = sqrt(1 - pow(beta2, t));
    int    fairseq = a->i[0] == TL_ADAM_FAIRSEQ, coupled = a->i[0] == TL_ADAM;
    adam   j = {.grad = F32(a->in[0]), .p = F32(a->out[0]), .m = F32(a->out[1]),
                .v = F32(a->out[2]), .beta1 = (float)beta1, .beta2 = (float)beta2,
                .rest1 = (float)(1 - beta1), .rest2 = (float)(1 - beta2), .eps = (float)a->f[3],
                .scale = (float)a->f[5], .coupled = coupled ? (float)a->f[4] : 0,
                .decoupled = coupled ? 0 : (float)(lr * a->f[4])};
    /* fairseq corrects v's bias in the step size alone, so its eps weighs more in early steps. */
    j.step = (float)(fairseq ? lr * root2 / bias1 : lr / bias1);
    j.root = (float)(fairseq ? 1 : 1 / root2);
    tl_parallel(ctx, a->out[0]->len, GRAIN, adam_part, &j);
    return TL_OK;
}

/* Whether t is a float32 tensor of p's shape. */
static tl_status check(const char *op, const char *name, int i, const tl_tensor *p,
                       const tl_tensor *t)
{
    if (p->type != TL_F32 || (t && t->type != TL_F32))
        return tl_fail(p->ctx, TL_ETYPE, "%s: parameter %d or its %s is int32", op, i + 1, name);
    if (t && !tl_same_shape(p, t))
        return tl_fail(p->ctx, TL_ESHAPE, "%s: parameter %d is %s, its %s %s", op, i + 1, SHAPE(p),
                       name, SHAPE(t));
    return TL_OK;
}

tl_status tl_adam_step(tl_tensor *const *params, tl_tensor *const *m, tl_tensor *const *v,
                       int count, const tl_adam_options *opt, double grad_scale)
{
    tl_status st = TL_OK;
    if (count < 1) return TL_OK;
    if ((int)opt->kind < TL_ADAM || opt->kind > TL_ADAM_FAIRSEQ || opt->step < 1 ||
        !(opt->beta1 >= 0 && opt->beta1 < 1 && opt->beta2 >= 0 && opt->beta2 < 1))
        return tl_fail(params[0]->ctx, TL_EINVAL, "adam: kind %d, step %lld, beta1 %g, beta2 %g",
                       (int)opt->kind, (long long)opt->step, opt->beta1, opt->beta2);
    for (int i = 0; i < count && st == TL_OK; i++) { /* all or none */
        st = check("adam", "m", i, params[i], m[i]);
        if (st == TL_OK) st = check("adam", "v", i, params[i], v[i]);
    }
    for (int i = 0; i < count && st == TL_OK; i++) {
        tl_tensor *p = params[i], *grad = tl_grad(p);
        tl_args    a = {.in = {grad}, .out = {p, m[i], v[i]}, .i = {opt->kind, opt->step},
                        .f = {opt->lr, opt->beta1, opt->beta2, opt->eps, opt->weight_decay,
                              grad_scale}};
        if (grad) st = tl_launch(p->ctx, TL_OP_adam, &a);
    }
    return st;
}

/* ---- Gradient descent ------------------------------------------------------------------------ */

typedef struct sgd {
    const float *grad;
    float       *p, *buf; /* buf NULL: no momentum */
    float        lr, momentum, decay, scale;
} sgd;

static void sgd_part(void *user, int64_t begin, int64_t end, int thread)
{
    const sgd a = *(const sgd *)user;
    const float *restrict grad = a.grad;
    float *restrict p = a.p, *restrict buf = a.buf;
    (void)thread;
    if (!buf) {
        for (int64_t i = begin; i < end; i++)
            p[i] -= a.lr * (grad[i] * a.scale + a.decay * p[i]);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        buf[i] = a.momentum * buf[i] + (grad[i] * a.scale + a.decay * p[i]);
        p[i] -= a.lr * buf[i];
    }
}

/* sgd: in: grad   out: p, buf or NULL   f: lr, momentum, weight decay, scale */
static tl_status sgd_kernel(tl_ctx *ctx, const tl_args *a)
{
    sgd j = {.grad = F32(a->in[0]), .p = F32(a->out[0]), .buf = a->out[1] ? F32(a->out[1]) : NULL,
             .lr = (float)a->f[0], .momentum = (float)a->f[1], .decay = (float)a->f[2],
             .scale = (float)a->f[3]};
    tl_parallel(ctx, a->out[0]->len, GRAIN, sgd_part, &j);
    return TL_OK;
}

tl_status tl_sgd_step(tl_tensor *const *params, tl_tensor *const *buf, int count, double lr,
                      double momentum, double weight_decay, double grad_scale)
{
    tl_status st = TL_OK;
    if (count < 1) return TL_OK;
    if (momentum != 0 && !buf)
        return tl_fail(params[0]->ctx, TL_EINVAL, "sgd: momentum %g needs buffers", momentum);
    for (int i = 0; i < count && st == TL_OK; i++)
        st = check("sgd", "momentum buffer", i, params[i], momentum != 0 ? buf[i] : NULL);
    for (int i = 0; i < count && st == TL_OK; i++) {
        tl_tensor *p = params[i], *grad = tl_grad(p);
        tl_args    a = {.in = {grad}, .out = {p, momentum != 0 ? buf[i] : NULL},
                        .f = {lr, momentum, weight_decay, grad_scale}};
        if (grad) st = tl_launch(p->ctx, TL_OP_sgd, &a);
    }
    return st;
}

/* ---- Norm ------------------------------------------------------------------------------------ */

#define CHUNK 16384 /* elements of one partial sum: the result is the same for any threads */

typedef struct squares {
    const float *x;
    int64_t      len;
    double      *sums;
} squares;

static void squares_part(void *user, int64_t begin, int64_t end, int thread)
{
    const squares *j = user;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t to = (k + 1) * CHUNK < j->len ? (k + 1) * CHUNK : j->len;
        j->sums[k] = row_dot(j->x + k * CHUNK, j->x + k * CHUNK, to - k * CHUNK);
    }
}

/* norm2: *(double *)p += sum of in[0]^2 */
static tl_status norm2_kernel(tl_ctx *ctx, const tl_args *a)
{
    int64_t chunks = (a->in[0]->len + CHUNK - 1) / CHUNK;
    squares j = {F32(a->in[0]), a->in[0]->len, tl_alloc(ctx, (size_t)chunks * sizeof(double))};
    if (!j.sums) return TL_ENOMEM;
    tl_parallel(ctx, chunks, 4, squares_part, &j);
    for (int64_t k = 0; k < chunks; k++) *(double *)a->p += j.sums[k];
    tl_release(ctx, j.sums);
    return TL_OK;
}

tl_status tl_grad_norm(tl_tensor *const *params, int count, double *out_norm)
{
    double    sum = 0;
    tl_status st = TL_OK;
    for (int i = 0; i < count && st == TL_OK; i++) {
        tl_args a = {.in = {tl_grad(params[i])}, .p = &sum};
        if (a.in[0]) st = tl_launch(params[i]->ctx, TL_OP_norm2, &a);
    }
    if (st == TL_OK) *out_norm = sqrt(sum);
    return st;
}

const tl_kernel_row tl_cpu_optim[] = {
    {TL_OP_adam, adam_kernel}, {TL_OP_sgd, sgd_kernel}, {TL_OP_norm2, norm2_kernel}, {0}};

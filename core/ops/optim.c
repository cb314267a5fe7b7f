/* optim.c - the update steps of Adam and of gradient descent, and the norm of all gradients. */
#include <math.h>

#include "base/memory.h"
#include "base/threads.h"
#include "ops/optim.h"
#include "ops/rows.h"

#define GRAIN 16384 /* elements worth a thread */

/* ---- Lists ----------------------------------------------------------------------------------- */

/* Moves t to the context's device and returns its elements there; NULL if t is NULL. written: a
** kernel will write them. */
static tl_status place_elements(tl_tensor *t, int written, float **out_numbers)
{
    tl_status st = t ? tl_to_device(t, t->ctx->device) : TL_OK;
    *out_numbers = t && st == TL_OK ? F32(t) : NULL;
    if (written && *out_numbers) t->storage->version++;
    return st;
}

/* Adds parameter p to the list if it has a gradient. */
static tl_status list_add(tl_trained_list *list, tl_op op, tl_tensor *p, tl_tensor *m, tl_tensor *v)
{
    tl_tensor *grad = tl_grad(p);
    tl_trained t = {.len = p->len};
    float     *numbers = NULL;
    if (!grad) return TL_OK;
    tl_status st = place_elements(grad, 0, &numbers);
    t.grad = numbers;
    if (st == TL_OK && op != TL_OP_norm2) st = place_elements(p, 1, &t.p);
    if (st == TL_OK) st = place_elements(m, 1, &t.m);
    if (st == TL_OK) st = place_elements(v, 1, &t.v);
    if (st == TL_OK) list->of[list->count++] = t;
    return st;
}

/* Fills list with all parameters that have a gradient, and launches op on it. m, v: NULL if op has
** none. */
static tl_status optim_launch(tl_op op, tl_tensor *const *params, tl_tensor *const *m,
                              tl_tensor *const *v, int count, tl_trained_list *list)
{
    tl_ctx   *ctx = params[0]->ctx;
    tl_status st = TL_OK;
    list->of = tl_alloc(ctx, (size_t)count * sizeof *list->of);
    if (!list->of) return TL_ENOMEM;
    for (int i = 0; i < count && st == TL_OK; i++)
        st = list_add(list, op, params[i], m ? m[i] : NULL, v ? v[i] : NULL);
    if (st == TL_OK) st = tl_launch(ctx, op, &(tl_args){.p = list});
    tl_release(ctx, list->of);
    return st;
}

/* ---- Adam ------------------------------------------------------------------------------------ */

typedef struct adam {
    const float    *grad;
    float          *p, *m, *v;
    tl_adam_numbers by;
} adam;

static void adam_part(void *user, int64_t begin, int64_t end, int thread)
{
    const adam            j = *(const adam *)user;
    const tl_adam_numbers a = j.by;
    const float *restrict grad = j.grad;
    float *restrict p = j.p, *restrict m = j.m, *restrict v = j.v;
    (void)thread;
    for (int64_t i = begin; i < end; i++) tl_adam_update(&a, grad[i], p + i, m + i, v + i);
}

tl_status tl_cpu_adam(tl_ctx *ctx, const tl_args *a)
{
    const tl_trained_list *list = a->p;
    adam                   j = {.by = tl_adam_numbers_of(list)};
    for (int k = 0; k < list->count; k++) {
        const tl_trained *x = &list->of[k];
        j.grad = x->grad, j.p = x->p, j.m = x->m, j.v = x->v;
        tl_parallel(ctx, x->len, GRAIN, adam_part, &j);
    }
    return TL_OK;
}

/* Checks that t, which may be NULL if it is not needed, is a float32 tensor of p's shape. */
static tl_status optim_check(const char *op, const char *name, int i, const tl_tensor *p,
                             const tl_tensor *t, int needed)
{
    if (needed && !t)
        return tl_fail(p->ctx, TL_EINVAL, "%s: parameter %d has no %s", op, i + 1, name);
    if (p->type != TL_F32 || (t && t->type != TL_F32))
        return tl_fail(p->ctx, TL_ETYPE, "%s: parameter %d or its %s is int32, not float32", op,
                       i + 1, name);
    if (t && !tl_same_shape(p, t))
        return tl_fail(p->ctx, TL_ESHAPE, "%s: parameter %d is %s, its %s is %s: the shapes must "
                       "be equal", op, i + 1, SHAPE(p), name, SHAPE(t));
    return TL_OK;
}

tl_status tl_adam_step(tl_tensor *const *params, tl_tensor *const *m, tl_tensor *const *v,
                       int count, const tl_adam_options *opt, double grad_scale)
{
    if (count < 1) return TL_OK;
    tl_status st = tl_check_bytes(params[0]->ctx, "adam", opt->bytes, sizeof *opt);
    if (st != TL_OK) return st;
    if ((int)opt->kind < TL_ADAM_L2 || opt->kind > TL_ADAM_FAIRSEQ || opt->step < 1 ||
        !(opt->beta1 >= 0 && opt->beta1 < 1 && opt->beta2 >= 0 && opt->beta2 < 1))
        return tl_fail(params[0]->ctx, TL_EINVAL, "adam: out of range: kind %d, step %lld, "
                       "beta1 %g or beta2 %g",
                       (int)opt->kind, (long long)opt->step, opt->beta1, opt->beta2);
    for (int i = 0; i < count && st == TL_OK; i++) { /* check all before updating any */
        st = optim_check("adam", "m", i, params[i], m[i], 1);
        if (st == TL_OK) st = optim_check("adam", "v", i, params[i], v[i], 1);
    }
    tl_trained_list list = {.adam = opt, .scale = grad_scale};
    return st == TL_OK ? optim_launch(TL_OP_adam, params, m, v, count, &list) : st;
}

/* ---- Gradient descent ------------------------------------------------------------------------ */

typedef struct sgd {
    const float   *grad;
    float         *p, *buf; /* buf is NULL without momentum */
    tl_sgd_numbers by;
} sgd;

static void sgd_part(void *user, int64_t begin, int64_t end, int thread)
{
    const sgd            j = *(const sgd *)user;
    const tl_sgd_numbers a = j.by;
    const float *restrict grad = j.grad;
    float *restrict p = j.p, *restrict buf = j.buf;
    (void)thread;
    if (buf)
        for (int64_t i = begin; i < end; i++) tl_sgd_update(&a, grad[i], p + i, buf + i);
    else
        for (int64_t i = begin; i < end; i++) tl_sgd_update(&a, grad[i], p + i, NULL);
}

tl_status tl_cpu_sgd(tl_ctx *ctx, const tl_args *a)
{
    const tl_trained_list *list = a->p;
    for (int k = 0; k < list->count; k++) {
        const tl_trained *t = &list->of[k];
        sgd               j = {t->grad, t->p, t->m, tl_sgd_numbers_of(list)};
        tl_parallel(ctx, t->len, GRAIN, sgd_part, &j);
    }
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
        st = optim_check("sgd", "momentum buffer", i, params[i], momentum != 0 ? buf[i] : NULL,
                         momentum != 0);
    tl_trained_list list = {.scale = grad_scale, .sgd = {lr, momentum, weight_decay}};
    if (momentum == 0) buf = NULL;
    return st == TL_OK ? optim_launch(TL_OP_sgd, params, buf, NULL, count, &list) : st;
}

/* ---- Norm ------------------------------------------------------------------------------------ */

/* elements per partial sum, fixed so that the result is the same for any number of threads */
#define CHUNK 16384

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

static tl_status add_squares(tl_ctx *ctx, const tl_trained *t, double *sum)
{
    int64_t chunks = (t->len + CHUNK - 1) / CHUNK;
    squares j = {t->grad, t->len, tl_alloc(ctx, (size_t)chunks * sizeof(double))};
    if (!j.sums) return TL_ENOMEM;
    tl_parallel(ctx, chunks, 4, squares_part, &j);
    for (int64_t k = 0; k < chunks; k++) *sum += j.sums[k];
    tl_release(ctx, j.sums);
    return TL_OK;
}

/* norm2: sets the sum of the list in p */
tl_status tl_cpu_norm2(tl_ctx *ctx, const tl_args *a)
{
    tl_trained_list *list = a->p;
    tl_status        st = TL_OK;
    list->sum = 0;
    for (int k = 0; k < list->count && st == TL_OK; k++)
        st = add_squares(ctx, &list->of[k], &list->sum);
    return st;
}

tl_status tl_grad_norm(tl_tensor *const *params, int count, double *out_norm)
{
    tl_trained_list list = {0};
    if (count < 1) {
        *out_norm = 0;
        return TL_OK;
    }
    tl_status st = optim_launch(TL_OP_norm2, params, NULL, NULL, count, &list);
    if (st == TL_OK) *out_norm = sqrt(list.sum);
    return st;
}

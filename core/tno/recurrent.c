/* recurrent.c - applies a causal Toeplitz operator one position at a time, as generation needs it:
**     y_i = sum over 0 <= k < lags of gamma^k t_k x_(i-k)     (TNN, Eq. 4 and 5)
** in one of several forms, which differ in their state and in the cost of a position: ring.c,
** etsc.c and relaxed.c. Each has a table of functions (recurrent.h), so that this file can check
** what a caller gives, and step, fork and free a recurrence, without a switch over the forms.
**
** Forms in lanes (lanes.h) are stepped on the context's device, where their state stays; the
** relaxed form, whose tiles a thread computes ahead, on the CPU. All are made on the CPU. */
#include <stdlib.h>

#include "engine/launch.h"
#include "tno/recurrent.h"
#include "tno/tno.h"

struct tl_recurrence {
    tl_ctx                   *ctx;
    tl_recurrence_size        size; /* without the members that the form sets */
    const tl_recurrence_form *form;
    void                     *state; /* of the form; NULL: none was made */
};

/* ---- Steps ----------------------------------------------------------------------------------- */

/* p: the recurrence */
tl_status tl_cpu_recurrence(tl_ctx *ctx, const tl_args *a)
{
    const tl_recurrence *r = a->p;
    (void)ctx;
    const tl_tensor *x = a->recurrence.x;
    return r->form->step(r->state, F32(x), F32(a->recurrence.y), x->ndim == 3 ? x->dims[1] : 1);
}

tl_lane_job tl_recurrence_job(const tl_args *a)
{
    const tl_recurrence *r = a->p;
    const tl_lane_state *s = r->state;
    const tl_tensor     *x = a->recurrence.x;
    tl_lane_job          j = {.state = r->state, .b = s->b, .d = s->d, .at = s->at,
                              .seen = s->seen, .n = x->ndim == 3 ? x->dims[1] : 1};
    j.stride = j.n * j.d;
    j.kernel = F32(s->kernel);
    j.memory = F32(s->memory);
    j.x = F32(x);
    j.y = F32(a->recurrence.y);
    r->form->job(r->state, &j);
    return j;
}

/* A graph would repeat the place in the state at which the captured step found it. */
static tl_status step_on_device(const tl_recurrence *r, const tl_args *a)
{
    const tl_lane_state *s = r->state;
    if (r->ctx->capture)
        return tl_fail(r->ctx, TL_EDEVICE, "recurrence: a graph cannot capture a step, as the CPU "
                       "counts the positions");
    tl_status st = tl_to_device(s->kernel, r->ctx->device);
    if (st == TL_OK) st = tl_to_device(s->memory, r->ctx->device);
    return st == TL_OK ? tl_launch(r->ctx, TL_OP_recurrence, a) : st;
}

tl_status tl_recurrence_step(tl_recurrence *r, tl_tensor *x, tl_tensor *y)
{
    tl_args   a = {.recurrence = {.x = x, .y = y}, .p = r};
    long long b = r->size.b, d = r->size.d;
    if (x->type != TL_F32 || y->type != TL_F32)
        return tl_fail(r->ctx, TL_ETYPE, "recurrence: x and y need to be float32");
    if ((x->ndim != 2 && x->ndim != 3) || x->dims[0] != b || x->dims[x->ndim - 1] != d)
        return tl_fail(r->ctx, TL_ESHAPE, "recurrence: x is %s, not [%lld,%lld] or [%lld,n,%lld]",
                       SHAPE(x), b, d, b, d);
    if (!tl_same_shape(x, y))
        return tl_fail(r->ctx, TL_ESHAPE,
                       "recurrence: x is %s and y is %s: the shapes must be equal",
                       SHAPE(x), SHAPE(y));
    return r->form->job ? step_on_device(r, &a) : tl_launch_host(r->ctx, TL_OP_recurrence, &a);
}

void tl_recurrence_reset(tl_recurrence *r) { r->form->reset(r->state); }

tl_recurrence_size tl_recurrence_sizes(const tl_recurrence *r)
{
    tl_recurrence_size size = r->size;
    r->form->sizes(r->state, &size);
    return size;
}

/* ---- Life ------------------------------------------------------------------------------------ */

void tl_recurrence_free(tl_recurrence *r)
{
    if (!r) return;
    if (r->state) r->form->release(r->state);
    tl_ctx_unref(r->ctx);
    free(r);
}

/* Makes a recurrence without a state. The bound on b leaves every form room for some rows of d
** floats per lag and sequence before its sizes overflow. */
static tl_status recurrence_new(tl_ctx *ctx, tl_recurrence_size size, tl_recurrence **out_r)
{
    static const tl_recurrence_form *const forms[] = {&tl_ring_form, &tl_etsc_form, &tl_etsc_form,
                                                      &tl_relaxed_form};
    if (size.kind < TL_RECURRENCE_RING || size.kind > TL_RECURRENCE_RELAXED)
        return tl_fail(ctx, TL_EINVAL, "recurrence: there is no kind %d", (int)size.kind);
    if (size.b < 1 || size.b > INT64_MAX / 32 / (size.d + LANE) / (size.lags + 8))
        return tl_fail(ctx, TL_EINVAL, "recurrence: %lld sequences", (long long)size.b);
    tl_recurrence *r = malloc(sizeof *r);
    if (!r) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    *r = (tl_recurrence){.ctx = ctx, .size = size, .form = forms[size.kind]};
    ctx->refs++;
    *out_r = r;
    return TL_OK;
}

/* Ends the making of r: stores it in *out_r if st is TL_OK, else frees it; returns st. */
static tl_status recurrence_finish(tl_status st, tl_recurrence *r, tl_recurrence **out_r)
{
    if (st == TL_OK)
        *out_r = r;
    else
        tl_recurrence_free(r);
    return st;
}

tl_status tl_recurrence_fork(const tl_recurrence *r, tl_recurrence **out_r)
{
    tl_recurrence *f = NULL;
    tl_status      st = recurrence_new(r->ctx, r->size, &f);
    if (st == TL_OK) st = r->form->fork(r->state, &f->state);
    return recurrence_finish(st, f, out_r);
}

/* Checks t and gamma and moves them to the CPU, where all forms read them. */
static tl_status check_kernel(const tl_tensor *t, const tl_tensor *gamma)
{
    tl_ctx *ctx = t->ctx;
    if (t->type != TL_F32 || (gamma && gamma->type != TL_F32))
        return tl_fail(ctx, TL_ETYPE, "recurrence: t and gamma need to be float32");
    if (t->ndim != 2 || t->len < 1)
        return tl_fail(ctx, TL_ESHAPE, "recurrence: t is %s, not [lags,d]", SHAPE(t));
    if (gamma && gamma->len != 1 && (gamma->ndim != 1 || gamma->len != t->dims[1]))
        return tl_fail(ctx, TL_ESHAPE, "recurrence: gamma is %s, not one number and not [%lld]",
                       SHAPE(gamma), (long long)t->dims[1]);
    tl_status st = tl_to_cpu(t);
    if (st == TL_OK && gamma) st = tl_to_cpu(gamma);
    if (st == TL_OK && gamma) st = tl_decay_range("recurrence", "gamma", gamma, 0);
    return st;
}

/* Creates a recurrence of any kind; only the relaxed form uses positions (recurrent.h). */
static tl_status create(tl_tensor *t, tl_tensor *gamma, tl_recurrence_kind kind, int64_t b,
                        int64_t positions, tl_recurrence **out_r)
{
    tl_recurrence *r = NULL;
    tl_status      st = check_kernel(t, gamma);
    if (st != TL_OK) return st;
    tl_recurrence_size size = {.kind = kind, .b = b, .d = t->dims[1], .lags = t->dims[0]};
    st = recurrence_new(t->ctx, size, &r);
    if (st == TL_OK && positions < 0)
        st = tl_fail(t->ctx, TL_EINVAL, "recurrence: positions is %lld, not 0 or more",
                     (long long)positions);
    if (st == TL_OK) st = r->form->create(t, gamma, kind, b, positions, &r->state);
    return recurrence_finish(st, r, out_r);
}

tl_status tl_recurrence_new(tl_tensor *t, tl_tensor *gamma, tl_recurrence_kind kind, int64_t b,
                            tl_recurrence **out_r)
{
    return create(t, gamma, kind, b, 0, out_r);
}

tl_status tl_recurrence_new_relaxed(tl_tensor *t, tl_tensor *gamma, int64_t b, int64_t positions,
                                    tl_recurrence **out_r)
{
    return create(t, gamma, TL_RECURRENCE_RELAXED, b, positions, out_r);
}

/* ---- Modes ----------------------------------------------------------------------------------- */

tl_status tl_recurrence_modes(const tl_recurrence *r, tl_tensor **out_b, tl_tensor **out_lambda,
                              tl_tensor **out_decay)
{
    if (r->form->modes) return r->form->modes(r->state, out_b, out_lambda, out_decay);
    return tl_fail(r->ctx, TL_EINVAL, "recurrence: %s has no modes", r->form->name);
}

/* As t is real, mode m - j is the conjugate of mode j: only those up to period/2 are given. The
** published form lacks mode 0, which is zero, and its period has one position more than there are
** lags (etsc.c). */
tl_status tl_recurrence_from_modes(tl_tensor *b, tl_tensor *decay, tl_recurrence_kind kind,
                                   int64_t lags, int64_t period, int64_t sequences,
                                   tl_recurrence **out_r)
{
    tl_recurrence *r = NULL;
    tl_ctx        *ctx = b->ctx;
    int64_t        first = kind == TL_RECURRENCE_ETSC_PUBLISHED;
    if (b->type != TL_F32 || decay->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "recurrence: b and decay need to be float32");
    if (b->ndim != 3 || b->len < 1 || b->dims[2] != 2 || decay->ndim != 1 ||
        decay->len != b->dims[1])
        return tl_fail(ctx, TL_ESHAPE, "recurrence: b is %s and decay %s, not [modes,d,2] and [d]",
                       SHAPE(b), SHAPE(decay));
    int etsc = kind == TL_RECURRENCE_ETSC_EXACT || kind == TL_RECURRENCE_ETSC_PUBLISHED;
    if (!etsc || lags < 1 || period < lags || period - first < lags ||
        period / 2 + 1 - first != b->dims[0])
        return tl_fail(ctx, TL_EINVAL, "recurrence: %lld modes with a period of %lld for %lld lags",
                       (long long)b->dims[0], (long long)period, (long long)lags);
    tl_recurrence_size size = {.kind = kind, .b = sequences, .d = b->dims[1], .lags = lags};
    tl_status          st = recurrence_new(ctx, size, &r);
    if (st == TL_OK) st = tl_to_cpu(b);
    if (st == TL_OK) st = tl_to_cpu(decay);
    if (st == TL_OK) st = tl_decay_range("recurrence", "decay", decay, 0);
    if (st == TL_OK) st = tl_etsc_from_modes(b, decay, kind, period, sequences, &r->state);
    return recurrence_finish(st, r, out_r);
}

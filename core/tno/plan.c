/* plan.c - opens and closes a backend's plan for one problem, an operator y = T x (TNN, Eq. 4) of
** given length, channels and causality.
**
** A plan holds all that does not depend on the coefficients: options, sizes, twiddle factors,
** scratch memory. It is made once, and steps of training only execute it. What depends on
** coefficients may be stored in a cache, which the caller of an application owns.
**
** Operators, the choice of the fastest backend (choose.c) and tiles of recurrences (tile.c) all
** open their plans here, so that options are checked, and a backend is asked whether it accepts the
** problem, in one place and one order. */
#include "tno/plan.h"

#include "engine/device.h"
#include "engine/option.h"

/* Asks the backend whether it accepts the problem, and for its sizes. A backend may be a
** third-party plugin, so the sizes are checked: the number of coefficients, points times width
** times channels, must leave a margin to 2^63 for whoever computes bytes from it. */
static tl_status plan_query(tl_ctx *ctx, tl_plan *plan)
{
    const tl_tno_backend *b = plan->backend;
    const tl_tno_problem *p = &plan->problem;
    char                 *why = plan->why;
    if (!b->accepts(p, why, sizeof plan->why))
        return tl_fail(ctx, TL_EBACKEND, "backend '%s' does not take n %lld, d %lld, %s: %s",
                       b->name, (long long)p->n, (long long)p->d,
                       p->causal ? "causal" : "not causal", why[0] ? why : "it gives no reason");
    plan->points = b->points(p, NULL);
    plan->width = b->width ? b->width(p) : 1;
    while (b->params && b->params[plan->params].name) plan->params++;
    if (plan->points < 1 || plan->width < 1 || plan->points > INT64_MAX / 8 / p->d / plan->width)
        return tl_fail(ctx, TL_EBACKEND, "backend '%s' declares %lld points of width %d", b->name,
                       (long long)plan->points, plan->width);
    return TL_OK;
}

/* Finds the functions of the backend itself, or the functions of its form for the device. A plugin
** computes on the CPU; its form for a GPU is part of the device's library and is found by the
** backend's name. */
static tl_status find_form(tl_ctx *ctx, tl_device device, const tl_tno_backend *b, tl_tno_form *out)
{
    const tl_tno_form *form;
    *out = (tl_tno_form){b->plan, b->forward, b->backward, b->release, b->cache_size, NULL};
    if (device == TL_CPU) return TL_OK;
    form = ctx->engine->form ? ctx->engine->form(ctx, b->name) : NULL;
    if (!form)
        return tl_fail(ctx, TL_EBACKEND, "backend '%s' does not run on %s", b->name,
                       tl_device_name(ctx));
    *out = *form;
    return TL_OK;
}

tl_status tl_plan_open(const tl_host *h, tl_device device, const tl_tno_backend *backend,
                       const tl_tno_problem *problem, const char *const *options, tl_plan *out_p)
{
    tl_ctx *ctx = h->self;
    *out_p = (tl_plan){.backend = backend, .problem = *problem};
    tl_status st = tl_options_parse(ctx, backend, options, &out_p->values);
    out_p->problem.options = out_p->values;
    if (st == TL_OK) st = plan_query(ctx, out_p);
    if (st == TL_OK) st = find_form(ctx, device, backend, &out_p->form);
    if (st == TL_OK) st = out_p->form.plan(h, &out_p->problem, &out_p->state);
    if (st != TL_OK) tl_plan_close(out_p);
    return st;
}

void tl_plan_close(tl_plan *p)
{
    if (p->state) p->form.release(p->state);
    if (p->values) tl_options_free(p->backend, p->values);
    p->state = p->values = NULL;
}

int64_t tl_plan_cache_floats(const tl_plan *p)
{
    return p->form.cache_size ? p->form.cache_size(p->state) : 0;
}

tl_status tl_plan_forward(const tl_plan *p, const tl_tno_args *a)
{
    return p->form.forward(p->state, a);
}

/* naive.cu - computes the backend naive on a GPU, by the definition with float64 sums. */
#include "../common/apply.cuh"

typedef struct plan {
    tl_ctx  *ctx;
    gpu_band band; /* all of T */
} plan;

static tl_status naive_gpu_forward(void *state, const tl_tno_args *a)
{
    const plan *s = (const plan *)state;
    return gpu_band_apply(s->ctx, &s->band, 0, a->b, a->coef, a->x, NULL, a->y);
}

static tl_status naive_gpu_backward(void *state, const tl_tno_args *a)
{
    const plan *s = (const plan *)state;
    tl_status   st = TL_OK;
    if (a->dx) st = gpu_band_apply(s->ctx, &s->band, 1, a->b, a->coef, a->dy, NULL, a->dx);
    if (st == TL_OK && a->dcoef)
        st = gpu_band_grad(s->ctx, &s->band, a->b, a->x, a->dy, 0, a->dcoef);
    return st;
}

static tl_status naive_gpu_make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    int64_t   lags;
    tl_status st = gpu_points(h, "naive", p, &lags);
    if (st != TL_OK) return st;
    plan *s = (plan *)gpu_plan(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    s->ctx = gpu_ctx(h);
    s->band = gpu_band{p->n, p->d, lags, p->causal ? 0 : (lags - 1) / 2, 1};
    *out_plan = s;
    return TL_OK;
}

const gpu_form gpu_naive_form = {"naive", {naive_gpu_make, naive_gpu_forward, naive_gpu_backward,
                                           gpu_plan_free}};

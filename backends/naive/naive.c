/* naive.c - computes the operator by its definition, in plain loops with float64 sums. It is never
** optimised, because every other backend is tested against it. */
#include "../common/lag.h"

typedef struct plan {
    const tl_host *h;
    tl_tno_problem p;
} plan;

static tl_status naive_make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    plan *s = h->alloc(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    *s = (plan){h, *p};
    *out_plan = s;
    return TL_OK;
}

static void naive_release(void *state)
{
    plan *s = state;
    s->h->free(s->h, s);
}

/* y[b,i,c] = the sum over j of t[i-j,c] x[b,j,c] */
static tl_status naive_forward(void *state, const tl_tno_args *a)
{
    const tl_tno_problem *p = &((plan *)state)->p;
    int64_t n = p->n, d = p->d, zero = lag_zero(p);
    for (int64_t b = 0; b < a->b; b++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < d; c++) {
                double sum = 0;
                for (int64_t j = 0; j < (p->causal ? i + 1 : n); j++)
                    sum += (double)a->coef[(zero + i - j) * d + c] * a->x[(b * n + j) * d + c];
                a->y[(b * n + i) * d + c] = (float)sum;
            }
    return TL_OK;
}

/* dx[b,j,c] = the sum over i of t[i-j,c] dy[b,i,c] */
static void input_gradient(const tl_tno_problem *p, const tl_tno_args *a)
{
    int64_t n = p->n, d = p->d, zero = lag_zero(p);
    for (int64_t b = 0; b < a->b; b++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t c = 0; c < d; c++) {
                double sum = 0;
                for (int64_t i = p->causal ? j : 0; i < n; i++)
                    sum += (double)a->coef[(zero + i - j) * d + c] * a->dy[(b * n + i) * d + c];
                a->dx[(b * n + j) * d + c] = (float)sum;
            }
}

/* dt[k,c] = the sum over b and i of dy[b,i,c] x[b,i-k,c] */
static void coef_gradient(const tl_tno_problem *p, const tl_tno_args *a)
{
    int64_t n = p->n, d = p->d, zero = lag_zero(p);
    for (int64_t k = -zero; k < n; k++)
        for (int64_t c = 0; c < d; c++) {
            double sum = 0;
            for (int64_t b = 0; b < a->b; b++)
                for (int64_t i = k > 0 ? k : 0; i < n && i - k < n; i++)
                    sum += (double)a->dy[(b * n + i) * d + c] * a->x[(b * n + i - k) * d + c];
            a->dcoef[(zero + k) * d + c] = (float)sum;
        }
}

static tl_status naive_backward(void *state, const tl_tno_args *a)
{
    const tl_tno_problem *p = &((plan *)state)->p;
    if (a->dx) input_gradient(p, a);
    if (a->dcoef) coef_gradient(p, a);
    return TL_OK;
}

static tl_status naive_dense(void *state, const tl_tno_args *a)
{
    const tl_tno_problem *p = &((plan *)state)->p;
    lag_dense(p->n, p->d, p->causal, a->coef, a->dense);
    return TL_OK;
}

static int naive_accepts(const tl_tno_problem *p, char *why, size_t size)
{
    (void)p;
    (void)why;
    (void)size;
    return 1;
}

const tl_tno_backend tl_tno_backend_entry = {
    .abi = TL_TNO_ABI,
    .name = "naive",
    .summary = "the definition: plain loops, float64 sums, never optimised",
    .domain = "lag",
    .accepts = naive_accepts,
    .points = lag_points,
    .plan = naive_make,
    .forward = naive_forward,
    .backward = naive_backward,
    .dense = naive_dense,
    .release = naive_release,
};

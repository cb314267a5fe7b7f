/* rac.cu - computes the backend rac on a GPU: in one kernel where a block's shared memory holds a
** sequence, as fft does where it does not. */
#include "../common/apply.cuh"
#include "fused.cuh"

typedef struct plan {
    int             fits; /* whether one is set, or the other */
    fused           one;
    gpu_convolution other;
} plan;

static tl_status rac_gpu_forward(void *state, const tl_tno_args *a)
{
    const plan *s = (const plan *)state;
    return s->fits ? fused_forward(&s->one, a) : gpu_convolve(&s->other, a);
}

static tl_status rac_gpu_backward(void *state, const tl_tno_args *a)
{
    const plan *s = (const plan *)state;
    return s->fits ? fused_backward(&s->one, a) : gpu_convolve_back(&s->other, a);
}

static int64_t rac_gpu_cache_size(void *state)
{
    const plan *s = (const plan *)state;
    return s->fits ? fused_cache_size(&s->one) : gpu_convolution_cache_size(&s->other);
}

/* The points are all lags, or the nearest ones if an option limits them. */
static tl_status rac_gpu_make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    int64_t   lags;
    tl_status st = gpu_points(h, "rac", p, &lags);
    if (st != TL_OK) return st;
    plan *s = (plan *)gpu_plan(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    int64_t zero = p->causal ? 0 : (lags - 1) / 2;
    s->fits = fused_set(&s->one, gpu_ctx(h), p->n, p->d, zero, lags);
    if (!s->fits) gpu_convolution_set(&s->other, gpu_ctx(h), p->n, p->d, zero, lags);
    *out_plan = s;
    return TL_OK;
}

/* By the bytes that it moves. No GPU has timed it, so GPUs are measured, at all lengths but the
** shortest, at which matrix is the fastest. */
static tl_auto_length rac_gpu_auto_length(const tl_ctx *ctx, int causal)
{
    (void)causal;
    int64_t longest = fused_longest(ctx);
    return gpu_auto_length(longest, 129, longest);
}

const gpu_form gpu_rac_form = {"rac", {rac_gpu_make, rac_gpu_forward, rac_gpu_backward,
                                       gpu_plan_free, rac_gpu_cache_size, rac_gpu_auto_length}};

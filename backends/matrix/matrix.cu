/* matrix.cu - computes the backend matrix on a GPU: multiplies by T on tensor cores without writing
** it. */
#include "../common/apply.cuh"
#include "tiles.cuh"

typedef struct plan {
    tl_ctx *ctx;
    band    t;
} plan;

/* The words of bf16 of a number: float32 keeps all its digits, and tf32 has 11. */
static int copies_of(const tl_ctx *ctx)
{
    return ctx->precision == TL_PRECISION_BF16 ? 1 : ctx->precision == TL_PRECISION_TF32 ? 2 : 3;
}

static tl_status matrix_gpu_forward(void *state, const tl_tno_args *a)
{
    const plan *s = (const plan *)state;
    band        t = s->t;
    t.b = a->b;
    if (t.b == 0) return TL_OK;
    return toeplitz_apply(s->ctx, &t, copies_of(s->ctx), 0, a->coef, a->x, a->y);
}

static tl_status matrix_gpu_backward(void *state, const tl_tno_args *a)
{
    const plan *s = (const plan *)state;
    band        t = s->t;
    int64_t     lags = (int64_t)t.last - t.first + 1;
    tl_status   st = TL_OK;
    t.b = a->b;
    if (t.b == 0) return a->dcoef ? gpu_clear(s->ctx, a->dcoef, (size_t)(lags * t.d) * 4) : TL_OK;
    if (a->dx) st = toeplitz_apply(s->ctx, &t, copies_of(s->ctx), 1, a->coef, a->dy, a->dx);
    if (st == TL_OK && a->dcoef)
        st = toeplitz_gradient(s->ctx, &t, copies_of(s->ctx), a->x, a->dy, a->dcoef);
    return st;
}

/* The lengths up to which a causal forward and backward pass takes less time than by transforms, by
** the times on an H100 in docs/gpu.md; for tf32 between those of 512 and 2,048. Without causality T
** has twice as many tiles. */
static tl_auto_length matrix_gpu_auto_length(const tl_ctx *ctx, int causal)
{
    static const int64_t lengths[] = {0, 2048, 1024, 512}; /* by words */
    int64_t length = lengths[copies_of(ctx)] / (causal ? 1 : 2);
    return gpu_auto_length(length, length / 4 + 1, length * 4);
}

#define MAX_SIZE (1 << 30) /* rows of T, and channels: places are of type int */

static tl_status matrix_gpu_make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    int64_t   lags;
    tl_status st = gpu_points(h, "matrix", p, &lags);
    if (st != TL_OK) return st;
    if (p->n > MAX_SIZE || p->d > MAX_SIZE)
        return h->fail(h, TL_EBACKEND, "matrix: at most %d rows and channels on a GPU", MAX_SIZE);
    plan *s = (plan *)gpu_plan(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    int zero = p->causal ? 0 : (int)((lags - 1) / 2);
    *s = plan{gpu_ctx(h), {0, (int)p->n, (int)p->d, -zero, (int)lags - 1 - zero}};
    *out_plan = s;
    return TL_OK;
}

const gpu_form gpu_matrix_form = {"matrix", {matrix_gpu_make, matrix_gpu_forward,
                                             matrix_gpu_backward, gpu_plan_free, NULL,
                                             matrix_gpu_auto_length}};

/* optim.cu - one step of Adam and of gradient descent, and the sum of squares. */
#include <math.h>

#include "cuda.cuh"

typedef struct adam { /* as optim.c's */
    float beta1, beta2, rest1, rest2, eps, scale, coupled, decoupled, step, root;
} adam;

static __global__ void adam_each(adam a, const float *grad, float *p, float *m, float *v, int64_t n)
{
    EACH(i, n)
    {
        float g = grad[i] * a.scale + a.coupled * p[i];
        m[i] = a.beta1 * m[i] + a.rest1 * g;
        v[i] = a.beta2 * v[i] + a.rest2 * g * g;
        p[i] = p[i] - a.decoupled * p[i] - a.step * (m[i] / (a.root * sqrtf(v[i]) + a.eps));
    }
}

/* adam: in: grad   out: p, m, v   i: kind, step   f: lr, beta1, beta2, eps, weight decay, scale */
static tl_status adam_step(tl_ctx *ctx, const tl_args *a)
{
    double lr = a->f[0], t = (double)a->i[1], bias1 = 1 - pow(a->f[1], t);
    double root2 = sqrt(1 - pow(a->f[2], t));
    int    fairseq = a->i[0] == TL_ADAM_FAIRSEQ, coupled = a->i[0] == TL_ADAM;
    int64_t n = a->out[0]->len;
    adam   j;
    j.beta1 = (float)a->f[1];
    j.beta2 = (float)a->f[2];
    j.rest1 = (float)(1 - a->f[1]);
    j.rest2 = (float)(1 - a->f[2]);
    j.eps = (float)a->f[3];
    j.scale = (float)a->f[5];
    j.coupled = coupled ? (float)a->f[4] : 0;
    j.decoupled = coupled ? 0 : (float)(lr * a->f[4]);
    j.step = (float)(fairseq ? lr * root2 / bias1 : lr / bias1);
    j.root = (float)(fairseq ? 1 : 1 / root2);
    if (n == 0) return TL_OK;
    LAUNCH(adam_each, blocks_for(n), THREADS, j, F32(a->in[0]), F32(a->out[0]), F32(a->out[1]),
           F32(a->out[2]), n);
    return launched(ctx, "adam");
}

static __global__ void sgd_each(const float *grad, float *p, float *buf, float lr, float momentum,
                                float decay, float scale, int64_t n)
{
    EACH(i, n)
    {
        float g = grad[i] * scale + decay * p[i];
        if (buf) g = buf[i] = momentum * buf[i] + g;
        p[i] -= lr * g;
    }
}

/* sgd: in: grad   out: p, buf or NULL   f: lr, momentum, weight decay, scale */
static tl_status sgd(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    if (n == 0) return TL_OK;
    LAUNCH(sgd_each, blocks_for(n), THREADS, F32(a->in[0]), F32(a->out[0]),
           a->out[1] ? F32(a->out[1]) : (float *)NULL, (float)a->f[0], (float)a->f[1],
           (float)a->f[2], (float)a->f[3], n);
    return launched(ctx, "sgd");
}

/* ---- Sum of squares -------------------------------------------------------------------------- */

#define MOST 512 /* blocks: partial sums brought to the CPU */

static __global__ void squares(const float *x, double *sums, int64_t n)
{
    __shared__ double scratch[THREADS / 32];
    double sum = 0;
    EACH(i, n) sum += (double)x[i] * (double)x[i];
    sum = block_reduce(sum, add(), scratch);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/* norm2: *(double *)p += sum of in[0]^2 */
static tl_status norm2(tl_ctx *ctx, const tl_args *a)
{
    double  sums[MOST], *parts;
    int64_t n = a->in[0]->len, blocks = blocks_for(n) < MOST ? blocks_for(n) : MOST;
    if (n == 0) return TL_OK;
    tl_status st = card_alloc(ctx, (size_t)blocks * sizeof *parts, (void **)&parts);
    if (st != TL_OK) return st;
    LAUNCH_SYNC(squares, blocks, THREADS, F32(a->in[0]), parts, n);
    st = launched(ctx, "norm2");
    if (st == TL_OK)
        st = ctx->engine->download(ctx, sums, parts, (size_t)blocks * sizeof *parts);
    card_free(ctx, parts);
    for (int64_t i = 0; i < blocks && st == TL_OK; i++) *(double *)a->p += sums[i];
    return st;
}

const tl_kernel_row card_optim[] = {
    {TL_OP_adam, adam_step}, {TL_OP_sgd, sgd}, {TL_OP_norm2, norm2}, {}};

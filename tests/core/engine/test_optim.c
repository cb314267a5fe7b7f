/* test_optim.c - optimisers against the same updates in float64. */
#include <string.h>

#include "test.h"

#define N 50021 /* enough for several threads */

typedef struct state { /* one parameter in float64 */
    double p, m, v;
} state;

static tl_tensor *filled(tl_ctx *ctx, int64_t n, tl_stream *s, double scale)
{
    tl_tensor *t = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 1, &n, &t), TL_OK);
    if (scale != 0) CHECK_STATUS(tl_random_normal(t, s, 0, scale), TL_OK);
    return t;
}

/* The update as its paper or program writes it. */
static void adam_reference(state *x, double g, const tl_adam_options *o)
{
    double t = (double)o->step, bias1 = 1 - pow(o->beta1, t), bias2 = 1 - pow(o->beta2, t);
    if (o->kind == TL_ADAM_L2) g += o->weight_decay * x->p;
    if (o->kind != TL_ADAM_L2) x->p -= o->lr * o->weight_decay * x->p;
    x->m = o->beta1 * x->m + (1 - o->beta1) * g;
    x->v = o->beta2 * x->v + (1 - o->beta2) * g * g;
    if (o->kind == TL_ADAM_FAIRSEQ)
        x->p -= o->lr * sqrt(bias2) / bias1 * x->m / (sqrt(x->v) + o->eps);
    else
        x->p -= o->lr / bias1 * x->m / (sqrt(x->v) / sqrt(bias2) + o->eps);
}

static void run_adam(tl_adam_kind kind, double eps, int threads)
{
    static state    x[N];
    tl_ctx         *ctx = NULL;
    tl_stream       s = tl_stream_new(1, "optim");
    tl_adam_options o = {sizeof o, kind, 0.01, 0.9, 0.98, eps, 0.2, 0};
    double          worst = 0;
    CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
    tl_tensor *p = filled(ctx, N, &s, 1), *m = filled(ctx, N, &s, 0), *v = filled(ctx, N, &s, 0);
    CHECK_STATUS(tl_set_requires_grad(p, 1), TL_OK);
    for (int64_t i = 0; i < N; i++) x[i] = (state){.p = (double)tl_tensor_cf32(p)[i]};
    for (o.step = 1; o.step <= 5; o.step++) {
        tl_tensor *g = filled(ctx, N, &s, 0.3);
        CHECK_STATUS(tl_set_grad(p, g), TL_OK);
        CHECK_STATUS(tl_adam_step(&p, &m, &v, 1, &o, 0.5), TL_OK);
        for (int64_t i = 0; i < N; i++)
            adam_reference(&x[i], 0.5 * (double)tl_tensor_cf32(g)[i], &o);
        tl_tensor_free(g);
    }
    for (int64_t i = 0; i < N; i++) {
        worst = worse(worst, fabs((double)tl_tensor_cf32(p)[i] - x[i].p));
        worst = worse(worst, fabs((double)tl_tensor_cf32(m)[i] - x[i].m));
        worst = worse(worst, fabs((double)tl_tensor_cf32(v)[i] - x[i].v));
    }
    CHECK(worst < 2e-6);
    tl_tensor_free(p);
    tl_tensor_free(m);
    tl_tensor_free(v);
    tl_ctx_free(ctx);
}

static void adam(void) { run_adam(TL_ADAM_L2, 1e-6, 1); }
static void adamw(void) { run_adam(TL_ADAM_DECOUPLED, 1e-6, 2); }
static void fairseq(void) { run_adam(TL_ADAM_FAIRSEQ, 1e-6, 3); }

/* With a large eps the place of the bias correction shows: the three must not be one formula. */
static void large_eps(void)
{
    run_adam(TL_ADAM_L2, 0.5, 1);
    run_adam(TL_ADAM_DECOUPLED, 0.5, 1);
    run_adam(TL_ADAM_FAIRSEQ, 0.5, 1);
}

/* Computed on paper: p = 1, g = 0.5, lr = 0.1, wd = 0.1, betas 0.9 and 0.99, eps 0.25, first step.
** m = 0.05, v = 0.0025; with the bias corrections 0.1 and 0.01, m/0.1 = 0.5, sqrt(v/0.01) = 0.5. */
static void first_step(void)
{
    static const struct {
        tl_adam_kind kind;
        double       p;
    } cases[] = {
        {TL_ADAM_DECOUPLED, 1 - 0.01 - 0.1 * 0.5 / 0.75}, /* 0.923333 */
        {TL_ADAM_FAIRSEQ, 1 - 0.01 - 0.1 * 0.05 / (0.05 + 0.25)}, /* 0.973333; step 0.1 0.1/0.1 */
        {TL_ADAM_L2, 1 - 0.1 * 0.6 / 0.85}, /* 0.929412; g = 0.5 + 0.1 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tl_ctx         *ctx = NULL;
        tl_stream       s = tl_stream_new(1, "optim");
        tl_adam_options o = {sizeof o, cases[i].kind, 0.1, 0.9, 0.99, 0.25, 0.1, 1};
        CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
        tl_tensor *p = filled(ctx, 1, &s, 0), *m = filled(ctx, 1, &s, 0);
        tl_tensor *v = filled(ctx, 1, &s, 0), *g = filled(ctx, 1, &s, 0);
        CHECK_STATUS(tl_tensor_fill(p, 1), TL_OK);
        CHECK_STATUS(tl_tensor_fill(g, 0.5), TL_OK);
        CHECK_STATUS(tl_set_requires_grad(p, 1), TL_OK);
        CHECK_STATUS(tl_set_grad(p, g), TL_OK);
        CHECK_STATUS(tl_adam_step(&p, &m, &v, 1, &o, 1), TL_OK);
        CHECK_NEAR((double)tl_tensor_cf32(p)[0], cases[i].p, 2e-7);
        tl_tensor_free(p);
        tl_tensor_free(m);
        tl_tensor_free(v);
        tl_tensor_free(g);
        tl_ctx_free(ctx);
    }
}

static void sgd(void)
{
    static const double momenta[] = {0, 0.9};
    for (int k = 0; k < 2; k++) {
        tl_ctx   *ctx = NULL;
        tl_stream s = tl_stream_new(2, "optim");
        CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
        tl_tensor *p = filled(ctx, N, &s, 1), *buf = filled(ctx, N, &s, 0);
        double     x = (double)tl_tensor_cf32(p)[N - 1], b = 0;
        CHECK_STATUS(tl_set_requires_grad(p, 1), TL_OK);
        for (int step = 0; step < 4; step++) {
            tl_tensor *g = filled(ctx, N, &s, 0.3);
            double     d = 2 * (double)tl_tensor_cf32(g)[N - 1] + 0.1 * x;
            CHECK_STATUS(tl_set_grad(p, g), TL_OK);
            CHECK_STATUS(tl_sgd_step(&p, k ? &buf : NULL, 1, 0.05, momenta[k], 0.1, 2), TL_OK);
            b = momenta[k] * b + d;
            x -= 0.05 * b;
            tl_tensor_free(g);
        }
        CHECK_NEAR((double)tl_tensor_cf32(p)[N - 1], x, 1e-6);
        tl_tensor_free(p);
        tl_tensor_free(buf);
        tl_ctx_free(ctx);
    }
}

/* The norm of all gradients, the same bits for any threads; no gradient counts as 0. */
static void grad_norm(void)
{
    double first = 0;
    for (int threads = 1; threads <= 5; threads++) {
        tl_ctx   *ctx = NULL;
        tl_stream s = tl_stream_new(3, "optim");
        double    sum = 0, norm = -1;
        CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
        tl_tensor *p[3] = {filled(ctx, 5 * N, &s, 1), filled(ctx, 1, &s, 1), filled(ctx, 7, &s, 1)};
        for (int i = 0; i < 3; i++) {
            CHECK_STATUS(tl_set_requires_grad(p[i], 1), TL_OK);
            if (i < 2) CHECK_STATUS(tl_set_grad(p[i], p[i]), TL_OK);
            for (int64_t e = 0; i < 2 && e < tl_tensor_len(p[i]); e++)
                sum += (double)tl_tensor_cf32(p[i])[e] * (double)tl_tensor_cf32(p[i])[e];
        }
        CHECK_STATUS(tl_grad_norm(p, 3, &norm), TL_OK);
        CHECK_NEAR(norm, sqrt(sum), 1e-9 * sqrt(sum));
        if (threads == 1) first = norm;
        CHECK(norm == first);
        for (int i = 0; i < 3; i++) {
            CHECK_STATUS(tl_set_grad(p[i], NULL), TL_OK); /* it was its own gradient */
            tl_tensor_free(p[i]);
        }
        CHECK_STATUS(tl_grad_norm(NULL, 0, &norm), TL_OK);
        CHECK(norm == 0);
        tl_ctx_free(ctx);
    }
}

static void without_gradient(void)
{
    tl_ctx         *ctx = NULL;
    tl_stream       s = tl_stream_new(4, "optim");
    tl_adam_options o = {sizeof o, TL_ADAM_DECOUPLED, 0.1, 0.9, 0.98, 1e-8, 0.5, 1};
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    tl_tensor *p = filled(ctx, 4, &s, 1), *m = filled(ctx, 4, &s, 0), *v = filled(ctx, 4, &s, 0);
    float      before = tl_tensor_cf32(p)[2];
    CHECK_STATUS(tl_adam_step(&p, &m, &v, 1, &o, 1), TL_OK);
    CHECK_STATUS(tl_sgd_step(&p, NULL, 1, 0.1, 0, 0.5, 1), TL_OK);
    CHECK(tl_tensor_cf32(p)[2] == before);
    tl_tensor_free(p);
    tl_tensor_free(m);
    tl_tensor_free(v);
    tl_ctx_free(ctx);
}

/* A wrong shape among the second parameter's moments leaves the first one alone too. */
static void refuses(void)
{
    tl_ctx         *ctx = NULL;
    tl_stream       s = tl_stream_new(4, "optim");
    tl_adam_options o = {sizeof o, TL_ADAM_DECOUPLED, 0.1, 0.9, 0.98, 1e-8, 0.5, 1}, bad = o;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    tl_tensor *p[2] = {filled(ctx, 4, &s, 1), filled(ctx, 4, &s, 1)};
    tl_tensor *m[2] = {filled(ctx, 4, &s, 0), filled(ctx, 3, &s, 0)};
    float      before = tl_tensor_cf32(p[0])[0];
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(tl_set_requires_grad(p[i], 1), TL_OK);
        CHECK_STATUS(tl_set_grad(p[i], m[0]), TL_OK);
    }
    CHECK_STATUS(tl_adam_step(p, m, m, 2, &o, 1), TL_ESHAPE);
    CHECK_STATUS(tl_sgd_step(p, m, 2, 0.1, 0.9, 0.5, 1), TL_ESHAPE);
    CHECK_STATUS(tl_sgd_step(p, NULL, 2, 0.1, 0.9, 0.5, 1), TL_EINVAL);
    tl_tensor *none[2] = {m[0], NULL};
    CHECK_STATUS(tl_adam_step(p, none, m, 2, &o, 1), TL_EINVAL);
    CHECK_STATUS(tl_adam_step(p, none, none, 2, &o, 1), TL_EINVAL);
    CHECK_STATUS(tl_sgd_step(p, none, 2, 0.1, 0.9, 0.5, 1), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "sgd: parameter 2 has no momentum buffer"));
    bad.bytes = sizeof o - 8;
    CHECK_STATUS(tl_adam_step(p, p, p, 1, &bad, 1), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "adam: options.bytes is "));
    bad = o;
    bad.step = 0;
    CHECK_STATUS(tl_adam_step(p, p, p, 1, &bad, 1), TL_EINVAL);
    bad = o;
    bad.beta2 = 1;
    CHECK_STATUS(tl_adam_step(p, p, p, 1, &bad, 1), TL_EINVAL);
    CHECK(tl_tensor_cf32(p[0])[0] == before);
    for (int i = 0; i < 2; i++) {
        tl_tensor_free(p[i]);
        tl_tensor_free(m[i]);
    }
    tl_ctx_free(ctx);
}

int main(void)
{
    return run_tests((const test[]){{"adam", adam},
                                    {"adamw", adamw},
                                    {"fairseq", fairseq},
                                    {"a large eps", large_eps},
                                    {"the first step of each optimiser", first_step},
                                    {"sgd", sgd},
                                    {"gradient norm", grad_norm},
                                    {"no gradient, no step", without_gradient},
                                    {"refuses", refuses},
                                    {0}});
}

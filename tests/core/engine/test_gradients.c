/* test_gradients.c - every differentiable operator of toeplab.h against differences of values. */
#include "base/memory.h"
#include "gradients.h"
#include "operations.h"

/* ---- The tables ------------------------------------------------------------------------------ */

#define UNARY(kind, domain)                                                       \
    {#kind, unary, 1, .in = {{domain, 2, {3, 5}}}, .i = {TL_UNARY_##kind}}, \
        {#kind " of one number", unary, 1, .in = {{domain, 0, {0}}}, .i = {TL_UNARY_##kind}},
#define GATE(kind, domain) \
    {"gate " #kind, gate, 2, .in = {{domain, 2, {3, 5}}, {ANY, 2, {3, 5}}}, .i = {TL_UNARY_##kind}},
/* Every way in which one operand is stretched to the other. */
#define BINARY(kind, a, b)                                                                  \
    {#kind, binary, 2, .in = {{a, 2, {3, 4}}, {b, 2, {3, 4}}}, .i = {kind}}, \
        {#kind " suffix", binary, 2, .in = {{a, 3, {2, 3, 4}}, {b, 1, {4}}}, .i = {kind}}, \
        {#kind " suffix of two", binary, 2, \
         .in = {{a, 2, {3, 4}}, {b, 3, {2, 3, 4}}}, .i = {kind}}, \
        {#kind " number", binary, 2, .in = {{a, 2, {3, 4}}, {b, 0, {0}}}, .i = {kind}}, \
        {#kind " of number", binary, 2, .in = {{a, 0, {0}}, {b, 2, {3, 4}}}, .i = {kind}}, \
        {#kind " column", binary, 2, .in = {{a, 2, {3, 4}}, {b, 2, {3, 1}}}, .i = {kind}}, \
        {#kind " outer", binary, 2, .in = {{a, 2, {3, 1}}, {b, 2, {1, 4}}}, .i = {kind}}, \
        {#kind " middle", binary, 2, .in = {{a, 3, {2, 3, 4}}, {b, 3, {2, 1, 4}}}, .i = {kind}}, \
        {#kind " both ways", binary, 2, \
         .in = {{a, 4, {2, 1, 3, 1}}, {b, 3, {4, 1, 2}}}, .i = {kind}},

static const gradient_case elementwise[] = {
    UNARY(identity, ANY) UNARY(neg, ANY) UNARY(abs, AWAY) UNARY(square, ANY) UNARY(sqrt, POSITIVE)
    UNARY(rsqrt, POSITIVE) UNARY(reciprocal, POSITIVE) UNARY(exp, ANY) UNARY(log, POSITIVE)
    UNARY(sin, ANY) UNARY(cos, ANY) UNARY(tanh, ANY) UNARY(sigmoid, ANY) UNARY(relu, AWAY)
    UNARY(relu2, AWAY) UNARY(leaky_relu, AWAY) UNARY(elu, AWAY) UNARY(elu1, AWAY) UNARY(silu, ANY)
    UNARY(gelu, ANY) UNARY(gelu_tanh, ANY) UNARY(softplus, ANY) UNARY(elu2, AWAY)
    GATE(identity, ANY) GATE(sigmoid, ANY) GATE(relu, AWAY) GATE(silu, ANY) GATE(gelu, ANY)
    GATE(tanh, ANY) GATE(relu2, AWAY)
    BINARY(TL_BINARY_ADD, ANY, ANY) BINARY(TL_BINARY_SUB, ANY, ANY) BINARY(TL_BINARY_MUL, ANY, ANY)
    BINARY(TL_BINARY_DIV, ANY, POSITIVE) BINARY(TL_BINARY_MAX, HALVES, QUARTERS)
    BINARY(TL_BINARY_MIN, HALVES, QUARTERS) BINARY(TL_BINARY_POW, POSITIVE, ANY)
    {"affine", affine, 1, .in = {{ANY, 2, {3, 4}}}, .f = {-2.5, 3}},
    {"dropout", dropout, 1, .in = {{ANY, 2, {9, 7}}}, .f = {0.4}},
    {"dropout of nothing", dropout, 1, .in = {{ANY, 1, {5}}}, .f = {0}},
    {0},
};

static const gradient_case products[] = {
    {"matmul", matmul, 2, .in = {{ANY, 2, {3, 4}}, {ANY, 2, {4, 5}}}},
    {"matmul a^T", matmul, 2, .in = {{ANY, 2, {4, 3}}, {ANY, 2, {4, 5}}}, .i = {1, 0}},
    {"matmul b^T", matmul, 2, .in = {{ANY, 2, {3, 4}}, {ANY, 2, {5, 4}}}, .i = {0, 1}},
    {"matmul a^T b^T", matmul, 2, .in = {{ANY, 2, {4, 3}}, {ANY, 2, {5, 4}}}, .i = {1, 1}},
    {"matmul 1 1 1", matmul, 2, .in = {{ANY, 2, {1, 1}}, {ANY, 2, {1, 1}}}},
    {"matmul batched", matmul, 2, .in = {{ANY, 4, {2, 1, 3, 4}}, {ANY, 4, {2, 1, 4, 2}}}},
    {"matmul batched a^T", matmul, 2,
     .in = {{ANY, 3, {2, 4, 3}}, {ANY, 3, {2, 4, 2}}}, .i = {1, 0}},
    {"matmul batched b^T", matmul, 2,
     .in = {{ANY, 3, {2, 3, 4}}, {ANY, 3, {2, 2, 4}}}, .i = {0, 1}},
    {"matmul batched a^T b^T", matmul, 2,
     .in = {{ANY, 3, {2, 4, 3}}, {ANY, 3, {2, 2, 4}}}, .i = {1, 1}},
    {"matmul folded", matmul, 2, .in = {{ANY, 3, {2, 3, 4}}, {ANY, 2, {4, 5}}}},
    {"matmul folded b^T", matmul, 2, .in = {{ANY, 3, {2, 3, 4}}, {ANY, 2, {5, 4}}}, .i = {0, 1}},
    {"linear", linear, 3, .in = {{ANY, 3, {2, 3, 4}}, {ANY, 2, {5, 4}}, {ANY, 1, {5}}}},
    {"linear no bias", linear, 2, .in = {{ANY, 2, {3, 4}}, {ANY, 2, {5, 4}}}},
    {"linear 1", linear, 3, .in = {{ANY, 2, {1, 1}}, {ANY, 2, {1, 1}}, {ANY, 1, {1}}}},
    {"linear of a vector", linear, 3, .in = {{ANY, 1, {4}}, {ANY, 2, {5, 4}}, {ANY, 1, {5}}}},
    {"conv causal", conv, 2, .in = {{ANY, 3, {2, 6, 3}}, {ANY, 2, {4, 3}}}},
    {"conv centred", conv, 2, .in = {{ANY, 3, {2, 6, 3}}, {ANY, 2, {5, 3}}}, .i = {2}},
    {"conv anticausal", conv, 2, .in = {{ANY, 3, {1, 5, 2}}, {ANY, 2, {3, 2}}}, .i = {2}},
    {"conv longer than x", conv, 2, .in = {{ANY, 3, {2, 3, 2}}, {ANY, 2, {9, 2}}}, .i = {4}},
    {"conv 1", conv, 2, .in = {{ANY, 3, {1, 1, 1}}, {ANY, 2, {1, 1}}}},
    {"selective scan", selective, 6,
     .in = {{ANY, 3, {2, 5, 3}}, {FRACTION, 3, {2, 5, 3}}, {NEGATIVE, 2, {3, 2}},
            {ANY, 3, {2, 5, 2}}, {ANY, 3, {2, 5, 2}}, {ANY, 1, {3}}}},
    {"selective scan no skip", selective, 5,
     .in = {{ANY, 3, {1, 4, 2}}, {FRACTION, 3, {1, 4, 2}}, {NEGATIVE, 2, {2, 3}},
            {ANY, 3, {1, 4, 3}}, {ANY, 3, {1, 4, 3}}}},
    {"linear recurrence", linear_recurrence, 4,
     .in = {{ANY, 4, {2, 4, 2, 3}}, {ANY, 4, {2, 4, 2, 3}}, {ANY, 4, {2, 4, 2, 2}},
            {NEGATIVE, 4, {2, 4, 2, 3}}}},
    {"linear recurrence, decay of a head", linear_recurrence, 4,
     .in = {{ANY, 4, {2, 4, 2, 3}}, {ANY, 4, {2, 4, 2, 3}}, {ANY, 4, {2, 4, 2, 2}},
            {NEGATIVE, 4, {2, 4, 2, 1}}}},
    {"cauchy", cauchy, 2, .in = {{ANY, 4, {3, 2, 4, 2}}, {NEGATIVE, 3, {2, 4, 2}}}, .i = {5, 0}},
    {"cauchy, pairs", cauchy, 2, .in = {{ANY, 4, {3, 2, 4, 2}}, {NEGATIVE, 3, {2, 4, 2}}},
     .i = {5, 1}},
    {0},
};

static const gradient_case shapes[] = {
    {"sum", reduce, 1, .in = {{ANY, 3, {2, 3, 4}}}, .i = {TL_REDUCE_SUM, TL_ALL_AXES}},
    {"sum first", reduce, 1, .in = {{ANY, 3, {2, 3, 4}}}, .i = {TL_REDUCE_SUM, 0}},
    {"sum middle", reduce, 1, .in = {{ANY, 3, {2, 3, 4}}}, .i = {TL_REDUCE_SUM, 1}},
    {"sum last kept", reduce, 1, .in = {{ANY, 3, {2, 3, 4}}}, .i = {TL_REDUCE_SUM, -1, 1}},
    {"mean", reduce, 1, .in = {{ANY, 2, {3, 4}}}, .i = {TL_REDUCE_MEAN, TL_ALL_AXES}},
    {"mean middle", reduce, 1, .in = {{ANY, 3, {2, 3, 4}}}, .i = {TL_REDUCE_MEAN, 1}},
    {"mean of one number", reduce, 1, .in = {{ANY, 0, {0}}}, .i = {TL_REDUCE_MEAN, TL_ALL_AXES}},
    {"amax", reduce, 1, .in = {{SPACED, 2, {3, 4}}}, .i = {TL_REDUCE_MAX, TL_ALL_AXES}},
    {"amax first", reduce, 1, .in = {{SPACED, 2, {3, 4}}}, .i = {TL_REDUCE_MAX, 0}},
    {"amax last", reduce, 1, .in = {{SPACED, 3, {2, 3, 4}}}, .i = {TL_REDUCE_MAX, 2, 1}},
    {"cumsum first", cumsum, 1, .in = {{ANY, 3, {3, 2, 2}}}, .i = {0}},
    {"cumsum last", cumsum, 1, .in = {{ANY, 2, {2, 5}}}, .i = {-1}},
    {"cumsum 1", cumsum, 1, .in = {{ANY, 1, {1}}}, .i = {0}},
    {"reshape", reshape, 1, .in = {{ANY, 2, {3, 4}}}, .i = {2, -1, 3}},
    {"transpose", transpose, 1, .in = {{ANY, 2, {3, 4}}}, .i = {1, 0}},
    {"transpose three", transpose, 1, .in = {{ANY, 3, {2, 3, 4}}}, .i = {2, 0, 1}},
    {"transpose four", transpose, 1, .in = {{ANY, 4, {2, 3, 2, 2}}}, .i = {0, 2, 3, 1}},
    {"slice first", slice, 1, .in = {{ANY, 2, {5, 3}}}, .i = {0, 1, 3}},
    {"slice middle", slice, 1, .in = {{ANY, 3, {2, 5, 3}}}, .i = {1, 4, 1}},
    {"slice last", slice, 1, .in = {{ANY, 2, {3, 5}}}, .i = {-1, 0, 2}},
    {"concat first", concat, 3, .in = {{ANY, 2, {1, 3}}, {ANY, 2, {2, 3}}, {ANY, 2, {1, 3}}}},
    {"concat last", concat, 2, .in = {{ANY, 2, {3, 1}}, {ANY, 2, {3, 4}}}, .i = {-1}},
    {"concat one", concat, 1, .in = {{ANY, 2, {3, 1}}}, .i = {1}},
    {"gather", gather, 1, .in = {{ANY, 2, {5, 3}}}, .i = {4, 2}},
    {"gather numbers", gather, 1, .in = {{ANY, 1, {3}}}, .i = {7}},
    {"gather matrices", gather, 1, .in = {{ANY, 3, {3, 2, 2}}}, .i = {1}},
    {"batch_gather", batch_gather, 1, .in = {{ANY, 3, {2, 4, 3}}}, .i = {5}},
    {"batch_gather four", batch_gather, 1, .in = {{ANY, 4, {2, 3, 2, 2}}}, .i = {3}},
    {"batch_gather one table", batch_gather, 1, .in = {{ANY, 2, {3, 2}}}, .i = {4}},
    {"fft", fft, 1, .in = {{ANY, 3, {2, 6, 2}}}, .i = {1, 0}},
    {"fft first axis", fft, 1, .in = {{ANY, 3, {5, 2, 2}}}, .i = {0, 0}},
    {"ifft", fft, 1, .in = {{ANY, 3, {2, 6, 2}}}, .i = {1, 1}},
    {"ifft 1", fft, 1, .in = {{ANY, 2, {1, 2}}}, .i = {0, 1}},
    {"rfft even", rfft, 1, .in = {{ANY, 2, {2, 8}}}, .i = {1}},
    {"rfft odd", rfft, 1, .in = {{ANY, 2, {7, 2}}}, .i = {0}},
    {"rfft 1", rfft, 1, .in = {{ANY, 1, {1}}}, .i = {0}},
    {"irfft even", irfft, 1, .in = {{ANY, 3, {2, 5, 2}}}, .i = {1, 8}},
    {"irfft odd", irfft, 1, .in = {{ANY, 3, {4, 2, 2}}}, .i = {0, 7}},
    {"irfft 1", irfft, 1, .in = {{ANY, 2, {1, 2}}}, .i = {0, 1}},
    {0},
};

static const gradient_case rows[] = {
    {"softmax", softmax, 1, .in = {{ANY, 2, {3, 5}}}},
    {"softmax 1", softmax, 1, .in = {{ANY, 2, {3, 1}}}},
    {"softmax causal", softmax, 1, .in = {{ANY, 3, {2, 4, 4}}}, .i = {1}},
    {"log_softmax", log_softmax, 1, .in = {{ANY, 2, {3, 5}}}},
    {"attention", attention, 3,
     .in = {{ANY, 4, {2, 2, 3, 2}}, {ANY, 4, {2, 2, 4, 2}}, {ANY, 4, {2, 2, 4, 3}}}},
    {"attention causal", attention, 4,
     .in = {{ANY, 3, {4, 3, 2}}, {ANY, 3, {4, 3, 2}}, {ANY, 3, {4, 3, 3}}, {ANY, 2, {2, 5}}},
     .i = {1}},
    {"attention of a window", attention, 4,
     .in = {{ANY, 2, {4, 2}}, {ANY, 2, {5, 2}}, {ANY, 2, {5, 1}}, {ANY, 2, {1, 8}}},
     .i = {0, 2}},
    {"attention 1", attention, 3, .in = {{ANY, 2, {1, 1}}, {ANY, 2, {1, 1}}, {ANY, 2, {1, 1}}}},
    {"log_softmax 1", log_softmax, 1, .in = {{ANY, 1, {1}}}},
    {"cross_entropy", cross_entropy, 1, .in = {{ANY, 3, {2, 3, 5}}}},
    {"cross_entropy holes", cross_entropy, 1, .in = {{ANY, 2, {7, 4}}}, .i = {1}},
    {"cross_entropy one row", cross_entropy, 1, .in = {{ANY, 1, {5}}}},
    {"linear_cross_entropy", cross_entropy, 3,
     .in = {{ANY, 3, {2, 3, 4}}, {ANY, 2, {6, 4}}, {ANY, 1, {6}}}},
    {"linear_cross_entropy holes", cross_entropy, 3,
     .in = {{ANY, 2, {7, 3}}, {ANY, 2, {5, 3}}, {ANY, 1, {5}}}, .i = {1}},
    {"linear_cross_entropy no bias", cross_entropy, 2, .in = {{ANY, 2, {4, 3}}, {ANY, 2, {5, 3}}}},
    {"linear_cross_entropy 1", cross_entropy, 3,
     .in = {{ANY, 2, {1, 1}}, {ANY, 2, {1, 1}}, {ANY, 1, {1}}}},
    {"layer_norm", layer_norm, 3,
     .in = {{ANY, 2, {3, 6}}, {ANY, 1, {6}}, {ANY, 1, {6}}}, .f = {0.1}},
    {"layer_norm weight", layer_norm, 2, .in = {{ANY, 3, {2, 2, 5}}, {ANY, 1, {5}}}, .f = {0.1}},
    {"layer_norm plain", layer_norm, 1, .in = {{ANY, 1, {6}}}, .f = {0.1}},
    {"layer_norm 1", layer_norm, 3,
     .in = {{ANY, 2, {3, 1}}, {ANY, 1, {1}}, {ANY, 1, {1}}}, .f = {0.1}},
    {"rms_norm", rms_norm, 2, .in = {{AWAY, 2, {3, 6}}, {ANY, 1, {6}}}, .f = {0.1}},
    {"rms_norm plain", rms_norm, 1, .in = {{AWAY, 3, {2, 2, 5}}}, .f = {1e-6}},
    {"rms_norm 1", rms_norm, 2, .in = {{AWAY, 2, {3, 1}}, {ANY, 1, {1}}}, .f = {0.1}},
    {"simple_rms_norm", simple_rms_norm, 1, .in = {{AWAY, 2, {3, 6}}}, .f = {1e-8}},
    {"simple_rms_norm large eps", simple_rms_norm, 1, .in = {{AWAY, 2, {3, 6}}}, .f = {0.7}},
    {"simple_rms_norm 1", simple_rms_norm, 1, .in = {{AWAY, 2, {3, 1}}}, .f = {0.5}},
    {"scale_norm", scale_norm, 2, .in = {{AWAY, 2, {3, 6}}, {ANY, 1, {1}}}, .f = {1e-5}},
    {"scale_norm below eps", scale_norm, 2, .in = {{AWAY, 2, {3, 6}}, {ANY, 0, {0}}}, .f = {3}},
    {"batch_norm", batch_norm, 3,
     .in = {{ANY, 3, {3, 2, 4}}, {ANY, 1, {4}}, {ANY, 1, {4}}}, .i = {1}},
    {"batch_norm plain", batch_norm, 1, .in = {{ANY, 2, {5, 3}}}, .i = {1}},
    {"batch_norm running", batch_norm, 3, .in = {{ANY, 2, {3, 4}}, {ANY, 1, {4}}, {ANY, 1, {4}}}},
    {"batch_norm running 1", batch_norm, 2, .in = {{ANY, 2, {1, 1}}, {ANY, 1, {1}}}},
    {"decay per channel", decay, 2, .in = {{ANY, 2, {6, 3}}, {FRACTION, 1, {3}}}},
    {"decay one number", decay, 2, .in = {{ANY, 2, {4, 2}}, {FRACTION, 0, {0}}}},
    {"decay of lag -1 alone", decay, 2, .in = {{ANY, 2, {1, 1}}, {FRACTION, 1, {1}}}},
    {0},
};

static void check_table(const gradient_case *c)
{
    tl_ctx *ctx;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    for (; c->name; c++) {
        double error = gradient_error(ctx, c);
        if (error > 1) printf("%s: %.3g times the tolerance\n", c->name, error);
        CHECK(error <= 1);
    }
    CHECK(tl_memory_info(ctx).tensors == 0);
    tl_ctx_free(ctx);
}

static void check_elementwise(void) { check_table(elementwise); }
static void check_products(void) { check_table(products); }
static void check_shapes(void) { check_table(shapes); }
static void check_rows(void) { check_table(rows); }

/* No kind of function was forgotten above. */
static void check_every_unary(void)
{
    for (int kind = 0; kind < TL_UNARY_KINDS; kind++) {
        const gradient_case *c = elementwise;
        while (c->name && !(c->run == unary && c->i[0] == kind)) c++;
        if (!c->name) printf("%s is not in the table\n", tl_unary_name((tl_unary_kind)kind));
        CHECK(c->name != NULL);
    }
}

/* ---- Toeplitz operators ---------------------------------------------------------------------- */

static void fill_tno_case(gradient_case *c, tl_tno *tno, int64_t n, int64_t d)
{
    tl_tensor  *points = NULL;
    const char *name, *init;
    CHECK_STATUS(tl_tno_points(tno, &points), TL_OK);
    c->p = tno;
    c->inputs = 2 + tl_tno_param_count(tno);
    c->in[0] = (operand){ANY, 3, {2, n, d}};
    c->in[1] = (operand){ANY, 2, {tl_tensor_len(points), tl_tno_width(tno) * d}};
    for (int i = 0; i < tl_tno_param_count(tno); i++) {
        operand *o = &c->in[2 + i];
        CHECK_STATUS(tl_tno_param(tno, i, &name, &o->ndim, o->dims, &init), TL_OK);
    }
    tl_tensor_free(points);
}

/* Returns whether the backend takes the problem. */
static int check_tno(tl_ctx *ctx, const char *backend, int64_t n, int64_t d, int causal)
{
    gradient_case c = {.name = backend, .run = tno};
    tl_tno       *t;
    tl_status     st = tl_tno_new(ctx, backend, n, d, causal, NULL, &t);
    if (st == TL_EBACKEND) return 0;
    CHECK_STATUS(st, TL_OK);
    if (st != TL_OK) return 0;
    fill_tno_case(&c, t, n, d);
    double error = gradient_error(ctx, &c);
    if (error > 1)
        printf("%s n %d d %d causal %d: %.3g times the tolerance\n", backend, (int)n, (int)d,
               causal, error);
    CHECK(error <= 1);
    tl_tno_free(t);
    return 1;
}

static void check_tnos(void)
{
    static const int64_t sizes[][2] = {{1, 1}, {1, 3}, {2, 1}, {5, 2}, {8, 3}};
    tl_ctx *ctx;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    CHECK(tl_backend_count(ctx) >= 3);
    for (int i = 0; i < tl_backend_count(ctx); i++) {
        const char *name = tl_backend_name(ctx, i);
        int         taken = 0;
        for (size_t s = 0; s < 2 * sizeof sizes / sizeof *sizes; s++)
            taken += check_tno(ctx, name, sizes[s / 2][0], sizes[s / 2][1], s % 2);
        if (!taken) printf("%s takes no problem\n", name);
        CHECK(taken > 0);
    }
    tl_ctx_free(ctx);
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* Large enough for several threads, and not evenly divided by them. */
static const gradient_case large[] = {
    {"silu", unary, 1, .in = {{ANY, 2, {401, 301}}}, .i = {TL_UNARY_silu}},
    {"binary", binary, 2, .in = {{ANY, 2, {401, 301}}, {ANY, 1, {301}}}, .i = {TL_BINARY_MUL}},
    {"linear", linear, 3, .in = {{ANY, 2, {301, 67}}, {ANY, 2, {129, 67}}, {ANY, 1, {129}}}},
    {"sum", reduce, 1, .in = {{ANY, 3, {61, 71, 31}}}, .i = {TL_REDUCE_SUM, 1}},
    {"cumsum", cumsum, 1, .in = {{ANY, 3, {61, 71, 31}}}, .i = {1}},
    {"gather", gather, 1, .in = {{ANY, 2, {50, 301}}}, .i = {400}},
    {"batch_gather", batch_gather, 1, .in = {{ANY, 3, {7, 50, 301}}}, .i = {61}},
    {"dropout", dropout, 1, .in = {{ANY, 2, {401, 301}}}, .f = {0.4}},
    {"softmax causal", softmax, 1, .in = {{ANY, 3, {9, 101, 101}}}, .i = {1}},
    {"log_softmax", log_softmax, 1, .in = {{ANY, 2, {301, 401}}}},
    {"attention", attention, 3,
     .in = {{ANY, 3, {3, 201, 17}}, {ANY, 3, {3, 301, 17}}, {ANY, 3, {3, 301, 19}}}},
    {"cross_entropy", cross_entropy, 1, .in = {{ANY, 2, {301, 401}}}, .i = {1}},
    {"linear_cross_entropy", cross_entropy, 3,
     .in = {{ANY, 2, {3100, 17}}, {ANY, 2, {301, 17}}, {ANY, 1, {301}}}, .i = {1}},
    {"layer_norm", layer_norm, 3, .in = {{ANY, 2, {401, 301}}, {ANY, 1, {301}}, {ANY, 1, {301}}}},
    {"rms_norm", rms_norm, 2, .in = {{ANY, 2, {401, 301}}, {ANY, 1, {301}}}},
    {"scale_norm", scale_norm, 2, .in = {{ANY, 2, {401, 301}}, {ANY, 0, {0}}}},
    {"batch_norm", batch_norm, 3,
     .in = {{ANY, 2, {401, 301}}, {ANY, 1, {301}}, {ANY, 1, {301}}}, .i = {1}},
    {"conv", conv, 2, .in = {{ANY, 3, {5, 101, 131}}, {ANY, 2, {7, 131}}}, .i = {3}},
    {"decay", decay, 2, .in = {{ANY, 2, {401, 301}}, {FRACTION, 1, {301}}}},
    {0},
};

/* The gradient of every input of c, one after another. */
static double *gradients(const gradient_case *c, int threads, int64_t *out_len)
{
    tl_ctx    *ctx = NULL;
    tl_stream  s = tl_stream_new(1, c->name);
    tl_tensor *in[TL_ARGS] = {NULL}, *w = NULL;
    double    *all = NULL;
    int64_t    len = 0;
    CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
    for (int k = 0; k < c->inputs; k++)
        CHECK_STATUS(make_operand(ctx, c->in + k, &s, in + k), TL_OK);
    CHECK_STATUS(run_backward(ctx, c, in, (1u << c->inputs) - 1, &s, &w), TL_OK);
    for (int k = 0; k < c->inputs; k++) len += tl_tensor_len(in[k]);
    all = calloc((size_t)len, sizeof *all);
    for (int k = 0, at = 0; all && k < c->inputs; k++) {
        const float *g = tl_grad(in[k]) ? tl_tensor_cf32(tl_grad(in[k])) : NULL;
        for (int64_t e = 0; e < tl_tensor_len(in[k]); e++)
            all[at++] = g ? (double)g[e] : (double)NAN;
    }
    tl_tensor_free(w);
    free_all(in, c->inputs);
    tl_ctx_free(ctx);
    *out_len = len;
    return all;
}

/* Any number of threads gives the same up to rounding, and one number the same bits each time. */
static void check_threads(void)
{
    for (const gradient_case *c = large; c->name; c++) {
        int64_t len = 0;
        double *one = gradients(c, 1, &len), worst = 0, largest = 1e-3;
        double *three = gradients(c, 3, &len), *again = gradients(c, 3, &len);
        CHECK(one && three && again);
        for (int64_t e = 0; one && three && again && e < len; e++) {
            double off = fabs(one[e] - three[e]);
            largest = fmax(largest, fabs(one[e]));
            if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
            if (memcmp(three + e, again + e, sizeof *three) != 0) worst = INFINITY;
        }
        if (!(worst <= 1e-5 * largest)) printf("%s: off by %g of %g\n", c->name, worst, largest);
        CHECK(worst <= 1e-5 * largest);
        free(one);
        free(three);
        free(again);
    }
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* With every allocation failing in its turn an operator and its gradient say so, and lose none. */
static void run_out_of_memory(tl_ctx *ctx, const gradient_case *c)
{
    tl_status st = TL_ENOMEM;
    for (int n = 0; n < 1000 && st == TL_ENOMEM; n++) {
        tl_stream  s = tl_stream_new(1, c->name);
        tl_tensor *in[TL_ARGS] = {NULL}, *w = NULL;
        for (int k = 0; k < c->inputs; k++)
            CHECK_STATUS(make_operand(ctx, c->in + k, &s, in + k), TL_OK);
        tl_alloc_fail_after(ctx, n);
        st = run_backward(ctx, c, in, (1u << c->inputs) - 1, &s, &w);
        tl_alloc_fail_after(ctx, -1);
        tl_tensor_free(w);
        free_all(in, c->inputs);
        tl_tape_clear(ctx);
        if (tl_memory_info(ctx).tensors != 0) printf("%s, allocation %d\n", c->name, n);
        CHECK(tl_memory_info(ctx).tensors == 0);
    }
    if (st != TL_OK) printf("%s: %s\n", c->name, tl_errmsg(ctx));
    CHECK_STATUS(st, TL_OK);
}

static void check_memory(void)
{
    const gradient_case *const tables[] = {elementwise, products, shapes, rows};
    tl_ctx *ctx;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    for (int i = 0; i < 4; i++)
        for (const gradient_case *c = tables[i]; c->name; c++) run_out_of_memory(ctx, c);
    tl_ctx_free(ctx);
}

/* ---- The check itself, and the tape ---------------------------------------------------------- */

static tl_status wrong_scale(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_tensor *dx;
    tl_status  st = tl_affine(dy, 2.02, 0, &dx); /* should be 2 */
    return st == TL_OK ? tl_accumulate(ctx, node->in[0], dx) : st;
}

static tl_status no_gradient(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    (void)ctx, (void)node, (void)dy;
    return TL_OK;
}

/* y = 2 x with the gradient p */
RUN(planted)
{
    tl_ctx    *ctx = tl_tensor_ctx(in[0]);
    tl_tensor *y = NULL;
    tl_grad_fn grads[2] = {wrong_scale, no_gradient};
    int        was = tl_set_recording(ctx, 0);
    tl_status  st = tl_affine(in[0], 2, 0, &y);
    (void)tl_set_recording(ctx, was);
    if (st == TL_OK) st = tl_record(ctx, y, grads[c->i[0]], in, 1, NULL, NULL);
    return tl_finish(st, y, out);
}

static void finds_planted_faults(void)
{
    const gradient_case scale = {"planted", planted, 1, .in = {{ANY, 2, {3, 4}}}};
    const gradient_case none = {"planted", planted, 1, .in = {{ANY, 2, {3, 4}}}, .i = {1}};
    tl_ctx *ctx;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    CHECK(gradient_error(ctx, &scale) > 1);
    CHECK(isinf(gradient_error(ctx, &none)));
    tl_ctx_free(ctx);
}

int main(void)
{
    return run_tests((const test[]){{"elementwise", check_elementwise},
                                    {"every unary function", check_every_unary},
                                    {"products", check_products},
                                    {"shapes and transforms", check_shapes},
                                    {"rows", check_rows},
                                    {"toeplitz operators", check_tnos},
                                    {"threads agree", check_threads},
                                    {"out of memory", check_memory},
                                    {"planted faults are found", finds_planted_faults},
                                    {0}});
}

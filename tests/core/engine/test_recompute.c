/* test_recompute.c - gradients that are added to what is there, and results that are recomputed. */
#include "base/memory.h"
#include "operations.h"

/* ---- Adding ---------------------------------------------------------------------------------- */

/* y = f(silu(a), b) with f by i[0]: what hands the gradient of y on, unchanged, more than once. */
static tl_status shared(const gradient_case *c, tl_tensor *const *in, tl_tensor **out)
{
    tl_tensor *h = NULL, *inner = NULL;
    tl_status  st = tl_unary(TL_UNARY_silu, in[0], &h);
    if (st == TL_OK && (c->i[0] == 1 || c->i[0] == 2))
        st = tl_binary(c->i[0] == 1 ? TL_BINARY_ADD : TL_BINARY_SUB, h, in[1], &inner);
    if (st == TL_OK)
        st = c->i[0] == 3 ? tl_matmul(h, 0, h, 1, out)
                          : tl_binary(TL_BINARY_ADD, h, inner ? inner : h, out);
    tl_tensor_free(h);
    tl_tensor_free(inner);
    return st;
}

static const gradient_case added[] = {
    {"silu", unary, 1, .in = {{ANY, 2, {5, 7}}}, .i = {TL_UNARY_silu}},
    {"affine", affine, 1, .in = {{ANY, 2, {5, 7}}}, .f = {3, 1}},
    {"gate", gate, 2, .in = {{ANY, 2, {5, 7}}, {ANY, 2, {5, 7}}}, .i = {TL_UNARY_silu}},
    {"a b", matmul, 2, .in = {{ANY, 2, {5, 7}}, {ANY, 2, {7, 3}}}},
    {"a b^T", matmul, 2, .in = {{ANY, 2, {5, 7}}, {ANY, 2, {3, 7}}}, .i = {0, 1}},
    {"a^T b^T", matmul, 2, .in = {{ANY, 2, {7, 5}}, {ANY, 2, {3, 7}}}, .i = {1, 1}},
    {"many a^T b", matmul, 2, .in = {{ANY, 3, {4, 7, 5}}, {ANY, 3, {4, 7, 3}}}, .i = {1, 0}},
    {"linear", linear, 3, .in = {{ANY, 3, {2, 5, 7}}, {ANY, 2, {3, 7}}, {ANY, 1, {3}}}},
    {"row sums", binary, 2, .in = {{ANY, 2, {5, 7}}, {ANY, 1, {7}}}, .i = {TL_BINARY_MUL}},
    {"column sums", binary, 2, .in = {{ANY, 2, {5, 7}}, {ANY, 2, {5, 1}}}, .i = {TL_BINARY_MUL}},
    {"gather", gather, 1, .in = {{ANY, 2, {5, 7}}}, .i = {9}},
    {"batch_gather", batch_gather, 1, .in = {{ANY, 3, {3, 5, 7}}}, .i = {9}},
    {"layer_norm", layer_norm, 3, .in = {{ANY, 2, {5, 7}}, {ANY, 1, {7}}, {ANY, 1, {7}}}},
    {"rms_norm", rms_norm, 2, .in = {{ANY, 2, {5, 7}}, {ANY, 1, {7}}}},
    {"simple_rms_norm", simple_rms_norm, 1, .in = {{ANY, 2, {5, 7}}}, .f = {1e-8}},
    {"scale_norm", scale_norm, 2, .in = {{ANY, 2, {5, 7}}, {ANY, 0, {0}}}, .f = {1e-5}},
    {"h + h", shared, 1, .in = {{ANY, 2, {5, 7}}}},
    {"h + (h + b)", shared, 2, .in = {{ANY, 2, {5, 7}}, {ANY, 2, {5, 7}}}, .i = {1}},
    {"h + (h - b)", shared, 2, .in = {{ANY, 2, {5, 7}}, {ANY, 2, {5, 7}}}, .i = {2}},
    {"h h^T", shared, 1, .in = {{ANY, 2, {5, 7}}}, .i = {3}},
    {0},
};

/* Runs the operator twice; the loss is computed from the sum of both. */
static tl_status run_twice(const gradient_case *c, tl_tensor *const *in, tl_tensor **out)
{
    const gradient_case *once = c->p;
    tl_tensor           *y = NULL, *z = NULL;
    tl_status            st = once->run(once, in, &y);
    if (st == TL_OK) st = once->run(once, in, &z);
    if (st == TL_OK) st = tl_binary(TL_BINARY_ADD, y, z, out);
    tl_tensor_free(y);
    tl_tensor_free(z);
    return st;
}

/* An operator used twice on the same operands has twice the gradient, and so it has on results
** whose gradients may be written over. */
static void gradients_add(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    for (const gradient_case *c = added; c->name; c++) {
        gradient_case twice = *c;
        twice.run = run_twice;
        twice.p = (void *)c;
        double off = gradient_error(ctx, &twice);
        if (!(off <= 1)) printf("%s: %g of what is tolerated\n", c->name, off);
        CHECK(off <= 1);
    }
    CHECK(tl_memory_info(ctx).tensors == 0);
    tl_ctx_free(ctx);
}

/* A gradient that a program holds keeps its value while the next one is added. */
static void a_held_gradient_stays(void)
{
    const int64_t dims[] = {3, 3};
    tl_ctx       *ctx = NULL;
    tl_tensor    *x = NULL, *y = NULL, *held = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 2, dims, &x), TL_OK);
    CHECK_STATUS(tl_tensor_fill(x, 1), TL_OK);
    CHECK_STATUS(tl_set_requires_grad(x, 1), TL_OK);
    for (int i = 0; i < 2; i++) {
        tl_tensor *loss = NULL;
        CHECK_STATUS(tl_linear(x, x, NULL, &y), TL_OK);
        CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, y, TL_ALL_AXES, 0, &loss), TL_OK);
        CHECK_STATUS(tl_backward(ctx, loss), TL_OK);
        if (!held) held = tl_tensor_retain(tl_grad(x));
        tl_tensor_free(loss);
        tl_tensor_free(y);
    }
    CHECK(tl_tensor_cf32(held)[4] == 6 && tl_tensor_cf32(tl_grad(x))[4] == 12);
    tl_tensor_free(held);
    tl_tensor_free(x);
    tl_ctx_free(ctx);
}

/* ---- Recomputing ----------------------------------------------------------------------------- */

#define SIDE 1100 /* a matrix of more than 4 MiB */

static const gradient_case large[] = {
    {"silu", unary, 1, .in = {{ANY, 2, {SIDE, SIDE}}}, .i = {TL_UNARY_silu}},
    {"gate", gate, 2, .in = {{ANY, 2, {SIDE, SIDE}}, {ANY, 2, {SIDE, SIDE}}},
     .i = {TL_UNARY_silu}},
    {"layer_norm", layer_norm, 3, .in = {{ANY, 2, {SIDE, SIDE}}, {ANY, 1, {SIDE}},
     {ANY, 1, {SIDE}}}},
    {"simple_rms_norm", simple_rms_norm, 1, .in = {{ANY, 2, {SIDE, SIDE}}}, .f = {1e-8}},
    {0},
};

typedef struct outcome {
    tl_status  st;
    size_t     freed; /* bytes, when the last handle of the result went */
    tl_tensor *in[TL_ARGS];
} outcome;

/* The loss is sum (y * y), so that y is kept for the gradient; y = op(1 x + 0). keep: the program
** holds y; spoil: it changes what y was made from; fail: no memory is left for backward. */
static outcome run_large(tl_ctx *ctx, const gradient_case *c, int keep, int spoil, int fail)
{
    outcome    o = {.freed = 0};
    tl_stream  s = tl_stream_new(1, c->name);
    tl_tensor *via[TL_ARGS] = {NULL}, *y = NULL, *square = NULL, *loss = NULL;
    for (int k = 0; k < c->inputs; k++) {
        CHECK_STATUS(make_operand(ctx, c->in + k, &s, &o.in[k]), TL_OK);
        CHECK_STATUS(tl_set_requires_grad(o.in[k], 1), TL_OK);
        CHECK_STATUS(tl_affine(o.in[k], 1, 0, &via[k]), TL_OK);
    }
    CHECK_STATUS(c->run(c, via, &y), TL_OK);
    CHECK_STATUS(tl_binary(TL_BINARY_MUL, y, y, &square), TL_OK);
    CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, square, TL_ALL_AXES, 0, &loss), TL_OK);
    tl_tensor_free(square);
    o.freed = tl_memory_info(ctx).live;
    if (!keep) tl_tensor_free(y);
    o.freed -= tl_memory_info(ctx).live;
    if (spoil) CHECK_STATUS(tl_tensor_fill(via[0], 0.5), TL_OK);
    free_all(via, c->inputs);
    if (fail) tl_alloc_fail_after(ctx, 2);
    o.st = tl_backward(ctx, loss);
    tl_alloc_fail_after(ctx, -1);
    if (keep) tl_tensor_free(y);
    tl_tensor_free(loss);
    return o;
}

static void large_results_are_recomputed(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    for (const gradient_case *c = large; c->name; c++) {
        outcome kept = run_large(ctx, c, 1, 0, 0), evicted = run_large(ctx, c, 0, 0, 0);
        CHECK(kept.st == TL_OK && evicted.st == TL_OK);
        CHECK(kept.freed == 0 && evicted.freed >= SIDE * SIDE * sizeof(float));
        for (int k = 0; k < c->inputs; k++) {
            const tl_tensor *a = tl_grad(kept.in[k]), *b = tl_grad(evicted.in[k]);
            CHECK(a && b && memcmp(tl_tensor_cf32(a), tl_tensor_cf32(b),
                                   (size_t)tl_tensor_len(a) * sizeof(float)) == 0);
        }
        free_all(kept.in, c->inputs);
        free_all(evicted.in, c->inputs);
    }
    CHECK(tl_memory_info(ctx).tensors == 0);
    tl_ctx_free(ctx);
}

static void failures_while_recomputing(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    outcome o = run_large(ctx, &large[0], 0, 1, 0);
    CHECK_STATUS(o.st, TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "changed in place"));
    free_all(o.in, 1);
    o = run_large(ctx, &large[0], 0, 0, 1);
    CHECK_STATUS(o.st, TL_ENOMEM);
    CHECK(tl_tape_len(ctx) == 0);
    free_all(o.in, 1);
    CHECK(tl_memory_info(ctx).tensors == 0);
    tl_ctx_free(ctx);
}

int main(void)
{
    return run_tests((const test[]){
        {"gradients add", gradients_add},
        {"a held gradient stays", a_held_gradient_stays},
        {"large results are recomputed", large_results_are_recomputed},
        {"failures while recomputing", failures_while_recomputing},
        {0}});
}

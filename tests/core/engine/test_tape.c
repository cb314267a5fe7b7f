/* test_tape.c - what the tape keeps and what gradients share. */
#include <string.h>

#include "tensors.h"

static tl_ctx *ctx;

static tl_tensor *leaf(int ndim, const int64_t *dims)
{
    tl_tensor *t = uniforms(ctx, ndim, dims, -1, 1, 1);
    CHECK_STATUS(tl_set_requires_grad(t, 1), TL_OK);
    return t;
}

static void backward_of_sum(tl_tensor *y)
{
    tl_tensor *loss = NULL;
    CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, y, TL_ALL_AXES, 0, &loss), TL_OK);
    CHECK_STATUS(tl_backward(ctx, loss), TL_OK);
    tl_tensor_free(loss);
}

/* Both operands of a sum get dy, and each has to have one of its own. */
static void filling_one_gradient_leaves_the_other(void)
{
    const int64_t dims[] = {2, 3};
    tl_tensor    *a = leaf(2, dims), *b = leaf(2, dims), *y = NULL;
    CHECK_STATUS(tl_binary(TL_BINARY_ADD, a, b, &y), TL_OK);
    backward_of_sum(y);
    CHECK_STATUS(tl_tensor_fill(tl_grad(a), 7), TL_OK);
    for (int i = 0; i < 6; i++) CHECK(tl_tensor_cf32(tl_grad(b))[i] == 1);
    tl_tensor_free(y);
    tl_tensor_free(a);
    tl_tensor_free(b);
}

/* A reshape's gradient is a view of dy, which the other operand of the sum gets. */
static void filling_a_reshaped_gradient_leaves_the_other(void)
{
    tl_tensor *a = leaf(1, (int64_t[]){6}), *b = leaf(2, (int64_t[]){2, 3});
    tl_tensor *folded = NULL, *y = NULL;
    CHECK_STATUS(tl_reshape(a, 2, (int64_t[]){2, 3}, &folded), TL_OK);
    CHECK_STATUS(tl_binary(TL_BINARY_ADD, folded, b, &y), TL_OK);
    backward_of_sum(y);
    CHECK_STATUS(tl_tensor_fill(tl_grad(a), 7), TL_OK);
    for (int i = 0; i < 6; i++) CHECK(tl_tensor_cf32(tl_grad(b))[i] == 1);
    tl_tensor_free(y);
    tl_tensor_free(folded);
    tl_tensor_free(a);
    tl_tensor_free(b);
}

/* Sums and differences need the shapes of their operands, not the values. */
static void a_broadcast_sum_keeps_no_operand(void)
{
    static const tl_binary_kind kinds[] = {TL_BINARY_ADD, TL_BINARY_SUB};
    for (int i = 0; i < 2; i++) {
        tl_tensor *x = leaf(2, (int64_t[]){4, 3}), *row = leaf(1, (int64_t[]){3});
        tl_tensor *twice = NULL, *y = NULL;
        CHECK_STATUS(tl_affine(x, 2, 0, &twice), TL_OK);
        CHECK_STATUS(tl_binary(kinds[i], twice, row, &y), TL_OK);
        int64_t tensors = tl_memory_info(ctx).tensors;
        tl_tensor_free(twice);
        CHECK(tl_memory_info(ctx).tensors == tensors - 1);
        backward_of_sum(y);
        for (int k = 0; k < 12; k++) CHECK(tl_tensor_cf32(tl_grad(x))[k] == 2);
        for (int k = 0; k < 3; k++) CHECK(tl_tensor_cf32(tl_grad(row))[k] == (i ? -4 : 4));
        tl_tensor_free(y);
        tl_tensor_free(x);
        tl_tensor_free(row);
    }
}

/* What backward consumed cannot carry a gradient any more: to go on with it would lose one. */
static void a_consumed_result_is_refused(void)
{
    tl_tensor *w = leaf(1, (int64_t[]){3}), *y = NULL, *again = NULL;
    CHECK_STATUS(tl_affine(w, 2, 0, &y), TL_OK);
    backward_of_sum(y);
    CHECK_STATUS(tl_affine(y, 3, 0, &again), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "an earlier backward consumed it"));
    CHECK(again == NULL);
    CHECK_STATUS(tl_set_requires_grad(y, 0), TL_OK); /* cut off, it is a value like any other */
    CHECK_STATUS(tl_affine(y, 3, 0, &again), TL_OK);
    tl_tensor_free(again);
    tl_tensor_free(y);
    tl_tensor_free(w);
}

/* Gradients are of the values that an operator saw, not of what was written over them. */
static void a_change_in_place_is_refused(void)
{
    tl_tensor *w = leaf(1, (int64_t[]){3}), *y = NULL, *loss = NULL;
    CHECK_STATUS(tl_binary(TL_BINARY_MUL, w, w, &y), TL_OK);
    CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, y, TL_ALL_AXES, 0, &loss), TL_OK);
    CHECK_STATUS(tl_tensor_fill(w, 5), TL_OK);
    CHECK_STATUS(tl_backward(ctx, loss), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "changed in place"));
    CHECK(tl_tape_len(ctx) == 0);
    tl_tensor_free(loss);
    tl_tensor_free(y);
    tl_tensor_free(w);
}

/* A result that was overwritten is no longer a function of what its node read. */
static void a_result_changed_in_place_is_refused(void)
{
    for (int how = 0; how < 3; how++) {
        tl_tensor *w = leaf(1, (int64_t[]){3}), *y = NULL, *z = NULL, *part = NULL;
        CHECK_STATUS(tl_affine(w, 2, 0, &y), TL_OK);
        CHECK_STATUS(tl_tensor_view(y, 1, 1, (int64_t[]){2}, &part), TL_OK);
        if (how == 0) CHECK_STATUS(tl_tensor_fill(y, 5), TL_OK);
        if (how == 1) CHECK_STATUS(tl_tensor_copy(y, w), TL_OK);
        if (how == 2) CHECK_STATUS(tl_tensor_fill(part, 5), TL_OK);
        CHECK_STATUS(tl_binary(TL_BINARY_MUL, y, y, &z), TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), "changed in place"));
        CHECK(z == NULL);
        int was = tl_set_recording(ctx, 0); /* without a gradient it is a value like any other */
        CHECK_STATUS(tl_binary(TL_BINARY_MUL, y, y, &z), TL_OK);
        (void)tl_set_recording(ctx, was);
        tl_tensor_free(z);
        CHECK_STATUS(tl_set_requires_grad(y, 0), TL_OK);
        CHECK_STATUS(tl_binary(TL_BINARY_MUL, y, w, &z), TL_OK); /* dz/dw = y */
        float last = tl_tensor_cf32(y)[2];
        backward_of_sum(z);
        CHECK(tl_tensor_cf32(tl_grad(w))[2] == last);
        tl_tensor *all[] = {z, part, y, w};
        for (int i = 0; i < 4; i++) tl_tensor_free(all[i]);
    }
}

static void no_tensor_is_left(void) { CHECK(tl_memory_info(ctx).tensors == 0); }

/* y = a b: the gradient of a is dy b, and neither shares storage with dy. */
static void backward_from_a_gradient(void)
{
    const int64_t dims[] = {2, 3};
    tl_tensor    *a = leaf(2, dims), *b = uniforms(ctx, 2, dims, -1, 1, 2), *y = NULL, *z = NULL;
    tl_tensor    *dy = uniforms(ctx, 2, dims, -1, 1, 3), *row = zeros(ctx, 1, (int64_t[]){3});
    CHECK_STATUS(tl_binary(TL_BINARY_MUL, a, b, &y), TL_OK);
    CHECK_STATUS(tl_backward_from(ctx, y, row), TL_ESHAPE);
    CHECK_STATUS(tl_backward_from(ctx, y, dy), TL_OK);
    for (int i = 0; i < 6; i++)
        CHECK(tl_tensor_cf32(tl_grad(a))[i] == tl_tensor_cf32(dy)[i] * tl_tensor_cf32(b)[i]);
    CHECK_STATUS(tl_backward_from(ctx, y, dy), TL_EINVAL); /* its tape is gone */
    CHECK_STATUS(tl_set_grad(a, NULL), TL_OK);
    CHECK_STATUS(tl_reshape(a, 1, (int64_t[]){6}, &z), TL_OK);
    tl_tensor *flat = uniforms(ctx, 1, (int64_t[]){6}, -1, 1, 4);
    CHECK_STATUS(tl_backward_from(ctx, z, flat), TL_OK);
    float first = tl_tensor_cf32(flat)[0];
    CHECK_STATUS(tl_tensor_fill(tl_grad(a), 7), TL_OK);
    CHECK(tl_tensor_cf32(flat)[0] == first);
    tl_tensor *all[] = {a, b, y, z, dy, row, flat};
    for (int i = 0; i < 7; i++) tl_tensor_free(all[i]);
}

/* The memory of a caller is read and written in place, and it stays the caller's. */
static void borrowed_memory_is_the_callers(void)
{
    float         data[6] = {1, 2, 3, 4, 5, 6};
    const int64_t dims[] = {2, 3};
    tl_tensor    *t = NULL, *part = NULL, *y = NULL;
    tl_memory     before = tl_memory_info(ctx);
    CHECK_STATUS(tl_tensor_borrow(ctx, TL_F32, 2, dims, (char *)data + 1, &t), TL_EINVAL);
    CHECK_STATUS(tl_tensor_borrow(ctx, TL_F32, 2, dims, NULL, &t), TL_EINVAL);
    CHECK_STATUS(tl_tensor_borrow(ctx, TL_F32, 2, dims, data, &t), TL_OK);
    CHECK(tl_tensor_f32(t) == data && tl_memory_info(ctx).live == before.live);
    CHECK_STATUS(tl_tensor_view(t, 3, 1, (int64_t[]){3}, &part), TL_OK);
    CHECK_STATUS(tl_tensor_fill(part, 7), TL_OK);
    CHECK(data[2] == 3 && data[3] == 7 && data[5] == 7);
    CHECK_STATUS(tl_set_requires_grad(t, 1), TL_OK);
    CHECK_STATUS(tl_unary(TL_UNARY_square, t, &y), TL_OK);
    backward_of_sum(y);
    CHECK(tl_tensor_cf32(tl_grad(t))[1] == 4 && tl_tensor_cf32(tl_grad(t))[4] == 14);
    tl_tensor_free(y);
    tl_tensor_free(part);
    tl_tensor_free(t);
    CHECK(data[0] == 1 && tl_memory_info(ctx).tensors == before.tensors);
}

/* On a GPU, which copies in no order, overlapping views were a race. */
static void copies_do_not_overlap(void)
{
    tl_tensor *part[3] = {NULL}, *t = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 1, (int64_t[]){7}, &t), TL_OK);
    for (int i = 0; i < 3; i++) /* elements 0..2, 2..4 and 4..6 */
        CHECK_STATUS(tl_tensor_view(t, 2 * i, 1, (int64_t[]){3}, &part[i]), TL_OK);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            CHECK_STATUS(tl_tensor_copy(part[i], part[j]), abs(i - j) == 1 ? TL_EINVAL : TL_OK);
    for (int i = 0; i < 3; i++) tl_tensor_free(part[i]);
    tl_tensor_free(t);
}

int main(void)
{
    if (tl_ctx_new(2, &ctx) != TL_OK) return 1;
    int failed = run_tests((const test[]){
        {"borrowed memory is the caller's", borrowed_memory_is_the_callers},
        {"copies do not overlap", copies_do_not_overlap},
        {"filling one gradient leaves the other", filling_one_gradient_leaves_the_other},
        {"filling a reshaped gradient leaves the other",
         filling_a_reshaped_gradient_leaves_the_other},
        {"a broadcast sum keeps no operand", a_broadcast_sum_keeps_no_operand},
        {"a consumed result is refused", a_consumed_result_is_refused},
        {"backward from a gradient", backward_from_a_gradient},
        {"a change in place is refused", a_change_in_place_is_refused},
        {"a result changed in place is refused", a_result_changed_in_place_is_refused},
        {"no tensor is left", no_tensor_is_left},
        {0}});
    tl_ctx_free(ctx);
    return failed;
}

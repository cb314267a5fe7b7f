/* test_launch.c - the checks of a launch, which are the operator's row in engine/operators.h. */
#include <string.h>

#include "engine/launch.h"
#include "tensors.h"

static tl_ctx *ctx;

static tl_tensor *new_tensor(tl_type type)
{
    tl_tensor *t = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, type, 1, (int64_t[]){3}, &t), TL_OK);
    return t;
}

static void refused(tl_op op, const tl_args *a, tl_status want, const char *message)
{
    CHECK_STATUS(tl_launch(ctx, op, a), want);
    if (strcmp(tl_errmsg(ctx), message) != 0) printf("%s\n", tl_errmsg(ctx));
    CHECK(strcmp(tl_errmsg(ctx), message) == 0);
}

static void a_missing_tensor_is_refused(void)
{
    tl_tensor *x = new_tensor(TL_F32);
    tl_args    no_b = {.binary = {.a = x, .y = x}}, no_y = {.binary = {.a = x, .b = x}};
    refused(TL_OP_binary, &no_b, TL_EINVAL, "binary: b is missing");
    refused(TL_OP_binary, &no_y, TL_EINVAL, "binary: y is missing");
    tl_tensor_free(x);
}

static void a_tensor_of_the_wrong_type_is_refused(void)
{
    tl_tensor *x = new_tensor(TL_F32), *index = new_tensor(TL_I32);
    tl_args    a = {.gather = {.x = x, .index = x, .y = x}};
    refused(TL_OP_gather, &a, TL_ETYPE, "gather: index is float32");
    a.gather.index = a.gather.y = index;
    refused(TL_OP_gather, &a, TL_ETYPE, "gather: y is int32");
    tl_tensor_free(x);
    tl_tensor_free(index);
}

static void a_copy_takes_either_type(void)
{
    for (int type = TL_F32; type <= TL_I32; type++) {
        tl_tensor *x = new_tensor((tl_type)type), *y = new_tensor((tl_type)type);
        CHECK_STATUS(tl_launch(ctx, TL_OP_copy, &(tl_args){.copy = {.x = x, .y = y}}), TL_OK);
        tl_tensor_free(x);
        tl_tensor_free(y);
    }
}

/* Code that serves all operators reads the places in the order of the row. */
static void names_and_lists_are_the_same_places(void)
{
    tl_tensor *x = new_tensor(TL_F32);
    tl_args    a = {.selective_scan_grad = {.dy = x, .dskip = x}};
    CHECK(a.list.in[TL_IN_selective_scan_grad - 1] == x);
    CHECK(a.list.out[TL_OUT_selective_scan_grad - 1] == x);
    a = (tl_args){.tno_grad = {.dy = x}, .shape = {{1, {3}}}};
    CHECK(a.list.in[TL_IN_tno_grad - 1] == x);
    a = (tl_args){.norm = {.kind = 2, .eps = 0.5}};
    CHECK(a.list.i[0] == 2 && a.list.f[0] == 0.5);
    tl_tensor_free(x);
}

int main(void)
{
    if (tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int failed = run_tests((const test[]){
        {"a missing tensor is refused", a_missing_tensor_is_refused},
        {"a tensor of the wrong type is refused", a_tensor_of_the_wrong_type_is_refused},
        {"a copy takes either type", a_copy_takes_either_type},
        {"names and lists are the same places", names_and_lists_are_the_same_places},
        {0}});
    tl_ctx_free(ctx);
    return failed;
}

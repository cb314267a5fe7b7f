/* test_pools.c - two contexts of a process on one GPU: each has its own memory pool, and returns
** it when it ends. The argument is the emulated GPU, here of 4 MiB. */
#include <stdlib.h>

#include "test.h"

#define MIB ((size_t)1 << 20)

static const char *device;

static tl_ctx *context(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    if (!ctx || tl_set_device(ctx, device) != TL_OK) {
        printf("%s\n", ctx ? tl_errmsg(ctx) : "no context");
        exit(1); /* nothing below can be said */
    }
    return ctx;
}

/* Allocates so many MiB on the GPU. */
static tl_status allocate(tl_ctx *ctx, int64_t mib, tl_tensor **out_x)
{
    const int64_t dims[] = {mib << 18};
    tl_tensor    *x = NULL;
    tl_status     st = tl_tensor_new(ctx, TL_F32, 1, dims, &x);
    if (st == TL_OK) st = tl_tensor_fill(x, 1);
    if (st == TL_OK)
        *out_x = x;
    else
        tl_tensor_free(x);
    return st;
}

static void each_counts_its_own(void)
{
    tl_ctx    *one = context(), *two = context();
    tl_tensor *x = NULL, *y = NULL;
    CHECK_STATUS(allocate(one, 2, &x), TL_OK);
    CHECK(tl_memory_info(one).live == 2 * MIB);
    CHECK(tl_memory_info(two).live == 0 && tl_memory_info(two).peak == 0);
    CHECK_STATUS(allocate(two, 1, &y), TL_OK);
    tl_tensor_free(y);
    tl_memory_reset_peak(two);
    CHECK(tl_memory_info(two).live == 0 && tl_memory_info(two).cached == MIB);
    CHECK(tl_memory_info(one).peak == 2 * MIB && tl_memory_info(one).cached == 0);
    tl_tensor_free(x);
    tl_ctx_free(two);
    tl_ctx_free(one);
}

static void one_that_ends_returns_what_it_cached(void)
{
    tl_ctx    *one = context(), *two = context();
    tl_tensor *x = NULL;
    CHECK_STATUS(allocate(one, 2, &x), TL_OK);
    tl_tensor_free(x);
    CHECK(tl_memory_info(one).cached == 2 * MIB);
    CHECK_STATUS(allocate(two, 2, &x), TL_ENOMEM);
    tl_ctx_free(one);
    CHECK_STATUS(allocate(two, 2, &x), TL_OK);
    tl_tensor_free(x);
    tl_ctx_free(two);
}

int main(int argc, char **argv)
{
    static const test tests[] = {
        {"each counts its own", each_counts_its_own},
        {"one that ends returns what it cached", one_that_ends_returns_what_it_cached},
        {0},
    };
    if (argc != 2) return 2;
    device = argv[1];
    (void)setenv("EMULATE_MIB", "4", 1);
    return run_tests(tests);
}

/* test_plan.c - making plans: the problems that are refused, the memory that a plan holds, and the
** plan for the CPU of an operator on a device. */
#include <stdlib.h>
#include <string.h>

#include "engine/device.h"
#include "tno/tno.h"
#include "tensors.h"

static tl_ctx *ctx;

/* A causal operator of one channel. */
static tl_tno *operator_of(const char *backend, int64_t n)
{
    tl_tno *tno = NULL;
    CHECK_STATUS(tl_tno_new(ctx, backend, n, 1, 1, NULL, &tno), TL_OK);
    if (!tno) {
        printf("  %s: %s\n", backend, tl_errmsg(ctx));
        exit(1);
    }
    return tno;
}

/* ---- Refusals -------------------------------------------------------------------------------- */

/* The products of matrix and the transforms of fft would have cut the length to an int. */
static void lengths_that_an_int_cannot_count_are_refused(void)
{
    static const struct { const char *backend; int64_t n; const char *limit; } rows[] = {
        {"matrix", 1LL << 31, "2147483647"},
        {"fft", 1LL << 30, "1073741823"},
        {"fft", (1LL << 30) - 1, "1073741823"}}; /* it would transform more than n points */
    tl_tno *tno = NULL;
    for (int k = 0; k < 3; k++) {
        CHECK_STATUS(tl_tno_new(ctx, rows[k].backend, rows[k].n, 1, 1, NULL, &tno), TL_EBACKEND);
        CHECK(strstr(tl_errmsg(ctx), rows[k].limit) != NULL);
        CHECK(tno == NULL);
    }
}

static void sizes_that_no_memory_holds_are_refused(void)
{
    static const char *const names[] = {"auto", "naive", "matrix", "fft", "rac", "ski", "fd"};
    tl_tno *tno = NULL;
    for (int i = 0; i < 7; i++) {
        CHECK_STATUS(tl_tno_new(ctx, names[i], INT64_MAX / 2, 1, 1, NULL, &tno), TL_ENOMEM);
        CHECK_STATUS(tl_tno_new(ctx, names[i], 1LL << 31, 1LL << 40, 0, NULL, &tno), TL_ENOMEM);
        CHECK_STATUS(tl_tno_new(ctx, names[i], 8, INT64_MAX / 4, 1, NULL, &tno), TL_ENOMEM);
    }
    CHECK(tno == NULL);
}

/* ---- On a device ----------------------------------------------------------------------------- */

static tl_status no_plan(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    (void)h;
    (void)p;
    *out_plan = NULL;
    return TL_OK;
}

static const tl_tno_form *empty_form(tl_ctx *of, const char *name)
{
    static const tl_tno_form form = {no_plan, NULL, NULL, NULL, NULL, NULL};
    (void)of;
    (void)name;
    return &form;
}

/* The matrix of an operator on a device comes from a plan for the CPU, which may be the first there
** that multiplies: the BLAS must be started before. */
static void the_matrix_of_a_device_starts_the_blas(void)
{
    static const tl_engine engine = {.form = empty_form};
    tl_ctx    *kept = ctx;
    tl_tensor *got = NULL, *want = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    ctx->device = TL_CUDA;
    ctx->engine = &engine;
    tl_tno *there = operator_of("fd", 32);
    ctx->device = TL_CPU;
    ctx->engine = NULL;
    tl_tensor *coef = uniforms(ctx, 2, (int64_t[]){33, 1}, -1, 1, 1);
    CHECK(!ctx->multiplies);
    CHECK_STATUS(tl_tno_dense(there, coef, NULL, &got), TL_OK);
    CHECK(ctx->multiplies);
    tl_tno *here = operator_of("fd", 32);
    CHECK_STATUS(tl_tno_dense(here, coef, NULL, &want), TL_OK);
    CHECK(distance(got, want) == 0);
    tl_tensor_free(coef);
    tl_tensor_free(got);
    tl_tensor_free(want);
    tl_tno_free(there);
    tl_tno_free(here);
    tl_ctx_free(ctx);
    ctx = kept;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* The bytes that a plan for one channel holds in a context of that many threads. */
static int64_t plan_bytes(const char *backend, int64_t n, int threads)
{
    tl_ctx *kept = ctx;
    CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
    tl_tno_free(operator_of("naive", n)); /* what the context itself allocates at first */
    int64_t before = tl_memory_info(ctx).live;
    tl_tno *tno = operator_of(backend, n);
    int64_t bytes = tl_memory_info(ctx).live - before;
    tl_tno_free(tno);
    tl_ctx_free(ctx);
    ctx = kept;
    return bytes;
}

static void threads_without_a_tile_have_no_scratch(void)
{
    static const struct { const char *backend; int64_t n; } rows[] = {
        {"matrix", 64}, {"fft", 64}, {"ski", 64}, {"fd", 64}, {"fd", 37}};
    for (int k = 0; k < 5; k++) {
        int64_t one = plan_bytes(rows[k].backend, rows[k].n, 1);
        CHECK(one > 0 && plan_bytes(rows[k].backend, rows[k].n, 6) == one);
    }
}

int main(void)
{
    (void)setenv("TOEPLAB_CACHE", "", 1);
    if (tl_ctx_new(2, &ctx) != TL_OK) return 1;
    int failed = run_tests((const test[]){
        {"lengths that an int cannot count are refused",
         lengths_that_an_int_cannot_count_are_refused},
        {"sizes that no memory holds are refused", sizes_that_no_memory_holds_are_refused},
        {"the matrix of a device starts the BLAS", the_matrix_of_a_device_starts_the_blas},
        {"threads without a tile have no scratch", threads_without_a_tile_have_no_scratch},
        {0},
    });
    tl_ctx_free(ctx);
    return failed;
}

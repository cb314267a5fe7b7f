/* rac.h - what the tests of the backend rac share: its operators and what they give. */
#ifndef TESTS_RAC_H
#define TESTS_RAC_H

#include <string.h>

#include "tensors.h"

#define TOLERANCE 2e-6 /* of the largest entry */

static tl_ctx *ctx;

static const char *const sets[] = {"isa=portable", "isa=avx2", "isa=avx512"};

enum { SETS = sizeof sets / sizeof *sets };

typedef struct shape {
    int64_t n, b, d;
    int     causal;
} shape;

/* What goes in and what comes out. */
typedef struct answer {
    tl_tensor *x, *dy, *coef, *y, *dx, *dcoef;
} answer;

/* NULL if this processor has not the instructions. */
static tl_tno *operator_of(const char *backend, const char *option, const shape *s)
{
    tl_tno   *tno = NULL;
    tl_status st = tl_tno_new(ctx, backend, s->n, s->d, s->causal,
                              option ? (const char *[]){option, NULL} : NULL, &tno);
    if (st != TL_EBACKEND || !option || strcmp(option, "isa=portable") == 0)
        CHECK_STATUS(st, TL_OK);
    else
        CHECK(strstr(tl_errmsg(ctx), "this processor has no avx"));
    return tno;
}

enum { DX = 1, DCOEF = 2 };

/* y, and those gradients of the sum of y dy that are wanted. */
static answer run_with(int wanted, tl_tno *tno, const shape *s, tl_tensor *coef)
{
    answer     r = {.coef = tl_tensor_retain(coef)};
    int64_t    dims[] = {s->b, s->n, s->d};
    tl_tensor *product = NULL, *loss = NULL;
    r.x = uniforms(ctx, 3, dims, -1, 1, 1);
    r.dy = uniforms(ctx, 3, dims, -1, 1, 2);
    CHECK_STATUS(tl_set_requires_grad(r.x, (wanted & DX) != 0), TL_OK);
    CHECK_STATUS(tl_set_requires_grad(r.coef, (wanted & DCOEF) != 0), TL_OK);
    CHECK_STATUS(tl_tno_apply(tno, r.coef, NULL, r.x, &r.y), TL_OK);
    CHECK_STATUS(tl_binary(TL_BINARY_MUL, r.y, r.dy, &product), TL_OK);
    CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, product, TL_ALL_AXES, 0, &loss), TL_OK);
    CHECK_STATUS(tl_backward(ctx, loss), TL_OK);
    if (wanted & DX) r.dx = tl_tensor_retain(tl_grad(r.x));
    if (wanted & DCOEF) r.dcoef = tl_tensor_retain(tl_grad(r.coef));
    tl_tensor_free(loss);
    tl_tensor_free(product);
    tl_tno_free(tno);
    return r;
}

static answer run_for(int wanted, tl_tno *tno, const shape *s)
{
    tl_tensor *points = NULL;
    CHECK_STATUS(tl_tno_points(tno, &points), TL_OK);
    int64_t    dims[] = {tl_tensor_len(points), s->d};
    tl_tensor *coef = uniforms(ctx, 2, dims, -1, 1, 3);
    answer     r = run_with(wanted, tno, s, coef);
    tl_tensor_free(coef);
    tl_tensor_free(points);
    return r;
}

static void answer_free(answer *r)
{
    tl_tensor *all[] = {r->x, r->dy, r->coef, r->y, r->dx, r->dcoef};
    for (int i = 0; i < 6; i++) tl_tensor_free(all[i]);
}

static double dot(const tl_tensor *a, const tl_tensor *b)
{
    double sum = 0;
    CHECK(tl_tensor_len(a) == tl_tensor_len(b));
    for (int64_t k = 0; k < tl_tensor_len(a); k++)
        sum += (double)tl_tensor_cf32(a)[k] * tl_tensor_cf32(b)[k];
    return sum;
}

#endif

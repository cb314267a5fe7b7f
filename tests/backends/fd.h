/* fd.h - what the tests of the backend fd share: a problem, and all that an operator gives for it
** on random numbers. */
#ifndef TL_FD_H
#define TL_FD_H

#include <stdlib.h>
#include <string.h>

#include "tensors.h"

#define TOLERANCE 2e-6 /* of the largest entry */
#define PI        3.14159265358979323846

static tl_ctx *ctx; /* of the test at hand */

static const char *const sizes[] = {"size=double", "size=power2", "size=good"};

typedef struct problem {
    int64_t     n, b, d;
    int         causal;
    const char *size, *isa; /* NULL: auto */
} problem;

/* Everything of one application; half: M, so that there are M + 1 frequencies. */
typedef struct result {
    int64_t    half;
    tl_tensor *coef, *x, *dy, *y, *dx, *dcoef, *dense;
} result;

static inline tl_tno *operator_of(const char *backend, const problem *p)
{
    tl_tno     *tno = NULL;
    int         own = strcmp(backend, "fd") == 0;
    const char *options[] = {own ? p->size : NULL, p->isa, NULL};
    CHECK_STATUS(tl_tno_new(ctx, backend, p->n, p->d, p->causal, options, &tno), TL_OK);
    if (!tno) {
        printf("  %s: %s\n", backend, tl_errmsg(ctx));
        exit(1);
    }
    return tno;
}

static inline int64_t half_of(tl_tno *tno)
{
    tl_tensor *points = NULL;
    CHECK_STATUS(tl_tno_points(tno, &points), TL_OK);
    int64_t half = tl_tensor_len(points) - 1;
    tl_tensor_free(points);
    return half;
}

/* Fills y, the gradients of the sum of y dy that want names ("coef", "x", or both), and dense. */
static inline void apply(const char *backend, const problem *p, result *r, const char *want)
{
    tl_tno    *tno = operator_of(backend, p);
    tl_tensor *product = NULL, *loss = NULL;
    CHECK_STATUS(tl_set_requires_grad(r->coef, strstr(want, "coef") != NULL), TL_OK);
    CHECK_STATUS(tl_set_requires_grad(r->x, strchr(want, 'x') != NULL), TL_OK);
    CHECK_STATUS(tl_tno_apply(tno, r->coef, NULL, r->x, &r->y), TL_OK);
    CHECK_STATUS(tl_tno_dense(tno, r->coef, NULL, &r->dense), TL_OK);
    tl_tno_free(tno);
    CHECK_STATUS(tl_binary(TL_BINARY_MUL, r->y, r->dy, &product), TL_OK);
    CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, product, TL_ALL_AXES, 0, &loss), TL_OK);
    CHECK_STATUS(tl_backward(ctx, loss), TL_OK);
    if (tl_grad(r->x)) r->dx = tl_tensor_retain(tl_grad(r->x));
    if (tl_grad(r->coef)) r->dcoef = tl_tensor_retain(tl_grad(r->coef));
    tl_tensor_free(loss);
    tl_tensor_free(product);
}

static inline tl_tensor *random_x(const problem *p, uint64_t seed)
{
    return uniforms(ctx, 3, (int64_t[]){p->b, p->n, p->d}, -1, 1, seed);
}

static inline result inputs(const problem *p)
{
    result  r = {0};
    tl_tno *tno = operator_of("fd", p);
    r.half = half_of(tno);
    tl_tno_free(tno);
    r.coef = uniforms(ctx, 2, (int64_t[]){r.half + 1, (p->causal ? 1 : 2) * p->d}, -1, 1, 3);
    r.x = random_x(p, 1);
    r.dy = random_x(p, 2);
    return r;
}

static inline result run(const problem *p)
{
    result r = inputs(p);
    apply("fd", p, &r, "coef x");
    return r;
}

static inline void result_free(result *r)
{
    tl_tensor *all[] = {r->coef, r->x, r->dy, r->y, r->dx, r->dcoef, r->dense};
    for (int k = 0; k < 7; k++) tl_tensor_free(all[k]);
}

static inline double dot(const tl_tensor *a, const tl_tensor *b)
{
    double sum = 0;
    for (int64_t k = 0; k < tl_tensor_len(a); k++)
        sum += (double)tl_tensor_cf32(a)[k] * tl_tensor_cf32(b)[k];
    return sum;
}

#endif

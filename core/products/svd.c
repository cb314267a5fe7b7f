/* svd.c - computes singular values and solves linear systems in float64, by the LAPACK of OpenBLAS.
** LAPACK is column-major, so that it sees the transposes of our row-major matrices. */
#include <limits.h>
#include <math.h>

#include "base/memory.h"
#include "engine/gradient.h"
#include "engine/storage.h"
#include "products/gemm.h"

/* OpenBLAS has no header that declares these functions of LAPACK. */
void dgesdd_(const char *job, const int *m, const int *n, double *a, const int *lda, double *s,
             double *u, const int *ldu, double *vt, const int *ldvt, double *work,
             const int *lwork, int *iwork, int *info);
void dgesv_(const int *n, const int *nrhs, double *a, const int *lda, int *pivot, double *b,
            const int *ldb, int *info);

/* Moves a to the CPU, checks that it is a matrix of finite float32 that requires no gradient, and
** makes LAPACK ready. */
static tl_status svd_check(const char *op, const char *name, const tl_tensor *a)
{
    if (tl_needs_grad(a->ctx, a))
        return tl_fail(a->ctx, TL_EINVAL, "%s: %s requires a gradient, which %s does not pass on: "
                       "call it inside no_grad", op, name, op);
    if (a->type != TL_F32)
        return tl_fail(a->ctx, TL_ETYPE, "%s: %s is int32, not float32", op, name);
    if (a->ndim != 2)
        return tl_fail(a->ctx, TL_ESHAPE, "%s: %s is %s, not a matrix", op, name, SHAPE(a));
    tl_status st = tl_to_cpu(a);
    if (st != TL_OK) return st;
    for (int64_t k = 0; k < a->len; k++)
        if (!isfinite(F32(a)[k]))
            return tl_fail(a->ctx, TL_EINVAL, "%s: %s[%lld,%lld] is not finite", op, name,
                           tl_position(a->ctx, k / a->dims[1]),
                           tl_position(a->ctx, k % a->dims[1]));
    st = tl_gemm_fits(a->ctx, op, a->dims[0], a->dims[1], 1);
    return st == TL_OK ? tl_gemm_ready(a->ctx) : st;
}

static void widen(double *to, const float *from, int64_t count)
{
    for (int64_t k = 0; k < count; k++) to[k] = (double)from[k];
}

static void narrow(float *to, const double *from, int64_t count)
{
    for (int64_t k = 0; k < count; k++) to[k] = (float)from[k];
}

/* ---- Singular values ------------------------------------------------------------------------- */

typedef struct svd { /* of the transpose of a: rows and cols are LAPACK's */
    int     rows, cols, least, capacity; /* capacity: doubles of work */
    char    job;
    double *a, *s, *left, *right, *work;
    int    *iwork;
} svd;

static int decompose(const svd *d, double *work, int capacity)
{
    int info = 0;
    dgesdd_(&d->job, &d->rows, &d->cols, d->a, &d->rows, d->s, d->left, &d->rows, d->right,
            &d->least, work, &capacity, d->iwork, &info);
    return info;
}

static void svd_release(tl_ctx *ctx, const svd *d)
{
    tl_release(ctx, d->a);
    tl_release(ctx, d->s);
    tl_release(ctx, d->left);
    tl_release(ctx, d->right);
    tl_release(ctx, d->work);
    tl_release(ctx, d->iwork);
}

/* LAPACK takes no NULL, so that arrays that it does not use have one element. */
static tl_status reserve(tl_ctx *ctx, svd *d, const tl_tensor *a, int vectors)
{
    size_t rows = (size_t)d->rows, cols = (size_t)d->cols, least = (size_t)d->least;
    double size = 0;
    d->a = tl_alloc(ctx, rows * cols * sizeof(double));
    d->s = tl_alloc(ctx, least * sizeof(double));
    d->left = tl_alloc(ctx, (vectors ? rows * least : 1) * sizeof(double));
    d->right = tl_alloc(ctx, (vectors ? least * cols : 1) * sizeof(double));
    d->iwork = tl_alloc(ctx, 8 * least * sizeof(int));
    if (!d->a || !d->s || !d->left || !d->right || !d->iwork) return TL_ENOMEM;
    widen(d->a, F32(a), a->len);
    if (decompose(d, &size, -1) || !(size >= 1 && size < INT_MAX))
        return tl_fail(ctx, TL_ESHAPE, "svd: a is %s, too large for LAPACK", SHAPE(a));
    d->capacity = (int)size;
    d->work = tl_alloc(ctx, (size_t)d->capacity * sizeof(double));
    return d->work ? TL_OK : TL_ENOMEM;
}

static tl_status svd_run(const tl_tensor *a, tl_tensor *u, tl_tensor *s, tl_tensor *v)
{
    tl_ctx   *ctx = a->ctx;
    int       m = (int)a->dims[0], n = (int)a->dims[1], vectors = u || v;
    svd       d = {.rows = n, .cols = m, .least = m < n ? m : n, .job = vectors ? 'S' : 'N'};
    tl_status st = reserve(ctx, &d, a, vectors);
    if (st == TL_OK && decompose(&d, d.work, d.capacity))
        st = tl_fail(ctx, TL_EINVAL, "svd: a is %s, LAPACK does not converge", SHAPE(a));
    if (st == TL_OK) {
        narrow(F32(s), d.s, s->len);
        if (u) narrow(F32(u), d.right, u->len);
        if (v) narrow(F32(v), d.left, v->len);
    }
    svd_release(ctx, &d);
    return st;
}

tl_status tl_svd(tl_tensor *a, tl_tensor **out_u, tl_tensor **out_s, tl_tensor **out_v)
{
    tl_tensor *u = NULL, *s = NULL, *v = NULL;
    tl_status  st = svd_check("svd", "a", a);
    if (st != TL_OK) return st;
    int64_t m = a->dims[0], n = a->dims[1], least = m < n ? m : n;
    st = tl_tensor_new_host(a->ctx, TL_F32, 1, &least, &s);
    if (st == TL_OK && out_u)
        st = tl_tensor_new_host(a->ctx, TL_F32, 2, (const int64_t[]){m, least}, &u);
    if (st == TL_OK && out_v)
        st = tl_tensor_new_host(a->ctx, TL_F32, 2, (const int64_t[]){least, n}, &v);
    if (st == TL_OK && least > 0) st = svd_run(a, u, s, v);
    if (st != TL_OK) goto fail;
    *out_s = s;
    if (out_u) *out_u = u;
    if (out_v) *out_v = v;
    return TL_OK;
fail:
    tl_tensor_free(u);
    tl_tensor_free(s);
    tl_tensor_free(v);
    return st;
}

/* ---- Linear systems -------------------------------------------------------------------------- */

/* flip_in and flip_out convert between a row-major float32 matrix [rows,cols] and the column-major
** float64 one of LAPACK. */
static void flip_in(double *to, const float *from, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) to[j * rows + i] = (double)from[i * cols + j];
}

static void flip_out(float *to, const double *from, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) to[i * cols + j] = (float)from[j * rows + i];
}

static tl_status solve(const tl_tensor *a, const tl_tensor *b, tl_tensor *x)
{
    tl_ctx   *ctx = a->ctx;
    int       n = (int)b->dims[0], m = (int)b->dims[1], info = 0;
    double   *left = tl_alloc(ctx, (size_t)a->len * sizeof(double));
    double   *right = tl_alloc(ctx, (size_t)b->len * sizeof(double));
    int      *pivot = tl_alloc(ctx, (size_t)n * sizeof(int));
    tl_status st = left && right && pivot ? TL_OK : TL_ENOMEM;
    if (st == TL_OK) {
        flip_in(left, F32(a), n, n);
        flip_in(right, F32(b), n, m);
        dgesv_(&n, &m, left, &n, pivot, right, &n, &info);
        if (info) st = tl_fail(ctx, TL_EINVAL, "solve: a is %s and singular", SHAPE(a));
    }
    if (st == TL_OK) flip_out(F32(x), right, n, m);
    tl_release(ctx, left);
    tl_release(ctx, right);
    tl_release(ctx, pivot);
    return st;
}

tl_status tl_solve(tl_tensor *a, tl_tensor *b, tl_tensor **out_x)
{
    tl_tensor *x = NULL;
    tl_status  st = svd_check("solve", "a", a);
    if (st == TL_OK) st = svd_check("solve", "b", b);
    if (st != TL_OK) return st;
    if (a->dims[0] != a->dims[1] || a->dims[0] != b->dims[0])
        return tl_fail(a->ctx, TL_ESHAPE, "solve: a is %s, b is %s", SHAPE(a), SHAPE(b));
    st = tl_tensor_new_host(a->ctx, TL_F32, 2, b->dims, &x);
    if (st == TL_OK && b->len > 0) st = solve(a, b, x);
    return tl_finish(st, x, out_x);
}

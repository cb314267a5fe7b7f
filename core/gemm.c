/* gemm.c - matrix products by a CBLAS. The library runs on one thread; the split is ours, so that
** its thread pool and ours do not fight for the processors and the split is always the same. */
#include <cblas.h>
#include <limits.h>

#include "internal.h"

#define SERIAL_FLOPS (64 * 64 * 64) /* products below this are not worth a second thread */

typedef struct product {
    int          trans_a, trans_b, by_rows;
    int64_t      m, n, k, lda, ldb, ldc;
    float        alpha, beta;
    const float *a, *b;
    float       *c;
} product;

void tl_gemm_serial(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                    int64_t ldc)
{
    if (m == 0 || n == 0) return;
    cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
                trans_b ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k, alpha, a, (int)lda, b,
                (int)ldb, beta, c, (int)ldc);
}

/* Rows or columns begin..end-1 of c, in blocks of 16. */
static void part(void *user, int64_t begin, int64_t end, int thread)
{
    const product *p = user;
    (void)thread;
    int64_t size = p->by_rows ? p->m : p->n;
    int64_t from = begin * 16, to = end * 16 < size ? end * 16 : size;
    if (p->by_rows) {
        const float *a = p->a + (p->trans_a ? from : from * p->lda);
        tl_gemm_serial(p->trans_a, p->trans_b, to - from, p->n, p->k, p->alpha, a, p->lda, p->b,
                       p->ldb, p->beta, p->c + from * p->ldc, p->ldc);
    } else {
        const float *b = p->b + (p->trans_b ? from * p->ldb : from);
        tl_gemm_serial(p->trans_a, p->trans_b, p->m, to - from, p->k, p->alpha, p->a, p->lda, b,
                       p->ldb, p->beta, p->c + from, p->ldc);
    }
}

void tl_gemm(const tl_ctx *ctx, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
             float alpha, const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
             float *c, int64_t ldc)
{
    product p = {trans_a, trans_b, m >= n, m, n, k, lda, ldb, ldc, alpha, beta, a, b, c};
    int64_t blocks = ((m >= n ? m : n) + 15) / 16;
    int     serial = m * n < SERIAL_FLOPS / (k > 0 ? k : 1);
    tl_parallel(ctx, blocks, serial ? blocks : 2, part, &p);
}

tl_status tl_gemm_fits(tl_ctx *ctx, const char *op, int64_t m, int64_t n, int64_t k)
{
    int64_t most = m > n ? m : n;
    if (k > most) most = k;
    if (most <= INT_MAX) return TL_OK;
    return tl_fail(ctx, TL_ESHAPE, "%s: %lld rows or columns, at most %d can be multiplied", op,
                   (long long)most, INT_MAX);
}

void tl_blas_open(void) { openblas_set_num_threads(1); }

const char *tl_blas_name(void) { return openblas_get_config(); }

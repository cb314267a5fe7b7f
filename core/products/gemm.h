/* gemm.h - declares matrix products of plain arrays. */
#ifndef TL_GEMM_H
#define TL_GEMM_H

#include "base/context.h"

/* c [m,n] = alpha op(a) op(b) + beta c, row-major; op transposes its operand. The callers of the
** functions below leave at 0 what they do not need. */
typedef struct tl_product {
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* elements from row to row; 0: the rows are contiguous */
    float   alpha, beta;
    int     trans_a, trans_b;
    /* set by tl_gemm and tl_gemm_batch: the result is cut into rows x columns parts, and `copies`
    ** is the number of kernels for each part, so that as many threads can use it at the same
    ** time */
    int     rows, columns, copies;
} tl_product;

/* Computes p with all threads and the precision of the context. TL_ENOMEM; TL_EBACKEND with bf16
** only. */
tl_status tl_gemm(tl_ctx *ctx, const tl_product *p, const float *a, const float *b, float *c);
/* Computes p for `count` contiguous matrices of each operand. */
tl_status tl_gemm_batch(tl_ctx *ctx, int64_t count, const tl_product *p, const float *a,
                        const float *b, float *c);
/* Computes p in float32 on the calling thread by OpenBLAS, which is the faster library as long as
** it does not pack its operands: up to about m n k = 100^3. */
void tl_gemm_small(const tl_product *p, const float *a, const float *b, float *c);
/* The gemm of tl_host: a product in float32 on the calling thread. */
void tl_gemm_serial(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                    int64_t ldc);

/* Makes the libraries allocate their permanent buffers now, once it is certain that there is memory
** for them: when an allocation fails later, oneDNN ends the process and OpenBLAS never returns.
** TL_ENOMEM */
tl_status tl_gemm_ready(tl_ctx *ctx);

/* TL_ESHAPE, with a message that begins with op, if a size exceeds the int of CBLAS. The leading
** dimensions need no check of their own, since each equals one of the sizes. */
TL_PRIVATE tl_status tl_gemm_fits(tl_ctx *ctx, const char *op, int64_t m, int64_t n, int64_t k);
void tl_blas_open(void); /* one thread per call; call it before the first product */
const char *tl_blas_name(void);
/* Writes for example "2.6.3, float32 and bf16" to text; "none" in a build without oneDNN. */
const char *tl_onednn_name(char *text, size_t size);
void tl_onednn_close(tl_ctx *ctx);

#endif

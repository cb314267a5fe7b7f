/* gemm.h - declares matrix products of plain arrays. */
#ifndef TL_GEMM_H
#define TL_GEMM_H

#include "base/context.h"

/* c [m,n] = alpha op(a) op(b) + beta c, row-major. tl_gemm uses all threads and the precision of
** the context; tl_gemm_serial uses the calling thread and float32. TL_ENOMEM; TL_EBACKEND with bf16
** only. */
tl_status tl_gemm(tl_ctx *ctx, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                  float alpha, const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                  float *c, int64_t ldc);
/* c = op(a) op(b) + beta c for `count` contiguous matrices of each operand */
tl_status tl_gemm_batch(tl_ctx *ctx, int64_t count, int trans_a, int trans_b, int64_t m, int64_t n,
                        int64_t k, const float *a, const float *b, float beta, float *c);
void tl_gemm_serial(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                    int64_t ldc);

/* The same by OpenBLAS, which is the faster library as long as it does not pack its operands: up to
** about m n k = 100^3. */
void tl_gemm_small(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                   const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                   int64_t ldc);

/* Makes the libraries allocate their permanent buffers now, once it is certain that there is memory
** for them: when an allocation fails later, oneDNN ends the process and OpenBLAS never returns.
** TL_ENOMEM */
tl_status tl_gemm_ready(tl_ctx *ctx);

/* TL_ESHAPE, with a message that begins with op, if a size exceeds the int of CBLAS. The leading
** dimensions need no check of their own, since each equals one of the sizes. */
tl_status tl_gemm_fits(tl_ctx *ctx, const char *op, int64_t m, int64_t n, int64_t k);
void tl_blas_open(void); /* one thread per call; call it before the first product */
const char *tl_blas_name(void);
/* Writes for example "2.6.3, float32 and bf16" to text; "none" in a build without oneDNN. */
const char *tl_onednn_name(char *text, size_t size);
void tl_onednn_close(tl_ctx *ctx);

#endif

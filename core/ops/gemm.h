/* gemm.h - matrix products of plain arrays. */
#ifndef TL_GEMM_H
#define TL_GEMM_H

#include "base/context.h"

/* c [m,n] = alpha op(a) op(b) + beta c, row-major. tl_gemm uses all threads and the context's
** precision; tl_gemm_serial the calling one and float32. TL_ENOMEM, TL_EBACKEND: with bf16
** only */
tl_status tl_gemm(tl_ctx *ctx, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                  float alpha, const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                  float *c, int64_t ldc);
/* c = op(a) op(b) + beta c of count dense matrices each, one after another */
tl_status tl_gemm_batch(tl_ctx *ctx, int64_t count, int trans_a, int trans_b, int64_t m, int64_t n,
                        int64_t k, const float *a, const float *b, float beta, float *c);
void tl_gemm_serial(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                    int64_t ldc);

/* The same by OpenBLAS, the quicker up to about 100^3, from where on it packs. */
void tl_gemm_small(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                   const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                   int64_t ldc);

/* Makes the libraries take the memory that they keep for all products, once, where there is enough:
** otherwise oneDNN would end the process, and OpenBLAS never return. TL_ENOMEM */
tl_status tl_gemm_ready(tl_ctx *ctx);

/* TL_ESHAPE naming op if one is more than CBLAS counts to. A leading dimension is one of them. */
tl_status tl_gemm_fits(tl_ctx *ctx, const char *op, int64_t m, int64_t n, int64_t k);
void tl_blas_open(void); /* before the first product: one thread per call */
const char *tl_blas_name(void);
/* "2.6.3, float32 and bf16", in text; "none" where it was not there to compile with (onednn.c). */
const char *tl_onednn_name(char *text, size_t size);
void tl_onednn_close(tl_ctx *ctx);

#endif

/* product.h - a matrix product cut into parts, and what gemm.c asks of oneDNN (onednn.c), which may
** be missing. */
#ifndef TL_PRODUCT_H
#define TL_PRODUCT_H

#include "base/context.h"

/* c [m,n] = alpha op(a) op(b) + beta c, its result cut into rows x columns parts; copies: how often
** a kernel of each part is wanted, for calls at the same time. */
typedef struct tl_product {
    int64_t m, n, k, lda, ldb, ldc;
    float   alpha, beta;
    int     trans_a, trans_b, rows, columns, copies;
} tl_product;

/* A part, 0 up, as a product of its own, and where it begins in a, b and c: elements. */
typedef struct tl_product_part {
    tl_product shape;
    int64_t    a, b, c;
} tl_product_part;

/* Cuts p for the threads so that a part reads the fewest rows of a and columns of b. */
void tl_product_cut(tl_product *p, int threads);
tl_product_part tl_part_of(const tl_product *whole, int part);

/* Before the first product: keeps the library to kernels that work. */
void tl_onednn_open(void);

/* The product in float32 on the calling thread. TL_ENOMEM; TL_EBACKEND: it takes no such product.
** On failure c is as it was. */
tl_status tl_onednn_sgemm(const tl_product *p, const float *a, const float *b, float *c);

/* Kernels of all parts of a product of bf16 operands, made once per shape and kept by the context;
** valid until the next call. NULL: oneDNN or the processor has none, or not for this product.
** TL_ENOMEM, TL_EBACKEND: there are, and they could not be made */
typedef struct tl_onednn tl_onednn;
tl_status tl_onednn_find(tl_ctx *ctx, const tl_product *whole, tl_onednn **out_kernels);
size_t tl_onednn_scratch(const tl_onednn *kernels); /* bytes, for each part and copy */
/* Number i = copy rows columns + part, on the calling thread; the status is told nobody else. */
tl_status tl_onednn_run(const tl_onednn *kernels, int i, const uint16_t *a, const uint16_t *b,
                        float *c, void *scratch);

#endif

/* product.h - describes a matrix product, its division among threads, and the interface of oneDNN
** (onednn.c), which a build may lack. */
#ifndef TL_PRODUCT_H
#define TL_PRODUCT_H

#include "engine/launch.h"
#include "products/gemm.h"

/* TL_OP_matmul computes `count` products of [m,k] by [k,n]. */
typedef struct tl_matmul_sizes {
    int64_t count, m, n, k;
} tl_matmul_sizes;

/* TL_OP_matmul: y = (or += if add) op(a) op(b), where op transposes if trans_a or trans_b. If one
** of the three tensors is a matrix, the leading axes of the others are folded into its rows;
** otherwise they count the matrices of a batch. */
TL_PRIVATE tl_matmul_sizes tl_matmul_sizes_of(const struct tl_args_matmul *a);

/* One part as a product of its own, with the offsets, in elements, at which it begins in a, b and
** c. Parts are numbered from 0. */
typedef struct tl_product_part {
    tl_product shape;
    int64_t    a, b, c;
} tl_product_part;

/* Cuts p for the threads so that a part reads the fewest rows of a and columns of b. A small
** product stays whole. */
void tl_product_cut(tl_product *p, int threads);
tl_product_part tl_part_of(const tl_product *whole, int part);

/* Excludes the kernels of the library that are known to fail; call it before the first product. */
void tl_onednn_open(void);

/* Computes the product in float32 on the calling thread. TL_ENOMEM; TL_EBACKEND if oneDNN does not
** support the product. On failure c is unchanged. */
tl_status tl_onednn_sgemm(const tl_product *p, const float *a, const float *b, float *c);

/* Finds the kernels of all parts of a product of bf16 operands. The context caches them by shape;
** they stay valid until the next call. *out_kernels is NULL if oneDNN or the processor supports no
** bf16, or not for this product. TL_ENOMEM, TL_EBACKEND if creating them fails. */
typedef struct tl_onednn tl_onednn;
tl_status tl_onednn_find(tl_ctx *ctx, const tl_product *whole, tl_onednn **out_kernels);
size_t tl_onednn_scratch(const tl_onednn *kernels); /* bytes for each kernel */
/* Runs kernel number i, which is copy * rows * columns + part, on the calling thread. The caller
** reports an error; this function only returns its code. */
tl_status tl_onednn_run(const tl_onednn *kernels, int i, const uint16_t *a, const uint16_t *b,
                        float *c, void *scratch);

#endif

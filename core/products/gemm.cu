/* gemm.cu - multiplies matrices by cuBLAS. */
#include "cuda/cuda.cuh"

extern "C" {
#include "base/bf16.h"
#include "products/gemm.h"
#include "products/product.h"
}

typedef struct product { /* the arguments of gpu_gemm, and the types of operands and sums */
    int trans_a, trans_b;
    int64_t m, n, k, count;
    const void *a, *b;
    cudaDataType_t type;
    cublasComputeType_t sums;
    float beta, *c;
    int64_t ld_a, ld_b, ld_c; /* elements between rows; 0: the rows are contiguous */
} product;

/* Sums one number of float32 per block: cuBLAS would add them in float32. */
static __global__ void dots(const float *a, const float *b, float beta, float *c, int64_t k)
{
    __shared__ double scratch[THREADS / 32];
    int64_t at = blockIdx.x * k;
    double  sum = 0;
    for (int64_t i = threadIdx.x; i < k; i += THREADS)
        sum += (double)a[at + i] * (double)b[at + i];
    sum = block_reduce(sum, add(), scratch);
    if (threadIdx.x == 0)
        c[blockIdx.x] = (float)(sum + (beta != 0 ? (double)(beta * c[blockIdx.x]) : 0));
}

#define MAX_MATRICES 32768 /* matrices per call */

static inline int64_t at_least_1(int64_t size) { return size > 0 ? size : 1; }

/* cuBLAS is column-major, so that it computes c^T [n,m] = op(b)^T op(a)^T. */
static tl_status multiply(tl_ctx *ctx, const product *p)
{
    float   one = 1;
    int64_t size = p->type == CUDA_R_32F ? 4 : 2, m = p->m, n = p->n, k = p->k;
    int     ld_a = (int)at_least_1(p->ld_a ? p->ld_a : p->trans_a ? m : k);
    int     ld_b = (int)at_least_1(p->ld_b ? p->ld_b : p->trans_b ? k : n);
    int     ld_c = (int)(p->ld_c ? p->ld_c : n);
    if (m == 0 || n == 0) return TL_OK;
    tl_status fits = tl_gemm_fits(ctx, "matrix product", m, n, k);
    if (fits != TL_OK) return fits;
    if (m == 1 && n == 1 && !p->ld_a && p->sums == CUBLAS_COMPUTE_32F && size == 4) {
        LAUNCH_SYNC(dots, p->count, THREADS, (const float *)p->a, (const float *)p->b, p->beta,
                    p->c, k);
        return launched(ctx, "matrix product");
    }
    for (int64_t first = 0; first < p->count; first += MAX_MATRICES) {
        int64_t left = p->count - first, count = left < MAX_MATRICES ? left : MAX_MATRICES;
        cublasStatus_t st = cublasGemmStridedBatchedEx(
            gpu_of(ctx)->blas, p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
            p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, (int)n, (int)m, (int)k, &one,
            (const char *)p->b + first * k * n * size, p->type, ld_b, k * n,
            (const char *)p->a + first * m * k * size, p->type, ld_a, m * k, &p->beta,
            p->c + first * m * n, CUDA_R_32F, ld_c, m * n, (int)count, p->sums,
            CUBLAS_GEMM_DEFAULT);
        if (st != CUBLAS_STATUS_SUCCESS) return blas_fail(ctx, st, "matrix product");
    }
    return TL_OK;
}

tl_status gpu_gemm(tl_ctx *ctx, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                   const float *a, const float *b, float beta, float *c, int64_t count)
{
    product p = {trans_a, trans_b, m, n, k, count, a, b, CUDA_R_32F, CUBLAS_COMPUTE_32F, beta, c};
    return multiply(ctx, &p);
}

/* ---- Other precisions ------------------------------------------------------------------------ */

static __global__ void round_bf16(const float *x, uint16_t *y, int64_t n)
{
    EACH(i, n) y[i] = tl_round_bf16(__float_as_uint(x[i]));
}

tl_status gpu_round_bf16(tl_ctx *ctx, const float *x, uint16_t *y, int64_t n)
{
    LAUNCH(round_bf16, blocks_for(n), THREADS, x, y, n);
    return launched(ctx, "rounding to bf16");
}

/* Runs p on rounded copies of its operands. */
static tl_status multiply_bf16(tl_ctx *ctx, product *p)
{
    int64_t   count_a = p->count * p->m * p->k, count_b = p->count * p->k * p->n;
    int64_t   before_b = (count_a + 127) / 128 * 128; /* both are aligned to 256 bytes */
    uint16_t *low;
    if (count_a == 0 || count_b == 0) return multiply(ctx, p);
    tl_status st = gpu_alloc(ctx, (size_t)(before_b + count_b) * sizeof *low, (void **)&low);
    if (st != TL_OK) return st;
    st = gpu_round_bf16(ctx, (const float *)p->a, low, count_a);
    if (st == TL_OK) st = gpu_round_bf16(ctx, (const float *)p->b, low + before_b, count_b);
    p->a = low;
    p->b = low + before_b;
    p->type = CUDA_R_16BF;
    if (st == TL_OK) st = multiply(ctx, p);
    gpu_free(ctx, low);
    return st;
}

tl_status gpu_product(tl_ctx *ctx, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                      const float *a, const float *b, float beta, float *c, int64_t count)
{
    product p = {trans_a, trans_b, m, n, k, count, a, b, CUDA_R_32F, CUBLAS_COMPUTE_32F, beta, c};
    if (ctx->precision == TL_PRECISION_BF16) return multiply_bf16(ctx, &p);
    if (ctx->precision == TL_PRECISION_TF32) p.sums = CUBLAS_COMPUTE_32F_FAST_TF32;
    return multiply(ctx, &p);
}

tl_status gpu_product_spaced(tl_ctx *ctx, const gpu_spaced *r)
{
    product p = {r->trans_a, r->trans_b, r->m, r->n, r->k, 1, r->a, r->b, CUDA_R_32F,
                 CUBLAS_COMPUTE_32F, r->beta, r->c, r->ld_a, r->ld_b, r->ld_c};
    if (ctx->precision == TL_PRECISION_BF16) p.type = CUDA_R_16BF;
    if (ctx->precision == TL_PRECISION_TF32) p.sums = CUBLAS_COMPUTE_32F_FAST_TF32;
    return multiply(ctx, &p);
}

/* ---- Operators ------------------------------------------------------------------------------- */

tl_status gpu_matmul(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_matmul *m = &a->matmul;
    tl_matmul_sizes s = tl_matmul_sizes_of(m);
    if (m->y->len == 0) return TL_OK;
    if (s.k == 0) return m->add ? TL_OK : tl_tensor_fill(m->y, 0); /* an empty sum */
    return gpu_product(ctx, (int)m->trans_a, (int)m->trans_b, s.m, s.n, s.k, F32(m->a), F32(m->b),
                       m->add ? 1.0f : 0.0f, F32(m->y), s.count);
}

static __global__ void spread_rows(const float *bias, float *y, int64_t cols, int64_t n)
{
    EACH(i, n) y[i] = bias[i % cols];
}

GPU_EACH(spread, a->y->len, spread_rows, F32(a->row), F32(a->y), a->row->len)

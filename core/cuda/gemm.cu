/* gemm.cu - matrix products, by cuBLAS. */
#include "cuda.cuh"

/* cuBLAS counts by columns: it is asked for c^T [n,m] = op(b)^T op(a)^T. */
tl_status card_gemm(tl_ctx *ctx, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                    const float *a, const float *b, float beta, float *c, int64_t count)
{
    float          one = 1;
    cublasStatus_t st = cublasGemmStridedBatchedEx(
        card_of(ctx)->blas, trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
        trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, (int)n, (int)m, (int)k, &one, b, CUDA_R_32F,
        (int)(trans_b ? k : n), k * n, a, CUDA_R_32F, (int)(trans_a ? m : k), m * k, &beta, c,
        CUDA_R_32F, (int)n, m * n, (int)count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    return st == CUBLAS_STATUS_SUCCESS ? TL_OK : blas_fail(ctx, st, "matrix product");
}

static __global__ void fill_zero(float *y, int64_t n) { EACH(i, n) y[i] = 0; }

/* as matmul.c's */
static tl_status matmul(tl_ctx *ctx, const tl_args *a)
{
    tl_tensor *y = a->out[0];
    if (y->len == 0) return TL_OK;
    if (a->i[6] == 0) { /* an empty sum */
        if (a->i[2]) return TL_OK;
        LAUNCH(fill_zero, blocks_for(y->len), THREADS, F32(y), y->len);
        return launched(ctx, "matmul");
    }
    return card_gemm(ctx, (int)a->i[0], (int)a->i[1], a->i[4], a->i[5], a->i[6], F32(a->in[0]),
                     F32(a->in[1]), a->i[2] ? 1.0f : 0.0f, F32(y), a->i[3]);
}

static __global__ void spread_rows(const float *bias, float *y, int64_t cols, int64_t n)
{
    EACH(i, n) y[i] = bias[i % cols];
}

/* every row of out[0] = in[0] */
static tl_status spread(tl_ctx *ctx, const tl_args *a)
{
    int64_t n = a->out[0]->len;
    if (n == 0) return TL_OK;
    LAUNCH(spread_rows, blocks_for(n), THREADS, F32(a->in[0]), F32(a->out[0]), a->in[0]->len, n);
    return launched(ctx, "spread");
}

const tl_kernel_row card_gemms[] = {{TL_OP_matmul, matmul}, {TL_OP_spread, spread}, {}};

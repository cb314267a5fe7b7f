/* emulate_libraries.h - emulates the functions of cuBLAS and cuFFT that core/cuda uses, by their
** definitions. */
#ifndef TL_EMULATE_LIBRARIES_H
#define TL_EMULATE_LIBRARIES_H

#include "emulate_runtime.h"

/* ---- cuBLAS ---------------------------------------------------------------------------------- */

typedef int cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_ALLOC_FAILED } cublasStatus_t;
typedef enum { CUBLAS_OP_N, CUBLAS_OP_T } cublasOperation_t;
typedef enum { CUDA_R_32F, CUDA_R_16BF } cudaDataType_t;
typedef enum { CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32 } cublasComputeType_t;
enum { CUBLAS_GEMM_DEFAULT };

typedef enum { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL } libraryPropertyType;
static inline cublasStatus_t cublasGetProperty(libraryPropertyType, int *v)
{
    return *v = 0, CUBLAS_STATUS_SUCCESS;
}
static inline const char *cublasGetStatusString(cublasStatus_t) { return "failed"; }
static inline cublasStatus_t cublasCreate(cublasHandle_t *h)
{
    return *h = 1, CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasDestroy(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
static inline cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *, size_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

static inline cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType_t type_a, int lda, long long stride_a,
    const void *b, cudaDataType_t type_b, int ldb, long long stride_b, const void *beta, void *c,
    cudaDataType_t type_c, int ldc, long long stride_c, int count, cublasComputeType_t sums, int)
{
    auto element = [=](const void *p, cudaDataType_t type, long long i) {
        if (type == CUDA_R_16BF) return __uint_as_float((unsigned)((const uint16_t *)p)[i] << 16);
        float x = ((const float *)p)[i];
        if (sums == CUBLAS_COMPUTE_32F) return x;
        return __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u); /* TF32 */
    };
    if (m < 0 || n < 0 || k < 0 || lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m || ldc < 1)
        emulate::die("a product that cuBLAS would refuse");
    float scale = *(const float *)alpha, keep = *(const float *)beta;
    if (type_c != CUDA_R_32F) emulate::die("a product of this type is not emulated");
    emulate::submit([=] {
        emulate::guard(true);
        for (int s = 0; s < count; s++)
            for (int j = 0; j < n; j++)
                for (int i = 0; i < m; i++) {
                    double sum = 0;
                    for (int p = 0; p < k; p++) {
                        long long left = ta ? p + (long long)i * lda : i + (long long)p * lda;
                        long long right = tb ? j + (long long)p * ldb : p + (long long)j * ldb;
                        sum += (double)element(a, type_a, s * stride_a + left) *
                               (double)element(b, type_b, s * stride_b + right);
                    }
                    float *y = (float *)c + s * stride_c + i + (long long)j * ldc;
                    *y = (float)(scale * sum + (keep != 0 ? (double)keep * *y : 0));
                }
        emulate::guard(false);
    });
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- cuFFT: plans of many one-dimensional transforms ----------------------------------------- */

typedef struct { float x, y; } cufftComplex;
typedef float cufftReal;
typedef enum { CUFFT_SUCCESS, CUFFT_ALLOC_FAILED, CUFFT_INVALID_SIZE } cufftResult;
typedef enum { CUFFT_R2C, CUFFT_C2R, CUFFT_C2C } cufftType;
#define CUFFT_FORWARD (-1)
#define CUFFT_INVERSE 1

typedef struct emulated_plan {
    int n, istride, idist, ostride, odist, batch;
    cufftType type;
} *cufftHandle;

static inline cufftResult cufftPlanMany(cufftHandle *plan, int rank, int *n, int *inembed,
                                        int istride, int idist, int *onembed, int ostride,
                                        int odist, cufftType type, int batch)
{
    emulate::not_captured("a plan made in a capture");
    if (rank != 1 || n[0] < 1 || batch < 1) return CUFFT_INVALID_SIZE;
    if (!inembed) istride = 1, idist = type == CUFFT_C2R ? n[0] / 2 + 1 : n[0];
    if (!onembed) ostride = 1, odist = type == CUFFT_R2C ? n[0] / 2 + 1 : n[0];
    *plan = new emulated_plan{n[0], istride, idist, ostride, odist, batch, type};
    return CUFFT_SUCCESS;
}

static inline cufftResult cufftGetVersion(int *v) { return *v = 0, CUFFT_SUCCESS; }
static inline cufftResult cufftDestroy(cufftHandle p) { return delete p, CUFFT_SUCCESS; }
static inline cufftResult cufftSetStream(cufftHandle, cudaStream_t) { return CUFFT_SUCCESS; }

namespace emulate {

/* Sums the definition in double; in(b, j) and out(b, k) return pointers to re and im. */
template <class In, class Out>
void transform_now(cufftHandle p, int sign, int inputs, int outputs, In in, Out out)
{
    guard(true);
    double *x = (double *)malloc(sizeof(double) * 2 * (size_t)p->n), *y = x;
    double *to = (double *)malloc(sizeof(double) * 2 * (size_t)p->n);
    for (int b = 0; b < p->batch; b++) {
        for (int j = 0; j < inputs; j++) in(b, j, y + 2 * j);
        for (int j = inputs; j < p->n; j++) { /* the conjugate half of the spectrum */
            y[2 * j] = y[2 * (p->n - j)];
            y[2 * j + 1] = -y[2 * (p->n - j) + 1];
        }
        for (int k = 0; k < outputs; k++) {
            double re = 0, im = 0;
            for (int j = 0; j < p->n; j++) {
                long long turn = (long long)j * k % p->n;
                double angle = sign * 2 * M_PI * (double)turn / p->n;
                double c = cos(angle), s = 2 * turn == p->n ? 0 : sin(angle);
                re += c * y[2 * j] - s * y[2 * j + 1];
                im += c * y[2 * j + 1] + s * y[2 * j];
            }
            to[2 * k] = re;
            to[2 * k + 1] = im;
        }
        for (int k = 0; k < outputs; k++) out(b, k, to + 2 * k);
    }
    free(x);
    free(to);
    guard(false);
}

template <class In, class Out>
void transform(cufftHandle p, int sign, int inputs, int outputs, In in, Out out)
{
    submit([=] { transform_now(p, sign, inputs, outputs, in, out); });
}

} /* namespace emulate */

static inline cufftResult cufftExecC2C(cufftHandle p, cufftComplex *in, cufftComplex *out, int sign)
{
    emulate::transform(p, sign, p->n, p->n,
        [=](int b, int j, double *v) {
            cufftComplex z = in[(long long)b * p->idist + (long long)j * p->istride];
            v[0] = z.x, v[1] = z.y;
        },
        [=](int b, int k, double *v) {
            out[(long long)b * p->odist + (long long)k * p->ostride] = {(float)v[0], (float)v[1]};
        });
    return CUFFT_SUCCESS;
}

static inline cufftResult cufftExecR2C(cufftHandle p, cufftReal *in, cufftComplex *out)
{
    emulate::transform(p, CUFFT_FORWARD, p->n, p->n / 2 + 1,
        [=](int b, int j, double *v) {
            v[0] = in[(long long)b * p->idist + (long long)j * p->istride], v[1] = 0;
        },
        [=](int b, int k, double *v) {
            out[(long long)b * p->odist + (long long)k * p->ostride] = {(float)v[0], (float)v[1]};
        });
    return CUFFT_SUCCESS;
}

/* cuFFT leaves the result undefined if bin 0 or the middle bin has an imaginary part; here it is
** NaN. */
static inline cufftResult cufftExecC2R(cufftHandle p, cufftComplex *in, cufftReal *out)
{
    emulate::transform(p, CUFFT_INVERSE, p->n / 2 + 1, p->n,
        [=](int b, int j, double *v) {
            cufftComplex z = in[(long long)b * p->idist + (long long)j * p->istride];
            v[0] = z.x, v[1] = z.y;
            if (z.y != 0 && (j == 0 || 2 * j == p->n)) v[0] = NAN;
        },
        [=](int b, int k, double *v) {
            out[(long long)b * p->odist + (long long)k * p->ostride] = (float)v[0];
        });
    return CUFFT_SUCCESS;
}

#endif

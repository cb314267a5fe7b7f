/* emulate_libraries.h - implements the functions of cuBLAS and cuFFT that the CUDA device uses, by
** their definitions. */
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
    int n, batch, inputs, outputs; /* inputs and outputs: numbers of a vector, real or complex */
    cufftType type;
    void *area; /* its work area, which every execution overwrites */
} *cufftHandle;

static inline cufftResult cufftCreate(cufftHandle *plan)
{
    return *plan = new emulated_plan{}, CUFFT_SUCCESS;
}
static inline cufftResult cufftSetAutoAllocation(cufftHandle, int automatic)
{
    if (automatic) emulate::die("only plans that allocate no work area are emulated");
    return CUFFT_SUCCESS;
}
/* A transform takes as much scratch space as its complex numbers, unless its length is 2^k. */
static inline size_t work_bytes(cufftHandle p)
{
    return p->n & (p->n - 1) ? (size_t)p->batch * (size_t)p->n * 8 : 0;
}
static inline cufftResult cufftMakePlanMany64(cufftHandle p, int rank, long long *n,
                                              long long *inembed, long long, long long,
                                              long long *onembed, long long, long long,
                                              cufftType type, long long batch, size_t *work)
{
    emulate::not_captured("a plan made in a capture");
    if (rank != 1 || n[0] < 1 || batch < 1 || inembed || onembed) return CUFFT_INVALID_SIZE;
    int all = (int)n[0], half = all / 2 + 1;
    *p = {all, (int)batch, type == CUFFT_C2R ? half : all, type == CUFFT_R2C ? half : all, type,
          NULL};
    return *work = work_bytes(p), CUFFT_SUCCESS;
}
static inline cufftResult cufftSetWorkArea(cufftHandle p, void *area)
{
    return p->area = area, CUFFT_SUCCESS;
}

static inline cufftResult cufftGetVersion(int *v) { return *v = 0, CUFFT_SUCCESS; }
static inline cufftResult cufftDestroy(cufftHandle p) { return delete p, CUFFT_SUCCESS; }
static inline cufftResult cufftSetStream(cufftHandle, cudaStream_t) { return CUFFT_SUCCESS; }

namespace emulate {

/* Sums the definition in double: in(i, v) reads number i of all inputs to v, and out writes. */
template <class In, class Out> void transform_now(const emulated_plan *p, int sign, In in, Out out)
{
    int inputs = p->inputs, outputs = p->outputs;
    guard(true);
    if (p->area) memset(p->area, 0xff, work_bytes((cufftHandle)p));
    double *x = (double *)malloc(sizeof(double) * 2 * (size_t)p->n), *y = x;
    double *to = (double *)malloc(sizeof(double) * 2 * (size_t)p->n);
    for (int b = 0; b < p->batch; b++) {
        for (int j = 0; j < inputs; j++) in((long long)b * inputs + j, y + 2 * j);
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
        for (int k = 0; k < outputs; k++) out((long long)b * outputs + k, to + 2 * k);
    }
    free(x);
    free(to);
    guard(false);
}

/* The graph of a capture keeps what the plan is now. */
template <class In, class Out> cufftResult transform(cufftHandle p, int sign, In in, Out out)
{
    emulated_plan now = *p;
    if (work_bytes(p) > 0 && !is_taken(p->area, work_bytes(p)))
        die("a transform without the work area that its plan asked for");
    submit([=] { transform_now(&now, sign, in, out); });
    return CUFFT_SUCCESS;
}

inline void load(const cufftComplex *z, double *v) { v[0] = z->x, v[1] = z->y; }
inline void store(const double *v, cufftComplex *z) { *z = {(float)v[0], (float)v[1]}; }

} /* namespace emulate */

static inline cufftResult cufftExecC2C(cufftHandle p, cufftComplex *in, cufftComplex *out, int sign)
{
    return emulate::transform(p, sign,
        [=](long long i, double *v) { emulate::load(in + i, v); },
        [=](long long i, double *v) { emulate::store(v, out + i); });
}

static inline cufftResult cufftExecR2C(cufftHandle p, cufftReal *in, cufftComplex *out)
{
    return emulate::transform(p, CUFFT_FORWARD,
        [=](long long i, double *v) { v[0] = in[i], v[1] = 0; },
        [=](long long i, double *v) { emulate::store(v, out + i); });
}

/* cuFFT leaves the result undefined if bin 0 or the middle bin has an imaginary part; here it is
** NaN. */
static inline cufftResult cufftExecC2R(cufftHandle p, cufftComplex *in, cufftReal *out)
{
    int n = p->n, bins = p->inputs;
    return emulate::transform(p, CUFFT_INVERSE,
        [=](long long i, double *v) {
            emulate::load(in + i, v);
            if (v[1] != 0 && (i % bins == 0 || i % bins * 2 == n)) v[0] = NAN;
        },
        [=](long long i, double *v) { out[i] = (float)v[0]; });
}

#endif

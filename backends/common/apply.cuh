/* apply.cuh - declares the two ways in which CUDA forms apply a Toeplitz operator to [b,n,d]: by
** Fourier transforms and by direct sums. */
#ifndef TL_APPLY_CUH
#define TL_APPLY_CUH

#include "tno/tno.cuh"
#include "lines.cuh"

extern const gpu_form gpu_fft_form, gpu_rac_form, gpu_fd_form, gpu_naive_form,
    gpu_matrix_form, gpu_ski_form;

/* The bytes of a scratch buffer: convolutions take a part of the sequences at a time, but at least
** one sequence with all its channels. The buffers of ski hold the whole batch. */
#ifdef TL_EMULATE
#define BUDGET ((int64_t)16 << 10) /* so small that tests cover divided work */
#else
#define BUDGET ((int64_t)256 << 20)
#endif

static inline int64_t clamp(int64_t k, int64_t low, int64_t high)
{
    return k > high ? high : k < low ? low : k;
}

/* ---- By transforms (convolve.cu) --------------------------------------------------------- */

typedef struct gpu_buffers { /* scratch buffers for b sequences at a time */
    int64_t b;
    float *lines;             /* [b,d,size] */
    float2 *x, *dy, *t, *sum; /* [b,d,bins], the last two [d,bins] */
} gpu_buffers;

/* The plan of a backend may begin with one. */
typedef struct gpu_convolution gpu_convolution;
struct gpu_convolution {
    tl_ctx *ctx;
    int64_t n, d;
    int64_t zero, lags; /* a kernel by lags: their number, and the row of lag 0 */
    int64_t size, bins; /* of the transforms; bins = size/2 + 1 */
    int64_t coefs;      /* floats of coef */
    /* Sets m->t, the spectra of the kernel, from coef. It may use m->lines. */
    tl_status (*spectra)(const gpu_convolution *s, const gpu_buffers *m, const float *coef);
    /* Sets dcoef from m->sum, the spectra of the kernel's gradient. It may use all buffers. */
    tl_status (*gradients)(const gpu_convolution *s, const gpu_buffers *m, float *dcoef);
};

/* Prepares a kernel of the lags -zero .. lags-zero-1, which are fewer than n on either side. */
void gpu_convolution_set(gpu_convolution *s, tl_ctx *ctx, int64_t n, int64_t d, int64_t zero,
                         int64_t lags);
/* The floats of the spectra that tl_tno_args.cache can cache between calls. */
int64_t gpu_convolution_cache_size(const gpu_convolution *s);
/* y = T x. With a cache that is not cached it computes the spectra into it, also for b = 0. */
tl_status gpu_convolve(const gpu_convolution *s, const tl_tno_args *a);
/* dx and dcoef, unless they are NULL; for b = 0 dcoef is 0. */
tl_status gpu_convolve_back(const gpu_convolution *s, const tl_tno_args *a);

/* ---- By direct sums (direct.cu) ---------------------------------------------------------- */

typedef struct gpu_band {
    int64_t n, d, taps, origin; /* tap k has lag k - origin */
    int wide;                   /* whether sums are in float64 */
} gpu_band;

/* W, which has width non-zeros in row i, from column start[i] on. */
typedef struct gpu_interpolation {
    const int32_t *start;
    const float *weight; /* [n,width] */
    int width;           /* 0 if there is no W v */
    int64_t r;
    const float *v; /* [b,r,d] */
} gpu_interpolation;

/* y = S x + W v, or S' x + W v for the adjoint; t [taps,d] */
tl_status gpu_band_apply(tl_ctx *ctx, const gpu_band *p, int adjoint, int64_t b, const float *t,
                         const float *x, const gpu_interpolation *w, float *y);
/* dt [taps,d] = (or += if add) the sums of dy x along the diagonals */
tl_status gpu_band_grad(tl_ctx *ctx, const gpu_band *p, int64_t b, const float *x,
                        const float *dy, int add, float *dt);
/* out [len] = (or += if add) the sum of sums [parts,len] over the parts */
tl_status gpu_add_parts(tl_ctx *ctx, const double *sums, int64_t parts, int64_t len, int add,
                        float *out);
/* The number of parts into which a sum over units is divided so that, with `lanes` sums at a time,
** the GPU is busy. */
static inline int64_t gpu_parts(int64_t lanes, int64_t units)
{
    return clamp(131072 / (lanes > 0 ? lanes : 1), 1, units > 1 ? units : 1);
}

#endif

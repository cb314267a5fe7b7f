/* apply.cuh - two ways in which forms of backends apply a Toeplitz operator to [b,n,d] on a GPU: by
** transforms and by plain sums. */
#ifndef TL_APPLY_CUH
#define TL_APPLY_CUH

#include "cuda/tno.cuh"
#include "lines.cuh"

extern const gpu_form gpu_fft_form, gpu_rac_form, gpu_fd_form, gpu_naive_form,
    gpu_matrix_form, gpu_ski_form;

/* Bytes of one buffer of scratch: what needs more is done in parts. */
#ifdef TL_EMULATE
#define BUDGET ((int64_t)16 << 10) /* so that tests meet parts */
#else
#define BUDGET ((int64_t)256 << 20)
#endif

static inline int64_t clamp(int64_t k, int64_t low, int64_t high)
{
    return k > high ? high : k < low ? low : k;
}

/* ---- By transforms (convolve.cu) --------------------------------------------------------- */

typedef struct gpu_room { /* for b sequences at a time */
    int64_t b;
    float *lines;             /* [b,d,size] */
    float2 *x, *dy, *t, *sum; /* [b,d,bins], the last two [d,bins] */
} gpu_room;

/* A backend's plan may begin with one. */
typedef struct gpu_convolution gpu_convolution;
struct gpu_convolution {
    tl_ctx *ctx;
    int64_t n, d;
    int64_t zero, lags; /* points: lag 0 is row zero of so many; for spectra and gradients only */
    int64_t size, bins; /* of the transforms; bins = size/2 + 1 */
    int64_t coefs;      /* floats of coef */
    /* room->t = the spectra of the kernel, from coef; lines is free */
    tl_status (*spectra)(const gpu_convolution *s, const gpu_room *room, const float *coef);
    /* dcoef from room->sum, the spectra of the kernel's gradient; all the rest is free */
    tl_status (*gradients)(const gpu_convolution *s, const gpu_room *room, float *dcoef);
};

/* A kernel given by its lags -zero .. lags-zero-1, fewer than n on either side. */
void gpu_convolution_set(gpu_convolution *s, tl_ctx *ctx, int64_t n, int64_t d, int64_t zero,
                         int64_t lags);
/* Floats of spectra, for tl_tno_args.kept; without it they are made in each call. */
int64_t gpu_convolution_kept(const gpu_convolution *s);
tl_status gpu_convolve(const gpu_convolution *s, const tl_tno_args *a);
tl_status gpu_convolve_back(const gpu_convolution *s, const tl_tno_args *a);

/* ---- By plain sums (direct.cu) ----------------------------------------------------------- */

typedef struct gpu_band {
    int64_t n, d, taps, origin; /* tap k is of lag k - origin */
    int wide;                   /* sums in float64 */
} gpu_band;

typedef struct gpu_weave { /* W, width non-zeros of row i from column start[i] on */
    const int32_t *start;
    const float *weight; /* [n,width] */
    int width;           /* 0: no W v */
    int64_t r;
    const float *v; /* [b,r,d] */
} gpu_weave;

/* y = S x + W v, or with adjoint S' x + W v; t [taps,d] */
tl_status gpu_band_apply(tl_ctx *ctx, const gpu_band *p, int adjoint, int64_t b, const float *t,
                         const float *x, const gpu_weave *w, float *y);
/* dt [taps,d] = the sum of dy x along the diagonals, or with add += it */
tl_status gpu_band_grad(tl_ctx *ctx, const gpu_band *p, int64_t b, const float *x,
                        const float *dy, int add, float *dt);
/* out [len] = or += the sum over parts of sums [parts,len] */
tl_status gpu_add_parts(tl_ctx *ctx, const double *sums, int64_t parts, int64_t len, int add,
                        float *out);
/* Into how many parts a sum over units is cut, if lanes of it are made at a time. */
static inline int64_t gpu_parts(int64_t lanes, int64_t units)
{
    return clamp(131072 / (lanes > 0 ? lanes : 1), 1, units > 1 ? units : 1);
}

#endif

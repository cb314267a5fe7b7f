/* tiles.cuh - declares products with Toeplitz matrices on tensor cores, which never write T.
** Numbers are split into COPIES words of bf16: with one the factors are rounded to bf16, two keep
** 16 binary digits of them, and three all 24. Sums are float32. */
#ifndef TILES_CUH
#define TILES_CUH

#include "../common/tensor_cores.cuh"

typedef struct band { /* T[i,j] = t[i-j], which is 0 unless first <= i - j <= last */
    int64_t b;
    int n, d, first, last;
} band;

/* y [b,n,d] = T x, or T' x: t is row zero + lag, or zero - lag, of coef [last-first+1,d]. */
tl_status toeplitz_apply(tl_ctx *ctx, const band *t, int copies, int transpose, const float *coef,
                         const float *x, float *y);
/* dcoef [last-first+1,d] = the sums of dy x' along the diagonals */
tl_status toeplitz_gradient(tl_ctx *ctx, const band *t, int copies, const float *x, const float *dy,
                            float *dcoef);

/* ---- What the two share ---------------------------------------------------------------------- */

#define CHUNK 64 /* rows of x at a time */

/* Returns 4 channels of a row of x [b,n,d], with 0 in place of those that do not exist. */
static __device__ __forceinline__ float4 load_channels(const band &t, const float *x, int64_t s,
                                                       int row, int c)
{
    float4 v = make_float4(0, 0, 0, 0);
    if (s >= t.b || row < 0 || row >= t.n || c >= t.d) return v;
    const float *from = x + (s * t.n + row) * t.d + c;
    if (t.d % 4 == 0) return *(const float4 *)from;
    v.x = from[0];
    if (c + 1 < t.d) v.y = from[1];
    if (c + 2 < t.d) v.z = from[2];
    if (c + 3 < t.d) v.w = from[3];
    return v;
}

/* Writes the pairs (a, b) of 4 channels, `line` words apart. */
template <int COPIES>
static __device__ __forceinline__ void store_pairs(float4 a, float4 b, uint32_t *to, int line,
                                                   int apart)
{
    split_bf16<COPIES>(a.x, b.x, to, apart);
    split_bf16<COPIES>(a.y, b.y, to + line, apart);
    split_bf16<COPIES>(a.z, b.z, to + 2 * line, apart);
    split_bf16<COPIES>(a.w, b.w, to + 3 * line, apart);
}

static inline int64_t ceiling(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

#endif

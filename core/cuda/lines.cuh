/* lines.cuh - sequences [b,n,d] as lines, one per channel, for transforms and back. */
#ifndef TL_LINES_CUH
#define TL_LINES_CUH

#include "cuda.cuh"

/* batch transforms of length n, contiguous lines of from into those of to, unscaled. TL_C2R spoils
** from. */
tl_status card_fft(tl_ctx *ctx, tl_transform_kind kind, int64_t n, int64_t batch, float *from,
                   float *to);

/* lines [b,d,size] from at on, mod size, = x [b,n,d]; the rest of a line stays as it is */
tl_status card_to_lines(tl_ctx *ctx, const float *x, int64_t b, int64_t n, int64_t d, int64_t at,
                        int64_t size, float *lines);
/* y [b,n,d] = scale lines [b,d,size] from at on, mod size */
tl_status card_from_lines(tl_ctx *ctx, const float *lines, int64_t b, int64_t n, int64_t d,
                          int64_t at, int64_t size, float scale, float *y);

#endif

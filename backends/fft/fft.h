/* fft.h - declares FFTW plans, for the convolution (convolve.c) and for other backends (plan.c). */
#ifndef FFT_H
#define FFT_H

#include <fftw3.h>
#include <limits.h>

#include "backend.h"

#define FFT_LONGEST (INT_MAX / 2) /* of a transform: FFTW's interface takes an int */

/* Makes a plan for one contiguous vector of length n, out of place, whose arrays begin at multiples
** of 32 bytes. With measure FFTW times its algorithms, and its choice is stored in h->cache_dir
** before it is used, so that a restarted run computes the same bits, also on another machine of
** that FFTW and instruction set. Without measure, without a writable cache_dir, or at a length for
** which measuring would take minutes, FFTW estimates, which always gives the same plan. It also
** estimates if another process holds the lock of the stored plans for a minute; then a restarted
** run may find a measured plan, whose results round differently. TL_ENOMEM; TL_EINVAL if n >
** FFT_LONGEST. */
tl_status fft_plan(const tl_host *h, tl_transform_kind kind, int64_t n, int measure,
                   fftwf_plan *out_plan);
void      fft_plan_free(fftwf_plan plan); /* NULL is allowed */

extern const tl_transforms fft_transforms;

#endif

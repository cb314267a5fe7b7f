/* fft.h - FFTW plans, for the convolution (convolve.c) and for the host (plan.c). */
#ifndef FFT_H
#define FFT_H

#include <fftw3.h>

#include "backend.h"

/* A plan for one contiguous vector of length n, out of place, 64-byte aligned. measure: FFTW times
** its choices, and what it chose is kept in h->cache_dir before it is used, so that a restarted run
** computes the same; without a cache_dir that can be written, or with measure 0, FFTW chooses by
** estimate, which is always the same. TL_ENOMEM; TL_EINVAL: n is too large */
tl_status fft_plan(const tl_host *h, tl_transform_kind kind, int64_t n, int measure,
                   fftwf_plan *out_plan);
void      fft_plan_free(fftwf_plan plan); /* NULL is harmless */

extern const tl_transforms fft_transforms;

#endif

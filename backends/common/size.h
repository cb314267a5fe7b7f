/* size.h - chooses the lengths of Fourier transforms. */
#ifndef SIZE_H
#define SIZE_H

#include <stdint.h>

/* The smallest product of 2, 3, 5 and 7 from n on: FFTW and cuFFT have code for these factors. */
static inline int64_t good_size(int64_t n)
{
    const int primes[] = {2, 3, 5, 7};
    for (;; n++) {
        int64_t rest = n;
        for (int i = 0; i < 4; i++)
            while (rest % primes[i] == 0) rest /= primes[i];
        if (rest == 1) return n;
    }
}

#endif

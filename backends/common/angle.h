/* angle.h - implements the right-angle convolution, the product of polynomials modulo X^N - i for
** any N >= n, for backends that convolve by Fourier transforms F.
**
** Let T'[m] = t_m - i t_(m-N), where lags that do not exist are 0. Modulo X^N = i, entry k of x T'
** is the sum over j <= k of x_j T'[k-j] plus i times the sum over j > k of x_j T'[k-j+N]. Its real
** part is the sum over all j of x_j t_(k-j): T x, causal or not. Unlike a circulant, this needs no
** padding to 2n.
**
** With w = exp(i pi / 2N), the twist W = diag(w^m) makes the product a cyclic one:
**     T x = Re W^-1 F^-1 (F W T' . F W x)
** W is unitary, so the adjoints are conjugations:
**     dx = Re W^-1 F^-1 (conj(F W T') . F W dy)      dT' = W^-1 F^-1 (conj(F W x) . F W dy)
** and dt_m = Re dT'[m], dt_(m-N) = -Im dT'[m].
**
** N is good_size(n). Below, w [N,2] is the twist, and a complex vector z consists of pairs of
** floats. */
#ifndef ANGLE_H
#define ANGLE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline void angle_table(int64_t size, float *w)
{
    for (int64_t m = 0; m < size; m++) {
        double angle = 3.14159265358979323846 * (double)m / (2 * (double)size);
        w[2 * m] = (float)cos(angle);
        w[2 * m + 1] = (float)sin(angle);
    }
}

/* z = W x, padded with zeros from n to N */
static inline void angle_twist(const float *restrict w, int64_t size, int64_t n,
                               const float *restrict x, float *restrict z)
{
    for (int64_t m = 0; m < n; m++) {
        z[2 * m] = x[m] * w[2 * m];
        z[2 * m + 1] = x[m] * w[2 * m + 1];
    }
    if (size > n) memset(z + 2 * n, 0, (size_t)(size - n) * sizeof(float[2]));
}

/* x = Re W^-1 z */
static inline void angle_untwist(const float *restrict w, int64_t n, const float *restrict z,
                                 float *restrict x)
{
    for (int64_t m = 0; m < n; m++) x[m] = z[2 * m] * w[2 * m] + z[2 * m + 1] * w[2 * m + 1];
}

/* z += -i W t, where t holds the coefficients of the lags -count..-1 */
static inline void angle_fold(const float *w, int64_t size, int64_t count,
                              const float *restrict t, float *restrict z)
{
    const float *restrict root = w + 2 * (size - count);
    float *restrict tail = z + 2 * (size - count);
    for (int64_t m = 0; m < count; m++) {
        tail[2 * m] += t[m] * root[2 * m + 1];
        tail[2 * m + 1] -= t[m] * root[2 * m];
    }
}

/* t = -Im W^-1 z at the lags -count..-1 */
static inline void angle_unfold(const float *w, int64_t size, int64_t count,
                                const float *restrict z, float *restrict t)
{
    const float *restrict root = w + 2 * (size - count);
    const float *restrict tail = z + 2 * (size - count);
    for (int64_t m = 0; m < count; m++)
        t[m] = tail[2 * m] * root[2 * m + 1] - tail[2 * m + 1] * root[2 * m];
}

/* z = z t */
static inline void angle_multiply(int64_t size, float *restrict z, const float *restrict t)
{
    for (int64_t k = 0; k < size; k++) {
        float re = z[2 * k] * t[2 * k] - z[2 * k + 1] * t[2 * k + 1];
        z[2 * k + 1] = z[2 * k] * t[2 * k + 1] + z[2 * k + 1] * t[2 * k];
        z[2 * k] = re;
    }
}

/* z = z conj(t) */
static inline void angle_multiply_conjugate(int64_t size, float *restrict z,
                                            const float *restrict t)
{
    for (int64_t k = 0; k < size; k++) {
        float re = z[2 * k] * t[2 * k] + z[2 * k + 1] * t[2 * k + 1];
        z[2 * k + 1] = z[2 * k + 1] * t[2 * k] - z[2 * k] * t[2 * k + 1];
        z[2 * k] = re;
    }
}

/* sum += z conj(x) */
static inline void angle_correlate(int64_t size, float *restrict sum, const float *restrict z,
                                   const float *restrict x)
{
    for (int64_t k = 0; k < size; k++) {
        sum[2 * k] += z[2 * k] * x[2 * k] + z[2 * k + 1] * x[2 * k + 1];
        sum[2 * k + 1] += z[2 * k + 1] * x[2 * k] - z[2 * k] * x[2 * k + 1];
    }
}

#endif

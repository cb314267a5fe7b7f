/* lag.h - defines points and matrix of the backends of the time domain, where a point is a lag and
** T[i,j] is the coefficient of lag i - j. Causal problems have the lags 0..n-1, others
** -(n-1)..n-1. */
#ifndef LAG_H
#define LAG_H

#include "backend.h"

/* The row of coef that holds lag 0. */
static inline int64_t lag_zero(const tl_tno_problem *p) { return p->causal ? 0 : p->n - 1; }

static inline int64_t lag_points(const tl_tno_problem *p, double *out)
{
    int64_t zero = lag_zero(p), count = zero + p->n;
    for (int64_t k = 0; out && k < count; k++) out[k] = (double)(k - zero);
    return count;
}

/* Writes T [d,n,n] from coef [p,d], the coefficients of the lags below `lags` in magnitude; all
** others are 0. */
static inline void lag_dense_within(int64_t lags, int64_t n, int64_t d, int causal,
                                    const float *coef, float *dense)
{
    int64_t before = causal ? 0 : lags - 1;
    for (int64_t c = 0; c < d; c++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                int64_t row = before + i - j;
                int     in = row >= 0 && i - j < lags;
                dense[(c * n + i) * n + j] = in ? coef[row * d + c] : 0;
            }
}

static inline void lag_dense(int64_t n, int64_t d, int causal, const float *coef, float *dense)
{
    lag_dense_within(n, n, d, causal, coef, dense);
}

#endif

/* dense.c - writes out T of each channel, entry by entry, from its definition (SKI, Algorithm 1):
**     T[i,j] = t_(i-j+origin) + sum over a, b of W[i,a] k(a-b) W[j,b]     causal: 0 for j > i
** It shares only the weights with the fast code, and sums in float64, so that tests can compare the
** two. */
#include "ski.h"

/* The kernel at lag l of inducing points, 0 beyond the last. */
static double kernel(const ski_plan *s, const float *coef, int64_t l, int64_t c)
{
    int64_t row = l + s->zero;
    if (row < 0 || row >= s->lags) return 0;
    if (s->mean && l == 0) return 0.5 * ((double)coef[row * s->d + c] + coef[(row + 1) * s->d + c]);
    return coef[(row + (s->mean && l > 0)) * s->d + c];
}

/* Entry i, j of W A W'. */
static double low_rank(const ski_plan *s, const float *coef, int64_t i, int64_t j, int64_t c)
{
    const float *wi = s->weight + i * s->width, *wj = s->weight + j * s->width;
    double       sum = 0;
    for (int p = 0; p < s->width; p++)
        for (int q = 0; q < s->width; q++)
            sum += (double)wi[p] * wj[q] * kernel(s, coef, s->start[i] + p - s->start[j] - q, c);
    return sum;
}

tl_status ski_dense(void *plan, const tl_tno_args *a)
{
    const ski_plan *s = plan;
    for (int64_t c = 0; c < s->d; c++)
        for (int64_t i = 0; i < s->n; i++)
            for (int64_t j = 0; j < s->n; j++) {
                int64_t tap = i - j + s->origin;
                double  t = tap >= 0 && tap < s->taps ? a->params[0][tap * s->d + c] : 0;
                if (s->low && !(s->causal && j > i)) t += low_rank(s, a->coef, i, j, c);
                a->dense[(c * s->n + i) * s->n + j] = (float)t;
            }
    return TL_OK;
}

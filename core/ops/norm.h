/* norm.h - the statistics of a row for the norms of norm.c, which explains s and q. */
#ifndef TL_NORM_H
#define TL_NORM_H

#include <math.h>

#include "base/here.h"
#include "toeplab.h"

/* square: the mean of (x - mean)^2 */
static inline HERE void tl_norm_statistics(tl_norm_kind kind, double square, double eps, float *s,
                                           float *q)
{
    double root = sqrt(square);
    if (kind == TL_NORM_SIMPLE) {
        *s = root == 0 ? 0 : (float)(1 / (root + eps));
        *q = root == 0 ? 0 : (float)(1 + eps / root);
    } else if (kind == TL_NORM_SCALE) {
        *s = root == 0 ? 0 : (float)(1 / (root > eps ? root : eps));
        *q = root > eps;
    } else {
        *s = (float)(1 / sqrt(square + eps));
        *q = 1;
    }
}

#endif

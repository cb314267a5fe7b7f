/* weights.h - declares the rows of W, which the CPU and the GPU compute by the same code. */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include <stdint.h>

#define WIDTH 4 /* most non-zeros of a row of W */

typedef struct ski_grid { /* positions of inducing points, and the interpolation */
    int64_t n, r, span;   /* point a is at a span/(r-1) */
    int     cubic, as_published;
    double  lambda;
} ski_grid;

/* The non-zeros of a row: 2 or 4. */
int  ski_width(const ski_grid *g);
/* Writes start [n], the columns of the first non-zeros, and weight [n,width]. */
void ski_weights(const ski_grid *g, int32_t *start, float *weight);

#endif

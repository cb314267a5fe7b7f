/* weights.c - computes the rows of W (SKI, Section 3.2.1). Row i interpolates a function that is
** given at the inducing points p_a = a h, h = span/(r-1), at the token i. With p_a <= i < p_(a+1)
** and f = (i - p_a)/h:
**     linear   W[i,a] = 1 - f, W[i,a+1] = f
**     cubic    four weights, W[i,a-1] .. W[i,a+2]: Keys' cubic convolution with his a = -1/2
** or as the published code computes them. The rows of the first two sum to 1.
**
** W depends on the problem alone, so a plan computes it once. It does so in float64 and rounds each
** weight once. */
#include <math.h>

#include "weights.h"

/* Cubic interpolation needs three points; between two it is linear. */
int ski_width(const ski_grid *g) { return g->cubic && g->r > 2 ? 4 : 2; }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Keys defines the value beyond an edge as 3 f0 - 3 f1 + f2 of the nearest three nodes, so that
** rows still sum to 1 and reproduce parabolas. */
static void add_node(const ski_grid *g, int64_t start, int64_t node, double value, double *row)
{
    if (node >= 0 && node < g->r) {
        row[node - start] += value;
        return;
    }
    int64_t edge = node < 0 ? 0 : g->r - 1, inward = node < 0 ? 1 : -1;
    row[edge - start] += 3 * value;
    row[edge + inward - start] -= 3 * value;
    row[edge + 2 * inward - start] += value;
}

/* The columns begin at a - 1, but at the edges within 0..r-4, so that all four exist if r >= 4. */
static int64_t cubic_row(const ski_grid *g, int64_t a, double f, double *row)
{
    int64_t last = g->r > 4 ? g->r - 4 : 0, start = a > 0 ? smaller(a - 1, last) : 0;
    double  e = 1 - f;
    add_node(g, start, a - 1, -0.5 * f * e * e, row);
    add_node(g, start, a, 1 + f * f * (1.5 * f - 2.5), row);
    add_node(g, start, a + 1, 0.5 * f * (1 + f * (4 - 3 * f)), row);
    add_node(g, start, a + 2, -0.5 * f * f * e, row);
    return start;
}

/* Token i is at position i of 0..span. Integer arithmetic finds a without rounding, so that a token
** on an inducing point has the weights 0 and 1 exactly, and W is the identity for r = n. The last
** inducing point is the end, f = 1, of the last interval. */
static int64_t row_of(const ski_grid *g, int64_t i, double *row)
{
    int64_t at = i * (g->r - 1), a = g->span > 0 ? at / g->span : 0;
    double  f = g->span > 0 ? (double)(at % g->span) / (double)g->span : 0;
    if (a > g->r - 2) {
        a = g->r - 2;
        f = 1;
    }
    if (ski_width(g) == 4) return cubic_row(g, a, f, row);
    row[0] = 1 - f;
    row[1] = f;
    return a;
}

/* Reproduces three defects of the published code: token i is at i n/(n-1); the point a above a
** token is taken for the one below and the weights are swapped, so that a - f becomes a + 1 + f;
** and row i is scaled by lambda^(n position). */
static int64_t published_row(const ski_grid *g, int64_t i, double *row)
{
    double  at = g->n > 1 ? (double)i * (double)g->n / (double)(g->n - 1) : 0;
    double  h = (double)g->span / (double)(g->r - 1);
    int64_t a = h > 0 ? smaller((int64_t)ceil(at / h), g->r - 2) : 0;
    double  f = h > 0 ? at / h - (double)a : 0, scale = pow(g->lambda, at * (double)g->n);
    row[0] = scale * f;
    row[1] = scale * (1 - f);
    return a;
}

void ski_weights(const ski_grid *g, int32_t *start, float *weight)
{
    int width = ski_width(g);
    for (int64_t i = 0; i < g->n; i++) {
        double row[WIDTH] = {0};
        start[i] = (int32_t)(g->as_published ? published_row(g, i, row) : row_of(g, i, row));
        for (int q = 0; q < width; q++) weight[i * width + q] = (float)row[q];
    }
}

/* causal.c - W A W' without what lies above the diagonal: y_i = w_i A s_i with the running sums
** s_i = sum over j <= i of w_j x_j (SKI, Appendix B).
**
** A is lower triangular: a lag of inducing points below 0 has no coefficient. As A differs from
** channel to channel, A s_i is what is kept (in v): O(r) for each token, O(n r) in all, which is
** what the paper says of all three ways it lists (masking=token).
**
** But tokens between the same two inducing points read and change the same columns only. So the sum
** over these is kept apart (pending), and goes through A once the run of such tokens ends:
** O(n + r^2) in all (masking=interval). */
#include <string.h>

#include "ski.h"

/* v += A times the pending sums */
static void through_kernel(const ski_plan *s, ski_group *g)
{
    for (int q = 0; q < s->width; q++) {
        int64_t from = g->column + q;
        for (int64_t b = from; b < s->r; b++) g->v[b] += g->kernel[b - from] * g->pending[0][q];
    }
    memset(g->pending, 0, sizeof g->pending);
}

void ski_causal_forward(const ski_plan *s, ski_group *g, int64_t first, int64_t count,
                        const lanes *x, lanes *y)
{
    lanes *sum = g->pending[0];
    for (int64_t k = 0; k < count; k++) {
        const float *weight = s->weight + (first + k) * s->width;
        if (g->column >= 0 && (s->each_token || s->start[first + k] != g->column))
            through_kernel(s, g);
        g->column = s->start[first + k];
        for (int q = 0; q < s->width; q++) sum[q] += weight[q] * x[k];
        for (int q = 0; q < s->width; q++) {
            lanes value = g->v[g->column + q];
            for (int p = 0; p <= q; p++) value += g->kernel[q - p] * sum[p];
            y[k] += weight[q] * value;
        }
    }
}

static void through_transpose(const ski_plan *s, ski_group *g)
{
    for (int q = 0; q < s->width; q++) {
        int64_t from = g->column + q;
        for (int64_t b = 0; b <= from && from < s->r; b++)
            g->v[b] += g->kernel[from - b] * g->pending[0][q];
    }
    memset(g->pending, 0, sizeof g->pending);
}

/* The adjoint: the same from the last token to the first, with A'. Blocks come last first too. */
void ski_causal_back(const ski_plan *s, ski_group *g, int64_t first, int64_t count,
                     const lanes *dy, lanes *dx)
{
    lanes *sum = g->pending[0];
    for (int64_t k = count - 1; k >= 0; k--) {
        const float *weight = s->weight + (first + k) * s->width;
        if (g->column >= 0 && (s->each_token || s->start[first + k] != g->column))
            through_transpose(s, g);
        g->column = s->start[first + k];
        for (int q = 0; q < s->width; q++) sum[q] += weight[q] * dy[k];
        for (int q = 0; q < s->width; q++) {
            lanes value = g->v[g->column + q];
            for (int p = q; p < s->width; p++) value += g->kernel[p - q] * sum[p];
            dx[k] += weight[q] * value;
        }
    }
}

/* v[l] += what tokens before the run give the gradient of lag l; then z has those of the run. */
static void end_run(const ski_plan *s, ski_group *g)
{
    for (int q = 0; q < s->width; q++) {
        int64_t from = g->column + q;
        for (int64_t b = 0; b <= from && from < s->r; b++)
            g->v[from - b] += g->pending[1][q] * g->z[b];
    }
    for (int q = 0; q < s->width; q++) g->z[g->column + q] += g->pending[0][q];
    memset(g->pending, 0, sizeof g->pending);
}

/* The gradient of lag l is the sum over i and a of w_i[a] dy_i s_i[a-l]. z is s_i before the run,
** v the gradient; it goes to kernel_sums after every block. */
void ski_causal_sums(const ski_plan *s, ski_group *g, int64_t first, int64_t count, const lanes *x,
                     const lanes *dy)
{
    lanes *sum = g->pending[0], *above = g->pending[1];
    for (int64_t k = 0; k < count; k++) {
        const float *weight = s->weight + (first + k) * s->width;
        if (g->column >= 0 && (s->each_token || s->start[first + k] != g->column)) end_run(s, g);
        g->column = s->start[first + k];
        for (int q = 0; q < s->width; q++) {
            sum[q] += weight[q] * x[k];
            above[q] += weight[q] * dy[k];
        }
        for (int q = 0; q < s->width; q++)
            for (int p = 0; p <= q; p++) g->v[q - p] += weight[q] * dy[k] * sum[p];
    }
    end_run(s, g);
    g->column = -1;
    ski_add(g->kernel_sums, g->v, s->r);
    memset(g->v, 0, (size_t)s->r * sizeof *g->v);
}

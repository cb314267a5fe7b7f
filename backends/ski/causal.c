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

/* The tokens from k on, before end, that have the column of token k: what has gone through A serves
** all of them. */
static int64_t run_of(const ski_plan *s, int64_t k, int64_t end)
{
    int64_t next = k + 1;
    while (!s->each_token && next < end && s->start[next] == s->start[k]) next++;
    return next;
}

/* y += W A s for tokens k..end-1 of one column */
static inline void forward_run(const ski_plan *s, ski_group *g, int width, int64_t k, int64_t end,
                               const lanes *x, lanes *y)
{
    lanes sum[WIDTH], v[WIDTH], a[WIDTH];
    for (int q = 0; q < width; q++) {
        sum[q] = g->pending[0][q];
        v[q] = g->v[g->column + q];
        a[q] = g->kernel[q];
    }
    for (; k < end; k++, x++, y++) {
        const float *weight = s->weight + k * width;
        lanes        all = *y;
        for (int q = 0; q < width; q++) sum[q] += weight[q] * *x;
        for (int q = 0; q < width; q++) {
            lanes value = v[q];
            for (int p = 0; p <= q; p++) value += a[q - p] * sum[p];
            all += weight[q] * value;
        }
        *y = all;
    }
    for (int q = 0; q < width; q++) g->pending[0][q] = sum[q];
}

void ski_causal_forward(const ski_plan *s, ski_group *g, int64_t first, int64_t count,
                        const lanes *x, lanes *y)
{
    for (int64_t k = first, next; k < first + count; k = next) {
        next = run_of(s, k, first + count);
        if (g->column >= 0 && (s->each_token || s->start[k] != g->column)) through_kernel(s, g);
        g->column = s->start[k];
        if (s->width == 2)
            forward_run(s, g, 2, k, next, x + (k - first), y + (k - first));
        else
            forward_run(s, g, WIDTH, k, next, x + (k - first), y + (k - first));
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

/* dx += that of the adjoint for tokens k..end-1 of one column, the last first. */
static inline void back_run(const ski_plan *s, ski_group *g, int width, int64_t k, int64_t end,
                            const lanes *dy, lanes *dx)
{
    lanes sum[WIDTH], v[WIDTH], a[WIDTH];
    for (int q = 0; q < width; q++) {
        sum[q] = g->pending[0][q];
        v[q] = g->v[g->column + q];
        a[q] = g->kernel[q];
    }
    for (int64_t i = end - 1; i >= k; i--) {
        const float *weight = s->weight + i * width;
        lanes        all = dx[i - k], in = dy[i - k];
        for (int q = 0; q < width; q++) sum[q] += weight[q] * in;
        for (int q = 0; q < width; q++) {
            lanes value = v[q];
            for (int p = q; p < width; p++) value += a[p - q] * sum[p];
            all += weight[q] * value;
        }
        dx[i - k] = all;
    }
    for (int q = 0; q < width; q++) g->pending[0][q] = sum[q];
}

/* The first of the tokens before end, from first on, that have the column of token end - 1. */
static int64_t run_before(const ski_plan *s, int64_t first, int64_t end)
{
    int64_t k = end - 1;
    while (!s->each_token && k > first && s->start[k - 1] == s->start[end - 1]) k--;
    return k;
}

/* The adjoint: the same from the last token to the first, with A'. Blocks come last first too. */
void ski_causal_back(const ski_plan *s, ski_group *g, int64_t first, int64_t count,
                     const lanes *dy, lanes *dx)
{
    for (int64_t end = first + count, k; end > first; end = k) {
        k = run_before(s, first, end);
        if (g->column >= 0 && (s->each_token || s->start[k] != g->column))
            through_transpose(s, g);
        g->column = s->start[k];
        if (s->width == 2)
            back_run(s, g, 2, k, end, dy + (k - first), dx + (k - first));
        else
            back_run(s, g, WIDTH, k, end, dy + (k - first), dx + (k - first));
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

/* v += the gradient within tokens k..end-1 of one column. */
static inline void sums_run(const ski_plan *s, ski_group *g, int width, int64_t k, int64_t end,
                            const lanes *x, const lanes *dy)
{
    lanes sum[WIDTH], above[WIDTH], v[WIDTH];
    for (int q = 0; q < width; q++) {
        sum[q] = g->pending[0][q];
        above[q] = g->pending[1][q];
        v[q] = g->v[q];
    }
    for (; k < end; k++, x++, dy++) {
        const float *weight = s->weight + k * width;
        lanes        in = *x, out = *dy;
        for (int q = 0; q < width; q++) sum[q] += weight[q] * in;
        for (int q = 0; q < width; q++) {
            lanes share = weight[q] * out;
            above[q] += share;
            for (int p = 0; p <= q; p++) v[q - p] += share * sum[p];
        }
    }
    for (int q = 0; q < width; q++) {
        g->pending[0][q] = sum[q];
        g->pending[1][q] = above[q];
        g->v[q] = v[q];
    }
}

/* The gradient of lag l is the sum over i and a of w_i[a] dy_i s_i[a-l]. z is s_i before the run,
** v the gradient; it goes to kernel_sums after every block. */
void ski_causal_sums(const ski_plan *s, ski_group *g, int64_t first, int64_t count, const lanes *x,
                     const lanes *dy)
{
    for (int64_t k = first, next; k < first + count; k = next) {
        next = run_of(s, k, first + count);
        if (g->column >= 0 && (s->each_token || s->start[k] != g->column)) end_run(s, g);
        g->column = s->start[k];
        if (s->width == 2)
            sums_run(s, g, 2, k, next, x + (k - first), dy + (k - first));
        else
            sums_run(s, g, WIDTH, k, next, x + (k - first), dy + (k - first));
    }
    end_run(s, g);
    g->column = -1;
    ski_add(g->kernel_sums, g->v, s->r);
    memset(g->v, 0, (size_t)s->r * sizeof *g->v);
}

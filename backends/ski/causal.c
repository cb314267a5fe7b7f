/* causal.c - applies the lower triangle of W A W': y_i = w_i A s_i with the running sums s_i = the
** sum over j <= i of w_j x_j (SKI, Appendix B).
**
** A is lower triangular, since negative lags of inducing points have no coefficient. With
** masking=token, v holds A s_i and is updated at each token: O(r) per token and O(n r) in all, the
** cost that the paper gives for each of its three algorithms.
**
** Tokens between the same two inducing points read and change the same columns only. With
** masking=interval, their sum is therefore collected in `pending` and multiplied by A once the run
** of such tokens ends: O(n + r^2) in all. Within a run only the `width` columns of the run, and so
** the first `width` lags of A, matter to what tokens of the run contribute to each other.
**
** Both ways run the same code: masking=token ends every run after one token. The number of columns
** is passed as a constant, 2 or WIDTH, so that the compiler unrolls the loops over columns and
** keeps sums, v and lags in registers during a run. A run is cut at the end of a block; what it has
** collected stays in `pending` and `column` for the next block. */
#include <string.h>

#include "ski.h"

/* v += A times the pending sums: ends a run, whose columns begin at g->column. */
static void through_kernel(const ski_plan *s, ski_group *g)
{
    for (int q = 0; q < s->width; q++) {
        int64_t from = g->column + q;
        for (int64_t b = from; b < s->r; b++) g->v[b] += g->kernel[b - from] * g->pending[0][q];
    }
    memset(g->pending, 0, sizeof g->pending);
}

/* The end of the run of tokens from k on, before `end`, that share the column of token k and so the
** same v. */
static int64_t run_of(const ski_plan *s, int64_t k, int64_t end)
{
    int64_t next = k + 1;
    while (!s->each_token && next < end && s->start[next] == s->start[k]) next++;
    return next;
}

/* y += W A s for tokens k..end-1 of one column. v has what earlier runs contribute, and `sum` the
** tokens of this run so far, including the token itself, to which the diagonal applies. */
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

/* v += A' times the pending sums. */
static void through_transpose(const ski_plan *s, ski_group *g)
{
    for (int q = 0; q < s->width; q++) {
        int64_t from = g->column + q;
        for (int64_t b = 0; b <= from && from < s->r; b++)
            g->v[b] += g->kernel[from - b] * g->pending[0][q];
    }
    memset(g->pending, 0, sizeof g->pending);
}

/* Adds the adjoint to dx for tokens k..end-1 of one column, from the last to the first. */
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

/* The start of the run of tokens before `end`, from `first` on, that share the column of token
** end - 1. */
static int64_t run_before(const ski_plan *s, int64_t first, int64_t end)
{
    int64_t k = end - 1;
    while (!s->each_token && k > first && s->start[k - 1] == s->start[end - 1]) k--;
    return k;
}

/* dx_j += w_j A' times the sum over i >= j of w_i dy_i: the mirror image of the forward call, from
** the last token to the first; blocks come in reverse order too. */
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

/* Adds to the gradient v the pairs of an output in this run and an input before it, then the inputs
** of the run to z. pending[0] holds the sum of w_i x_i over the run and pending[1] the sum of w_i
** dy_i: all outputs of a run see the same earlier inputs, so that their sum suffices. */
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

/* v += the gradient from pairs within tokens k..end-1 of one column. */
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

/* The gradient of lag l is the sum over i and a of w_i[a] dy_i s_i[a-l]. z holds s_i before the
** run, and v the gradient, which is added to kernel_sums, in float64, after every block. The last
** run of a block therefore ends with the block. */
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

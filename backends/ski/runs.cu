/* runs.cu - sums over runs of tokens and applies the lower triangle of W A W'.
**
** That is y_i = w_i A s_i with s_i = the sum over j <= i of w_j x_j (SKI, Appendix B; causal.c is
** the CPU's implementation). For a token of run a, s_i has a part from the runs before a and a part
** from its own run. Of A times the former, only the rows a+q, q < width, are needed:
**     u_q[a] = sum over l >= 1 of k(l+q) z[a-l] + sum over e <= q of k(q-e) before_e[a]
** where the rows of z = W'x below a are complete after the runs before a, and
**     before_e[a] = sum over p > e of part_p[a+e-p]
** is the contribution of these runs to row a+e. The first sum is one over taps; the thread that
** processes the run computes the rest. The adjoint is the same in reverse order:
**     h_p[a] = sum over l >= width of k(l-p) g[a+l] + sum over e >= 1 of k(e-p) after_e[a]
**     after_e[a] = sum over q < e of (dy's) part_q[a+e-q]
** and k(l) = 0 for l < 0. So no output depends on a later token, exactly. */
#include "runs.cuh"

typedef struct parts {
    const float *part[WIDTH];
} parts;

static parts const_parts(float *const *part)
{
    return parts{{part[0], part[1], part[2], part[3]}};
}

/* ---- Runs ------------------------------------------------------------------------------------ */

template <int W>
static __global__ void sum_runs(ski_mesh m, const float *x, ski_parts to, int64_t total)
{
    EACH(e, total)
    {
        int64_t c = e % m.d, row = e / m.d, a = row % m.r, sequence = row / m.r;
        float   sum[W] = {};
        for (int64_t i = m.first[a]; i < m.first[a + 1]; i++) {
            float value = x[(sequence * m.n + i) * m.d + c];
            for (int q = 0; q < W; q++) sum[q] += m.weight[i * W + q] * value;
        }
        for (int q = 0; q < W; q++) to.part[q][e] = sum[q];
    }
}

static __global__ void add_runs(ski_mesh m, ski_parts to, int64_t total)
{
    EACH(e, total)
    {
        int64_t a = e / m.d % m.r;
        float   sum = 0;
        for (int q = 0; q < m.width && q <= a; q++) sum += to.part[q][e - q * m.d];
        to.all[e] = sum;
    }
}

/* The kernel compiled for the width, so that its arrays are registers. */
#define FOR_WIDTH(kernel) (m->width == 2 ? kernel<2> : m->width == 3 ? kernel<3> : kernel<4>)

tl_status ski_gpu_gather(tl_ctx *ctx, const ski_mesh *m, int64_t b, const float *x,
                         const ski_parts *to)
{
    int64_t total = b * m->r * m->d;
    auto    kernel = FOR_WIDTH(sum_runs);
    LAUNCH(kernel, blocks_for(total), THREADS, *m, x, *to, total);
    LAUNCH(add_runs, blocks_for(total), THREADS, *m, *to, total);
    return launched(ctx, "ski");
}

/* ---- Forward --------------------------------------------------------------------------------- */

/* k[q] = k(q) of channel c, q < width. */
template <int W>
static __device__ void near_lags(const ski_mesh &m, const float *kernel, int64_t c, float *k)
{
    for (int q = 0; q < W; q++) k[q] = kernel[q * m.d + c];
}

/* before_e[a], for the element `at` of [b,r,d]. */
template <int W>
static __device__ float before(const ski_mesh &m, const parts &x, int64_t at, int64_t a, int e)
{
    float sum = 0;
    for (int p = e + 1; p < W; p++)
        if (a + e - p >= 0) sum += x.part[p][at + (e - p) * m.d];
    return sum;
}

template <int W>
static __global__ void finish(ski_mesh m, const float *kernel, parts of_x, parts u, const float *x,
                              float *y, int64_t total)
{
    EACH(at, total)
    {
        int64_t c = at % m.d, row = at / m.d, a = row % m.r, base = row / m.r * m.n * m.d + c;
        float   k[W], v[W], sum[W] = {};
        if (m.first[a] == m.first[a + 1]) continue;
        near_lags<W>(m, kernel, c, k);
        for (int q = 0; q < W; q++) v[q] = u.part[q][at];
        for (int e = 0; e < W; e++) {
            float known = before<W>(m, of_x, at, a, e);
            for (int q = e; q < W; q++) v[q] += k[q - e] * known;
        }
        for (int64_t i = m.first[a]; i < m.first[a + 1]; i++) {
            const float *w = m.weight + i * W;
            float value = x[base + i * m.d], out = y[base + i * m.d];
            for (int q = 0; q < W; q++) {
                float total_q = v[q];
                sum[q] += w[q] * value;
                for (int p = 0; p <= q; p++) total_q += k[q - p] * sum[p];
                out += w[q] * total_q;
            }
            y[base + i * m.d] = out;
        }
    }
}

tl_status ski_causal(tl_ctx *ctx, const ski_mesh *m, int64_t b, const float *kernel,
                     const ski_parts *of_x, float *const *u, const float *x, float *y)
{
    int64_t   total = b * m->r * m->d;
    tl_status st = TL_OK;
    for (int q = 0; q < m->width && st == TL_OK; q++) {
        gpu_band far = {m->r, m->d, m->r - 1 - q, -1, 0};
        st = gpu_band_apply(ctx, &far, 0, b, kernel + (q + 1) * m->d, of_x->all, NULL, u[q]);
    }
    if (st != TL_OK) return st;
    auto last = FOR_WIDTH(finish);
    LAUNCH(last, blocks_for(total), THREADS, *m, kernel, const_parts(of_x->part), const_parts(u), x,
           y, total);
    return launched(ctx, "ski");
}

/* ---- Backward -------------------------------------------------------------------------------- */

/* after_e[a], for the element `at` of [b,r,d]. */
static __device__ float after(const ski_mesh &m, const parts &dy, int64_t at, int64_t a, int e)
{
    float sum = 0;
    for (int q = 0; q < e; q++)
        if (a + e - q < m.r) sum += dy.part[q][at + (e - q) * m.d];
    return sum;
}

template <int W>
static __global__ void finish_back(ski_mesh m, const float *kernel, parts of_dy, parts h,
                                   const float *dy, float *dx, int64_t total)
{
    EACH(at, total)
    {
        int64_t c = at % m.d, row = at / m.d, a = row % m.r, base = row / m.r * m.n * m.d + c;
        float   k[W], v[W], sum[W] = {};
        if (m.first[a] == m.first[a + 1]) continue;
        near_lags<W>(m, kernel, c, k);
        for (int p = 0; p < W; p++) v[p] = h.part[p][at];
        for (int e = 1; e < W; e++) {
            float known = after(m, of_dy, at, a, e);
            for (int p = 0; p <= e; p++) v[p] += k[e - p] * known;
        }
        for (int64_t i = m.first[a + 1] - 1; i >= m.first[a]; i--) {
            const float *w = m.weight + i * W;
            float value = dy[base + i * m.d], out = dx[base + i * m.d];
            for (int q = 0; q < W; q++) sum[q] += w[q] * value;
            for (int p = 0; p < W; p++) {
                float total_p = v[p];
                for (int q = p; q < W; q++) total_p += k[q - p] * sum[q];
                out += w[p] * total_p;
            }
            dx[base + i * m.d] = out;
        }
    }
}

tl_status ski_causal_back(tl_ctx *ctx, const ski_mesh *m, int64_t b, const float *kernel,
                          const ski_parts *of_dy, float *const *u, const float *dy, float *dx)
{
    int64_t   total = b * m->r * m->d;
    tl_status st = TL_OK;
    for (int p = 0; p < m->width && st == TL_OK; p++) {
        gpu_band far = {m->r, m->d, m->r - m->width + p, -m->width, 0};
        st = gpu_band_apply(ctx, &far, 1, b, kernel + (m->width - p) * m->d, of_dy->all, NULL,
                            u[p]);
    }
    if (st != TL_OK) return st;
    auto last = FOR_WIDTH(finish_back);
    LAUNCH(last, blocks_for(total), THREADS, *m, kernel, const_parts(of_dy->part),
           const_parts(u), dy, dx, total);
    return launched(ctx, "ski");
}

/* ---- The gradient of the kernel -------------------------------------------------------------- */

/* sum[l] += the contribution of the tokens of run a to the gradient of k(l), l < width. */
template <int W>
static __device__ void add_near(const ski_mesh &m, const parts &of_x, const parts &of_dy,
                                int64_t at, int64_t a, const float *x, const float *dy, double *sum)
{
    float near[W] = {}, so_far[W] = {};
    for (int e = 0; e < W; e++) {
        float known = before<W>(m, of_x, at, a, e);
        for (int q = e; q < W; q++) near[q - e] += of_dy.part[q][at] * known;
    }
    for (int64_t i = m.first[a]; i < m.first[a + 1]; i++) {
        const float *w = m.weight + i * W;
        for (int q = 0; q < W; q++) {
            so_far[q] += w[q] * x[i * m.d];
            for (int p = 0; p <= q; p++) near[q - p] += w[q] * dy[i * m.d] * so_far[p];
        }
    }
    for (int l = 0; l < W; l++) sum[l] += near[l];
}

/* sums [count,width,d] = the sums over `count` parts of the runs of all sequences. */
template <int W>
static __global__ void near_sums(ski_mesh m, parts of_x, parts of_dy, const float *x,
                                 const float *dy, int64_t runs, int64_t count, double *sums)
{
    EACH(e, count * m.d)
    {
        int64_t c = e % m.d, part = e / m.d;
        double  sum[W] = {};
        for (int64_t u = runs * part / count; u < runs * (part + 1) / count; u++) {
            int64_t a = u % m.r, base = u / m.r * m.n * m.d + c;
            if (m.first[a] < m.first[a + 1])
                add_near<W>(m, of_x, of_dy, u * m.d + c, a, x + base, dy + base, sum);
        }
        for (int l = 0; l < W; l++) sums[(part * W + l) * m.d + c] = sum[l];
    }
}

tl_status ski_causal_kernel(tl_ctx *ctx, const ski_mesh *m, int64_t b, const ski_parts *of_x,
                            const ski_parts *of_dy, const float *x, const float *dy, float *dkernel)
{
    int64_t   count = gpu_parts(m->d, b * m->r), len = m->width * m->d;
    double   *sums;
    tl_status st = gpu_clear(ctx, dkernel, (size_t)(m->r * m->d) * 4);
    for (int q = 0; q < m->width && st == TL_OK; q++) {
        gpu_band far = {m->r, m->d, m->r - 1 - q, -1, 0};
        st = gpu_band_grad(ctx, &far, b, of_x->all, of_dy->part[q], 1, dkernel + (q + 1) * m->d);
    }
    if (st == TL_OK) st = gpu_alloc(ctx, (size_t)(count * len) * sizeof *sums, (void **)&sums);
    if (st != TL_OK) return st;
    auto near = FOR_WIDTH(near_sums);
    LAUNCH(near, blocks_for(count * m->d), THREADS, *m, const_parts(of_x->part),
           const_parts(of_dy->part), x, dy, b * m->r, count, sums);
    st = launched(ctx, "ski");
    if (st == TL_OK) st = gpu_add_parts(ctx, sums, count, len, 1, dkernel);
    gpu_free(ctx, sums);
    return st;
}

/* direct.cu - applies T by direct sums over its taps, for few taps and for the definition. A thread
** computes RUN neighbouring outputs of a channel from a sliding window of as many inputs. */
#include "apply.cuh"

#define RUN   8
#define CHUNK 64 /* positions of a partial sum */

static __device__ float entry(const float *x, int64_t i, int64_t n, int64_t d)
{
    return i >= 0 && i < n ? x[i * d] : 0;
}

/* Moves the window down by one entry. */
static __device__ void push(float *window, float value)
{
    for (int p = RUN - 1; p > 0; p--) window[p] = window[p - 1];
    window[0] = value;
}

/* ---- Application ----------------------------------------------------------------------------- */

/* Row i of W v. */
static __device__ float interpolate(gpu_interpolation w, int64_t sequence, int64_t i, int64_t d,
                                    int64_t c)
{
    float        sum = 0;
    const float *v = w.v + (sequence * w.r + w.start[i]) * d + c;
    for (int q = 0; q < w.width; q++) sum += w.weight[i * w.width + q] * v[q * d];
    return sum;
}

/* Step s uses tap s, or for the adjoint the s-th tap from the end: either way its inputs are those
** of the step before, moved down by one. */
template <class T>
static __global__ void direct_apply(gpu_band j, int adjoint, const float *t, const float *x,
                                    gpu_interpolation w, float *y, int64_t groups, int64_t total)
{
    EACH(e, total)
    {
        int64_t c = e % j.d, g = e / j.d, sequence = g / groups, i = g % groups * RUN;
        int64_t base = adjoint ? i + j.taps - 1 - j.origin : i + j.origin;
        int64_t s = base - (j.n - 1) > 0 ? base - (j.n - 1) : 0;
        int64_t end = base + RUN < j.taps ? base + RUN : j.taps;
        const float *from = x + sequence * j.n * j.d + c;
        float window[RUN];
        T     sum[RUN] = {};
        for (int p = 0; p < RUN; p++) window[p] = entry(from, base - s + 1 + p, j.n, j.d);
        for (; s < end; s++) {
            T tap = t[(adjoint ? j.taps - 1 - s : s) * j.d + c];
            push(window, entry(from, base - s, j.n, j.d));
            for (int p = 0; p < RUN; p++) sum[p] += tap * (T)window[p];
        }
        for (int p = 0; p < RUN && i + p < j.n; p++) {
            float more = w.width ? interpolate(w, sequence, i + p, j.d, c) : 0;
            y[(sequence * j.n + i + p) * j.d + c] = (float)sum[p] + more;
        }
    }
}

tl_status gpu_band_apply(tl_ctx *ctx, const gpu_band *p, int adjoint, int64_t b, const float *t,
                         const float *x, const gpu_interpolation *w, float *y)
{
    int64_t   groups = (p->n + RUN - 1) / RUN, total = b * groups * p->d;
    gpu_interpolation more = w ? *w : gpu_interpolation();
    if (total == 0) return TL_OK;
    auto kernel = p->wide ? direct_apply<double> : direct_apply<float>;
    LAUNCH(kernel, blocks_for(total), THREADS, *p, adjoint, t, x, more, y, groups, total);
    return launched(ctx, "tno");
}

/* ---- The gradient of the taps ---------------------------------------------------------------- */

typedef struct share { /* how the sum over all sequences is divided */
    int64_t parts, units, chunks; /* units = sequences x chunks */
} share;

/* sum[p] += the sum of dy_i x_(i-k-p+origin) over the positions i of unit u */
template <class T>
static __device__ void add_unit(gpu_band j, int64_t chunks, int64_t u, int64_t k, const float *x,
                                const float *dy, double *sum)
{
    int64_t at = u / chunks * j.n * j.d, i = u % chunks * CHUNK, lag = k - j.origin;
    int64_t end = i + CHUNK < j.n ? i + CHUNK : j.n;
    if (i < lag) i = lag; /* x begins here */
    if (end > j.n + lag + RUN - 1) end = j.n + lag + RUN - 1;
    float window[RUN];
    T     part[RUN] = {};
    for (int p = 0; p < RUN; p++) window[p] = entry(x + at, i - lag - 1 - p, j.n, j.d);
    for (; i < end; i++) {
        T value = dy[at + i * j.d];
        push(window, entry(x + at, i - lag, j.n, j.d));
        for (int p = 0; p < RUN; p++) part[p] += value * (T)window[p];
    }
    for (int p = 0; p < RUN; p++) sum[p] += part[p];
}

template <class T>
static __global__ void direct_grad(gpu_band j, share s, const float *x, const float *dy,
                                   double *sums, int64_t groups, int64_t total)
{
    EACH(e, total)
    {
        int64_t c = e % j.d, k = e / j.d % groups * RUN, part = e / j.d / groups;
        double  sum[RUN] = {};
        for (int64_t u = s.units * part / s.parts; u < s.units * (part + 1) / s.parts; u++)
            add_unit<T>(j, s.chunks, u, k, x + c, dy + c, sum);
        for (int p = 0; p < RUN && k + p < j.taps; p++)
            sums[(part * j.taps + k + p) * j.d + c] = sum[p];
    }
}

tl_status gpu_band_grad(tl_ctx *ctx, const gpu_band *p, int64_t b, const float *x,
                        const float *dy, int add, float *dt)
{
    int64_t groups = (p->taps + RUN - 1) / RUN, len = p->taps * p->d;
    double *sums;
    share   s;
    if (len == 0) return TL_OK;
    s.chunks = (p->n + CHUNK - 1) / CHUNK;
    s.units = b * s.chunks;
    s.parts = gpu_parts(groups * p->d, s.units);
    int64_t   total = s.parts * groups * p->d;
    tl_status st = gpu_alloc(ctx, (size_t)(s.parts * len) * sizeof *sums, (void **)&sums);
    if (st != TL_OK) return st;
    auto kernel = p->wide ? direct_grad<double> : direct_grad<float>;
    LAUNCH(kernel, blocks_for(total), THREADS, *p, s, x, dy, sums, groups, total);
    st = launched(ctx, "tno_grad");
    if (st == TL_OK) st = gpu_add_parts(ctx, sums, s.parts, len, add, dt);
    gpu_free(ctx, sums);
    return st;
}

static __global__ void add_parts(const double *sums, int64_t parts, int64_t len, int add,
                                 float *out)
{
    EACH(e, len)
    {
        double sum = add ? out[e] : 0;
        for (int64_t p = 0; p < parts; p++) sum += sums[p * len + e];
        out[e] = (float)sum;
    }
}

tl_status gpu_add_parts(tl_ctx *ctx, const double *sums, int64_t parts, int64_t len, int add,
                        float *out)
{
    if (len == 0) return TL_OK;
    LAUNCH(add_parts, blocks_for(len), THREADS, sums, parts, len, add, out);
    return launched(ctx, "tno_grad");
}

/* convolve.cu - applies T by real Fourier transforms F of padded sequences, one per channel. With t
** the kernel,
**     y = F^-1 (F t . F x)    dx = F^-1 (conj(F t) . F dy)    dt = F^-1 (sum of F dy conj(F x))
** A backend provides the conversions between coefficients and spectra. */
#include "apply.cuh"
#include "size.h"

/* ---- Products of spectra --------------------------------------------------------------------- */

/* For every bin, unless sum is NULL, sum = (or += if add) z conj(x) over the sequences; then,
** unless t is NULL, z = z t, or z conj(t) if sign is -1. */
static __global__ void multiply(float2 *z, const float2 *x, const float2 *t, float sign, int add,
                                float2 *sum, int64_t count, int64_t period)
{
    EACH(e, period)
    {
        float2 s = sum && add ? sum[e] : make_float2(0, 0), w = make_float2(0, 0);
        if (t) w = make_float2(t[e].x, sign * t[e].y);
        for (int64_t k = 0; k < count; k++) {
            float2 a = z[k * period + e];
            if (sum) {
                float2 b = x[k * period + e];
                s.x += a.x * b.x + a.y * b.y;
                s.y += a.y * b.x - a.x * b.y;
            }
            if (t) z[k * period + e] = make_float2(a.x * w.x - a.y * w.y, a.x * w.y + a.y * w.x);
        }
        if (sum) sum[e] = s;
    }
}

/* ---- Scratch buffers ------------------------------------------------------------------------- */

static void convolve_release(const gpu_convolution *s, const tl_tno_args *a, const gpu_buffers *m)
{
    gpu_free(s->ctx, m->lines);
    gpu_free(s->ctx, m->x);
    gpu_free(s->ctx, m->dy);
    gpu_free(s->ctx, m->sum);
    if (!a->cache) gpu_free(s->ctx, m->t);
}

static tl_status convolve_reserve(const gpu_convolution *s, const tl_tno_args *a, int backward,
                                  gpu_buffers *m)
{
    int64_t line = s->d * s->size * 4, spectrum = s->d * s->bins * 8;
    *m = gpu_buffers();
    m->b = clamp(BUDGET / spectrum, 1, a->b > 0 ? a->b : 1);
    m->t = (float2 *)a->cache;
    tl_status st = gpu_alloc(s->ctx, (size_t)(m->b * line), (void **)&m->lines);
    if (st == TL_OK) st = gpu_alloc(s->ctx, (size_t)(m->b * spectrum), (void **)&m->x);
    if (st == TL_OK && !m->t) st = gpu_alloc(s->ctx, (size_t)spectrum, (void **)&m->t);
    if (st == TL_OK && backward)
        st = gpu_alloc(s->ctx, (size_t)(m->b * spectrum), (void **)&m->dy);
    if (st == TL_OK && backward) st = gpu_alloc(s->ctx, (size_t)spectrum, (void **)&m->sum);
    if (st != TL_OK) convolve_release(s, a, m);
    return st;
}

int64_t gpu_convolution_cache_size(const gpu_convolution *s) { return 2 * s->d * s->bins; }

/* ---- Steps ----------------------------------------------------------------------------------- */

/* to = the spectra of b sequences x */
static tl_status there(const gpu_convolution *s, const gpu_buffers *m, const float *x, int64_t b,
                       float2 *to)
{
    gpu_sheet sheet = gpu_sheet_of(b, s->n, s->d, 0, s->size);
    tl_status st = gpu_to_lines(s->ctx, &sheet, x, m->lines);
    if (st != TL_OK) return st;
    return gpu_fft(s->ctx, TL_R2C, s->size, b * s->d, m->lines, (float *)to);
}

/* Overwrites `from`, which serves as scratch space. */
static tl_status back(const gpu_convolution *s, const gpu_buffers *m, float2 *from, int64_t b,
                      float *y)
{
    gpu_sheet sheet = gpu_sheet_of(b, s->n, s->d, 0, s->size);
    tl_status st = gpu_fft(s->ctx, TL_C2R, s->size, b * s->d, (float *)from, m->lines);
    if (st != TL_OK) return st;
    return gpu_from_lines(s->ctx, &sheet, 1.0f / (float)s->size, m->lines, y);
}

tl_status gpu_convolve(const gpu_convolution *s, const tl_tno_args *a)
{
    tl_ctx   *ctx = s->ctx;
    gpu_buffers m;
    int64_t   row = s->n * s->d, period = s->d * s->bins;
    if (a->b == 0 && (!a->cache || a->cached)) return TL_OK;
    tl_status st = convolve_reserve(s, a, 0, &m);
    if (st != TL_OK) return st;
    if (!a->cached) st = s->spectra(s, &m, a->coef);
    for (int64_t at = 0; at < a->b && st == TL_OK; at += m.b) {
        int64_t b = clamp(m.b, 1, a->b - at);
        st = there(s, &m, a->x + at * row, b, m.x);
        if (st != TL_OK) break;
        LAUNCH(multiply, blocks_for(period), THREADS, m.x, NULL, m.t, 1.0f, 0, NULL, b, period);
        st = launched(ctx, "tno");
        if (st == TL_OK) st = back(s, &m, m.x, b, a->y + at * row);
    }
    convolve_release(s, a, &m);
    return st;
}

/* Computes dx of b sequences and adds their part to m->sum. */
static tl_status adjoints(const gpu_convolution *s, const gpu_buffers *m, const tl_tno_args *a,
                          int64_t at, int64_t b)
{
    tl_ctx   *ctx = s->ctx;
    int64_t   row = s->n * s->d, period = s->d * s->bins;
    tl_status st = there(s, m, a->dy + at * row, b, m->dy);
    if (st == TL_OK && a->dcoef) st = there(s, m, a->x + at * row, b, m->x);
    if (st != TL_OK) return st;
    LAUNCH(multiply, blocks_for(period), THREADS, m->dy, m->x, a->dx ? m->t : NULL, -1.0f, at > 0,
           a->dcoef ? m->sum : NULL, b, period);
    st = launched(ctx, "tno_grad");
    if (st == TL_OK && a->dx) st = back(s, m, m->dy, b, a->dx + at * row);
    return st;
}

tl_status gpu_convolve_back(const gpu_convolution *s, const tl_tno_args *a)
{
    gpu_buffers m;
    if (!a->dx && !a->dcoef) return TL_OK;
    if (a->b == 0) return a->dcoef ? gpu_clear(s->ctx, a->dcoef, (size_t)s->coefs * 4) : TL_OK;
    tl_status st = convolve_reserve(s, a, 1, &m);
    if (st != TL_OK) return st;
    if (a->dx && !a->cached) st = s->spectra(s, &m, a->coef);
    for (int64_t at = 0; at < a->b && st == TL_OK; at += m.b)
        st = adjoints(s, &m, a, at, clamp(m.b, 1, a->b - at));
    if (st == TL_OK && a->dcoef) st = s->gradients(s, &m, a->dcoef);
    convolve_release(s, a, &m);
    return st;
}

/* ---- Kernels given by lags ------------------------------------------------------------------- */

/* Lag k lies at k mod size. */
static tl_status spectra(const gpu_convolution *s, const gpu_buffers *m, const float *coef)
{
    gpu_sheet sheet = gpu_sheet_of(1, s->lags, s->d, -s->zero, s->size);
    tl_status st = gpu_to_lines(s->ctx, &sheet, coef, m->lines);
    if (st != TL_OK) return st;
    return gpu_fft(s->ctx, TL_R2C, s->size, s->d, m->lines, (float *)m->t);
}

static tl_status gradients(const gpu_convolution *s, const gpu_buffers *m, float *dcoef)
{
    gpu_sheet sheet = gpu_sheet_of(1, s->lags, s->d, -s->zero, s->size);
    tl_status st = gpu_fft(s->ctx, TL_C2R, s->size, s->d, (float *)m->sum, m->lines);
    if (st != TL_OK) return st;
    return gpu_from_lines(s->ctx, &sheet, 1.0f / (float)s->size, m->lines, dcoef);
}

/* The size is even and such that the wrap-around of the circular convolution misses the n
** outputs. */
void gpu_convolution_set(gpu_convolution *s, tl_ctx *ctx, int64_t n, int64_t d, int64_t zero,
                         int64_t lags)
{
    *s = gpu_convolution();
    s->ctx = ctx;
    s->n = n;
    s->d = d;
    s->zero = zero;
    s->lags = lags;
    int64_t least = n + (lags - zero > zero ? lags - zero - 1 : zero);
    s->size = 2 * good_size((least + 1) / 2);
    s->bins = s->size / 2 + 1;
    s->coefs = lags * d;
    s->spectra = spectra;
    s->gradients = gradients;
}

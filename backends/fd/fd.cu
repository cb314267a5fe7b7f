/* fd.cu - computes the backend fd on a GPU. The coefficients are half the spectrum of a kernel of
** period N = 2M >= 2n (fd.c). A bidirectional product needs no more; for a causal one the kernel is
** windowed in time first. */
#include "../common/apply.cuh"

typedef struct plan {
    gpu_convolution base;
    int             causal;
} plan;

/* t [d,M+1] = coef [M+1,width d]; imaginary parts are 0 at both ends and for a causal kernel */
static __global__ void to_spectra(const float *coef, int causal, int64_t d, int64_t bins, float2 *t)
{
    EACH(e, bins * d)
    {
        int64_t c = e % d, m = e / d;
        int     real = causal || m == 0 || m == bins - 1;
        const float *row = coef + m * d * (causal ? 1 : 2);
        t[c * bins + m] = make_float2(row[c], real ? 0 : row[d + c]);
    }
}

/* The factor 2: a bin between the ends stands for a conjugate pair. */
static __global__ void from_spectra(const float2 *t, int causal, int64_t d, int64_t bins,
                                    float scale, float *coef)
{
    EACH(e, bins * d)
    {
        int64_t c = e % d, m = e / d;
        int     end = m == 0 || m == bins - 1;
        float  *row = coef + m * d * (causal ? 1 : 2);
        float2  z = t[c * bins + m];
        row[c] = (end ? scale : 2 * scale) * z.x;
        if (!causal) row[d + c] = end ? 0 : 2 * scale * z.y;
    }
}

/* Applies the causal window times scale: 1 at lag 0, 2 at lags 1..n-1, 0 elsewhere. It is its own
** adjoint. */
static __global__ void window(float *lines, int64_t n, int64_t size, float scale, int64_t total)
{
    EACH(e, total)
    {
        int64_t k = e % size;
        lines[e] = k < n ? (k == 0 ? scale : 2 * scale) * lines[e] : 0;
    }
}

/* Overwrites `from`, which serves as scratch space. */
static tl_status windowed(const gpu_convolution *s, const gpu_buffers *m, float2 *from, float2 *to)
{
    tl_ctx   *ctx = s->ctx;
    int64_t   total = s->d * s->size;
    tl_status st = gpu_fft(ctx, TL_C2R, s->size, s->d, (float *)from, m->lines);
    if (st != TL_OK) return st;
    LAUNCH(window, blocks_for(total), THREADS, m->lines, s->n, s->size, 1.0f / (float)s->size,
           total);
    st = launched(ctx, "fd");
    return st == TL_OK ? gpu_fft(ctx, TL_R2C, s->size, s->d, m->lines, (float *)to) : st;
}

static tl_status spectra(const gpu_convolution *s, const gpu_buffers *m, const float *coef)
{
    tl_ctx *ctx = s->ctx;
    int     causal = ((const plan *)s)->causal;
    LAUNCH(to_spectra, blocks_for(s->d * s->bins), THREADS, coef, causal, s->d, s->bins, m->t);
    tl_status st = launched(ctx, "fd");
    return st == TL_OK && causal ? windowed(s, m, m->t, m->t) : st;
}

static tl_status gradients(const gpu_convolution *s, const gpu_buffers *m, float *dcoef)
{
    tl_ctx   *ctx = s->ctx;
    int       causal = ((const plan *)s)->causal;
    tl_status st = causal ? windowed(s, m, m->sum, m->sum) : TL_OK;
    if (st != TL_OK) return st;
    LAUNCH(from_spectra, blocks_for(s->d * s->bins), THREADS, m->sum, causal, s->d, s->bins,
           1.0f / (float)s->size, dcoef);
    return launched(ctx, "fd");
}

static tl_status fd_gpu_forward(void *state, const tl_tno_args *a)
{
    return gpu_convolve(&((const plan *)state)->base, a);
}

static tl_status fd_gpu_backward(void *state, const tl_tno_args *a)
{
    return gpu_convolve_back(&((const plan *)state)->base, a);
}

static int64_t fd_gpu_cache_size(void *state)
{
    return gpu_convolution_cache_size(&((const plan *)state)->base);
}

static tl_status fd_gpu_make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    int64_t   points;
    tl_status st = gpu_points(h, "fd", p, &points);
    if (st != TL_OK) return st;
    plan *s = (plan *)gpu_plan(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    s->causal = p->causal;
    s->base.ctx = gpu_ctx(h);
    s->base.n = p->n;
    s->base.d = p->d;
    s->base.bins = points;
    s->base.size = 2 * (points - 1);
    s->base.coefs = points * p->d * (p->causal ? 1 : 2);
    s->base.spectra = spectra;
    s->base.gradients = gradients;
    *out_plan = s;
    return TL_OK;
}

const gpu_form gpu_fd_form = {"fd", {fd_gpu_make, fd_gpu_forward, fd_gpu_backward,
                                     gpu_plan_free, fd_gpu_cache_size}};

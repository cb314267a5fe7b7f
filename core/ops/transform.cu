/* transform.cu - computes Fourier transforms by cuFFT. */
#include <stdlib.h>

#include "cuda/cuda.cuh"

extern "C" {
#include "ops/arguments.h"
}

#define CACHED 64 /* plans; a new one replaces the oldest that no graph uses */

typedef struct spectra { /* a cached plan for `batch` transforms of contiguous vectors */
    tl_transform_kind kind;
    int n, batch;
    unsigned epoch; /* of the last graph that uses it: it must stay while that may be left */
    cufftHandle plan;
    size_t work; /* the bytes of scratch space that each use of the plan takes from the pool */
    struct spectra *next;
} spectra;

/* ---- Plans ----------------------------------------------------------------------------------- */

static void drop(spectra **at)
{
    spectra *s = *at;
    *at = s->next;
    (void)cufftDestroy(s->plan);
    free(s);
}

void gpu_spectra_close(tl_ctx *ctx)
{
    while (gpu_of(ctx)->spectra) drop(&gpu_of(ctx)->spectra);
}

/* The plan allocates no work area: that would lie outside the pool for as long as it is cached. */
static cufftResult make_plan(gpu *c, spectra *s)
{
    cufftType     type = s->kind == TL_R2C ? CUFFT_R2C : s->kind == TL_C2R ? CUFFT_C2R : CUFFT_C2C;
    long long int n = s->n;
    cufftResult   st = cufftCreate(&s->plan);
    if (st != CUFFT_SUCCESS) return st;
    st = cufftSetAutoAllocation(s->plan, 0);
    if (st == CUFFT_SUCCESS)
        st = cufftMakePlanMany64(s->plan, 1, &n, NULL, 1, 0, NULL, 1, 0, type, s->batch, &s->work);
    if (st == CUFFT_SUCCESS) st = cufftSetStream(s->plan, c->stream);
    if (st != CUFFT_SUCCESS) (void)cufftDestroy(s->plan);
    return st;
}

static tl_status transform_gpu_make(tl_ctx *ctx, tl_transform_kind kind, int n, int batch,
                                    spectra **out)
{
    spectra *s = (spectra *)calloc(1, sizeof *s);
    if (!s) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    s->kind = kind;
    s->n = n;
    s->batch = batch;
    cufftResult st = make_plan(gpu_of(ctx), s);
    if (st == CUFFT_ALLOC_FAILED) { /* cuFFT cannot use the memory that our pool caches */
        ctx->engine->trim(ctx);
        st = make_plan(gpu_of(ctx), s);
    }
    if (st != CUFFT_SUCCESS) {
        free(s);
        return fft_fail(ctx, st, "planning");
    }
    *out = s;
    return TL_OK;
}

/* Finds or makes the plan, and moves it to the front of the list, which is in order of use. */
static tl_status transform_gpu_find(tl_ctx *ctx, tl_transform_kind kind, int n, int batch,
                                    spectra **out)
{
    gpu      *c = gpu_of(ctx);
    spectra **at = &c->spectra, **oldest = NULL, *s;
    int       count = 0;
    for (; *at && ((*at)->kind != kind || (*at)->n != n || (*at)->batch != batch); count++) {
        if ((*at)->epoch != c->epoch || !c->graphs) oldest = at;
        at = &(*at)->next;
    }
    s = *at;
    if (s) {
        *at = s->next;
    } else {
        if (c->capture) /* a pass has run before its capture, else train/graphs.lua warns */
            return tl_fail(ctx, TL_EDEVICE, "cuda: a graph cannot plan a Fourier transform of a "
                           "new size");
        if (count >= CACHED && oldest) drop(oldest);
        tl_status st = transform_gpu_make(ctx, kind, n, batch, &s);
        if (st != TL_OK) return st;
    }
    if (c->capture) s->epoch = c->epoch;
    s->next = c->spectra;
    c->spectra = s;
    *out = s;
    return TL_OK;
}

static cufftResult execute(const spectra *s, float *from, float *to, void *work)
{
    cufftComplex *in = (cufftComplex *)from, *out = (cufftComplex *)to;
    cufftResult   st = cufftSetWorkArea(s->plan, work);
    if (st != CUFFT_SUCCESS) return st;
    if (s->kind == TL_R2C) return cufftExecR2C(s->plan, from, out);
    if (s->kind == TL_C2R) return cufftExecC2R(s->plan, in, to);
    return cufftExecC2C(s->plan, in, out,
                        s->kind == TL_C2C_FORWARD ? CUFFT_FORWARD : CUFFT_INVERSE);
}

tl_status gpu_fft(tl_ctx *ctx, tl_transform_kind kind, int64_t n, int64_t batch, float *from,
                  float *to)
{
    spectra *s = NULL;
    void    *work = NULL;
    if (n > INT32_MAX || batch > INT32_MAX)
        return tl_fail(ctx, TL_ESHAPE, "cufft: %lld transforms of length %lld are too many",
                       (long long)batch, (long long)n);
    tl_status st = transform_gpu_find(ctx, kind, (int)n, (int)batch, &s);
    if (st == TL_OK && s->work > 0) st = gpu_alloc(ctx, s->work, &work);
    if (st != TL_OK) return st;
    cufftResult result = execute(s, from, to, work);
    gpu_free(ctx, work);
    return result == CUFFT_SUCCESS ? TL_OK : fft_fail(ctx, result, "transform");
}

/* ---- The operator ---------------------------------------------------------------------------- */

typedef struct half_spectrum { /* says how the spectrum of n real numbers is changed */
    int64_t n;      /* 0: not at all */
    float   middle; /* the factor of the bins 0 < 2k < n */
} half_spectrum;

/* Copies [outer,size,inner,width] to contiguous vectors [outer,inner,size,width]; from_lines copies
** back, times scale. The imaginary parts of bins 0 and n/2 become 0: FFTW ignores them, but cuFFT
** expects 0, and is wrong at some lengths otherwise. */
static __global__ void to_lines(const float *x, float *lines, int64_t size, int64_t inner,
                                int width, half_spectrum h, int64_t total)
{
    EACH(e, total)
    {
        int64_t w = e % width, k = e / width % size, line = e / width / size;
        int64_t o = line / inner, i = line % inner;
        int     pair = k > 0 && 2 * k != h.n;
        float   value = x[((o * size + k) * inner + i) * width + w];
        lines[e] = h.n == 0 ? value : pair ? h.middle * value : w == 0 ? value : 0.0f;
    }
}

static __global__ void from_lines(const float *lines, float *y, int64_t size, int64_t inner,
                                  int width, float scale, half_spectrum h, int64_t total)
{
    EACH(e, total)
    {
        int64_t w = e % width, i = e / width % inner, k = e / width / inner % size;
        int64_t o = e / width / inner / size;
        float   f = h.n > 0 && k > 0 && 2 * k != h.n ? h.middle : 1.0f;
        y[e] = f * scale * lines[((o * inner + i) * size + k) * width + w];
    }
}

static tl_status transform_gpu_run(tl_ctx *ctx, const tl_args *args, float *from, float *to)
{
    const tl_transform_args *a = (const tl_transform_args *)args->p;
    half_spectrum before = {a->kind == TL_C2R ? a->n : 0, a->middle};
    half_spectrum after = {a->kind == TL_R2C ? a->n : 0, a->middle};
    int64_t       lines = a->outer * a->inner, total = lines * a->from * a->from_width;
    LAUNCH(to_lines, blocks_for(total), THREADS, F32(args->transform.x), from, a->from, a->inner,
           a->from_width, before, total);
    tl_status st = launched(ctx, "transform");
    if (st == TL_OK) st = gpu_fft(ctx, a->kind, a->n, lines, from, to);
    if (st != TL_OK) return st;
    total = lines * a->to * a->to_width;
    LAUNCH(from_lines, blocks_for(total), THREADS, to, F32(args->transform.y), a->to, a->inner,
           a->to_width, a->scale, after, total);
    return launched(ctx, "transform");
}

tl_status gpu_transform(tl_ctx *ctx, const tl_args *a)
{
    size_t before = (size_t)a->transform.x->len * 4, after = (size_t)a->transform.y->len * 4;
    void  *from, *to;
    if (before == 0 || after == 0) return TL_OK;
    tl_status st = gpu_alloc(ctx, before, &from);
    if (st != TL_OK) return st;
    st = gpu_alloc(ctx, after, &to);
    if (st == TL_OK) {
        st = transform_gpu_run(ctx, a, (float *)from, (float *)to);
        gpu_free(ctx, to);
    }
    gpu_free(ctx, from);
    return st;
}

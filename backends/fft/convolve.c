/* convolve.c - implements the backend fft: T x by one complex Fourier transform per real channel,
** the right-angle convolution of angle.h. From 8 channels on, rac computes the same faster, but it
** leaves most of its lanes idle below that, where `auto` takes this: at 4 channels it needs 0.3 to
** 0.7 of rac's time, at 1 channel 0.1 to 0.25 (forward and backward, n 64 to 262,144). */
#include <stdio.h>
#include <string.h>

#include "../common/convolve.h"
#include "../common/lag.h"
#include "fft.h"

typedef struct plan {
    convolution base;
    fftwf_plan  there, back;
} plan;

/* ---- Transforms and coefficients ------------------------------------------------------------- */

static void transform(fftwf_plan p, float *from, float *to)
{
    fftwf_execute_dft(p, (fftwf_complex *)from, (fftwf_complex *)to);
}

static void there(const convolution *s, float *from, float *to)
{
    transform(((const plan *)s)->there, from, to);
}

static void back(const convolution *s, float *from, float *to)
{
    transform(((const plan *)s)->back, from, to);
}

/* The negative lags are the first rows of coef. */
static void spectra(const convolution *s, const convolve_scratch *w, const float *coef,
                    int64_t first, int64_t channels)
{
    int64_t before = convolve_negative(s);
    tile_gather(coef + before * s->d + first, s->d, s->n, channels, w->x, s->row);
    tile_gather(coef + first, s->d, before, channels, w->y, s->row);
    for (int64_t c = 0; c < channels; c++)
        convolve_spectrum(s, w, w->x + c * s->row, w->y + c * s->row, w->coef + c * s->line);
}

static void gradients(const convolution *s, const convolve_scratch *w, float *dcoef, int64_t first,
                      int64_t channels)
{
    float   scale = 1.0f / (float)s->size;
    int64_t before = convolve_negative(s);
    for (int64_t c = 0; c < channels; c++) {
        float *x = w->x + c * s->row, *t = w->y + c * s->row;
        convolve_kernel(s, w, w->sum + c * s->line, x, t);
        for (int64_t m = 0; m < s->n; m++) x[m] *= scale;
        for (int64_t m = 0; m < before; m++) t[m] *= scale;
    }
    tile_scatter(w->x, s->row, s->n, channels, dcoef + before * s->d + first, s->d);
    tile_scatter(w->y, s->row, before, channels, dcoef + first, s->d);
}

/* ---- Plan ------------------------------------------------------------------------------------ */

static int fft_accepts(const tl_tno_problem *p, char *why, size_t size)
{
    if (p->n <= FFT_LONGEST && good_size(p->n) <= FFT_LONGEST) return 1;
    (void)snprintf(why, size, "its transforms take lengths of %d at most", FFT_LONGEST);
    return 0;
}

static void fft_release(void *state)
{
    plan *s = state;
    fft_plan_free(s->there);
    fft_plan_free(s->back);
    convolve_free(&s->base);
    s->base.h->free(s->base.h, s);
}

static tl_status fft_make_plan(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    int   measure = strcmp(p->options[0].s, "measure") == 0;
    plan *s = h->alloc(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    *s = (plan){.base = {.h = h, .n = p->n, .d = p->d, .causal = p->causal, .there = there,
                         .back = back, .spectra = spectra, .gradients = gradients}};
    tl_status st = convolve_plan(&s->base, p->n);
    if (st == TL_OK) st = fft_plan(h, TL_C2C_FORWARD, s->base.size, measure, &s->there);
    if (st == TL_OK) st = fft_plan(h, TL_C2C_BACKWARD, s->base.size, measure, &s->back);
    if (st == TL_OK)
        *out_plan = s;
    else
        fft_release(s);
    return st;
}

static tl_status fft_dense(void *state, const tl_tno_args *a)
{
    const convolution *s = state;
    lag_dense(s->n, s->d, s->causal, a->coef, a->dense);
    return TL_OK;
}

static const tl_option options[] = {
    {"planner", 's', "measure", "measure estimate",
     "how FFTW chooses an algorithm: by timing once, up to a minute, or by estimate"},
    {0},
};

const tl_tno_backend tl_tno_backend_entry = {
    .abi = TL_TNO_ABI,
    .name = "fft",
    .summary = "right-angle convolution by FFTW, O(n log n)",
    .domain = "lag",
    .options = options,
    .accepts = fft_accepts,
    .points = lag_points,
    .plan = fft_make_plan,
    .forward = convolve_forward,
    .backward = convolve_backward,
    .dense = fft_dense,
    .release = fft_release,
    .transforms = &fft_transforms,
    .auto_length = INT64_MAX,
};

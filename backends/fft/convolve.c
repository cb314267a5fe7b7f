/* convolve.c - implements the backend fft: T x by one complex Fourier transform per real channel,
** the right-angle convolution of angle.h. */
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

/* The number of negative lags, which are the first rows of coef. */
static int64_t negative(const convolution *s) { return s->causal ? 0 : s->n - 1; }

static void spectra(const convolution *s, const convolve_lane *w, const float *coef, int64_t first,
                    int64_t channels)
{
    float scale = 1.0f / (float)s->size;
    tile_gather(coef + negative(s) * s->d + first, s->d, s->n, channels, w->x, s->row);
    tile_gather(coef + first, s->d, negative(s), channels, w->y, s->row);
    for (int64_t c = 0; c < channels; c++) {
        float *line = w->coef + c * s->line;
        angle_twist(s->twist, s->size, s->n, w->x + c * s->row, w->a);
        angle_fold(s->twist, s->size, negative(s), w->y + c * s->row, w->a);
        there(s, w->a, line);
        for (int64_t k = 0; k < 2 * s->size; k++) line[k] *= scale;
    }
}

static void gradients(const convolution *s, const convolve_lane *w, float *dcoef, int64_t first,
                      int64_t channels)
{
    float scale = 1.0f / (float)s->size;
    for (int64_t c = 0; c < channels; c++) {
        float *x = w->x + c * s->row, *t = w->y + c * s->row;
        back(s, w->sum + c * s->line, w->a);
        angle_untwist(s->twist, s->n, w->a, x);
        for (int64_t m = 0; m < s->n; m++) x[m] *= scale;
        angle_unfold(s->twist, s->size, negative(s), w->a, t);
        for (int64_t m = 0; m < negative(s); m++) t[m] *= scale;
    }
    tile_scatter(w->x, s->row, s->n, channels, dcoef + negative(s) * s->d + first, s->d);
    tile_scatter(w->y, s->row, negative(s), channels, dcoef + first, s->d);
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
     "how FFTW chooses an algorithm: by timing once, or by estimate"},
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

/* convolve.c - the operator by one complex Fourier transform per real channel: the right-angle
** convolution, that is the product of polynomials modulo X^N - i for any N >= n.
**
** Let T'[m] = t_m - i t_(m-N), where lags that do not exist are 0. Modulo X^N = i, entry k of x T'
** is the sum over j <= k of x_j T'[k-j] plus i times the sum over j > k of x_j T'[k-j+N]. Its real
** part is the sum over all j of x_j t_(k-j): T x, causal or not. Nothing is padded to 2n as a
** circulant would need.
**
** With w = exp(i pi / 2N), the twist W = diag(w^m) makes the product a cyclic one:
**     T x = Re W^-1 F^-1 (F W T' . F W x)
** W is unitary, so the adjoints are conjugations:
**     dx = Re W^-1 F^-1 (conj(F W T') . F W dy)      dT' = W^-1 F^-1 (conj(F W x) . F W dy)
** and dt_m = Re dT'[m], dt_(m-N) = -Im dT'[m].
**
** Sixteen channels at a time: they are one cache line of every row of x. A tile is turned into
** contiguous vectors; the transform of its coefficients serves the whole batch. */
#include <string.h>

#include "../angle.h"
#include "../lag.h"
#include "../tile.h"
#include "fft.h"

typedef struct plan {
    const tl_host *h;
    int64_t        n, d, size; /* size: N */
    int            causal;
    int64_t        width;      /* channels of a tile */
    int64_t        row, line;  /* floats from one vector of a tile to the next: real, complex */
    int64_t        each;       /* floats of scratch per thread */
    fftwf_plan     there, back;
    float         *twist;      /* [N,2] w^m */
    float         *scratch;
} plan;

/* What one thread works with. */
typedef struct lane {
    float *x, *y;       /* [width] rows */
    float *coef, *sum;  /* [width] lines: spectra of the coefficients and of their gradient */
    float *a, *b, *c;   /* lines */
} lane;

typedef struct job {
    const plan        *s;
    const tl_tno_args *a;
} job;

/* ---- Plan ------------------------------------------------------------------------------------ */

static lane carve(const plan *s, int thread)
{
    lane   w;
    float *p = s->scratch + thread * s->each;
    w.x = p;
    w.y = w.x + s->width * s->row;
    w.coef = w.y + s->width * s->row;
    w.sum = w.coef + s->width * s->line;
    w.a = w.sum + s->width * s->line;
    w.b = w.a + s->line;
    w.c = w.b + s->line;
    return w;
}

static void release(void *state)
{
    plan *s = state;
    fft_plan_free(s->there);
    fft_plan_free(s->back);
    s->h->free(s->h, s->twist);
    s->h->free(s->h, s->scratch);
    s->h->free(s->h, s);
}

static tl_status make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    int   measure = strcmp(p->options[0].s, "measure") == 0;
    plan *s = h->alloc(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    *s = (plan){.h = h, .n = p->n, .d = p->d, .causal = p->causal};
    s->size = angle_size(p->n);
    s->width = tile_width(s->d, h->threads);
    s->row = tile_padded(s->n);
    s->line = tile_padded(2 * s->size);
    s->each = 2 * s->width * (s->row + s->line) + 3 * s->line;
    tl_status st = fft_plan(h, TL_C2C_FORWARD, s->size, measure, &s->there);
    if (st == TL_OK) st = fft_plan(h, TL_C2C_BACKWARD, s->size, measure, &s->back);
    if (st == TL_OK) {
        s->twist = h->alloc(h, (size_t)s->size * 2 * sizeof *s->twist);
        s->scratch = h->alloc(h, (size_t)(s->each * h->threads) * sizeof *s->scratch);
        if (!s->twist || !s->scratch) st = TL_ENOMEM;
    }
    if (st != TL_OK) {
        release(s);
        return st;
    }
    angle_table(s->size, s->twist);
    *out_plan = s;
    return TL_OK;
}

/* ---- Coefficients ---------------------------------------------------------------------------- */

static void transform(fftwf_plan p, float *from, float *to)
{
    fftwf_execute_dft(p, (fftwf_complex *)from, (fftwf_complex *)to);
}

/* w.coef = F W T' / N for the tile of coef, whose rows have d channels. */
static void spectra(const plan *s, const lane *w, const float *coef, int64_t channels)
{
    int64_t negative = s->causal ? 0 : s->n - 1; /* the lags -(n-1)..-1 come first */
    float   scale = 1.0f / (float)s->size;
    tile_gather(coef + negative * s->d, s->d, s->n, channels, w->x, s->row);
    tile_gather(coef, s->d, negative, channels, w->y, s->row);
    for (int64_t c = 0; c < channels; c++) {
        float *line = w->coef + c * s->line;
        angle_twist(s->twist, s->size, s->n, w->x + c * s->row, w->a);
        angle_fold(s->twist, s->size, negative, w->y + c * s->row, w->a);
        transform(s->there, w->a, line);
        for (int64_t k = 0; k < 2 * s->size; k++) line[k] *= scale;
    }
}

/* The tile of dcoef from w.sum, the spectra of dT'. */
static void coef_gradients(const plan *s, const lane *w, int64_t channels, float *dcoef)
{
    int64_t negative = s->causal ? 0 : s->n - 1;
    float   scale = 1.0f / (float)s->size;
    for (int64_t c = 0; c < channels; c++) {
        float *x = w->x + c * s->row, *t = w->y + c * s->row;
        transform(s->back, w->sum + c * s->line, w->a);
        angle_untwist(s->twist, s->n, w->a, x);
        for (int64_t m = 0; m < s->n; m++) x[m] *= scale;
        angle_unfold(s->twist, s->size, negative, w->a, t);
        for (int64_t m = 0; m < negative; m++) t[m] *= scale;
    }
    tile_scatter(w->x, s->row, s->n, channels, dcoef + negative * s->d, s->d);
    tile_scatter(w->y, s->row, negative, channels, dcoef, s->d);
}

/* ---- Application ----------------------------------------------------------------------------- */

static int64_t tile_channels(const plan *s, int64_t tile)
{
    int64_t left = s->d - tile * s->width;
    return left < s->width ? left : s->width;
}

static void forward_tiles(void *user, int64_t begin, int64_t end, int thread)
{
    const job  *j = user;
    const plan *s = j->s;
    lane        w = carve(s, thread);
    for (int64_t tile = begin; tile < end; tile++) {
        int64_t first = tile * s->width, channels = tile_channels(s, tile);
        spectra(s, &w, j->a->coef + first, channels);
        for (int64_t b = 0; b < j->a->b; b++) {
            int64_t at = b * s->n * s->d + first;
            tile_gather(j->a->x + at, s->d, s->n, channels, w.x, s->row);
            for (int64_t c = 0; c < channels; c++) {
                angle_twist(s->twist, s->size, s->n, w.x + c * s->row, w.a);
                transform(s->there, w.a, w.b);
                angle_multiply(s->size, w.b, w.coef + c * s->line);
                transform(s->back, w.b, w.a);
                angle_untwist(s->twist, s->n, w.a, w.x + c * s->row);
            }
            tile_scatter(w.x, s->row, s->n, channels, j->a->y + at, s->d);
        }
    }
}

/* One sequence: w.x holds x and w.y dy. Adds to w.sum, and leaves dx in w.y. */
static void backward_sequence(const plan *s, const lane *w, int64_t channels, int want_coef,
                              int want_x)
{
    for (int64_t c = 0; c < channels; c++) {
        angle_twist(s->twist, s->size, s->n, w->y + c * s->row, w->a);
        transform(s->there, w->a, w->b);
        if (want_coef) {
            angle_twist(s->twist, s->size, s->n, w->x + c * s->row, w->a);
            transform(s->there, w->a, w->c);
            angle_correlate(s->size, w->sum + c * s->line, w->b, w->c);
        }
        if (want_x) {
            angle_multiply_conjugate(s->size, w->b, w->coef + c * s->line);
            transform(s->back, w->b, w->a);
            angle_untwist(s->twist, s->n, w->a, w->y + c * s->row);
        }
    }
}

static void backward_tiles(void *user, int64_t begin, int64_t end, int thread)
{
    const job         *j = user;
    const plan        *s = j->s;
    const tl_tno_args *a = j->a;
    lane               w = carve(s, thread);
    for (int64_t tile = begin; tile < end; tile++) {
        int64_t first = tile * s->width, channels = tile_channels(s, tile);
        if (a->dx) spectra(s, &w, a->coef + first, channels);
        if (a->dcoef) memset(w.sum, 0, (size_t)(channels * s->line) * sizeof *w.sum);
        for (int64_t b = 0; b < a->b; b++) {
            int64_t at = b * s->n * s->d + first;
            tile_gather(a->dy + at, s->d, s->n, channels, w.y, s->row);
            if (a->dcoef) tile_gather(a->x + at, s->d, s->n, channels, w.x, s->row);
            backward_sequence(s, &w, channels, a->dcoef != NULL, a->dx != NULL);
            if (a->dx) tile_scatter(w.y, s->row, s->n, channels, a->dx + at, s->d);
        }
        if (a->dcoef) coef_gradients(s, &w, channels, a->dcoef + first);
    }
}

static void run(plan *s, const tl_tno_args *a, tl_body body)
{
    s->h->parallel(s->h, (s->d + s->width - 1) / s->width, 1, body, &(job){s, a});
}

static tl_status forward(void *state, const tl_tno_args *a)
{
    run(state, a, forward_tiles);
    return TL_OK;
}

static tl_status backward(void *state, const tl_tno_args *a)
{
    run(state, a, backward_tiles);
    return TL_OK;
}

static tl_status dense(void *state, const tl_tno_args *a)
{
    const plan *s = state;
    lag_dense(s->n, s->d, s->causal, a->coef, a->dense);
    return TL_OK;
}

static const tl_option options[] = {
    {"planner", 's', "measure", "measure estimate", "how FFTW chooses: by timing once, or by rule"},
    {0},
};

const tl_tno_backend tl_tno_backend_entry = {
    .abi = TL_TNO_ABI,
    .name = "fft",
    .summary = "right-angle convolution by FFTW, O(n log n)",
    .domain = "lag",
    .options = options,
    .accepts = lag_accepts,
    .points = lag_points,
    .plan = make,
    .forward = forward,
    .backward = backward,
    .dense = dense,
    .release = release,
    .transforms = &fft_transforms,
};

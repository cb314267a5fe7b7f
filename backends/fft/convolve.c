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
#include <math.h>
#include <string.h>

#include "../lag.h"
#include "fft.h"

#define TILE 16
#define PI   3.14159265358979323846

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

/* The smallest product of 2, 3, 5 and 7 from n on: lengths that FFTW has codelets for. */
static int64_t smooth(int64_t n)
{
    static const int primes[] = {2, 3, 5, 7};
    for (;; n++) {
        int64_t rest = n;
        for (int i = 0; i < 4; i++)
            while (rest % primes[i] == 0) rest /= primes[i];
        if (rest == 1) return n;
    }
}

/* Whole cache lines, and an odd number of them: a power of two maps all rows to the same sets. */
static int64_t padded(int64_t floats) { return (floats + 15) / 16 * 16 | 16; }

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
    s->size = smooth(p->n);
    s->width = TILE;
    while (s->width > 4 && s->d < s->width * h->threads) s->width /= 2;
    s->row = padded(s->n);
    s->line = padded(2 * s->size);
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
    for (int64_t m = 0; m < s->size; m++) {
        double angle = PI * (double)m / (2 * (double)s->size);
        s->twist[2 * m] = (float)cos(angle);
        s->twist[2 * m + 1] = (float)sin(angle);
    }
    *out_plan = s;
    return TL_OK;
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

/* rows[c][k] = from[k,c] for count rows of from and the tile's channels. A block goes through
** memory of its own: read in place, its rows fall on the same few cache sets. */
static void gather(const plan *s, const float *from, int64_t count, int64_t channels, float *rows)
{
    float block[TILE * TILE];
    for (int64_t k = 0; k < count; k += TILE) {
        int64_t some = count - k < TILE ? count - k : TILE;
        if (channels == TILE && some == TILE) {
            for (int64_t i = 0; i < TILE; i++)
                memcpy(block + i * TILE, from + (k + i) * s->d, sizeof(float[TILE]));
            for (int64_t c = 0; c < TILE; c++)
                for (int64_t i = 0; i < TILE; i++) rows[c * s->row + k + i] = block[i * TILE + c];
        } else {
            for (int64_t c = 0; c < channels; c++)
                for (int64_t i = 0; i < some; i++)
                    rows[c * s->row + k + i] = from[(k + i) * s->d + c];
        }
    }
}

static void scatter(const plan *s, const float *rows, int64_t count, int64_t channels, float *to)
{
    float block[TILE * TILE];
    for (int64_t k = 0; k < count; k += TILE) {
        int64_t some = count - k < TILE ? count - k : TILE;
        if (channels == TILE && some == TILE) {
            for (int64_t c = 0; c < TILE; c++)
                for (int64_t i = 0; i < TILE; i++) block[i * TILE + c] = rows[c * s->row + k + i];
            for (int64_t i = 0; i < TILE; i++)
                memcpy(to + (k + i) * s->d, block + i * TILE, sizeof(float[TILE]));
        } else {
            for (int64_t c = 0; c < channels; c++)
                for (int64_t i = 0; i < some; i++)
                    to[(k + i) * s->d + c] = rows[c * s->row + k + i];
        }
    }
}

/* ---- Vectors --------------------------------------------------------------------------------- */

/* z = W x, zero from n to N */
static void twist(const plan *s, const float *restrict x, float *restrict z)
{
    const float *restrict w = s->twist;
    for (int64_t m = 0; m < s->n; m++) {
        z[2 * m] = x[m] * w[2 * m];
        z[2 * m + 1] = x[m] * w[2 * m + 1];
    }
    if (s->size > s->n) memset(z + 2 * s->n, 0, (size_t)(s->size - s->n) * sizeof(float[2]));
}

/* x = Re W^-1 z */
static void untwist(const plan *s, const float *restrict z, float *restrict x)
{
    const float *restrict w = s->twist;
    for (int64_t m = 0; m < s->n; m++) x[m] = z[2 * m] * w[2 * m] + z[2 * m + 1] * w[2 * m + 1];
}

/* z = z t */
static void multiply(int64_t size, float *restrict z, const float *restrict t)
{
    for (int64_t k = 0; k < size; k++) {
        float re = z[2 * k] * t[2 * k] - z[2 * k + 1] * t[2 * k + 1];
        z[2 * k + 1] = z[2 * k] * t[2 * k + 1] + z[2 * k + 1] * t[2 * k];
        z[2 * k] = re;
    }
}

/* z = z conj(t) */
static void multiply_conjugate(int64_t size, float *restrict z, const float *restrict t)
{
    for (int64_t k = 0; k < size; k++) {
        float re = z[2 * k] * t[2 * k] + z[2 * k + 1] * t[2 * k + 1];
        z[2 * k + 1] = z[2 * k + 1] * t[2 * k] - z[2 * k] * t[2 * k + 1];
        z[2 * k] = re;
    }
}

/* sum += z conj(x) */
static void correlate(int64_t size, float *restrict sum, const float *restrict z,
                      const float *restrict x)
{
    for (int64_t k = 0; k < size; k++) {
        sum[2 * k] += z[2 * k] * x[2 * k] + z[2 * k + 1] * x[2 * k + 1];
        sum[2 * k + 1] += z[2 * k + 1] * x[2 * k] - z[2 * k] * x[2 * k + 1];
    }
}

static void transform(fftwf_plan p, float *from, float *to)
{
    fftwf_execute_dft(p, (fftwf_complex *)from, (fftwf_complex *)to);
}

/* ---- Coefficients ---------------------------------------------------------------------------- */

/* w.coef = F W T' / N for the tile of coef, whose rows have d channels. */
static void spectra(const plan *s, const lane *w, const float *coef, int64_t channels)
{
    int64_t negative = s->causal ? 0 : s->n - 1; /* the lags -(n-1)..-1 come first */
    float   scale = 1.0f / (float)s->size;
    gather(s, coef + negative * s->d, s->n, channels, w->x);
    gather(s, coef, negative, channels, w->y);
    for (int64_t c = 0; c < channels; c++) {
        float       *line = w->coef + c * s->line;
        const float *t = w->y + c * s->row, *root = s->twist + 2 * (s->size - negative);
        twist(s, w->x + c * s->row, w->a);
        float *tail = w->a + 2 * (s->size - negative);
        for (int64_t m = 0; m < negative; m++) { /* -i t w^m */
            tail[2 * m] += t[m] * root[2 * m + 1];
            tail[2 * m + 1] -= t[m] * root[2 * m];
        }
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
        float       *x = w->x + c * s->row, *t = w->y + c * s->row;
        const float *root = s->twist + 2 * (s->size - negative);
        transform(s->back, w->sum + c * s->line, w->a);
        untwist(s, w->a, x);
        for (int64_t m = 0; m < s->n; m++) x[m] *= scale;
        const float *tail = w->a + 2 * (s->size - negative);
        for (int64_t m = 0; m < negative; m++) /* - Im w^-m z */
            t[m] = scale * (tail[2 * m] * root[2 * m + 1] - tail[2 * m + 1] * root[2 * m]);
    }
    scatter(s, w->x, s->n, channels, dcoef + negative * s->d);
    scatter(s, w->y, negative, channels, dcoef);
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
            gather(s, j->a->x + at, s->n, channels, w.x);
            for (int64_t c = 0; c < channels; c++) {
                twist(s, w.x + c * s->row, w.a);
                transform(s->there, w.a, w.b);
                multiply(s->size, w.b, w.coef + c * s->line);
                transform(s->back, w.b, w.a);
                untwist(s, w.a, w.x + c * s->row);
            }
            scatter(s, w.x, s->n, channels, j->a->y + at);
        }
    }
}

/* One sequence: w.x holds x and w.y dy. Adds to w.sum, and leaves dx in w.y. */
static void backward_sequence(const plan *s, const lane *w, int64_t channels, int want_coef,
                              int want_x)
{
    for (int64_t c = 0; c < channels; c++) {
        twist(s, w->y + c * s->row, w->a);
        transform(s->there, w->a, w->b);
        if (want_coef) {
            twist(s, w->x + c * s->row, w->a);
            transform(s->there, w->a, w->c);
            correlate(s->size, w->sum + c * s->line, w->b, w->c);
        }
        if (want_x) {
            multiply_conjugate(s->size, w->b, w->coef + c * s->line);
            transform(s->back, w->b, w->a);
            untwist(s, w->a, w->y + c * s->row);
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
            gather(s, a->dy + at, s->n, channels, w.y);
            if (a->dcoef) gather(s, a->x + at, s->n, channels, w.x);
            backward_sequence(s, &w, channels, a->dcoef != NULL, a->dx != NULL);
            if (a->dx) scatter(s, w.y, s->n, channels, a->dx + at);
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

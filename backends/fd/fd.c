/* fd.c - the operator by its frequency response: coefficients are asked for at the frequencies
** pi m / M, m = 0..M, and N = 2M >= 2n is the length of the real transform F to the kernel r (SKI,
** Section 3.3).
**
** Bidirectional: the response is H = re + i im, without im at 0 and pi, where a real kernel has
** none, and the kernel is N-periodic:
**     r = F^-1 H      T[i,j] = r_((i-j) mod N)
** Causal: the response K is real, so r = F^-1 K is even. The Hilbert transform that makes it causal
** is a window in time: t_0 = r_0, t_k = 2 r_k for 0 < k < n, and no others; lags from n on reach no
** output.
**     T[i,j] = t_(i-j) for i >= j, else 0
**
** y = F^-1 (H . F x) would be as true, with x padded to N, and no more than H is then needed. But a
** real transform of 2n takes FFTW twice as long as a complex one of n, so the kernel, made once per
** channel and call, is applied by the right-angle convolution of angle.h.
**
** Adjoints, with w_m = 1 at 0 and pi and else 2, since a bin between stands for two of N:
**     dr_k = dt_k, where the window is 2 dt_k for k > 0      dH_m = w_m / N (F dr)_m
** (its real part for re, its imaginary part for im).
**
** What a causal kernel gives for negative lags is 0 in dense, but in a product only to rounding:
** any transform mixes all positions, so y_i feels later inputs by about 1e-7 of the largest output.
** Exact zeros would take transforms of ever shorter blocks down to plain sums, three to four times
** the work; `naive`, `matrix` and `ski` have them. */
#include <string.h>

#include "../angle.h"
#include "../tile.h"
#include "backend.h"

#define PI      3.14159265358979323846
#define LONGEST ((int64_t)1 << 28) /* N is at most twice the next power of two */

typedef struct plan {
    const tl_host       *h;
    const tl_transforms *f;
    int64_t n, d, half, size;  /* half: M; size: of the convolution */
    int     causal;
    int64_t width;             /* channels of a tile */
    int64_t row, line;         /* floats from one vector of a tile to the next: real, complex */
    int64_t temporary;         /* floats of a vector that serves for all */
    int64_t each;              /* floats of scratch per thread */
    void   *there, *back;      /* [size,2] <-> [size,2] */
    void   *response, *kernel; /* [N] -> [M+1,2] and back */
    float  *twist, *scratch;
} plan;

/* What one thread works with. */
typedef struct lane {
    float *x, *y;       /* [width] rows of n, or of M + 1 while coefficients are moved */
    float *coef, *sum;  /* [width] lines: spectra of the kernel and of its gradient */
    float *a, *b, *c;
} lane;

typedef struct job {
    const plan        *s;
    const tl_tno_args *a;
} job;

/* ---- The problem ----------------------------------------------------------------------------- */

static int accepts(const tl_tno_problem *p, char *why, size_t size)
{
    const char *reason = p->device != TL_CPU ? "it runs on the CPU only"
                         : p->n > LONGEST   ? "its transforms take lengths of 268435456 at most"
                                             : NULL;
    size_t len = reason ? strlen(reason) + 1 : 0;
    if (reason && len <= size) memcpy(why, reason, len);
    return !reason;
}

/* The smallest power of two from n on. */
static int64_t power2(int64_t n)
{
    int64_t m = 1;
    while (m < n) m *= 2;
    return m;
}

static int64_t half_size(const tl_tno_problem *p)
{
    const char *size = p->options[0].s;
    if (strcmp(size, "power2") == 0) return power2(p->n);
    return strcmp(size, "good") == 0 ? angle_size(p->n) : p->n;
}

static int64_t points(const tl_tno_problem *p, double *out)
{
    int64_t half = half_size(p);
    for (int64_t m = 0; out && m <= half; m++) out[m] = PI * (double)m / (double)half;
    return half + 1;
}

static int width(const tl_tno_problem *p) { return p->causal ? 1 : 2; }

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
    w.b = w.a + s->temporary;
    w.c = w.b + s->temporary;
    return w;
}

static void release(void *state)
{
    plan *s = state;
    void *plans[] = {s->there, s->back, s->response, s->kernel};
    for (int i = 0; i < 4; i++)
        if (plans[i]) s->f->release(plans[i]);
    s->h->free(s->h, s->twist);
    s->h->free(s->h, s->scratch);
    s->h->free(s->h, s);
}

static tl_status plan_transforms(plan *s)
{
    tl_status st = s->f->plan(s->h, TL_C2C_FORWARD, s->size, &s->there);
    if (st == TL_OK) st = s->f->plan(s->h, TL_C2C_BACKWARD, s->size, &s->back);
    if (st == TL_OK) st = s->f->plan(s->h, TL_R2C, 2 * s->half, &s->response);
    if (st == TL_OK) st = s->f->plan(s->h, TL_C2R, 2 * s->half, &s->kernel);
    return st;
}

static tl_status make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    const tl_transforms *f = h->transforms(h);
    if (!f)
        return h->fail(h, TL_EBACKEND,
                       "fd: no loaded backend provides Fourier transforms; 'fft' does");
    plan *s = h->alloc(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    *s = (plan){.h = h, .f = f, .n = p->n, .d = p->d, .half = half_size(p), .causal = p->causal};
    s->size = angle_size(s->n);
    s->width = tile_width(s->d, h->threads);
    s->row = tile_padded(s->half + 1);
    s->line = tile_padded(2 * s->size);
    s->temporary = tile_padded(2 * (s->half < s->size ? s->size : s->half) + 2);
    s->each = 2 * s->width * (s->row + s->line) + 3 * s->temporary;
    tl_status st = plan_transforms(s);
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

/* The lags -count..-1 are the last of N. */
static int64_t negative(const plan *s) { return s->causal ? 0 : s->n - 1; }

/* w.x, w.y = the real and imaginary parts of the tile of coef, whose channels begin at first. */
static void responses(const plan *s, const lane *w, const float *coef, int64_t first,
                      int64_t channels)
{
    int64_t stride = s->causal ? s->d : 2 * s->d;
    tile_gather(coef + first, stride, s->half + 1, channels, w->x, s->row);
    if (!s->causal)
        tile_gather(coef + s->d + first, stride, s->half + 1, channels, w->y, s->row);
}

/* w.b [N] = the kernel of channel c, whose response is in w.x and w.y. */
static void kernel(const plan *s, const lane *w, int64_t c)
{
    const float *re = w->x + c * s->row, *im = w->y + c * s->row;
    float        scale = 0.5f / (float)s->half, *h = w->a;
    for (int64_t k = 0; k <= s->half; k++) {
        h[2 * k] = scale * re[k];
        h[2 * k + 1] = s->causal || k == 0 || k == s->half ? 0 : scale * im[k];
    }
    s->f->run(s->kernel, h, w->b);
    for (int64_t k = 1; s->causal && k < s->n; k++) w->b[k] *= 2;
}

/* w.coef = the spectra, over their size, of the kernels of the tile of coef. */
static void spectra(const plan *s, const lane *w, const float *coef, int64_t first,
                    int64_t channels)
{
    float scale = 1.0f / (float)s->size;
    responses(s, w, coef, first, channels);
    for (int64_t c = 0; c < channels; c++) {
        float *line = w->coef + c * s->line;
        kernel(s, w, c);
        angle_twist(s->twist, s->size, s->n, w->b, w->a);
        angle_fold(s->twist, s->size, negative(s), w->b + 2 * s->half - negative(s), w->a);
        s->f->run(s->there, w->a, line);
        for (int64_t k = 0; k < 2 * s->size; k++) line[k] *= scale;
    }
}

/* The tile of dcoef from w.sum, the spectra of the gradients of the kernels. */
static void coef_gradients(const plan *s, const lane *w, int64_t first, int64_t channels,
                           float *dcoef)
{
    int64_t stride = s->causal ? s->d : 2 * s->d, size = 2 * s->half;
    float   scale = 1.0f / ((float)s->size * (float)size), *g = w->a, *r = w->b;
    for (int64_t c = 0; c < channels; c++) {
        float *re = w->x + c * s->row, *im = w->y + c * s->row;
        s->f->run(s->back, w->sum + c * s->line, g);
        memset(r + s->n, 0, (size_t)(size - s->n) * sizeof *r);
        angle_untwist(s->twist, s->n, g, r);
        angle_unfold(s->twist, s->size, negative(s), g, r + size - negative(s));
        for (int64_t k = 1; s->causal && k < s->n; k++) r[k] *= 2;
        s->f->run(s->response, r, g);
        for (int64_t k = 0; k <= s->half; k++) {
            int end = k == 0 || k == s->half;
            re[k] = (end ? scale : 2 * scale) * g[2 * k];
            im[k] = end ? 0 : 2 * scale * g[2 * k + 1];
        }
    }
    tile_scatter(w->x, s->row, s->half + 1, channels, dcoef + first, stride);
    if (!s->causal)
        tile_scatter(w->y, s->row, s->half + 1, channels, dcoef + s->d + first, stride);
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
        spectra(s, &w, j->a->coef, first, channels);
        for (int64_t b = 0; b < j->a->b; b++) {
            int64_t at = b * s->n * s->d + first;
            tile_gather(j->a->x + at, s->d, s->n, channels, w.x, s->row);
            for (int64_t c = 0; c < channels; c++) {
                angle_twist(s->twist, s->size, s->n, w.x + c * s->row, w.a);
                s->f->run(s->there, w.a, w.b);
                angle_multiply(s->size, w.b, w.coef + c * s->line);
                s->f->run(s->back, w.b, w.a);
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
        s->f->run(s->there, w->a, w->b);
        if (want_coef) {
            angle_twist(s->twist, s->size, s->n, w->x + c * s->row, w->a);
            s->f->run(s->there, w->a, w->c);
            angle_correlate(s->size, w->sum + c * s->line, w->b, w->c);
        }
        if (want_x) {
            angle_multiply_conjugate(s->size, w->b, w->coef + c * s->line);
            s->f->run(s->back, w->b, w->a);
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
        if (a->dx) spectra(s, &w, a->coef, first, channels);
        if (a->dcoef) memset(w.sum, 0, (size_t)(channels * s->line) * sizeof *w.sum);
        for (int64_t b = 0; b < a->b; b++) {
            int64_t at = b * s->n * s->d + first;
            tile_gather(a->dy + at, s->d, s->n, channels, w.y, s->row);
            if (a->dcoef) tile_gather(a->x + at, s->d, s->n, channels, w.x, s->row);
            backward_sequence(s, &w, channels, a->dcoef != NULL, a->dx != NULL);
            if (a->dx) tile_scatter(w.y, s->row, s->n, channels, a->dx + at, s->d);
        }
        if (a->dcoef) coef_gradients(s, &w, first, channels, a->dcoef);
    }
}

static void dense_tiles(void *user, int64_t begin, int64_t end, int thread)
{
    const job  *j = user;
    const plan *s = j->s;
    int64_t     n = s->n, size = 2 * s->half;
    lane        w = carve(s, thread);
    for (int64_t tile = begin; tile < end; tile++) {
        int64_t first = tile * s->width, channels = tile_channels(s, tile);
        responses(s, &w, j->a->coef, first, channels);
        for (int64_t c = 0; c < channels; c++) {
            float *to = j->a->dense + (first + c) * n * n;
            kernel(s, &w, c);
            for (int64_t i = 0; i < n; i++)
                for (int64_t k = 0; k < n; k++)
                    to[i * n + k] = i >= k ? w.b[i - k] : s->causal ? 0 : w.b[size + i - k];
        }
    }
}

static tl_status run(const plan *s, const tl_tno_args *a, tl_body body)
{
    s->h->parallel(s->h, (s->d + s->width - 1) / s->width, 1, body, &(job){s, a});
    return TL_OK;
}

static tl_status forward(void *state, const tl_tno_args *a) { return run(state, a, forward_tiles); }
static tl_status dense(void *state, const tl_tno_args *a) { return run(state, a, dense_tiles); }

static tl_status backward(void *state, const tl_tno_args *a)
{
    return run(state, a, backward_tiles);
}

static const tl_option options[] = {
    {"size", 's', "double", "double power2 good",
     "transform length: 2n, the next power of two, or the next even product of 2, 3, 5 and 7"},
    {0},
};

const tl_tno_backend tl_tno_backend_entry = {
    .abi = TL_TNO_ABI,
    .name = "fd",
    .summary = "frequency domain: the encoder gives the response, O(n log n)",
    .domain = "frequency",
    .options = options,
    .accepts = accepts,
    .points = points,
    .width = width,
    .plan = make,
    .forward = forward,
    .backward = backward,
    .dense = dense,
    .release = release,
};

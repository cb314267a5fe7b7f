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

#include "../convolve.h"

#define PI      3.14159265358979323846
#define LONGEST ((int64_t)1 << 28) /* N is at most twice the next power of two */

typedef struct plan {
    convolution          base;
    const tl_transforms *f;
    int64_t              half;               /* M */
    void                *there, *back;       /* [size,2] <-> [size,2] */
    void                *response, *kernel;  /* [N] -> [M+1,2] and back */
} plan;

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

/* ---- Transforms and coefficients ------------------------------------------------------------- */

static void there(const convolution *s, float *from, float *to)
{
    const plan *p = (const plan *)s;
    p->f->run(p->there, from, to);
}

static void back(const convolution *s, float *from, float *to)
{
    const plan *p = (const plan *)s;
    p->f->run(p->back, from, to);
}

/* The lags -count..-1 are the last of N. */
static int64_t negative(const convolution *s) { return s->causal ? 0 : s->n - 1; }

/* w.x, w.y = the real and imaginary parts of the tile of coef, whose channels begin at first. */
static void responses(const plan *p, const convolve_lane *w, const float *coef, int64_t first,
                      int64_t channels)
{
    const convolution *s = &p->base;
    int64_t            stride = s->causal ? s->d : 2 * s->d;
    tile_gather(coef + first, stride, p->half + 1, channels, w->x, s->row);
    if (!s->causal)
        tile_gather(coef + s->d + first, stride, p->half + 1, channels, w->y, s->row);
}

/* w.b [N] = the kernel of channel c, whose response is in w.x and w.y. */
static void kernel(const plan *p, const convolve_lane *w, int64_t c)
{
    const convolution *s = &p->base;
    const float       *re = w->x + c * s->row, *im = w->y + c * s->row;
    float              scale = 0.5f / (float)p->half, *h = w->a;
    for (int64_t k = 0; k <= p->half; k++) {
        h[2 * k] = scale * re[k];
        h[2 * k + 1] = s->causal || k == 0 || k == p->half ? 0 : scale * im[k];
    }
    p->f->run(p->kernel, h, w->b);
    for (int64_t k = 1; s->causal && k < s->n; k++) w->b[k] *= 2;
}

static void spectra(const convolution *s, const convolve_lane *w, const float *coef, int64_t first,
                    int64_t channels)
{
    const plan *p = (const plan *)s;
    float       scale = 1.0f / (float)s->size;
    responses(p, w, coef, first, channels);
    for (int64_t c = 0; c < channels; c++) {
        float *line = w->coef + c * s->line;
        kernel(p, w, c);
        angle_twist(s->twist, s->size, s->n, w->b, w->a);
        angle_fold(s->twist, s->size, negative(s), w->b + 2 * p->half - negative(s), w->a);
        there(s, w->a, line);
        for (int64_t k = 0; k < 2 * s->size; k++) line[k] *= scale;
    }
}

static void gradients(const convolution *s, const convolve_lane *w, float *dcoef, int64_t first,
                      int64_t channels)
{
    const plan *p = (const plan *)s;
    int64_t     stride = s->causal ? s->d : 2 * s->d, size = 2 * p->half;
    float       scale = 1.0f / ((float)s->size * (float)size), *g = w->a, *r = w->b;
    for (int64_t c = 0; c < channels; c++) {
        float *re = w->x + c * s->row, *im = w->y + c * s->row;
        back(s, w->sum + c * s->line, g);
        memset(r + s->n, 0, (size_t)(size - s->n) * sizeof *r);
        angle_untwist(s->twist, s->n, g, r);
        angle_unfold(s->twist, s->size, negative(s), g, r + size - negative(s));
        for (int64_t k = 1; s->causal && k < s->n; k++) r[k] *= 2;
        p->f->run(p->response, r, g);
        for (int64_t k = 0; k <= p->half; k++) {
            int end = k == 0 || k == p->half;
            re[k] = (end ? scale : 2 * scale) * g[2 * k];
            im[k] = end ? 0 : 2 * scale * g[2 * k + 1];
        }
    }
    tile_scatter(w->x, s->row, p->half + 1, channels, dcoef + first, stride);
    if (!s->causal)
        tile_scatter(w->y, s->row, p->half + 1, channels, dcoef + s->d + first, stride);
}

/* ---- Plan ------------------------------------------------------------------------------------ */

static void release(void *state)
{
    plan *s = state;
    void *plans[] = {s->there, s->back, s->response, s->kernel};
    for (int i = 0; i < 4; i++)
        if (plans[i]) s->f->release(plans[i]);
    convolve_free(&s->base);
    s->base.h->free(s->base.h, s);
}

static tl_status plan_transforms(plan *s)
{
    const tl_host *h = s->base.h;
    tl_status      st = s->f->plan(h, TL_C2C_FORWARD, s->base.size, &s->there);
    if (st == TL_OK) st = s->f->plan(h, TL_C2C_BACKWARD, s->base.size, &s->back);
    if (st == TL_OK) st = s->f->plan(h, TL_R2C, 2 * s->half, &s->response);
    if (st == TL_OK) st = s->f->plan(h, TL_C2R, 2 * s->half, &s->kernel);
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
    *s = (plan){.base = {.h = h, .n = p->n, .d = p->d, .causal = p->causal, .there = there,
                         .back = back, .spectra = spectra, .gradients = gradients},
                .f = f, .half = half_size(p)};
    tl_status st = convolve_plan(&s->base, s->half + 1);
    if (st == TL_OK) st = plan_transforms(s);
    if (st == TL_OK)
        *out_plan = s;
    else
        release(s);
    return st;
}

/* ---- The matrix ------------------------------------------------------------------------------ */

static void dense_tiles(void *user, int64_t begin, int64_t end, int thread)
{
    const convolve_job *j = user;
    const convolution  *s = j->s;
    const plan         *p = (const plan *)s;
    int64_t             n = s->n, size = 2 * p->half;
    convolve_lane       w = convolve_carve(s, thread);
    for (int64_t tile = begin; tile < end; tile++) {
        int64_t first = tile * s->width, channels = convolve_channels(s, tile);
        responses(p, &w, j->a->coef, first, channels);
        for (int64_t c = 0; c < channels; c++) {
            float *to = j->a->dense + (first + c) * n * n;
            kernel(p, &w, c);
            for (int64_t i = 0; i < n; i++)
                for (int64_t k = 0; k < n; k++)
                    to[i * n + k] = i >= k ? w.b[i - k] : s->causal ? 0 : w.b[size + i - k];
        }
    }
}

static tl_status dense(void *state, const tl_tno_args *a)
{
    return convolve_run(state, a, dense_tiles);
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
    .forward = convolve_forward,
    .backward = convolve_backward,
    .dense = dense,
    .release = release,
};

/* lines.c - applies fd's operator for any length, channel by channel, with the host's transforms.
**
** y = F^-1 (H . F x) would need real transforms of length 2M, and FFTW takes twice as long for a
** real transform of 2n as for a complex one of n. Therefore the kernel is computed once per channel
** and call, and applied by the right-angle convolution of angle.h. */
#include <string.h>

#include "../common/convolve.h"
#include "fd.h"

typedef struct plan {
    convolution          base;
    const tl_transforms *f;
    int64_t              half;               /* M */
    void                *there, *back;       /* [size,2] <-> [size,2] */
    void                *response, *kernel;  /* [N] -> [M+1,2] and back */
} plan;

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

/* Sets w.x and w.y to the real and imaginary parts of channels first.. of coef. */
static void responses(const plan *p, const convolve_scratch *w, const float *coef, int64_t first,
                      int64_t channels)
{
    const convolution *s = &p->base;
    int64_t            stride = s->causal ? s->d : 2 * s->d;
    tile_gather(coef + first, stride, p->half + 1, channels, w->x, s->row);
    if (!s->causal)
        tile_gather(coef + s->d + first, stride, p->half + 1, channels, w->y, s->row);
}

/* Sets w.b [N] to the kernel of channel c, whose response is in w.x and w.y. The negative lags are
** its last entries. */
static void kernel(const plan *p, const convolve_scratch *w, int64_t c)
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

static void spectra(const convolution *s, const convolve_scratch *w, const float *coef,
                    int64_t first, int64_t channels)
{
    const plan *p = (const plan *)s;
    responses(p, w, coef, first, channels);
    for (int64_t c = 0; c < channels; c++) {
        kernel(p, w, c);
        convolve_spectrum(s, w, w->b, w->b + 2 * p->half - convolve_negative(s),
                          w->coef + c * s->line);
    }
}

static void gradients(const convolution *s, const convolve_scratch *w, float *dcoef, int64_t first,
                      int64_t channels)
{
    const plan *p = (const plan *)s;
    int64_t     stride = s->causal ? s->d : 2 * s->d, size = 2 * p->half;
    float       scale = 1.0f / ((float)s->size * (float)size), *g = w->a, *r = w->b;
    for (int64_t c = 0; c < channels; c++) {
        float *re = w->x + c * s->row, *im = w->y + c * s->row;
        memset(r + s->n, 0, (size_t)(size - s->n) * sizeof *r);
        convolve_kernel(s, w, w->sum + c * s->line, r, r + size - convolve_negative(s));
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

static void lines_release(void *state)
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

static tl_status lines_make(const tl_host *h, const fd_problem *p, void **out_plan)
{
    const tl_transforms *f = h->transforms(h);
    if (!f)
        return h->fail(h, TL_EBACKEND,
                       "fd: no loaded backend provides Fourier transforms; 'fft' does");
    plan *s = h->alloc(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    *s = (plan){.base = {.h = h, .n = p->n, .d = p->d, .causal = p->causal, .there = there,
                         .back = back, .spectra = spectra, .gradients = gradients},
                .f = f, .half = p->half};
    tl_status st = convolve_plan(&s->base, s->half + 1);
    if (st == TL_OK) st = plan_transforms(s);
    if (st == TL_OK)
        *out_plan = s;
    else
        lines_release(s);
    return st;
}

/* ---- The matrix ------------------------------------------------------------------------------ */

static void dense_tiles(void *user, int64_t begin, int64_t end, int thread)
{
    const convolve_job *j = user;
    const convolution  *s = j->s;
    const plan         *p = (const plan *)s;
    int64_t             n = s->n, size = 2 * p->half;
    convolve_scratch    w = convolve_carve(s, thread);
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

static tl_status lines_dense(void *state, const tl_tno_args *a)
{
    return convolve_run(state, a, dense_tiles);
}

const fd_way fd_lines = {lines_make, convolve_forward, convolve_backward, lines_dense,
                         lines_release, NULL};

/* fd.c - implements the backend fd, where coefficients are the frequency response of the operator
** at pi m / M, m = 0..M. N = 2M >= 2n is the length of the real transform F between the response
** and the kernel r (SKI, Section 3.3).
**
** Bidirectional: the response is H = re + i im, where im is 0 at 0 and pi, as for any real kernel.
** The kernel is N-periodic:
**     r = F^-1 H      T[i,j] = r_((i-j) mod N)
** Causal: the response K is real, so r = F^-1 K is even. The Hilbert transform that makes it causal
** is a window in time: t_0 = r_0, t_k = 2 r_k for 0 < k < n, and no others; lags from n on reach no
** output.
**     T[i,j] = t_(i-j) for i >= j, else 0
**
** Adjoints, with w_m = 1 at 0 and pi and else 2, since other bins stand for a conjugate pair:
**     dr_k = dt_k, where the window is 2 dt_k for k > 0      dH_m = w_m / N (F dr)_m
** (its real part for re, its imaginary part for im).
**
** A causal T is exactly lower triangular in dense, but in a product only up to rounding: a
** transform mixes all positions, so that y_i depends on later inputs by about 1e-7 of the largest
** output. Exact causality would need transforms of ever shorter blocks down to direct sums, three
** to four times the work; `naive`, `matrix` and `ski` have it. */
#include <stdio.h>
#include <string.h>

#include "../common/size.h"
#include "fd.h"

#define PI         3.14159265358979323846
#define MAX_LENGTH ((int64_t)1 << 28) /* then N <= 2^29, which an int of FFTW's interface counts */

enum { SIZE, ISA };

static const tl_option options[] = {
    {"size", 's', "double", "double power2 good",
     "transform length: 2n, the next power of two, or the next even product of 2, 3, 5 and 7"},
    {"isa", 's', "auto", "auto avx512 avx2 portable",
     "the instruction set of vector lanes; auto: the best of the processor"},
    {0},
};

static int fd_accepts(const tl_tno_problem *p, char *why, size_t size)
{
    const char *isa = p->options[ISA].s;
    int         fits = p->n <= MAX_LENGTH;
    if (!fits) (void)snprintf(why, size, "its transforms take lengths of 268435456 at most");
    else if (!fd_has(isa)) (void)snprintf(why, size, "this processor has no %s", isa);
    return fits && fd_has(isa);
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
    const char *size = p->options[SIZE].s;
    if (strcmp(size, "power2") == 0) return power2(p->n);
    return strcmp(size, "good") == 0 ? good_size(p->n) : p->n;
}

static int64_t fd_points(const tl_tno_problem *p, double *out)
{
    int64_t half = half_size(p);
    for (int64_t m = 0; out && m <= half; m++) out[m] = PI * (double)m / (double)half;
    return half + 1;
}

static int width(const tl_tno_problem *p) { return p->causal ? 1 : 2; }

/* ---- The chosen implementation --------------------------------------------------------------- */

typedef struct plan {
    const tl_host *h;
    const fd_way  *way;
    void          *plan; /* of that way */
} plan;

static void fd_release(void *state)
{
    plan *s = state;
    if (s->plan) s->way->release(s->plan);
    s->h->free(s->h, s);
}

static tl_status fd_make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    fd_problem problem = {p->n, p->d, half_size(p), p->causal, p->options[ISA].s};
    plan      *s = h->alloc(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    *s = (plan){.h = h, .way = &fd_lanes};
    tl_status st = s->way->plan(h, &problem, &s->plan);
    if (st == TL_OK && !s->plan) {
        s->way = &fd_lines;
        st = s->way->plan(h, &problem, &s->plan);
    }
    if (st == TL_OK)
        *out_plan = s;
    else
        fd_release(s);
    return st;
}

static tl_status fd_forward(void *state, const tl_tno_args *a)
{
    const plan *s = state;
    return s->way->forward(s->plan, a);
}

static tl_status fd_backward(void *state, const tl_tno_args *a)
{
    const plan *s = state;
    return s->way->backward(s->plan, a);
}

static tl_status fd_dense(void *state, const tl_tno_args *a)
{
    const plan *s = state;
    return s->way->dense(s->plan, a);
}

static int64_t fd_cache_size(void *state)
{
    const plan *s = state;
    return s->way->cache_size ? s->way->cache_size(s->plan) : 0;
}

const tl_tno_backend tl_tno_backend_entry = {
    .abi = TL_TNO_ABI,
    .name = "fd",
    .summary = "frequency domain: the encoder gives the response, O(n log n)",
    .domain = "frequency",
    .options = options,
    .accepts = fd_accepts,
    .points = fd_points,
    .width = width,
    .plan = fd_make,
    .forward = fd_forward,
    .backward = fd_backward,
    .dense = fd_dense,
    .release = fd_release,
    .cache_size = fd_cache_size,
};

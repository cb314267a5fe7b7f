/* plan.c - defines the backend ski: its options, the points of its kernel, and its plans.
**
** The kernel is k(t) = RPE(sign(t) lambda^|t|) (SKI, Section 3.2.2): the inverse time warp maps all
** lags into [-1,1], so that the encoder interpolates at any length and never extrapolates. Of this
** kernel A needs only the 2r - 1 lags between inducing points, or r of them if causal, however long
** the sequence is; they are the points that this backend names. The taps are a parameter of the
** backend itself.
**
** A plan holds what depends on the problem alone: W, the plans of the transforms, and the scratch
** memory of all threads. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../common/size.h"
#include "../common/tile.h"
#include "ski.h"

#define MAX_POINTS 16777216 /* inducing points, or taps: keeps sizes below from overflowing */

/* Direct sums for A take r^2 products for a whole group at once; transforms work channel by
** channel. Up to this number of inducing points the former are faster, by measurement. */
#define DIRECT 256

enum { INDUCING, TAPS, INTERPOLATION, LAMBDA, SPAN, ZERO, PARTS, AS_PUBLISHED, MASKING };

static const tl_option options[] = {
    {"inducing", 'i', "64", "2..", "inducing points of the low-rank part"},
    {"taps", 'i', "32", "0..", "taps of the sparse part: tap k is lag k - taps/2; causal: lag k"},
    {"interpolation", 's', "linear", "linear cubic", "from the inducing points to the tokens"},
    {"lambda", 'f', "0.99", "0..1", "the kernel is taken at sign(t) lambda^|t|"},
    {"span", 's', "n-1", "n-1 n", "inducing points lie on [0,n-1] or on [0,n]"},
    {"zero", 's', "plus", "plus literal mean", "kernel at lag 0: at +1, at 0, or of -1 and +1"},
    {"parts", 's', "both", "both low-rank sparse", "W A W' and the taps, or one of them"},
    {"as_published", 'b', "0", NULL, "the W of the published code, with its three defects"},
    {"masking", 's', "interval", "interval token",
     "causal, on the CPU: multiply by A once per inducing point, or at each token (SKI, App. B)"},
    {0},
};

static int is(const tl_tno_problem *p, int option, const char *word)
{
    return strcmp(p->options[option].s, word) == 0;
}

static int64_t taps(const tl_tno_problem *p)
{
    return is(p, PARTS, "low-rank") ? 0 : p->options[TAPS].i;
}

static int64_t span(const tl_tno_problem *p) { return p->n - is(p, SPAN, "n-1"); }

/* The distance between inducing points. */
static double spacing(const tl_tno_problem *p)
{
    return (double)span(p) / (double)(p->options[INDUCING].i - 1);
}

/* ---- Problems -------------------------------------------------------------------------------- */

static const char *refusal(const tl_tno_problem *p)
{
    const tl_option_value *o = p->options;
    if (p->n > INT_MAX) return "it takes at most 2147483647 tokens";
    if (o[INDUCING].i > MAX_POINTS) return "it takes at most 16777216 inducing points";
    if (o[TAPS].i > MAX_POINTS) return "it takes at most 16777216 taps";
    if (o[LAMBDA].f <= 0) return "lambda 0 puts every lag at 0: take one between 0 and 1";
    if (is(p, PARTS, "sparse") && o[TAPS].i == 0) return "parts=sparse with taps=0 leaves no terms";
    if (!o[AS_PUBLISHED].i) return NULL;
    if (p->causal) return "as_published: the published code has no causal W A W'";
    if (is(p, INTERPOLATION, "cubic")) return "as_published: that code interpolates linearly";
    return NULL;
}

/* Warns unless lambda^h >= 1/e: otherwise the kernel can hardly tell its points apart, since all
** but lag 0 are close to 0. */
static void warn(const tl_tno_problem *p, char *why, size_t size)
{
    double lambda = p->options[LAMBDA].f, h = spacing(p), safe = exp(-1 / h);
    if (is(p, PARTS, "sparse") || h <= 0 || lambda >= safe) return;
    double digits = pow(10, ceil(-log10(1 - safe)) + 2); /* rounds up, to a safe value */
    (void)snprintf(why, size,
                   "ski: lambda %g is too small for inducing points h = %g apart: lambda^h is "
                   "%.2g, so the low-rank part sees little but lag 0; take lambda >= exp(-1/h) = "
                   "%.10g",
                   lambda, h, pow(lambda, h), ceil(safe * digits) / digits);
}

static int ski_accepts(const tl_tno_problem *p, char *why, size_t size)
{
    const char *reason = refusal(p);
    if (reason)
        (void)snprintf(why, size, "%s", reason);
    else
        warn(p, why, size);
    return reason == NULL;
}

/* The points are sign(t) lambda^|t|, for ascending lags t of A. With zero=mean, lag 0 has two
** points, -1 and +1. */
static int64_t ski_points(const tl_tno_problem *p, double *out)
{
    int64_t r = p->options[INDUCING].i, count = 0;
    double  log_lambda = log(p->options[LAMBDA].f), h = spacing(p);
    if (is(p, PARTS, "sparse")) { /* one point, whose value is not used */
        if (out) out[0] = 1;
        return 1;
    }
    if (!out) return (p->causal ? r : 2 * r - 1) + is(p, ZERO, "mean");
    for (int64_t l = p->causal ? 0 : 1 - r; l < r; l++) {
        double x = exp((double)(l < 0 ? -l : l) * h * log_lambda);
        if (l == 0 && is(p, ZERO, "mean")) out[count++] = -1;
        out[count++] = l == 0 && is(p, ZERO, "literal") ? 0 : l < 0 ? -x : x;
    }
    return count;
}

static int taps_shape(const tl_tno_problem *p, int64_t out_dims[6])
{
    out_dims[0] = taps(p); /* 0: an empty tensor */
    out_dims[1] = p->d;
    return 2;
}

static const tl_param params[] = {{"taps", "normal", taps_shape}, {0}};

/* ---- Plan ------------------------------------------------------------------------------------ */

static void ski_release(void *state)
{
    ski_plan *s = state;
    if (s->there) s->transforms->release(s->there);
    if (s->back) s->transforms->release(s->back);
    s->h->free(s->h, s->start);
    s->h->free(s->h, s->weight);
    s->h->free(s->h, s->scratch);
    s->h->free(s->h, s);
}

/* A causal operator does not use transforms: causal.c multiplies A by few non-zeros at a time. */
static tl_status plan_transforms(ski_plan *s)
{
    if (!s->low || s->causal || s->r <= DIRECT) return TL_OK;
    s->transforms = s->h->transforms(s->h);
    if (!s->transforms)
        return s->h->fail(s->h, TL_EBACKEND,
                          "ski: no loaded backend provides Fourier transforms, which more than %d "
                          "inducing points need; 'fft' does", DIRECT);
    s->size = good_size(2 * s->r - 1);
    tl_status st = s->transforms->plan(s->h, TL_R2C, s->size, &s->there);
    return st == TL_OK ? s->transforms->plan(s->h, TL_C2R, s->size, &s->back) : st;
}

/* Fills in the sizes. The groups of a tile are halved until each thread has two tiles or more, so
** that none is idle, or until one group is left. */
static void describe(ski_plan *s, const tl_tno_problem *p)
{
    s->n = p->n;
    s->d = p->d;
    s->causal = p->causal;
    s->taps = taps(p);
    s->origin = p->causal ? 0 : s->taps / 2;
    s->points = ski_points(p, NULL);
    s->low = !is(p, PARTS, "sparse");
    s->each_token = is(p, MASKING, "token");
    if (s->low) {
        s->r = p->options[INDUCING].i;
        s->zero = p->causal ? 0 : s->r - 1;
        s->lags = s->zero + s->r;
        s->mean = is(p, ZERO, "mean");
    }
    s->groups = GROUPS;
    while (s->groups > 1 && s->d < 2 * s->groups * LANES * s->h->threads) s->groups /= 2;
}

static tl_status plan_weights(ski_plan *s, const tl_tno_problem *p)
{
    ski_grid grid = {p->n, p->options[INDUCING].i, span(p), is(p, INTERPOLATION, "cubic"),
                     p->options[AS_PUBLISHED].i != 0, p->options[LAMBDA].f};
    s->width = ski_width(&grid);
    s->start = s->h->alloc(s->h, (size_t)s->n * sizeof *s->start);
    s->weight = s->h->alloc(s->h, (size_t)(s->n * s->width) * sizeof *s->weight);
    if (!s->start || !s->weight) return TL_ENOMEM;
    ski_weights(&grid, s->start, s->weight);
    return TL_OK;
}

static tl_status ski_make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    ski_plan *s = h->alloc(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    *s = (ski_plan){.h = h};
    describe(s, p);
    tl_status st = plan_transforms(s);
    if (st == TL_OK && s->low) st = plan_weights(s, p);
    if (st == TL_OK) {
        ski_layout(s);
        size_t bytes = (size_t)(s->each * tile_threads(ski_tiles(s), h->threads)) * sizeof(lanes);
        s->scratch = h->alloc(h, bytes);
        if (s->scratch)
            memset(s->scratch, 0, bytes); /* margins are read and stay zero */
        else
            st = TL_ENOMEM;
    }
    if (st == TL_OK)
        *out_plan = s;
    else
        ski_release(s);
    return st;
}

const tl_tno_backend tl_tno_backend_entry = {
    .abi = TL_TNO_ABI,
    .name = "ski",
    .summary = "taps and a kernel between inducing points, O(n + r log r)",
    .domain = "warp",
    .options = options,
    .params = params,
    .accepts = ski_accepts,
    .points = ski_points,
    .plan = ski_make,
    .forward = ski_forward,
    .backward = ski_backward,
    .dense = ski_dense,
    .release = ski_release,
};

/* tno_fft.cu - the backend fft on a card: T x by real transforms of length m >= 2n - 1, one per
** channel; y = C2R(R2C(t) R2C(x)) and its adjoints, with the products in one pass each. */
#include "lines.cuh"
#include "tno.cuh"

#define BUDGET ((int64_t)256 << 20) /* bytes of scratch for the sequences done at a time */

typedef struct plan {
    tl_ctx *ctx;
    int64_t n, d, zero, size, bins; /* zero: lags below 0 */
} plan;

/* The next number from n on without prime factors above 7, even. */
static int64_t good_size(int64_t n)
{
    static const int primes[] = {2, 3, 5, 7};
    for (int64_t m = n + (n & 1);; m += 2) {
        int64_t rest = m;
        for (int i = 0; i < 4; i++)
            while (rest % primes[i] == 0) rest /= primes[i];
        if (rest == 1) return m;
    }
}

/* ---- Products of spectra --------------------------------------------------------------------- */

/* z = x t or x conj(t), t the same for every sequence of x; z may be x */
static __global__ void times(const float2 *x, const float2 *t, int64_t period, float sign, float2 *z,
                             int64_t total)
{
    EACH(e, total)
    {
        float2 a = x[e], b = t[e % period];
        b.y *= sign;
        z[e] = make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
    }
}

/* sum = (begin ? 0 : sum) + sum over the sequences of d conj(x) */
static __global__ void correlate(const float2 *d, const float2 *x, int64_t count, int begin,
                                 float2 *sum, int64_t period)
{
    EACH(e, period)
    {
        float2 s = begin ? make_float2(0, 0) : sum[e];
        for (int64_t k = 0; k < count; k++) {
            float2 a = d[k * period + e], b = x[k * period + e];
            s.x += a.x * b.x + a.y * b.y;
            s.y += a.y * b.x - a.x * b.y;
        }
        sum[e] = s;
    }
}

/* ---- Scratch --------------------------------------------------------------------------------- */

typedef struct scratch {
    float  *lines;         /* [b,d,size] */
    float2 *x, *dy, *t, *sum; /* [b,d,bins], the last two [d,bins] */
    int64_t b;             /* sequences done at a time */
} scratch;

static void give_back(const plan *p, const scratch *s)
{
    card_free(p->ctx, s->lines);
    card_free(p->ctx, s->x);
    card_free(p->ctx, s->dy);
    card_free(p->ctx, s->t);
    card_free(p->ctx, s->sum);
}

static tl_status reserve(const plan *p, int64_t b, int backward, scratch *s)
{
    int64_t line = p->d * p->size * 4, spectrum = p->d * p->bins * 8;
    *s = scratch();
    s->b = BUDGET / (line + (1 + backward) * spectrum);
    s->b = s->b < 1 ? 1 : s->b > b ? b : s->b;
    tl_status st = card_alloc(p->ctx, (size_t)(s->b * line), (void **)&s->lines);
    if (st == TL_OK) st = card_alloc(p->ctx, (size_t)(s->b * spectrum), (void **)&s->x);
    if (st == TL_OK) st = card_alloc(p->ctx, (size_t)spectrum, (void **)&s->t);
    if (st == TL_OK && backward)
        st = card_alloc(p->ctx, (size_t)(s->b * spectrum), (void **)&s->dy);
    if (st == TL_OK && backward) st = card_alloc(p->ctx, (size_t)spectrum, (void **)&s->sum);
    if (st != TL_OK) give_back(p, s);
    return st;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

static tl_status clear(const plan *p, float *lines, int64_t b)
{
    cudaError_t st = cudaMemsetAsync(lines, 0, (size_t)(b * p->d * p->size) * 4,
                                     card_of(p->ctx)->stream);
    return st == cudaSuccess ? TL_OK : cuda_fail(p->ctx, st, "fft");
}

/* spectra of b sequences */
static tl_status there(const plan *p, const scratch *s, const float *x, int64_t b, float2 *to)
{
    tl_status st = clear(p, s->lines, b);
    if (st == TL_OK) st = card_to_lines(p->ctx, x, b, p->n, p->d, 0, p->size, s->lines);
    if (st == TL_OK) st = card_fft(p->ctx, TL_R2C, p->size, b * p->d, s->lines, (float *)to);
    return st;
}

static tl_status back(const plan *p, const scratch *s, float2 *from, int64_t b, float *y)
{
    tl_status st = card_fft(p->ctx, TL_C2R, p->size, b * p->d, (float *)from, s->lines);
    if (st == TL_OK)
        st = card_from_lines(p->ctx, s->lines, b, p->n, p->d, 0, p->size, 1.0f / (float)p->size, y);
    return st;
}

/* The coefficients: rows are the lags -zero .. n-1, and lag k is in place k mod size. */
static tl_status spectrum(const plan *p, const scratch *s, const float *coef)
{
    tl_status st = clear(p, s->lines, 1);
    if (st == TL_OK)
        st = card_to_lines(p->ctx, coef, 1, p->zero + p->n, p->d, -p->zero, p->size, s->lines);
    if (st == TL_OK) st = card_fft(p->ctx, TL_R2C, p->size, p->d, s->lines, (float *)s->t);
    return st;
}

static tl_status multiply(const plan *p, const float2 *x, const float2 *t, float sign, int64_t b,
                          float2 *z)
{
    tl_ctx *ctx = p->ctx;
    int64_t period = p->d * p->bins;
    LAUNCH(times, blocks_for(b * period), THREADS, x, t, period, sign, z, b * period);
    return launched(ctx, "fft");
}

/* ---- The backend ----------------------------------------------------------------------------- */

static tl_status forward(void *state, const tl_tno_args *a)
{
    const plan *p = (const plan *)state;
    scratch     s;
    int64_t     row = p->n * p->d;
    if (a->b == 0) return TL_OK;
    tl_status st = reserve(p, a->b, 0, &s);
    if (st != TL_OK) return st;
    st = spectrum(p, &s, a->coef);
    for (int64_t at = 0; at < a->b && st == TL_OK; at += s.b) {
        int64_t b = a->b - at < s.b ? a->b - at : s.b;
        st = there(p, &s, a->x + at * row, b, s.x);
        if (st == TL_OK) st = multiply(p, s.x, s.t, 1, b, s.x);
        if (st == TL_OK) st = back(p, &s, s.x, b, a->y + at * row);
    }
    give_back(p, &s);
    return st;
}

/* dx = T^t dy of b sequences, whose spectra are in s->dy and are spoilt; dt before that. */
static tl_status adjoints(const plan *p, const scratch *s, const tl_tno_args *a, int64_t at,
                          int64_t b)
{
    tl_ctx   *ctx = p->ctx;
    int64_t   row = p->n * p->d, period = p->d * p->bins;
    tl_status st = there(p, s, a->dy + at * row, b, s->dy);
    if (st == TL_OK && a->dcoef) st = there(p, s, a->x + at * row, b, s->x);
    if (st == TL_OK && a->dcoef) {
        LAUNCH(correlate, blocks_for(period), THREADS, s->dy, s->x, b, at == 0, s->sum, period);
        st = launched(ctx, "fft");
    }
    if (st == TL_OK && a->dx) st = multiply(p, s->dy, s->t, -1, b, s->dy);
    if (st == TL_OK && a->dx) st = back(p, s, s->dy, b, a->dx + at * row);
    return st;
}

static tl_status backward(void *state, const tl_tno_args *a)
{
    const plan *p = (const plan *)state;
    scratch     s;
    int64_t     lags = p->zero + p->n;
    if (a->b == 0) {
        if (!a->dcoef) return TL_OK;
        cudaError_t none = cudaMemsetAsync(a->dcoef, 0, (size_t)(lags * p->d) * 4,
                                           card_of(p->ctx)->stream);
        return none == cudaSuccess ? TL_OK : cuda_fail(p->ctx, none, "fft");
    }
    tl_status st = reserve(p, a->b, 1, &s);
    if (st != TL_OK) return st;
    if (a->dx) st = spectrum(p, &s, a->coef);
    for (int64_t at = 0; at < a->b && st == TL_OK; at += s.b)
        st = adjoints(p, &s, a, at, a->b - at < s.b ? a->b - at : s.b);
    if (st == TL_OK && a->dcoef) {
        st = card_fft(p->ctx, TL_C2R, p->size, p->d, (float *)s.sum, s.lines);
        if (st == TL_OK)
            st = card_from_lines(p->ctx, s.lines, 1, lags, p->d, -p->zero, p->size,
                                 1.0f / (float)p->size, a->dcoef);
    }
    give_back(p, &s);
    return st;
}

static tl_status make(const tl_host *h, const tl_tno_problem *problem, void **out_plan)
{
    plan *p = (plan *)card_plan(h, sizeof *p);
    if (!p) return TL_ENOMEM;
    *p = plan{card_ctx(h), problem->n, problem->d, problem->causal ? 0 : problem->n - 1, 0, 0};
    p->size = good_size(2 * p->n - 1);
    p->bins = p->size / 2 + 1;
    *out_plan = p;
    return TL_OK;
}

const card_form card_fft_form = {"fft", {make, forward, backward, card_plan_free}};

/* etsc.c - turns the kernel of a causal Toeplitz operator into a recurrence: a sum of modes (ETSC,
** of "Accelerating Toeplitz Neural Network", EMNLP 2023).
**
** The kernel is g^k t_k for the lags k < n, g the decay. With t_k = 0 up to a length m >= n, and
**   b_j = 1/m sum over k of t_k e^(2 pi i j k / m),   lambda_j = g e^(-2 pi i j / m),
** the impulse response of the modes u_j <- lambda_j u_j + b_j x_i is
**   sum over j of b_j lambda_j^k = g^k t_(k mod m),
** which is the kernel for k < n and then repeats for ever, smaller by a factor g^m each time. t is
** real, so mode m - j is the conjugate of mode j and half of the modes suffice: y is the sum of the
** real parts, where those of 0 < j < m/2 count twice. The stored b contains that factor 2.
**
** Published form: m = n + 1 and t_n = -(t_0 + ... + t_(n-1)), which makes b_0 zero, so that mode 0
** is left out. At lag n the response is -g^n sum t, where the kernel is 0.
**
** Exact form: lambda_j^m = g^m for all j, so the error from lag m on is the response to the same
** impulse m steps later, times g^m. For the input x_i - g^m x_(i-m) the response is the kernel and
** nothing after it. This needs the last m inputs, unless g^m is negligible in float32.
** - Any m >= n serves. The code takes the least that is even, for one more real mode, and has no
**   prime factor above 7, for the transform.
** - Rounding: with g = 1 no rounding error would ever decay, nor would the part of x_i that a
**   rounded lambda_j fails to cancel by x_(i-m). Since t_k g^k = (t_k (g/r)^k) r^k, the same kernel
**   has modes of any other decay r: r = min(g, 2^(-1/m)) at most doubles the coefficients and
**   halves old errors every m steps. Measured with g = 1, m = 512 and positive t and x: after
**   512 m steps the error is 2.5e-5 of the largest y with r = 1, and growing, and with this r 2e-6
**   at any time.
** - e^(-2 pi i j / m) is stored as a float32 and its rounding error. Without the latter the phase
**   would be off by k 2^-25 at lag k, ten times all other errors together.
** */
#include <math.h>

#include "base/memory.h"
#include "engine/storage.h"
#include "tno/recurrent.h"

#define PART  32   /* modes whose sum is added to the total at once */
#define FADED 1e-9 /* r^m below which the response from lag m on vanishes in float32 */

typedef struct etsc {
    tl_lane_state      s;
    tl_recurrence_kind kind;
    int64_t            m;     /* period */
    int64_t            first; /* number of the first mode in use */
    int64_t            count; /* of modes */
    /* In the memory are u_j [b, lanes, 2 modes, LANE], and from here on, unless it is 0, the last
    ** inputs [b, lanes, m, LANE]. */
    int64_t inputs;
} etsc;

/* In the kernel are b_j [lanes, 2 modes, LANE], real and imaginary; then r and r^m
** [lanes, 2, LANE]; then e^(-2 pi i j / m) and the rounding error of it [modes, 4]. */
static float *etsc_b(const etsc *s) { return F32(s->s.kernel); }
static float *etsc_decay(const etsc *s)
{
    return etsc_b(s) + tl_lanes(s->s.d) * LANE * 2 * s->count;
}
static float *etsc_turn(const etsc *s) { return etsc_decay(s) + tl_lanes(s->s.d) * LANE * 2; }

/* ---- Steps ----------------------------------------------------------------------------------- */

/* u_j <- lambda_j u_j + b_j x for a few modes; y += the real parts of u_j. */
static inline void turn(const float *restrict w, const float *restrict b, float *restrict u,
                        const float *restrict decay, const float *restrict x, int64_t count,
                        float *restrict y)
{
    float sum[LANE] = {0};
    for (int64_t j = 0; j < count; j++, w += 4, b += 2 * LANE, u += 2 * LANE)
        for (int e = 0; e < LANE; e++) {
            float re = decay[e] * u[e], im = decay[e] * u[LANE + e];
            float low_re = w[2] * re - w[3] * im + b[e] * x[e];
            float low_im = w[2] * im + w[3] * re + b[LANE + e] * x[e];
            u[e] = w[0] * re + (low_re - w[1] * im); /* added last, low_re would be lost */
            u[LANE + e] = w[0] * im + (low_im + w[1] * re);
            sum[e] += u[e];
        }
    for (int e = 0; e < LANE; e++) y[e] += sum[e];
}

static void etsc_body(const void *state, int64_t i, int64_t at, int64_t seen, float x[LANE],
                      float y[LANE])
{
    const etsc  *s = state;
    int64_t      l = i % tl_lanes(s->s.d), rows = 2 * s->count;
    const float *b = etsc_b(s) + l * rows * LANE, *decay = etsc_decay(s) + l * 2 * LANE;
    float       *u = F32(s->s.memory) + i * rows * LANE;
    float       *row = F32(s->s.memory) + s->inputs + (s->inputs ? i * s->m + at : 0) * LANE;
    (void)seen;
    for (int e = 0; e < LANE; e++) y[e] = 0;
    for (int e = 0; s->inputs && e < LANE; e++) {
        float old = row[e];
        row[e] = x[e];
        x[e] -= decay[LANE + e] * old;
    }
    for (int64_t j = 0; j < s->count; j += PART)
        turn(etsc_turn(s) + 4 * j, b + 2 * j * LANE, u + 2 * j * LANE, decay, x,
             s->count - j < PART ? s->count - j : PART, y);
}

static tl_status etsc_step(void *state, const float *x, float *y, int64_t n)
{
    const etsc *s = state;
    return tl_lanes_step(state, x, y, n, s->m, 2 * s->count * LANE, etsc_body);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void fill_turn(etsc *s)
{
    for (int64_t j = 0; j < s->count; j++) {
        double angle = 6.283185307179586477 * (double)(s->first + j) / (double)s->m;
        double re = cos(angle), im = -sin(angle);
        if (2 * (s->first + j) == s->m) im = 0; /* a real mode, like mode 0 */
        float *w = etsc_turn(s) + 4 * j;
        w[0] = (float)re;
        w[1] = (float)im;
        w[2] = (float)(re - (double)w[0]);
        w[3] = (float)(im - (double)w[1]);
    }
}

/* Makes the state of b sequences of d channels with a period of m, whose b_j are 0. decay [d] */
static tl_status etsc_new(tl_ctx *ctx, tl_recurrence_kind kind, int64_t b, int64_t d, int64_t m,
                          const float *decay, etsc **out_s)
{
    int64_t first = kind == TL_RECURRENCE_ETSC_PUBLISHED, count = m / 2 + 1 - first;
    int64_t lane = tl_lanes(d) * LANE, inputs = 0;
    void   *state = NULL;
    for (int64_t c = 0; c < d && kind == TL_RECURRENCE_ETSC_EXACT; c++)
        if (pow((double)decay[c], (double)m) > FADED) inputs = b * lane * 2 * count;
    tl_status st = tl_lanes_new(ctx, sizeof(etsc), b, d, lane * (2 * count + 2) + 4 * count,
                                b * lane * (2 * count + (inputs ? m : 0)), &state);
    if (st != TL_OK) return st;
    etsc *s = *out_s = state;
    s->kind = kind;
    s->m = m;
    s->first = first;
    s->count = count;
    s->inputs = inputs;
    for (int64_t c = 0; c < d; c++) {
        etsc_decay(s)[tl_lane_at(2, 0, c)] = decay[c];
        etsc_decay(s)[tl_lane_at(2, 1, c)] = (float)pow((double)decay[c], (double)m);
    }
    fill_turn(s);
    return TL_OK;
}

static void etsc_sizes(const void *state, tl_recurrence_size *out_size)
{
    const etsc *s = state;
    tl_lanes_sizes(state, out_size);
    out_size->modes = s->count;
    out_size->period = s->m;
}

/* ---- From a kernel --------------------------------------------------------------------------- */

static int64_t smooth_length(int64_t n)
{
    static const int64_t primes[] = {2, 3, 5, 7};
    for (int64_t m = n + (n & 1);; m += 2) {
        int64_t rest = m;
        for (int i = 0; i < 4; i++)
            while (rest % primes[i] == 0) rest /= primes[i];
        if (rest == 1) return m;
    }
}

/* The decay of the modes of channel c. */
static float mode_decay(const tl_tensor *gamma, tl_recurrence_kind kind, int64_t m, int64_t c)
{
    float g = tl_gamma_of(gamma, c), most = (float)exp2(-1.0 / (double)m);
    return kind == TL_RECURRENCE_ETSC_EXACT && g > most ? most : g;
}

/* to [m,d] = t_k (g/r)^k, followed by the additional coefficient of the published form. */
static void spread(const etsc *r, const tl_tensor *t, const tl_tensor *gamma, float *to)
{
    int64_t lags = t->dims[0];
    for (int64_t c = 0; c < r->s.d; c++) {
        double scale = 1, sum = 0;
        double ratio = (double)tl_gamma_of(gamma, c) / (double)etsc_decay(r)[tl_lane_at(2, 0, c)];
        for (int64_t k = 0; k < lags; k++, scale *= ratio) {
            to[k * r->s.d + c] = (float)(F32(t)[k * r->s.d + c] * scale);
            sum += (double)F32(t)[k * r->s.d + c];
        }
        if (r->kind == TL_RECURRENCE_ETSC_PUBLISHED) to[lags * r->s.d + c] = (float)-sum;
    }
}

/* Fills b_j from b [modes,d,2], whose first row is mode `first`, times scale; a sign of -1
** conjugates b. */
static void pack_modes(etsc *s, const float *b, double scale, double sign)
{
    for (int64_t j = 0; j < s->count; j++) {
        int64_t number = s->first + j;
        int     real = number == 0 || 2 * number == s->m;
        for (int64_t c = 0; c < s->s.d; c++) {
            const float *from = b + (j * s->s.d + c) * 2;
            float       *to = etsc_b(s) + tl_lane_at(2 * s->count, 2 * j, c);
            to[0] = (float)(from[0] * scale * (real ? 1 : 2));
            to[LANE] = real ? 0 : (float)(from[1] * scale * sign * 2);
        }
    }
}

/* Transforms the coefficients. The tape records nothing, since `padded` requires no gradient. */
static tl_status find_modes(etsc *s, const tl_tensor *t, const tl_tensor *gamma)
{
    int64_t    dims[] = {s->m, s->s.d};
    tl_tensor *padded = NULL, *bins = NULL;
    tl_status  st = tl_tensor_new(s->s.ctx, TL_F32, 2, dims, &padded);
    if (st == TL_OK) st = tl_to_cpu(padded);
    if (st == TL_OK) {
        spread(s, t, gamma, F32(padded));
        st = tl_rfft(padded, 0, &bins);
    }
    if (st == TL_OK) st = tl_to_cpu(bins);
    if (st == TL_OK) pack_modes(s, F32(bins) + s->first * s->s.d * 2, 1.0 / (double)s->m, -1);
    tl_tensor_free(padded);
    tl_tensor_free(bins);
    return st;
}

static tl_status etsc_create(const tl_tensor *t, const tl_tensor *gamma, tl_recurrence_kind kind,
                             int64_t b, int64_t positions, void **out_state)
{
    etsc   *s = NULL;
    int64_t d = t->dims[1];
    int64_t m = kind == TL_RECURRENCE_ETSC_EXACT ? smooth_length(t->dims[0]) : t->dims[0] + 1;
    float  *decay = tl_alloc(t->ctx, (size_t)d * sizeof *decay);
    (void)positions;
    if (!decay) return TL_ENOMEM;
    for (int64_t c = 0; c < d; c++) decay[c] = mode_decay(gamma, kind, m, c);
    tl_status st = etsc_new(t->ctx, kind, b, d, m, decay, &s);
    tl_release(t->ctx, decay);
    *out_state = s; /* the caller frees it, also on failure */
    return st == TL_OK ? find_modes(s, t, gamma) : st;
}

/* ---- Modes as tensors ------------------------------------------------------------------------ */

static tl_status etsc_modes(const void *state, tl_tensor **out_b, tl_tensor **out_lambda,
                            tl_tensor **out_decay)
{
    const etsc *s = state;
    int64_t     dims[] = {s->count, s->s.d, 2};
    tl_tensor  *b = NULL, *lambda = NULL, *decay = NULL;
    tl_status   st = tl_to_cpu(s->s.kernel);
    if (st == TL_OK) st = tl_tensor_new_host(s->s.ctx, TL_F32, 3, dims, &b);
    if (st == TL_OK) st = tl_tensor_new_host(s->s.ctx, TL_F32, 3, dims, &lambda);
    if (st == TL_OK) st = tl_tensor_new_host(s->s.ctx, TL_F32, 1, &s->s.d, &decay);
    if (st != TL_OK) {
        tl_tensor_free(b);
        tl_tensor_free(lambda);
        return st;
    }
    for (int64_t i = 0; i < dims[0] * s->s.d; i++) {
        int64_t      j = i / s->s.d, c = i % s->s.d, number = s->first + j;
        const float *from = etsc_b(s) + tl_lane_at(2 * s->count, 2 * j, c);
        float        half = number == 0 || 2 * number == s->m ? 1 : 0.5f;
        F32(decay)[c] = etsc_decay(s)[tl_lane_at(2, 0, c)];
        for (int e = 0; e < 2; e++) {
            F32(b)[2 * i + e] = half * from[e * LANE];
            F32(lambda)[2 * i + e] = F32(decay)[c] * etsc_turn(s)[4 * j + e];
        }
    }
    *out_b = b;
    *out_lambda = lambda;
    *out_decay = decay;
    return TL_OK;
}

tl_status tl_etsc_from_modes(const tl_tensor *b, const tl_tensor *decay, tl_recurrence_kind kind,
                             int64_t period, int64_t sequences, void **out_state)
{
    etsc     *s = NULL;
    tl_status st = etsc_new(b->ctx, kind, sequences, b->dims[1], period, F32(decay), &s);
    if (st == TL_OK) pack_modes(s, F32(b), 1, 1);
    *out_state = s;
    return st;
}

static void etsc_job(const void *state, tl_lane_job *out)
{
    const etsc *s = state;
    out->rows = s->m;
    out->modes = s->count;
    out->inputs = s->inputs;
}

const tl_recurrence_form tl_etsc_form = {
    "ETSC", etsc_create, etsc_step, tl_lanes_reset, tl_lanes_fork, tl_lanes_release, etsc_sizes,
    etsc_modes, etsc_job};

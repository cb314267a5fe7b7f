/* etsc.c - turns the kernel of a causal Toeplitz operator into a recurrence: a sum of modes (ETSC,
** of "Accelerating Toeplitz Neural Network", EMNLP 2023), or a ring buffer of inputs.
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
**
** Arrays are [.., lanes, rows, LANE]: LANE channels form a lane, and each lane is a task for a
** thread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engine/storage.h"
#include "tno/recurrent.h"
#include "tno/tno.h"

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

static float gamma_of(const tl_tensor *gamma, int64_t c)
{
    if (!gamma) return 1;
    return F32(gamma)[gamma->len > 1 ? c : 0];
}

/* The decay of the modes of channel c. */
static float mode_decay(const tl_tensor *gamma, tl_recurrence_kind kind, int64_t m, int64_t c)
{
    float g = gamma_of(gamma, c), most = (float)exp2(-1.0 / (double)m);
    return kind == TL_RECURRENCE_ETSC_EXACT && g > most ? most : g;
}

/* to [m,d] = t_k (g/r)^k, followed by the additional coefficient of the published form. */
static void spread(const tl_recurrence *r, const tl_tensor *t, const tl_tensor *gamma, float *to)
{
    for (int64_t c = 0; c < r->d; c++) {
        double scale = 1, sum = 0;
        double ratio = (double)gamma_of(gamma, c) / (double)r->decay[tl_lane_at(2, 0, c)];
        for (int64_t k = 0; k < r->lags; k++, scale *= ratio) {
            to[k * r->d + c] = (float)(F32(t)[k * r->d + c] * scale);
            sum += (double)F32(t)[k * r->d + c];
        }
        if (r->kind == TL_RECURRENCE_ETSC_PUBLISHED) to[r->lags * r->d + c] = (float)-sum;
    }
}

/* Fills the kernel from b [modes,d,2], whose first row is mode `first`, times scale; a sign of -1
** conjugates b. */
static void pack_modes(tl_recurrence *r, const float *b, double scale, double sign)
{
    for (int64_t j = 0; j < r->rows / 2; j++) {
        int64_t number = r->first + j;
        int     real = number == 0 || 2 * number == r->m;
        for (int64_t c = 0; c < r->d; c++) {
            const float *from = b + (j * r->d + c) * 2;
            float       *to = r->kernel + tl_lane_at(r->rows, 2 * j, c);
            to[0] = (float)(from[0] * scale * (real ? 1 : 2));
            to[LANE] = real ? 0 : (float)(from[1] * scale * sign * 2);
        }
    }
}

/* Transforms the coefficients. The tape records nothing, since `padded` wants no gradient. */
static tl_status find_modes(tl_recurrence *r, const tl_tensor *t, const tl_tensor *gamma)
{
    int64_t    dims[] = {r->m, r->d};
    tl_tensor *padded = NULL, *bins = NULL;
    tl_status  st = tl_tensor_new(r->ctx, TL_F32, 2, dims, &padded);
    if (st == TL_OK) st = tl_bring(padded);
    if (st == TL_OK) {
        spread(r, t, gamma, F32(padded));
        st = tl_rfft(padded, 0, &bins);
    }
    if (st == TL_OK) st = tl_bring(bins);
    if (st == TL_OK) pack_modes(r, F32(bins) + r->first * r->d * 2, 1.0 / (double)r->m, -1);
    tl_tensor_free(padded);
    tl_tensor_free(bins);
    return st;
}

/* to = gamma^k t_k, as [lags,d], or in lanes for the ring. */
static void decayed_kernel(const tl_tensor *t, const tl_tensor *gamma, int lanes, float *to)
{
    int64_t lags = t->dims[0], d = t->dims[1];
    for (int64_t c = 0; c < d; c++) {
        double scale = 1, g = (double)gamma_of(gamma, c);
        for (int64_t k = 0; k < lags; k++, scale *= g)
            to[lanes ? tl_lane_at(lags, k, c) : k * d + c] = (float)(F32(t)[k * d + c] * scale);
    }
}

static tl_status make_relaxed(tl_tensor *t, tl_tensor *gamma, int64_t b, int64_t positions,
                              tl_recurrence **out_r)
{
    tl_ctx        *ctx = t->ctx;
    int64_t        lags = t->dims[0], d = t->dims[1];
    tl_recurrence *r = calloc(1, sizeof *r);
    if (!r) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    ctx->refs++;
    *r = (tl_recurrence){.ctx = ctx, .kind = TL_RECURRENCE_RELAXED, .b = b, .d = d, .lags = lags};
    float    *kernel = tl_alloc(ctx, (size_t)t->len * sizeof *kernel);
    tl_status st = kernel ? TL_OK : TL_ENOMEM;
    if (st == TL_OK) decayed_kernel(t, gamma, 0, kernel);
    if (st == TL_OK) st = tl_relaxed_new(ctx, kernel, lags, d, b, positions, &r->relaxed);
    tl_release(ctx, kernel);
    if (st == TL_OK)
        *out_r = r;
    else
        tl_recurrence_free(r);
    return st;
}

static tl_status check_kernel(const tl_tensor *t, const tl_tensor *gamma)
{
    tl_ctx *ctx = t->ctx;
    if (t->type != TL_F32 || (gamma && gamma->type != TL_F32))
        return tl_fail(ctx, TL_ETYPE, "recurrence: t and gamma need to be float32");
    if (t->ndim != 2 || t->len < 1)
        return tl_fail(ctx, TL_ESHAPE, "recurrence: t is %s, not [lags,d]", SHAPE(t));
    if (gamma && gamma->len != 1 && (gamma->ndim != 1 || gamma->len != t->dims[1]))
        return tl_fail(ctx, TL_ESHAPE, "recurrence: gamma is %s, not one number and not [%lld]",
                       SHAPE(gamma), (long long)t->dims[1]);
    tl_status st = tl_bring(t);
    if (st == TL_OK && gamma) st = tl_bring(gamma);
    if (st == TL_OK && gamma) st = tl_decay_range("recurrence", "gamma", gamma, 0);
    return st;
}

tl_status tl_recurrence_new_relaxed(tl_tensor *t, tl_tensor *gamma, int64_t b, int64_t positions,
                                    tl_recurrence **out_r)
{
    tl_status st = check_kernel(t, gamma);
    if (st == TL_OK)
        st = tl_recurrence_check(t->ctx, TL_RECURRENCE_RELAXED, b, t->dims[1], t->dims[0]);
    if (st == TL_OK && positions < 0)
        st = tl_fail(t->ctx, TL_EINVAL, "recurrence: %lld positions", (long long)positions);
    return st == TL_OK ? make_relaxed(t, gamma, b, positions, out_r) : st;
}

tl_status tl_recurrence_new(tl_tensor *t, tl_tensor *gamma, tl_recurrence_kind kind, int64_t b,
                            tl_recurrence **out_r)
{
    tl_recurrence *r = NULL;
    tl_ctx        *ctx = t->ctx;
    if (kind == TL_RECURRENCE_RELAXED) return tl_recurrence_new_relaxed(t, gamma, b, 0, out_r);
    tl_status st = check_kernel(t, gamma);
    if (st == TL_OK) st = tl_recurrence_check(ctx, kind, b, t->dims[1], t->dims[0]);
    if (st != TL_OK) return st;
    int64_t lags = t->dims[0], d = t->dims[1], m = lags;
    if (kind == TL_RECURRENCE_ETSC_PUBLISHED) m = lags + 1;
    if (kind == TL_RECURRENCE_ETSC_EXACT) m = smooth_length(lags);
    float *decay = tl_alloc(ctx, (size_t)d * sizeof *decay);
    if (!decay) return TL_ENOMEM;
    for (int64_t c = 0; c < d; c++) decay[c] = mode_decay(gamma, kind, m, c);
    st = tl_recurrence_make(ctx, kind, b, d, lags, m, decay, &r);
    tl_release(ctx, decay);
    if (st != TL_OK) return st;
    if (kind == TL_RECURRENCE_RING)
        decayed_kernel(t, gamma, 1, r->kernel);
    else
        st = find_modes(r, t, gamma);
    if (st == TL_OK)
        *out_r = r;
    else
        tl_recurrence_free(r);
    return st;
}

/* ---- Modes as tensors ------------------------------------------------------------------------ */

tl_status tl_recurrence_modes(const tl_recurrence *r, tl_tensor **out_b, tl_tensor **out_lambda,
                              tl_tensor **out_decay)
{
    int64_t    dims[] = {r->rows / 2, r->d, 2};
    tl_tensor *b = NULL, *lambda = NULL, *decay = NULL;
    if (!r->modes)
        return tl_fail(r->ctx, TL_EINVAL, "recurrence: %s has no modes",
                       r->kind == TL_RECURRENCE_RING ? "a ring" : "the relaxed form");
    tl_status st = tl_tensor_new_host(r->ctx, TL_F32, 3, dims, &b);
    if (st == TL_OK) st = tl_tensor_new_host(r->ctx, TL_F32, 3, dims, &lambda);
    if (st == TL_OK) st = tl_tensor_new_host(r->ctx, TL_F32, 1, &r->d, &decay);
    if (st != TL_OK) {
        tl_tensor_free(b);
        tl_tensor_free(lambda);
        return st;
    }
    for (int64_t i = 0; i < dims[0] * r->d; i++) {
        int64_t      j = i / r->d, c = i % r->d, number = r->first + j;
        const float *from = r->kernel + tl_lane_at(r->rows, 2 * j, c);
        float        half = number == 0 || 2 * number == r->m ? 1 : 0.5f;
        F32(decay)[c] = r->decay[tl_lane_at(2, 0, c)];
        for (int e = 0; e < 2; e++) {
            F32(b)[2 * i + e] = half * from[e * LANE];
            F32(lambda)[2 * i + e] = F32(decay)[c] * r->turn[4 * j + e];
        }
    }
    *out_b = b;
    *out_lambda = lambda;
    *out_decay = decay;
    return TL_OK;
}

tl_status tl_recurrence_from_modes(tl_tensor *b, tl_tensor *decay, tl_recurrence_kind kind,
                                   int64_t lags, int64_t period, int64_t sequences,
                                   tl_recurrence **out_r)
{
    tl_recurrence *r = NULL;
    tl_ctx        *ctx = b->ctx;
    int64_t        first = kind == TL_RECURRENCE_ETSC_PUBLISHED;
    if (b->type != TL_F32 || decay->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "recurrence: b and decay need to be float32");
    if (b->ndim != 3 || b->len < 1 || b->dims[2] != 2 || decay->ndim != 1 ||
        decay->len != b->dims[1])
        return tl_fail(ctx, TL_ESHAPE, "recurrence: b is %s and decay %s, not [modes,d,2] and [d]",
                       SHAPE(b), SHAPE(decay));
    tl_status st = tl_recurrence_check(ctx, kind, sequences, b->dims[1], 2 * b->dims[0]);
    int etsc = kind == TL_RECURRENCE_ETSC_EXACT || kind == TL_RECURRENCE_ETSC_PUBLISHED;
    if (st == TL_OK && (!etsc || lags < 1 || period < lags || period - first < lags ||
                        period / 2 + 1 - first != b->dims[0]))
        st = tl_fail(ctx, TL_EINVAL, "recurrence: %lld modes with a period of %lld for %lld lags",
                     (long long)b->dims[0], (long long)period, (long long)lags);
    if (st == TL_OK) st = tl_bring(b);
    if (st == TL_OK) st = tl_bring(decay);
    if (st == TL_OK) st = tl_decay_range("recurrence", "decay", decay, 0);
    if (st == TL_OK)
        st = tl_recurrence_make(ctx, kind, sequences, b->dims[1], lags, period, F32(decay), &r);
    if (st != TL_OK) return st;
    pack_modes(r, F32(b), 1, 1);
    *out_r = r;
    return TL_OK;
}

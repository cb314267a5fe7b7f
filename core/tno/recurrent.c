/* recurrent.c - applies a causal Toeplitz operator one position at a time, from a ring buffer of
** the last inputs or from modes, which etsc.c derives. What is relaxed is in relaxed.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "tno/recurrent.h"
#include "tno/tno.h"

#define PART  32        /* modes whose sum is added to the total at once */
#define LAGS  256       /* lags whose sum is added to the total at once */
#define GRAIN (1 << 19) /* products that justify another thread: a tenth of a millisecond */
#define FADED 1e-9      /* r^m below which the response from lag m on vanishes in float32 */

/* ---- Steps ----------------------------------------------------------------------------------- */

typedef struct job {
    const tl_recurrence *r;
    const float         *x;
    float               *y;
    int64_t              n;
} job;

/* sum[e] += the sum of t[k] x[-k] over k < count, for a lane of channels. */
static inline void dot(const float *t, const float *x, int64_t count, float sum[LANE])
{
    float   s0[LANE] = {0}, s1[LANE] = {0}, s2[LANE] = {0}, s3[LANE] = {0};
    int64_t k = 0;
    for (; k + 4 <= count; k += 4, t += 4 * LANE, x -= 4 * LANE)
        for (int e = 0; e < LANE; e++) {
            s0[e] += t[e] * x[e];
            s1[e] += t[LANE + e] * x[e - LANE];
            s2[e] += t[2 * LANE + e] * x[e - 2 * LANE];
            s3[e] += t[3 * LANE + e] * x[e - 3 * LANE];
        }
    for (; k < count; k++, t += LANE, x -= LANE)
        for (int e = 0; e < LANE; e++) s0[e] += t[e] * x[e];
    for (int e = 0; e < LANE; e++) sum[e] += (s0[e] + s1[e]) + (s2[e] + s3[e]);
}

/* As dot, in parts: one sum over thousands of lags would lose digits. */
static void dot_parts(const float *t, const float *x, int64_t count, float sum[LANE])
{
    for (; count > LAGS; count -= LAGS, t += LAGS * LANE, x -= LAGS * LANE) dot(t, x, LAGS, sum);
    dot(t, x, count, sum);
}

/* y = the kernel times the `seen` inputs in the ring, of which the newest is in row `at`. */
static void ring(const float *kernel, const float *inputs, int64_t m, int64_t at, int64_t seen,
                 float y[LANE])
{
    int64_t before = seen < at + 1 ? seen : at + 1; /* rows at, at-1, .. 0 and then m-1, .. */
    for (int e = 0; e < LANE; e++) y[e] = 0;
    dot_parts(kernel, inputs + at * LANE, before, y);
    dot_parts(kernel + before * LANE, inputs + (m - 1) * LANE, seen - before, y);
}

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

static void modes(const tl_recurrence *r, const float *b, float *u, const float *decay,
                  const float x[LANE], float y[LANE])
{
    int64_t count = r->rows / 2;
    for (int e = 0; e < LANE; e++) y[e] = 0;
    for (int64_t j = 0; j < count; j += PART)
        turn(r->turn + 4 * j, b + 2 * j * LANE, u + 2 * j * LANE, decay, x,
             count - j < PART ? count - j : PART, y);
}

/* Computes all positions of lanes begin..end-1, which are counted through all sequences. */
static void lanes(void *user, int64_t begin, int64_t end, int thread)
{
    const job           *j = user;
    const tl_recurrence *r = j->r;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t      l = i % r->lanes, at = r->at, seen = r->seen;
        int64_t      width = r->d - l * LANE < LANE ? r->d - l * LANE : LANE;
        const float *kernel = r->kernel + l * r->rows * LANE, *decay = r->decay + l * 2 * LANE;
        float       *u = r->modes ? r->modes + i * r->rows * LANE : NULL;
        float       *inputs = r->inputs ? r->inputs + i * r->m * LANE : NULL;
        for (int64_t p = 0; p < j->n; p++) {
            int64_t offset = (i / r->lanes * j->n + p) * r->d + l * LANE;
            float   x[LANE] = {0}, y[LANE];
            memcpy(x, j->x + offset, (size_t)width * sizeof *x);
            float *row = inputs ? inputs + at * LANE : NULL;
            if (row && u) {
                for (int e = 0; e < LANE; e++) {
                    float old = row[e];
                    row[e] = x[e];
                    x[e] -= decay[LANE + e] * old;
                }
            } else if (row) {
                memcpy(row, x, sizeof x);
            }
            if (seen < r->m) seen++;
            if (u)
                modes(r, kernel, u, decay, x, y);
            else
                ring(kernel, inputs, r->m, at, seen, y);
            memcpy(j->y + offset, y, (size_t)width * sizeof *y);
            at = at + 1 < r->m ? at + 1 : 0;
        }
    }
}

/* p: the recurrence   in[0] x   out[0] y */
static tl_status step_kernel(tl_ctx *ctx, const tl_args *a)
{
    tl_recurrence *r = a->p;
    int64_t        n = a->in[0]->ndim == 3 ? a->in[0]->dims[1] : 1;
    job            j = {r, F32(a->in[0]), F32(a->out[0]), n};
    if (r->relaxed) return tl_relaxed_step(r->relaxed, j.x, j.y, n);
    tl_parallel(ctx, r->b * r->lanes, GRAIN / ((n + 1) * r->rows * LANE) + 1, lanes, &j);
    r->at = (r->at + n) % r->m;
    r->seen = n < r->m - r->seen ? r->seen + n : r->m;
    return TL_OK;
}

const tl_kernel_row tl_cpu_recurrence[] = {{TL_OP_recurrence, step_kernel}, {0}};

tl_status tl_recurrence_step(tl_recurrence *r, tl_tensor *x, tl_tensor *y)
{
    tl_args a = {.in = {x}, .out = {y}, .p = r};
    if (x->type != TL_F32 || y->type != TL_F32)
        return tl_fail(r->ctx, TL_ETYPE, "recurrence: x and y need to be float32");
    if ((x->ndim != 2 && x->ndim != 3) || x->dims[0] != r->b || x->dims[x->ndim - 1] != r->d)
        return tl_fail(r->ctx, TL_ESHAPE, "recurrence: x is %s, not [%lld,%lld] or [%lld,n,%lld]",
                       SHAPE(x), (long long)r->b, (long long)r->d, (long long)r->b,
                       (long long)r->d);
    if (!tl_same_shape(x, y))
        return tl_fail(r->ctx, TL_ESHAPE, "recurrence: x is %s and y is %s", SHAPE(x), SHAPE(y));
    return tl_launch_host(r->ctx, TL_OP_recurrence, &a); /* the state is in host memory */
}

/* ---- Life ------------------------------------------------------------------------------------ */

void tl_recurrence_free(tl_recurrence *r)
{
    if (!r) return;
    tl_release(r->ctx, r->modes);
    tl_release(r->ctx, r->inputs);
    if (!r->forks || --*r->forks == 0) {
        tl_release(r->ctx, r->kernel);
        tl_release(r->ctx, r->decay);
        tl_release(r->ctx, r->turn);
        free(r->forks);
    }
    tl_relaxed_free(r->relaxed);
    tl_ctx_unref(r->ctx);
    free(r);
}

static size_t state_floats(const tl_recurrence *r, int64_t rows)
{
    return (size_t)r->b * (size_t)r->lanes * (size_t)rows * LANE;
}

static size_t state_bytes(const tl_recurrence *r)
{
    size_t floats = r->modes ? state_floats(r, r->rows) : 0;
    if (r->relaxed) return tl_relaxed_state_bytes(r->relaxed);
    if (r->inputs) floats += state_floats(r, r->m);
    return floats * sizeof(float);
}

void tl_recurrence_reset(tl_recurrence *r)
{
    if (r->modes) memset(r->modes, 0, state_floats(r, r->rows) * sizeof(float));
    if (r->inputs) memset(r->inputs, 0, state_floats(r, r->m) * sizeof(float));
    if (r->relaxed) tl_relaxed_reset(r->relaxed);
    r->at = r->seen = 0;
}

static size_t kernel_bytes(const tl_recurrence *r, int64_t modes)
{
    if (r->relaxed) return tl_relaxed_kernel_bytes(r->relaxed);
    return ((size_t)(r->lanes * (r->rows + 2) * LANE) + 4 * (size_t)modes) * sizeof(float);
}

tl_recurrence_size tl_recurrence_sizes(const tl_recurrence *r)
{
    int64_t modes = r->modes ? r->rows / 2 : 0;
    return (tl_recurrence_size){
        .kind = r->kind, .b = r->b, .d = r->d, .lags = r->lags, .modes = modes,
        .period = r->modes ? r->m : 0, .state_bytes = state_bytes(r),
        .kernel_bytes = kernel_bytes(r, modes)};
}

static float *floats(tl_recurrence *r, size_t count, tl_status *st)
{
    float *p = *st == TL_OK ? tl_alloc(r->ctx, count * sizeof *p) : NULL;
    if (p)
        memset(p, 0, count * sizeof *p);
    else
        *st = TL_ENOMEM;
    return p;
}

static double angle(int64_t j, int64_t m) { return 6.283185307179586477 * (double)j / (double)m; }

static void fill_turn(tl_recurrence *r)
{
    for (int64_t j = 0; j < r->rows / 2; j++) {
        double re = cos(angle(r->first + j, r->m)), im = -sin(angle(r->first + j, r->m));
        if (2 * (r->first + j) == r->m) im = 0; /* a real mode, like mode 0 */
        float *w = r->turn + 4 * j;
        w[0] = (float)re;
        w[1] = (float)im;
        w[2] = (float)(re - (double)w[0]);
        w[3] = (float)(im - (double)w[1]);
    }
}

tl_status tl_recurrence_make(tl_ctx *ctx, tl_recurrence_kind kind, int64_t b, int64_t d,
                             int64_t lags, int64_t m, const float *decay, tl_recurrence **out_r)
{
    double         slowest = 0; /* the greatest r^m */
    tl_status      st = TL_OK;
    tl_recurrence *r = calloc(1, sizeof *r);
    if (!r) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    ctx->refs++;
    *r = (tl_recurrence){.ctx = ctx, .kind = kind, .b = b, .d = d, .lags = lags, .m = m};
    r->forks = malloc(sizeof *r->forks);
    if (r->forks)
        *r->forks = 1;
    else
        st = tl_fail(ctx, TL_ENOMEM, "out of memory");
    r->lanes = (d + LANE - 1) / LANE;
    r->first = kind == TL_RECURRENCE_ETSC_PUBLISHED;
    r->rows = kind == TL_RECURRENCE_RING ? lags : 2 * (m / 2 + 1 - r->first);
    r->kernel = floats(r, (size_t)(r->lanes * r->rows * LANE), &st);
    r->decay = floats(r, (size_t)(r->lanes * 2 * LANE), &st);
    for (int64_t c = 0; c < d && kind != TL_RECURRENCE_RING && st == TL_OK; c++) {
        double faded = pow((double)decay[c], (double)m);
        r->decay[tl_lane_at(2, 0, c)] = decay[c];
        r->decay[tl_lane_at(2, 1, c)] = (float)faded;
        slowest = fmax(slowest, faded);
    }
    if (kind != TL_RECURRENCE_RING) {
        r->turn = floats(r, 4 * (size_t)(r->rows / 2), &st);
        r->modes = floats(r, state_floats(r, r->rows), &st);
        if (st == TL_OK) fill_turn(r);
    }
    if (kind == TL_RECURRENCE_RING || (kind == TL_RECURRENCE_ETSC_EXACT && slowest > FADED))
        r->inputs = floats(r, state_floats(r, m), &st);
    if (st == TL_OK)
        *out_r = r;
    else
        tl_recurrence_free(r);
    return st;
}

tl_status tl_recurrence_fork(const tl_recurrence *r, tl_recurrence **out_r)
{
    tl_recurrence *f = malloc(sizeof *f);
    tl_status      st = TL_OK;
    if (!f) return tl_fail(r->ctx, TL_ENOMEM, "out of memory");
    *f = *r;
    f->at = f->seen = 0;
    f->ctx->refs++;
    if (f->forks) ++*f->forks;
    f->modes = f->inputs = NULL;
    f->relaxed = NULL;
    if (r->modes) f->modes = floats(f, state_floats(f, f->rows), &st);
    if (r->inputs) f->inputs = floats(f, state_floats(f, f->m), &st);
    if (r->relaxed) st = tl_relaxed_fork(r->relaxed, &f->relaxed);
    if (st == TL_OK)
        *out_r = f;
    else
        tl_recurrence_free(f);
    return st;
}

tl_status tl_recurrence_check(tl_ctx *ctx, tl_recurrence_kind kind, int64_t b, int64_t d,
                              int64_t rows)
{
    if (kind < TL_RECURRENCE_RING || kind > TL_RECURRENCE_RELAXED)
        return tl_fail(ctx, TL_EINVAL, "recurrence: there is no kind %d", (int)kind);
    if (b < 1 || b > INT64_MAX / 32 / (d + LANE) / (rows + 8))
        return tl_fail(ctx, TL_EINVAL, "recurrence: %lld sequences", (long long)b);
    return TL_OK;
}

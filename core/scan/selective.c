/* selective.c - computes the selective scan of Mamba (Gu and Dao 2023), one lane of channels after
** another. */
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "base/vecmath.h"
#include "engine/gradient.h"
#include "scan/scan.h"

#define LANE  16      /* channels of a lane, which are computed at once */
#define GROUP 4       /* lanes of a task of the gradient, which share sums over their channels */
#define GRAIN 4096    /* states times positions of a lane that justify another thread */

typedef struct task {
    tl_select_job j;
    int64_t       lanes, groups;
    float        *scratch;     /* of each thread */
    int64_t       floats;      /* of one thread's scratch */
    float        *din, *dout;  /* [b,groups,n,s]: sums over the channels of a group */
    double       *da, *dskip;  /* [b,s,d] and [b,d] */
} task;

/* ---- Lanes ----------------------------------------------------------------------------------- */

static int64_t lane_width(const tl_select_job *j, int64_t lane)
{
    return j->d - lane * LANE < LANE ? j->d - lane * LANE : LANE;
}

/* Loads or stores part of a row; channels beyond the last are 0. */
static inline void load(const float *from, int64_t width, float to[LANE])
{
    if (width == LANE) {
        memcpy(to, from, LANE * sizeof *to);
    } else {
        memset(to, 0, LANE * sizeof *to);
        memcpy(to, from, (size_t)width * sizeof *to);
    }
}

static inline void store(float *to, int64_t width, const float from[LANE])
{
    memcpy(to, from, (size_t)width * sizeof *to);
}

/* at [s,LANE] = A of the lane */
static void load_a(const tl_select_job *j, int64_t lane, int64_t width, float *at)
{
    memset(at, 0, (size_t)(j->s * LANE) * sizeof *at);
    for (int64_t e = 0; e < width; e++)
        for (int64_t k = 0; k < j->s; k++) at[k * LANE + e] = j->a[(lane * LANE + e) * j->s + k];
}

static void load_skip(const tl_select_job *j, int64_t lane, int64_t width, float skip[LANE])
{
    memset(skip, 0, LANE * sizeof *skip);
    if (j->skip) store(skip, width, j->skip + lane * LANE);
}

static float *select_state_at(const tl_select_job *j, int64_t b, int64_t chunk, int64_t k,
                              int64_t lane)
{
    return j->states + ((b * j->chunks + chunk) * j->s + k) * j->d + lane * LANE;
}

/* ---- Forward --------------------------------------------------------------------------------- */

/* h <- exp(delta A) h + u B and y += C h, for u = delta x.   a, h [s,LANE] */
static inline void select_advance(int64_t s, const float *restrict a, float *restrict h,
                                  const float *restrict delta, const float *restrict u,
                                  const float *in, const float *out, float *restrict y)
{
    float sum[LANE] = {0};
    for (int64_t k = 0; k < s; k++, a += LANE, h += LANE) {
        float in_k = in[k], out_k = out[k];
        for (int e = 0; e < LANE; e++) {
            h[e] = tl_expf(delta[e] * a[e]) * h[e] + u[e] * in_k;
            sum[e] += out_k * h[e];
        }
    }
    for (int e = 0; e < LANE; e++) y[e] += sum[e];
}

static void scan_lanes(void *user, int64_t begin, int64_t end, int thread)
{
    const task          *t = user;
    const tl_select_job *j = &t->j;
    float               *a = t->scratch + thread * t->floats, *h = a + j->s * LANE;
    for (int64_t p = begin; p < end; p++) {
        int64_t b = p / t->lanes, lane = p % t->lanes, width = lane_width(j, lane);
        float   skip[LANE];
        load_a(j, lane, width, a);
        load_skip(j, lane, width, skip);
        memset(h, 0, (size_t)(j->s * LANE) * sizeof *h);
        for (int64_t i = 0; i < j->n; i++) {
            int64_t row = b * j->n + i, at = row * j->d + lane * LANE;
            float   x[LANE], delta[LANE], u[LANE], y[LANE];
            if (j->states && i % SCAN_CHUNK == 0)
                for (int64_t k = 0; k < j->s; k++)
                    store(select_state_at(j, b, i / SCAN_CHUNK, k, lane), width, h + k * LANE);
            load(j->x + at, width, x);
            load(j->delta + at, width, delta);
            for (int e = 0; e < LANE; e++) {
                u[e] = delta[e] * x[e];
                y[e] = skip[e] * x[e];
            }
            select_advance(j->s, a, h, delta, u, j->in + row * j->s, j->out + row * j->s, y);
            store(j->y + at, width, y);
        }
    }
}

tl_status tl_cpu_selective_scan(tl_ctx *ctx, const tl_args *args)
{
    task t = {.j = tl_select_job_of(args, 0)};
    t.lanes = (t.j.d + LANE - 1) / LANE;
    t.floats = 2 * t.j.s * LANE;
    t.scratch = tl_alloc(ctx, (size_t)(ctx->threads * t.floats + 1) * sizeof(float));
    if (!t.scratch) return TL_ENOMEM;
    if (args->selective_scan.x->len > 0)
        tl_parallel(ctx, t.j.b * t.lanes, 1 + GRAIN / (t.j.n * (t.j.s + 1)), scan_lanes, &t);
    tl_release(ctx, t.scratch);
    return TL_OK;
}

/* ---- Gradient -------------------------------------------------------------------------------- */

/* The scratch of a thread: per state of a lane the numbers of all positions of a chunk, and A, the
** gradient of the state, and dA of the chunk. */
typedef struct select_buffers {
    float *a, *g, *da; /* [s,LANE] */
    float *h;          /* [SCAN_CHUNK + 1,s,LANE]: the state before each position, and the last */
    float *e;          /* [SCAN_CHUNK,s,LANE]: exp(delta A) */
} select_buffers;

static int64_t select_buffer_floats(int64_t s) { return (2 * SCAN_CHUNK + 4) * s * LANE; }

static select_buffers select_buffers_of(const task *t, int thread)
{
    int64_t size = t->j.s * LANE;
    select_buffers r = {.a = t->scratch + thread * t->floats};
    r.g = r.a + size;
    r.da = r.g + size;
    r.h = r.da + size;
    r.e = r.h + (SCAN_CHUNK + 1) * size;
    return r;
}

static inline float lane_sum(const float v[LANE])
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int e = 0; e < LANE; e++) sum += v[e];
    return sum;
}

/* Computes the states of a chunk again from the one before it. */
static void chunk_states(const tl_select_job *j, select_buffers r, int64_t b, int64_t first,
                         int64_t last, int64_t lane, int64_t width)
{
    int64_t size = j->s * LANE;
    for (int64_t k = 0; k < j->s; k++)
        load(select_state_at(j, b, first / SCAN_CHUNK, k, lane), width, r.h + k * LANE);
    for (int64_t i = first; i < last; i++, r.h += size, r.e += size) {
        int64_t      row = b * j->n + i, at = row * j->d + lane * LANE;
        const float *in = j->in + row * j->s;
        float        x[LANE], delta[LANE];
        load(j->x + at, width, x);
        load(j->delta + at, width, delta);
        for (int64_t k = 0; k < j->s; k++) {
            float *restrict h = r.h + k * LANE, *restrict e = r.e + k * LANE;
            const float *a = r.a + k * LANE;
            for (int c = 0; c < LANE; c++) {
                e[c] = tl_expf(delta[c] * a[c]);
                h[size + c] = e[c] * h[c] + delta[c] * x[c] * in[k];
            }
        }
    }
}

/* Goes back over one position: r.g is the gradient of the state after it, and becomes the gradient
** of the state before it. u [LANE] and ddelta [LANE] receive gradients. */
static void select_back(const tl_select_job *j, const select_buffers *r, const float *h,
                        const float *decay, int64_t row, const float *x, const float *delta,
                        const float *dy, float *din, float *dout, float *du, float *ddelta)
{
    int64_t size = j->s * LANE;
    for (int64_t k = 0; k < j->s; k++, h += LANE, decay += LANE) {
        float in = j->in[row * j->s + k], out = j->out[row * j->s + k];
        float din_k[LANE], dout_k[LANE];
        float *restrict g = r->g + k * LANE, *restrict da = r->da + k * LANE;
        const float *a = r->a + k * LANE;
        for (int c = 0; c < LANE; c++) {
            float gh = g[c] + out * dy[c], faded = gh * decay[c], slope = faded * h[c];
            dout_k[c] = dy[c] * h[size + c];
            din_k[c] = gh * (delta[c] * x[c]);
            du[c] += gh * in;
            ddelta[c] += slope * a[c];
            da[c] += slope * delta[c];
            g[c] = faded;
        }
        din[k] += lane_sum(din_k);
        dout[k] += lane_sum(dout_k);
    }
}

static void chunk_back(const task *t, select_buffers r, int64_t b, int64_t first, int64_t last,
                       int64_t lane, double *dskip)
{
    const tl_select_job *j = &t->j;
    int64_t width = lane_width(j, lane), size = j->s * LANE;
    int64_t part = (b * t->groups + lane / GROUP) * j->n;
    float   skip[LANE], sum[LANE] = {0};
    load_skip(j, lane, width, skip);
    for (int64_t i = last - 1; i >= first; i--) {
        int64_t row = b * j->n + i, at = row * j->d + lane * LANE;
        float   x[LANE], delta[LANE], dy[LANE], du[LANE] = {0}, ddelta[LANE] = {0}, dx[LANE];
        load(j->x + at, width, x);
        load(j->delta + at, width, delta);
        load(j->dy + at, width, dy);
        select_back(j, &r, r.h + (i - first) * size, r.e + (i - first) * size, row, x, delta, dy,
             t->din + (part + i) * j->s, t->dout + (part + i) * j->s, du, ddelta);
        for (int c = 0; c < LANE; c++) {
            dx[c] = du[c] * delta[c] + skip[c] * dy[c];
            ddelta[c] += du[c] * x[c];
            sum[c] += dy[c] * x[c];
        }
        store(j->dx + at, width, dx);
        store(j->ddelta + at, width, ddelta);
    }
    for (int64_t c = 0; c < width; c++) dskip[c] += (double)sum[c];
}

/* A part is a group of lanes of one sequence. */
static void grad_groups(void *user, int64_t begin, int64_t end, int thread)
{
    const task          *t = user;
    const tl_select_job *j = &t->j;
    select_buffers       r = select_buffers_of(t, thread);
    size_t               bytes = (size_t)(j->s * LANE) * sizeof(float);
    for (int64_t p = begin; p < end; p++) {
        int64_t b = p / t->groups, lane = p % t->groups * GROUP;
        int64_t most = lane + GROUP < t->lanes ? lane + GROUP : t->lanes;
        memset(t->din + p * j->n * j->s, 0, (size_t)(j->n * j->s) * sizeof(float));
        memset(t->dout + p * j->n * j->s, 0, (size_t)(j->n * j->s) * sizeof(float));
        for (; lane < most; lane++) {
            int64_t width = lane_width(j, lane);
            double *da = t->da + b * j->s * j->d + lane * LANE;
            load_a(j, lane, width, r.a);
            memset(r.g, 0, bytes);
            for (int64_t chunk = j->chunks - 1; chunk >= 0; chunk--) {
                int64_t first = chunk * SCAN_CHUNK;
                int64_t last = first + SCAN_CHUNK < j->n ? first + SCAN_CHUNK : j->n;
                memset(r.da, 0, bytes);
                chunk_states(j, r, b, first, last, lane, width);
                chunk_back(t, r, b, first, last, lane, t->dskip + b * j->d + lane * LANE);
                for (int64_t k = 0; k < j->s; k++)
                    for (int64_t c = 0; c < width; c++)
                        da[k * j->d + c] += (double)r.da[k * LANE + c];
            }
        }
    }
}

/* Adds the sums of the groups, for some sequences. */
static void add_groups(void *user, int64_t begin, int64_t end, int thread)
{
    const task *t = user;
    int64_t     size = t->j.n * t->j.s;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        float *restrict din = t->j.din + b * size, *restrict dout = t->j.dout + b * size;
        memset(din, 0, (size_t)size * sizeof *din);
        memset(dout, 0, (size_t)size * sizeof *dout);
        for (int64_t p = b * t->groups; p < (b + 1) * t->groups; p++)
            for (int64_t i = 0; i < size; i++) {
                din[i] += t->din[p * size + i];
                dout[i] += t->dout[p * size + i];
            }
    }
}

/* Adds the sums of the sequences. */
static void add_sequences(const task *t)
{
    const tl_select_job *j = &t->j;
    for (int64_t c = 0; c < j->d; c++) {
        double skip = 0;
        for (int64_t b = 0; b < j->b; b++) skip += t->dskip[b * j->d + c];
        if (j->dskip) j->dskip[c] = (float)skip;
        for (int64_t k = 0; k < j->s; k++) {
            double sum = 0;
            for (int64_t b = 0; b < j->b; b++) sum += t->da[(b * j->s + k) * j->d + c];
            j->da[c * j->s + k] = (float)sum;
        }
    }
}

tl_status tl_cpu_selective_scan_grad(tl_ctx *ctx, const tl_args *args)
{
    task t = {.j = tl_select_job_of(args, 1)};
    t.lanes = (t.j.d + LANE - 1) / LANE;
    t.groups = (t.lanes + GROUP - 1) / GROUP;
    t.floats = select_buffer_floats(t.j.s);
    int64_t parts = t.j.b * t.groups, sums = t.j.b * (t.j.s + 1) * t.j.d;
    t.scratch = tl_alloc(ctx, (size_t)(ctx->threads * t.floats + 1) * sizeof(float));
    t.din = tl_alloc(ctx, (size_t)(2 * parts * t.j.n * t.j.s + 1) * sizeof(float));
    t.da = tl_alloc(ctx, (size_t)(sums + 1) * sizeof(double));
    tl_status st = t.scratch && t.din && t.da ? TL_OK : TL_ENOMEM;
    if (st == TL_OK) {
        t.dout = t.din + parts * t.j.n * t.j.s;
        t.dskip = t.da + t.j.b * t.j.s * t.j.d;
        memset(t.da, 0, (size_t)sums * sizeof(double));
        if (args->selective_scan_grad.x->len > 0)
            tl_parallel(ctx, parts, 1 + GRAIN / (t.j.n * (t.j.s + 1)), grad_groups, &t);
        tl_parallel(ctx, t.j.b, 1 + GRAIN / (t.j.n * t.j.s * t.groups + 1), add_groups, &t);
        add_sequences(&t);
    }
    tl_release(ctx, t.scratch);
    tl_release(ctx, t.din);
    tl_release(ctx, t.da);
    return st;
}

/* ---- The operator ---------------------------------------------------------------------------- */

#define INPUTS TL_OUT_selective_scan_grad /* x, delta, a, b, c and skip */

/* saved: the arguments of the forward kernel, with which the gradient's arguments begin */
static tl_status select_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args a = node->saved;
    a.selective_scan_grad.dy = dy;
    return tl_run_gradient(ctx, node, TL_OP_selective_scan_grad, &a, INPUTS);
}

static tl_status select_check(const tl_args *args)
{
    const struct tl_args_selective_scan *s = &args->selective_scan;
    const tl_tensor *x = s->x, *a = s->a, *skip = s->skip;
    tl_ctx          *ctx = x->ctx;
    for (int i = 0; i < INPUTS; i++)
        if (args->list.in[i] && args->list.in[i]->type != TL_F32)
            return tl_fail(ctx, TL_ETYPE, "selective_scan: input %d is int32, not float32", i + 1);
    if (x->ndim != 3 || !tl_same_shape(x, s->delta))
        return tl_fail(ctx, TL_ESHAPE, "selective_scan: x is %s, delta is %s, not both [b,n,d]",
                       SHAPE(x), SHAPE(s->delta));
    if (a->ndim != 2 || a->dims[0] != x->dims[2])
        return tl_fail(ctx, TL_ESHAPE, "selective_scan: x is %s, a is %s, not [%lld,state]",
                                              SHAPE(x), SHAPE(a), (long long)x->dims[2]);
    for (int i = 0; i < 2; i++) {
        const tl_tensor *t = i == 0 ? s->b : s->c;
        if (!tl_has_shape(t, 3, (int64_t[]){x->dims[0], x->dims[1], a->dims[1]}))
            return tl_fail(ctx, TL_ESHAPE, "selective_scan: x is %s, a is %s, %s is %s, not "
                           "[b,n,%lld]", SHAPE(x), SHAPE(a), i == 0 ? "b" : "c", SHAPE(t),
                           (long long)a->dims[1]);
    }
    if (skip && (skip->ndim != 1 || skip->dims[0] != x->dims[2]))
        return tl_fail(ctx, TL_ESHAPE, "selective_scan: x is %s, skip is %s, not [%lld]", SHAPE(x),
                       SHAPE(skip), (long long)x->dims[2]);
    return TL_OK;
}

tl_status tl_selective_scan(tl_tensor *x, tl_tensor *delta, tl_tensor *a, tl_tensor *b,
                            tl_tensor *c, tl_tensor *skip, tl_tensor **out_y)
{
    tl_ctx   *ctx = x->ctx;
    tl_args   args = {.selective_scan = {.x = x, .delta = delta, .a = a, .b = b, .c = c,
                                         .skip = skip}};
    struct tl_args_selective_scan *s = &args.selective_scan;
    tl_status st = select_check(&args);
    int       needed = 0;
    if (st != TL_OK) return st;
    for (int i = 0; i < INPUTS; i++) needed |= tl_needs_grad(ctx, args.list.in[i]);
    st = tl_new_like(x, &s->y);
    if (st == TL_OK && needed)
        st = tl_new(ctx, TL_F32, 4, (int64_t[]){x->dims[0], scan_chunks(x->dims[1]), a->dims[1],
                                               x->dims[2]}, &s->states);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_selective_scan, &args);
    if (st == TL_OK)
        st = tl_record(ctx, s->y, select_grad, args.list.in, INPUTS, &args, NULL);
    tl_tensor_free(s->states);
    return tl_finish(st, s->y, out_y);
}

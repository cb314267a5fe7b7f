/* linear.c - computes the recurrence of gated linear attention, a head after another, or several at
** once if each has one channel. */
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "base/vecmath.h"
#include "engine/gradient.h"
#include "scan/scan.h"

#define GRAIN 65536 /* products that justify another thread */
#define GROUP 64    /* heads of one channel that are computed at once */

/* Registers hold a tile of the state, ROWS rows of two vectors: compilers make scalars of vectors
** that are longer than the processor's. */
#if defined __AVX512F__
#define LANES 16
#define ROWS  8
#elif defined __AVX__
#define LANES 8
#define ROWS  4
#else
#define LANES 4
#define ROWS  4
#endif

typedef float vec __attribute__((vector_size(4 * LANES), may_alias));

typedef struct task {
    tl_recur_job j;
    int64_t      keys, values; /* dk and dv, rounded up to multiples of 2 LANES */
    float       *scratch;      /* of each thread */
    int64_t      floats;       /* of one thread's scratch */
} task;

/* ---- Passes over a chunk --------------------------------------------------------------------- */

/* A pass goes over the positions of a chunk, or back over them, and computes at each one
**   T <- diag(decay) T + factor add^T   and   out = T^T read
** for a state T [keys,values]. If T is transposed, [values,keys], so is its diag(decay) T. */
typedef struct pass {
    const float *decay;         /* [keys] of each position */
    const float *factor, *read; /* a row of each position that is as long as a column of T */
    const float *add;           /* as long as a row of T */
    float       *out, *state;
    int          transposed, back;
} pass;

/* Computes ROWS rows and two vectors of T, and adds their products with `read` to those of the rows
** before. Each sum has one order, whatever the size of a tile. */
static inline __attribute__((always_inline)) void tile(const task *t, pass p, int transposed,
                                                       int64_t count, int64_t row, int64_t lane)
{
    int64_t down = transposed ? t->values : t->keys, across = transposed ? t->keys : t->values;
    vec     s[ROWS][2], *state = (vec *)(p.state + row * across + lane);
#pragma GCC unroll 8
    for (int64_t r = 0; r < ROWS; r++) {
        s[r][0] = state[r * across / LANES];
        s[r][1] = state[r * across / LANES + 1];
    }
    for (int64_t at = 0; at < count; at++) {
        int64_t      i = p.back ? count - 1 - at : at;
        int64_t      left = i * down + row, right = i * across + lane;
        const float *factor = p.factor + left, *read = p.read + left, *decay = p.decay + left;
        const vec   *add = (const vec *)(p.add + right), *decays = (const vec *)(p.decay + right);
        vec         *out = (vec *)(p.out + right), sum[2] = {{0}, {0}};
        if (row > 0) {
            sum[0] = out[0];
            sum[1] = out[1];
        }
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
#pragma GCC unroll 2
            for (int v = 0; v < 2; v++) {
                s[r][v] = (transposed ? decays[v] * s[r][v] : decay[r] * s[r][v]) +
                          factor[r] * add[v];
                sum[v] += read[r] * s[r][v];
            }
        }
        out[0] = sum[0];
        out[1] = sum[1];
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < ROWS; r++) {
        state[r * across / LANES] = s[r][0];
        state[r * across / LANES + 1] = s[r][1];
    }
}

static void run(const task *t, int64_t count, pass p)
{
    int64_t rows = p.transposed ? t->j.dv : t->j.dk, lanes = p.transposed ? t->j.dk : t->j.dv;
    for (int64_t lane = 0; lane < lanes; lane += 2 * LANES)
        for (int64_t row = 0; row < rows; row += ROWS) {
            if (p.transposed)
                tile(t, p, 1, count, row, lane);
            else
                tile(t, p, 0, count, row, lane);
        }
}

/* ---- A chunk of a head ----------------------------------------------------------------------- */

/* A thread's copy of a chunk of a head, in which zeros fill up the rows. */
typedef struct buffers {
    float *e;               /* [SCAN_CHUNK + 1,keys]: decays, the last ones of the next chunk */
    float *q, *k, *dq, *dk; /* [SCAN_CHUNK,keys] */
    float *v, *dy, *dv;     /* [SCAN_CHUNK,values]; the forward pass has y in dv */
    float *r;               /* [keys,values]: R below, or S of the forward pass */
    float *st, *rt;         /* [values,keys]: the transposes of S and R */
    float *w;               /* [keys] */
} buffers;

static int64_t rounded(int64_t n) { return (n + 2 * LANES - 1) / (2 * LANES) * (2 * LANES); }

static int64_t buffer_floats(int64_t keys, int64_t values)
{
    return (5 * SCAN_CHUNK + 2) * keys + 3 * SCAN_CHUNK * values + 3 * keys * values;
}

static buffers buffers_of(const task *t, int thread)
{
    int64_t keys = SCAN_CHUNK * t->keys, values = SCAN_CHUNK * t->values;
    buffers r = {.e = t->scratch + thread * t->floats};
    memset(r.e, 0, (size_t)t->floats * sizeof(float));
    r.q = r.e + keys + t->keys;
    r.k = r.q + keys;
    r.dq = r.k + keys;
    r.dk = r.dq + keys;
    r.v = r.dk + keys;
    r.dy = r.v + values;
    r.dv = r.dy + values;
    r.r = r.dv + values;
    r.st = r.r + t->keys * t->values;
    r.rt = r.st + t->keys * t->values;
    r.w = r.rt + t->keys * t->values;
    return r;
}

static void copy(int64_t rows, int64_t n, const float *from, int64_t from_step, float *to,
                 int64_t to_step)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy(to + i * to_step, from + i * from_step, (size_t)n * sizeof *to);
}

/* The decays of a position.   e [dk] */
static void decays(const tl_recur_job *j, const float *g, float *e)
{
    if (j->dg == 1) {
        float one = tl_expf(g[0]);
        for (int64_t k = 0; k < j->dk; k++) e[k] = one;
    } else {
        for (int64_t k = 0; k < j->dk; k++) e[k] = tl_expf(g[k]);
    }
}

/* The number of (position, head) `row` of sequence b. */
static int64_t row_of(const tl_recur_job *j, int64_t b, int64_t i, int64_t head)
{
    return (b * j->n + i) * j->h + head;
}

static float *linear_state_at(const tl_recur_job *j, int64_t b, int64_t first, int64_t head)
{
    int64_t chunk = first / SCAN_CHUNK;
    return j->states + ((b * j->chunks + chunk) * j->h + head) * j->dk * j->dv;
}

/* Returns the number of positions of the chunk that begins at first. */
static int64_t chunk_size(const tl_recur_job *j, int64_t first)
{
    return j->n - first < SCAN_CHUNK ? j->n - first : SCAN_CHUNK;
}

static void load_chunk(const task *t, const buffers *r, int64_t b, int64_t first, int64_t head)
{
    const tl_recur_job *j = &t->j;
    int64_t row = row_of(j, b, first, head), count = chunk_size(j, first);
    copy(count, j->dk, j->q + row * j->dk, j->h * j->dk, r->q, t->keys);
    copy(count, j->dk, j->k + row * j->dk, j->h * j->dk, r->k, t->keys);
    copy(count, j->dv, j->v + row * j->dv, j->h * j->dv, r->v, t->values);
    if (j->dy) copy(count, j->dv, j->dy + row * j->dv, j->h * j->dv, r->dy, t->values);
    for (int64_t i = 0; i <= count && first + i < j->n; i++)
        decays(j, j->g + (row + i * j->h) * j->dg, r->e + i * t->keys);
}

/* ---- Forward --------------------------------------------------------------------------------- */

/* S <- diag(e) S + k v^T, and y = S^T q.   S [dk,dv] */
static void forward_heads(void *user, int64_t begin, int64_t end, int thread)
{
    const task         *t = user;
    const tl_recur_job *j = &t->j;
    buffers             r = buffers_of(t, thread);
    for (int64_t p = begin; p < end; p++) {
        int64_t b = p / j->h, head = p % j->h;
        memset(r.r, 0, (size_t)(t->keys * t->values) * sizeof(float));
        for (int64_t first = 0; first < j->n; first += SCAN_CHUNK) {
            int64_t count = chunk_size(j, first), row = row_of(j, b, first, head);
            if (j->states)
                copy(j->dk, j->dv, r.r, t->values, linear_state_at(j, b, first, head), j->dv);
            load_chunk(t, &r, b, first, head);
            run(t, count, (pass){r.e, r.k, r.q, r.v, r.dv, r.r, 0, 0});
            copy(count, j->dv, r.dv, t->values, j->y + row * j->dv, j->h * j->dv);
        }
    }
}

/* ---- Gradient -------------------------------------------------------------------------------- */

/* With R_t the gradient of S_t, R_t = q_t dy_t^T + diag(e_(t+1)) R_(t+1):
**   dq_t = S_t dy_t   dk_t = R_t v_t   dv_t = R_t^T k_t
**   dg_t = row sums of R_t * diag(e_t) S_(t-1), by elements
** Each of the first three is a pass. Sums over lanes would be slow, so that dq and dk take the
** transposes of S and R, and R is computed twice. The last takes S only at the end of a chunk, as
** dg_t = q_t dq_t + dg_(t+1) - k_t dk_t. Starting again at each chunk bounds the rounding of these
** sums. At position 0 there is no state to fade, so that dg is 0. */

/* Computes dg of the position after a chunk from S before it, and from R and e of that position. */
static void border_decays(const task *t, const buffers *r, const float *e)
{
    memset(r->w, 0, (size_t)t->keys * sizeof *r->w);
    for (int64_t m = 0; m < t->j.dv * t->keys; m += t->keys)
        for (int64_t c = 0; c < t->keys; c++) r->w[c] += r->rt[m + c] * r->st[m + c];
    for (int64_t c = 0; c < t->keys; c++) r->w[c] *= e[c];
}

static void chunk_decays(const task *t, const buffers *r, int64_t b, int64_t first, int64_t head)
{
    const tl_recur_job *j = &t->j;
    for (int64_t i = chunk_size(j, first) - 1; i >= 0; i--) {
        const float *q = r->q + i * t->keys, *dq = r->dq + i * t->keys;
        const float *k = r->k + i * t->keys, *dk = r->dk + i * t->keys;
        float *dg = j->gg + row_of(j, b, first + i, head) * j->dg, *restrict w = r->w, sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < j->dk; c++) {
            w[c] = first + i > 0 ? w[c] + q[c] * dq[c] - k[c] * dk[c] : 0;
            sum += w[c];
        }
        memcpy(dg, j->dg == 1 ? &sum : w, (size_t)j->dg * sizeof *dg);
    }
}

static void grad_heads(void *user, int64_t begin, int64_t end, int thread)
{
    const task         *t = user;
    const tl_recur_job *j = &t->j;
    buffers             r = buffers_of(t, thread);
    size_t              bytes = (size_t)(t->keys * t->values) * sizeof(float);
    for (int64_t p = begin; p < end; p++) {
        int64_t b = p / j->h, head = p % j->h;
        memset(r.r, 0, bytes);
        memset(r.rt, 0, bytes);
        for (int64_t first = (j->chunks - 1) * SCAN_CHUNK; first >= 0; first -= SCAN_CHUNK) {
            int64_t      count = chunk_size(j, first), row = row_of(j, b, first, head);
            const float *s = linear_state_at(j, b, first, head), *after = r.e + t->keys;
            load_chunk(t, &r, b, first, head);
            for (int64_t m = 0; m < j->dv; m++)
                for (int64_t c = 0; c < j->dk; c++) r.st[m * t->keys + c] = s[c * j->dv + m];
            run(t, count, (pass){r.e, r.v, r.dy, r.k, r.dq, r.st, 1, 0});
            border_decays(t, &r, r.e + count * t->keys);
            run(t, count, (pass){after, r.dy, r.v, r.q, r.dk, r.rt, 1, 1});
            run(t, count, (pass){after, r.q, r.k, r.dy, r.dv, r.r, 0, 1});
            chunk_decays(t, &r, b, first, head);
            copy(count, j->dk, r.dq, t->keys, j->gq + row * j->dk, j->h * j->dk);
            copy(count, j->dk, r.dk, t->keys, j->gk + row * j->dk, j->h * j->dk);
            copy(count, j->dv, r.dv, t->values, j->gv + row * j->dv, j->h * j->dv);
        }
    }
}

/* ---- Heads of one channel -------------------------------------------------------------------- */

static int64_t groups(const tl_recur_job *j) { return (j->h + GROUP - 1) / GROUP; }

/* Of a chunk of `width` heads: to = S by, and in e and before [SCAN_CHUNK,GROUP] the decay of each
** position and the state before it. s is the state before the chunk, and then the one after it. */
static void group_chunk(const tl_recur_job *j, int64_t row, int64_t count, int64_t width,
                        const float *by, float *to, float *restrict s, float *e, float *before)
{
    for (int64_t i = 0; i < count; i++, row += j->h) {
        const float *x = by + row, *k = j->k + row, *v = j->v + row, *g = j->g + row;
        float *restrict y = to + row, *fade = e + i * GROUP, *old = before + i * GROUP;
#pragma omp simd
        for (int64_t c = 0; c < width; c++) {
            fade[c] = tl_expf(g[c]);
            old[c] = s[c];
            s[c] = fade[c] * s[c] + k[c] * v[c];
            y[c] = s[c] * x[c];
        }
    }
}

/* Computes part p, a group of heads of a sequence. */
static void forward_group(const tl_recur_job *j, int64_t p, float *e, float *before)
{
    int64_t b = p / groups(j), head = p % groups(j) * GROUP;
    int64_t width = j->h - head < GROUP ? j->h - head : GROUP;
    float   s[GROUP] = {0};
    for (int64_t first = 0; first < j->n; first += SCAN_CHUNK) {
        if (j->states) copy(1, width, s, 0, linear_state_at(j, b, first, head), 0);
        group_chunk(j, row_of(j, b, first, head), chunk_size(j, first), width, j->q, j->y, s, e,
                    before);
    }
}

static void grad_group(const tl_recur_job *j, int64_t p, float *e, float *before)
{
    int64_t b = p / groups(j), head = p % groups(j) * GROUP;
    int64_t width = j->h - head < GROUP ? j->h - head : GROUP;
    float   s[GROUP], r[GROUP] = {0}; /* r = diag(e) R of the next position */
    for (int64_t first = (j->chunks - 1) * SCAN_CHUNK; first >= 0; first -= SCAN_CHUNK) {
        int64_t count = chunk_size(j, first);
        copy(1, width, linear_state_at(j, b, first, head), 0, s, 0);
        group_chunk(j, row_of(j, b, first, head), count, width, j->dy, j->gq, s, e, before);
        for (int64_t i = count - 1; i >= 0; i--) {
            int64_t      row = row_of(j, b, first + i, head);
            const float *q = j->q + row, *k = j->k + row, *v = j->v + row, *dy = j->dy + row;
            const float *fade = e + i * GROUP, *old = before + i * GROUP;
            float       *dk = j->gk + row, *dv = j->gv + row, *dg = j->gg + row;
#pragma omp simd
            for (int64_t c = 0; c < width; c++) {
                float now = r[c] + q[c] * dy[c];
                dk[c] = now * v[c];
                dv[c] = now * k[c];
                r[c] = now * fade[c];
                dg[c] = first + i > 0 ? r[c] * old[c] : 0;
            }
        }
    }
}

static void run_groups(void *user, int64_t begin, int64_t end, int thread)
{
    const task *t = user;
    float      *e = t->scratch + thread * t->floats;
    for (int64_t p = begin; p < end; p++) {
        if (t->j.dy)
            grad_group(&t->j, p, e, e + SCAN_CHUNK * GROUP);
        else
            forward_group(&t->j, p, e, e + SCAN_CHUNK * GROUP);
    }
}

/* ---- The operator ---------------------------------------------------------------------------- */

static tl_status launch(tl_ctx *ctx, tl_recur_job j)
{
    task    t = {.j = j, .keys = rounded(j.dk), .values = rounded(j.dv)};
    int64_t single = j.dk == 1 && j.dv == 1, width = single ? GROUP : j.dk * j.dv;
    t.floats = single ? 2 * SCAN_CHUNK * GROUP : buffer_floats(t.keys, t.values);
    t.scratch = tl_alloc(ctx, (size_t)(ctx->threads * t.floats + 1) * sizeof(float));
    if (!t.scratch) return TL_ENOMEM;
    tl_parallel(ctx, j.b * (single ? groups(&j) : j.h), 1 + GRAIN / (1 + j.n * width),
                single ? run_groups : j.dy ? grad_heads : forward_heads, &t);
    tl_release(ctx, t.scratch);
    return TL_OK;
}

tl_status tl_cpu_linear_recurrence(tl_ctx *ctx, const tl_args *a)
{
    return launch(ctx, tl_recur_job_of(a, 0));
}

tl_status tl_cpu_linear_recurrence_grad(tl_ctx *ctx, const tl_args *a)
{
    return launch(ctx, tl_recur_job_of(a, 1));
}

#define INPUTS TL_OUT_linear_recurrence_grad /* q, k, v and g */

/* saved: the arguments of the forward kernel, with which the gradient's arguments begin */
static tl_status recur_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args a = node->saved;
    a.linear_recurrence_grad.dy = dy;
    return tl_run_gradient(ctx, node, TL_OP_linear_recurrence_grad, &a, INPUTS);
}

static tl_status linear_check(const tl_args *a)
{
    static const char *const names = "qkvg";
    tl_tensor *const *in = a->list.in;
    const tl_tensor  *q = a->linear_recurrence.q;
    tl_ctx           *ctx = q->ctx;
    for (int i = 0; i < INPUTS; i++)
        if (in[i]->type != TL_F32)
            return tl_fail(ctx, TL_ETYPE, "linear_recurrence: %c is int32, not float32", names[i]);
    for (int i = 0; i < INPUTS; i++) {
        const tl_tensor *t = in[i];
        int fits = t->ndim == 4 && q->ndim == 4 && t->dims[0] == q->dims[0] &&
                   t->dims[1] == q->dims[1] && t->dims[2] == q->dims[2];
        if (fits && names[i] == 'k') fits = t->dims[3] == q->dims[3];
        if (fits && names[i] == 'g') fits = t->dims[3] == q->dims[3] || t->dims[3] == 1;
        if (!fits)
            return tl_fail(ctx, TL_ESHAPE, "linear_recurrence: q is %s, %c is %s", SHAPE(q),
                           names[i], SHAPE(t));
    }
    return TL_OK;
}

tl_status tl_linear_recurrence(tl_tensor *q, tl_tensor *k, tl_tensor *v, tl_tensor *g,
                               tl_tensor **out_y)
{
    tl_ctx   *ctx = q->ctx;
    tl_args   a = {.linear_recurrence = {.q = q, .k = k, .v = v, .g = g}};
    struct tl_args_linear_recurrence *r = &a.linear_recurrence;
    tl_status st = linear_check(&a);
    int       needed = 0;
    if (st != TL_OK) return st;
    for (int i = 0; i < INPUTS; i++) needed |= tl_needs_grad(ctx, a.list.in[i]);
    st = tl_new_like(v, &r->y);
    if (st == TL_OK && needed)
        st = tl_new(ctx, TL_F32, 5, (int64_t[]){q->dims[0], scan_chunks(q->dims[1]), q->dims[2],
                                               q->dims[3], v->dims[3]}, &r->states);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_linear_recurrence, &a);
    if (st == TL_OK) st = tl_record(ctx, r->y, recur_grad, a.list.in, INPUTS, &a, NULL);
    tl_tensor_free(r->states);
    return tl_finish(st, r->y, out_y);
}

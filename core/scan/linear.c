/* linear.c - computes the recurrence of gated linear attention, a head after another. */
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "base/vecmath.h"
#include "engine/gradient.h"
#include "scan/scan.h"

#define GRAIN 65536 /* products that justify another thread */

typedef struct task {
    tl_recur_job j;
    float       *scratch; /* of each thread */
    int64_t      floats;  /* of one thread's scratch */
} task;

/* ---- Rows of the state ----------------------------------------------------------------------- */

/* The decays of a position.   e [dk] */
static void decays(const tl_recur_job *j, const float *g, float *e)
{
    if (j->dg == 1 && j->dk != 1) {
        float one = tl_expf(g[0]);
        for (int64_t k = 0; k < j->dk; k++) e[k] = one;
    } else {
        for (int64_t k = 0; k < j->dk; k++) e[k] = tl_expf(g[k]);
    }
}

static inline float dot(const float *a, const float *b, int64_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* The number of (position, head) `row` of sequence b. */
static int64_t row_of(const tl_recur_job *j, int64_t b, int64_t i, int64_t head)
{
    return (b * j->n + i) * j->h + head;
}

static float *linear_state_at(const tl_recur_job *j, int64_t b, int64_t chunk, int64_t head)
{
    return j->states + ((b * j->chunks + chunk) * j->h + head) * j->dk * j->dv;
}

/* ---- Forward --------------------------------------------------------------------------------- */

/* S <- diag(e) S + k v^T, and y = S^T q.   S [dk,dv] */
static void linear_advance(const tl_recur_job *j, const float *e, int64_t row, float *s, float *y)
{
    const float *q = j->q + row * j->dk, *k = j->k + row * j->dk, *v = j->v + row * j->dv;
    memset(y, 0, (size_t)j->dv * sizeof *y);
    for (int64_t c = 0; c < j->dk; c++, s += j->dv) {
        float fade = e[c], key = k[c], query = q[c];
        float *restrict sum = y, *restrict state = s;
        for (int64_t m = 0; m < j->dv; m++) {
            state[m] = fade * state[m] + key * v[m];
            sum[m] += query * state[m];
        }
    }
}

static void forward_heads(void *user, int64_t begin, int64_t end, int thread)
{
    const task         *t = user;
    const tl_recur_job *j = &t->j;
    size_t              bytes = (size_t)(j->dk * j->dv) * sizeof(float);
    float              *s = t->scratch + thread * t->floats, *e = s + j->dk * j->dv;
    for (int64_t p = begin; p < end; p++) {
        int64_t b = p / j->h, head = p % j->h;
        memset(s, 0, bytes);
        for (int64_t i = 0; i < j->n; i++) {
            int64_t row = row_of(j, b, i, head);
            if (j->states && i % SCAN_CHUNK == 0)
                memcpy(linear_state_at(j, b, i / SCAN_CHUNK, head), s, bytes);
            decays(j, j->g + row * j->dg, e);
            linear_advance(j, e, row, s, j->y + row * j->dv);
        }
    }
}

static int64_t grain(const tl_recur_job *j) { return 1 + GRAIN / (1 + j->n * j->dk * j->dv); }

tl_status tl_cpu_linear_recurrence(tl_ctx *ctx, const tl_args *a)
{
    task t = {.j = tl_recur_job_of(a, 0)};
    t.floats = t.j.dk * (t.j.dv + 1);
    t.scratch = tl_alloc(ctx, (size_t)(ctx->threads * t.floats + 1) * sizeof(float));
    if (!t.scratch) return TL_ENOMEM;
    tl_parallel(ctx, t.j.b * t.j.h, grain(&t.j), forward_heads, &t);
    tl_release(ctx, t.scratch);
    return TL_OK;
}

/* ---- Gradient -------------------------------------------------------------------------------- */

/* With R_t the gradient of S_t, R_t = q_t dy_t^T + diag(e_(t+1)) R_(t+1):
**   dq_t = S_t dy_t   dk_t = R_t v_t   dv_t = R_t^T k_t   dg_t = row sums of R_t (S_t - k_t v_t^T)
** The last needs no S_t but at the end of a chunk, because the row sums w_t of R_t S_t obey
** dg_t = w_t - k_t dk_t and w_t = q_t dq_t + dg_(t+1). Starting again at each chunk bounds the
** rounding of these sums. At position 0 there is no state to fade, so that dg is 0. */
typedef struct linear_buffers {
    float *s, *r; /* [dk,dv]: S, and R before the position that is next on the way back */
    float *e, *w; /* [dk] */
} linear_buffers;

static int64_t linear_buffer_floats(const tl_recur_job *j) { return 2 * j->dk * (j->dv + 1); }

static linear_buffers linear_buffers_of(const task *t, int thread)
{
    int64_t size = t->j.dk * t->j.dv;
    linear_buffers r = {.s = t->scratch + thread * t->floats};
    r.r = r.s + size;
    r.e = r.r + size;
    r.w = r.e + t->j.dk;
    return r;
}

/* Computes dq of a chunk, and leaves the state after it in S. */
static void chunk_queries(const tl_recur_job *j, const linear_buffers *r, int64_t b, int64_t first,
                          int64_t last, int64_t head)
{
    memcpy(r->s, linear_state_at(j, b, first / SCAN_CHUNK, head),
           (size_t)(j->dk * j->dv) * sizeof(float));
    for (int64_t i = first; i < last; i++) {
        int64_t      row = row_of(j, b, i, head);
        const float *k = j->k + row * j->dk, *v = j->v + row * j->dv, *dy = j->dy + row * j->dv;
        decays(j, j->g + row * j->dg, r->e);
        for (int64_t c = 0; c < j->dk; c++) {
            float *restrict state = r->s + c * j->dv;
            float fade = r->e[c], key = k[c];
            for (int64_t m = 0; m < j->dv; m++) state[m] = fade * state[m] + key * v[m];
            j->gq[row * j->dk + c] = dot(state, dy, j->dv);
        }
    }
}

/* Goes back over position i. R becomes R_t, and then R_t diag(e_t). */
static void linear_back(const tl_recur_job *j, const linear_buffers *r, int64_t row, int64_t i,
                        int ends)
{
    const float *q = j->q + row * j->dk, *k = j->k + row * j->dk, *v = j->v + row * j->dv;
    const float *dy = j->dy + row * j->dv, *dq = j->gq + row * j->dk;
    float *restrict dk = j->gk + row * j->dk, *restrict dv = j->gv + row * j->dv;
    float sum = 0;
    decays(j, j->g + row * j->dg, r->e);
    memset(dv, 0, (size_t)j->dv * sizeof *dv);
    for (int64_t c = 0; c < j->dk; c++) {
        float *restrict g = r->r + c * j->dv;
        float query = q[c], key = k[c], fade = r->e[c];
        for (int64_t m = 0; m < j->dv; m++) {
            g[m] += query * dy[m];
            dv[m] += key * g[m];
        }
        dk[c] = dot(g, v, j->dv);
        r->w[c] = ends ? dot(g, r->s + c * j->dv, j->dv) : r->w[c] + q[c] * dq[c];
        r->w[c] = i > 0 ? r->w[c] - key * dk[c] : 0;
        sum += r->w[c];
        for (int64_t m = 0; m < j->dv; m++) g[m] *= fade;
    }
    if (j->dg == 1)
        j->gg[row] = sum;
    else
        memcpy(j->gg + row * j->dk, r->w, (size_t)j->dk * sizeof(float));
}

static void grad_heads(void *user, int64_t begin, int64_t end, int thread)
{
    const task         *t = user;
    const tl_recur_job *j = &t->j;
    linear_buffers      r = linear_buffers_of(t, thread);
    for (int64_t p = begin; p < end; p++) {
        int64_t b = p / j->h, head = p % j->h;
        memset(r.r, 0, (size_t)(j->dk * j->dv) * sizeof(float));
        for (int64_t chunk = j->chunks - 1; chunk >= 0; chunk--) {
            int64_t first = chunk * SCAN_CHUNK;
            int64_t last = first + SCAN_CHUNK < j->n ? first + SCAN_CHUNK : j->n;
            chunk_queries(j, &r, b, first, last, head);
            for (int64_t i = last - 1; i >= first; i--)
                linear_back(j, &r, row_of(j, b, i, head), i, i == last - 1);
        }
    }
}

tl_status tl_cpu_linear_recurrence_grad(tl_ctx *ctx, const tl_args *a)
{
    task t = {.j = tl_recur_job_of(a, 1)};
    t.floats = linear_buffer_floats(&t.j);
    t.scratch = tl_alloc(ctx, (size_t)(ctx->threads * t.floats + 1) * sizeof(float));
    if (!t.scratch) return TL_ENOMEM;
    tl_parallel(ctx, t.j.b * t.j.h, grain(&t.j), grad_heads, &t);
    tl_release(ctx, t.scratch);
    return TL_OK;
}

/* ---- The operator ---------------------------------------------------------------------------- */

#define INPUTS TL_OUT_linear_recurrence_grad /* q, k, v and g */

/* saved: the arguments of the forward kernel, with which the gradient's arguments begin */
static tl_status recur_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_args   a = node->saved;
    tl_status st = TL_OK;
    a.linear_recurrence_grad.dy = dy;
    for (int i = 0; i < INPUTS && st == TL_OK; i++)
        st = tl_new_like(a.list.in[i], &a.list.out[i]);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_linear_recurrence_grad, &a);
    return tl_hand_over(ctx, node, st, a.list.out, INPUTS);
}

static tl_status linear_check(const tl_args *a)
{
    static const char *const names = "qkvg";
    tl_tensor *const *in = a->list.in;
    const tl_tensor  *q = a->linear_recurrence.q;
    tl_ctx           *ctx = q->ctx;
    for (int i = 0; i < INPUTS; i++)
        if (in[i]->type != TL_F32)
            return tl_fail(ctx, TL_ETYPE, "linear_recurrence: %c is int32", names[i]);
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

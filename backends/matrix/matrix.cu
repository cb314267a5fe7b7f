/* matrix.cu - computes the backend matrix on a GPU: writes out T of some channels, whole or some
** rows at a time, and multiplies by it. */
#include "../common/apply.cuh"

typedef struct plan {
    tl_ctx *ctx;
    int64_t n, d, zero, lags;
} plan;

/* The scratch buffers for a part of the work. Lines are ordered by channel, so that those of a
** channel are a matrix. */
typedef struct buffers {
    int64_t channels, rows, b;
    float  *t, *dt;       /* [channels,lags] */
    float  *block;        /* [channels,rows,n] of T, or of its gradient */
    float  *x, *dx, *y;   /* [channels,b,n], [channels,b,n], [channels,b,rows] */
} buffers;

/* ---- The matrix ------------------------------------------------------------------------------ */

/* Each block of threads writes one row. */
static __global__ void materialise(plan s, int64_t first, int64_t rows, const float *t,
                                   float *block)
{
    int64_t row = blockIdx.x, i = first + row % rows;
    const float *lags = t + row / rows * s.lags;
    for (int64_t j = threadIdx.x; j < s.n; j += blockDim.x) {
        int64_t k = s.zero + i - j;
        block[row * s.n + j] = k >= 0 && k < s.lags ? lags[k] : 0;
    }
}

/* dt = (or += if add) the sums along the diagonals of the block */
static __global__ void add_diagonals(plan s, int64_t first, int64_t rows, const float *block,
                                     int add, float *dt, int64_t total)
{
    EACH(e, total)
    {
        int64_t c = e / s.lags, lag = e % s.lags - s.zero, r = lag - first > 0 ? lag - first : 0;
        double  sum = add ? dt[e] : 0;
        for (; r < rows && first + r - lag < s.n; r++)
            sum += block[(c * rows + r) * s.n + first + r - lag];
        dt[e] = (float)sum;
    }
}

/* ---- Scratch buffers ------------------------------------------------------------------------- */

static void matrix_gpu_free(const plan *s, const buffers *m)
{
    gpu_free(s->ctx, m->t);
    gpu_free(s->ctx, m->dt);
    gpu_free(s->ctx, m->block);
    gpu_free(s->ctx, m->x);
    gpu_free(s->ctx, m->dx);
    gpu_free(s->ctx, m->y);
}

static tl_status matrix_gpu_reserve(const plan *s, int64_t b, int backward, buffers *m)
{
    *m = buffers();
    m->rows = clamp(BUDGET / (s->n * 4), 1, s->n);
    m->channels = clamp(BUDGET / (m->rows * s->n * 4), 1, s->d);
    m->b = clamp(BUDGET / (m->channels * s->n * 4), 1, b);
    size_t    coefs = (size_t)(m->channels * s->lags) * 4, lines = (size_t)(m->channels * m->b) * 4;
    size_t    block = (size_t)(m->channels * m->rows * s->n) * 4;
    tl_status st = gpu_alloc(s->ctx, coefs, (void **)&m->t);
    if (st == TL_OK && backward) st = gpu_alloc(s->ctx, coefs, (void **)&m->dt);
    if (st == TL_OK) st = gpu_alloc(s->ctx, block, (void **)&m->block);
    if (st == TL_OK) st = gpu_alloc(s->ctx, lines * (size_t)s->n, (void **)&m->x);
    if (st == TL_OK && backward) st = gpu_alloc(s->ctx, lines * (size_t)s->n, (void **)&m->dx);
    if (st == TL_OK) st = gpu_alloc(s->ctx, lines * (size_t)m->rows, (void **)&m->y);
    if (st != TL_OK) matrix_gpu_free(s, m);
    return st;
}

/* The layout of rows of b sequences [b,n,d] and of lines [channels,b,rows]. */
static gpu_sheet sheet_of(const plan *s, int64_t b, int64_t rows, int64_t channels)
{
    return gpu_sheet{b, rows, channels, s->d, s->n * s->d, 0, rows, b * rows, rows};
}

/* A part of the work. */
typedef struct part {
    int64_t first, channels; /* of the channels */
    int64_t at, b;           /* of the sequences */
    int64_t i, rows;         /* of T */
} part;

static tl_status make_block(const plan *s, const buffers *m, const part *p)
{
    tl_ctx *ctx = s->ctx;
    LAUNCH(materialise, p->channels * p->rows, THREADS, *s, p->i, p->rows, m->t, m->block);
    return launched(ctx, "tno");
}

static tl_status matrix_gpu_load(const plan *s, const part *p, const float *x, int64_t i,
                                 int64_t rows, float *lines)
{
    gpu_sheet sheet = sheet_of(s, p->b, rows, p->channels);
    return gpu_to_lines(s->ctx, &sheet, x + (p->at * s->n + i) * s->d + p->first, lines);
}

static tl_status matrix_gpu_store(const plan *s, const part *p, const float *lines, int64_t i,
                                  int64_t rows, float *y)
{
    gpu_sheet sheet = sheet_of(s, p->b, rows, p->channels);
    return gpu_from_lines(s->ctx, &sheet, 1, lines, y + (p->at * s->n + i) * s->d + p->first);
}

/* The layout of coefficients of some channels [lags,d] and of lines [channels,lags]. */
static gpu_sheet coef_sheet(const plan *s, const part *p)
{
    return gpu_sheet{1, s->lags, p->channels, s->d, 0, 0, s->lags, s->lags, 0};
}

/* ---- Application ----------------------------------------------------------------------------- */

static tl_status forward_part(const plan *s, const buffers *m, const tl_tno_args *a, part *p)
{
    tl_status st = matrix_gpu_load(s, p, a->x, 0, s->n, m->x);
    for (p->i = 0; p->i < s->n && st == TL_OK; p->i += m->rows) {
        p->rows = clamp(m->rows, 1, s->n - p->i);
        st = make_block(s, m, p);
        if (st == TL_OK)
            st = gpu_gemm(s->ctx, 0, 1, p->b, p->rows, s->n, m->x, m->block, 0, m->y, p->channels);
        if (st == TL_OK) st = matrix_gpu_store(s, p, m->y, p->i, p->rows, a->y);
    }
    return st;
}

static tl_status coef_gradient(const plan *s, const buffers *m, const part *p)
{
    tl_ctx   *ctx = s->ctx;
    int64_t   total = p->channels * s->lags;
    tl_status st = gpu_gemm(ctx, 1, 0, p->rows, s->n, p->b, m->y, m->x, 0, m->block, p->channels);
    if (st != TL_OK) return st;
    LAUNCH(add_diagonals, blocks_for(total), THREADS, *s, p->i, p->rows, m->block,
           p->i > 0 || p->at > 0, m->dt, total);
    return launched(ctx, "tno_grad");
}

static tl_status backward_part(const plan *s, const buffers *m, const tl_tno_args *a, part *p)
{
    tl_status st = a->dcoef ? matrix_gpu_load(s, p, a->x, 0, s->n, m->x) : TL_OK;
    for (p->i = 0; p->i < s->n && st == TL_OK; p->i += m->rows) {
        p->rows = clamp(m->rows, 1, s->n - p->i);
        st = matrix_gpu_load(s, p, a->dy, p->i, p->rows, m->y);
        if (st == TL_OK && a->dx) st = make_block(s, m, p);
        if (st == TL_OK && a->dx)
            st = gpu_gemm(s->ctx, 0, 0, p->b, s->n, p->rows, m->y, m->block,
                          p->i > 0 ? 1.0f : 0.0f, m->dx, p->channels);
        if (st == TL_OK && a->dcoef) st = coef_gradient(s, m, p);
    }
    return st == TL_OK && a->dx ? matrix_gpu_store(s, p, m->dx, 0, s->n, a->dx) : st;
}

static tl_status matrix_gpu_run(const plan *s, const tl_tno_args *a, int backward)
{
    buffers   m;
    tl_status st = matrix_gpu_reserve(s, a->b, backward, &m);
    if (st != TL_OK) return st;
    for (part p = {}; p.first < s->d && st == TL_OK; p.first += m.channels) {
        p.channels = clamp(m.channels, 1, s->d - p.first);
        gpu_sheet coefs = coef_sheet(s, &p);
        st = gpu_to_lines(s->ctx, &coefs, a->coef + p.first, m.t);
        for (p.at = 0; p.at < a->b && st == TL_OK; p.at += m.b) {
            p.b = clamp(m.b, 1, a->b - p.at);
            st = backward ? backward_part(s, &m, a, &p) : forward_part(s, &m, a, &p);
        }
        if (st == TL_OK && backward && a->dcoef)
            st = gpu_from_lines(s->ctx, &coefs, 1, m.dt, a->dcoef + p.first);
    }
    matrix_gpu_free(s, &m);
    return st;
}

static tl_status matrix_gpu_forward(void *state, const tl_tno_args *a)
{
    return a->b == 0 ? TL_OK : matrix_gpu_run((const plan *)state, a, 0);
}

static tl_status matrix_gpu_backward(void *state, const tl_tno_args *a)
{
    const plan *s = (const plan *)state;
    if (a->b > 0) return matrix_gpu_run(s, a, 1);
    return a->dcoef ? gpu_clear(s->ctx, a->dcoef, (size_t)(s->lags * s->d) * 4) : TL_OK;
}

static tl_status matrix_gpu_make(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    int64_t   lags;
    tl_status st = gpu_points(h, "matrix", p, &lags);
    if (st != TL_OK) return st;
    plan *s = (plan *)gpu_plan(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    *s = plan{gpu_ctx(h), p->n, p->d, p->causal ? 0 : (lags - 1) / 2, lags};
    *out_plan = s;
    return TL_OK;
}

const gpu_form gpu_matrix_form = {"matrix", {matrix_gpu_make, matrix_gpu_forward,
                                             matrix_gpu_backward, gpu_plan_free}};

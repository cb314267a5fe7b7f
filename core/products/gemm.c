/* gemm.c - divides matrix products among the threads, rounds operands to bf16, and calls oneDNN
** (onednn.c) or, where that does not support a product, OpenBLAS.
**
** The libraries run single-threaded: their threads would compete with the engine's for the
** processors. A part contains all of k, so that no sum crosses threads, and the same sizes and
** number of threads give the same bits. */
#include <cblas.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/memory.h"
#include "base/threads.h"
#include "engine/device.h"
#include "products/gemm.h"
#include "products/product.h"

#define ROUND_GRAIN  16384          /* elements that justify another thread */
#define TERMS        8192           /* in a part of a sum */
#define STRIP        64             /* elements of a vector that are summed at once */
#define ALIGN        64             /* bytes; of each array in the scratch buffer */
#define FIRST        128            /* rows of the first product: enough to make OpenBLAS pack */
#define FIRST_BYTES  ((size_t)160 << 20) /* of address space that each thread needs */

static void by_blas(const tl_product *p, const float *a, const float *b, float *c)
{
    cblas_sgemm(CblasRowMajor, p->trans_a ? CblasTrans : CblasNoTrans,
                p->trans_b ? CblasTrans : CblasNoTrans, (int)p->m, (int)p->n, (int)p->k, p->alpha,
                a, (int)p->lda, b, (int)p->ldb, p->beta, c, (int)p->ldc);
}

static tl_status by_library(const tl_product *p, const float *a, const float *b, float *c)
{
    tl_status st = tl_onednn_sgemm(p, a, b, c);
    if (st != TL_EBACKEND) return st;
    by_blas(p, a, b, c);
    return TL_OK;
}

/* A product whose result is one number, in float64. */
static void dot(const tl_product *p, const float *a, const float *b, float *c)
{
    int64_t step_a = p->trans_a ? p->lda : 1, step_b = p->trans_b ? 1 : p->ldb;
    double  sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < p->k; i++) sum += (double)a[i * step_a] * (double)b[i * step_b];
    *c = (float)((double)p->alpha * sum + (p->beta != 0 ? (double)(p->beta * *c) : 0));
}

/* The next STRIP elements, or fewer, of a product whose result is a column or, if m is 1, a row. */
static tl_status strip(const tl_product *p, const float *a, const float *b, float *c)
{
    tl_product part = *p;
    int64_t    count = p->m * p->n, step = p->m == 1 ? 1 : p->ldc;
    double     sum[STRIP] = {0};
    float      y[STRIP];
    part.alpha = 1;
    part.beta = 0;
    part.ldc = p->n;
    for (int64_t from = 0; from < p->k; from += TERMS) {
        part.k = p->k - from < TERMS ? p->k - from : TERMS;
        tl_status st = by_library(&part, a + from * (p->trans_a ? p->lda : 1),
                                  b + from * (p->trans_b ? 1 : p->ldb), y);
        if (st != TL_OK) return st;
        for (int64_t i = 0; i < count; i++) sum[i] += (double)y[i];
    }
    for (int64_t i = 0; i < count; i++, c += step)
        *c = (float)((double)p->alpha * sum[i] + (p->beta != 0 ? (double)(p->beta * *c) : 0));
    return TL_OK;
}

/* The libraries add the terms of a product with a vector one by one in float32, which loses small
** terms of a long sum. Parts of the sum are therefore added in float64. */
static tl_status multiply(const tl_product *p, const float *a, const float *b, float *c)
{
    tl_product part = *p;
    tl_status  st = TL_OK;
    if (p->m == 0 || p->n == 0) return TL_OK;
    if (p->m == 1 && p->n == 1) {
        dot(p, a, b, c);
        return TL_OK;
    }
    if ((p->m > 1 && p->n > 1) || p->k <= TERMS) return by_library(p, a, b, c);
    for (int64_t at = 0; st == TL_OK && at < p->m * p->n; at += STRIP) {
        int64_t left = p->m * p->n - at;
        *(p->m == 1 ? &part.n : &part.m) = left < STRIP ? left : STRIP;
        if (p->m == 1)
            st = strip(&part, a, b + at * (p->trans_b ? p->ldb : 1), c + at);
        else
            st = strip(&part, a + at * (p->trans_a ? 1 : p->lda), b, c + at * p->ldc);
    }
    return st;
}

void tl_gemm_serial(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                    int64_t ldc)
{
    tl_product p = {m, n, k, lda, ldb, ldc, alpha, beta, trans_a, trans_b, 1, 1, 1};
    if (multiply(&p, a, b, c) != TL_OK) by_blas(&p, a, b, c);
}

/* p as one part, with the leading dimensions that it leaves at 0. */
static tl_product one_part(const tl_product *p)
{
    tl_product q = *p;
    if (!q.lda) q.lda = q.trans_a ? q.m : q.k;
    if (!q.ldb) q.ldb = q.trans_b ? q.k : q.n;
    if (!q.ldc) q.ldc = q.n;
    q.rows = q.columns = q.copies = 1;
    return q;
}

void tl_gemm_small(const tl_product *p, const float *a, const float *b, float *c)
{
    tl_product q = one_part(p);
    if (q.m > 0 && q.n > 0) by_blas(&q, a, b, c);
}

/* ---- Running --------------------------------------------------------------------------------- */

/* `count` products whose operands are contiguous in a, b and c, in float32, or in bf16 if there are
** kernels for it. */
typedef struct work {
    tl_product   shape;
    int64_t      count, step_a, step_b, step_c;
    const float *a, *b;
    float       *c;
    tl_onednn   *kernels;
    uint16_t    *low_a, *low_b;
    char        *scratch;
    size_t       scratch_bytes; /* of one kernel */
    _Atomic int  failed; /* the tl_status of a thread that failed */
} work;

static void run_part(work *w, int64_t i, int part, int kernel)
{
    tl_product_part p = tl_part_of(&w->shape, part);
    int64_t a = i * w->step_a + p.a, b = i * w->step_b + p.b, c = i * w->step_c + p.c;
    if (!w->kernels) {
        tl_status done = multiply(&p.shape, w->a + a, w->b + b, w->c + c);
        if (done != TL_OK) w->failed = done;
        return;
    }
    tl_status st = tl_onednn_run(w->kernels, kernel, w->low_a + a, w->low_b + b, w->c + c,
                                 w->scratch + (size_t)kernel * w->scratch_bytes);
    if (st != TL_OK) w->failed = st;
}

static void run_parts(void *user, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t i = begin; i < end; i++) run_part(user, 0, (int)i, (int)i);
}

static void run_batch(void *user, int64_t begin, int64_t end, int thread)
{
    for (int64_t i = begin; i < end; i++) run_part(user, i, 0, thread);
}

static void gemm_run(const tl_ctx *ctx, work *w)
{
    const tl_product *p = &w->shape;
    if (w->count == 1)
        tl_parallel(ctx, (int64_t)p->rows * p->columns, 1, run_parts, w);
    else
        tl_parallel(ctx, w->count, 1 + 65536 / (p->m * p->n * p->k + 1), run_batch, w);
}

/* ---- bf16 ------------------------------------------------------------------------------------ */

/* Rows of `from`, ld elements apart, are rounded to contiguous rows of `low` as bf16, or of `same`
** as float32. */
typedef struct rounding {
    const float *from;
    int64_t      ld, columns;
    uint16_t    *low;
    float       *same;
} rounding;

static void round_to_low(const float *restrict x, uint16_t *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        y[i] = tl_round_bf16(bits);
    }
}

static void round_to_same(const float *restrict x, float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = tl_bf16_of(x[i]);
}

static void round_rows(void *user, int64_t begin, int64_t end, int thread)
{
    const rounding *r = user;
    int64_t         n = r->columns;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        if (r->low)
            round_to_low(r->from + i * r->ld, r->low + i * n, n);
        else
            round_to_same(r->from + i * r->ld, r->same + i * n, n);
    }
}

static size_t padded(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* Runs w on rounded copies of its operands. */
static tl_status run_bf16(tl_ctx *ctx, work *w)
{
    tl_product *p = &w->shape;
    int64_t     rows_a = p->trans_a ? p->k : p->m, columns_a = p->trans_a ? p->m : p->k;
    int64_t     rows_b = p->trans_b ? p->n : p->k, columns_b = p->trans_b ? p->k : p->n;
    rounding    a = {.from = w->a, .ld = p->lda, .columns = columns_a};
    rounding    b = {.from = w->b, .ld = p->ldb, .columns = columns_b};
    p->lda = columns_a;
    p->ldb = columns_b;
    p->copies = w->count > 1 ? ctx->threads : 1;
    tl_status st = tl_onednn_find(ctx, p, &w->kernels);
    if (st != TL_OK) return st;
    size_t size = w->kernels ? sizeof *w->low_a : sizeof *w->a;
    size_t bytes_a = padded((size_t)(w->count * rows_a * columns_a) * size);
    size_t bytes_b = padded((size_t)(w->count * rows_b * columns_b) * size);
    if (w->kernels) w->scratch_bytes = padded(tl_onednn_scratch(w->kernels));
    size_t kernels = (size_t)p->rows * (size_t)p->columns * (size_t)p->copies;
    char  *scratch = tl_alloc(ctx, bytes_a + bytes_b + kernels * w->scratch_bytes);
    if (!scratch) return TL_ENOMEM;
    if (w->kernels) {
        a.low = w->low_a = (uint16_t *)(void *)scratch;
        b.low = w->low_b = (uint16_t *)(void *)(scratch + bytes_a);
    } else {
        w->a = a.same = (float *)(void *)scratch;
        w->b = b.same = (float *)(void *)(scratch + bytes_a);
    }
    w->scratch = scratch + bytes_a + bytes_b;
    tl_parallel(ctx, w->count * rows_a, 1 + ROUND_GRAIN / columns_a, round_rows, &a);
    tl_parallel(ctx, w->count * rows_b, 1 + ROUND_GRAIN / columns_b, round_rows, &b);
    gemm_run(ctx, w);
    tl_release(ctx, scratch);
    st = (tl_status)w->failed;
    return st == TL_OK ? TL_OK : tl_fail(ctx, st, "oneDNN: a product failed");
}

typedef struct first {
    float      *scratch; /* a, b, and c of each thread */
    _Atomic int waiting; /* threads that have not arrived */
} first;

/* All threads wait for one another here. Otherwise OpenBLAS would hand the buffer of a thread that
** has finished to the next one, and allocate too few buffers. */
static void first_product(void *user, int64_t begin, int64_t end, int thread)
{
    first       *w = user;
    float       *a = w->scratch, *b = a + FIRST * FIRST, *c = b + (1 + thread) * FIRST * FIRST;
    tl_product   p = {FIRST, FIRST, FIRST, FIRST, FIRST, FIRST, 1, 0, 0, 0, 1, 1, 1};
    w->waiting -= (int)(end - begin);
    while (w->waiting > 0) (void)sched_yield();
    by_blas(&p, a, b, c);
    (void)tl_onednn_sgemm(&p, a, b, c);
}

tl_status tl_gemm_ready(tl_ctx *ctx)
{
    if (ctx->multiplies) return TL_OK;
    int   threads = tl_threads_running(ctx);
    first w = {.waiting = threads};
    w.scratch = calloc((size_t)(2 + threads) * FIRST * FIRST, sizeof *w.scratch);
    tl_status st = w.scratch ? TL_OK : tl_fail(ctx, TL_ENOMEM, "out of memory");
    if (st == TL_OK)
        st = tl_reserve(ctx, (size_t)threads * FIRST_BYTES, "the first matrix product");
    if (st == TL_OK) tl_parallel(ctx, threads, 1, first_product, &w);
    ctx->multiplies = st == TL_OK;
    free(w.scratch); /* from calloc: tl_alloc might take the memory that is being checked for */
    return st;
}

static tl_status run_any(tl_ctx *ctx, work *w)
{
    const tl_product *p = &w->shape;
    tl_status st = tl_gemm_ready(ctx);
    if (st != TL_OK) return st;
    if (ctx->precision == TL_PRECISION_BF16 && w->count > 0 && p->m > 0 && p->n > 0 && p->k > 0)
        return run_bf16(ctx, w);
    gemm_run(ctx, w);
    st = (tl_status)w->failed;
    return st == TL_OK ? TL_OK : tl_fail(ctx, st, "out of memory: a matrix product [%lld,%lld] "
                                         "[%lld,%lld]", (long long)p->m, (long long)p->k,
                                         (long long)p->k, (long long)p->n);
}

/* ---- Interface ------------------------------------------------------------------------------- */

tl_status tl_gemm(tl_ctx *ctx, const tl_product *p, const float *a, const float *b, float *c)
{
    return tl_gemm_batch(ctx, 1, p, a, b, c);
}

tl_status tl_gemm_batch(tl_ctx *ctx, int64_t count, const tl_product *p, const float *a,
                        const float *b, float *c)
{
    work w = {.shape = one_part(p), .count = count, .step_a = p->m * p->k, .step_b = p->k * p->n,
              .step_c = p->m * p->n, .a = a, .b = b, .c = c};
    if (count == 1) tl_product_cut(&w.shape, ctx->threads);
    return run_any(ctx, &w);
}

tl_status tl_gemm_fits(tl_ctx *ctx, const char *op, int64_t m, int64_t n, int64_t k)
{
    int64_t most = m > n ? m : n;
    if (k > most) most = k;
    if (most <= INT_MAX) return TL_OK;
    return tl_fail(ctx, TL_ESHAPE, "%s: %lld rows or columns, at most %d can be multiplied", op,
                   (long long)most, INT_MAX);
}

void tl_blas_open(void)
{
    openblas_set_num_threads(1);
    tl_onednn_open();
}

const char *tl_blas_name(void) { return openblas_get_config(); }

tl_precision_kind tl_precision(const tl_ctx *ctx) { return ctx->precision; }

int tl_has_precision(const tl_ctx *ctx, tl_precision_kind kind)
{
    const unsigned cpu = 1u << TL_PRECISION_F32 | 1u << TL_PRECISION_BF16;
    unsigned       there = ctx->engine ? ctx->engine->precisions : cpu;
    return kind >= TL_PRECISION_F32 && kind <= TL_PRECISION_TF32 && (there >> kind & 1u);
}

tl_status tl_set_precision(tl_ctx *ctx, tl_precision_kind kind)
{
    int there = tl_has_precision(ctx, kind);
    if (!there && kind == TL_PRECISION_TF32)
        return tl_fail(ctx, TL_EINVAL, "precision tf32: device %s has float32 and bf16 only, tf32 "
                       "needs an NVIDIA GPU: device cuda", tl_device_name(ctx));
    if (!there) return tl_fail(ctx, TL_EINVAL, "precision: there is no precision %d", (int)kind);
    ctx->precision = kind;
    return TL_OK;
}

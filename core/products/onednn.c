/* onednn.c - multiplies matrices by oneDNN, if the build found that library.
**
** oneDNN runs on the calling thread: each call limits OpenMP to one thread and then restores the
** limit. gemm.c divides the work.
**
** The AVX-512 kernels of oneDNN 2.6 store data below the stack pointer, beyond the red zone of 128
** bytes, where a signal handler on the same stack overwrites it. Therefore the engine's threads
** block all signals, and a program that handles signals must give its handlers a stack of their own
** (sigaltstack, SA_ONSTACK), as lua/glue/signals.c does. */
#include "products/gemm.h"
#include "products/product.h"

#ifdef TL_ONEDNN
#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS  256 /* shapes in the cache */
#define PROBES 8   /* slots in which a shape may be */

typedef struct kernel {
    dnnl_primitive_t run;
    dnnl_memory_t    a, b, c, scratch;
    dnnl_stream_t    stream;
} kernel;

struct tl_onednn {
    tl_product shape;
    uint64_t   used; /* the call that last used it */
    size_t     scratch;
    int        count;
    kernel     kernels[];
};

typedef struct tl_onednn_table {
    dnnl_engine_t engine;
    uint64_t      calls;
    tl_onednn    *slots[SLOTS];
} tl_onednn_table;

/* oneDNN uses as many threads as OpenMP allows the calling thread. omp_limit allows one and returns
** what was allowed, which omp_restore sets again for the program around us. */
#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_OMP
void omp_set_num_threads(int count); /* declared here because not every compiler has omp.h */
int omp_get_max_threads(void);
static void omp_restore(int count)
{
    if (count != 1) omp_set_num_threads(count);
}
static int omp_limit(void)
{
    int before = omp_get_max_threads();
    if (before != 1) omp_set_num_threads(1);
    return before;
}
#else
static void omp_restore(int count) { (void)count; }
static int omp_limit(void) { return 1; }
#endif

/* The AMX kernels of oneDNN 2.6 use tiles that they have not configured, which is an illegal
** instruction: for most shapes on one thread, for some on two (256 x 64 x 64). The limit takes
** effect only before the first product. A limit in the environment has precedence. */
void tl_onednn_open(void)
{
    if (!getenv("ONEDNN_MAX_CPU_ISA") && !getenv("DNNL_MAX_CPU_ISA"))
        (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
}

/* ---- float32 --------------------------------------------------------------------------------- */

tl_status tl_onednn_sgemm(const tl_product *p, const float *a, const float *b, float *c)
{
    int           before = omp_limit();
    dnnl_status_t st = dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->m, p->n, p->k,
                                  p->alpha, a, p->lda, b, p->ldb, p->beta, c, p->ldc);
    omp_restore(before);
    return st == dnnl_success ? TL_OK : st == dnnl_out_of_memory ? TL_ENOMEM : TL_EBACKEND;
}

/* ---- bf16 ------------------------------------------------------------------------------------ */

/* Without these instructions oneDNN emulates bf16, slower than float32. */
static int has_instructions(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16");
#else
    return 0;
#endif
}

const char *tl_onednn_name(char *text, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    (void)snprintf(text, size, "%d.%d.%d, %s", v->major, v->minor, v->patch,
                   has_instructions() ? "float32 and bf16"
                                      : "float32; no bf16 instructions in this processor");
    return text;
}

static void drop(tl_onednn *k)
{
    if (!k) return;
    for (int i = 0; i < k->count; i++) {
        kernel *one = &k->kernels[i];
        (void)dnnl_primitive_destroy(one->run);
        (void)dnnl_memory_destroy(one->a);
        (void)dnnl_memory_destroy(one->b);
        (void)dnnl_memory_destroy(one->c);
        (void)dnnl_memory_destroy(one->scratch);
        (void)dnnl_stream_destroy(one->stream);
    }
    free(k);
}

typedef struct layouts {
    dnnl_memory_desc_t a, b, c;
} layouts;

static int lay_out(const tl_product *p, layouts *l)
{
    dnnl_dims_t a = {p->m, p->k}, b = {p->k, p->n}, c = {p->m, p->n};
    dnnl_dims_t step_a = {p->trans_a ? 1 : p->lda, p->trans_a ? p->lda : 1};
    dnnl_dims_t step_b = {p->trans_b ? 1 : p->ldb, p->trans_b ? p->ldb : 1};
    dnnl_dims_t step_c = {p->ldc, 1};
    return dnnl_memory_desc_init_by_strides(&l->a, 2, a, dnnl_bf16, step_a) == dnnl_success &&
           dnnl_memory_desc_init_by_strides(&l->b, 2, b, dnnl_bf16, step_b) == dnnl_success &&
           dnnl_memory_desc_init_by_strides(&l->c, 2, c, dnnl_f32, step_c) == dnnl_success;
}

/* The caller provides the scratch buffer; with beta the product is added to c. */
static dnnl_primitive_attr_t attributes(const tl_product *p)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t       add = NULL;
    int ok = dnnl_primitive_attr_create(&attr) == dnnl_success &&
             dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) ==
                 dnnl_success;
    if (ok && p->beta != 0)
        ok = dnnl_post_ops_create(&add) == dnnl_success &&
             dnnl_post_ops_append_sum(add, 1) == dnnl_success &&
             dnnl_primitive_attr_set_post_ops(attr, add) == dnnl_success;
    (void)dnnl_post_ops_destroy(add);
    if (ok) return attr;
    (void)dnnl_primitive_attr_destroy(attr);
    return NULL;
}

static int memory(dnnl_memory_t *out, const dnnl_memory_desc_t *md, dnnl_engine_t engine)
{
    return dnnl_memory_create(out, md, engine, DNNL_MEMORY_NONE) == dnnl_success;
}

/* Builds one kernel for p and raises *scratch to the bytes that it needs. dnnl_unimplemented if
** oneDNN has no such kernel; any other status means that building failed. */
static dnnl_status_t build(dnnl_engine_t engine, const tl_product *p, kernel *k, size_t *scratch)
{
    layouts               l;
    dnnl_matmul_desc_t    desc;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_attr_t attr = attributes(p);
    dnnl_status_t         there = dnnl_runtime_error;
    if (attr && lay_out(p, &l) &&
        dnnl_matmul_desc_init(&desc, &l.a, &l.b, NULL, &l.c) == dnnl_success)
        there = dnnl_primitive_desc_create(&pd, &desc, attr, engine, NULL);
    int ok = there == dnnl_success && dnnl_primitive_create(&k->run, pd) == dnnl_success;
    if (ok) {
        const dnnl_memory_desc_t *pad =
            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        size_t bytes = dnnl_memory_desc_get_size(pad);
        if (bytes > *scratch) *scratch = bytes;
        ok = memory(&k->a, &l.a, engine) && memory(&k->b, &l.b, engine) &&
             memory(&k->c, &l.c, engine) && memory(&k->scratch, pad, engine) &&
             dnnl_stream_create(&k->stream, engine, dnnl_stream_default_flags) == dnnl_success;
    }
    (void)dnnl_primitive_desc_destroy(pd);
    (void)dnnl_primitive_attr_destroy(attr);
    return ok ? dnnl_success : there == dnnl_unimplemented ? there : dnnl_runtime_error;
}

/* *out stays NULL if oneDNN has no kernel for the product. */
static tl_status onednn_make(tl_ctx *ctx, dnnl_engine_t engine, const tl_product *whole,
                             tl_onednn **out)
{
    int           parts = whole->rows * whole->columns, count = parts * whole->copies;
    dnnl_status_t built = dnnl_success;
    tl_onednn    *k = calloc(1, sizeof *k + (size_t)count * sizeof *k->kernels);
    if (!k) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    k->shape = *whole;
    k->count = count;
    int before = omp_limit();
    for (int i = 0; i < count && built == dnnl_success; i++) {
        tl_product_part part = tl_part_of(whole, i % parts);
        built = build(engine, &part.shape, &k->kernels[i], &k->scratch);
    }
    omp_restore(before);
    if (built == dnnl_success) {
        *out = k;
        return TL_OK;
    }
    drop(k);
    if (built == dnnl_unimplemented) return TL_OK;
    return tl_fail(ctx, TL_EBACKEND, "oneDNN: making a kernel failed for a product [%lld,%lld] "
                   "[%lld,%lld]", (long long)whole->m, (long long)whole->k, (long long)whole->k,
                   (long long)whole->n);
}

static tl_status open_table(tl_ctx *ctx, tl_onednn_table **out)
{
    tl_onednn_table *t = ctx->products;
    if (!t) {
        t = calloc(1, sizeof *t);
        if (!t) return tl_fail(ctx, TL_ENOMEM, "out of memory");
        if (dnnl_engine_create(&t->engine, dnnl_cpu, 0) != dnnl_success) {
            free(t);
            return tl_fail(ctx, TL_EBACKEND, "oneDNN: creating the engine failed");
        }
        ctx->products = t;
    }
    *out = t;
    return TL_OK;
}

static int same(const tl_product *p, const tl_product *q)
{
    return p->m == q->m && p->n == q->n && p->k == q->k && p->lda == q->lda && p->ldb == q->ldb &&
           p->ldc == q->ldc && p->beta == q->beta && p->trans_a == q->trans_a &&
           p->trans_b == q->trans_b && p->rows == q->rows && p->columns == q->columns &&
           p->copies == q->copies;
}

static uint64_t place(const tl_product *p)
{
    const int64_t parts[] = {p->m, p->n, p->k, p->lda, p->ldb, p->ldc, p->beta != 0,
                             p->trans_a, p->trans_b, p->rows, p->columns, p->copies};
    uint64_t h = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        h = (h ^ (uint64_t)parts[i]) * 0x9e3779b97f4a7c15u;
    return h >> 32;
}

tl_status tl_onednn_find(tl_ctx *ctx, const tl_product *whole, tl_onednn **out_kernels)
{
    int    whole_sum = whole->alpha == 1 && (whole->beta == 0 || whole->beta == 1);
    tl_onednn_table *t = NULL;
    *out_kernels = NULL;
    if (!whole_sum || !has_instructions()) return TL_OK;
    tl_status st = open_table(ctx, &t);
    if (st != TL_OK) return st;
    uint64_t    first = place(whole);
    tl_onednn **oldest = NULL;
    t->calls++;
    for (uint64_t i = first; i < first + PROBES; i++) {
        tl_onednn **slot = &t->slots[i % SLOTS];
        if (*slot && same(&(*slot)->shape, whole)) {
            (*slot)->used = t->calls;
            *out_kernels = *slot;
            return TL_OK;
        }
        if (!oldest || (*oldest && (!*slot || (*slot)->used < (*oldest)->used))) oldest = slot;
    }
    drop(*oldest);
    *oldest = NULL;
    st = onednn_make(ctx, t->engine, whole, oldest);
    if (*oldest) (*oldest)->used = t->calls;
    *out_kernels = *oldest;
    return st;
}

size_t tl_onednn_scratch(const tl_onednn *kernels) { return kernels->scratch; }

tl_status tl_onednn_run(const tl_onednn *kernels, int i, const uint16_t *a, const uint16_t *b,
                        float *c, void *scratch)
{
    const kernel   *k = &kernels->kernels[i];
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, k->a},
                              {DNNL_ARG_WEIGHTS, k->b},
                              {DNNL_ARG_DST, k->c},
                              {DNNL_ARG_SCRATCHPAD, k->scratch}};
    int           before = omp_limit();
    dnnl_status_t st = dnnl_memory_set_data_handle(k->a, (void *)(uintptr_t)a);
    if (st == dnnl_success) st = dnnl_memory_set_data_handle(k->b, (void *)(uintptr_t)b);
    if (st == dnnl_success) st = dnnl_memory_set_data_handle(k->c, c);
    if (st == dnnl_success) st = dnnl_memory_set_data_handle(k->scratch, scratch);
    if (st == dnnl_success) st = dnnl_primitive_execute(k->run, k->stream, 4, args);
    omp_restore(before);
    return st == dnnl_success ? TL_OK : st == dnnl_out_of_memory ? TL_ENOMEM : TL_EBACKEND;
}

void tl_onednn_close(tl_ctx *ctx)
{
    tl_onednn_table *t = ctx->products;
    if (!t) return;
    for (int i = 0; i < SLOTS; i++) drop(t->slots[i]);
    (void)dnnl_engine_destroy(t->engine);
    free(t);
    ctx->products = NULL;
}

#else

void tl_onednn_open(void) {}

const char *tl_onednn_name(char *text, size_t size)
{
    (void)text, (void)size;
    return "none";
}

tl_status tl_onednn_sgemm(const tl_product *p, const float *a, const float *b, float *c)
{
    (void)p, (void)a, (void)b, (void)c;
    return TL_EBACKEND;
}

tl_status tl_onednn_find(tl_ctx *ctx, const tl_product *whole, tl_onednn **out_kernels)
{
    (void)ctx, (void)whole;
    *out_kernels = NULL;
    return TL_OK;
}

size_t tl_onednn_scratch(const tl_onednn *kernels)
{
    (void)kernels;
    return 0;
}

tl_status tl_onednn_run(const tl_onednn *kernels, int i, const uint16_t *a, const uint16_t *b,
                        float *c, void *scratch)
{
    (void)kernels, (void)i, (void)a, (void)b, (void)c, (void)scratch;
    return TL_EBACKEND;
}

void tl_onednn_close(tl_ctx *ctx) { (void)ctx; }

#endif

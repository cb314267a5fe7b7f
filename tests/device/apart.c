/* apart.c - implements a device for tests, which runs the CPU's kernels on memory that is protected
** while no kernel runs. Code that accesses a device tensor without copying it to the CPU crashes
** with it on any machine. The device lacks one operator, cumsum.
**
** With APART_LATE=SECONDS each kernel seems to take that long after its launch, until a download,
** also of no bytes, waits for it. With APART_COUNTS=1 the description of the device is the number
** of tensors that were copied. With APART_GPUS=N it seems to be N GPUs. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "engine/device.h"
#include "engine/launch.h"
#include "engine/plugin.h"
#include "tno/tno.h"

#define CAPACITY ((size_t)4 << 30) /* of address space */
#define CLASSES  64

typedef struct piece {
    size_t        at; /* from the start of the arena */
    int           class;
    struct piece *next;
} piece;

typedef struct apart {
    char     *arena;
    size_t    used;  /* bytes from the start */
    int       depth; /* kernels running: one may launch another */
    piece    *free[CLASSES], *taken;
    tl_memory info;
    double    late, owed; /* seconds: of one kernel; of all since the last download */
    int       uploads, downloads;
    char      text[80];
} apart;

/* ---- Memory ---------------------------------------------------------------------------------- */

static tl_status guard(tl_ctx *ctx, int open)
{
    apart *s = ctx->engine_state;
    if (s->used == 0 || mprotect(s->arena, s->used, open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0)
        return TL_OK;
    return tl_fail(ctx, TL_EDEVICE, "apart: mprotect failed");
}

static tl_status enter(tl_ctx *ctx)
{
    apart *s = ctx->engine_state;
    return s->depth++ > 0 ? TL_OK : guard(ctx, 1);
}

static tl_status leave(tl_ctx *ctx, tl_status st)
{
    apart    *s = ctx->engine_state;
    tl_status shut = --s->depth > 0 ? TL_OK : guard(ctx, 0);
    return st == TL_OK ? shut : st;
}

static tl_status allocate(tl_ctx *ctx, size_t bytes, void **out_p)
{
    apart *s = ctx->engine_state;
    int    class = 12; /* at least a page, the unit of protection */
    while (((size_t)1 << class) < bytes) class++;
    piece *p = s->free[class];
    if (p) {
        s->free[class] = p->next;
    } else {
        size_t size = (size_t)1 << class;
        if (size > CAPACITY - s->used || !(p = malloc(sizeof *p)))
            return tl_fail(ctx, TL_ENOMEM, "apart: out of memory: %zu bytes requested, %zu in use",
                           bytes, s->info.live);
        *p = (piece){.at = s->used, .class = class};
        s->used += size;
        if (s->depth > 0) (void)guard(ctx, 1);
    }
    p->next = s->taken;
    s->taken = p;
    s->info.live += (size_t)1 << class;
    if (s->info.live > s->info.peak) s->info.peak = s->info.live;
    *out_p = s->arena + p->at;
    return TL_OK;
}

static void release(tl_ctx *ctx, void *memory)
{
    apart  *s = ctx->engine_state;
    piece **at = &s->taken;
    while (*at && s->arena + (*at)->at != (char *)memory) at = &(*at)->next;
    piece *p = *at;
    if (!p) abort(); /* another device's memory, or released twice */
    *at = p->next;
    p->next = s->free[p->class];
    s->free[p->class] = p;
    s->info.live -= (size_t)1 << p->class;
}

static tl_status move(tl_ctx *ctx, void *to, const void *from, size_t bytes)
{
    tl_status st = enter(ctx);
    if (st == TL_OK) memcpy(to, from, bytes);
    return leave(ctx, st);
}

static tl_status upload(tl_ctx *ctx, void *to, const void *from, size_t bytes)
{
    ((apart *)ctx->engine_state)->uploads++;
    return move(ctx, to, from, bytes);
}

static tl_status download(tl_ctx *ctx, void *to, const void *from, size_t bytes)
{
    apart          *s = ctx->engine_state;
    struct timespec t = {(time_t)s->owed, (long)(1e9 * (s->owed - (double)(time_t)s->owed))};
    if (s->owed > 0) (void)nanosleep(&t, NULL);
    s->owed = 0;
    s->downloads += bytes > 0;
    return move(ctx, to, from, bytes);
}

static tl_memory memory(const tl_ctx *ctx) { return ((const apart *)ctx->engine_state)->info; }

static void reset_peak(tl_ctx *ctx)
{
    apart *s = ctx->engine_state;
    s->info.peak = s->info.live;
}

static void trim(tl_ctx *ctx) { (void)ctx; }

/* ---- Life ------------------------------------------------------------------------------------ */

static const char what[] = "apart: the CPU, on memory of its own";

static tl_status look(tl_ctx *ctx, int number, int *out_count, char *text, size_t size)
{
    const char *given = getenv("APART_GPUS");
    int         count = given ? atoi(given) : 1;
    if (number >= count)
        return tl_fail(ctx, TL_EDEVICE, "device 'apart' has %s, no number %d",
                       count == 1 ? "one GPU" : "few GPUs", number);
    *out_count = count;
    (void)snprintf(text, size, "%s", what);
    return TL_OK;
}

static tl_status open_device(tl_ctx *ctx, int number, void **out_state)
{
    char      text[64];
    int       count;
    tl_status st = look(ctx, number, &count, text, sizeof text);
    if (st != TL_OK) return st;
    apart *s = calloc(1, sizeof *s);
    if (!s) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    s->arena = mmap(NULL, CAPACITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->arena == MAP_FAILED) {
        free(s);
        return tl_fail(ctx, TL_ENOMEM, "apart: no address space for its arena");
    }
    const char *late = getenv("APART_LATE");
    s->late = late ? strtod(late, NULL) : 0;
    *out_state = s;
    return TL_OK;
}

static void forget(piece *p)
{
    while (p) {
        piece *next = p->next;
        free(p);
        p = next;
    }
}

static void close_device(tl_ctx *ctx)
{
    apart *s = ctx->engine_state;
    for (int i = 0; i < CLASSES; i++) forget(s->free[i]);
    forget(s->taken);
    (void)munmap(s->arena, CAPACITY);
    free(s);
}

static const char *about(tl_ctx *ctx)
{
    apart *s = ctx->engine_state;
    if (!getenv("APART_COUNTS")) return what;
    (void)snprintf(s->text, sizeof s->text, "%d uploads, %d downloads", s->uploads, s->downloads);
    return s->text;
}

/* The plans of the CPU serve, because they hold no memory of tensors. */
static const tl_tno_form *form(tl_ctx *ctx, const char *name)
{
    static tl_tno_form    own;
    const tl_tno_backend *b = NULL;
    if (tl_find_backend(ctx, name, &b) != TL_OK) return NULL;
    own = (tl_tno_form){b->plan, b->forward, b->backward, b->release, b->cache_size, NULL};
    return &own;
}

/* ---- Kernels --------------------------------------------------------------------------------- */

static void *stream(tl_ctx *ctx) { return ctx; } /* see tests/device/emulate_nccl.h */

#define X(name, in, out, n, r)                                                                     \
    static tl_status run_##name(tl_ctx *ctx, const tl_args *a)                                     \
    {                                                                                              \
        tl_status st = enter(ctx);                                                                 \
        if (st == TL_OK) st = ctx->kernels[TL_CPU][TL_OP_##name](ctx, a);                      \
        ((apart *)ctx->engine_state)->owed += ((apart *)ctx->engine_state)->late;                  \
        return leave(ctx, st);                                                                     \
    }
TL_OP_MAP(X, , , , , )
#undef X

static const tl_kernel kernels[] = {
#define X(name, in, out, n, r) TL_OP_##name == TL_OP_cumsum ? NULL : run_##name,
    TL_OP_MAP(X, , , , , )
#undef X
};

const tl_engine tl_engine_entry = {
    .abi = TL_ENGINE_ABI, .name = "apart", .look = look, .open = open_device, .close = close_device,
    .alloc = allocate, .release = release, .upload = upload, .download = download, .memory = memory,
    .reset_peak = reset_peak, .trim = trim, .about = about, .kernels = kernels,
    .precisions = 1u << TL_PRECISION_F32 | 1u << TL_PRECISION_BF16, .form = form,
    .link = "tests/nccl.so", .stream = stream,
};

/* apart.c - a device for tests: the CPU's kernels on memory that the program cannot touch while no
** kernel runs. What reads or writes a tensor of a device without bringing it over dies here, on any
** machine. It lacks one operator, cumsum. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/device.h"
#include "engine/plugin.h"

#define ROOM    ((size_t)4 << 30) /* reserved, not used */
#define CLASSES 64

typedef struct piece {
    size_t        at; /* from the start of the arena */
    int           class;
    struct piece *next;
} piece;

typedef struct apart {
    char     *arena;
    size_t    used;  /* from the start */
    int       depth; /* kernels running: one may launch another */
    piece    *free[CLASSES], *taken;
    tl_memory info;
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
    int    class = 12; /* a page at least, for it is pages that are shut */
    while (((size_t)1 << class) < bytes) class++;
    piece *p = s->free[class];
    if (p) {
        s->free[class] = p->next;
    } else {
        size_t size = (size_t)1 << class;
        if (size > ROOM - s->used || !(p = malloc(sizeof *p)))
            return tl_fail(ctx, TL_ENOMEM, "apart: out of memory: %zu bytes asked for, %zu in use",
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
    if (!p) abort(); /* not of this device, or released twice */
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

static tl_memory memory(const tl_ctx *ctx) { return ((const apart *)ctx->engine_state)->info; }

static void reset_peak(tl_ctx *ctx)
{
    apart *s = ctx->engine_state;
    s->info.peak = s->info.live;
}

static void trim(tl_ctx *ctx) { (void)ctx; }

/* ---- Life ------------------------------------------------------------------------------------ */

static const char what[] = "apart: the CPU, on memory of its own";

static tl_status look(tl_ctx *ctx, int card, int *out_cards, char *text, size_t size)
{
    if (card != 0)
        return tl_fail(ctx, TL_EDEVICE, "device 'apart' has one card, no number %d", card);
    *out_cards = 1;
    (void)snprintf(text, size, "%s", what);
    return TL_OK;
}

static tl_status open_device(tl_ctx *ctx, int card, void **out_state)
{
    char      text[64];
    int       cards;
    tl_status st = look(ctx, card, &cards, text, sizeof text);
    if (st != TL_OK) return st;
    apart *s = calloc(1, sizeof *s);
    if (!s) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    s->arena = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->arena == MAP_FAILED) {
        free(s);
        return tl_fail(ctx, TL_ENOMEM, "apart: no room for its arena");
    }
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
    (void)munmap(s->arena, ROOM);
    free(s);
}

static const char *about(tl_ctx *ctx)
{
    (void)ctx;
    return what;
}

/* Plans hold no memory of tensors, so they are the CPU's. */
static const tl_tno_form *form(tl_ctx *ctx, const char *name)
{
    static tl_tno_form    own;
    const tl_tno_backend *b = NULL;
    if (tl_find_backend(ctx, name, &b) != TL_OK) return NULL;
    own = (tl_tno_form){b->plan, b->forward, b->backward, b->release, b->kept};
    return &own;
}

/* ---- Kernels --------------------------------------------------------------------------------- */

#define X(name)                                                                                    \
    static tl_status run_##name(tl_ctx *ctx, const tl_args *a)                                     \
    {                                                                                              \
        tl_status st = enter(ctx);                                                                 \
        if (st == TL_OK) st = ctx->kernels->of[TL_CPU][TL_OP_##name](ctx, a);                      \
        return leave(ctx, st);                                                                     \
    }
TL_OP_MAP(X)
#undef X

static const tl_kernel_row kernels[] = {
#define X(name) {TL_OP_##name == TL_OP_cumsum ? TL_OPS : TL_OP_##name, run_##name},
    TL_OP_MAP(X)
#undef X
    {0},
};

static const tl_kernel_row *const tables[] = {kernels};

const tl_engine tl_engine_entry = {
    .abi = TL_ENGINE_ABI, .name = "apart", .look = look, .open = open_device, .close = close_device,
    .alloc = allocate, .release = release, .upload = move, .download = move, .memory = memory,
    .reset_peak = reset_peak, .trim = trim, .about = about, .tables = tables,
    .table_count = 1, .precisions = 1u << TL_FLOAT32 | 1u << TL_BF16, .form = form,
};

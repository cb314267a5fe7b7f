/* memory.c - counted memory with reuse: a steady training step asks the system for nothing.
**
** Sizes are rounded up to one of eight classes per power of two; a freed block waits in the list of
** its class for the next tensor of about that size. The lists together never hold more than the
** peak of what was in use, so memory stays within twice what the program needs. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device.h"

#define HEADER    64            /* bytes before each block; keeps the block aligned */
#define HUGE_PAGE (2u << 20)
#define CLASSES   (8 * 64)

typedef struct block {
    size_t        bytes; /* usable, rounded up to the class */
    int           class;
    struct block *next;
} block;

struct tl_cache {
    block    *free[CLASSES];
    tl_memory info;
    int64_t   fail_after; /* < 0: never */
};

#if defined(__SANITIZE_ADDRESS__)
#define REUSE 0 /* a sanitiser must see every use after free */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define REUSE 0
#endif
#endif
#ifndef REUSE
#define REUSE 1
#endif

/* The class of a size, and the size it is rounded up to. */
static int class_of(size_t bytes, size_t *rounded)
{
    size_t need = bytes < 256 ? 256 : bytes;
    int    log = 63 - __builtin_clzll((unsigned long long)need);
    size_t step = (size_t)1 << (log - 3);
    size_t eighth = (need - ((size_t)1 << log) + step - 1) / step; /* 0..8 */
    *rounded = ((size_t)1 << log) + eighth * step;
    return log * 8 + (int)eighth; /* eighth 8 is the next power's class 0 */
}

tl_status tl_memory_open(tl_ctx *ctx)
{
    ctx->cache = calloc(1, sizeof *ctx->cache);
    if (!ctx->cache) return TL_ENOMEM;
    ctx->cache->fail_after = -1;
    return TL_OK;
}

void tl_memory_close(tl_ctx *ctx)
{
    if (!ctx->cache) return;
    tl_memory_trim(ctx);
    free(ctx->cache);
    ctx->cache = NULL;
}

void tl_memory_trim(tl_ctx *ctx)
{
    for (int i = 0; i < CLASSES; i++) {
        while (ctx->cache->free[i]) {
            block *b = ctx->cache->free[i];
            ctx->cache->free[i] = b->next;
            free(b);
        }
    }
    ctx->cache->info.cached = 0;
    if (ctx->engine) ctx->engine->trim(ctx);
}

static block *from_system(size_t bytes)
{
    size_t whole = bytes + HEADER;
    size_t align = whole >= HUGE_PAGE ? HUGE_PAGE : HEADER;
    block *b = aligned_alloc(align, (whole + align - 1) / align * align);
#ifdef MADV_HUGEPAGE
    if (b && align == HUGE_PAGE) (void)madvise(b, whole, MADV_HUGEPAGE); /* only advice */
#endif
    return b;
}

void *tl_alloc(tl_ctx *ctx, size_t bytes)
{
    tl_cache *c = ctx->cache;
    size_t    rounded;
    if (bytes > SIZE_MAX / 4) goto fail;
    int class = class_of(bytes, &rounded);
    if (c->fail_after >= 0 && c->fail_after-- == 0) {
        c->fail_after = 0; /* all later ones fail too */
        goto fail;
    }
    block *b = c->free[class];
    if (b) {
        c->free[class] = b->next;
        c->info.cached -= b->bytes;
    } else {
        b = from_system(rounded);
        if (!b) {
            tl_memory_trim(ctx);
            b = from_system(rounded);
        }
        if (!b) goto fail;
        b->bytes = rounded;
        b->class = class;
    }
    c->info.live += b->bytes;
    if (c->info.live > c->info.peak) c->info.peak = c->info.live;
    return (char *)b + HEADER;
fail:
    (void)tl_fail(ctx, TL_ENOMEM, "out of memory: %zu bytes asked for, %zu in use", bytes,
                  c->info.live);
    return NULL;
}

void tl_release(tl_ctx *ctx, void *p)
{
    if (!p) return;
    tl_cache *c = ctx->cache;
    block    *b = (block *)((char *)p - HEADER);
    c->info.live -= b->bytes;
    if (!REUSE || c->info.cached + b->bytes > c->info.peak) {
        free(b);
        return;
    }
    c->info.cached += b->bytes;
    b->next = c->free[b->class];
    c->free[b->class] = b;
}

tl_status tl_grow(tl_ctx *ctx, void *where, size_t *room, size_t need, size_t size)
{
    void *old, *new;
    size_t more = *room < 32 ? 64 : 2 * *room;
    if (need <= *room) return TL_OK;
    if (more < need) more = need;
    if (more > SIZE_MAX / 4 / size) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    new = tl_alloc(ctx, more * size);
    if (!new) return TL_ENOMEM;
    memcpy(&old, where, sizeof old); /* through any type of pointer */
    if (old) memcpy(new, old, *room * size);
    tl_release(ctx, old);
    memcpy(where, &new, sizeof new);
    *room = more;
    return TL_OK;
}

void tl_count_tensor(tl_ctx *ctx, int by) { ctx->cache->info.tensors += by; }

void tl_alloc_fail_after(tl_ctx *ctx, int64_t n) { ctx->cache->fail_after = n; }

tl_memory tl_memory_info(const tl_ctx *ctx)
{
    if (!ctx->engine) return ctx->cache->info;
    tl_memory info = ctx->engine->memory(ctx);
    info.tensors = ctx->cache->info.tensors;
    return info;
}

void tl_memory_reset_peak(tl_ctx *ctx)
{
    ctx->cache->info.peak = ctx->cache->info.live;
    if (ctx->engine) ctx->engine->reset_peak(ctx);
}

/* memory.c - counted memory out of slabs: a steady training step asks the system for nothing.
**
** A slab is a large piece of the system's memory, cut into blocks that follow one another without
** gaps. A request takes a free block that it nearly fills and leaves the rest free; a block that is
** freed joins the free ones beside it. Free blocks wait in lists by size, eight per power of two.
** Small requests have slabs of their own, so that they do not cut up the room of large ones. What
** of a slab was never used is not resident. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memory.h"

#define HEADER    64 /* bytes before each block and each slab; keeps blocks aligned */
#define LEAST     256 /* a rest smaller than this stays with its block */
#define SMALL     (256u << 10)
#define HUGE_PAGE ((size_t)2 << 20)
#define CLASSES   (8 * 64)
#define LOOKS     16 /* blocks of a list that are looked at */

typedef struct block {
    size_t        bytes;       /* with its header */
    struct block *before;      /* the one in front of it in the slab; NULL: it is the first */
    struct block *next, *last; /* of a list of free ones */
    struct pool  *home;
    int           used, final; /* final: none follows in the slab */
} block;

typedef struct slab {
    struct slab *next;
    size_t       bytes; /* of its blocks */
} slab;

typedef struct pool {
    block *free[CLASSES];
    slab  *slabs;
    size_t least; /* bytes of a slab */
} pool;

typedef struct tl_cache {
    pool      small, large;
    tl_memory info;
    int64_t   fail_after; /* < 0: never */
} tl_cache;

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

tl_status tl_memory_open(tl_ctx *ctx)
{
    ctx->cache = calloc(1, sizeof *ctx->cache);
    if (!ctx->cache) return TL_ENOMEM;
    ctx->cache->small.least = 2 * HUGE_PAGE;
    ctx->cache->large.least = 32 * HUGE_PAGE;
    ctx->cache->fail_after = -1;
    return TL_OK;
}

/* ---- Blocks of a slab ------------------------------------------------------------------------ */

/* The list of blocks of this size. */
static block **list_of(pool *p, size_t bytes)
{
    int log = 63 - __builtin_clzll((unsigned long long)bytes);
    return &p->free[log * 8 + (int)(bytes >> (log - 3) & 7)];
}

static block *after(const block *b) { return b->final ? NULL : (block *)((char *)b + b->bytes); }

static void put(pool *p, block *b)
{
    block **list = list_of(p, b->bytes);
    b->used = 0;
    b->last = NULL;
    b->next = *list;
    if (*list) (*list)->last = b;
    *list = b;
}

static void take(pool *p, block *b)
{
    if (b->last)
        b->last->next = b->next;
    else
        *list_of(p, b->bytes) = b->next;
    if (b->next) b->next->last = b->last;
    b->used = 1;
}

/* Cuts b down to bytes; the rest is free. */
static void cut(pool *p, block *b, size_t bytes)
{
    if (b->bytes - bytes < LEAST) return;
    block *rest = (block *)((char *)b + bytes), *follower = after(b);
    *rest = (block){.bytes = b->bytes - bytes, .before = b, .home = p, .final = b->final};
    if (follower) follower->before = rest;
    b->bytes = bytes;
    b->final = 0;
    put(p, rest);
}

/* Frees b, together with its free neighbours. */
static void join(pool *p, block *b)
{
    block *front = b->before, *behind = after(b);
    if (behind && !behind->used) {
        take(p, behind);
        b->bytes += behind->bytes;
        b->final = behind->final;
    }
    if (front && !front->used) {
        take(p, front);
        front->bytes += b->bytes;
        front->final = b->final;
        b = front;
    }
    behind = after(b);
    if (behind) behind->before = b;
    put(p, b);
}

/* The tightest of the first few blocks in the first list that has one large enough. */
static block *fit(pool *p, size_t bytes)
{
    block *best = NULL;
    for (block **list = list_of(p, bytes); !best && list < p->free + CLASSES; list++) {
        block *b = *list;
        for (int i = 0; b && i < LOOKS; i++, b = b->next)
            if (b->bytes >= bytes && (!best || b->bytes < best->bytes)) best = b;
    }
    return best;
}

/* ---- The system ------------------------------------------------------------------------------ */

static void *from_system(tl_cache *c, size_t bytes)
{
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : HEADER;
    void  *p = aligned_alloc(align, (bytes + align - 1) / align * align);
    c->info.system++;
#ifdef MADV_HUGEPAGE
    if (p && align == HUGE_PAGE) (void)madvise(p, bytes, MADV_HUGEPAGE); /* only advice */
#endif
    return p;
}

/* A new slab with room for a block of this size; NULL: out of memory. */
static block *extend(tl_cache *c, pool *p, size_t bytes)
{
    size_t whole = bytes + HEADER > p->least ? bytes + HEADER : p->least;
    whole = (whole + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    slab *s = from_system(c, whole);
    if (!s) {
        whole = bytes + HEADER;
        s = from_system(c, whole);
    }
    if (!s) return NULL;
    *s = (slab){p->slabs, whole - HEADER};
    p->slabs = s;
    block *b = (block *)((char *)s + HEADER);
    *b = (block){.bytes = s->bytes, .home = p, .final = 1};
    c->info.cached += b->bytes;
    put(p, b);
    return b;
}

/* Gives back the slabs that no block uses; all of them if the context ends. */
static void shrink(tl_cache *c, pool *p, int all)
{
    for (slab **at = &p->slabs; *at;) {
        slab  *s = *at;
        block *first = (block *)((char *)s + HEADER);
        if (!all && (first->used || !first->final)) {
            at = &s->next;
            continue;
        }
        if (!all) take(p, first);
        c->info.cached -= s->bytes;
        *at = s->next;
        free(s);
    }
}

void tl_cache_trim(tl_ctx *ctx)
{
    shrink(ctx->cache, &ctx->cache->small, 0);
    shrink(ctx->cache, &ctx->cache->large, 0);
}

void tl_memory_close(tl_ctx *ctx)
{
    if (!ctx->cache) return;
    shrink(ctx->cache, &ctx->cache->small, 1);
    shrink(ctx->cache, &ctx->cache->large, 1);
    free(ctx->cache);
    ctx->cache = NULL;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static block *request(tl_ctx *ctx, size_t bytes)
{
    tl_cache *c = ctx->cache;
    pool     *p = bytes < SMALL ? &c->small : &c->large;
    block    *b;
    if (!REUSE) {
        b = from_system(c, bytes);
        if (b) *b = (block){.bytes = bytes};
        c->info.cached += b ? bytes : 0;
        return b;
    }
    b = fit(p, bytes);
    if (!b) b = extend(c, p, bytes);
    if (!b) {
        tl_cache_trim(ctx);
        b = extend(c, p, bytes);
    }
    if (!b) return NULL;
    take(p, b);
    cut(p, b, bytes);
    return b;
}

void *tl_alloc(tl_ctx *ctx, size_t bytes)
{
    tl_cache *c = ctx->cache;
    if (bytes > SIZE_MAX / 4) goto fail;
    if (c->fail_after >= 0 && c->fail_after-- == 0) {
        c->fail_after = 0; /* all later ones fail too */
        goto fail;
    }
    size_t whole = (bytes + HEADER + HEADER - 1) / HEADER * HEADER;
    block *b = request(ctx, whole < LEAST ? LEAST : whole);
    if (!b) goto fail;
    c->info.cached -= b->bytes;
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
    if (!REUSE) {
        free(b);
        return;
    }
    c->info.cached += b->bytes;
    join(b->home, b);
}

tl_status tl_reserve(tl_ctx *ctx, size_t bytes, const char *what)
{
    int   how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE; /* limits count it all the same */
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, how, -1, 0);
    if (p == MAP_FAILED) {
        tl_cache_trim(ctx);
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, how, -1, 0);
    }
    if (p == MAP_FAILED)
        return tl_fail(ctx, TL_ENOMEM, "out of memory: %s needs %zu bytes", what, bytes);
    (void)munmap(p, bytes);
    return TL_OK;
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

tl_memory tl_cache_info(const tl_ctx *ctx) { return ctx->cache->info; }

void tl_cache_reset_peak(tl_ctx *ctx) { ctx->cache->info.peak = ctx->cache->info.live; }

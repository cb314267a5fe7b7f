/* memory.c - the CPU's caching allocator: it counts memory and reuses it, so that a steady training
** step never allocates from the system.
**
** A slab is a large piece of the system's memory, cut into adjacent blocks. A request takes a
** free block that fits it closely and splits off the rest; a freed block merges with its free
** neighbours. Free blocks wait in lists by size, eight per power of two. Small requests have
** their own slabs, so that they do not fragment the memory for large ones. Pages of a slab that
** were never used are not resident. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memory.h"

#define HEADER          TL_ALIGNED /* bytes before each block and each slab */
#define MIN_BLOCK_BYTES 256 /* a smaller remainder stays with its block */
#define SMALL_BYTES     (256u << 10)
#define HUGE_PAGE       ((size_t)2 << 20)
#define CLASSES         (8 * 64)
#define MAX_COMPARED    16 /* blocks of a list that a search compares */

typedef struct block {
    size_t        bytes;       /* including its header */
    struct block *before;      /* the previous block in the slab, or NULL */
    struct block *next, *last; /* neighbours in a list of free blocks */
    struct pool  *home;
    int           used, final; /* final: the last block of its slab */
} block;

typedef struct slab {
    struct slab *next;
    size_t       bytes; /* total size of its blocks */
} slab;

typedef struct pool {
    block *free[CLASSES];
    slab  *slabs;
    size_t least; /* minimum bytes of a slab */
} pool;

typedef struct tl_cache {
    pool      small, large;
    tl_memory info;
    int64_t   fail_after; /* < 0: never */
} tl_cache;

#if defined(__SANITIZE_ADDRESS__)
#define REUSE 0 /* reuse would hide a use after free from the sanitiser */
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

/* Returns the list for free blocks of this size. */
static block **list_of(pool *p, size_t bytes)
{
    int log = 63 - __builtin_clzll((unsigned long long)bytes);
    return &p->free[log * 8 + (int)(bytes >> (log - 3) & 7)];
}

static block *after(const block *b) { return b->final ? NULL : (block *)((char *)b + b->bytes); }

static void block_put(pool *p, block *b)
{
    block **list = list_of(p, b->bytes);
    b->used = 0;
    b->last = NULL;
    b->next = *list;
    if (*list) (*list)->last = b;
    *list = b;
}

static void block_take(pool *p, block *b)
{
    if (b->last)
        b->last->next = b->next;
    else
        *list_of(p, b->bytes) = b->next;
    if (b->next) b->next->last = b->last;
    b->used = 1;
}

/* Shrinks b to bytes and frees the rest. */
static void block_split(pool *p, block *b, size_t bytes)
{
    if (b->bytes - bytes < MIN_BLOCK_BYTES) return;
    block *rest = (block *)((char *)b + bytes), *follower = after(b);
    *rest = (block){.bytes = b->bytes - bytes, .before = b, .home = p, .final = b->final};
    if (follower) follower->before = rest;
    b->bytes = bytes;
    b->final = 0;
    block_put(p, rest);
}

/* Frees b and merges it with its free neighbours. */
static void block_merge(pool *p, block *b)
{
    block *front = b->before, *behind = after(b);
    if (behind && !behind->used) {
        block_take(p, behind);
        b->bytes += behind->bytes;
        b->final = behind->final;
    }
    if (front && !front->used) {
        block_take(p, front);
        front->bytes += b->bytes;
        front->final = b->final;
        b = front;
    }
    behind = after(b);
    if (behind) behind->before = b;
    block_put(p, b);
}

/* Returns the smallest sufficient block among the first few of the first list that has one. */
static block *find_free(pool *p, size_t bytes)
{
    block *best = NULL;
    for (block **list = list_of(p, bytes); !best && list < p->free + CLASSES; list++) {
        block *b = *list;
        for (int i = 0; b && i < MAX_COMPARED; i++, b = b->next)
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
    /* a failure only costs speed */
    if (p && align == HUGE_PAGE) (void)madvise(p, bytes, MADV_HUGEPAGE);
#endif
    return p;
}

/* Adds a slab that can hold a block of this size and returns its block; NULL: out of memory. */
static block *add_slab(tl_cache *c, pool *p, size_t bytes)
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
    block_put(p, b);
    return b;
}

/* Returns unused slabs to the system; with all, which is for the end of the context, every slab. */
static void free_slabs(tl_cache *c, pool *p, int all)
{
    for (slab **at = &p->slabs; *at;) {
        slab  *s = *at;
        block *first = (block *)((char *)s + HEADER);
        if (!all && (first->used || !first->final)) {
            at = &s->next;
            continue;
        }
        if (!all) block_take(p, first);
        c->info.cached -= s->bytes;
        *at = s->next;
        free(s);
    }
}

void tl_cache_trim(tl_ctx *ctx)
{
    free_slabs(ctx->cache, &ctx->cache->small, 0);
    free_slabs(ctx->cache, &ctx->cache->large, 0);
}

void tl_memory_close(tl_ctx *ctx)
{
    if (!ctx->cache) return;
    free_slabs(ctx->cache, &ctx->cache->small, 1);
    free_slabs(ctx->cache, &ctx->cache->large, 1);
    free(ctx->cache);
    ctx->cache = NULL;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static block *take_block(tl_ctx *ctx, size_t bytes)
{
    tl_cache *c = ctx->cache;
    pool     *p = bytes < SMALL_BYTES ? &c->small : &c->large;
    block    *b;
    if (!REUSE) {
        b = from_system(c, bytes);
        if (b) *b = (block){.bytes = bytes};
        c->info.cached += b ? bytes : 0;
        return b;
    }
    b = find_free(p, bytes);
    if (!b) b = add_slab(c, p, bytes);
    if (!b) {
        tl_cache_trim(ctx);
        b = add_slab(c, p, bytes);
    }
    if (!b) return NULL;
    block_take(p, b);
    block_split(p, b, bytes);
    return b;
}

void *tl_alloc(tl_ctx *ctx, size_t bytes)
{
    tl_cache *c = ctx->cache;
    if (bytes > SIZE_MAX / 4) goto fail;
    if (c->fail_after >= 0 && c->fail_after-- == 0) {
        c->fail_after = 0; /* all later allocations fail too */
        goto fail;
    }
    size_t whole = (bytes + HEADER + HEADER - 1) / HEADER * HEADER;
    block *b = take_block(ctx, whole < MIN_BLOCK_BYTES ? MIN_BLOCK_BYTES : whole);
    if (!b) goto fail;
    c->info.cached -= b->bytes;
    c->info.live += b->bytes;
    if (c->info.live > c->info.peak) c->info.peak = c->info.live;
    return (char *)b + HEADER;
fail:
    (void)tl_fail(ctx, TL_ENOMEM, "out of memory: %zu bytes requested, %zu in use", bytes,
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
    block_merge(b->home, b);
}

tl_status tl_reserve(tl_ctx *ctx, size_t bytes, const char *what)
{
    int   how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE; /* resource limits still count it */
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

tl_status tl_grow(tl_ctx *ctx, void *where, size_t *capacity, size_t need, size_t size)
{
    void *old, *new;
    size_t more = *capacity < 32 ? 64 : 2 * *capacity;
    if (need <= *capacity) return TL_OK;
    if (more < need) more = need;
    if (more > SIZE_MAX / 4 / size) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    new = tl_alloc(ctx, more * size);
    if (!new) return TL_ENOMEM;
    memcpy(&old, where, sizeof old); /* where points to a pointer of any type */
    if (old) memcpy(new, old, *capacity * size);
    tl_release(ctx, old);
    memcpy(where, &new, sizeof new);
    *capacity = more;
    return TL_OK;
}

void tl_count_tensor(tl_ctx *ctx, int by) { ctx->cache->info.tensors += by; }

void tl_alloc_fail_after(tl_ctx *ctx, int64_t n) { ctx->cache->fail_after = n; }

tl_memory tl_cache_info(const tl_ctx *ctx) { return ctx->cache->info; }

void tl_cache_reset_peak(tl_ctx *ctx) { ctx->cache->info.peak = ctx->cache->info.live; }

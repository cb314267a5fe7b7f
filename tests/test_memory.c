/* test_memory.c - the allocator: blocks do not overlap, join when freed, and are used again. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "test.h"

#define LIVE 200

typedef struct piece {
    unsigned char *p;
    size_t         bytes;
    unsigned char  mark;
} piece;

static tl_ctx *ctx;

static int intact(const piece *b)
{
    for (size_t i = 0; i < b->bytes; i += b->bytes < 4096 ? 1 : 997)
        if (b->p[i] != b->mark) return 0;
    return b->bytes == 0 || b->p[b->bytes - 1] == b->mark;
}

/* Sizes from nothing to some MiB, spread evenly over their logarithms. */
static size_t some_size(tl_stream *s)
{
    return (size_t)tl_random_below(s, (int64_t)1 << tl_random_below(s, 23));
}

/* Random requests and releases: each block keeps what was written to it, and in the end nothing is
** in use. */
static void blocks_keep_their_bytes(void)
{
    piece     live[LIVE] = {{0}};
    tl_stream s = tl_stream_new(1, "blocks");
    for (int i = 0; i < 20000; i++) {
        piece *b = &live[tl_random_below(&s, LIVE)];
        if (b->p) {
            CHECK(intact(b));
            tl_release(ctx, b->p);
            b->p = NULL;
        } else {
            *b = (piece){.bytes = some_size(&s), .mark = (unsigned char)i};
            b->p = tl_alloc(ctx, b->bytes);
            CHECK(b->p && (uintptr_t)b->p % 64 == 0);
            if (b->p) memset(b->p, b->mark, b->bytes);
        }
    }
    for (int i = 0; i < LIVE; i++) {
        CHECK(!live[i].p || intact(&live[i]));
        tl_release(ctx, live[i].p);
    }
    CHECK(tl_memory_info(ctx).live == 0);
    tl_memory_trim(ctx);
    CHECK(tl_memory_info(ctx).cached == 0);
}

#ifdef __SANITIZE_ADDRESS__
#define SLABS 0 /* then each block is the system's own */
#else
#define SLABS 1
#endif

/* 64 blocks of 1 MiB, freed in three orders, leave room for blocks of 8 MiB; asking for the same
** again asks nothing of the system. */
static void freed_neighbours_join(void)
{
    for (int order = 0; order < 3; order++) {
        void   *p[64], *big[4];
        int64_t before;
        for (int i = 0; i < 64; i++) CHECK((p[i] = tl_alloc(ctx, 1 << 20)) != NULL);
        before = tl_memory_info(ctx).system;
        for (int i = 0; i < 64; i++) {
            int at = order == 0 ? i : order == 1 ? 63 - i : i * 37 % 64;
            tl_release(ctx, p[at]);
        }
        for (int i = 0; i < 4; i++) CHECK((big[i] = tl_alloc(ctx, 8 << 20)) != NULL);
        if (SLABS) CHECK(tl_memory_info(ctx).system == before);
        for (int i = 0; i < 4; i++) tl_release(ctx, big[i]);
    }
    tl_memory_trim(ctx);
    CHECK(tl_memory_info(ctx).cached == 0);
}

static void counts_are_right(void)
{
    tl_memory m0 = tl_memory_info(ctx), m;
    void     *p = tl_alloc(ctx, 3 << 20), *q = tl_alloc(ctx, 100);
    m = tl_memory_info(ctx);
    CHECK(m.live - m0.live >= (3 << 20) + 100 && m.live - m0.live < (3 << 20) + 1024);
    CHECK(m.peak >= m.live);
    tl_release(ctx, p);
    tl_release(ctx, q);
    m = tl_memory_info(ctx);
    CHECK(m.live == m0.live);
    tl_memory_reset_peak(ctx);
    CHECK(tl_memory_info(ctx).peak == m0.live);
    tl_release(ctx, NULL);
}

/* The n-th request and all later ones fail, and the message tells the size. */
static void requests_fail_when_told(void)
{
    tl_alloc_fail_after(ctx, 1);
    void *p = tl_alloc(ctx, 64);
    CHECK(p != NULL);
    CHECK(tl_alloc(ctx, 12345) == NULL && strstr(tl_errmsg(ctx), "12345") != NULL);
    CHECK(tl_alloc(ctx, 1) == NULL);
    tl_alloc_fail_after(ctx, -1);
    CHECK(tl_alloc(ctx, SIZE_MAX / 2) == NULL);
    if (SLABS) CHECK(tl_alloc(ctx, (size_t)1 << 60) == NULL); /* more than there is */
    tl_release(ctx, p);
}

int main(void)
{
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    int status = run_tests((const test[]){{"blocks keep their bytes", blocks_keep_their_bytes},
                                          {"freed neighbours join", freed_neighbours_join},
                                          {"counts are right", counts_are_right},
                                          {"requests fail when told", requests_fail_when_told},
                                          {0}});
    tl_ctx_free(ctx);
    return status;
}

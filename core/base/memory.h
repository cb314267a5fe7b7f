/* memory.h - memory of the CPU: counted, 64-byte aligned, reused by size; large blocks ask for huge
** pages. */
#ifndef TL_MEMORY_H
#define TL_MEMORY_H

#include "base/context.h"

tl_status tl_memory_open(tl_ctx *ctx);
void tl_memory_close(tl_ctx *ctx);
void *tl_alloc(tl_ctx *ctx, size_t bytes); /* NULL: out of memory, and the message is set */
void tl_release(tl_ctx *ctx, void *p);
/* Checks that the system would still give this many bytes, before a library is called that crashes
** where it gets none. TL_ENOMEM names what needed them. */
tl_status tl_reserve(tl_ctx *ctx, size_t bytes, const char *what);
/* Makes the array whose address is at where hold need elements of size bytes, at least twice what
** it held; *room is how many it holds, both 0 at first. On failure it is as it was. */
tl_status tl_grow(tl_ctx *ctx, void *where, size_t *room, size_t need, size_t size);
void tl_count_tensor(tl_ctx *ctx, int by);
/* What tl_memory_info, tl_memory_trim and tl_memory_reset_peak are for the CPU's memory alone. */
tl_memory tl_cache_info(const tl_ctx *ctx);
void tl_cache_trim(tl_ctx *ctx);
void tl_cache_reset_peak(tl_ctx *ctx);
/* For tests: the n-th allocation from now on and all later ones fail; n < 0 ends it. */
void tl_alloc_fail_after(tl_ctx *ctx, int64_t n);

#endif

/* memory.h - the CPU's caching allocator: memory is counted, 64-byte aligned and reused by size,
** and large blocks ask for huge pages. */
#ifndef TL_MEMORY_H
#define TL_MEMORY_H

#include "base/context.h"

#define TL_ALIGNED 64 /* bytes, of which the address of each block is a multiple */

tl_status tl_memory_open(tl_ctx *ctx);
void tl_memory_close(tl_ctx *ctx);
TL_PRIVATE void *tl_alloc(tl_ctx *ctx, size_t bytes); /* NULL: out of memory; the message is set */
TL_PRIVATE void tl_release(tl_ctx *ctx, void *p);
/* Checks that the process may still map this many bytes, before calling a library that crashes when
** its allocation fails. It tests the limits of the address space only: memory itself is given out
** as pages are written. TL_ENOMEM: the message contains what. */
TL_PRIVATE tl_status tl_reserve(tl_ctx *ctx, size_t bytes, const char *what);
/* Enlarges the array at *where, which has *capacity elements of size bytes (NULL and 0 at first),
** to hold at least need elements; it at least doubles. On failure the array is unchanged. */
TL_PRIVATE tl_status tl_grow(tl_ctx *ctx, void *where, size_t *capacity, size_t need, size_t size);
void tl_count_tensor(tl_ctx *ctx, int by);
/* tl_memory_info, tl_memory_trim and tl_memory_reset_peak, for the memory of the CPU alone. */
tl_memory tl_cache_info(const tl_ctx *ctx);
void tl_cache_trim(tl_ctx *ctx);
void tl_cache_reset_peak(tl_ctx *ctx);
/* For tests: after n more allocations, all fail; n < 0 ends this. */
TL_PRIVATE void tl_alloc_fail_after(tl_ctx *ctx, int64_t n);

#endif

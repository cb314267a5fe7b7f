/* threads.h - the thread pool of a context and its parallel loop. */
#ifndef TL_THREADS_H
#define TL_THREADS_H

#include "base/context.h"

tl_status tl_threads_open(tl_ctx *ctx); /* starts ctx->threads - 1 threads */
void tl_threads_close(tl_ctx *ctx);
int tl_threads_running(const tl_ctx *ctx); /* ctx->threads, but 1 in a child after fork() */
/* Returns how many processors this process may use, by its affinity and a quota, rounded up. */
int tl_processors(double quota);
/* Returns the number of parts, at least 1, into which tl_parallel splits 0..count-1. */
int64_t tl_parallel_parts(const tl_ctx *ctx, int64_t count, int64_t grain);
/* Splits 0..count-1 into contiguous parts of at least grain, one per thread, and runs body on
** them. The split, and so the results, depend only on count, grain and the number of threads. A
** call inside a body runs its own body once, over all of 0..count-1, on the thread that calls.
** After fork() the child runs all parts on the calling thread, with the same results. */
TL_PRIVATE void tl_parallel(const tl_ctx *ctx, int64_t count, int64_t grain, tl_body body,
                            void *user);

#endif

/* threads.c - the one parallel loop of the engine, on OpenMP. */
#include "internal.h"

void tl_parallel(const tl_ctx *ctx, int64_t count, int64_t grain, tl_body body, void *user)
{
    if (grain < 1) grain = 1;
    int64_t parts = count / grain < ctx->threads ? count / grain : ctx->threads;
    if (parts <= 1) {
        if (count > 0) body(user, 0, count, 0);
        return;
    }
    /* One part per iteration, so that the split holds whatever number of threads OpenMP grants. */
#pragma omp parallel for schedule(static, 1) num_threads((int)parts)
    for (int64_t t = 0; t < parts; t++)
        body(user, count * t / parts, count * (t + 1) / parts, (int)t);
}

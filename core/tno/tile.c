/* tile.c - makes the Toeplitz operators that relaxed.c and lazy.c compute by a backend, and lends
** the plans that these share. */
#include "tno/tile.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engine/plugin.h"

#define ALL_THREADS_FROM (1 << 16) /* numbers of an operator from which all threads compute it */

/* ---- Operators of the backend ---------------------------------------------------------------- */

/* Finds a backend that takes one coefficient per lag for any n, and caches their transform. */
static tl_status find_backend(tl_ctx *ctx, int64_t n, const tl_tno_backend **out_backend)
{
    for (const tl_plugin *p = ctx->plugins; p; p = p->next)
        if (p->entry->auto_length >= n && p->entry->cache_size) {
            *out_backend = p->entry;
            return TL_OK;
        }
    return tl_fail(ctx, TL_EBACKEND, "relaxed: no loaded backend takes %lld lags and caches their "
                   "transform", (long long)n);
}

/* The loop of a host with one thread. */
static void serially(const tl_host *h, int64_t count, int64_t grain, tl_body body, void *user)
{
    (void)h;
    (void)grain;
    if (count > 0) body(user, 0, count, 0);
}

tl_status tl_hosted_plan_open(tl_ctx *ctx, int64_t n, int64_t channels, int causal, int alone,
                              tl_hosted_plan *o)
{
    const tl_tno_backend *b = NULL;
    const tl_tno_problem  problem = {n, channels, causal, TL_CPU, NULL};
    tl_status             st = find_backend(ctx, n, &b);
    o->host = ctx->host;
    /* waking another thread costs more than the work */
    if (alone || n * channels < ALL_THREADS_FROM) {
        o->host.threads = 1;
        o->host.parallel = serially;
    }
    return st == TL_OK ? tl_plan_open(&o->host, TL_CPU, b, &problem, NULL, &o->plan) : st;
}

/* ---- Plans of tiles -------------------------------------------------------------------------- */

void tl_tile_plan_drop(tl_ctx *ctx, tl_tile_plan *p)
{
    if (!p || --p->refs > 0) return;
    for (tl_tile_plan **at = &ctx->tile_plans; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    tl_plan_close(&p->hosted.plan);
    tl_release(ctx, p->x);
    tl_release(ctx, p->y);
    free(p);
}

tl_status tl_tile_plan_find(tl_ctx *ctx, int64_t q, int64_t width, int owner,
                            tl_tile_plan **out_p)
{
    tl_tile_plan *p = ctx->tile_plans;
    for (; p; p = p->next) {
        const tl_tno_problem *of = &p->hosted.plan.problem;
        if (of->n == q && of->d == width && p->owner == owner) break;
    }
    if (p) {
        p->refs++;
        *out_p = p;
        return TL_OK;
    }
    p = calloc(1, sizeof *p);
    if (!p) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    *p = (tl_tile_plan){.refs = 1, .owner = owner};
    size_t    bytes = (size_t)(q * width) * sizeof(float);
    tl_status st = tl_hosted_plan_open(ctx, q, width, 0, owner != 0, &p->hosted);
    if (st == TL_OK && owner && !(p->x = tl_alloc(ctx, bytes))) st = TL_ENOMEM;
    if (st == TL_OK && !(p->y = tl_alloc(ctx, bytes))) st = TL_ENOMEM;
    if (st != TL_OK) {
        tl_tile_plan_drop(ctx, p);
        return st;
    }
    p->next = ctx->tile_plans;
    ctx->tile_plans = p;
    *out_p = p;
    return TL_OK;
}

tl_status tl_tile_plan_cache(tl_ctx *ctx, tl_tile_plan *p, const float *coef, float **out_cache)
{
    *out_cache = tl_alloc(ctx, (size_t)tl_plan_cache_floats(&p->hosted.plan) * sizeof(float));
    if (!*out_cache) return TL_ENOMEM;
    tl_tno_args a = {.b = 0, .coef = coef, .x = p->y, .y = p->y, .cache = *out_cache};
    return tl_plan_forward(&p->hosted.plan, &a); /* of no sequence: fills the cache */
}

void tl_kernel_part(const float *kernel, int64_t lags, int64_t d, int64_t first, int64_t count,
                    int64_t channel, int64_t channels, float *to)
{
    int64_t known = d - channel < channels ? d - channel : channels;
    memset(to, 0, (size_t)(count * channels) * sizeof *to);
    for (int64_t k = 0; k < count && first + k < lags && known > 0; k++)
        memcpy(to + k * channels, kernel + (first + k) * d + channel, (size_t)known * sizeof *to);
}

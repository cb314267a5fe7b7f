/* capture.c - records the storages and objects that a graph uses while it is being captured. */
#include "base/memory.h"
#include "engine/capture.h"

tl_status tl_graph_retain(tl_graph *g, tl_storage *s, int written)
{
    tl_status st = tl_grow(g->ctx, &g->used, &g->used_cap, g->used_count + 1, sizeof *g->used);
    if (st != TL_OK) return st;
    s->refs++;
    g->used[g->used_count++] = (tl_graph_used){s, s->data, s->version, written};
    return TL_OK;
}

tl_status tl_graph_use(tl_graph *g, tl_storage *s)
{
    if (s->capture == g->ctx->captures) return TL_OK;
    tl_status st = tl_graph_retain(g, s, 0);
    if (st == TL_OK) s->capture = g->ctx->captures;
    return st;
}

tl_status tl_graph_own(tl_graph *g, void *p, void (*release)(void *p))
{
    tl_status st = tl_grow(g->ctx, &g->owned, &g->owned_cap, g->owned_count + 1,
                           sizeof *g->owned);
    if (st == TL_OK)
        g->owned[g->owned_count++] = (tl_graph_owned){p, release};
    else
        release(p);
    return st;
}

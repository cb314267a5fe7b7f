/* graph.c - captures the launches of a GPU once and replays them as a whole (CUDA graphs). The
** device holds the graph itself; this file holds what the graph uses: storages, whose addresses
** must not change, operators, and the starting positions of its random streams. */
#include <stdlib.h>

#include "base/memory.h"
#include "engine/capture.h"
#include "engine/device.h"

int tl_has_graphs(const tl_ctx *ctx)
{
    return ctx->engine && ctx->engine->graph_begin && !ctx->profile;
}

/* ---- The capture ----------------------------------------------------------------------------- */

static tl_status graph_open_streams(tl_graph *g, tl_stream *const *streams, int count)
{
    if (count == 0) return TL_OK;
    g->drawn = tl_alloc(g->ctx, (size_t)count * sizeof *g->drawn);
    g->words = tl_alloc(g->ctx, (size_t)count * sizeof *g->words);
    if (!g->drawn || !g->words) return TL_ENOMEM;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < i; k++)
            if (g->words[k] == streams[i]->key)
                return tl_fail(g->ctx, TL_EINVAL, "graph: streams %d and %d have the same key",
                               k + 1, i + 1);
        g->drawn[i] = (tl_graph_drawn){streams[i], streams[i]->key, streams[i]->offset, 0};
        g->words[i] = streams[i]->key;
    }
    g->streams = count;
    return TL_OK;
}

/* Resets the streams to their positions before the capture, because only a replay draws numbers. */
static void graph_close_streams(tl_graph *g)
{
    for (int i = 0; i < g->streams; i++) {
        tl_graph_drawn *d = &g->drawn[i];
        d->blocks = d->stream->offset - d->begin;
        d->stream->offset = d->begin;
        d->stream = NULL;
    }
}

tl_status tl_graph_begin(tl_ctx *ctx, tl_stream *const *streams, int count, tl_graph **out_g)
{
    tl_graph *g;
    if (!tl_has_graphs(ctx))
        return tl_fail(ctx, TL_EDEVICE, "graph: device '%s' has no graphs", tl_device_name(ctx));
    if (ctx->capture) return tl_fail(ctx, TL_EINVAL, "graph: another capture is in progress");
    if (!(g = tl_alloc(ctx, sizeof *g))) return TL_ENOMEM;
    *g = (tl_graph){.ctx = ctx};
    ctx->refs++;
    tl_status st = graph_open_streams(g, streams, count);
    if (st == TL_OK) st = ctx->engine->graph_begin(ctx, g->words, count, &g->on_device);
    if (st != TL_OK) {
        tl_graph_free(g);
        return st;
    }
    ctx->captures++;
    ctx->capture = g;
    *out_g = g;
    return TL_OK;
}

tl_status tl_graph_end(tl_graph *g, tl_tensor *const *results, int count)
{
    tl_ctx   *ctx = g->ctx;
    tl_status st = TL_OK;
    if (ctx->capture != g) return tl_fail(ctx, TL_EINVAL, "graph: its capture has ended");
    for (size_t i = 0; i < g->used_count; i++)
        g->used[i].written = g->used[i].storage->version != g->used[i].version;
    for (int i = 0; i < count && st == TL_OK; i++) {
        tl_storage *s = results[i]->storage;
        if (s->uncomputed && s->capture != ctx->captures)
            st = tl_fail(ctx, TL_EINVAL, "graph: result %d was made in another capture", i + 1);
        else if (s->uncomputed)
            st = tl_graph_retain(g, s, 1);
    }
    if (st != TL_OK) return st; /* the capture continues until tl_graph_free */
    ctx->capture = NULL;
    graph_close_streams(g);
    st = ctx->engine->graph_end(ctx, g->on_device);
    if (st != TL_OK) tl_tape_clear(ctx);
    g->captured = st == TL_OK;
    return st;
}

void tl_graph_free(tl_graph *g)
{
    if (!g) return;
    tl_ctx *ctx = g->ctx;
    if (ctx->capture == g) { /* the tensors on the tape have no values */
        tl_tape_clear(ctx);
        graph_close_streams(g);
        ctx->capture = NULL;
    }
    if (g->on_device) ctx->engine->graph_free(ctx, g->on_device);
    for (size_t i = 0; i < g->owned_count; i++) g->owned[i].release(g->owned[i].p);
    for (size_t i = 0; i < g->used_count; i++) tl_storage_free(ctx, g->used[i].storage);
    tl_release(ctx, g->used);
    tl_release(ctx, g->owned);
    tl_release(ctx, g->drawn);
    tl_release(ctx, g->words);
    tl_release(ctx, g);
    tl_ctx_unref(ctx);
}

/* ---- A run ----------------------------------------------------------------------------------- */

static int graph_in_place(const tl_graph *g)
{
    for (size_t i = 0; i < g->used_count; i++) {
        const tl_storage *s = g->used[i].storage;
        if (s->device == TL_CPU || s->data != g->used[i].data) return 0;
    }
    return 1;
}

tl_status tl_graph_run(tl_graph *g, tl_stream *const *streams, int count, int *out_ran)
{
    tl_ctx *ctx = g->ctx;
    int     can_run = graph_in_place(g);
    if (ctx->capture) return tl_fail(ctx, TL_EINVAL, "graph: it cannot run during a capture");
    if (!g->captured) return tl_fail(ctx, TL_EINVAL, "graph: its capture failed");
    if (count != g->streams)
        return tl_fail(ctx, TL_EINVAL, "graph: captured with %d streams, run with %d", g->streams,
                       count);
    for (int i = 0; i < count; i++) {
        can_run = can_run && streams[i]->key == g->drawn[i].key;
        g->words[i] = streams[i]->offset - g->drawn[i].begin;
    }
    if (!can_run) {
        *out_ran = 0;
        return TL_OK;
    }
    tl_status st = ctx->engine->graph_run(ctx, g->on_device, g->words);
    if (st != TL_OK) return st;
    for (int i = 0; i < count; i++) streams[i]->offset += g->drawn[i].blocks;
    for (size_t i = 0; i < g->used_count; i++) {
        if (g->used[i].written) g->used[i].storage->version++;
        g->used[i].storage->uncomputed = 0;
    }
    *out_ran = 1;
    return TL_OK;
}

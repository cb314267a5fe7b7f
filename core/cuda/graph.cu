/* graph.cu - captures the work of the stream as a CUDA graph, instantiates it and launches it.
**
** The graph owns memory that is allocated during its capture. Every launch writes the part that
** tensors hold afterwards, so that it is freed only when the graph is freed and no tensor holds
** it. */
#include <stdlib.h>
#include <string.h>

#include "cuda/graph.cuh"

static tl_status copy_keys(tl_ctx *ctx, gpu_graph *g, const uint64_t *keys, int count)
{
    if (count == 0) return TL_OK;
    g->keys = (uint64_t *)malloc((size_t)count * sizeof *keys);
    if (!g->keys) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    memcpy(g->keys, keys, (size_t)count * sizeof *keys);
    g->count = count;
    return gpu_alloc(ctx, (size_t)count * sizeof *g->shifts, (void **)&g->shifts);
}

tl_status gpu_graph_begin(tl_ctx *ctx, const uint64_t *keys, int count, void **out_graph)
{
    gpu       *c = gpu_of(ctx);
    gpu_graph *g = (gpu_graph *)calloc(1, sizeof *g);
    if (!g) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    if (!c->graphs) gpu_spectra_unpin(c);
    g->next = c->graphs;
    c->graphs = g;
    tl_status   st = copy_keys(ctx, g, keys, count);
    cudaError_t began = cudaSuccess;
    gpu_note_peak(c);
    c->before = ctx->engine->memory(ctx);
    if (st == TL_OK) began = cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal);
    if (began != cudaSuccess) st = cuda_fail(ctx, began, "beginning a graph");
    if (st != TL_OK) {
        gpu_graph_destroy(c, g);
        return st;
    }
    c->capture = g;
    *out_graph = g;
    return TL_OK;
}

static cudaError_t end_capture(gpu *c, gpu_graph *g)
{
    cudaError_t st = cudaStreamEndCapture(c->stream, &g->captured);
    c->capture = NULL;
    g->held = g->own.count;
    for (int64_t i = 0; i < g->deferred.count; i++)
        (void)cudaFreeAsync(g->deferred.of[i], c->stream);
    g->deferred.count = 0;
    gpu_graph_sweep(c);
    return st;
}

tl_status gpu_graph_end(tl_ctx *ctx, void *graph)
{
    gpu        *c = gpu_of(ctx);
    gpu_graph  *g = (gpu_graph *)graph;
    cudaError_t st = end_capture(c, g);
    if (st == cudaSuccess && !g->wrong)
        st = cudaGraphInstantiateWithFlags(&g->exec, g->captured,
                                           cudaGraphInstantiateFlagAutoFreeOnLaunch);
    if (st != cudaSuccess) return cuda_fail(ctx, st, "ending a graph");
    if (g->wrong) return tl_fail(ctx, TL_EDEVICE, "cuda: the capture of a graph met %s", g->wrong);
    /* The graph allocates its memory here or at a launch, for which cached memory is returned. */
    gpu_note_peak(c);
    ctx->engine->trim(ctx);
    st = cudaGraphUpload(g->exec, c->stream);
    return st == cudaSuccess ? TL_OK : cuda_fail(ctx, st, "allocating the memory of a graph");
}

tl_status gpu_graph_run(tl_ctx *ctx, void *graph, const uint64_t *shifts)
{
    gpu_graph *g = (gpu_graph *)graph;
    tl_status  st = TL_OK;
    if (g->count > 0)
        st = ctx->engine->upload(ctx, g->shifts, shifts, (size_t)g->count * sizeof *shifts);
    if (st != TL_OK) return st;
    cudaError_t launched = cudaGraphLaunch(g->exec, gpu_of(ctx)->stream);
    if (launched == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        ctx->engine->trim(ctx);
        launched = cudaGraphLaunch(g->exec, gpu_of(ctx)->stream);
    }
    if (launched != cudaSuccess) return cuda_fail(ctx, launched, "launching a graph");
    g->launched = 1;
    return TL_OK;
}

void gpu_graph_free(tl_ctx *ctx, void *graph)
{
    gpu       *c = gpu_of(ctx);
    gpu_graph *g = (gpu_graph *)graph;
    if (c->capture == g && end_capture(c, g) != cudaSuccess) (void)cudaGetLastError();
    g->freed = 1;
    gpu_graph_sweep(c);
}

void gpu_graphs_close(tl_ctx *ctx)
{
    while (gpu_of(ctx)->graphs) gpu_graph_destroy(gpu_of(ctx), gpu_of(ctx)->graphs);
}

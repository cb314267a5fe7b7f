/* graph.cu - CUDA graphs: what the stream is asked to do, captured, instantiated and launched.
**
** Memory that is taken during a capture is the graph's. What of it tensors hold afterwards is
** written by every launch, and is given back when the graph is freed and no tensor has it. */
#include <stdlib.h>
#include <string.h>

#include "cuda.cuh"

typedef struct pointers {
    void **of;
    int64_t count, room;
} pointers;

struct card_graph {
    cudaGraph_t captured; /* kept as long as exec: the addresses are its */
    cudaGraphExec_t exec; /* NULL: not instantiated */
    uint64_t *keys;       /* of streams */
    uint64_t *shifts;     /* on the card, one for each */
    int count;
    pointers own;  /* taken during the capture; those that it gave back are taken out */
    pointers late; /* given back during the capture, taken before: given back after it */
    int64_t held;  /* how many of own tensors still have */
    const char *wrong; /* why the capture is of no use, or NULL */
    int launched, freed;
    struct card_graph *next;
};

static int push(pointers *list, void *p)
{
    if (list->count == list->room) {
        int64_t room = list->room ? 2 * list->room : 256;
        void  **of = (void **)realloc(list->of, (size_t)room * sizeof *of);
        if (!of) return 0;
        list->of = of;
        list->room = room;
    }
    list->of[list->count++] = p;
    return 1;
}

/* The place of p, looked for from the end; -1: none. */
static int64_t place_of(const pointers *list, const void *p)
{
    int64_t i = list->count - 1;
    while (i >= 0 && list->of[i] != p) i--;
    return i;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void destroy(card *c, card_graph *g)
{
    card_graph **at = &c->graphs;
    while (*at != g) at = &(*at)->next;
    *at = g->next;
    for (int64_t i = 0; i < g->own.count && g->launched; i++)
        (void)cudaFreeAsync(g->own.of[i], c->stream);
    if (g->launched) (void)cudaStreamSynchronize(c->stream);
    if (g->exec) (void)cudaGraphExecDestroy(g->exec);
    if (g->captured) (void)cudaGraphDestroy(g->captured);
    if (g->shifts) (void)cudaFreeAsync(g->shifts, c->stream);
    (void)cudaGetLastError(); /* what cannot be freed is no failure of what comes next */
    free(g->own.of);
    free(g->late.of);
    free(g->keys);
    free(g);
    if (!c->graphs) card_spectra_let_go(c);
}

/* Those that are freed and of which no tensor has memory; not in a capture, of which that would be
** a part. */
static void sweep(card *c)
{
    for (card_graph *g = c->graphs, *next; g && !c->capture; g = next) {
        next = g->next;
        if (g->freed && g->held == 0) destroy(c, g);
    }
}

void card_graph_took(card_graph *g, void *p)
{
    if (!push(&g->own, p)) g->wrong = "out of memory";
}

int card_graph_gave(card *c, void *p)
{
    card_graph *g = c->capture;
    int64_t     i = g ? place_of(&g->own, p) : -1;
    if (i >= 0) {
        g->own.of[i] = g->own.of[--g->own.count];
        return 0;
    }
    for (card_graph *old = c->graphs; old; old = old->next) {
        if (old == g || place_of(&old->own, p) < 0) continue;
        old->held--;
        sweep(c);
        return 1;
    }
    if (g && !push(&g->late, p)) g->wrong = "out of memory";
    return g != NULL;
}

/* ---- Random numbers -------------------------------------------------------------------------- */

const uint64_t *card_graph_shift(tl_ctx *ctx, uint64_t key)
{
    card_graph *g = card_of(ctx)->capture;
    if (!g) return NULL;
    for (int i = 0; i < g->count; i++)
        if (g->keys[i] == key) return g->shifts + i;
    g->wrong = "random numbers of a stream that it was not told of";
    return NULL;
}

/* ---- The four functions ---------------------------------------------------------------------- */

static tl_status take_keys(tl_ctx *ctx, card_graph *g, const uint64_t *keys, int count)
{
    if (count == 0) return TL_OK;
    g->keys = (uint64_t *)malloc((size_t)count * sizeof *keys);
    if (!g->keys) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    memcpy(g->keys, keys, (size_t)count * sizeof *keys);
    g->count = count;
    return card_alloc(ctx, (size_t)count * sizeof *g->shifts, (void **)&g->shifts);
}

tl_status card_graph_begin(tl_ctx *ctx, const uint64_t *keys, int count, void **out_graph)
{
    card       *c = card_of(ctx);
    card_graph *g = (card_graph *)calloc(1, sizeof *g);
    if (!g) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    g->next = c->graphs;
    c->graphs = g;
    tl_status   st = take_keys(ctx, g, keys, count);
    cudaError_t began = cudaSuccess;
    c->before = ctx->engine->memory(ctx);
    if (st == TL_OK) began = cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal);
    if (began != cudaSuccess) st = cuda_fail(ctx, began, "beginning a graph");
    if (st != TL_OK) {
        destroy(c, g);
        return st;
    }
    c->capture = g;
    *out_graph = g;
    return TL_OK;
}

static cudaError_t stop(card *c, card_graph *g)
{
    cudaError_t st = cudaStreamEndCapture(c->stream, &g->captured);
    c->capture = NULL;
    g->held = g->own.count;
    for (int64_t i = 0; i < g->late.count; i++) (void)cudaFreeAsync(g->late.of[i], c->stream);
    g->late.count = 0;
    sweep(c);
    return st;
}

tl_status card_graph_end(tl_ctx *ctx, void *graph)
{
    card       *c = card_of(ctx);
    card_graph *g = (card_graph *)graph;
    cudaError_t st = stop(c, g);
    if (st == cudaSuccess && !g->wrong)
        st = cudaGraphInstantiateWithFlags(&g->exec, g->captured,
                                           cudaGraphInstantiateFlagAutoFreeOnLaunch);
    if (st != cudaSuccess) return cuda_fail(ctx, st, "ending a graph");
    if (g->wrong) return tl_fail(ctx, TL_EDEVICE, "cuda: a graph met %s", g->wrong);
    /* It takes its memory here, or at a launch; what other steps kept for reuse makes room. */
    ctx->engine->trim(ctx);
    st = cudaGraphUpload(g->exec, c->stream);
    return st == cudaSuccess ? TL_OK : cuda_fail(ctx, st, "taking a graph's memory");
}

tl_status card_graph_run(tl_ctx *ctx, void *graph, const uint64_t *shifts)
{
    card_graph *g = (card_graph *)graph;
    tl_status   st = TL_OK;
    if (g->count > 0)
        st = ctx->engine->upload(ctx, g->shifts, shifts, (size_t)g->count * sizeof *shifts);
    if (st != TL_OK) return st;
    cudaError_t launched = cudaGraphLaunch(g->exec, card_of(ctx)->stream);
    if (launched == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        ctx->engine->trim(ctx);
        launched = cudaGraphLaunch(g->exec, card_of(ctx)->stream);
    }
    if (launched != cudaSuccess) return cuda_fail(ctx, launched, "launching a graph");
    g->launched = 1;
    return TL_OK;
}

void card_graph_free(tl_ctx *ctx, void *graph)
{
    card       *c = card_of(ctx);
    card_graph *g = (card_graph *)graph;
    if (c->capture == g && stop(c, g) != cudaSuccess) (void)cudaGetLastError();
    g->freed = 1;
    sweep(c);
}

void card_graphs_close(tl_ctx *ctx)
{
    while (card_of(ctx)->graphs) destroy(card_of(ctx), card_of(ctx)->graphs);
}

/* capture.cu - tracks the memory that is allocated and released during the capture of a graph, and
** the random streams that it draws from. */
#include <stdlib.h>

#include "cuda/graph.cuh"

static int push(pointers *list, void *p)
{
    if (list->count == list->capacity) {
        int64_t capacity = list->capacity ? 2 * list->capacity : 256;
        void  **of = (void **)realloc(list->of, (size_t)capacity * sizeof *of);
        if (!of) return 0;
        list->of = of;
        list->capacity = capacity;
    }
    list->of[list->count++] = p;
    return 1;
}

/* The index of p, or -1. It searches from the end, where recent allocations are. */
static int64_t place_of(const pointers *list, const void *p)
{
    int64_t i = list->count - 1;
    while (i >= 0 && list->of[i] != p) i--;
    return i;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

void gpu_graph_destroy(gpu *c, gpu_graph *g)
{
    gpu_graph **at = &c->graphs;
    gpu_note_peak(c);
    while (*at != g) at = &(*at)->next;
    *at = g->next;
    for (int64_t i = 0; i < g->own.count && g->launched; i++)
        (void)cudaFreeAsync(g->own.of[i], c->stream);
    if (g->launched) (void)cudaStreamSynchronize(c->stream);
    if (g->exec) (void)cudaGraphExecDestroy(g->exec);
    if (g->captured) (void)cudaGraphDestroy(g->captured);
    if (g->shifts) (void)cudaFreeAsync(g->shifts, c->stream);
    (void)cudaGetLastError(); /* clears errors, which must not fail the next call */
    free(g->own.of);
    free(g->deferred.of);
    free(g->keys);
    free(g);
}

void gpu_graph_sweep(gpu *c)
{
    for (gpu_graph *g = c->graphs, *next; g && !c->capture; g = next) {
        next = g->next;
        if (g->freed && g->held == 0) gpu_graph_destroy(c, g);
    }
}

void gpu_graph_allocated(gpu_graph *g, void *p)
{
    if (!push(&g->own, p)) g->wrong = "out of memory";
}

int gpu_graph_released(gpu *c, void *p)
{
    gpu_graph *g = c->capture;
    int64_t    i = g ? place_of(&g->own, p) : -1;
    if (i >= 0) {
        g->own.of[i] = g->own.of[--g->own.count];
        return 0;
    }
    for (gpu_graph *old = c->graphs; old; old = old->next) {
        if (old == g || place_of(&old->own, p) < 0) continue;
        old->held--;
        gpu_graph_sweep(c);
        return 1;
    }
    if (g && !push(&g->deferred, p)) g->wrong = "out of memory";
    return g != NULL;
}

/* ---- Random numbers -------------------------------------------------------------------------- */

const uint64_t *gpu_graph_shift(tl_ctx *ctx, uint64_t key)
{
    gpu_graph *g = gpu_of(ctx)->capture;
    if (!g) return NULL;
    for (int i = 0; i < g->count; i++)
        if (g->keys[i] == key) return g->shifts + i;
    g->wrong = "a random stream that was not declared for it";
    return NULL;
}

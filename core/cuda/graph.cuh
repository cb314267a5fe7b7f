/* graph.cuh - declares a CUDA graph. capture.cu tracks its memory; graph.cu captures and launches
** it. */
#ifndef TL_GRAPH_CUH
#define TL_GRAPH_CUH

#include "cuda/cuda.cuh"

typedef struct pointers {
    void **of;
    int64_t count, capacity;
} pointers;

struct gpu_graph {
    cudaGraph_t captured; /* lives as long as exec, whose addresses it owns */
    cudaGraphExec_t exec; /* NULL: not instantiated */
    uint64_t *keys;       /* of the random streams that it draws from */
    uint64_t *shifts;     /* in GPU memory, one for each key */
    int count;
    pointers own;  /* allocated during the capture and not released in it */
    pointers deferred; /* allocated before the capture and released in it: freed after it */
    int64_t held;  /* how many of `own` are still held by tensors */
    const char *wrong; /* why the capture failed, or NULL */
    int launched, freed;
    struct gpu_graph *next;
};

/* Frees g and the memory that it still owns. */
void gpu_graph_destroy(gpu *c, gpu_graph *g);
/* Destroys the graphs that were freed and of which no tensor holds memory. It does nothing during a
** capture, which would record the destruction. */
void gpu_graph_sweep(gpu *c);

#endif

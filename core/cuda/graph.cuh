/* graph.cuh - a CUDA graph: capture.cu counts its memory, graph.cu begins, ends and launches it. */
#ifndef TL_GRAPH_CUH
#define TL_GRAPH_CUH

#include "cuda/cuda.cuh"

typedef struct pointers {
    void **of;
    int64_t count, room;
} pointers;

struct gpu_graph {
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
    struct gpu_graph *next;
};

/* Frees g and what of its memory it still has. */
void gpu_graph_destroy(gpu *c, gpu_graph *g);
/* Destroys the graphs that are freed and of which no tensor has memory; does nothing during a
** capture, of which that would become a part. */
void gpu_graph_sweep(gpu *c);

#endif

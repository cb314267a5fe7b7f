/* capture.h - the struct of a graph. capture.c fills its lists while kernels are captured; graph.c
** begins, ends and replays it. */
#ifndef TL_CAPTURE_H
#define TL_CAPTURE_H

#include "engine/tensor.h"

typedef struct tl_graph_used { /* a storage that existed before, or a result's */
    tl_storage *storage;
    const void *data;
    unsigned version; /* at its first use in the capture */
    int written;
} tl_graph_used;

typedef struct tl_graph_owned { /* an object that is released with the graph */
    void *p;
    void (*release)(void *p);
} tl_graph_owned;

typedef struct tl_graph_drawn { /* a random stream, and how many blocks the graph draws from it */
    tl_stream *stream; /* during the capture */
    uint64_t key, begin, blocks;
} tl_graph_drawn;

struct tl_graph {
    tl_ctx *ctx;
    void *on_device;
    int captured;
    tl_graph_used *used;
    tl_graph_owned *owned;
    tl_graph_drawn *drawn;
    uint64_t *words; /* one per stream: keys for the capture, shifts for a replay */
    size_t used_count, used_cap, owned_count, owned_cap;
    int streams;
};

/* Adds s to the storages that g owns and uses. */
tl_status tl_graph_retain(tl_graph *g, tl_storage *s, int written);
/* During the capture of g: records the first use of s; hands p to g, which releases it at its end,
** or at once on failure. */
tl_status tl_graph_use(tl_graph *g, tl_storage *s);
tl_status tl_graph_own(tl_graph *g, void *p, void (*release)(void *p));

#endif

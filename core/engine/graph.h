/* graph.h - what a graph holds: capture.c fills its lists while kernels are captured, graph.c
** begins, ends and runs it. */
#ifndef TL_GRAPH_H
#define TL_GRAPH_H

#include "engine/tensor.h"

typedef struct tl_graph_used { /* a storage of before the capture, or of a result */
    tl_storage *storage;
    const void *data;
    unsigned version; /* when it was first used */
    int written;
} tl_graph_used;

typedef struct tl_graph_owned { /* what is to be released with the graph */
    void *p;
    void (*release)(void *p);
} tl_graph_owned;

typedef struct tl_graph_drawn { /* of a stream of random numbers */
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
    uint64_t *words; /* one for each stream: what the device is given */
    size_t used_count, used_room, owned_count, owned_room;
    int streams;
};

/* Makes g an owner of s. */
tl_status tl_graph_hold(tl_graph *g, tl_storage *s, int written);
/* While g is captured: g uses s from now on; g releases p at its end, or at once on failure. */
tl_status tl_graph_use(tl_graph *g, tl_storage *s);
tl_status tl_graph_own(tl_graph *g, void *p, void (*release)(void *p));

#endif

/* device.h - what the shared object of a device other than the CPU exports: memory, and kernels for
** the operators' table (launch.h). It is loaded when a context is put on that device, shares the
** engine's own structs and is therefore of the same build. */
#ifndef TL_DEVICE_H
#define TL_DEVICE_H

#include "engine/launch.h"

#define TL_ENGINE_ABI 4u

/* What of a backend computes, as in tl_tno_backend; the rest is true on every device. The pointers
** in tl_tno_args are the device's. */
typedef struct tl_tno_form {
    tl_status (*plan)(const tl_host *h, const tl_tno_problem *p, void **out_plan);
    tl_status (*forward)(void *plan, const tl_tno_args *a);
    tl_status (*backward)(void *plan, const tl_tno_args *a);
    void (*release)(void *plan);
    int64_t (*kept)(void *plan); /* NULL: keeps nothing */
} tl_tno_form;

/* All functions but look, open and form are called on a context whose state is set. Kernels may run
** later than they are launched; download, even of nothing, waits for what was launched before. */
typedef struct tl_engine {
    uint32_t abi; /* TL_ENGINE_ABI */
    const char *name;
    /* How many cards there are, and in about what one of them, from 0, is: card, driver, libraries.
    ** Opens none. TL_EDEVICE, with a message that says what is missing. */
    tl_status (*look)(tl_ctx *ctx, int card, int *out_cards, char *about, size_t size);
    /* card: which of several, from 0. TL_EDEVICE as look */
    tl_status (*open)(tl_ctx *ctx, int card, void **out_state);
    void (*close)(tl_ctx *ctx);
    tl_status (*alloc)(tl_ctx *ctx, size_t bytes, void **out_p); /* TL_ENOMEM, with sizes */
    void (*release)(tl_ctx *ctx, void *p);
    /* may end later than it returns, but has read from by then */
    tl_status (*upload)(tl_ctx *ctx, void *to, const void *from, size_t bytes);
    tl_status (*download)(tl_ctx *ctx, void *to, const void *from, size_t bytes);
    tl_memory (*memory)(const tl_ctx *ctx);
    void (*reset_peak)(tl_ctx *ctx);
    void (*trim)(tl_ctx *ctx);          /* gives what is kept for reuse back to the card */
    const char *(*about)(tl_ctx *ctx);  /* as look says; until the context ends */
    const tl_kernel_row *const *tables; /* each ended by {0} */
    int table_count;
    unsigned precisions; /* that its products have: bit 1 << kind for each */
    /* its form of a backend, or NULL: it has none */
    const tl_tno_form *(*form)(tl_ctx *ctx, const char *name);
    /* Graphs (graph.c); all NULL if it has none. Between begin and end what is launched is
    ** captured and what copies between the device and the CPU fails. Random numbers of stream
    ** keys[i] are drawn shifts[i] blocks further on than captured. What was taken during the
    ** capture and not given back stays until both the graph is freed and it is given back. */
    tl_status (*graph_begin)(tl_ctx *ctx, const uint64_t *keys, int count, void **out_graph);
    tl_status (*graph_end)(tl_ctx *ctx, void *graph);
    tl_status (*graph_run)(tl_ctx *ctx, void *graph, const uint64_t *shifts);
    void (*graph_free)(tl_ctx *ctx, void *graph); /* ends its capture if that is going on */
} tl_engine;

#ifdef __cplusplus
extern "C"
#else
extern
#endif
TL_EXPORT const tl_engine tl_engine_entry;

void tl_device_close(tl_ctx *ctx);

#endif

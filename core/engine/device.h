/* device.h - the interface to a device other than the CPU: its shared object exports memory
** functions and kernels for the operators' table (launch.h). It shares the engine's structs, so it
** must come from the same build. */
#ifndef TL_DEVICE_H
#define TL_DEVICE_H

#include "base/context.h"

#define TL_ENGINE_ABI 7u

/* All functions but look, open and form need a context whose engine_state is set. Kernels may still
** be running when their launch returns; download, even of 0 bytes, waits for all earlier
** launches. */
typedef struct tl_engine {
    uint32_t abi; /* TL_ENGINE_ABI */
    const char *name;
    /* Reports how many GPUs there are, and in about the GPU, driver and libraries of one of them,
    ** numbered from 0. It opens none. TL_EDEVICE: the message says what is missing. */
    tl_status (*look)(tl_ctx *ctx, int gpu, int *out_gpus, char *about, size_t size);
    /* gpu: the number of a GPU, from 0. TL_EDEVICE as look */
    tl_status (*open)(tl_ctx *ctx, int gpu, void **out_state);
    void (*close)(tl_ctx *ctx);
    /* TL_ENOMEM; the message has sizes */
    tl_status (*alloc)(tl_ctx *ctx, size_t bytes, void **out_p);
    void (*release)(tl_ctx *ctx, void *p);
    /* Asynchronous, except that it has read from when it returns. */
    tl_status (*upload)(tl_ctx *ctx, void *to, const void *from, size_t bytes);
    tl_status (*download)(tl_ctx *ctx, void *to, const void *from, size_t bytes);
    tl_memory (*memory)(const tl_ctx *ctx);
    void (*reset_peak)(tl_ctx *ctx);
    void (*trim)(tl_ctx *ctx);          /* returns cached memory to the driver */
    const char *(*about)(tl_ctx *ctx);  /* the text of look; valid until close */
    /* in the order of tl_op; NULL where the device has none */
    tl_status (*const *kernels)(tl_ctx *ctx, const struct tl_args *a);
    unsigned precisions; /* supported tl_precision_kinds: bit 1 << kind for each */
    /* the device's form of a backend, or NULL if it has none */
    const struct tl_tno_form *(*form)(tl_ctx *ctx, const char *name);
    /* Graphs (graph.c); all NULL if the device has none. Between begin and end, launches are
    ** captured, and copies between the device and the CPU fail. A replay draws random numbers of
    ** stream keys[i] shifts[i] blocks further on than the capture did. Memory that was allocated
    ** during the capture and not released in it stays allocated until it is released and the graph
    ** is freed. */
    tl_status (*graph_begin)(tl_ctx *ctx, const uint64_t *keys, int count, void **out_graph);
    tl_status (*graph_end)(tl_ctx *ctx, void *graph);
    tl_status (*graph_run)(tl_ctx *ctx, void *graph, const uint64_t *shifts);
    void (*graph_free)(tl_ctx *ctx, void *graph); /* also ends a capture in progress */
    /* Ranks (core/ranks/link.h): the shared object that moves tensors between such devices, beside
    ** the library, and the stream to which it adds copies; NULL if there is none. */
    const char *link;
    void *(*stream)(tl_ctx *ctx);
    /* Implements tl_range; NULL: the device was built without a profiler's interface. */
    void (*range)(const char *name);
} tl_engine;

#ifdef __cplusplus
extern "C"
#else
extern
#endif
TL_EXPORT const tl_engine tl_engine_entry;

/* Allocate and release memory on a device. */
tl_status tl_device_alloc(tl_ctx *ctx, tl_device device, size_t bytes, void **out_p);
void tl_device_release(tl_ctx *ctx, tl_device device, void *p);
void tl_device_close(tl_ctx *ctx);

#endif

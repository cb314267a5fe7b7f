/* context.h - the struct behind tl_ctx, which all files of core share. A folder above base keeps a
** few numbers in it, and anything larger in a struct of its own behind a pointer. */
#ifndef TL_CONTEXT_H
#define TL_CONTEXT_H

#include "backend.h"
#include "toeplab.h"

/* Marks what libtoeplab-lab, the shared objects of devices and tests of the program call. Programs
** must not: the library exports it under a version of its own, which changes with every release. */
#define TL_PRIVATE TL_API

struct tl_args; /* engine/launch.h */

struct tl_ctx {
    int refs; /* 1 for the caller, 1 per storage and 1 per object that outlives a call */
    int groups; /* how many of refs are groups of ranks, which have no memory on a device */
    int threads;
    int recording;
    int multiplies; /* the BLAS and oneDNN are initialised (products/gemm.c) */
    tl_precision_kind precision;
    char message[1024];
    int first_axis; /* the number by which messages call axis 0, and position 0 of an axis */
    struct tl_pool *pool;       /* base/threads.c */
    struct tl_cache *cache;     /* base/memory.c */
    /* The kernels of each device, in the order of tl_op; NULL: the device lacks it. */
    tl_status (*const *kernels[TL_DEVICES])(tl_ctx *ctx, const struct tl_args *a);
    struct tl_profile *profile; /* engine/profile.c; NULL: off */
    tl_device device; /* where kernels run */
    tl_graph *capture; /* NULL: kernels run when they are launched (engine/graph.c) */
    unsigned captures; /* number of captures begun so far */
    const struct tl_engine *engine; /* NULL on the CPU (engine/device.h) */
    void *engine_state;
    int gpu; /* which of the GPUs of the engine, from 0 */
    char device_name[64];
    struct tl_node *tape; /* engine/tape.h */
    int64_t tape_len, tape_cap;
    int64_t tape_base; /* where the tape of a backward pass inside another begins (engine/func.c) */
    int scopes; /* how many are open (engine/tensor.c) */
    int scope_base; /* how many of them do not take in the tensors that are made now */
    tl_tensor *scoped; /* a list of the tensors in scopes, those in inner scopes first */
    int64_t gradients; /* how many tl_gradients have begun (engine/chosen.c) */
    int64_t choice; /* which of these is running the backward pass; 0: none of them */
    struct tl_running_func *func; /* whose backward function is running (engine/func.c), or NULL */
    /* During tl_backward: the gradient 1 of the loss. It is compared by address, because reading
    ** its value back from a GPU would stall the stream. */
    tl_tensor *one;
    tl_host host;              /* the functions for plugins; host.self is this context */
    struct tl_plugin *plugins; /* a list in the order of loading, owned (engine/plugin.c) */
    char **problems; /* messages about plugin files that could not be used */
    int problem_count;
    char *choices; /* the choices of "auto" (tno/choose.c), or NULL */
    char *info; /* text of tl_build_info */
    struct tl_transform_plan *transform_plans; /* the cache of ops/transform.c */
    struct tl_tile_plan *tile_plans; /* those in use by tno/tile.c */
    struct tl_background *background; /* the thread of tno/lazy.c, or NULL */
    struct tl_onednn_table *products; /* the kernels of products/onednn.c */
    /* Closes and frees the context. context.c sets this pointer, because it must close state of
    ** folders that base may not include. */
    void (*close)(tl_ctx *ctx);
};

/* TL_EINVAL: `got`, the size in a struct of options, is not this version's. */
TL_PRIVATE tl_status tl_check_bytes(tl_ctx *ctx, const char *op, size_t got, size_t expected);

/* Returns the number by which a message calls an axis; negative axes stay as they are. */
static inline long long tl_axis_number(const tl_ctx *ctx, int axis)
{
    return axis < 0 ? axis : (long long)axis + ctx->first_axis;
}

/* Returns the number by which a message calls a position of an axis. */
static inline long long tl_position(const tl_ctx *ctx, int64_t i)
{
    return (long long)i + ctx->first_axis;
}

/* Drops one reference; the last one closes the context. */
static inline void tl_ctx_unref(tl_ctx *ctx)
{
    if (--ctx->refs == 0) ctx->close(ctx);
}

#endif

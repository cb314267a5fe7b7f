/* context.h - the struct behind tl_ctx, which every file of core is handed. What belongs to a room
** above this one is a pointer to a struct that only that room knows. */
#ifndef TL_CONTEXT_H
#define TL_CONTEXT_H

#include "backend.h"
#include "toeplab.h"

struct tl_ctx {
    int refs; /* the caller's, one per storage and one per object that outlives a call */
    int threads;
    int recording;
    int multiplies; /* the libraries of products have what they need (ops/gemm.c) */
    tl_precision_kind precision;
    char message[1024];
    struct tl_pool *pool;       /* base/threads.c */
    struct tl_cache *cache;     /* base/memory.c */
    struct tl_kernels *kernels; /* engine/launch.h */
    struct tl_profile *profile; /* engine/profile.c; NULL: off */
    tl_device device; /* where kernels run */
    tl_graph *capture; /* NULL: kernels run when they are launched (engine/graph.c) */
    unsigned captures; /* begun so far */
    const struct tl_engine *engine; /* of a device that is not the CPU (engine/device.h) */
    void *engine_state;
    char device_name[64];
    struct tl_node *tape; /* engine/tape.h */
    int64_t tape_len, tape_cap;
    /* While tl_backward walks: the gradient 1 of the loss. It is compared by address, because
    ** reading its value back from a GPU would stall the stream. */
    tl_tensor *one;
    tl_host host;              /* what plugins are given; host.self is this context */
    struct tl_plugin *plugins; /* list, in order of loading; owned (engine/plugin.c) */
    /* plugin files that could not be used: NUL-ended strings, ended by an empty one */
    char *problems;
    char *choices;         /* lines (tno/choose.c), or NULL */
    char *info;            /* text of tl_build_info */
    void *transform_plans; /* the cache of ops/transform.c */
    void *products;        /* the kernels of ops/onednn.c */
    /* Frees the context. context.c sets it, because everything that is to be closed lies in rooms
    ** above this one. */
    void (*close)(tl_ctx *ctx);
};

/* Drops one of refs; the last one closes the context. */
static inline void tl_ctx_unref(tl_ctx *ctx)
{
    if (--ctx->refs == 0) ctx->close(ctx);
}

#endif

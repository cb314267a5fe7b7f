/* ops.h - what context.c asks of the operators: their tables of kernels, and an end. */
#ifndef TL_OPS_H
#define TL_OPS_H

#include "engine/launch.h"

/* The CPU's tables, one per file of operators; context.c lists them. */
extern const tl_kernel_row tl_cpu_elementwise[], tl_cpu_binary[], tl_cpu_matmul[], tl_cpu_reduce[],
    tl_cpu_shape[], tl_cpu_gather[], tl_cpu_softmax[], tl_cpu_norm[], tl_cpu_batch_norm[],
    tl_cpu_conv[], tl_cpu_transform[], tl_cpu_mlp[];

void tl_transforms_close(tl_ctx *ctx); /* frees the plans of transform.c */

#endif

/* ops.h - declares the tables of CPU kernels, one for each file of operators. */
#ifndef TL_OPS_H
#define TL_OPS_H

#include "engine/launch.h"

/* context.c registers these. */
extern const tl_kernel_row tl_cpu_elementwise[], tl_cpu_binary[], tl_cpu_matmul[], tl_cpu_reduce[],
    tl_cpu_shape[], tl_cpu_gather[], tl_cpu_sort[], tl_cpu_softmax[], tl_cpu_loss[],
    tl_cpu_norm[], tl_cpu_batch_norm[], tl_cpu_conv[], tl_cpu_transform[], tl_cpu_mlp[],
    tl_cpu_optim[], tl_cpu_random[];

void tl_transforms_close(tl_ctx *ctx); /* frees the cached plans of transform.c */

#endif

/* launch.h - kernels: their arguments, their table, and how one is launched.
**
** An operator has three parts, side by side in one file:
**   1. The public function checks shapes, creates the output, launches a kernel and records the
**   call.
**   2. Each device has a kernel, listed in that device's table, so that a new device fills a table
**      and changes no operator.
**   3. The gradient function (tape.h) launches kernels or calls operators, and passes each gradient
**      to tl_accumulate. */
#ifndef TL_LAUNCH_H
#define TL_LAUNCH_H

#include "engine/storage.h"

/* clang-format off */
#define TL_OP_MAP(X) \
    X(copy) X(fill) X(unary) X(unary_grad) X(binary) X(pick) X(reduce_to) X(affine) X(axpy) \
    X(gate) X(gate_grad) X(matmul) X(spread) X(reduce) X(reduce_grad) X(argmax) X(cumsum) \
    X(transpose) X(slice) X(paste) X(gather) X(gather_grad) X(argsort) X(topk) X(softmax) \
    X(softmax_grad) X(log_softmax) X(log_softmax_grad) X(cross_entropy) X(norm) X(norm_grad) \
    X(batch_norm) X(batch_norm_grad) X(conv) X(conv_grad) X(transform) X(uniform) X(normal) \
    X(integers) X(places) X(dropout) X(adam) X(sgd) X(norm2) X(tno) X(tno_grad) X(decay) \
    X(decay_grad) X(windows) X(recurrence) X(mlp) X(mlp_grad) X(selective_scan) \
    X(selective_scan_grad) X(linear_recurrence) X(linear_recurrence_grad)
/* clang-format on */

typedef enum tl_op {
#define X(name) TL_OP_##name,
    TL_OP_MAP(X)
#undef X
    TL_OPS
} tl_op;

#define TL_ARGS 8
/* The arguments of a kernel. A comment above each kernel says what the entries mean; unused ones
** are NULL or 0. */
typedef struct tl_args {
    tl_tensor *in[TL_ARGS];
    tl_tensor *out[TL_ARGS];
    int64_t i[TL_ARGS];
    double f[TL_ARGS];
    tl_shape shape[2]; /* on the tape: shapes of tensors that the gradient does not need */
    void *p;           /* e.g. a tl_tno */
} tl_args;

typedef tl_status (*tl_kernel)(tl_ctx *ctx, const tl_args *a);
typedef struct tl_kernel_row { /* {0} ends a table of rows */
    tl_op op;
    tl_kernel run;
} tl_kernel_row;

typedef struct tl_kernels { /* NULL: the device lacks that kernel */
    tl_kernel of[TL_DEVICES][TL_OPS];
} tl_kernels;

/* Moves the operands to the context's device and runs op there. TL_EDEVICE: the device lacks op. */
TL_PRIVATE tl_status tl_launch(tl_ctx *ctx, tl_op op, const tl_args *a);
/* The same on the CPU, whatever the context's device is. */
tl_status tl_launch_host(tl_ctx *ctx, tl_op op, const tl_args *a);

double tl_seconds(void); /* of a clock that only runs forward */

#endif

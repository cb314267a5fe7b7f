/* launch.h - kernels: what they are, the table of them, and how one is run.
**
** An operator is three things, side by side in one file:
**   1. the public function: checks shapes, makes the output, launches a kernel, records itself;
**   2. kernels: one per device, listed in that device's table, so that a new device fills a
**   table and changes nothing here;
**   3. a gradient function (tape.h): launches kernels or calls other operators, hands each result
**   to tl_accumulate. */
#ifndef TL_LAUNCH_H
#define TL_LAUNCH_H

#include "engine/tensor.h"

/* clang-format off */
#define TL_OP_MAP(X) \
    X(copy) X(fill) X(unary) X(unary_grad) X(binary) X(pick) X(reduce_to) X(affine) X(axpy) \
    X(gate) X(gate_grad) X(matmul) X(spread) X(reduce) X(reduce_grad) X(argmax) X(cumsum) \
    X(transpose) X(slice) X(paste) X(gather) X(gather_grad) \
    X(softmax) X(softmax_grad) X(log_softmax) X(log_softmax_grad) X(cross_entropy) X(norm) \
    X(norm_grad) X(batch_norm) X(batch_norm_grad) X(conv) X(conv_grad) X(transform) X(uniform) \
    X(normal) X(dropout) X(adam) X(sgd) X(norm2) X(tno) X(tno_grad) X(decay) X(decay_grad) \
    X(windows) X(recurrence) X(mlp) X(mlp_grad)
/* clang-format on */

typedef enum tl_op {
#define X(name) TL_OP_##name,
    TL_OP_MAP(X)
#undef X
    TL_OPS
} tl_op;

#define TL_ARGS 8
/* What a kernel gets. Which entry means what is written above each kernel. NULL and 0 where
** unused. */
typedef struct tl_args {
    tl_tensor *in[TL_ARGS];
    tl_tensor *out[TL_ARGS];
    int64_t i[TL_ARGS];
    double f[TL_ARGS];
    tl_shape shape[2]; /* on the tape: of tensors that a gradient need not keep */
    void *p;           /* anything else, e.g. a tl_tno */
} tl_args;

typedef tl_status (*tl_kernel)(tl_ctx *ctx, const tl_args *a);
typedef struct tl_kernel_row { /* tables of rows are ended by {0} */
    tl_op op;
    tl_kernel run;
} tl_kernel_row;

typedef struct tl_kernels { /* NULL: that device has no such kernel */
    tl_kernel of[TL_DEVICES][TL_OPS];
} tl_kernels;

/* Runs op on the context's device, to which it brings the operands. TL_EDEVICE if that lacks op. */
tl_status tl_launch(tl_ctx *ctx, tl_op op, const tl_args *a);
/* The same on the CPU, whatever the context computes on. */
tl_status tl_launch_host(tl_ctx *ctx, tl_op op, const tl_args *a);

/* ---- Profiles (profile.c) ---- */
const char *tl_op_name(tl_op op);
/* What tl_launch does in a profile. */
tl_status tl_profile_run(tl_ctx *ctx, tl_op op, tl_kernel kernel, const tl_args *a);

/* The CPU's tables of this room; context.c lists the tables of all rooms. */
extern const tl_kernel_row tl_cpu_tensor[], tl_cpu_random[], tl_cpu_optim[];

#endif

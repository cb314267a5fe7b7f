/* launch.h - kernels: their arguments, their table, and how one is launched.
**
** An operator has three parts, side by side in one file:
**   1. The public function checks shapes, creates the output, launches a kernel and records the
**      call.
**   2. Each device has a kernel, whose name says the device and the operator: tl_cpu_unary,
**      gpu_unary. A device's table lists its kernels, so that a new device changes no operator.
**   3. The gradient function (tape.h) launches kernels or calls operators, and passes each gradient
**      to tl_accumulate. */
#ifndef TL_LAUNCH_H
#define TL_LAUNCH_H

#include "engine/operators.h"
#include "engine/storage.h"

/* The arguments of a kernel, by the operator's names: a->unary.x. Those not given are NULL or 0. */
typedef struct tl_args {
    union {
        tl_list list;
#define X(op, in, out, n, r) struct tl_args_##op op;
        TL_OP_MAP(X, , , , , )
#undef X
    };
    tl_shape shape[2]; /* on the tape: shapes of tensors that the gradient does not need */
    void *p;           /* e.g. a tl_tno */
} tl_args;

/* The data of an optional argument. */
static inline float *tl_f32_or_null(const tl_tensor *t) { return t ? F32(t) : NULL; }

typedef tl_status (*tl_kernel)(tl_ctx *ctx, const tl_args *a);

/* tl_cpu_unary and so on: the kernel of each operator on the CPU. */
#define X(op, in, out, n, r) tl_status tl_cpu_##op(tl_ctx *ctx, const tl_args *a);
TL_OP_MAP(X, , , , , )
#undef X

/* Checks the operands against op's row in operators.h, moves them to the context's device and runs
** op there. TL_EDEVICE: the device lacks op. */
TL_PRIVATE tl_status tl_launch(tl_ctx *ctx, tl_op op, const tl_args *a);
/* The same on the CPU, whatever the context's device is. */
tl_status tl_launch_host(tl_ctx *ctx, tl_op op, const tl_args *a);

double tl_seconds(void); /* of a clock that only runs forward */

/* Defines the kernel tl_cpu_OP as one parallel loop of body over `count` items, in parts of
** `grain` or more. The rest initialises the job j, which body gets, from the operator's arguments
** a; count and grain may read a and j. */
#define TL_PARALLEL(op, count, grain, body, job_type, ...)      \
    tl_status tl_cpu_##op(tl_ctx *ctx, const tl_args *args)     \
    {                                                           \
        const struct tl_args_##op *a = &args->op;               \
        job_type j = {__VA_ARGS__};                             \
        tl_parallel(ctx, count, grain, body, &j);               \
        return TL_OK;                                           \
    }

#endif

/* tno.h - declares the choice of a backend and the kernels of the Toeplitz neural operator. */
#ifndef TL_TNO_H
#define TL_TNO_H

#include "engine/launch.h"

/* Names the candidate for "auto" that solves the problem fastest, by measurement on the CPU; on
** another device, where all candidates are one computation, the first that has a form for it.
** TL_EBACKEND: none accepts the problem, or none has a form. */
tl_status tl_choose(tl_ctx *ctx, const tl_tno_problem *p, const char **out_name);

/* Kernels for every device: they pass the pointers to the device's form of a backend. */
TL_PRIVATE tl_status tl_tno_kernel(tl_ctx *ctx, const tl_args *a);
TL_PRIVATE tl_status tl_tno_grad_kernel(tl_ctx *ctx, const tl_args *a);
/* Kernels of the CPU (decay.c). */
tl_status tl_decay_kernel(tl_ctx *ctx, const tl_args *a);
tl_status tl_decay_grad_kernel(tl_ctx *ctx, const tl_args *a);
/* TL_EINVAL if an element of t, which is on the CPU, is not in (0,1]; with nan set, NaN passes. op
** and name are for the message. */
tl_status tl_decay_range(const char *op, const char *name, const tl_tensor *t, int nan);

extern const tl_kernel_row tl_cpu_tno[], tl_cpu_recurrence[];

#endif

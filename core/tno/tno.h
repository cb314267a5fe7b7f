/* tno.h - what the files of the operator share, and their tables of kernels. */
#ifndef TL_TNO_H
#define TL_TNO_H

#include "engine/launch.h"

/* Which of the candidates for "auto" is quickest at a problem, by measurement on the CPU
** (choose.c). TL_EBACKEND: none takes it. */
tl_status tl_choose(tl_ctx *ctx, const tl_tno_problem *p, const char **out_name);

/* Kernels of any device: they hand pointers to its form of a backend. */
tl_status tl_tno_kernel(tl_ctx *ctx, const tl_args *a);
tl_status tl_tno_grad_kernel(tl_ctx *ctx, const tl_args *a);
tl_status tl_decay_kernel(tl_ctx *ctx, const tl_args *a);      /* decay.c */
tl_status tl_decay_grad_kernel(tl_ctx *ctx, const tl_args *a);

extern const tl_kernel_row tl_cpu_tno[], tl_cpu_recurrence[];

#endif

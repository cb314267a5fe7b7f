/* tno.h - declares the choice of a backend and the kernels of the Toeplitz neural operator. */
#ifndef TL_TNO_H
#define TL_TNO_H

#include "engine/launch.h"

/* The longest sequence at which "auto" takes a form before those with a greater length or none, and
** the lengths from..to at which it measures all candidates. */
typedef struct tl_auto_length {
    int64_t length, from, to;
} tl_auto_length;

/* How a device computes a backend: these functions replace the functions of tl_tno_backend, whose
** other fields hold on every device. The pointers in tl_tno_args are device pointers. */
typedef struct tl_tno_form {
    tl_status (*plan)(const tl_host *h, const tl_tno_problem *p, void **out_plan);
    tl_status (*forward)(void *plan, const tl_tno_args *a);
    tl_status (*backward)(void *plan, const tl_tno_args *a);
    void (*release)(void *plan);
    int64_t (*cache_size)(void *plan); /* NULL: no cache */
    /* In the precision of the context; NULL: the form has no length of its own. */
    tl_auto_length (*auto_length)(const tl_ctx *ctx, int causal);
} tl_tno_form;

/* Names the candidate for "auto" that solves the problem fastest, by measurement on the CPU. On
** another device it is the form with the smallest length that is long enough, else the first
** candidate that has a form, and candidates are measured at the lengths that a form states.
** TL_EBACKEND: none accepts the problem, or none has a form. */
tl_status tl_choose(tl_ctx *ctx, const tl_tno_problem *p, const char **out_name);

/* Kernels for every device: they pass the pointers to the device's form of a backend. */
TL_PRIVATE tl_status tl_cpu_tno(tl_ctx *ctx, const tl_args *a);
TL_PRIVATE tl_status tl_cpu_tno_grad(tl_ctx *ctx, const tl_args *a);
/* TL_EINVAL if an element of t, which is on the CPU, is not in (0,1]; with nan set, NaN passes. op
** and name are for the message. */
tl_status tl_decay_range(const char *op, const char *name, const tl_tensor *t, int nan);

#endif

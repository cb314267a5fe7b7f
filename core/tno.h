/* tno.h - what plugin.c, option.c, tno.c and decay.c share. */
#ifndef TL_TNO_H
#define TL_TNO_H

#include "internal.h"

/* Parameters a backend may have: with coef, x, dy and what is kept they fill TL_ARGS. */
#define TL_TNO_PARAMS 4

struct tl_plugin {
    const tl_tno_backend *entry; /* in the mapped file, which stays mapped */
    char                 *path;
    tl_plugin            *next;
};

/* The backend of that name. TL_EBACKEND: none; the message lists those present. */
tl_status tl_find_backend(tl_ctx *ctx, const char *name, const tl_tno_backend **out_backend);

/* Which backend is quickest at a problem, by measurement (choose.c). TL_EBACKEND: none takes it. */
tl_status tl_choose(tl_ctx *ctx, const tl_tno_problem *p, const char **out_name);

/* Values for backend's option table from "key=value" strings (ended by NULL; NULL: none given) and
** its defaults: an array in the table's order, freed by tl_options_free. TL_EINVAL: unknown, of the
** wrong type or out of range. */
tl_status tl_options_parse(tl_ctx *ctx, const tl_tno_backend *backend, const char *const *given,
                           tl_option_value **out_values);
void      tl_options_free(const tl_tno_backend *backend, tl_option_value *values);

/* Whether candidate may be what the writer of word meant, in fewer edits than *best, which becomes
** that number (start at INT_MAX). */
int tl_nearer(const char *word, const char *candidate, int *best);

/* Kernels of any device: they hand pointers to its form of a backend. */
tl_status tl_tno_kernel(tl_ctx *ctx, const tl_args *a);
tl_status tl_tno_grad_kernel(tl_ctx *ctx, const tl_args *a);
tl_status tl_decay_kernel(tl_ctx *ctx, const tl_args *a);      /* decay.c */
tl_status tl_decay_grad_kernel(tl_ctx *ctx, const tl_args *a);

#endif

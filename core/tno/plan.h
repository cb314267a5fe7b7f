/* plan.h - declares a plan: a backend, its options, and its state for one problem. */
#ifndef TL_PLAN_H
#define TL_PLAN_H

#include "tno/tno.h"

typedef struct tl_plan {
    const tl_tno_backend *backend;
    tl_tno_form           form; /* the functions of the backend on the plan's device */
    tl_tno_problem        problem;
    tl_option_value      *values; /* problem.options */
    int64_t               points;
    int                   width, params;
    void                 *state; /* what form.plan returned */
    char                  why[256]; /* the reason of a refusal, or a warning */
} tl_plan;

/* Parses the options and plans the problem, whose own options are ignored, on a device. h outlives
** the plan. TL_EBACKEND: the backend does not accept the problem, or has no form for the device. */
tl_status tl_plan_open(const tl_host *h, tl_device device, const tl_tno_backend *backend,
                       const tl_tno_problem *problem, const char *const *options, tl_plan *out_p);
void tl_plan_close(tl_plan *p); /* harmless for a zeroed one */
/* Returns the size in floats of the plan's cache; 0: none. */
int64_t tl_plan_cache_floats(const tl_plan *p);
tl_status tl_plan_forward(const tl_plan *p, const tl_tno_args *a);

#endif

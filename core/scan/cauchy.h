/* cauchy.h - the arguments of the sums over simple poles. The CPU and a GPU both implement them. */
#ifndef TL_CAUCHY_H
#define TL_CAUCHY_H

#include "engine/launch.h"

/* Complex numbers are pairs. */
typedef struct tl_cauchy_job {
    int64_t      r, d, m, f;
    int          pairs;          /* whether each pole also has its conjugate */
    const float *v;              /* [r,d,m,2] */
    const float *poles;          /* [d,m,2] */
    const float *nodes;          /* [f,2] */
    float       *y;              /* [r,d,f,2] */
    const float *dy;             /* the rest is for the gradient */
    float       *dv, *dpoles;
} tl_cauchy_job;

/* Reads the arguments of TL_OP_cauchy, or with grad the arguments of its gradient, which begin with
** the same inputs. */
static inline tl_cauchy_job tl_cauchy_job_of(const tl_args *a, int grad)
{
    const struct tl_args_cauchy_grad *g = &a->cauchy_grad;
    const tl_tensor *v = g->v;
    tl_cauchy_job    j;
    j.r = v->dims[0];
    j.d = v->dims[1];
    j.m = v->dims[2];
    j.f = g->nodes->dims[0];
    j.pairs = g->pairs != 0;
    j.v = F32(v);
    j.poles = F32(g->poles);
    j.nodes = F32(g->nodes);
    j.y = grad ? NULL : F32(a->cauchy.y);
    j.dy = grad ? F32(g->dy) : NULL;
    j.dv = grad ? F32(g->dv) : NULL;
    j.dpoles = grad ? F32(g->dpoles) : NULL;
    return j;
}

#endif

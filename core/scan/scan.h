/* scan.h - the arguments of the scans: operators that carry a state along the positions. The CPU
** and a GPU both implement them.
**
** The forward kernel keeps the state at the border of every SCAN_CHUNK positions, and the gradient
** computes those between again, a chunk at a time. */
#ifndef TL_SCAN_H
#define TL_SCAN_H

#include "engine/launch.h"

#define SCAN_CHUNK 64 /* positions between two states that are kept */

static inline int64_t scan_chunks(int64_t n) { return (n + SCAN_CHUNK - 1) / SCAN_CHUNK; }

/* ---- Selective scan -------------------------------------------------------------------------- */

/* The forward kernel writes the states [b,chunks,s,d], each before its chunk; they are NULL where
** no gradient is required. */
typedef struct tl_select_job {
    int64_t      b, n, d, s, chunks;
    const float *x, *delta;   /* [b,n,d] */
    const float *a;           /* [d,s] */
    const float *in, *out;    /* B and C [b,n,s] */
    const float *skip;        /* D [d], or NULL */
    float       *states;      /* or NULL */
    float       *y;
    const float *dy;          /* the rest is for the gradient */
    float       *dx, *ddelta, *da, *din, *dout, *dskip; /* dskip: NULL without skip */
} tl_select_job;

/* Reads the arguments of TL_OP_selective_scan, or with grad the arguments of its gradient, which
** begin with the same inputs. */
static inline tl_select_job tl_select_job_of(const tl_args *a, int grad)
{
    const struct tl_args_selective_scan_grad *g = &a->selective_scan_grad;
    const tl_tensor *x = g->x;
    tl_select_job    j;
    j.b = x->dims[0];
    j.n = x->dims[1];
    j.d = x->dims[2];
    j.s = g->a->dims[1];
    j.chunks = scan_chunks(j.n);
    j.x = F32(x);
    j.delta = F32(g->delta);
    j.a = F32(g->a);
    j.in = F32(g->b);
    j.out = F32(g->c);
    j.skip = tl_f32_or_null(g->skip);
    j.states = tl_f32_or_null(g->states);
    j.y = grad ? NULL : F32(a->selective_scan.y);
    j.dy = grad ? F32(g->dy) : NULL;
    j.dx = grad ? F32(g->dx) : NULL;
    j.ddelta = grad ? F32(g->ddelta) : NULL;
    j.da = grad ? F32(g->da) : NULL;
    j.din = grad ? F32(g->db) : NULL;
    j.dout = grad ? F32(g->dc) : NULL;
    j.dskip = grad ? tl_f32_or_null(g->dskip) : NULL;
    return j;
}

/* ---- Linear recurrence ----------------------------------------------------------------------- */

typedef struct tl_recur_job {
    int64_t      b, n, h, dk, dv, chunks;
    int64_t      dg;       /* dk, or 1 if the channels of a head share their decay */
    const float *q, *k;    /* [b,n,h,dk] */
    const float *v;        /* [b,n,h,dv] */
    const float *g;        /* [b,n,h,dg] */
    float       *states;   /* [b,chunks,h,dk,dv], or NULL */
    float       *y;
    const float *dy;       /* the rest is for the gradient */
    float       *gq, *gk, *gv, *gg;
} tl_recur_job;

/* Reads the arguments of TL_OP_linear_recurrence and of its gradient, as above. */
static inline tl_recur_job tl_recur_job_of(const tl_args *a, int grad)
{
    const struct tl_args_linear_recurrence_grad *g = &a->linear_recurrence_grad;
    const tl_tensor *q = g->q, *v = g->v;
    tl_recur_job     j;
    j.b = q->dims[0];
    j.n = q->dims[1];
    j.h = q->dims[2];
    j.dk = q->dims[3];
    j.dv = v->dims[3];
    j.dg = g->g->dims[3];
    j.chunks = scan_chunks(j.n);
    j.q = F32(q);
    j.k = F32(g->k);
    j.v = F32(v);
    j.g = F32(g->g);
    j.states = tl_f32_or_null(g->states);
    j.y = grad ? NULL : F32(a->linear_recurrence.y);
    j.dy = grad ? F32(g->dy) : NULL;
    j.gq = grad ? F32(g->dq) : NULL;
    j.gk = grad ? F32(g->dk) : NULL;
    j.gv = grad ? F32(g->dv) : NULL;
    j.gg = grad ? F32(g->dg) : NULL;
    return j;
}

#endif

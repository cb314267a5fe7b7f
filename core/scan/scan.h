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

static inline float *scan_data(const tl_tensor *t) { return t ? F32(t) : NULL; }

/* ---- Selective scan -------------------------------------------------------------------------- */

/* Places in tl_args.in; SELECT_SKIP may be NULL, and SELECT_STATES is where no gradient is wanted.
** The forward kernel writes the states [b,chunks,s,d], each before its chunk. */
enum { SELECT_X, SELECT_DELTA, SELECT_A, SELECT_B, SELECT_C, SELECT_SKIP, SELECT_STATES,
       SELECT_DY };

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

/* Reads the arguments of TL_OP_selective_scan, which has y in out[0], or with grad those of its
** gradient, which has the gradients in the order of the inputs. */
static inline tl_select_job tl_select_job_of(const tl_args *a, int grad)
{
    const tl_tensor *x = a->in[SELECT_X];
    tl_select_job    j;
    j.b = x->dims[0];
    j.n = x->dims[1];
    j.d = x->dims[2];
    j.s = a->in[SELECT_A]->dims[1];
    j.chunks = scan_chunks(j.n);
    j.x = F32(x);
    j.delta = F32(a->in[SELECT_DELTA]);
    j.a = F32(a->in[SELECT_A]);
    j.in = F32(a->in[SELECT_B]);
    j.out = F32(a->in[SELECT_C]);
    j.skip = scan_data(a->in[SELECT_SKIP]);
    j.states = scan_data(a->in[SELECT_STATES]);
    j.y = grad ? NULL : F32(a->out[0]);
    j.dy = grad ? F32(a->in[SELECT_DY]) : NULL;
    j.dx = grad ? F32(a->out[SELECT_X]) : NULL;
    j.ddelta = grad ? F32(a->out[SELECT_DELTA]) : NULL;
    j.da = grad ? F32(a->out[SELECT_A]) : NULL;
    j.din = grad ? F32(a->out[SELECT_B]) : NULL;
    j.dout = grad ? F32(a->out[SELECT_C]) : NULL;
    j.dskip = grad ? scan_data(a->out[SELECT_SKIP]) : NULL;
    return j;
}

/* ---- Linear recurrence ----------------------------------------------------------------------- */

/* Places in tl_args.in, as above; the states are [b,chunks,h,k,v]. */
enum { RECUR_Q, RECUR_K, RECUR_V, RECUR_G, RECUR_STATES, RECUR_DY };

typedef struct tl_recur_job {
    int64_t      b, n, h, dk, dv, chunks;
    int64_t      dg;       /* dk, or 1 if the channels of a head share their decay */
    const float *q, *k;    /* [b,n,h,dk] */
    const float *v;        /* [b,n,h,dv] */
    const float *g;        /* [b,n,h,dg] */
    float       *states;   /* or NULL */
    float       *y;
    const float *dy;       /* the rest is for the gradient */
    float       *gq, *gk, *gv, *gg;
} tl_recur_job;

/* Reads the arguments of TL_OP_linear_recurrence and of its gradient, as above. */
static inline tl_recur_job tl_recur_job_of(const tl_args *a, int grad)
{
    const tl_tensor *q = a->in[RECUR_Q], *v = a->in[RECUR_V];
    tl_recur_job     j;
    j.b = q->dims[0];
    j.n = q->dims[1];
    j.h = q->dims[2];
    j.dk = q->dims[3];
    j.dv = v->dims[3];
    j.dg = a->in[RECUR_G]->dims[3];
    j.chunks = scan_chunks(j.n);
    j.q = F32(q);
    j.k = F32(a->in[RECUR_K]);
    j.v = F32(v);
    j.g = F32(a->in[RECUR_G]);
    j.states = scan_data(a->in[RECUR_STATES]);
    j.y = grad ? NULL : F32(a->out[0]);
    j.dy = grad ? F32(a->in[RECUR_DY]) : NULL;
    j.gq = grad ? F32(a->out[RECUR_Q]) : NULL;
    j.gk = grad ? F32(a->out[RECUR_K]) : NULL;
    j.gv = grad ? F32(a->out[RECUR_V]) : NULL;
    j.gg = grad ? F32(a->out[RECUR_G]) : NULL;
    return j;
}

/* The CPU's kernel tables of this folder. */
extern const tl_kernel_row tl_cpu_select[], tl_cpu_recur[];

#endif

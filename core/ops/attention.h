/* attention.h - the arguments of attention, which the CPU and a GPU read alike. */
#ifndef TL_ATTENTION_H
#define TL_ATTENTION_H

#include "base/here.h"
#include "engine/launch.h"

typedef struct tl_attention_job {
    int64_t      pairs;          /* of a sequence and a head */
    int64_t      m, n;           /* queries, keys */
    int64_t      w, c;           /* channels of q and k, of v */
    int64_t      rows, shared;   /* of the bias; consecutive pairs with one row of the mask */
    int64_t      window;         /* 0: none */
    int          causal;
    float        scale;
    const float *q, *k, *v;
    const float *bias, *mask;    /* [rows,m+n-1], [pairs/shared,n], or NULL */
    uint64_t     key, offset;    /* of the stream of the dropout */
    uint32_t     threshold;      /* a word below it drops its weight; 0: no dropout */
    float        kept;           /* the factor of the other weights */
    float       *y, *stats;      /* stats [pairs,m,2]: a row's largest score, 1 / sum; or NULL */
    const float *dy;             /* the rest is for the gradient */
    float       *dq, *dk, *dv, *dbias; /* dbias: or NULL */
} tl_attention_job;

/* The keys from .. to - 1, which a query sees if the mask does not hide them. */
typedef struct tl_attention_span {
    int64_t from, to;
} tl_attention_span;

static inline HERE tl_attention_span tl_attention_seen(const tl_attention_job *j, int64_t query)
{
    int64_t           at = query + j->n - j->m;
    tl_attention_span s = {0, j->n};
    if (j->window && j->window <= at) s.from = at - j->window + 1; /* a window may be INT64_MAX */
    if (j->window && j->window < s.to - at) s.to = at + j->window;
    if (j->causal && at + 1 < s.to) s.to = at + 1;
    if (s.to < s.from) s.to = s.from;
    return s;
}

/* Reads the arguments of TL_OP_attention, or with grad the arguments of its gradient, which begin
** with the same inputs and have the same numbers. */
static inline tl_attention_job tl_attention_job_of(const tl_args *a, int grad)
{
    const struct tl_args_attention_grad *g = &a->attention_grad;
    const tl_tensor *q = g->q, *k = g->k, *v = g->v;
    tl_attention_job j;
    j.m = q->dims[q->ndim - 2];
    j.n = k->dims[k->ndim - 2];
    j.w = tl_cols(q);
    j.c = tl_cols(v);
    j.pairs = 1;
    for (int i = 0; i < q->ndim - 2; i++) j.pairs *= q->dims[i];
    j.rows = g->bias ? g->bias->dims[0] : 1;
    j.shared = g->mask && g->mask->dims[0] > 0 ? j.pairs / g->mask->dims[0] : 1;
    j.window = g->window;
    j.causal = g->causal != 0;
    j.scale = (float)g->scale;
    j.q = F32(q);
    j.k = F32(k);
    j.v = F32(v);
    j.bias = tl_f32_or_null(g->bias);
    j.mask = tl_f32_or_null(g->mask);
    j.key = (uint64_t)g->key;
    j.offset = (uint64_t)g->offset;
    j.threshold = (uint32_t)(uint64_t)(g->p * 0x1p32);
    j.kept = (float)(1.0 / (1.0 - g->p));
    j.y = grad ? F32(g->y) : F32(a->attention.y);
    j.stats = grad ? F32(g->stats) : tl_f32_or_null(a->attention.stats);
    j.dy = grad ? F32(g->dy) : NULL;
    j.dq = grad ? F32(g->dq) : NULL;
    j.dk = grad ? F32(g->dk) : NULL;
    j.dv = grad ? F32(g->dv) : NULL;
    j.dbias = grad ? tl_f32_or_null(g->dbias) : NULL;
    return j;
}

#endif

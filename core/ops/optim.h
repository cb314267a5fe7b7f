/* optim.h - the arguments of the optimisers' kernels in tl_args.p: the numbers of the step and a
** list of parameters, because a GPU updates many parameters in one launch. */
#ifndef TL_OPTIM_H
#define TL_OPTIM_H

#include <math.h>

#include "base/here.h"
#include "engine/launch.h"

/* A parameter that has a gradient. The pointers belong to the context's device. */
typedef struct tl_trained {
    int64_t      len;
    const float *grad;
    float       *p, *m, *v; /* adam: all; sgd: p and the momentum buffer m or NULL; norm2: none */
} tl_trained;

typedef struct tl_trained_list { /* tl_args.p points to one */
    int         count;
    tl_trained *of;
    double      scale;             /* adam, sgd: every gradient is first multiplied by it */
    const tl_adam_options *adam;   /* adam's options; NULL for the other two */
    struct {
        double lr, momentum, weight_decay;
    } sgd;
    double      sum; /* result of norm2: the sum of all squared gradients */
} tl_trained_list;

typedef struct tl_adam_numbers { /* constants of one step */
    float beta1, beta2, rest1, rest2; /* rest: 1 - beta, rounded after the subtraction */
    float eps, scale;
    float coupled, decoupled; /* weight decay: g += coupled p, or p -= decoupled p */
    float step, root;         /* p -= step m / (root sqrt v + eps) */
} tl_adam_numbers;

/* A gradient whose square v can hold: an infinite v would stop its parameter for good. A gradient
** that is infinite itself stays so, and makes the parameter NaN. */
static inline HERE float tl_adam_bounded(float g)
{
    const float most = 1e19f;
    float       size = fabsf(g);
    return size > most && size < INFINITY ? copysignf(most, g) : g;
}

/* The update of one element. */
static inline HERE void tl_adam_update(const tl_adam_numbers *a, float grad, float *p, float *m,
                                       float *v)
{
    float g = tl_adam_bounded(grad * a->scale + a->coupled * *p);
    *m = a->beta1 * *m + a->rest1 * g;
    *v = a->beta2 * *v + a->rest2 * g * g;
    *p = *p - a->decoupled * *p - a->step * (*m / (a->root * sqrtf(*v) + a->eps));
}

static inline tl_adam_numbers tl_adam_numbers_of(const tl_trained_list *list)
{
    const tl_adam_options *o = list->adam;
    tl_adam_numbers        n;
    double t = (double)o->step, bias1 = 1 - pow(o->beta1, t), root2 = sqrt(1 - pow(o->beta2, t));
    int    fairseq = o->kind == TL_ADAM_FAIRSEQ, coupled = o->kind == TL_ADAM_L2;
    n.beta1 = (float)o->beta1;
    n.beta2 = (float)o->beta2;
    n.rest1 = (float)(1 - o->beta1);
    n.rest2 = (float)(1 - o->beta2);
    n.eps = (float)o->eps;
    n.scale = (float)list->scale;
    n.coupled = coupled ? (float)o->weight_decay : 0;
    n.decoupled = coupled ? 0 : (float)(o->lr * o->weight_decay);
    /* fairseq corrects the bias of v in the step size alone, so its eps weighs more in early
    ** steps. */
    n.step = (float)(fairseq ? o->lr * root2 / bias1 : o->lr / bias1);
    n.root = (float)(fairseq ? 1 : 1 / root2);
    return n;
}

typedef struct tl_sgd_numbers {
    float lr, momentum, decay, scale;
} tl_sgd_numbers;

/* The update of one element; buf is NULL without momentum. */
static inline HERE void tl_sgd_update(const tl_sgd_numbers *a, float grad, float *p, float *buf)
{
    float g = grad * a->scale + a->decay * *p;
    if (buf) g = *buf = a->momentum * *buf + g;
    *p -= a->lr * g;
}

static inline tl_sgd_numbers tl_sgd_numbers_of(const tl_trained_list *list)
{
    tl_sgd_numbers n;
    n.lr = (float)list->sgd.lr;
    n.momentum = (float)list->sgd.momentum;
    n.decay = (float)list->sgd.weight_decay;
    n.scale = (float)list->scale;
    return n;
}

#endif

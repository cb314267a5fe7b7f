/* optim.h - what the kernels of optimisers get: lists, for a card does many parameters at once, and
** the numbers of a step. */
#ifndef TL_OPTIM_H
#define TL_OPTIM_H

#include <math.h>

#include "engine/launch.h"

/* A parameter that has a gradient. The pointers are the device's. */
typedef struct tl_trained {
    int64_t      len;
    const float *grad;
    float       *p, *m, *v; /* adam: all; sgd: m is the momentum buffer or NULL; norm2: none */
} tl_trained;

typedef struct tl_trained_list { /* what tl_args.p points to */
    int         count;
    tl_trained *of;
    double      sum; /* norm2's result: of all gradients' squares */
} tl_trained_list;

typedef struct tl_adam_numbers { /* of one step, for every element */
    float beta1, beta2, rest1, rest2; /* rest: 1 - beta, rounded after the subtraction */
    float eps, scale;
    float coupled, decoupled; /* weight decay: in the gradient, or lr times it of p */
    float step, root;         /* p -= step m / (root sqrt v + eps) */
} tl_adam_numbers;

/* From a kernel's arguments:   i: kind, step   f: lr, beta1, beta2, eps, weight decay, scale */
static inline tl_adam_numbers tl_adam_numbers_of(const tl_args *a)
{
    tl_adam_numbers n;
    double lr = a->f[0], t = (double)a->i[1];
    double bias1 = 1 - pow(a->f[1], t), root2 = sqrt(1 - pow(a->f[2], t));
    int    fairseq = a->i[0] == TL_ADAM_FAIRSEQ, coupled = a->i[0] == TL_ADAM;
    n.beta1 = (float)a->f[1];
    n.beta2 = (float)a->f[2];
    n.rest1 = (float)(1 - a->f[1]);
    n.rest2 = (float)(1 - a->f[2]);
    n.eps = (float)a->f[3];
    n.scale = (float)a->f[5];
    n.coupled = coupled ? (float)a->f[4] : 0;
    n.decoupled = coupled ? 0 : (float)(lr * a->f[4]);
    /* fairseq corrects v's bias in the step size alone, so its eps weighs more in early steps. */
    n.step = (float)(fairseq ? lr * root2 / bias1 : lr / bias1);
    n.root = (float)(fairseq ? 1 : 1 / root2);
    return n;
}

#endif

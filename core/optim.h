/* optim.h - what the kernels of optimisers get: lists, for a card does many parameters at once. */
#ifndef TL_OPTIM_H
#define TL_OPTIM_H

#include "internal.h"

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

#endif

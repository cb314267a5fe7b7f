/* mlp.h - declares the network that mlp.c checks and records and mlp_rows.c computes, a block of
** rows at a time. */
#ifndef TL_MLP_H
#define TL_MLP_H

#include "toeplab.h"

#define MLP_ROWS 64

enum { MLP_WEIGHT, MLP_BIAS, MLP_NORM_WEIGHT, MLP_NORM_BIAS, MLP_PARAMS };

typedef struct mlp_layer {
    tl_norm_kind norm;
    float        eps;
    int64_t      inputs, outputs;
    int64_t      before;            /* floats per row of states that precede this layer's */
    const float *param[MLP_PARAMS]; /* one not given: zeros, or ones for MLP_NORM_WEIGHT */
    float       *transposed;        /* the weight, as [inputs,outputs] */
    float       *grad[MLP_PARAMS];  /* a NULL gradient is not computed */
    int64_t      at[MLP_PARAMS];    /* the offset of each in a thread's sums */
} mlp_layer;

typedef struct mlp {
    int           count, residual;
    tl_unary_kind act;
    int64_t       rows;
    int64_t       width; /* widest input except that of the first layer: scratch floats per row */
    int64_t       held;  /* floats per row of all states */
    const float  *x, *scale, *dy;
    float        *y, *dx;    /* a NULL dx is not computed */
    float        *states;    /* outputs of all layers but the last, for the gradient; or NULL */
    float        *scratch;   /* MLP_SCRATCH [MLP_ROWS,width] for each thread */
    float        *sums;      /* [threads,total]: gradients of parameters */
    int64_t       total;
    int           threads;
    int          *ran;       /* [threads]: 1 if the thread had rows */
    const float  *zeros, *ones; /* in host memory, of the widest layer's size */
    mlp_layer     layers[];
} mlp;

#define MLP_SCRATCH 4

/* Bodies of parallel loops over rows; user is an mlp. The backward one sets ran and the sums of its
** thread. */
void tl_mlp_forward(void *user, int64_t begin, int64_t end, int thread);
void tl_mlp_backward(void *user, int64_t begin, int64_t end, int thread);

#endif

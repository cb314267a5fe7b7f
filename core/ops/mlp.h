/* mlp.h - what the two files of the network share: mlp.c checks, records and sums, mlp_rows.c
** computes blocks of rows. */
#ifndef TL_MLP_H
#define TL_MLP_H

#include "toeplab.h"

#define MLP_ROWS 64

enum { MLP_WEIGHT, MLP_BIAS, MLP_NORM_WEIGHT, MLP_NORM_BIAS, MLP_PARAMS };

typedef struct mlp_layer {
    tl_norm_kind norm;
    float        eps;
    int64_t      inputs, outputs;
    int64_t      before;            /* floats per row of the states before this layer's output */
    const float *param[MLP_PARAMS]; /* what was not given: zeros, or ones for MLP_NORM_WEIGHT */
    float       *transposed;        /* [inputs,outputs]: the weight's */
    float       *grad[MLP_PARAMS];  /* NULL: not wanted */
    int64_t      at[MLP_PARAMS];    /* where it is in a thread's sums */
} mlp_layer;

typedef struct mlp {
    int           count, residual;
    tl_unary_kind act;
    int64_t       rows, width, held; /* most numbers per row between layers; of all states */
    const float  *x, *scale, *dy;
    float        *y, *dx;    /* dx: NULL: not wanted */
    float        *states;    /* outputs of all layers but the last, one after another, or NULL */
    float        *scratch;   /* MLP_SCRATCH [MLP_ROWS,width] for each thread */
    float        *sums;      /* [threads,total]: gradients of parameters */
    int64_t       total;
    int           threads;
    int          *ran;       /* [threads] */
    const float  *zeros, *ones; /* on the CPU, as many as the widest layer has */
    mlp_layer     layers[];
} mlp;

#define MLP_SCRATCH 4

/* Bodies of parallel loops over rows; user is an mlp. */
void tl_mlp_forward(void *user, int64_t begin, int64_t end, int thread);
/* sets ran and the thread's sums */
void tl_mlp_backward(void *user, int64_t begin, int64_t end, int thread);

#endif

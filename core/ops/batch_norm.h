/* batch_norm.h - what the kernels of batch normalisation compute on, by name. */
#ifndef TL_BATCH_NORM_H
#define TL_BATCH_NORM_H

#include "engine/launch.h"

typedef struct tl_batch_norm_job {
    int64_t      rows, cols;
    int          training;
    double       eps, momentum;
    const float *x, *dy, *weight, *bias; /* weight, bias NULL: 1, 0 */
    float       *y, *mean, *s; /* y or dx; per column the mean, and s = 1/sqrt(var + eps) */
    float       *running_mean, *running_var, *dweight, *dbias; /* the last two NULL: not wanted */
} tl_batch_norm_job;

/* From the arguments of TL_OP_batch_norm and TL_OP_batch_norm_grad; the pointers are the device's
** that the kernel runs on. */
tl_batch_norm_job tl_batch_norm_job_of(const tl_args *a);
tl_batch_norm_job tl_batch_norm_grad_job_of(const tl_args *a);

#endif

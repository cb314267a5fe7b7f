/* arguments.h - the arguments of those kernels that the CPU and a GPU both read as a struct: one
** made from the operator's, or the one behind tl_args.p. */
#ifndef TL_ARGUMENTS_H
#define TL_ARGUMENTS_H

#include "engine/launch.h"

/* ---- Batch normalisation --------------------------------------------------------------------- */

typedef struct tl_batch_norm_job {
    int64_t      rows, cols;
    int          training;
    double       eps, momentum;
    const float *x, *dy, *weight, *bias; /* a NULL weight means 1, a NULL bias 0 */
    float       *y, *mean, *s; /* y or dx; per column the mean, and s = 1/sqrt(var + eps) */
    float       *running_mean, *running_var;
    float       *dweight, *dbias; /* NULL: not computed */
} tl_batch_norm_job;

/* Read the arguments of TL_OP_batch_norm and TL_OP_batch_norm_grad. The pointers belong to the
** device that the kernel runs on. */
TL_PRIVATE tl_batch_norm_job tl_batch_norm_job_of(const tl_args *a);
TL_PRIVATE tl_batch_norm_job tl_batch_norm_grad_job_of(const tl_args *a);

/* ---- Fourier transforms ---------------------------------------------------------------------- */

/* y [outer,to,inner] = scale times the transform of x [outer,from,inner] along the middle axis. A
** half spectrum holds one bin for each conjugate pair; `middle` multiplies the bins of such pairs,
** before a TL_C2R and after a TL_R2C. */
typedef struct tl_transform_args {
    tl_transform_kind kind;
    int64_t n;                    /* length of the transform */
    int64_t outer, inner;
    int64_t from, to;             /* entries of a vector; n / 2 + 1 in a half spectrum */
    int     from_width, to_width; /* floats of an entry: 2 if complex */
    float   scale, middle;
} tl_transform_args;

void tl_transforms_close(tl_ctx *ctx); /* frees the cached plans of transform.c */

#endif

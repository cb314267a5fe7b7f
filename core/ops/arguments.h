/* arguments.h - names the arguments of those kernels that the CPU and a GPU both implement: the
** places of tensors in tl_args.in and tl_args.out, or the struct behind tl_args.p. */
#ifndef TL_ARGUMENTS_H
#define TL_ARGUMENTS_H

#include "engine/launch.h"

/* The data of an optional argument. */
static inline float *tl_f32_or_null(const tl_tensor *t) { return t ? F32(t) : NULL; }

/* ---- Selecting rows by index ----------------------------------------------------------------- */

/* Places in tl_args.i of TL_OP_gather and TL_OP_gather_grad: how many indices each table has, and
** how many rows; the elements of a row. tl_gather has one table. */
enum { GATHER_EACH = 1, GATHER_TABLE, GATHER_COLS };

/* ---- Row norms ------------------------------------------------------------------------------- */

/* Places in tl_args.in. TL_OP_norm writes NORM_STATS [2,rows]; TL_OP_norm_grad finds dy where the
** bias was. NORM_WEIGHT and NORM_BIAS may be NULL. */
enum { NORM_X, NORM_WEIGHT, NORM_BIAS, NORM_STATS, NORM_DY = NORM_BIAS };

/* Places in tl_args.out of TL_OP_norm_grad; a NULL gradient is not computed. NORM_DX may be dy. */
enum { NORM_DX, NORM_DWEIGHT, NORM_DBIAS };

/* ---- Cross entropy --------------------------------------------------------------------------- */

/* Places in tl_args.in. LOSS_W and LOSS_BIAS may be NULL: without w, x holds the logits. */
enum { LOSS_X, LOSS_W, LOSS_BIAS, LOSS_TARGETS };

/* Places in tl_args.out: the scalar loss and its gradients; a NULL gradient is not computed. */
enum { LOSS, LOSS_DX, LOSS_DW, LOSS_DBIAS, LOSS_OUTPUTS };

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

/* out[0] [outer,to,inner] = scale times the transform of in[0] [outer,from,inner] along the middle
** axis. A half spectrum holds one bin for each conjugate pair; `middle` multiplies the bins of such
** pairs, before a TL_C2R and after a TL_R2C. */
typedef struct tl_transform_args {
    tl_transform_kind kind;
    int64_t n;                    /* length of the transform */
    int64_t outer, inner;
    int64_t from, to;             /* entries of a vector; n / 2 + 1 in a half spectrum */
    int     from_width, to_width; /* floats of an entry: 2 if complex */
    float   scale, middle;
} tl_transform_args;

#endif

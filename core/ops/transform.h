/* transform.h - what a kernel of Fourier transforms gets in tl_args.p. */
#ifndef TL_TRANSFORM_H
#define TL_TRANSFORM_H

#include "engine/launch.h"

/* out[0] [outer, to, inner] = scale times the transform of in[0] [outer, from, inner] along the
** middle axis. Where a half spectrum is, middle multiplies those of its bins that stand for two of
** a whole one: before TL_C2R, after TL_R2C. */
typedef struct tl_transform_args {
    tl_transform_kind kind;
    int64_t n;                    /* numbers of a whole vector */
    int64_t outer, inner;
    int64_t from, to;             /* entries of a vector; of a half spectrum n / 2 + 1 */
    int     from_width, to_width; /* floats of an entry: 2 if complex */
    float   scale, middle;
} tl_transform_args;

#endif

/* norm.h - what the kernels of row norms, of the CPU and of a GPU, call their arguments. */
#ifndef TL_NORM_H
#define TL_NORM_H

#include "engine/launch.h"

typedef enum norm_kind { LAYER, RMS, SIMPLE, SCALE } norm_kind; /* tl_args.i[0] */

/* Places in tl_args.in. TL_OP_norm writes NORM_STATS [2,rows]; TL_OP_norm_grad finds dy where the
** bias was. NORM_WEIGHT and NORM_BIAS may be NULL. */
enum { NORM_X, NORM_WEIGHT, NORM_BIAS, NORM_STATS, NORM_DY = NORM_BIAS };

/* Places in tl_args.out of TL_OP_norm_grad; NULL: not wanted. NORM_DX may be dy. */
enum { NORM_DX, NORM_DWEIGHT, NORM_DBIAS };

#endif

/* copy.h - declares the kernels of copy.c. */
#ifndef TL_COPY_H
#define TL_COPY_H

#include "engine/launch.h"

extern const tl_kernel_row tl_cpu_copy[]; /* context.c registers it */

#endif

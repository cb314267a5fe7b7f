/* h5.h - what h5.c and h5read.c share; the only place that includes hdf5.h. */
#ifndef TL_H5_H
#define TL_H5_H

#include <hdf5.h>

#include "internal.h"

/* HDF5 prints its errors unless told not to: called first by each function of toeplab.h. */
void tl_h5_quiet(void);
/* Reports that HDF5 failed to do what to name in path, with its own reason; call it before any
** other HDF5 function. TL_ENOMEM or TL_EIO if memory or the disk was at fault, else st. */
tl_status tl_h5_fail(tl_ctx *ctx, tl_status st, const char *path, const char *what,
                     const char *name);

#endif

/* trailer.h - declares the checksum that ends our HDF5 files. */
#ifndef TL_TRAILER_H
#define TL_TRAILER_H

#include "base/context.h"

#define TL_TRAILER 24 /* bytes */
void tl_trailer(unsigned char out[TL_TRAILER], const unsigned char *data, size_t bytes);
/* Checks data, the whole of the file path. *out_there: whether it ends with a trailer.
** TL_ECORRUPT: the trailer does not match. */
tl_status tl_trailer_verify(tl_ctx *ctx, const char *path, const void *data, size_t bytes,
                            int *out_there);

#endif

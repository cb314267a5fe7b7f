/* trailer.h - the checksum behind our HDF5 files. */
#ifndef TL_TRAILER_H
#define TL_TRAILER_H

#include "base/context.h"

#define TL_TRAILER 24
void tl_trailer(unsigned char out[TL_TRAILER], const unsigned char *data, size_t bytes);
/* TL_ECORRUPT if data, the whole of path, ends with a trailer that does not fit. */
tl_status tl_trailer_verify(tl_ctx *ctx, const char *path, const void *data, size_t bytes,
                            int *out_there);

#endif

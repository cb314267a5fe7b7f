/* images.h - the struct behind tl_images. */
#ifndef TL_IMAGES_H
#define TL_IMAGES_H

#include "base/context.h"
#include "toeplab-lab.h"

struct tl_images {
    tl_ctx *ctx;
    int64_t count, size;
    uint8_t *own; /* the pixels, one image after another; NULL: they are in a file */
    int fd;       /* the file, open for reading; -1: there is none */
    char *path;   /* its name, for messages */
    int64_t channels; /* above 1: those of a pixel lie one after another, then the next pixel's */
    int64_t offset, stride; /* image i begins at byte offset + i stride of the file */
};

/* Creates a set of count images of size bytes, at most 2^40 in all, whose pixels the caller writes
** to *out_pixels, one image after another. */
tl_status tl_images_alloc(tl_ctx *ctx, int64_t count, int64_t size, tl_images **out_images,
                          uint8_t **out_pixels);

#endif

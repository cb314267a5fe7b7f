/* draw.h - draws lines and disks on square canvases of bytes, and scales canvases down. */
#ifndef TL_DRAW_H
#define TL_DRAW_H

#include "base/context.h"

#define TL_PI 3.14159265358979323846

/* Sets to 255 the pixels of a line from (row, col) to (to_row, to_col), which must lie within the
** canvas [size,size] by at least the width. The shape of a line that is wider than a pixel is that
** of the Python library Pillow, with which the published images were drawn: a parallelogram whose
** corners are rounded to whole pixels. */
void tl_draw_line(uint8_t *canvas, int size, int row, int col, int to_row, int to_col, int width);
/* Sets to 255 the pixels within radius of (row, col). */
void tl_draw_disk(uint8_t *canvas, int size, int row, int col, double radius);
/* Sets to 255 the pixels of to [size,size] within radius of a pixel that is not 0 in from. */
void tl_draw_dilated(const uint8_t *from, int size, int radius, uint8_t *to);

/* The weights by which pixels are averaged when a canvas is scaled from `from` pixels to `to` on
** each axis, by a Lanczos filter of 3 lobes. */
typedef struct tl_lanczos {
    int from, to, taps;
    int *first;       /* [to]: the first source pixel of each pixel */
    int32_t *weights; /* [to,taps], in units of 2^-22 */
} tl_lanczos;

tl_status tl_lanczos_new(tl_ctx *ctx, int from, int to, tl_lanczos *out_l);
void tl_lanczos_free(tl_ctx *ctx, tl_lanczos *l);

typedef struct tl_window { /* the pixels of rows top..bottom and columns left..right, inclusive */
    int top, left, bottom, right;
} tl_window;

/* Scales canvas [from,from] down and writes the pixels in window of the result [to,to]. The rows
** are scaled first and rounded to bytes. scratch has from times to bytes. */
void tl_lanczos_scale(const tl_lanczos *l, const uint8_t *canvas, tl_window window,
                      uint8_t *scratch, uint8_t *result);

#endif

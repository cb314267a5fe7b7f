/* rows.h - copies rows of a few channels between arrays whose rows are far apart. */
#ifndef ROWS_H
#define ROWS_H

#include <stdint.h>
#include <string.h>

#define ROWS_AHEAD 16 /* rows to prefetch: the hardware does not foresee such strides */

static inline void copy_each(const float *from, int64_t stride, float *to, int64_t to_stride,
                             int64_t count, int64_t channels)
{
    for (int64_t k = 0; k < count; k++, from += stride, to += to_stride) {
        __builtin_prefetch(from + ROWS_AHEAD * stride, 0);
        __builtin_prefetch(to + ROWS_AHEAD * to_stride, 1);
        memcpy(to, from, (size_t)channels * sizeof *to);
    }
}

/* Copies `count` rows; full lanes have a constant size, which the compiler unrolls. */
static inline void copy_rows(const float *from, int64_t stride, float *to, int64_t to_stride,
                      int64_t count, int64_t channels)
{
    switch (channels) {
    case 16: copy_each(from, stride, to, to_stride, count, 16); return;
    case 8: copy_each(from, stride, to, to_stride, count, 8); return;
    case 4: copy_each(from, stride, to, to_stride, count, 4); return;
    default: copy_each(from, stride, to, to_stride, count, channels);
    }
}

#endif

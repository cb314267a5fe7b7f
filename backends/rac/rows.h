/* rows.h - copying rows of a few channels, from and to arrays whose rows are far apart. */
#ifndef ROWS_H
#define ROWS_H

#include <stdint.h>
#include <string.h>

#define AHEAD 16 /* rows that are asked for before they are needed: they are far apart */

static inline void copy_each(const float *from, int64_t stride, float *to, int64_t to_stride,
                             int64_t count, int64_t channels)
{
    for (int64_t k = 0; k < count; k++, from += stride, to += to_stride) {
        __builtin_prefetch(from + AHEAD * stride, 0);
        __builtin_prefetch(to + AHEAD * to_stride, 1);
        memcpy(to, from, (size_t)channels * sizeof *to);
    }
}

/* count rows; of a size that the compiler knows where all lanes are in use */
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

/* lines.cuh - transposes sequences [b,n,d] to lines, one contiguous vector per channel, and
** back. */
#ifndef TL_LINES_CUH
#define TL_LINES_CUH

#include "cuda/cuda.cuh"

typedef struct gpu_sheet { /* the layout of b sequences of some channels, and of their lines */
    int64_t b, n, channels;
    int64_t row, sequence; /* floats from an entry to the next, from a sequence to the next */
    int64_t at, size;      /* entry i is at (at + i) mod size of a line; |at| < size */
    int64_t line, lines;   /* floats from a line to the next, from a sequence's to the next */
} gpu_sheet;

/* The layout of [b,n,d] and lines [b,d,size]. */
static inline gpu_sheet gpu_sheet_of(int64_t b, int64_t n, int64_t d, int64_t at, int64_t size)
{
    return gpu_sheet{b, n, d, d, n * d, at, size, size, d * size};
}

/* lines = x, padded with zeros */
tl_status gpu_to_lines(tl_ctx *ctx, const gpu_sheet *s, const float *x, float *lines);
/* y = scale lines */
tl_status gpu_from_lines(tl_ctx *ctx, const gpu_sheet *s, float scale, const float *lines,
                         float *y);

#endif

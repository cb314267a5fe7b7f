/* tile.h - transposes a tile of neighbouring channels into contiguous vectors and back, for
** backends that work channel by channel. Sixteen channels are one cache line of each row. */
#ifndef TILE_H
#define TILE_H

#include <stdint.h>
#include <string.h>

#define TILE 16

/* Pads to an odd number of cache lines: a power of two would map all vectors to the same cache
** sets. */
static inline int64_t tile_padded(int64_t floats) { return (floats + 15) / 16 * 16 | 16; }

/* The number of channels of a tile: TILE, or fewer if some threads would have no tile. */
static inline int64_t tile_width(int64_t d, int threads)
{
    int64_t width = TILE;
    while (width > 4 && d < width * threads) width /= 2;
    return width;
}

/* The most threads that a loop over `tiles` uses; scratch for more would lie idle. */
static inline int64_t tile_threads(int64_t tiles, int threads)
{
    return tiles < threads ? tiles : threads;
}

/* to[c line + k] = from[k stride + c] for k < count and c < channels <= TILE. Each block is copied
** to a buffer first, because its rows in place share a few cache sets. */
static inline void tile_gather(const float *from, int64_t stride, int64_t count, int64_t channels,
                               float *to, int64_t line)
{
    float block[TILE * TILE];
    for (int64_t k = 0; k < count; k += TILE) {
        int64_t some = count - k < TILE ? count - k : TILE;
        if (channels == TILE && some == TILE) {
            for (int64_t i = 0; i < TILE; i++)
                memcpy(block + i * TILE, from + (k + i) * stride, sizeof(float[TILE]));
            for (int64_t c = 0; c < TILE; c++)
                for (int64_t i = 0; i < TILE; i++) to[c * line + k + i] = block[i * TILE + c];
        } else {
            for (int64_t c = 0; c < channels; c++)
                for (int64_t i = 0; i < some; i++)
                    to[c * line + k + i] = from[(k + i) * stride + c];
        }
    }
}

/* to[k stride + c] = from[c line + k] */
static inline void tile_scatter(const float *from, int64_t line, int64_t count, int64_t channels,
                                float *to, int64_t stride)
{
    float block[TILE * TILE];
    for (int64_t k = 0; k < count; k += TILE) {
        int64_t some = count - k < TILE ? count - k : TILE;
        if (channels == TILE && some == TILE) {
            for (int64_t c = 0; c < TILE; c++)
                for (int64_t i = 0; i < TILE; i++) block[i * TILE + c] = from[c * line + k + i];
            for (int64_t i = 0; i < TILE; i++)
                memcpy(to + (k + i) * stride, block + i * TILE, sizeof(float[TILE]));
        } else {
            for (int64_t c = 0; c < channels; c++)
                for (int64_t i = 0; i < some; i++)
                    to[(k + i) * stride + c] = from[c * line + k + i];
        }
    }
}

#endif

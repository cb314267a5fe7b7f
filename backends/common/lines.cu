/* lines.cu - transposes sequences to lines and back, in tiles, so that memory accesses coalesce. */
#include "lines.cuh"

#define TILE 32 /* a block of TILE x 8 threads transposes TILE x TILE entries */

typedef struct tile {
    int64_t i, c, sequence; /* first entry and channel */
} tile;

static __device__ tile tile_of(unsigned tiles, unsigned columns)
{
    unsigned k = blockIdx.x / columns;
    return tile{(int64_t)(k % tiles) * TILE, (int64_t)(blockIdx.x % columns) * TILE, k / tiles};
}

/* k modulo size, for -size < k < 2 size */
static __device__ int64_t wrapped(int64_t k, int64_t size)
{
    return k < 0 ? k + size : k >= size ? k - size : k;
}

/* Here a tile counts places of lines, some of which are padding. */
static __global__ void to_lines(gpu_sheet s, unsigned tiles, unsigned columns, const float *x,
                                float *lines)
{
    __shared__ float values[TILE][TILE + 1];
    tile t = tile_of(tiles, columns);
    int  lane = threadIdx.x % TILE;
    for (int r = threadIdx.x / TILE; r < TILE; r += THREADS / TILE) {
        int64_t i = wrapped(t.i + r - s.at, s.size);
        if (t.i + r < s.size && t.c + lane < s.channels)
            values[r][lane] = i < s.n ? x[t.sequence * s.sequence + i * s.row + t.c + lane] : 0;
    }
    __syncthreads();
    for (int r = threadIdx.x / TILE; r < TILE; r += THREADS / TILE)
        if (t.c + r < s.channels && t.i + lane < s.size)
            lines[t.sequence * s.lines + (t.c + r) * s.line + t.i + lane] = values[lane][r];
}

static __global__ void from_lines(gpu_sheet s, unsigned tiles, unsigned columns, float scale,
                                  const float *lines, float *y)
{
    __shared__ float values[TILE][TILE + 1];
    tile t = tile_of(tiles, columns);
    int  lane = threadIdx.x % TILE;
    for (int r = threadIdx.x / TILE; r < TILE; r += THREADS / TILE)
        if (t.c + r < s.channels && t.i + lane < s.n)
            values[r][lane] = lines[t.sequence * s.lines + (t.c + r) * s.line +
                                    wrapped(s.at + t.i + lane, s.size)];
    __syncthreads();
    for (int r = threadIdx.x / TILE; r < TILE; r += THREADS / TILE)
        if (t.i + r < s.n && t.c + lane < s.channels)
            y[t.sequence * s.sequence + (t.i + r) * s.row + t.c + lane] = scale * values[lane][r];
}

static int64_t tiles_of(int64_t n) { return (n + TILE - 1) / TILE; }

tl_status gpu_to_lines(tl_ctx *ctx, const gpu_sheet *s, const float *x, float *lines)
{
    int64_t tiles = tiles_of(s->size), columns = tiles_of(s->channels);
    if (s->b * tiles * columns == 0) return TL_OK;
    LAUNCH_SYNC(to_lines, s->b * tiles * columns, THREADS, *s, (unsigned)tiles, (unsigned)columns,
                x, lines);
    return launched(ctx, "sequences to lines");
}

tl_status gpu_from_lines(tl_ctx *ctx, const gpu_sheet *s, float scale, const float *lines,
                         float *y)
{
    int64_t tiles = tiles_of(s->n), columns = tiles_of(s->channels);
    if (s->b * tiles * columns == 0) return TL_OK;
    LAUNCH_SYNC(from_lines, s->b * tiles * columns, THREADS, *s, (unsigned)tiles, (unsigned)columns,
                scale, lines, y);
    return launched(ctx, "lines to sequences");
}

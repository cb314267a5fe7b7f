/* lines.cu - sequences as lines and back, by tiles that are read and written in order. */
#include "lines.cuh"

#define TILE 32

typedef struct sheet {
    int64_t n, d, at, size;
} sheet;

static __device__ int64_t place(sheet s, int64_t i) { return (s.at + i + s.size) % s.size; }

/* A block is TILE x 8 threads: a tile of positions and channels of one sequence. */
static __global__ void to_lines(sheet s, int64_t tiles, int64_t columns, const float *x, float *lines)
{
    __shared__ float tile[TILE][TILE + 1];
    int64_t seq = blockIdx.x / (tiles * columns), k = blockIdx.x % (tiles * columns);
    int64_t i0 = k / columns * TILE, c0 = k % columns * TILE;
    int     lane = threadIdx.x % TILE;
    for (int r = threadIdx.x / TILE; r < TILE; r += THREADS / TILE)
        if (i0 + r < s.n && c0 + lane < s.d)
            tile[r][lane] = x[(seq * s.n + i0 + r) * s.d + c0 + lane];
    __syncthreads();
    for (int r = threadIdx.x / TILE; r < TILE; r += THREADS / TILE)
        if (c0 + r < s.d && i0 + lane < s.n)
            lines[(seq * s.d + c0 + r) * s.size + place(s, i0 + lane)] = tile[lane][r];
}

static __global__ void from_lines(sheet s, int64_t tiles, int64_t columns, float scale,
                                  const float *lines, float *y)
{
    __shared__ float tile[TILE][TILE + 1];
    int64_t seq = blockIdx.x / (tiles * columns), k = blockIdx.x % (tiles * columns);
    int64_t i0 = k / columns * TILE, c0 = k % columns * TILE;
    int     lane = threadIdx.x % TILE;
    for (int r = threadIdx.x / TILE; r < TILE; r += THREADS / TILE)
        if (c0 + r < s.d && i0 + lane < s.n)
            tile[r][lane] = lines[(seq * s.d + c0 + r) * s.size + place(s, i0 + lane)];
    __syncthreads();
    for (int r = threadIdx.x / TILE; r < TILE; r += THREADS / TILE)
        if (i0 + r < s.n && c0 + lane < s.d)
            y[(seq * s.n + i0 + r) * s.d + c0 + lane] = scale * tile[lane][r];
}

tl_status card_to_lines(tl_ctx *ctx, const float *x, int64_t b, int64_t n, int64_t d, int64_t at,
                        int64_t size, float *lines)
{
    sheet   s = {n, d, at, size};
    int64_t tiles = (n + TILE - 1) / TILE, columns = (d + TILE - 1) / TILE;
    if (b * n * d == 0) return TL_OK;
    LAUNCH_SYNC(to_lines, b * tiles * columns, THREADS, s, tiles, columns, x, lines);
    return launched(ctx, "sequences to lines");
}

tl_status card_from_lines(tl_ctx *ctx, const float *lines, int64_t b, int64_t n, int64_t d,
                          int64_t at, int64_t size, float scale, float *y)
{
    sheet   s = {n, d, at, size};
    int64_t tiles = (n + TILE - 1) / TILE, columns = (d + TILE - 1) / TILE;
    if (b * n * d == 0) return TL_OK;
    LAUNCH_SYNC(from_lines, b * tiles * columns, THREADS, s, tiles, columns, scale, lines, y);
    return launched(ctx, "lines to sequences");
}

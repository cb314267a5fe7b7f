/* gradient.cu - computes the gradient of the coefficients, the sums of G = dy x' along its
** diagonals, on tensor cores. A product of tiles runs over 16 sequences, and all tiles of G with
** the same lag are added to one accumulator, so that G is never written.
**
** A block of threads takes CHANNELS channels and two chunks of lags: a warp takes a channel and a
** chunk of lags `delta`, and multiplies each chunk k of dy by the chunk k - delta of x. The sums of
** sequences are divided into `parts`, which are added afterwards, in the same order each time. */
#include "../common/apply.cuh"
#include "tiles.cuh"

#define TILES    14             /* 16x8 tiles of G by lag: 8 (tile - 7) + row - column */
#define LINE     72             /* words of 64 rows of 2 sequences; the 8 more spread banks */
#define CHANNEL  (8 * LINE + 4) /* of 16 sequences */
#define MAX_LAGS 128            /* of a warp: -64 .. 63 beside its chunk's, the first one empty */

/* The chunk of lags that holds a lag. */
static int chunk_of(int lag)
{
    return lag >= 0 ? lag / CHUNK : -((CHUNK - 1 - lag) / CHUNK);
}

template <int COPIES, int CHANNELS> struct summer {
    const band &t;
    const float *x, *dy;
    uint32_t *xs, *ys; /* in shared memory: [2,COPIES,CHANNELS,CHANNEL] and [...] */
    int delta, c0, thread, lane, warp;
    float4 rx[4], ry[4];

    static const int QUARTERS = CHANNELS / 4, BUFFER = COPIES * CHANNELS * CHANNEL;
    static const int RESULTS = 2 * CHANNELS * (TILES * 128 + MAX_LAGS);
    static const int BYTES = 4 * (3 * BUFFER > RESULTS ? 3 * BUFFER : RESULTS);

    /* Loads chunk k of dy, unless it is before the first, and chunk k - delta of x to registers. */
    __device__ void fetch(int64_t set, int k, bool with_dy)
    {
        int c = c0 + thread % QUARTERS * 4, row = thread / QUARTERS % 32;
        int64_t s = set * 16 + thread / QUARTERS / 32 * 2;
        for (int h = 0; h < 4; h++) {
            int i = row + h / 2 * 32;
            rx[h] = load_channels(t, x, s + h % 2, (k - delta) * CHUNK + i, c);
            ry[h] = load_channels(t, dy, s + h % 2, with_dy ? k * CHUNK + i : -1, c);
        }
    }
    __device__ void store(int64_t step) const
    {
        int at = thread % QUARTERS * 4 * CHANNEL + thread / QUARTERS / 32 * LINE +
                 thread / QUARTERS % 32;
        for (int h = 0; h < 2; h++) {
            store_pairs<COPIES>(rx[2 * h], rx[2 * h + 1], xs + step % 2 * BUFFER + at + 32 * h,
                                CHANNEL, CHANNELS * CHANNEL);
            store_pairs<COPIES>(ry[2 * h], ry[2 * h + 1], ys + at + 32 * h, CHANNEL,
                                CHANNELS * CHANNEL);
        }
    }
    /* sums += the tiles of the chunks of this step; the second chunk of lags takes x of the step
    ** before. Tensor cores truncate their sums, so with all digits each step is summed apart.
    ** Volatile loads stay in their place: ptxas would move them up, and spill registers. */
    __device__ void multiply(int64_t step, float (&sums)[TILES][4]) const
    {
        const int apart = CHANNELS * CHANNEL;
        int at = warp % CHANNELS * CHANNEL + lane % 4 * LINE + lane / 4;
        float parts[TILES][4] = {};
        const volatile uint32_t *a = ys + at;
        const volatile uint32_t *b = xs + (step + warp / CHANNELS) % 2 * BUFFER + at;
        UNROLL
        for (int i = 0; i < 4; i++) { /* 16 rows by 8 columns at a time */
            uint32_t rows[COPIES][4];
            UNROLL
            for (int h = 0; h < COPIES; h++)
                for (int e = 0; e < 4; e++)
                    rows[h][e] = a[h * apart + 16 * i + e % 2 * 8 + e / 2 * 4 * LINE];
            UNROLL
            for (int j = 0; j < 8; j++) {
                const int tile = 2 * i - j + 7;
                uint32_t columns[COPIES][2];
                UNROLL
                for (int h = 0; h < COPIES; h++)
                    for (int e = 0; e < 2; e++)
                        columns[h][e] = b[h * apart + 8 * j + e * 4 * LINE];
                UNROLL
                for (int h = 0; h < products_of<COPIES>(); h++) {
                    const uint32_t *r = rows[left_of(h)], *c = columns[right_of(h)];
                    multiply_tile(COPIES == 3 ? parts[tile] : sums[tile], r[0], r[1], r[2], r[3],
                                  c[0], c[1]);
                }
            }
        }
        UNROLL
        for (int i = 0; i < TILES && COPIES == 3; i++)
            for (int e = 0; e < 4; e++) sums[i][e] += parts[i][e];
    }
    /* Sums the tiles along diagonals to out [2,MAX_LAGS,CHANNELS], in the order of the tiles. */
    __device__ void reduce(const float (&sums)[TILES][4], float *out) const
    {
        float *tiles = (float *)xs + warp * TILES * 128;
        UNROLL
        for (int i = 0; i < TILES; i++)
            for (int e = 0; e < 4; e++)
                tiles[i * 128 + (lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] = sums[i][e];
        __syncthreads();
        for (int lag = lane - 64; lag < 64; lag += 32) {
            float sum = 0;
            for (int i = 0; i < TILES; i++)
                for (int column = 0; column < 8; column++) {
                    int row = lag - 8 * (i - 7) + column;
                    if (row >= 0 && row < 16) sum += tiles[i * 128 + row * 8 + column];
                }
            out[(warp / CHANNELS * MAX_LAGS + lag + 64) * CHANNELS + warp % CHANNELS] = sum;
        }
        __syncthreads();
    }
};

/* sums [2 parts,lags,d]: each lag is written once for the chunk below it and once for the one
** above. */
template <int COPIES, int CHANNELS>
static __global__ void __launch_bounds__(64 * CHANNELS)
    sum_tiles(band t, int low, int couples, int parts, const float *x, const float *dy,
              double *sums)
{
    SHARED_WORDS(shared);
    typedef summer<COPIES, CHANNELS> worker;
    int groups = (t.d + CHANNELS - 1) / CHANNELS, chunks = (t.n + CHUNK - 1) / CHUNK;
    int64_t rest = blockIdx.x / couples, part = rest / groups;
    worker w = {t,
                x,
                dy,
                shared,
                shared + 2 * worker::BUFFER,
                low + 2 * (int)(blockIdx.x % couples),
                (int)(rest % groups) * CHANNELS,
                (int)threadIdx.x,
                (int)threadIdx.x % 32,
                (int)threadIdx.x / 32};
    int from = w.delta > 0 ? w.delta : 0;
    int to = w.delta + 1 < 0 ? chunks + w.delta + 1 : chunks; /* chunks of dy */
    int64_t sets = (t.b + 15) / 16, first = sets * part / parts, last = sets * (part + 1) / parts;
    int64_t each = to - from + 1; /* the first step of a set loads only x of the one before */
    int64_t steps = to > from ? (last - first) * each : 0;
    float tiles[TILES][4] = {};
    for (int64_t k = -1; k < steps; k++) {
        if (k + 1 < steps)
            w.fetch(first + (k + 1) / each, from - 1 + (int)((k + 1) % each), (k + 1) % each > 0);
        if (k >= 0 && k % each > 0 && w.c0 + w.warp % CHANNELS < t.d) w.multiply(k, tiles);
        __syncthreads(); /* dy, and x of the step before, were read */
        if (k + 1 < steps) w.store(k + 1);
        __syncthreads();
    }
    float *out = (float *)shared + 2 * CHANNELS * TILES * 128;
    w.reduce(tiles, out);
    for (int e = w.thread; e < 2 * MAX_LAGS * CHANNELS; e += 64 * CHANNELS) {
        int c = w.c0 + e % CHANNELS, beside = e / CHANNELS % MAX_LAGS - 64;
        int lag = (w.delta + e / CHANNELS / MAX_LAGS) * CHUNK + beside;
        if (c < t.d && lag >= t.first && lag <= t.last)
            sums[((2 * part + (beside < 0)) * (t.last - t.first + 1) + lag - t.first) * t.d + c] =
                out[e];
    }
}

#define BUSY_BLOCKS 264 /* blocks that fill a GPU */

template <int COPIES, int CHANNELS>
static tl_status run(tl_ctx *ctx, const band *t, const float *x, const float *dy, float *dcoef)
{
    int low = chunk_of(t->first), couples = (chunk_of(t->last) + 1 - low + 2) / 2;
    int64_t groups = ceiling(t->d, CHANNELS), len = ((int64_t)t->last - t->first + 1) * t->d;
    int parts = (int)clamp(BUSY_BLOCKS / (groups * couples), 1, ceiling(t->b, 16));
    double *sums;
    tl_status st = gpu_alloc(ctx, (size_t)(2 * parts * len) * sizeof *sums, (void **)&sums);
    if (st != TL_OK) return st;
    auto kernel = sum_tiles<COPIES, CHANNELS>;
    int bytes = summer<COPIES, CHANNELS>::BYTES;
    LAUNCH_SHARED(kernel, couples * groups * parts, 64 * CHANNELS, bytes, *t, low, couples, parts,
                  x, dy, sums);
    st = launched(ctx, "tno_grad");
    if (st == TL_OK) st = gpu_add_parts(ctx, sums, 2 * parts, len, 0, dcoef);
    gpu_free(ctx, sums);
    return st;
}

tl_status toeplitz_gradient(tl_ctx *ctx, const band *t, int copies, const float *x, const float *dy,
                            float *dcoef)
{
    size_t most = gpu_shared_memory(ctx);
    int    wide = most >= (size_t)summer<2, 8>::BYTES; /* one word takes no more */
    if (copies == 1 && wide) return run<1, 8>(ctx, t, x, dy, dcoef);
    if (copies == 1) return run<1, 4>(ctx, t, x, dy, dcoef);
    if (copies == 2 && wide) return run<2, 8>(ctx, t, x, dy, dcoef);
    if (copies == 2) return run<2, 4>(ctx, t, x, dy, dcoef);
    return run<3, 4>(ctx, t, x, dy, dcoef);
}

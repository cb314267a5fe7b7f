/* apply.cu - computes y = T x on tensor cores. A 16x16 tile of T depends on its lag only, and all
** its words are pairs P[s] = (t[s], t[s-1]): with s = lag + g - 2q, the four words of a lane are
** P[s], P[s+8], P[s-8] and P[s] again, and P[s+8] is P[s-8] of the tile 16 lags on. So a tile costs
** two loads from shared memory, and serves every place of T where it occurs.
**
** A block of threads computes ROWS rows of y for CHANNELS channels, a warp each, of 8 sequences,
** the columns of its products. It takes x CHUNK rows at a time. */
#include "../common/apply.cuh"
#include "tiles.cuh"

#define MAX_ROWS 256
/* Words of a channel of x: 32 pairs of rows of 8 sequences, and 2 that spread channels over banks;
** floats of a channel of y: 64 rows, likewise. */
#define XLINE 258
#define YLINE 66

/* P in GPU memory: [COPIES,d,words], word k for the lag base + k, with 0 beside the band. */
typedef struct pairs {
    int64_t words;
    int base;
} pairs;

/* The windows of all blocks are inside, at multiples of 4. */
static pairs pairs_of(const band *t)
{
    int base = -(int)ceiling(MAX_ROWS + 2 * CHUNK - (int64_t)t->first, CHUNK) * CHUNK;
    return pairs{ceiling((int64_t)t->last - base + MAX_ROWS + 2 * CHUNK, CHUNK) * CHUNK, base};
}

/* lags: the rows of coef */
template <int COPIES>
static __global__ void make_pairs(pairs p, int64_t lags, int64_t zero, int sign, int64_t d,
                                  const float *coef, uint32_t *words)
{
    EACH(e, d * (p.words / 8))
    {
        int64_t c = e % d, k = e / d * 8;
        float t[9]; /* t[i]: lag base + k + i - 1 */
        for (int i = 0; i < 9; i++) {
            int64_t row = zero + sign * (p.base + k + i - 1);
            t[i] = row >= 0 && row < lags ? coef[row * d + c] : 0;
        }
        uint32_t split[8 * COPIES];
        for (int i = 0; i < 8; i++) split_bf16<COPIES>(t[i + 1], t[i], split + i, 8);
        for (int h = 0; h < COPIES; h++)
            for (int i = 0; i < 8; i += 4)
                *(uint4 *)(words + (h * d + c) * p.words + k + i) =
                    *(const uint4 *)(split + 8 * h + i);
    }
}

/* What a thread does, and where. */
template <int COPIES, int CHANNELS> struct worker {
    static const int ROWS = COPIES < 3 ? MAX_ROWS : MAX_ROWS / 2, TILES = ROWS / 16;
    static const int WORKERS = 32 * CHANNELS, QUARTERS = CHANNELS / 4, QUADS = (COPIES + 1) / 2;
    static const int RING = ROWS + 2 * CHUNK; /* the words of P that two chunks need together */
    static const int BYTES = 4 * COPIES * CHANNELS * (2 * RING + 2 * XLINE);

    const band &t;
    const pairs &p;
    const uint32_t *words;
    const float *x;
    uint32_t *ring, *xs; /* in shared memory: [COPIES,CHANNELS,2 RING] P, each word twice, so */
                         /* that no window wraps; [2,COPIES,CHANNELS,XLINE] x */
    int i0, c0;          /* the first row and channel of the block */
    int64_t b0;          /* its first sequence */
    int thread, lane, warp;
    float4 rows[4];
    uint4 quads[QUADS]; /* of P */

    __device__ const uint32_t *pairs_at(int line, int lag) const
    {
        int copy = line / CHANNELS, c = c0 + line % CHANNELS;
        return words + ((int64_t)copy * t.d + c) * p.words + (lag - p.base);
    }
    __device__ void keep(int line, int at, uint4 four) const
    {
        uint32_t *to = ring + line * 2 * RING + (at >= RING ? at - RING : at);
        *(uint4 *)to = *(uint4 *)(to + RING) = four;
    }
    __device__ bool loads(int line) const
    {
        return line < COPIES * CHANNELS && c0 + line % CHANNELS < t.d;
    }

    /* Loads the first window but its first CHUNK words. */
    __device__ void open(int j0) const
    {
        for (int e = thread; e < COPIES * CHANNELS * (ROWS / 4); e += WORKERS) {
            int k = e % (ROWS / 4) * 4, line = e / (ROWS / 4);
            if (loads(line)) keep(line, CHUNK + k, *(const uint4 *)pairs_at(line, i0 - j0 + k));
        }
    }
    /* Loads rows j0.. of x, and the CHUNK words that they add to the window, to registers. */
    __device__ void fetch(int j0)
    {
        int c = c0 + thread % QUARTERS * 4, k = thread / QUARTERS;
        for (int h = 0; h < 4; h++)
            rows[h] = load_channels(t, x, b0 + k % 8, j0 + k / 8 * 2 + h % 2 + h / 2 * 32, c);
        UNROLL
        for (int k = 0; k < QUADS; k++) {
            int line = (thread + k * WORKERS) / 16;
            if (loads(line))
                quads[k] = *(const uint4 *)pairs_at(line, i0 - j0 - CHUNK + thread % 16 * 4);
        }
    }
    /* Moves them to shared memory. start: the first word of the new window in the ring */
    __device__ void store(int start, int buffer) const
    {
        uint32_t *to =
            xs + (buffer * COPIES * CHANNELS + thread % QUARTERS * 4) * XLINE + thread / QUARTERS;
        for (int h = 0; h < 2; h++)
            store_pairs<COPIES>(rows[2 * h], rows[2 * h + 1], to + 128 * h, XLINE,
                                CHANNELS * XLINE);
        UNROLL
        for (int k = 0; k < QUADS; k++) {
            int line = (thread + k * WORKERS) / 16;
            if (loads(line)) keep(line, start + thread % 16 * 4, quads[k]);
        }
    }

    /* sums += the tiles of T in columns j0.. times the chunk in the buffer. Tensor cores truncate
    ** their sums, so with all digits each chunk is summed apart. */
    __device__ void multiply(int j0, int start, int buffer, float (&sums)[TILES][4]) const
    {
        int g = lane / 4, q = lane % 4;
        const uint32_t *column = xs + (buffer * COPIES * CHANNELS + warp) * XLINE + q * 8 + g;
        const uint32_t *word = ring + warp * 2 * RING + start + CHUNK + g - 2 * q;
        const int apart = CHANNELS * 2 * RING;
        float parts[4][4] = {}; /* of the rows of tiles tile .. tile + 3 */
        uint32_t xb[COPIES][4][2], low[COPIES], middle[COPIES], high[COPIES];
        UNROLL
        for (int h = 0; h < COPIES; h++) {
            low[h] = word[h * apart - 56];
            for (int k = 0; k < 4; k++) {
                xb[h][k][0] = column[h * CHANNELS * XLINE + k * 64];
                xb[h][k][1] = column[h * CHANNELS * XLINE + k * 64 + 32];
            }
        }
        UNROLL
        for (int tile = -3; tile < TILES; tile++) { /* by lag: i0 - j0 + 16 tile */
            int lag = i0 - j0 + 16 * tile;
            UNROLL
            for (int h = 0; h < COPIES; h++) {
                middle[h] = word[h * apart + 16 * tile];
                high[h] = word[h * apart + 16 * tile + 8];
            }
            if (lag + 15 >= t.first && lag - 15 <= t.last) {
                UNROLL
                for (int h = 0; h < products_of<COPIES>(); h++) {
                    const int l = left_of(h), r = right_of(h);
                    UNROLL
                    for (int k = tile < 0 ? -tile : 0; k < 4 && k + tile < TILES; k++)
                        multiply_tile(COPIES == 3 ? parts[(k + tile) & 3] : sums[k + tile],
                                      middle[l], high[l], low[l], middle[l], xb[r][k][0],
                                      xb[r][k][1]);
                }
            }
            UNROLL
            for (int e = 0; e < 4 && COPIES == 3 && tile >= 0; e++) {
                sums[tile][e] += parts[tile & 3][e];
                parts[tile & 3][e] = 0;
            }
            UNROLL
            for (int h = 0; h < COPIES; h++) low[h] = high[h];
        }
    }

    /* Writes 64 rows of y through shared memory, so that a row's channels are written together. */
    __device__ void write(const float (&sums)[TILES][4], int part, float *y) const
    {
        const int sequence = CHANNELS * YLINE + 4;
        float *stage = (float *)ring;
        UNROLL
        for (int k = 0; k < 4; k++)
            for (int e = 0; e < 4; e++)
                stage[(2 * (lane % 4) + e % 2) * sequence + warp * YLINE + 16 * k + lane / 4 +
                      e / 2 * 8] = sums[4 * part + k][e];
        __syncthreads();
        for (int e = thread; e < 8 * 64 * QUARTERS; e += WORKERS) {
            int c = e % QUARTERS * 4, i = e / QUARTERS % 64, row = i0 + 64 * part + i;
            int64_t s = b0 + e / QUARTERS / 64;
            if (s >= t.b || row >= t.n || c0 + c >= t.d) continue;
            const float *from = stage + e / QUARTERS / 64 * sequence + c * YLINE + i;
            float *to = y + (s * t.n + row) * t.d + c0 + c;
            if (t.d % 4 == 0)
                *(float4 *)to = make_float4(from[0], from[YLINE], from[2 * YLINE], from[3 * YLINE]);
            else
                for (int h = 0; h < 4 && c0 + c + h < t.d; h++) to[h] = from[h * YLINE];
        }
        __syncthreads();
    }
};

template <int COPIES, int CHANNELS>
static __global__ void __launch_bounds__(32 * CHANNELS)
    tile_rows(band t, pairs p, const uint32_t *words, const float *x, float *y)
{
    SHARED_WORDS(shared);
    typedef worker<COPIES, CHANNELS> here;
    const int ROWS = here::ROWS, RING = here::RING;
    int blocks = (t.n + ROWS - 1) / ROWS, groups = (t.d + CHANNELS - 1) / CHANNELS;
    int64_t rest =
        blockIdx.x / blocks; /* blocks that share x follow each other, the longest first */
    here w = {t,
              p,
              words,
              x,
              shared,
              shared + COPIES * CHANNELS * 2 * RING,
              (blocks - 1 - (int)(blockIdx.x % blocks)) * ROWS,
              (int)(rest % groups) * CHANNELS,
              rest / groups * 8,
              (int)threadIdx.x,
              (int)threadIdx.x % 32,
              (int)threadIdx.x / 32};
    float sums[here::TILES][4] = {};
    int from = w.i0 - t.last > 0 ? (w.i0 - t.last) / CHUNK * CHUNK : 0;
    int to = w.i0 + ROWS - t.first < t.n ? w.i0 + ROWS - t.first : t.n, start = 0, buffer = 0;
    if (from < to) {
        w.open(from);
        w.fetch(from);
        w.store(start, buffer);
    }
    __syncthreads();
    for (int j0 = from; j0 < to; j0 += CHUNK, buffer ^= 1) {
        if (j0 + CHUNK < to) w.fetch(j0 + CHUNK);
        if (w.c0 + w.warp < t.d) w.multiply(j0, start, buffer, sums);
        start = start >= CHUNK ? start - CHUNK : start + RING - CHUNK;
        if (j0 + CHUNK < to) w.store(start, buffer ^ 1);
        __syncthreads();
    }
    UNROLL
    for (int part = 0; part < ROWS / 64; part++)
        if (w.i0 + 64 * part < t.n) w.write(sums, part, y);
}

template <int COPIES, int CHANNELS>
static tl_status run(tl_ctx *ctx, const band *t, const pairs *p, const uint32_t *words,
                     const float *x, float *y)
{
    typedef worker<COPIES, CHANNELS> here;
    int64_t blocks = ceiling(t->n, here::ROWS) * ceiling(t->d, CHANNELS) * ceiling(t->b, 8);
    auto kernel = tile_rows<COPIES, CHANNELS>;
    LAUNCH_SHARED(kernel, blocks, 32 * CHANNELS, here::BYTES, *t, *p, words, x, y);
    return launched(ctx, "tno");
}

template <int COPIES>
static tl_status apply(tl_ctx *ctx, const band *t, int transpose, const float *coef, const float *x,
                       float *y)
{
    band which = *t;
    if (transpose) which.first = -t->last, which.last = -t->first;
    pairs p = pairs_of(&which);
    uint32_t *words;
    int64_t lags = (int64_t)t->last - t->first + 1;
    tl_status st = gpu_alloc(ctx, (size_t)(COPIES * t->d * p.words) * 4, (void **)&words);
    if (st != TL_OK) return st;
    LAUNCH(make_pairs<COPIES>, blocks_for(t->d * (p.words / 8)), THREADS, p, lags,
           -(int64_t)t->first, transpose ? -1 : 1, (int64_t)t->d, coef, words);
    st = launched(ctx, "tno");
    if (st == TL_OK && COPIES < 3 && gpu_shared_memory(ctx) >= (size_t)worker<COPIES, 16>::BYTES)
        st = run < COPIES < 3 ? COPIES : 1, 16 > (ctx, &which, &p, words, x, y);
    else if (st == TL_OK)
        st = run<COPIES, 8>(ctx, &which, &p, words, x, y);
    gpu_free(ctx, words);
    return st;
}

tl_status toeplitz_apply(tl_ctx *ctx, const band *t, int copies, int transpose, const float *coef,
                         const float *x, float *y)
{
    if (copies == 1) return apply<1>(ctx, t, transpose, coef, x, y);
    if (copies == 2) return apply<2>(ctx, t, transpose, coef, x, y);
    return apply<3>(ctx, t, transpose, coef, x, y);
}

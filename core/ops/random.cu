/* random.cu - draws random numbers from the same Philox blocks as random.c, so that a dropout mask
** does not depend on the device: element e is word e % 4 of block e / 4 of the stream, and an
** integer or a place is made of 64 bits of a block of its own. A thread computes a block. */
#include "cuda/cuda.cuh"
#include "base/philox.h"

/* The blocks of a stream from `offset` on; each launch of a graph shifts them (gpu_graph_shift). */
typedef struct draws {
    uint64_t key, offset;
    const uint64_t *shift;
} draws;

#define DRAWS (draws{(uint64_t)a->key, (uint64_t)a->offset, gpu_graph_shift(ctx, (uint64_t)a->key)})

static __device__ void draw(const draws &d, int64_t block, uint32_t w[4])
{
    tl_philox(d.key, d.offset + (d.shift ? *d.shift : 0) + (uint64_t)block, w);
}

static __global__ void uniform_blocks(draws d, float low, float range, float *y, int64_t n,
                                      int64_t blocks)
{
    EACH(k, blocks)
    {
        uint32_t w[4];
        draw(d, k, w);
        for (int64_t e = 4 * k; e < 4 * k + 4 && e < n; e++)
            y[e] = low + range * (float)(int32_t)(w[e % 4] >> 8);
    }
}

static __global__ void normal_blocks(draws d, float mean, float deviation, float *y, int64_t n,
                                     int64_t blocks)
{
    EACH(k, blocks)
    {
        uint32_t w[4];
        float z[4];
        draw(d, k, w);
        for (int e = 0; e < 4; e += 2) tl_normal_pair(w[e], w[e + 1], z + e);
        for (int64_t e = 4 * k; e < 4 * k + 4 && e < n; e++) y[e] = mean + deviation * z[e % 4];
    }
}

static __global__ void integers_each(draws d, uint64_t bound, int32_t *y, int64_t n)
{
    EACH(i, n)
    {
        uint32_t w[4];
        draw(d, i, w);
        y[i] = (int32_t)(tl_philox_bits(w) % bound);
    }
}

static __global__ void places_each(draws d, const float *lengths, int64_t count, int32_t *y,
                                   int64_t n)
{
    EACH(i, n)
    {
        uint32_t w[4];
        draw(d, i % count, w);
        y[i] = tl_philox_place(lengths[i / count], tl_philox_unit(w));
    }
}

static __global__ void dropout_blocks(draws d, uint32_t threshold, float scale, const float *x,
                                      float *y, int64_t n, int64_t blocks)
{
    EACH(k, blocks)
    {
        uint32_t w[4];
        draw(d, k, w);
        for (int64_t e = 4 * k; e < 4 * k + 4 && e < n; e++)
            y[e] = w[e % 4] >= threshold ? x[e] * scale : 0.0f;
    }
}

GPU_EACH(uniform, (a->y->len + 3) / 4, uniform_blocks, DRAWS, (float)a->low,
         (float)(a->high - a->low) * 0x1p-24f, F32(a->y), a->y->len)
GPU_EACH(normal, (a->y->len + 3) / 4, normal_blocks, DRAWS, (float)a->mean, (float)a->deviation,
         F32(a->y), a->y->len)
GPU_EACH(integers, a->y->len, integers_each, DRAWS, (uint64_t)a->bound, I32(a->y))
GPU_EACH(places, a->places->len, places_each, DRAWS, F32(a->lengths), tl_cols(a->places),
         I32(a->places))
GPU_EACH(dropout, (a->y->len + 3) / 4, dropout_blocks, DRAWS, (uint32_t)(uint64_t)(a->p * 0x1p32),
         (float)(1.0 / (1.0 - a->p)), F32(a->x), F32(a->y), a->y->len)

/* random.cu - draws random numbers from the same Philox blocks as random.c, so that a dropout mask
** does not depend on the device: element e is word e % 4 of block e / 4 of the stream, and an
** integer or a place is made of 64 bits of a block of its own. A thread computes a block. */
#include "cuda/cuda.cuh"
#include "base/philox.h"

/* The first block of a kernel; each launch of a graph shifts it (gpu_graph_shift). */
static __device__ uint64_t start_of(uint64_t offset, const uint64_t *shift)
{
    return shift ? offset + *shift : offset;
}

static __global__ void uniform_blocks(uint64_t key, uint64_t offset, const uint64_t *shift,
                                      float low, float range, float *y, int64_t n)
{
    offset = start_of(offset, shift);
    EACH(k, (n + 3) / 4)
    {
        uint32_t w[4];
        tl_philox(key, offset + (uint64_t)k, w);
        for (int64_t e = 4 * k; e < 4 * k + 4 && e < n; e++)
            y[e] = low + range * (float)(int32_t)(w[e % 4] >> 8);
    }
}

static __global__ void normal_blocks(uint64_t key, uint64_t offset, const uint64_t *shift,
                                     float mean, float deviation, float *y, int64_t n)
{
    offset = start_of(offset, shift);
    EACH(k, (n + 3) / 4)
    {
        uint32_t w[4];
        float z[4];
        tl_philox(key, offset + (uint64_t)k, w);
        for (int e = 0; e < 4; e += 2) tl_normal_pair(w[e], w[e + 1], z + e);
        for (int64_t e = 4 * k; e < 4 * k + 4 && e < n; e++) y[e] = mean + deviation * z[e % 4];
    }
}

static __global__ void integers_each(uint64_t key, uint64_t offset, const uint64_t *shift,
                                     uint64_t bound, int32_t *y, int64_t n)
{
    offset = start_of(offset, shift);
    EACH(i, n)
    {
        uint32_t w[4];
        tl_philox(key, offset + (uint64_t)i, w);
        y[i] = (int32_t)(tl_philox_bits(w) % bound);
    }
}

static __global__ void places_each(uint64_t key, uint64_t offset, const uint64_t *shift,
                                   const float *lengths, int64_t count, int32_t *y, int64_t n)
{
    offset = start_of(offset, shift);
    EACH(i, n)
    {
        uint32_t w[4];
        tl_philox(key, offset + (uint64_t)(i % count), w);
        y[i] = tl_philox_place(lengths[i / count], tl_philox_unit(w));
    }
}

static __global__ void dropout_blocks(uint64_t key, uint64_t offset, const uint64_t *shift,
                                      uint32_t threshold, float scale, const float *x, float *y,
                                      int64_t n)
{
    offset = start_of(offset, shift);
    EACH(k, (n + 3) / 4)
    {
        uint32_t w[4];
        tl_philox(key, offset + (uint64_t)k, w);
        for (int64_t e = 4 * k; e < 4 * k + 4 && e < n; e++)
            y[e] = w[e % 4] >= threshold ? x[e] * scale : 0.0f;
    }
}

tl_status gpu_uniform(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_uniform *r = &a->uniform;
    int64_t n = r->y->len;
    LAUNCH(uniform_blocks, blocks_for(n / 4), THREADS, (uint64_t)r->key, (uint64_t)r->offset,
           gpu_graph_shift(ctx, (uint64_t)r->key), (float)r->low,
           (float)(r->high - r->low) * 0x1p-24f, F32(r->y), n);
    return launched(ctx, "uniform");
}

tl_status gpu_normal(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_normal *r = &a->normal;
    int64_t n = r->y->len;
    LAUNCH(normal_blocks, blocks_for(n / 4), THREADS, (uint64_t)r->key, (uint64_t)r->offset,
           gpu_graph_shift(ctx, (uint64_t)r->key), (float)r->mean, (float)r->deviation,
           F32(r->y), n);
    return launched(ctx, "normal");
}

tl_status gpu_integers(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_integers *r = &a->integers;
    int64_t n = r->y->len;
    LAUNCH(integers_each, blocks_for(n), THREADS, (uint64_t)r->key, (uint64_t)r->offset,
           gpu_graph_shift(ctx, (uint64_t)r->key), (uint64_t)r->bound, I32(r->y), n);
    return launched(ctx, "integers");
}

tl_status gpu_places(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_places *r = &a->places;
    int64_t n = r->places->len;
    LAUNCH(places_each, blocks_for(n), THREADS, (uint64_t)r->key, (uint64_t)r->offset,
           gpu_graph_shift(ctx, (uint64_t)r->key), F32(r->lengths), tl_cols(r->places),
           I32(r->places), n);
    return launched(ctx, "places");
}

tl_status gpu_dropout(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_dropout *r = &a->dropout;
    int64_t n = r->y->len;
    LAUNCH(dropout_blocks, blocks_for(n / 4), THREADS, (uint64_t)r->key, (uint64_t)r->offset,
           gpu_graph_shift(ctx, (uint64_t)r->key), (uint32_t)(uint64_t)(r->p * 0x1p32),
           (float)(1.0 / (1.0 - r->p)), F32(r->x), F32(r->y), n);
    return launched(ctx, "dropout");
}

/* philox.h - Philox4x32-10, a counter-based generator (Salmon, Moraes, Dror, Shaw 2011,
** "Parallel random numbers: as easy as 1, 2, 3"): block = f(key, counter), so any block can be
** computed without its predecessors. */
#ifndef TL_PHILOX_H
#define TL_PHILOX_H

#include <math.h>
#include <stdint.h>

#include "base/here.h"

#define PHILOX_ROUNDS 10
#define PHILOX_M0     0xD2511F53u
#define PHILOX_M1     0xCD9E8D57u
#define PHILOX_W0     0x9E3779B9u /* golden ratio */
#define PHILOX_W1     0xBB67AE85u /* sqrt 3 - 1 */

/* Applies one round with the round keys k0, k1 to the words *c0..*c3. */
static inline HERE void philox_round(uint32_t *c0, uint32_t *c1, uint32_t *c2, uint32_t *c3,
                                uint32_t k0, uint32_t k1)
{
    uint64_t a = (uint64_t)PHILOX_M0 * *c0, b = (uint64_t)PHILOX_M1 * *c2;
    *c0 = (uint32_t)(b >> 32) ^ *c1 ^ k0;
    *c1 = (uint32_t)b;
    *c2 = (uint32_t)(a >> 32) ^ *c3 ^ k1;
    *c3 = (uint32_t)a;
}

/* Replaces the 128-bit counter c by its block of random words. */
static inline HERE void philox_block(uint64_t key, uint32_t c[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        philox_round(c, c + 1, c + 2, c + 3, k0, k1);
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
}

/* Writes block number counter of the stream key: four random words. */
static inline HERE void tl_philox(uint64_t key, uint64_t counter, uint32_t out[4])
{
    out[0] = (uint32_t)counter;
    out[1] = (uint32_t)(counter >> 32);
    out[2] = out[3] = 0;
    philox_block(key, out);
}

/* The 64 bits that a scalar draw takes from a block. */
static inline HERE uint64_t tl_philox_bits(const uint32_t w[4])
{
    return (uint64_t)w[1] << 32 | w[0];
}

/* A number in [0,1) from a block. */
static inline HERE double tl_philox_unit(const uint32_t w[4])
{
    return (double)(tl_philox_bits(w) >> 11) * 0x1p-53;
}

/* The position below length at that part of it; 0 unless it is an int32. */
static inline HERE int32_t tl_philox_place(float length, double unit)
{
    double at = (double)length * unit;
    return at >= 0 && at < INT32_MAX ? (int32_t)at : 0;
}

/* The Box-Muller transform turns two uniform words into two independent normal numbers. */
static inline HERE void tl_normal_pair(uint32_t u, uint32_t v, float out[2])
{
    float radius = sqrtf(-2.0f * logf(((float)u + 1.0f) * 0x1p-32f)); /* log of (0,1] */
    float angle = 6.28318531f * ((float)(int32_t)(v >> 8) * 0x1p-24f);
    out[0] = radius * cosf(angle);
    out[1] = radius * sinf(angle);
}

#endif

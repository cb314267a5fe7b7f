/* philox.h - Philox4x32-10, a counter-based generator (Salmon, Moraes, Dror, Shaw 2011,
** "Parallel random numbers: as easy as 1, 2, 3"): block = f(key, counter), so any block can be
** computed without its predecessors. */
#ifndef TL_PHILOX_H
#define TL_PHILOX_H

#include <stdint.h>

#define PHILOX_ROUNDS 10
#define PHILOX_M0     0xD2511F53u
#define PHILOX_M1     0xCD9E8D57u
#define PHILOX_W0     0x9E3779B9u /* golden ratio */
#define PHILOX_W1     0xBB67AE85u /* sqrt 3 - 1 */

/* Applies one round with the round keys k0, k1 to the words *c0..*c3. */
static inline void philox_round(uint32_t *c0, uint32_t *c1, uint32_t *c2, uint32_t *c3,
                                uint32_t k0, uint32_t k1)
{
    uint64_t a = (uint64_t)PHILOX_M0 * *c0, b = (uint64_t)PHILOX_M1 * *c2;
    *c0 = (uint32_t)(b >> 32) ^ *c1 ^ k0;
    *c1 = (uint32_t)b;
    *c2 = (uint32_t)(a >> 32) ^ *c3 ^ k1;
    *c3 = (uint32_t)a;
}

/* Replaces the 128-bit counter c by its block of random words. */
static inline void philox_block(uint64_t key, uint32_t c[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        philox_round(c, c + 1, c + 2, c + 3, k0, k1);
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
}

/* Writes block number counter of the stream key: four random words. */
static inline void tl_philox(uint64_t key, uint64_t counter, uint32_t out[4])
{
    out[0] = (uint32_t)counter;
    out[1] = (uint32_t)(counter >> 32);
    out[2] = out[3] = 0;
    philox_block(key, out);
}

#endif

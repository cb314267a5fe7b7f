/* bf16.h - rounds float32 to bfloat16, the upper half of a float32. */
#ifndef TL_BF16_H
#define TL_BF16_H

#include <stdint.h>
#include <string.h>

#include "base/here.h"

/* Returns the upper half of bits, rounded to nearest, ties to even; a NaN stays one. */
static inline HERE uint16_t tl_round_bf16(uint32_t bits)
{
    int      nan = (bits & 0x7fffffffu) > 0x7f800000u;
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)(nan ? (bits >> 16 | 0x40u) : rounded);
}

/* Returns x rounded to the precision of bfloat16. */
static inline HERE float tl_bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (uint32_t)tl_round_bf16(bits) << 16;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

#endif

/* sort.h - the keys by which rows are sorted. */
#ifndef TL_SORT_H
#define TL_SORT_H

#include <stdint.h>

#include "base/here.h"

#define SORT_SIGN 0x80000000u

/* Maps the bits of an element, a float32 or an int32, to a number whose unsigned order is the order
** of the elements. All NaN have the largest key, and both zeros the same. */
static inline HERE uint32_t sort_key(uint32_t bits, int is_float)
{
    if (!is_float) return bits ^ SORT_SIGN;
    if ((bits & ~SORT_SIGN) > 0x7F800000u) return UINT32_MAX;
    if (bits == SORT_SIGN) bits = 0;
    return bits & SORT_SIGN ? ~bits : bits | SORT_SIGN;
}

#endif

/* random.h - draws random words in groups, so that the rounds of Philox vectorise. */
#ifndef TL_RANDOM_H
#define TL_RANDOM_H

#include <stdint.h>

#define TL_DRAWN 64 /* words of a group: those of 16 blocks */

/* Writes the words of the elements TL_DRAWN group .. TL_DRAWN (group + 1) - 1 of a stream, where
** element e has word e%4 of block offset + e/4. */
void tl_draw_group(uint64_t key, uint64_t offset, int64_t group, uint32_t out[TL_DRAWN]);

#endif

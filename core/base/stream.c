/* stream.c - random streams. A number depends on (key, position) alone, so neither the number of
** threads nor an interruption changes it.
**
** A stream counts blocks of four 32-bit words. A scalar draw uses one block, and tl_random_below
** one more for each value that it rejects; ops/random.c fills tensors with whole blocks. */
#include "base/context.h"
#include "base/philox.h"

/* The finaliser of splitmix64: every input bit changes every output bit. */
static uint64_t splitmix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

tl_stream tl_stream_new(uint64_t seed, const char *purpose)
{
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a */
    for (const char *p = purpose; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 0x100000001B3u;
    return (tl_stream){.key = splitmix(hash ^ splitmix(seed + PHILOX_W0)), .offset = 0};
}

double tl_random_unit(tl_stream *s)
{
    uint32_t w[4];
    tl_philox(s->key, s->offset++, w);
    return tl_philox_unit(w);
}

int64_t tl_random_below(tl_stream *s, int64_t bound)
{
    if (bound <= 1) return 0;
    /* excess: 2^64 mod n values would bias the result */
    uint64_t n = (uint64_t)bound, excess = (0 - n) % n, r;
    do {
        uint32_t w[4];
        tl_philox(s->key, s->offset++, w);
        r = tl_philox_bits(w);
    } while (r < excess);
    return (int64_t)(r % n);
}

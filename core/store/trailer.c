/* trailer.c - computes and verifies the checksum that we append to our HDF5 files.
**
** HDF5 and the store have checksums too, but neither replaces this one:
** - HDF5's Fletcher32 covers datasets of 64 KiB and more (h5write.c). A flipped bit in a smaller
**   one, such as a bias or a decay, is read as another number without an error (test_h5.c).
** - The store's sha256 is known only where a row of the store leads to the file. A model that was
**   copied elsewhere, or a file that a script opens by its path, has no row.
** - libhdf5 1.10.8 writes outside its memory on damaged contents. tl_h5_open verifies the trailer
**   before HDF5 parses anything, so an intact file is parsed in this process. Without the trailer
**   every file would need a child process (h5apart.c), as foreign files do, and ours that lost
**   their end, at the cost of a fork and a second copy of every tensor.
**
** HDF5 ignores bytes behind the end that it knows, so any tool reads the file. The trailer is
** eight bytes of magic, the length of what precedes it, and its checksum, all little-endian. */
#include <string.h>

#include "store/trailer.h"

static const char magic[8] = {'T', 'L', '-', 'S', 'U', 'M', '1', '\n'};

/* Each step is a bijection of h, so a change within one word always changes the result. */
static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 32);
}

static uint64_t checksum(const unsigned char *p, size_t bytes)
{
    uint64_t h = bytes;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t word = 0;
        for (int i = 0; i < 8; i++) word |= (uint64_t)p[i] << (8 * i);
        h = mix(h, word);
    }
    for (; bytes; p++, bytes--) h = mix(h, *p);
    return h;
}

static void put64(unsigned char *p, uint64_t x)
{
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)(x >> (8 * i));
}

void tl_trailer(unsigned char out[TL_TRAILER], const unsigned char *data, size_t bytes)
{
    memcpy(out, magic, sizeof magic);
    put64(out + 8, bytes);
    put64(out + 16, checksum(data, bytes));
}

tl_status tl_trailer_verify(tl_ctx *ctx, const char *path, const void *data, size_t bytes,
                            int *out_there)
{
    unsigned char expected[TL_TRAILER];
    size_t end = bytes < TL_TRAILER ? 0 : bytes - TL_TRAILER;
    const unsigned char *found = (const unsigned char *)data + end;
    *out_there = end && memcmp(found, magic, sizeof magic) == 0;
    if (!*out_there) return TL_OK;
    put64(expected + 8, end);
    if (memcmp(found + 8, expected + 8, 8) != 0)
        return tl_fail(ctx, TL_ECORRUPT, "%s: its length has changed since it was written", path);
    tl_trailer(expected, data, end);
    if (memcmp(found, expected, TL_TRAILER) != 0)
        return tl_fail(ctx, TL_ECORRUPT,
                       "%s: is damaged: its checksum does not match its %zu bytes", path, end);
    return TL_OK;
}

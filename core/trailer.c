/* trailer.c - the checksum behind the last byte of our HDF5 files.
**
** HDF5 ignores bytes past those that it knows of, so any tool reads the file; tl_h5_open verifies
** the trailer before HDF5 parses anything, so that damaged contents do not reach a parser. Files of
** others, and one of ours that has lost its end, have none and are taken as they are. It is eight
** bytes of magic, the length of what stands before it, and its checksum, all little-endian. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

static const char magic[8] = {'T', 'L', '-', 'S', 'U', 'M', '1', '\n'};

/* Each step is a bijection of h, so a change within one word always shows. */
static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 32);
}

/* bytes is a multiple of 8 in all calls but the last of a file. */
static uint64_t checksum(uint64_t h, const unsigned char *p, size_t bytes)
{
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
    put64(out + 16, checksum(bytes, data, bytes));
}

static int read_at(int fd, unsigned char *buf, size_t bytes, off_t at)
{
    while (bytes) {
        ssize_t n = pread(fd, buf, bytes, at);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO; /* shorter than fstat said */
        if (n <= 0) return -1;
        buf += n;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static tl_status verify(tl_ctx *ctx, int fd, const char *path)
{
    unsigned char found[TL_TRAILER], want[8], buf[1 << 16];
    struct stat s;
    if (fstat(fd, &s) != 0) return tl_fail_errno(ctx, "fstat", path);
    if (!S_ISREG(s.st_mode)) return tl_fail(ctx, TL_ECORRUPT, "%s: is not a plain file", path);
    off_t end = s.st_size - TL_TRAILER;
    if (end < 0) return TL_OK;
    if (read_at(fd, found, TL_TRAILER, end) != 0) return tl_fail_errno(ctx, "read", path);
    if (memcmp(found, magic, sizeof magic) != 0) return TL_OK;
    uint64_t h = (uint64_t)end;
    for (off_t at = 0; at < end; at += (off_t)sizeof buf) {
        size_t n = end - at < (off_t)sizeof buf ? (size_t)(end - at) : sizeof buf;
        if (read_at(fd, buf, n, at) != 0) return tl_fail_errno(ctx, "read", path);
        h = checksum(h, buf, n);
    }
    put64(want, (uint64_t)end);
    if (memcmp(found + 8, want, 8) != 0)
        return tl_fail(ctx, TL_ECORRUPT, "%s: its length is not the one it was written with", path);
    put64(want, h);
    if (memcmp(found + 16, want, 8) != 0)
        return tl_fail(ctx, TL_ECORRUPT, "%s: its checksum does not fit its %lld bytes", path,
                       (long long)end);
    return TL_OK;
}

tl_status tl_trailer_verify(tl_ctx *ctx, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return tl_fail_errno(ctx, "open", path);
    tl_status st = verify(ctx, fd, path);
    (void)close(fd); /* nothing was written */
    return st;
}

/* inflate.c - expands compressed entries of zip archives into files of their own. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "toeplab-lab.h"

#define PIECE 16384 /* bytes read and written at a time */

/* The two files of one call. */
typedef struct job {
    tl_ctx     *ctx;
    const char *path, *to_path;
    int         fd, to_fd;
    int64_t     packed, bytes; /* that remain to be read and to be written */
} job;

static tl_status damaged(const job *j, const char *what)
{
    return tl_fail(j->ctx, TL_ECORRUPT, "%s: %s", j->path, what);
}

static tl_status write_piece(job *j, const unsigned char *data, size_t bytes)
{
    if ((int64_t)bytes > j->bytes) return damaged(j, "expands to more bytes than it states");
    j->bytes -= (int64_t)bytes;
    while (bytes > 0) {
        ssize_t n = write(j->to_fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tl_fail_errno(j->ctx, "write", j->to_path);
        data += n;
        bytes -= (size_t)n;
    }
    return TL_OK;
}

static tl_status read_piece(job *j, z_stream *z, unsigned char *data)
{
    size_t  bytes = j->packed < PIECE ? (size_t)j->packed : PIECE;
    ssize_t n = tl_file_read_all(j->fd, data, bytes);
    if (n < 0) return tl_fail_errno(j->ctx, "read", j->path);
    if (n == 0) return damaged(j, "its compressed bytes end early");
    j->packed -= n;
    z->next_in = data;
    z->avail_in = (uInt)n;
    return TL_OK;
}

static tl_status expand(job *j, z_stream *z)
{
    unsigned char in[PIECE], out[PIECE];
    tl_status     st = TL_OK;
    int           code = Z_OK;
    while (st == TL_OK && code != Z_STREAM_END) {
        if (z->avail_in == 0 && (st = read_piece(j, z, in)) != TL_OK) break;
        z->next_out = out;
        z->avail_out = PIECE;
        code = inflate(z, Z_NO_FLUSH);
        if (code == Z_MEM_ERROR) return tl_fail(j->ctx, TL_ENOMEM, "out of memory");
        /* Z_BUF_ERROR: more input is needed */
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
            return damaged(j, "its compressed bytes are no deflate stream");
        st = write_piece(j, out, PIECE - z->avail_out);
    }
    if (st == TL_OK && j->bytes > 0) st = damaged(j, "expands to fewer bytes than it states");
    return st;
}

tl_status tl_inflate(tl_ctx *ctx, const char *path, int64_t offset, int64_t packed,
                     const char *to_path, int64_t bytes)
{
    job       j = {ctx, path, to_path, -1, -1, packed, bytes};
    z_stream  z = {0};
    size_t    size;
    if (offset < 0 || packed < 0 || bytes < 0)
        return tl_fail(ctx, TL_EINVAL, "inflate: %lld packed bytes at offset %lld for %lld bytes: "
                       "none may be negative", (long long)packed, (long long)offset,
                       (long long)bytes);
    tl_status st = tl_file_open(ctx, path, &j.fd, &size);
    if (st == TL_OK && lseek(j.fd, (off_t)offset, SEEK_SET) < 0)
        st = tl_fail_errno(ctx, "seek", path);
    if (st == TL_OK) j.to_fd = open(to_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (st == TL_OK && j.to_fd < 0) st = tl_fail_errno(ctx, "open", to_path);
    if (st == TL_OK && inflateInit2(&z, -MAX_WBITS) != Z_OK) /* negative: without zlib's header */
        st = tl_fail(ctx, TL_ENOMEM, "out of memory");
    if (st == TL_OK) st = expand(&j, &z);
    (void)inflateEnd(&z); /* harmless on a stream that was not begun */
    if (j.to_fd >= 0 && close(j.to_fd) != 0 && st == TL_OK)
        st = tl_fail_errno(ctx, "close", to_path);
    if (j.fd >= 0) (void)close(j.fd); /* only read, so an error loses nothing */
    return st;
}

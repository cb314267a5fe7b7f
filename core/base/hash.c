/* hash.c - SHA-256 of memory and of files, computed by libmd. */
#include <errno.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <sha256.h>

#include "base/file.h"

static void hex(SHA256_CTX *sha, char out_hex[65])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA256Final(digest, sha);
    for (int i = 0; i < SHA256_DIGEST_LENGTH; i++) {
        out_hex[2 * i] = digits[digest[i] >> 4];
        out_hex[2 * i + 1] = digits[digest[i] & 15];
    }
    out_hex[64] = '\0';
}

void tl_sha256(const void *data, size_t bytes, char out_hex[65])
{
    SHA256_CTX sha;
    SHA256Init(&sha);
    if (bytes) SHA256Update(&sha, data, bytes);
    hex(&sha, out_hex);
}

tl_status tl_sha256_file(tl_ctx *ctx, const char *path, char out_hex[65])
{
    SHA256_CTX sha;
    uint8_t buf[1 << 13]; /* a thread's stack may be 64 KiB */
    ssize_t got;
    size_t bytes;
    int fd;
    tl_status st = tl_file_open(ctx, path, &fd, &bytes);
    if (st != TL_OK && fd >= 0) (void)close(fd);
    if (st != TL_OK) return st == TL_EINVAL ? TL_EIO : st; /* it is a folder or a pipe */
    SHA256Init(&sha);
    do {
        got = read(fd, buf, sizeof buf);
        if (got > 0) SHA256Update(&sha, buf, (size_t)got);
    } while (got > 0 || (got < 0 && errno == EINTR));
    st = got < 0 ? tl_fail_errno(ctx, "read", path) : TL_OK;
    (void)close(fd); /* only read, so an error loses nothing */
    if (st == TL_OK) hex(&sha, out_hex);
    return st;
}

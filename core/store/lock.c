/* lock.c - allows one writer per folder. The writer holds a lock on FOLDER/lock for as long as
** it keeps the file open. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "store/lock.h"

/* Fails with TL_ELOCKED and what the holder wrote into the file: "PID HOST". */
static tl_status fail_locked(tl_ctx *ctx, const char *folder, int fd)
{
    char text[300] = "", host[256] = "?";
    long pid = 0;
    struct stat file;
    double age = fstat(fd, &file) == 0 ? difftime(time(NULL), file.st_mtime) : 0;
    if (pread(fd, text, sizeof text - 1, 0) <= 0 || sscanf(text, "%ld %255s", &pid, host) != 2)
        return tl_fail(ctx, TL_ELOCKED, "%s: another process writes here", folder);
    return tl_fail(ctx, TL_ELOCKED, "%s: process %ld on %s has been writing here for %.0f s",
                   folder, pid, host, age > 0 ? age : 0.0);
}

int tl_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

tl_status tl_lock_check(tl_ctx *ctx, const char *folder, int fd)
{
    struct stat held, found;
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/lock", folder); /* tl_lock has checked the length */
    if (fstat(fd, &held) != 0) return tl_fail_errno(ctx, "fstat", path);
    if (stat(path, &found) == 0 && tl_same_file(&found, &held)) return TL_OK;
    return tl_fail(ctx, TL_EIO, "%s: " TL_REPLACED, path);
}

tl_status tl_lock(tl_ctx *ctx, const char *folder, int *out_fd)
{
    char path[4096], text[300], host[200] = "?";
    tl_status st = TL_OK;
    if (snprintf(path, sizeof path, "%s/lock", folder) >= (int)sizeof path)
        return tl_fail(ctx, TL_EINVAL, "%s: too long a name", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return tl_fail_errno(ctx, "open", path);
    (void)gethostname(host, sizeof host - 1); /* only for the message */
    int n = snprintf(text, sizeof text, "%ld %s\n", (long)getpid(), host);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        st = errno == EWOULDBLOCK ? fail_locked(ctx, folder, fd) : tl_fail_errno(ctx, "lock", path);
    } else if (pwrite(fd, text, (size_t)n, 0) != n || ftruncate(fd, n) != 0) {
        /* The text is written before the file is cut, so that another process that reads it
        ** meanwhile always finds a holder. */
        st = tl_fail_errno(ctx, "write", path);
    }
    if (st == TL_OK) {
        *out_fd = fd;
    } else {
        (void)close(fd);
    }
    return st;
}

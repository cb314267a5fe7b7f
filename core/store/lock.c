/* lock.c - lets one process at a time write to the store of a folder: the one that has locked
** FOLDER/lock. */
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

tl_status tl_lock_open(tl_ctx *ctx, const char *folder, int *out_fd)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/lock", folder) >= (int)sizeof path)
        return tl_fail(ctx, TL_EINVAL, "%s: the name is too long", folder);
    *out_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    return *out_fd < 0 ? tl_fail_errno(ctx, "open", path) : TL_OK;
}

/* Writes who holds the lock, before the file is cut, so that others always find a holder there. */
static tl_status sign(tl_ctx *ctx, const char *folder, int fd)
{
    char text[300], host[200] = "?";
    (void)gethostname(host, sizeof host - 1); /* only for the message */
    int n = snprintf(text, sizeof text, "%ld %s\n", (long)getpid(), host);
    if (pwrite(fd, text, (size_t)n, 0) == n && ftruncate(fd, n) == 0) return TL_OK;
    tl_status st = tl_fail_errno(ctx, "write", folder);
    tl_unlock(fd);
    return st;
}

tl_status tl_lock(tl_ctx *ctx, const char *folder, int fd, double seconds,
                  int (*stopped)(void *user), void *user)
{
    struct timespec pause = {.tv_nsec = 1000000};
    double waited = 0;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) return tl_fail_errno(ctx, "lock", folder);
        /* A run that is stopped still records what it has. */
        if (waited >= seconds || (waited >= 2 && stopped && stopped(user)))
            return fail_locked(ctx, folder, fd);
        (void)nanosleep(&pause, NULL);
        waited += (double)pause.tv_nsec * 1e-9;
        if (pause.tv_nsec < 16000000) pause.tv_nsec *= 2;
    }
    return sign(ctx, folder, fd);
}

void tl_unlock(int fd)
{
    (void)flock(fd, LOCK_UN);
}

/* record.c - for LD_PRELOAD: appends every call that changes a file below the folder RECORD_PATH to
** the file RECORD_TO, in the order of the calls of all processes. replay.lua reads it. A record is
** a line of words between tabs, with paths relative to RECORD_PATH; the data of a write follows:
**   make FILE    folder PATH    move FROM TO    link FROM TO    gone PATH    size FILE BYTES
**   sync PATH    write FILE OFFSET BYTES
** A call is recorded after it is made and before it returns, so if one process acts because of a
** call of another, its own call is recorded later. Calls within the C library cannot be
** replaced, so the writes of buffered streams are missing; the program never syncs such files. */
#include "interpose.h"

#include <stdio_ext.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* The part of path below RECORD_PATH, or NULL. */
static const char *inside(const char *path)
{
    const char *folder = getenv("RECORD_PATH");
    size_t      n = folder ? strlen(folder) : 0;
    return n && strncmp(path, folder, n) == 0 && path[n] ? path + n : NULL;
}

/* The same for the open file fd; path is a buffer. NULL also if the file was deleted. */
static const char *inside_of(int fd, char path[4096])
{
    return strstr(path_of(fd, path), " (deleted)") ? NULL : inside(path);
}

static void record(const char *name, const void *data, size_t bytes, const char *format, ...)
{
    char    line[9000];
    int     old = errno;
    va_list words;
    if (!name) return;
    va_start(words, format);
    int n = vsnprintf(line, sizeof line, format, words);
    va_end(words);
    struct iovec parts[2] = {{line, (size_t)n}, {(void *)data, bytes}};
    int          fd = (int)syscall(SYS_openat, AT_FDCWD, getenv("RECORD_TO"),
                                   O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    (void)!syscall(SYS_writev, fd, parts, data ? 2 : 1);
    (void)syscall(SYS_close, fd);
    errno = old;
}

/* ---- Data ------------------------------------------------------------------------------------ */

static ssize_t written(int fd, const void *data, ssize_t bytes, off_t at)
{
    char        path[4096];
    const char *name = bytes > 0 ? inside_of(fd, path) : NULL;
    record(name, data, (size_t)bytes, "write\t%s\t%lld\t%zd\n", name, (long long)at, bytes);
    return bytes;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    ssize_t n = syscall(SYS_write, fd, data, bytes);
    int     error = errno;
    off_t   end = n > 0 ? lseek(fd, 0, SEEK_CUR) : -1; /* -1: a pipe */
    errno = error;
    return end < 0 ? n : written(fd, data, n, end - n);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    return written(fd, data, syscall(SYS_pwrite64, fd, data, bytes, at), at);
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *file)
{
    size_t (*next)(const void *, size_t, size_t, FILE *);
    NEXT("fwrite");
    size_t  done = next(data, size, count, file);
    ssize_t n = (ssize_t)(done * size);
    int     error = errno;
    off_t   end = n > 0 && __fbufsize(file) <= 1 ? lseek(fileno(file), 0, SEEK_CUR) : -1;
    errno = error;
    if (end >= 0) (void)written(fileno(file), data, n, end - n);
    return done;
}

static int named(const char *what, int fd, int result)
{
    char        path[4096];
    const char *name = result == 0 ? inside_of(fd, path) : NULL;
    record(name, NULL, 0, "%s\t%s\n", what, name);
    return result;
}

int fsync(int fd) { return named("sync", fd, (int)syscall(SYS_fsync, fd)); }

int fdatasync(int fd) { return named("sync", fd, (int)syscall(SYS_fdatasync, fd)); }

int ftruncate(int fd, off_t size)
{
    char        path[4096];
    int         result = (int)syscall(SYS_ftruncate, fd, size);
    const char *name = result == 0 ? inside_of(fd, path) : NULL;
    record(name, NULL, 0, "size\t%s\t%lld\n", name, (long long)size);
    return result;
}

/* ---- Names ----------------------------------------------------------------------------------- */

/* Records that opening a file created it (fresh) or truncated it (cut). */
static void opened(const char *path, int fresh, int cut)
{
    if (fresh) record(inside(path), NULL, 0, "make\t%s\n", inside(path));
    if (!fresh && cut) record(inside(path), NULL, 0, "size\t%s\t0\n", inside(path));
}

static int absent(const char *path) { return syscall(SYS_faccessat, AT_FDCWD, path, F_OK) != 0; }

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    int error = errno, fresh = flags & O_CREAT && absent(path);
    errno = error;
    int fd = (int)syscall(SYS_openat, folder, path, flags, mode);
    if (fd >= 0) opened(path, fresh, flags & O_TRUNC);
    return fd;
}

FILE *fopen(const char *path, const char *mode)
{
    FILE *(*next)(const char *, const char *);
    NEXT("fopen");
    int   error = errno, fresh = *mode != 'r' && absent(path);
    errno = error;
    FILE *file = next(path, mode);
    if (file) opened(path, fresh, *mode == 'w');
    return file;
}

static int done(const char *what, const char *path, int result)
{
    record(result == 0 ? inside(path) : NULL, NULL, 0, "%s\t%s\n", what, inside(path));
    return result;
}

int mkdir(const char *path, mode_t mode)
{
    return done("folder", path, (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

int rmdir(const char *path)
{
    return done("gone", path, (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR));
}

int unlink(const char *path)
{
    return done("gone", path, (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

int unlinkat(int folder, const char *name, int flags)
{
    char        path[4096], whole[8192];
    const char *at = inside_of(folder, path);
    int         result = (int)syscall(SYS_unlinkat, folder, name, flags);
    (void)snprintf(whole, sizeof whole, "%s/%s", at ? at : "", name);
    record(at && result == 0 ? whole : NULL, NULL, 0, "gone\t%s\n", whole);
    return result;
}

int remove(const char *path)
{
    int result = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (result != 0 && errno == EISDIR) return rmdir(path);
    return done("gone", path, result);
}

static int both(const char *what, const char *from, const char *to, int result)
{
    const char *name = result == 0 ? inside(from) : NULL;
    record(name, NULL, 0, "%s\t%s\t%s\n", what, name, inside(to));
    return result;
}

int rename(const char *from, const char *to)
{
    return both("move", from, to, (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int link(const char *from, const char *to)
{
    return both("link", from, to, (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}

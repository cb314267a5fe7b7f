/* file.c - reads files, and writes them atomically: under a temporary name, then synced and
** renamed.
**
** The temporary is ".NAME.tmp.HOST.THREAD" beside NAME, where a long NAME is cut; the thread's id
** keeps apart two threads that write one file. If a kill leaves a temporary behind, the next write
** of NAME on the same host removes it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

#define THREAD_DIGITS 9 /* most digits of a thread's id */

tl_status tl_fail_errno(tl_ctx *ctx, const char *what, const char *path)
{
    int error = errno;
    tl_status st = TL_EIO;
    if (error == ENOSPC || error == EDQUOT || error == EFBIG) st = TL_ENOSPC;
    if (error == ENOENT || error == ENOTDIR) st = TL_ENOTFOUND;
    if (error == ENOMEM) st = TL_ENOMEM;
    st = tl_fail(ctx, st, "%s: %s failed: %s", path, what, strerror(error));
    errno = error;
    return st;
}

/* A file system on a network may be interrupted by a signal. */
static int sync_all(int fd)
{
    int failed;
    while ((failed = fsync(fd)) != 0 && errno == EINTR) continue;
    return failed;
}

tl_status tl_file_sync_folder(tl_ctx *ctx, const char *folder)
{
    tl_status st = TL_OK;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return tl_fail_errno(ctx, "open", folder);
    /* EINVAL: this file system cannot sync folders */
    if (sync_all(fd) != 0 && errno != EINVAL && errno != EROFS)
        st = tl_fail_errno(ctx, "fsync", folder);
    int error = errno;
    (void)close(fd);
    errno = error;
    return st;
}

/* A new folder survives a power failure only after its parent was synced. */
static tl_status sync_parent(tl_ctx *ctx, char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash) return tl_file_sync_folder(ctx, ".");
    if (slash == path) return tl_file_sync_folder(ctx, "/");
    *slash = '\0';
    tl_status st = tl_file_sync_folder(ctx, path);
    *slash = '/';
    return st;
}

static tl_status make_folder(tl_ctx *ctx, char *path)
{
    struct stat s;
    if (mkdir(path, 0777) == 0) return sync_parent(ctx, path);
    int error = errno; /* on a read-only disk it may differ from EEXIST */
    if (stat(path, &s) == 0 ? S_ISDIR(s.st_mode) : error == EEXIST && errno == ENOENT)
        return TL_OK; /* a network may show later what another machine has made */
    errno = error;
    return tl_fail_errno(ctx, "mkdir", path);
}

tl_status tl_file_folders(tl_ctx *ctx, const char *folder)
{
    if (!*folder) {
        errno = EINVAL;
        return tl_fail(ctx, TL_EINVAL, "the name of a folder is empty");
    }
    char *path = strdup(folder);
    if (!path) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    tl_status st = TL_OK;
    for (char *p = path + 1; st == TL_OK && *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        st = make_folder(ctx, path);
        *p = '/';
    }
    if (st == TL_OK) st = make_folder(ctx, path);
    int error = errno;
    free(path);
    errno = error;
    return st;
}

/* ---- Reading --------------------------------------------------------------------------------- */

ssize_t tl_file_read_all(int fd, void *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = read(fd, (char *)data + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

tl_status tl_file_open(tl_ctx *ctx, const char *path, int *out_fd, size_t *out_bytes)
{
    struct stat s;
    /* O_NONBLOCK: opening a pipe would block */
    *out_fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*out_fd < 0) return tl_fail_errno(ctx, "open", path);
    if (fstat(*out_fd, &s) != 0) return tl_fail_errno(ctx, "stat", path);
    if (!S_ISREG(s.st_mode)) return tl_fail(ctx, TL_EINVAL, "%s: is not a plain file", path);
    *out_bytes = (size_t)s.st_size;
    return TL_OK;
}

tl_status tl_file_fill(tl_ctx *ctx, const char *path, int fd, char *data, size_t *bytes)
{
    ssize_t n = tl_file_read_all(fd, data, *bytes);
    if (n < 0) return tl_fail_errno(ctx, "read", path);
    data[n] = '\0';
    *bytes = (size_t)n;
    return TL_OK;
}

tl_status tl_file_read(tl_ctx *ctx, const char *path, char **out_text, size_t *out_bytes)
{
    char *text = NULL;
    int fd;
    tl_status st = tl_file_open(ctx, path, &fd, out_bytes);
    if (st == TL_OK) {
        text = tl_alloc(ctx, *out_bytes + 1);
        st = text ? tl_file_fill(ctx, path, fd, text, out_bytes) : TL_ENOMEM;
    }
    int error = errno;
    if (fd >= 0) (void)close(fd); /* only read, so an error loses nothing */
    errno = error;
    if (st == TL_OK)
        *out_text = text;
    else
        tl_release(ctx, text);
    return st;
}

/* ---- Temporaries ----------------------------------------------------------------------------- */

/* Returns the thread's id in name if it equals the temporary's name own except for that id, else
** 0. */
static pid_t temporary_thread(const char *name, const char *own)
{
    size_t same = (size_t)(strrchr(own, '.') + 1 - own), digits = strlen(name);
    if (strncmp(name, own, same) != 0) return 0;
    digits -= same;
    if (digits < 1 || digits > THREAD_DIGITS) return 0;
    return strspn(name + same, "0123456789") == digits ? (pid_t)atol(name + same) : 0;
}

/* Removes the temporaries of the same file from folder whose threads have ended. */
static void remove_stale(const char *folder, const char *temp)
{
    const char *own = temp + strlen(folder);
    DIR *dir = opendir(folder);
    if (!dir) return; /* creating the temporary reports the cause */
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        pid_t thread = temporary_thread(e->d_name, own);
        if (thread > 0 && kill(thread, 0) != 0 && errno == ESRCH) /* Linux finds threads, too */
            (void)unlinkat(dirfd(dir), e->d_name, 0); /* removing garbage may fail */
    }
    (void)closedir(dir);
}

/* Returns the folder of path and the path of its temporary; the caller frees both. */
static tl_status temporary(tl_ctx *ctx, const char *path, char **out_folder, char **out_temp)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char host[65] = "";
    size_t size = strlen(path) + sizeof host + 40, keep = strlen(name);
    if (!*name) {
        errno = EISDIR;
        return tl_fail(ctx, TL_EINVAL, "'%s' does not name a file", path);
    }
    char *folder = malloc(size), *temp = malloc(size);
    if (!folder || !temp) {
        free(folder);
        free(temp);
        errno = ENOMEM;
        return tl_fail(ctx, TL_ENOMEM, "out of memory");
    }
    (void)gethostname(host, sizeof host - 1); /* on failure host stays "" */
    (void)snprintf(folder, size, "%.*s", slash ? (int)(slash - path) + 1 : 2, slash ? path : "./");
    size_t most = NAME_MAX - sizeof "..tmp.." - THREAD_DIGITS - strlen(host);
    if (keep > most) keep = most;
    while (keep > 0 && (name[keep] & 0xc0) == 0x80) keep--; /* whole characters of UTF-8 */
    (void)snprintf(temp, size, "%s.%.*s.tmp.%s.%ld", folder, (int)keep, name, host,
                   syscall(SYS_gettid));
    *out_folder = folder;
    *out_temp = temp;
    return TL_OK;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Refuses a path that is not a regular file, because the rename would replace a device or a
** pipe. */
static tl_status check_regular(tl_ctx *ctx, const char *path)
{
    struct stat s;
    if (stat(path, &s) != 0 || S_ISREG(s.st_mode)) return TL_OK;
    errno = S_ISDIR(s.st_mode) ? EISDIR : EINVAL;
    return tl_fail(ctx, TL_EINVAL, "%s: is not a plain file and is left as it is", path);
}

static tl_status check_disk_space(tl_ctx *ctx, const char *folder, const char *path, size_t bytes)
{
    struct statvfs s;
    if (statvfs(folder, &s) != 0) return tl_fail_errno(ctx, "opening this folder", folder);
    double left = (double)s.f_bavail * (double)s.f_frsize;
    if (left >= 2.0 * (double)bytes) return TL_OK;
    errno = ENOSPC;
    return tl_fail(ctx, TL_ENOSPC, "%s: needs %.0f kB of free disk space, %.0f kB are left", path,
                   2 * (double)bytes / 1e3, left / 1e3);
}

static int write_all(int fd, const char *data, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, data, bytes < (1u << 30) ? bytes : 1u << 30);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        data += n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* Creates temp. An existing file carries this thread's id, so an earlier process or thread with
** that id left it. */
static int create_temporary(const char *temp)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    int fd = open(temp, flags, 0666);
    if (fd < 0 && errno == EEXIST && unlink(temp) == 0) fd = open(temp, flags, 0666);
    return fd;
}

tl_status tl_file_replace(tl_ctx *ctx, const char *path, const tl_part *parts, int count)
{
    char *folder = NULL, *temp = NULL;
    int fd = -1, error;
    size_t bytes = 0;
    tl_status st = temporary(ctx, path, &folder, &temp);
    if (st != TL_OK) return st;
    for (int i = 0; i < count; i++) bytes += parts[i].bytes;
    remove_stale(folder, temp);
    st = check_regular(ctx, path);
    if (st == TL_OK) st = check_disk_space(ctx, folder, path, bytes);
    if (st != TL_OK) goto done;
    fd = create_temporary(temp);
    if (fd < 0) {
        st = tl_fail_errno(ctx, "create", temp);
        goto done;
    }
    for (int i = 0; st == TL_OK && i < count; i++)
        if (write_all(fd, parts[i].data, parts[i].bytes) != 0)
            st = tl_fail_errno(ctx, "write", path);
    if (st == TL_OK && sync_all(fd) != 0) st = tl_fail_errno(ctx, "fsync", path);
    /* after EINTR, too, the file is closed, and what was written has been synced */
    if (close(fd) != 0 && errno != EINTR && st == TL_OK) st = tl_fail_errno(ctx, "close", path);
    if (st == TL_OK && rename(temp, path) != 0) st = tl_fail_errno(ctx, "rename", path);
    if (st != TL_OK) {
        error = errno;
        (void)unlink(temp); /* st already holds the failure */
        errno = error;
    } else {
        st = tl_file_sync_folder(ctx, folder);
    }
done:
    error = errno;
    free(folder);
    free(temp);
    errno = error;
    return st;
}

tl_status tl_file_rename(tl_ctx *ctx, const char *temp, const char *path)
{
    char     *folder = strdup(path);
    tl_status st = folder ? TL_OK : tl_fail(ctx, TL_ENOMEM, "out of memory");
    int       fd = st == TL_OK ? open(temp, O_RDONLY | O_CLOEXEC) : -1;
    if (st == TL_OK && (fd < 0 || sync_all(fd) != 0)) st = tl_fail_errno(ctx, "fsync", temp);
    if (fd >= 0) (void)close(fd); /* nothing was written through fd */
    if (st == TL_OK && rename(temp, path) != 0) st = tl_fail_errno(ctx, "rename", path);
    if (st == TL_OK) st = sync_parent(ctx, folder);
    free(folder);
    return st;
}

tl_status tl_file_write(tl_ctx *ctx, const char *path, const void *data, size_t bytes)
{
    return tl_file_replace(ctx, path, &(tl_part){data, bytes}, 1);
}

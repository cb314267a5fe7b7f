/* disk.c - for LD_PRELOAD: makes calls on files fail. From the FAULT_AT-th call on, or for that
** call only with FAULT_ONCE=1, calls of the kind FAULT_CALLS on files below the folder FAULT_PATH
** fail with errno FAULT_ERROR. FAULT_CALLS is "write" (writes, syncs and renames), "open" or "read"
** (both of folders too); with FAULT_ERROR=0 a read is short: it returns half the bytes. FAULT_ROLE,
** "worker" or "run", selects the processes. Each failure appends a byte to the file FAULT_MET;
** without FAULT_AT each call does.
**
** Calls within the C library cannot be replaced, so this file replaces the functions of stdio
** and of folders too. */
#include "interpose.h"

#include <dirent.h>
#include <stdatomic.h>

static struct {
    const char *folder, *met, *calls;
    long        at; /* 0: calls are only counted */
    int         error, once, on;
} fault;

static atomic_long calls;

__attribute__((constructor)) static void read_settings(void)
{
    char        words[4096] = {0}, *p = words;
    const char *role = getenv("FAULT_ROLE"), *at = getenv("FAULT_AT"), *e = getenv("FAULT_ERROR");
    int         fd = open("/proc/self/cmdline", O_RDONLY), worker = 0;
    ssize_t     n = fd < 0 ? 0 : read(fd, words, sizeof words - 1);
    if (fd >= 0) (void)close(fd);
    for (; p < words + n; p += strlen(p) + 1) worker |= strcmp(p, "worker") == 0;
    fault.folder = getenv("FAULT_PATH");
    fault.met = getenv("FAULT_MET");
    fault.calls = getenv("FAULT_CALLS");
    if (!fault.calls) fault.calls = "write";
    fault.at = at ? atol(at) : 0;
    fault.error = e ? atoi(e) : EIO;
    fault.once = getenv("FAULT_ONCE") != NULL;
    fault.on = fault.folder && fault.met && role && worker == (strcmp(role, "worker") == 0);
}

static int note_failure(void)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, fault.met, O_WRONLY | O_CREAT | O_APPEND, 0666);
    (void)!syscall(SYS_write, fd, "x", 1);
    (void)syscall(SYS_close, fd);
    errno = fault.error;
    return 1;
}

/* Whether this call, of that kind on the file at path, must fail; if so, errno is set. */
static int path_fails(const char *kind, const char *path)
{
    if (!fault.on || strcmp(kind, fault.calls) != 0) return 0;
    if (strncmp(path, fault.folder, strlen(fault.folder)) != 0) return 0;
    long call = atomic_fetch_add(&calls, 1) + 1;
    if (fault.at == 0) return note_failure(), 0;
    return (fault.once ? call == fault.at : call >= fault.at) && note_failure();
}

static int file_fails(const char *kind, int fd)
{
    char path[4096];
    int  old = errno;
    if (!fault.on || strcmp(kind, fault.calls) != 0) return 0;
    if (path_fails(kind, path_of(fd, path))) return 1;
    errno = old;
    return 0;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static int fails(int fd) { return file_fails("write", fd); }

ssize_t write(int fd, const void *data, size_t bytes)
{
    return fails(fd) ? -1 : syscall(SYS_write, fd, data, bytes);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    return fails(fd) ? -1 : syscall(SYS_pwrite64, fd, data, bytes, at);
}

int fsync(int fd) { return fails(fd) ? -1 : (int)syscall(SYS_fsync, fd); }

int fdatasync(int fd) { return fails(fd) ? -1 : (int)syscall(SYS_fdatasync, fd); }

int ftruncate(int fd, off_t size)
{
    return fails(fd) ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

int rename(const char *from, const char *to)
{
    if (path_fails("write", to)) return -1;
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *file)
{
    size_t (*next)(const void *, size_t, size_t, FILE *);
    NEXT("fwrite");
    return fails(fileno(file)) ? 0 : next(data, size, count, file);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    return path_fails("open", path) ? -1 : (int)syscall(SYS_openat, folder, path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    FILE *(*next)(const char *, const char *);
    NEXT("fopen");
    return path_fails("open", path) ? NULL : next(path, mode);
}

DIR *opendir(const char *path)
{
    DIR *(*next)(const char *);
    NEXT("opendir");
    return path_fails("open", path) ? NULL : next(path);
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Whether the read must fail. For a short read, halves *bytes instead. */
static int read_fails(int fd, size_t *bytes)
{
    if (!file_fails("read", fd)) return 0;
    if (fault.error) return 1;
    *bytes = (*bytes + 1) / 2;
    return 0;
}

ssize_t read(int fd, void *data, size_t bytes)
{
    return read_fails(fd, &bytes) ? -1 : syscall(SYS_read, fd, data, bytes);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t at)
{
    return read_fails(fd, &bytes) ? -1 : syscall(SYS_pread64, fd, data, bytes, at);
}

ssize_t pread64(int fd, void *data, size_t bytes, off64_t at) { return pread(fd, data, bytes, at); }

/* This never makes short reads, because the C library would complete them. */
size_t fread(void *data, size_t size, size_t count, FILE *file)
{
    size_t (*next)(void *, size_t, size_t, FILE *);
    NEXT("fread");
    if (!fault.error || !file_fails("read", fileno(file))) return next(data, size, count, file);
#ifdef _IO_ERR_SEEN
    file->_flags |= _IO_ERR_SEEN; /* the flag that ferror reads */
#endif
    return 0;
}

struct dirent *readdir(DIR *folder)
{
    struct dirent *(*next)(DIR *);
    NEXT("readdir");
    return fault.error && file_fails("read", dirfd(folder)) ? NULL : next(folder);
}

struct dirent64 *readdir64(DIR *folder) { return (struct dirent64 *)readdir(folder); }

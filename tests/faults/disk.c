/* disk.c - a disk that fails, for LD_PRELOAD: from the FAULT_AT-th call on, what writes, syncs or
** renames files below the folder FAULT_PATH fails with errno FAULT_ERROR; FAULT_ONCE=1: that call
** only. FAULT_ROLE: "worker" or "run": the processes in which. Each failure adds a byte to the file
** FAULT_MET; without FAULT_AT each call does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    const char *folder, *met;
    long        at; /* 0: only counts */
    int         error, once, on;
} fault;

static atomic_long calls;

__attribute__((constructor)) static void begin(void)
{
    char        words[4096] = {0}, *p = words;
    const char *role = getenv("FAULT_ROLE"), *at = getenv("FAULT_AT"), *e = getenv("FAULT_ERROR");
    int         fd = open("/proc/self/cmdline", O_RDONLY), worker = 0;
    ssize_t     n = fd < 0 ? 0 : read(fd, words, sizeof words - 1);
    if (fd >= 0) (void)close(fd);
    for (; p < words + n; p += strlen(p) + 1) worker |= strcmp(p, "worker") == 0;
    fault.folder = getenv("FAULT_PATH");
    fault.met = getenv("FAULT_MET");
    fault.at = at ? atol(at) : 0;
    fault.error = e ? atoi(e) : EIO;
    fault.once = getenv("FAULT_ONCE") != NULL;
    fault.on = fault.folder && fault.met && role && worker == (strcmp(role, "worker") == 0);
}

static int met(void)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, fault.met, O_WRONLY | O_CREAT | O_APPEND, 0666);
    (void)!syscall(SYS_write, fd, "x", 1);
    (void)syscall(SYS_close, fd);
    errno = fault.error;
    return 1;
}

/* Whether the call on the file at path is to fail; then errno is set. */
static int path_fails(const char *path)
{
    if (!fault.on || strncmp(path, fault.folder, strlen(fault.folder)) != 0) return 0;
    long call = atomic_fetch_add(&calls, 1) + 1;
    if (fault.at == 0) return met(), 0;
    return (fault.once ? call == fault.at : call >= fault.at) && met();
}

static int fails(int fd)
{
    char link[64], path[4096];
    int  old = errno;
    if (!fault.on) return 0;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = 0;
    if (path_fails(path)) return 1;
    errno = old;
    return 0;
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    return fails(fd) ? -1 : syscall(SYS_write, fd, data, bytes);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    return fails(fd) ? -1 : syscall(SYS_pwrite64, fd, data, bytes, at);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t at)
{
    return fails(fd) ? -1 : syscall(SYS_pwrite64, fd, data, bytes, at);
}

int fsync(int fd) { return fails(fd) ? -1 : (int)syscall(SYS_fsync, fd); }

int fdatasync(int fd) { return fails(fd) ? -1 : (int)syscall(SYS_fdatasync, fd); }

int ftruncate(int fd, off_t size) { return fails(fd) ? -1 : (int)syscall(SYS_ftruncate, fd, size); }

int ftruncate64(int fd, off64_t size)
{
    return fails(fd) ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

int rename(const char *from, const char *to)
{
    return path_fails(to) ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* What Lua's files are written with; the C library's own write cannot be replaced. */
size_t fwrite(const void *data, size_t size, size_t count, FILE *file)
{
    size_t (*next)(const void *, size_t, size_t, FILE *);
    *(void **)&next = dlsym(RTLD_NEXT, "fwrite");
    return fails(fileno(file)) ? 0 : next(data, size, count, file);
}

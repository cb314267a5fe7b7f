/* interpose.h - shared by disk.c and record.c, which replace the C library's functions on files,
** for LD_PRELOAD. The including file defines open_at and the functions that are called here.
** This file adds their variants, which differ only in name or in how they take a mode. */
#ifndef FAULTS_INTERPOSE_H
#define FAULTS_INTERPOSE_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Finds the C library's function of that name. */
#define NEXT(name) (*(void **)&next = dlsym(RTLD_NEXT, name))

/* The path of the open file fd, or "". */
static const char *path_of(int fd, char path[4096])
{
    char link[64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, 4095);
    path[n < 0 ? 0 : n] = 0;
    return path;
}

static int open_at(int folder, const char *path, int flags, mode_t mode);

static int open_mode(int folder, const char *path, int flags, va_list more)
{
    return open_at(folder, path, flags, flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0);
}

#define OPEN(name, parameters, folder)                     \
    int name parameters                                    \
    {                                                      \
        va_list more;                                      \
        va_start(more, flags);                             \
        int fd = open_mode(folder, path, flags, more);     \
        va_end(more);                                      \
        return fd;                                         \
    }
OPEN(open, (const char *path, int flags, ...), AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD)
OPEN(openat, (int folder, const char *path, int flags, ...), folder)

FILE *fopen64(const char *path, const char *mode) { return fopen(path, mode); }

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t at)
{
    return pwrite(fd, data, bytes, at);
}

int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

#endif

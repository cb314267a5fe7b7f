/* scratch.h - a folder for one test program, and what tests of files need: bytes in, bytes out,
** children that are killed.
**
** scratch_new() first, scratch_free() last; scratch("name") is a path inside, valid until the
** eighth call after it. */
#ifndef TL_SCRATCH_H
#define TL_SCRATCH_H

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char scratch_folder[512];

static inline int scratch_new(void)
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(scratch_folder, sizeof scratch_folder, "%s/toeplab-test-XXXXXX",
                   base && *base ? base : "/tmp");
    return mkdtemp(scratch_folder) != NULL;
}

static inline const char *scratch(const char *name)
{
    static char paths[8][1024];
    static int next;
    char *path = paths[next++ % 8];
    (void)snprintf(path, sizeof paths[0], "%s/%s", scratch_folder, name);
    return path;
}

/* How many entries of a folder have part in their names. */
static inline int scratch_count(const char *folder, const char *part)
{
    int count = 0;
    DIR *dir = opendir(folder);
    if (!dir) return -1;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            count += strstr(e->d_name, part) != NULL;
    (void)closedir(dir);
    return count;
}

static inline void scratch_remove(const char *folder)
{
    char path[1600];
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= (int)sizeof path) continue;
        if (unlink(path) != 0) scratch_remove(path);
    }
    (void)closedir(dir);
    (void)rmdir(folder);
}

static inline void scratch_free(void)
{
    scratch_remove(scratch_folder);
}

/* The content of a file, to be freed; NULL and 0 bytes if it cannot be read. */
static inline unsigned char *scratch_read(const char *path, size_t *out_bytes)
{
    struct stat s;
    unsigned char *data = NULL;
    FILE *f = fopen(path, "rb");
    *out_bytes = 0;
    if (!f) return NULL;
    if (fstat(fileno(f), &s) == 0) data = malloc((size_t)s.st_size + 1);
    if (data) *out_bytes = fread(data, 1, (size_t)s.st_size, f);
    (void)fclose(f);
    return data;
}

static inline int scratch_write(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    if (!f) return 0;
    size_t done = fwrite(data, 1, bytes, f);
    return fclose(f) == 0 && done == bytes;
}

/* Runs body(user, ready) in a child, waits until it has written a byte to ready, and kills it so
** many microseconds later; 1 if it was the kill that ended it. */
static inline int scratch_kill(void (*body)(void *user, int ready), void *user, long microseconds)
{
    int status = 0, ends[2];
    char byte;
    if (pipe(ends) != 0) return 0;
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(ends[0]);
        body(user, ends[1]);
        _exit(0);
    }
    (void)close(ends[1]);
    int ready = pid > 0 && read(ends[0], &byte, 1) == 1;
    (void)close(ends[0]);
    if (pid < 0) return 0;
    (void)usleep((useconds_t)microseconds);
    (void)kill(pid, SIGKILL);
    return waitpid(pid, &status, 0) == pid && ready && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGKILL;
}

#endif

/* late.c - for LD_PRELOAD: shows names as a client of a network file system does, which remembers
** that there was none. A name below the folder LATE_PATH that was asked for in vain stays missing
** for LATE_SECONDS, unless this process makes it. */
#include "interpose.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#define MOST 4096

static struct {
    uint64_t hash; /* 0: free */
    double   until;
} missing[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Finds the entry of a path; NULL: it is not below the folder. */
static void *entry(const char *path, uint64_t *out_hash)
{
    const char *folder = getenv("LATE_PATH");
    uint64_t    hash = 14695981039346656037u;
    if (!folder || !path || strncmp(path, folder, strlen(folder)) != 0) return NULL;
    for (const char *p = path; *p; p++) hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    *out_hash = hash ? hash : 1;
    return &missing[hash % MOST];
}

/* Whether the name is remembered as missing; errno is set then. */
static int is_missing(const char *path)
{
    uint64_t hash;
    __typeof__(missing[0]) *e = entry(path, &hash);
    (void)pthread_mutex_lock(&lock);
    int found = e && e->hash == hash && now() < e->until;
    (void)pthread_mutex_unlock(&lock);
    if (found) errno = ENOENT;
    return found;
}

/* Remembers what a call has found; result < 0: errno tells. */
static int noted(const char *path, int result)
{
    int         saved = errno;
    uint64_t    hash;
    const char *seconds = getenv("LATE_SECONDS");
    __typeof__(missing[0]) *e = entry(path, &hash);
    (void)pthread_mutex_lock(&lock);
    if (e && result < 0 && saved == ENOENT) {
        e->hash = hash;
        e->until = now() + (seconds ? atof(seconds) : 3.0);
    } else if (e && result >= 0 && e->hash == hash) {
        e->hash = 0;
    }
    (void)pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    int (*next)(int, const char *, int, ...);
    NEXT("openat");
    if (!(flags & O_CREAT) && is_missing(path)) return -1;
    return noted(path, next(folder, path, flags, mode));
}

FILE *fopen(const char *path, const char *mode)
{
    FILE *(*next)(const char *, const char *);
    NEXT("fopen");
    if (mode[0] == 'r' && is_missing(path)) return NULL;
    FILE *file = next(path, mode);
    (void)noted(path, file ? 0 : -1);
    return file;
}

#define STAT(name, kind)                               \
    int name(const char *path, struct kind *out)       \
    {                                                  \
        int (*next)(const char *, struct kind *);      \
        NEXT(#name);                                   \
        if (is_missing(path)) return -1;               \
        return noted(path, next(path, out));           \
    }
STAT(stat, stat)
STAT(lstat, stat)
STAT(stat64, stat64)
STAT(lstat64, stat64)

int access(const char *path, int mode)
{
    int (*next)(const char *, int);
    NEXT("access");
    if (is_missing(path)) return -1;
    return noted(path, next(path, mode));
}

#define MAKE(name)                                     \
    int name(const char *from, const char *to)         \
    {                                                  \
        int (*next)(const char *, const char *);       \
        NEXT(#name);                                   \
        int result = next(from, to);                   \
        if (result == 0) (void)noted(to, 0);           \
        return result;                                 \
    }
MAKE(link)
MAKE(rename)

int mkdir(const char *path, mode_t mode)
{
    int (*next)(const char *, mode_t);
    NEXT("mkdir");
    int result = next(path, mode);
    if (result == 0) (void)noted(path, 0);
    return result;
}

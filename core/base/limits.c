/* limits.c - reads the limits that control groups, of version 1 and 2, put on this process. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "toeplab.h"

#define MAX_PATH_BYTES 4096 /* of a path */

/* Reads up to two integers from a file, and returns how many there are; "max" is none. */
static int numbers(const char *folder, const char *file, long long *first, long long *second)
{
    char path[MAX_PATH_BYTES + 64];
    (void)snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "re");
    int   count = f ? fscanf(f, "%lld %lld", first, second) : 0;
    if (f) (void)fclose(f);
    return count;
}

/* The bytes of files in memory, which count as used, but make room when it is needed. Version 1
** lists the bytes of the group alone first. */
static double cached(const char *folder)
{
    char      path[MAX_PATH_BYTES + 64], name[64];
    long long bytes, active = 0, inactive = 0;
    (void)snprintf(path, sizeof path, "%s/memory.stat", folder);
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%63s %lld", name, &bytes) == 2) {
        const char *word = name + (strncmp(name, "total_", 6) == 0 ? 6 : 0);
        if (strcmp(word, "active_file") == 0) active = bytes;
        if (strcmp(word, "inactive_file") == 0) inactive = bytes;
    }
    if (f) (void)fclose(f);
    return (double)active + (double)inactive;
}

static void read_group(const char *folder, tl_limits *l)
{
    long long most = 0, used = 0, none;
    int quota = numbers(folder, "cpu.max", &most, &used) == 2 ||
                (numbers(folder, "cpu.cfs_quota_us", &most, &none) == 1 &&
                 numbers(folder, "cpu.cfs_period_us", &used, &none) == 1);
    if (quota && most > 0 && used > 0)
        l->processors = fmin(l->processors, (double)most / (double)used);
    int memory = (numbers(folder, "memory.max", &most, &none) == 1 &&
                  numbers(folder, "memory.current", &used, &none) == 1) ||
                 (numbers(folder, "memory.limit_in_bytes", &most, &none) == 1 &&
                  numbers(folder, "memory.usage_in_bytes", &used, &none) == 1);
    if (memory)
        l->memory = fmin(l->memory, fmax((double)most - (double)used + cached(folder), 0));
}

/* A line is NUMBER:CONTROLLERS:PATH. Version 2 names no controllers and is mounted at `mount`
** itself, version 1 in a folder of their names. In a container only the groups from some path on
** may be mounted; files that are not there limit nothing. */
tl_limits tl_limits_of(const char *list, const char *mount)
{
    tl_limits limits = {INFINITY, INFINITY};
    char      line[MAX_PATH_BYTES], folder[MAX_PATH_BYTES];
    FILE     *f = fopen(list, "re");
    while (f && fgets(line, sizeof line, f)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue;
        *path = 0;
        path[1 + strcspn(path + 1, "\n")] = 0;
        int base = snprintf(folder, sizeof folder, "%s/%s", mount, names + 1);
        if (base + strlen(path + 1) >= sizeof folder) continue;
        strcpy(folder + base, path + 1);
        for (char *end = folder; end; end = strrchr(folder + base, '/')) {
            if (end > folder) *end = 0;
            read_group(folder, &limits);
        }
    }
    if (f) (void)fclose(f);
    return limits;
}

void tl_group_limits(double *out_processors, double *out_memory)
{
    tl_limits limits = tl_limits_of("/proc/self/cgroup", "/sys/fs/cgroup");
    *out_processors = limits.processors;
    *out_memory = limits.memory;
}

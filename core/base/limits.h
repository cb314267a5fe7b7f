/* limits.h - the limits that control groups put on this process. */
#ifndef TL_LIMITS_H
#define TL_LIMITS_H

typedef struct tl_limits {
    double processors, memory; /* memory: bytes that are left; INFINITY: there is no limit */
} tl_limits;

/* Reads the limits of the groups in `list`, a file such as /proc/self/cgroup, and of the groups
** around them, which are mounted at `mount`. */
tl_limits tl_limits_of(const char *list, const char *mount);

#endif

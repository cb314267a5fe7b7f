/* clock.c - for LD_PRELOAD: makes the clock run CLOCK_BACK seconds late. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t seconds_late(void)
{
    const char *text = getenv("CLOCK_BACK");
    return text ? (time_t)atol(text) : 0;
}

int clock_gettime(clockid_t which, struct timespec *t)
{
    int result = (int)syscall(SYS_clock_gettime, which, t);
    if (which == CLOCK_REALTIME) t->tv_sec -= seconds_late();
    return result;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    *t = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

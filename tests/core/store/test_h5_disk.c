/* test_h5_disk.c - HDF5 files written under kills and on failing disks: the old one or the new. */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#include "scratch.h"
#include "test.h"
#include "version.h"

static tl_ctx *ctx;

/* ---- A disk that fails: these take the place of the C library's ---- */

#define KNOWN __attribute__((visibility("default"))) /* to libtoeplab */

static struct {
    int on, reading, left, error; /* on: writes fail; reading: reads; left: calls that succeed */
    int short_write, short_read;
    double free_bytes;                /* what statvfs tells; < 0: the truth */
} disk = {.free_bytes = -1};

static int fail_now(int on)
{
    if (!on || disk.left-- > 0) return 0;
    errno = disk.error;
    return 1;
}

static int fails(void) { return fail_now(disk.on); }

KNOWN ssize_t read(int fd, void *data, size_t bytes)
{
    if (disk.short_read && bytes > 1) bytes = (bytes + 1) / 2;
    return fail_now(disk.reading) ? -1 : syscall(SYS_read, fd, data, bytes);
}

KNOWN ssize_t pread(int fd, void *data, size_t bytes, off_t at)
{
    if (disk.short_read && bytes > 1) bytes = (bytes + 1) / 2;
    return fail_now(disk.reading) ? -1 : syscall(SYS_pread64, fd, data, bytes, at);
}

KNOWN ssize_t write(int fd, const void *data, size_t bytes)
{
    if (disk.on && disk.short_write && bytes > 1) bytes = (bytes + 1) / 2;
    return fails() ? -1 : syscall(SYS_write, fd, data, bytes);
}

KNOWN int fsync(int fd)
{
    return fails() ? -1 : (int)syscall(SYS_fsync, fd);
}

KNOWN int rename(const char *from, const char *to)
{
    return fails() ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

KNOWN int statvfs(const char *restrict path, struct statvfs *restrict s)
{
    (void)path;
    memset(s, 0, sizeof *s);
    s->f_frsize = s->f_bsize = 1;
    s->f_bavail = disk.free_bytes < 0 ? (fsblkcnt_t)1 << 40 : (fsblkcnt_t)disk.free_bytes;
    return 0;
}

/* ---- Tests ---- */

static void write_for_ever(void *user, int ready)
{
    tl_ctx *own;
    if (tl_ctx_new(1, &own) != TL_OK) return;
    for (int version = *(int *)user;; version++) {
        if (write_version(own, scratch("kill/k.h5"), version) != TL_OK) return;
        if (version == *(int *)user && write(ready, "+", 1) != 1) return;
    }
}

static void killed_writers_leave_the_old_or_the_new(void)
{
    int version = 1, left = 0, slow = 1; /* a busy machine writes little in a given time */
    CHECK(mkdir(scratch("kill"), 0777) == 0);
    CHECK_STATUS(write_version(ctx, scratch("kill/k.h5"), version), TL_OK);
    for (int i = 0; i < 30; i++) {
        CHECK(scratch_kill(write_for_ever, &version, slow * (211 + 1733 * i % 15000)));
        int now = version_of(ctx, scratch("kill/k.h5"));
        CHECK(now >= version);
        if (now == version) slow++;
        left += scratch_count(scratch("kill"), ".tmp.");
        version = now;
    }
    CHECK(version > 1);
    CHECK_STATUS(write_version(ctx, scratch("kill/k.h5"), 1), TL_OK); /* sweeps what is left */
    CHECK(scratch_count(scratch("kill"), "") == 1);
    (void)printf("  30 kills, version %d, temporaries seen %d times\n", version, left);
}

/* Fails each write, sync and rename in turn, until one run meets none. */
static void each_failing_call(int error, tl_status want)
{
    CHECK_STATUS(write_version(ctx, scratch("disk/d.h5"), 1), TL_OK);
    for (int n = 0; n < 100; n++) {
        disk.left = n;
        disk.error = error;
        disk.on = 1;
        tl_status st = write_version(ctx, scratch("disk/d.h5"), 2);
        disk.on = 0;
        int version = version_of(ctx, scratch("disk/d.h5"));
        CHECK(scratch_count(scratch("disk"), "") == 1);
        if (disk.left >= 0) { /* none failed */
            CHECK(st == TL_OK && version == 2 && n >= 4);
            return;
        }
        CHECK_STATUS(st, want);
        /* only when the folder's sync fails has the new name been given */
        CHECK(version == 1 || (version == 2 && strstr(tl_errmsg(ctx), "fsync")));
    }
    CHECK(!"it ended");
}

static void failing_disks_leave_the_old(void)
{
    CHECK(mkdir(scratch("disk"), 0777) == 0);
    each_failing_call(ENOSPC, TL_ENOSPC);
    each_failing_call(EDQUOT, TL_ENOSPC);
    each_failing_call(EIO, TL_EIO);
    disk.short_write = 1;
    each_failing_call(ENOSPC, TL_ENOSPC);
    disk.short_write = 0;
}

/* libhdf5 corrupts the heap where one of its own reads fails (1.10.8). */
static void each_failing_read(const char *path, int want)
{
    tl_status st;
    for (int n = 0; n < 10000; n++) {
        disk.left = n;
        disk.error = EIO;
        disk.reading = 1;
        int version = read_version(ctx, path, &st);
        disk.reading = 0;
        if (disk.left >= 0) { /* none failed */
            CHECK(st == TL_OK && version == want && n >= 1);
            return;
        }
        CHECK_STATUS(st, TL_EIO);
    }
    CHECK(!"it ended");
}

static void failing_disks_are_told(void)
{
    CHECK_STATUS(write_version(ctx, scratch("read.h5"), 3), TL_OK);
    each_failing_read(scratch("read.h5"), 3);
    disk.short_read = 1;
    each_failing_read(scratch("read.h5"), 3);
    disk.short_read = 0;
}

static void full_disks_are_noticed_before(void)
{
    disk.free_bytes = 200000; /* more than the file, less than twice */
    CHECK_STATUS(write_version(ctx, scratch("full.h5"), 1), TL_ENOSPC);
    disk.free_bytes = 300000;
    CHECK_STATUS(write_version(ctx, scratch("full.h5"), 1), TL_OK);
    disk.free_bytes = -1;
}

static void a_file_size_limit_counts_as_full(void)
{
    struct rlimit old, tiny;
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    tiny = old;
    tiny.rlim_cur = 10000;
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &tiny) == 0);
    tl_status st = write_version(ctx, scratch("full.h5"), 2);
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    (void)signal(SIGXFSZ, SIG_DFL);
    CHECK_STATUS(st, TL_ENOSPC);
    CHECK(version_of(ctx, scratch("full.h5")) == 1 && scratch_count(scratch_folder, ".tmp.") == 0);
}

int main(void)
{
    if (!scratch_new() || tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int status = run_tests((const test[]){
        {"killed_writers_leave_the_old_or_the_new", killed_writers_leave_the_old_or_the_new},
        {"failing_disks_leave_the_old", failing_disks_leave_the_old},
        {"failing_disks_are_told", failing_disks_are_told},
        {"full_disks_are_noticed_before", full_disks_are_noticed_before},
        {"a_file_size_limit_counts_as_full", a_file_size_limit_counts_as_full},
        {0}});
    tl_ctx_free(ctx);
    scratch_free();
    return status;
}

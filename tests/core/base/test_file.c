/* test_file.c - folders and whole files, and whose temporaries a write removes. */
#include <errno.h>
#include <limits.h>
#include <sys/syscall.h>

#include "scratch.h"
#include "test.h"
#include "toeplab-lab.h"

static tl_ctx *ctx;

/* These take the place of libc's for the library, too. A signal interrupts that many calls. */
static int interruptions;

#define INSTEAD __attribute__((visibility("default")))

INSTEAD int fsync(int fd)
{
    if (interruptions == 0) return (int)syscall(SYS_fsync, fd);
    interruptions--;
    errno = EINTR;
    return -1;
}

INSTEAD ssize_t read(int fd, void *data, size_t bytes)
{
    if (interruptions == 0) return syscall(SYS_read, fd, data, bytes);
    interruptions--;
    errno = EINTR;
    return -1;
}

/* The number of a process that has ended. */
static long dead(void)
{
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    CHECK(waitpid(pid, NULL, 0) == pid);
    return (long)pid;
}

static void leave(const char *format, const char *host, long pid)
{
    char name[256];
    (void)snprintf(name, sizeof name, format, host, pid);
    CHECK(scratch_write(scratch(name), "half", 4));
}

/* Another file's temporary may be under way, and a process of another host is unknown here. */
static void only_own_temporaries_are_swept(void)
{
    char host[65] = "";
    long gone = dead();
    CHECK(mkdir(scratch("sweep"), 0777) == 0);
    (void)gethostname(host, sizeof host - 1);
    leave("sweep/.a.tmp.%s.%ld", host, gone);
    leave("sweep/.b.tmp.%s.%ld", host, gone);
    leave("sweep/.a.tmp.%s-else.%ld", host, gone);
    leave("sweep/.a.tmp.%s.%ldx", host, gone);
    leave("sweep/.a.tmp.%s.%ld", host, (long)getppid());
    CHECK_STATUS(tl_file_write(ctx, scratch("sweep/a"), "whole", 5), TL_OK);
    CHECK(scratch_count(scratch("sweep"), ".a.tmp.") == 3);
    CHECK(scratch_count(scratch("sweep"), ".b.tmp.") == 1);
    CHECK_STATUS(tl_file_write(ctx, scratch("sweep/b"), "whole", 5), TL_OK);
    CHECK(scratch_count(scratch("sweep"), ".b.tmp.") == 0);
}

static void a_file_is_replaced_whole(void)
{
    size_t bytes = 0;
    CHECK_STATUS(tl_file_write(ctx, scratch("file"), "one", 3), TL_OK);
    CHECK_STATUS(tl_file_write(ctx, scratch("file"), "x\0y", 3), TL_OK);
    unsigned char *data = scratch_read(scratch("file"), &bytes);
    CHECK(data && bytes == 3 && memcmp(data, "x\0y", 3) == 0);
    free(data);
    CHECK_STATUS(tl_file_write(ctx, scratch("file"), "", 0), TL_OK);
    free(scratch_read(scratch("file"), &bytes));
    CHECK(bytes == 0);
}

static void failures_leave_errno(void)
{
    CHECK_STATUS(tl_file_write(ctx, scratch("no/such"), "", 0), TL_ENOTFOUND);
    CHECK(errno == ENOENT);
    CHECK_STATUS(tl_file_write(ctx, scratch("folder/"), "", 0), TL_EINVAL);
    CHECK(errno == EISDIR);
    CHECK_STATUS(tl_file_write(ctx, scratch("plain"), "", 0), TL_OK);
    CHECK_STATUS(tl_file_folders(ctx, scratch("plain/below")), TL_EIO);
    CHECK(errno == EEXIST && strstr(tl_errmsg(ctx), "plain: ") != NULL);
    errno = 0;
    CHECK_STATUS(tl_file_folders(ctx, ""), TL_EINVAL);
    CHECK(errno == EINVAL);
    CHECK_STATUS(tl_file_folders(ctx, scratch("a/b//c/")), TL_OK);
    CHECK_STATUS(tl_file_folders(ctx, scratch("a/b//c/")), TL_OK);
    CHECK_STATUS(tl_file_write(ctx, scratch("a/b/c/d"), "", 0), TL_OK);
}

static void signals_interrupt_nothing(void)
{
    tl_tensor *t = NULL;
    interruptions = 2;
    CHECK_STATUS(tl_file_write(ctx, scratch("file"), "0123", 4), TL_OK);
    CHECK(interruptions == 0);
    interruptions = 2;
    CHECK_STATUS(tl_raw_read(ctx, scratch("file"), 0, "U8", 1, (int64_t[]){4}, &t), TL_OK);
    CHECK(interruptions == 0 && t && tl_tensor_i32(t)[3] == '3');
    interruptions = 0;
    tl_tensor_free(t);
}

/* The temporary of a name that is legal must be legal, too, and is swept like others. */
static void long_names(void)
{
    static const char *const letters[] = {"a", "\xc3\xa9"};
    static const int         lengths[] = {160, 180, 240, 254};
    char name[NAME_MAX + 9] = "long/", stale[NAME_MAX + 9], host[65] = "";
    (void)gethostname(host, sizeof host - 1);
    CHECK(mkdir(scratch("long"), 0777) == 0);
    for (int i = 0; i < 8; i++) {
        size_t letter = strlen(letters[i / 4]), length = (size_t)lengths[i % 4];
        size_t most = (NAME_MAX - 17 - strlen(host)) / letter * letter;
        for (size_t k = 0; k < length; k++) name[5 + k] = letters[i / 4][k % letter];
        name[5 + length] = 0;
        (void)snprintf(stale, sizeof stale, "long/.%.*s.tmp.%s.%ld",
                       (int)(length < most ? length : most), name + 5, host, dead());
        CHECK(scratch_write(scratch(stale), "half", 4));
        CHECK_STATUS(tl_file_write(ctx, scratch(name), "x", 1), TL_OK);
        CHECK(access(scratch(name), F_OK) == 0);
        CHECK(scratch_count(scratch("long"), ".tmp.") == 0);
    }
}

/* A pipe stands for everything that is not a file, such as devices. */
static void only_a_plain_file_is_replaced(void)
{
    struct stat s;
    CHECK(mkfifo(scratch("pipe"), 0666) == 0);
    CHECK_STATUS(tl_file_write(ctx, scratch("pipe"), "x", 1), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "pipe: is not a plain file") != NULL);
    CHECK(stat(scratch("pipe"), &s) == 0 && S_ISFIFO(s.st_mode));
    CHECK(mkdir(scratch("taken"), 0777) == 0);
    CHECK_STATUS(tl_file_write(ctx, scratch("taken"), "x", 1), TL_EINVAL);
    CHECK(errno == EISDIR);
    CHECK(scratch_count(scratch(""), ".taken.tmp.") == 0);
}

int main(void)
{
    if (!scratch_new() || tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int status = run_tests((const test[]){
        {"only own temporaries are swept", only_own_temporaries_are_swept},
        {"a file is replaced whole", a_file_is_replaced_whole},
        {"failures leave errno", failures_leave_errno},
        {"signals interrupt nothing", signals_interrupt_nothing},
        {"long names", long_names},
        {"only a plain file is replaced", only_a_plain_file_is_replaced},
        {0}});
    tl_ctx_free(ctx);
    scratch_free();
    return status;
}

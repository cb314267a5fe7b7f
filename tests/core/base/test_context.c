/* test_context.c - what a context takes from its machine, that its table of kernels is full, and
** that it survives fork(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include <sched.h>
#include <sys/mman.h>

#include "base/limits.h"
#include "base/threads.h"
#include "engine/launch.h"
#include "scratch.h"
#include "tensors.h"

static void the_version_is_one(void)
{
    char text[32];
    int  number = tl_version();
    (void)snprintf(text, sizeof text, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
    CHECK(number == TL_VERSION_NUMBER);
    CHECK(strcmp(text, TL_VERSION) == 0);
}

/* One thread per processor of the machine fought for the few that a container or taskset gives. */
static void threads_follow_the_affinity(void)
{
    cpu_set_t all, one;
    tl_ctx   *ctx = NULL;
    int       first = 0;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK_STATUS(tl_ctx_new(0, &ctx), TL_OK);
    CHECK(ctx && tl_threads(ctx) == 1);
    tl_ctx_free(ctx);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    CHECK(tl_processors(INFINITY) == CPU_COUNT(&all));
}

static void threads_follow_the_quota(void)
{
    int all = tl_processors(INFINITY);
    CHECK(tl_processors(1e6) == all);
    CHECK(tl_processors(1) == 1);
    CHECK(tl_processors(0.2) == 1);
    CHECK(tl_processors(1.5) == (all < 2 ? all : 2));
}

static void put(const char *name, const char *text)
{
    CHECK(scratch_write(scratch(name), text, strlen(text)));
}

static int limited(const char *groups, double processors, double memory)
{
    put("list", groups);
    tl_limits l = tl_limits_of(scratch("list"), scratch_folder);
    if (l.processors == processors && l.memory == memory) return 1;
    printf("  %g processors, %g bytes\n", l.processors, l.memory);
    return 0;
}

/* The limits of a process come from its own group or a group around it. */
static void limits_of_all_groups(void)
{
    static const char *const folders[] = {"a", "a/b", "cpu,cpuacct", "cpu,cpuacct/c", "memory",
                                          "memory/d"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        CHECK(mkdir(scratch(folders[i]), 0700) == 0);
    put("cpu.max", "max 100000\n");
    put("a/cpu.max", "400000 100000\n");
    put("a/b/cpu.max", "150000 100000\n");
    put("a/b/memory.max", "1000\n");
    put("a/b/memory.current", "400\n");
    put("a/b/memory.stat", "anon 100\nactive_file 200\nfile 260\ninactive_file 50\n");
    put("a/memory.max", "max\n");
    put("a/memory.current", "700\n");
    put("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("cpu,cpuacct/c/cpu.cfs_quota_us", "50000\n");
    put("cpu,cpuacct/c/cpu.cfs_period_us", "100000\n");
    put("memory/memory.limit_in_bytes", "100\n");
    put("memory/memory.usage_in_bytes", "300\n");
    put("memory/memory.stat", "active_file 1\ntotal_active_file 210\ntotal_inactive_file 5\n");
    CHECK(limited("0::/\n", INFINITY, INFINITY));
    CHECK(limited("0::/a\n", 4, INFINITY));
    CHECK(limited("0::/a/b\n", 1.5, 850));
    CHECK(limited("0::/a/b/gone\n", 1.5, 850));
    CHECK(limited("5:cpu,cpuacct:/\n", INFINITY, INFINITY));
    CHECK(limited("9:name=systemd:/x\n5:cpu,cpuacct:/c\n0::/\n", 0.5, INFINITY));
    CHECK(limited("4:memory:/d", INFINITY, 15));
    CHECK(limited("4:memory\nnonsense\n\n", INFINITY, INFINITY));
    put("a/b/cpu.max", "-5 0\n");
    CHECK(limited("0::/a/b\n", 4, 850));
}

static void build_info_names_everything(void)
{
    static const char *const names[] = {"version ", "\ncompiler ", "\nblas ", "\ntransforms ",
                                        "\ncpu ", "\nthreads 3\n"};
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(3, &ctx), TL_OK);
    const char *info = tl_build_info(ctx);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *at = strstr(info, names[i]);
        CHECK(at && at[strlen(names[i])] != '\n');
        if (at) info = at;
    }
    tl_ctx_free(ctx);
}

static void every_operator_has_a_kernel(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    for (int op = 0; op < TL_OPS; op++) {
        if (!ctx->kernels[TL_CPU][op]) printf("  operator %d\n", op);
        CHECK(ctx->kernels[TL_CPU][op] != NULL);
    }
    tl_ctx_free(ctx);
}

static void wrong_numbers_of_threads(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(-1, &ctx), TL_EINVAL);
    CHECK_STATUS(tl_ctx_new(4097, &ctx), TL_EINVAL);
    CHECK(ctx == NULL);
}

enum { ROWS = 64, LENGTH = 500 };

typedef struct results {
    int32_t order[ROWS * LENGTH];
    float   product[ROWS * ROWS];
} results;

/* Computes what is worth several threads. A context's first product waits for all of them. */
static void compute(tl_tensor *x, results *out)
{
    tl_tensor *order = NULL, *rank = NULL, *y = NULL;
    CHECK_STATUS(tl_argsort(x, &order, &rank), TL_OK);
    CHECK_STATUS(tl_tensor_read(order, 0, ROWS * LENGTH, out->order), TL_OK);
    CHECK_STATUS(tl_matmul(x, 0, x, 1, &y), TL_OK);
    CHECK_STATUS(tl_tensor_read(y, 0, ROWS * ROWS, out->product), TL_OK);
    tl_tensor *all[] = {order, rank, y};
    for (int i = 0; i < 3; i++) tl_tensor_free(all[i]);
}

/* The child had no workers, and waited for them for ever. */
static void a_child_computes_and_frees(void)
{
    static results own;
    results       *childs = mmap(NULL, sizeof *childs, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tl_ctx        *ctx = NULL;
    int            status = -1;
    CHECK(childs != MAP_FAILED);
    CHECK_STATUS(tl_ctx_new(3, &ctx), TL_OK);
    tl_tensor *x = normals(ctx, 2, (int64_t[]){ROWS, LENGTH}, 0, 1, 1);
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        (void)alarm(60);
        compute(x, childs);
        tl_tensor_free(x);
        tl_ctx_free(ctx);
        (void)fflush(stdout);
        _exit(test_failures > 0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    compute(x, &own);
    CHECK(memcmp(&own, childs, sizeof own) == 0);
    (void)munmap(childs, sizeof *childs);
    tl_tensor_free(x);
    tl_ctx_free(ctx);
}

int main(void)
{
    if (!scratch_new()) return 1;
    int status = run_tests((const test[]){
        {"the version as text and as a number", the_version_is_one},
        {"threads follow the affinity", threads_follow_the_affinity},
        {"threads follow the quota", threads_follow_the_quota},
        {"limits come from all groups", limits_of_all_groups},
        {"build info names everything", build_info_names_everything},
        {"every operator has a kernel", every_operator_has_a_kernel},
        {"wrong numbers of threads", wrong_numbers_of_threads},
        {"a child computes and frees", a_child_computes_and_frees},
        {0}});
    scratch_free();
    return status;
}

/* test_context.c - what a context takes from its machine, that its table of kernels is full, and
** that it survives fork(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include <sched.h>
#include <sys/mman.h>

#include "base/threads.h"
#include "engine/launch.h"
#include "scratch.h"
#include "tensors.h"

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
    CHECK(tl_processors("/none") == CPU_COUNT(&all));
}

static int with_quota(const char *text)
{
    CHECK(scratch_write(scratch("cpu.max"), text, strlen(text)));
    return tl_processors(scratch("cpu.max"));
}

static void threads_follow_the_quota(void)
{
    int all = tl_processors("/none");
    CHECK(with_quota("max 100000\n") == all);
    CHECK(with_quota("") == all);
    CHECK(with_quota("-5 100000\n") == all && with_quota("5 0\n") == all);
    CHECK(with_quota("100000000000 100000\n") == all);
    CHECK(with_quota("100000 100000\n") == 1);
    CHECK(with_quota("20000 100000\n") == 1);
    CHECK(with_quota("150000 100000\n") == (all < 2 ? all : 2));
}

static void build_info_names_everything(void)
{
    static const char *const names[] = {"version ",  "\ncompiler ",   "\nblas ", "\nhdf5 ",
                                        "\nsqlite ", "\ntransforms ", "\ncpu ",  "\nthreads 3\n"};
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
        if (!ctx->kernels->of[TL_CPU][op]) printf("  operator %d\n", op);
        CHECK(ctx->kernels->of[TL_CPU][op] != NULL);
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
        {"threads follow the affinity", threads_follow_the_affinity},
        {"threads follow the quota", threads_follow_the_quota},
        {"build info names everything", build_info_names_everything},
        {"every operator has a kernel", every_operator_has_a_kernel},
        {"wrong numbers of threads", wrong_numbers_of_threads},
        {"a child computes and frees", a_child_computes_and_frees},
        {0}});
    scratch_free();
    return status;
}

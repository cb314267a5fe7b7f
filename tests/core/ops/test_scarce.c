/* test_scarce.c - processes with little address space left: a request succeeds, or is refused for
** want of memory; none dies, and none hangs, whatever library it was that got none. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "products/gemm.h"
#include "scratch.h"
#include "tensors.h"
#include "version.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LIMITED 0 /* the address space is the sanitisers' own */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LIMITED 0
#endif
#endif
#ifndef LIMITED
#define LIMITED 1
#endif

enum { SEVERAL = 4 };

static void leave(size_t bytes)
{
    struct rlimit space;
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f || fscanf(f, "%lu", &pages) != 1) _exit(9);
    (void)fclose(f);
    space.rlim_cur = space.rlim_max = pages * (rlim_t)sysconf(_SC_PAGESIZE) + bytes;
    if (setrlimit(RLIMIT_AS, &space) != 0) _exit(9);
}

static tl_status multiply(tl_ctx *ctx, int64_t n, const float *a, float *c)
{
    return tl_gemm(ctx, &(tl_product){.m = n, .n = n, .k = n, .alpha = 1}, a, a, c);
}

/* The first product, or with what 1 some larger ones after a small one. */
static tl_status products(tl_ctx *ctx, int what, size_t bytes)
{
    const int64_t n = 1000;
    tl_status st = TL_OK;
    float *a = calloc((size_t)(2 * n * n), sizeof *a);
    if (!a) _exit(9);
    if (what) st = multiply(ctx, 64, a, a + n * n);
    leave(bytes);
    for (int i = 0; st == TL_OK && i < SEVERAL; i++) st = multiply(ctx, n - 100 * i, a, a + n * n);
    return st;
}

static tl_status files(tl_ctx *ctx, int what, size_t bytes)
{
    tl_status st = TL_OK;
    leave(bytes);
    if (what)
        (void)read_version(ctx, scratch("kept.h5"), &st);
    else
        st = write_version(ctx, scratch("new.h5"), 1);
    return st;
}

/* The first use of OpenBLAS is the decomposition of a matrix, or with what 1 a linear system. */
static tl_status decompositions(tl_ctx *ctx, int what, size_t bytes)
{
    const int64_t dims[] = {200, 200};
    tl_tensor    *a = normals(ctx, 2, dims, 0, 1, 1), *s = NULL;
    leave(bytes);
    return what ? tl_solve(a, a, &s) : tl_svd(a, NULL, &s, NULL);
}

/* The wait status of a process of its own that is given that many bytes; it ends with 0 if all was
** done, 1 if memory was told to be short, 2 if something else was. */
static int scarce(tl_status (*work)(tl_ctx *, int, size_t), int what, int threads, size_t bytes)
{
    int status = -1;
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        tl_ctx *ctx;
        (void)alarm(20);
        if (tl_ctx_new(threads, &ctx) != TL_OK) _exit(9);
        tl_status st = work(ctx, what, bytes);
        if (st != TL_OK && st != TL_ENOMEM) printf("  %zu bytes: %s\n", bytes, tl_errmsg(ctx));
        (void)fflush(stdout);
        _exit(st == TL_OK ? 0 : st == TL_ENOMEM && strstr(tl_errmsg(ctx), "memory") ? 1 : 2);
    }
    if (pid > 0) (void)waitpid(pid, &status, 0);
    return status;
}

static void each_size(tl_status (*work)(tl_ctx *, int, size_t), int what, int threads)
{
    static const size_t kilobytes[] = {0,     100,   1000,   3000,   6000,   10000,  16000, 20000,
                                       26000, 40000, 70000,  100000, 130000, 145000, 150000,
                                       165000, 180000, 260000, 320000, 345000, 2000000};
    enum { SIZES = sizeof kilobytes / sizeof *kilobytes };
    int done = 0, refused = 0;
    for (int i = 0; LIMITED && i < SIZES; i++) {
        int status = scarce(work, what, threads, kilobytes[i] << 10);
        done += WIFEXITED(status) && WEXITSTATUS(status) == 0;
        refused += WIFEXITED(status) && WEXITSTATUS(status) == 1;
        if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
            printf("  %zu kB, %d threads: wait status %d\n", kilobytes[i], threads, status);
    }
    CHECK(!LIMITED || (done + refused == SIZES && done > 0));
    printf("  %d threads: done with %d sizes, refused with %d\n", threads, done, refused);
}

static void first_products(void)
{
    for (int threads = 1; threads <= 2; threads++) each_size(products, 0, threads);
}

static void later_products(void)
{
    for (int threads = 1; threads <= 2; threads++) each_size(products, 1, threads);
}

static void first_decompositions(void)
{
    for (int what = 0; what <= 1; what++) each_size(decompositions, what, 2);
}

static void files_written(void) { each_size(files, 0, 1); }

static void files_read(void)
{
    tl_ctx *ctx;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    CHECK_STATUS(write_version(ctx, scratch("kept.h5"), 1), TL_OK);
    tl_ctx_free(ctx);
    each_size(files, 1, 1);
}

int main(void)
{
    if (!scratch_new()) return 1;
    int failed = run_tests((const test[]){{"first products", first_products},
                                          {"later products", later_products},
                                          {"first decompositions", first_decompositions},
                                          {"files written", files_written},
                                          {"files read", files_read},
                                          {0}});
    scratch_free();
    return failed;
}

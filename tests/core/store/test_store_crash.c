/* test_store_crash.c - the store under kills, full disks and damage: what was committed stays. */
#include <fcntl.h>
#include <sys/resource.h>

#include "scratch.h"
#include "test.h"
#include "toeplab-lab.h"

#define ROWS 5 /* of a batch, which is one transaction */

static tl_ctx *ctx;

static int keep(void *user, int columns, const char *const *names, const tl_value *values)
{
    (void)columns, (void)names;
    *(int64_t *)user = values[0].i;
    return 0;
}

/* The integer that sql gives; -1: none. */
static int64_t integer(tl_store *s, const char *sql)
{
    int64_t x = -1;
    return tl_store_exec(s, sql, 0, NULL, keep, &x) == TL_OK ? x : -1;
}

static tl_status run(tl_store *s, const char *sql)
{
    return tl_store_exec(s, sql, 0, NULL, NULL, NULL);
}

static tl_status prepare(const char *folder)
{
    tl_store *s;
    tl_status st = tl_store_open(ctx, folder, TL_STORE_WRITE, &s);
    if (st != TL_OK) return st;
    st = run(s, "INSERT INTO trials (id, experiment) VALUES ('t', 'e')");
    tl_store_close(s);
    return st;
}

/* Batch number b: rows of steps ROWS b to ROWS b + ROWS - 1. */
static tl_status write_batch(tl_store *s, int64_t b)
{
    tl_status st = run(s, "BEGIN IMMEDIATE");
    for (int64_t i = ROWS * b; st == TL_OK && i < ROWS * (b + 1); i++)
        st = tl_store_exec(s,
                           "INSERT INTO metrics (trial, name, step, value) "
                           "VALUES ('t', 'loss', ?, ?)", 2,
                           (tl_value[]){{.kind = 'i', .i = i}, {.kind = 'f', .f = (double)i}}, NULL,
                           NULL);
    if (st == TL_OK)
        st = run(s, "INSERT OR REPLACE INTO last SELECT trial, name, max(step), value FROM metrics "
                    "GROUP BY trial, name");
    if (st == TL_OK) return run(s, "COMMIT");
    (void)run(s, "ROLLBACK");
    return st;
}

/* Whether the rows are those of batches 0 to some last, whole, as a reader sees them. */
static int64_t whole_batches(tl_store *s)
{
    int64_t rows = integer(s, "SELECT count(*) FROM v_metrics");
    int64_t last = integer(s, "SELECT max(step) FROM v_metrics WHERE value = step");
    int64_t kept = integer(s, "SELECT step FROM v_last");
    return rows % ROWS == 0 && last == rows - 1 && kept == last ? rows / ROWS : -1;
}

/* ---- Kills ---- */

typedef struct job {
    int ack; /* where the number of each committed batch goes */
} job;

static void write_for_ever(void *user, int ready)
{
    const job *j = user;
    tl_ctx *own;
    tl_store *s;
    if (tl_ctx_new(1, &own) != TL_OK) return;
    if (tl_store_open(own, scratch("kill"), TL_STORE_WRITE, &s) != TL_OK) return;
    int64_t b = integer(s, "SELECT count(*) FROM metrics") / ROWS;
    if (write(ready, "+", 1) != 1) return;
    for (; write_batch(s, b) == TL_OK; b++)
        if (write(j->ack, &b, sizeof b) != (ssize_t)sizeof b) return;
}

static void killed_writers_lose_nothing_committed(void)
{
    int64_t b, acked = -1;
    int kills = 0;
    CHECK_STATUS(prepare(scratch("kill")), TL_OK);
    /* On a busy machine many writers are killed before they get to write. */
    for (int i = 0; i < 30 || (acked <= 10 && i < 1000); i++) {
        int ends[2];
        tl_store *s = NULL;
        CHECK(pipe(ends) == 0);
        CHECK(scratch_kill(write_for_ever, &(job){ends[1]}, 211 + 2741 * i % 15000));
        (void)close(ends[1]);
        while (read(ends[0], &b, sizeof b) == (ssize_t)sizeof b) acked = b;
        (void)close(ends[0]);
        CHECK_STATUS(tl_store_open(ctx, scratch("kill"), TL_STORE_READ, &s), TL_OK);
        if (!s) break;
        if (acked >= 0) CHECK(whole_batches(s) > acked);
        tl_store_close(s);
        kills++;
    }
    CHECK(acked > 10);
    (void)printf("  %d kills, %lld batches committed\n", kills, (long long)acked + 1);
}

/* ---- Full disk ---- */

static void a_full_disk_keeps_what_was_committed(void)
{
    struct rlimit old, tiny;
    tl_store *s = NULL;
    int64_t b = 0;
    tl_status st = prepare(scratch("full"));
    CHECK_STATUS(st, TL_OK);
    CHECK_STATUS(tl_store_open(ctx, scratch("full"), TL_STORE_WRITE, &s), TL_OK);
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    tiny = old;
    tiny.rlim_cur = 200000;
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &tiny) == 0);
    while (st == TL_OK && b < 10000) {
        st = write_batch(s, b);
        b += st == TL_OK;
    }
    CHECK_STATUS(st, TL_ENOSPC);
    CHECK(b > 2 && whole_batches(s) == b);
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    (void)signal(SIGXFSZ, SIG_DFL);
    CHECK_STATUS(write_batch(s, b), TL_OK); /* and goes on when there is room again */
    tl_store_close(s);
    CHECK_STATUS(tl_store_open(ctx, scratch("full"), TL_STORE_READ, &s), TL_OK);
    CHECK(whole_batches(s) == b + 1);
    tl_store_close(s);
}

/* The memory that processes share beside the database does not fit either. */
static void a_full_disk_is_named_before_the_first_statement(void)
{
    struct rlimit old, tiny;
    tl_store *s = NULL;
    CHECK_STATUS(prepare(scratch("shared")), TL_OK);
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    tiny = old;
    tiny.rlim_cur = 4096;
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &tiny) == 0);
    CHECK_STATUS(tl_store_open(ctx, scratch("shared"), TL_STORE_READ, &s), TL_ENOSPC);
    CHECK(strstr(tl_errmsg(ctx), "file too large") != NULL);
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    (void)signal(SIGXFSZ, SIG_DFL);
    CHECK_STATUS(tl_store_open(ctx, scratch("shared"), TL_STORE_READ, &s), TL_OK);
    tl_store_close(s);
}

/* ---- Damage ---- */

/* Every page in turn is overwritten: each use of the store ends with an answer or TL_ECORRUPT. */
static void damaged_pages_do_not_crash(void)
{
    size_t bytes;
    int found = 0, pages = 0;
    tl_store *s = NULL;
    CHECK_STATUS(prepare(scratch("page")), TL_OK);
    CHECK_STATUS(tl_store_open(ctx, scratch("page"), TL_STORE_WRITE, &s), TL_OK);
    for (int64_t b = 0; b < 200; b++) CHECK_STATUS(write_batch(s, b), TL_OK);
    tl_store_close(s);
    unsigned char *data = scratch_read(scratch("page/runs.db"), &bytes), held[4096];
    for (size_t at = 0; at + sizeof held <= bytes; at += sizeof held, pages++) {
        memcpy(held, data + at, sizeof held);
        for (size_t i = 0; i < sizeof held; i++) data[at + i] ^= (unsigned char)(i * 37 + 11);
        CHECK(scratch_write(scratch("page/runs.db"), data, bytes));
        memcpy(data + at, held, sizeof held);
        tl_status st = tl_store_open(ctx, scratch("page"), TL_STORE_WRITE, &s);
        if (st == TL_OK) {
            st = run(s, "SELECT * FROM v_trials, v_last");
            if (st == TL_OK) st = run(s, "SELECT sum(value) FROM v_metrics");
            if (st == TL_OK) st = run(s, "DELETE FROM trials");
            tl_store_close(s);
        }
        found += st == TL_ECORRUPT;
        CHECK(st == TL_OK || st == TL_ECORRUPT);
    }
    CHECK(pages > 10 && found > pages / 2);
    free(data);
}

/* ---- Read-only folders ---- */

static int read_as_nobody(void)
{
    int status = 1;
    pid_t pid = fork();
    if (pid == 0) {
        tl_ctx *own;
        tl_store *s;
        if (geteuid() == 0 && setuid(65534) != 0) _exit(2); /* root may write anywhere */
        if (tl_ctx_new(1, &own) != TL_OK) _exit(3);
        if (access(scratch("fixed%20?#"), W_OK) == 0) _exit(4);
        if (tl_store_open(own, scratch("fixed%20?#"), TL_STORE_READ, &s) != TL_OK) _exit(5);
        _exit(whole_batches(s) == 1 ? 0 : 6);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

static void read_only_folders_can_be_read(void)
{
    tl_store *s = NULL;
    const char *folder = scratch("fixed%20?#");
    CHECK_STATUS(prepare(folder), TL_OK);
    CHECK_STATUS(tl_store_open(ctx, folder, TL_STORE_WRITE, &s), TL_OK);
    CHECK_STATUS(write_batch(s, 0), TL_OK);
    tl_store_close(s);
    CHECK(chmod(scratch_folder, 0755) == 0 && chmod(folder, 0555) == 0);
    CHECK(read_as_nobody() == 0);
    CHECK(chmod(folder, 0755) == 0);
}

int main(void)
{
    if (!scratch_new() || tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int status = run_tests((const test[]){
        {"killed_writers_lose_nothing_committed", killed_writers_lose_nothing_committed},
        {"a_full_disk_keeps_what_was_committed", a_full_disk_keeps_what_was_committed},
        {"a_full_disk_is_named_before_the_first_statement",
         a_full_disk_is_named_before_the_first_statement},
        {"damaged_pages_do_not_crash", damaged_pages_do_not_crash},
        {"read_only_folders_can_be_read", read_only_folders_can_be_read},
        {0}});
    tl_ctx_free(ctx);
    scratch_free();
    return status;
}

/* test_store.c - the store of runs: what is committed stays, one writer, readers beside it. */

#include "scratch.h"
#include "test.h"
#include "toeplab-lab.h"

#define METRICS "metrics (trial, name, step, value)"

static tl_ctx *ctx;

/* ---- Shorthands ---- */

#define TEXT(text)                                                                                 \
    {                                                                                              \
        .kind = 's', .s = (text), .bytes = strlen(text)                                            \
    }
#define INT(x)                                                                                     \
    {                                                                                              \
        .kind = 'i', .i = (x)                                                                      \
    }
#define REAL(x)                                                                                    \
    {                                                                                              \
        .kind = 'f', .f = (x)                                                                      \
    }

static tl_store *open_store(const char *folder, tl_store_mode mode)
{
    tl_store *s = NULL;
    CHECK_STATUS(tl_store_open(ctx, folder, mode, &s), TL_OK);
    if (!s) (void)printf("  %s\n", tl_errmsg(ctx));
    return s;
}

static tl_status run(tl_store *s, const char *sql)
{
    return tl_store_exec(s, sql, 0, NULL, NULL, NULL);
}

static int keep(void *user, int columns, const char *const *names, const tl_value *values)
{
    (void)columns, (void)names;
    *(tl_value *)user = values[0];
    return 0;
}

static double real(tl_store *s, const char *sql)
{
    tl_value v = {.kind = '?'};
    CHECK_STATUS(tl_store_exec(s, sql, 0, NULL, keep, &v), TL_OK);
    return v.kind == 'i' ? (double)v.i : v.kind == 'f' ? v.f : NAN;
}

static tl_status trial(tl_store *s, const char *id)
{
    return tl_store_exec(s, "INSERT INTO trials (id, experiment) VALUES (?, 'e')", 1,
                         (tl_value[]){TEXT(id)}, NULL, NULL);
}

static tl_status metric(tl_store *s, const char *id, const char *name, int64_t step, double value)
{
    return tl_store_exec(s, "INSERT INTO " METRICS " VALUES (?, ?, ?, ?)", 4,
                         (tl_value[]){TEXT(id), TEXT(name), INT(step), REAL(value)}, NULL, NULL);
}

/* ---- Schema ---- */

typedef struct names {
    char text[1024];
} names;

static int list_names(void *user, int columns, const char *const *column, const tl_value *values)
{
    names *n = user;
    (void)values;
    for (int i = 0; i < columns; i++) {
        (void)strncat(n->text, column[i], sizeof n->text - strlen(n->text) - 2);
        (void)strcat(n->text, " ");
    }
    return 1;
}

static void views_have_their_columns(void)
{
    static const struct {
        const char *sql, *columns;
    } views[] = {{"SELECT * FROM v_trials",
                  "id experiment sweep status seed attempt step created started finished seconds "
                  "host error command git_commit git_dirty code_hash numerics data_hash config "
                  "provenance tags notes "},
                 {"SELECT * FROM v_metrics", "trial name step value "},
                 {"SELECT * FROM v_last", "trial name step value "},
                 {"SELECT * FROM v_artifacts", "trial kind step path bytes sha256 created "}};
    tl_store *s = open_store(scratch("a/b/results"), TL_STORE_WRITE);
    CHECK_STATUS(trial(s, "t"), TL_OK);
    CHECK_STATUS(metric(s, "t", "loss", 1, 0.5), TL_OK);
    CHECK_STATUS(run(s, "INSERT INTO last SELECT trial, name, step, value FROM metrics"), TL_OK);
    CHECK_STATUS(run(s, "INSERT INTO artifacts (trial, kind, step, path, bytes, sha256) VALUES "
                        "('t', 'checkpoint', 1, 'x.h5', 3, hex(zeroblob(32)))"),
                 TL_OK);
    for (int i = 0; i < 4; i++) {
        names n = {""};
        CHECK_STATUS(tl_store_exec(s, views[i].sql, 0, NULL, list_names, &n), TL_OK);
        CHECK(!strcmp(n.text, views[i].columns));
    }
    tl_store_close(s);
}

static void rows_that_make_no_sense_are_refused(void)
{
    static const char *const bad[] = {
        "INSERT INTO trials (id, experiment, status) VALUES ('u', 'e', 'finished')",
        "INSERT INTO trials (id, experiment, config) VALUES ('u', 'e', '{a}')",
        "INSERT INTO trials (id, experiment) VALUES ('t', 'twice')",
        "INSERT INTO " METRICS " VALUES ('nobody', 'loss', 1, 1.0)",
        "INSERT INTO " METRICS " VALUES ('t', 'loss', 'x', 1.0)",
        "INSERT INTO " METRICS " VALUES ('t', 'loss', 1, 'high')",
        "INSERT INTO artifacts (trial, kind, path, bytes, sha256) VALUES ('t', 'c', 'p', 1, 'abc')"
    };
    tl_store *s = open_store(scratch("sense"), TL_STORE_WRITE);
    CHECK_STATUS(trial(s, "t"), TL_OK);
    CHECK_STATUS(metric(s, "t", "loss", 1, 1), TL_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK_STATUS(run(s, bad[i]), TL_EINVAL);
    CHECK(real(s, "SELECT count(*) FROM metrics") == 1);
    tl_store_close(s);
}

/* ---- Values ---- */

static int take_row(void *user, int columns, const char *const *column, const tl_value *values)
{
    tl_value *out = user;
    CHECK(columns == 6 && !strcmp(column[1], "two"));
    CHECK(values[0].kind == 'i' && values[0].i == INT64_MIN);
    CHECK(values[1].kind == 'f' && values[1].f == 0.1);
    CHECK(values[2].kind == 's' && values[2].bytes == 3 && !memcmp(values[2].s, "a\0b", 4));
    CHECK(values[3].kind == 'n');
    CHECK(values[4].kind == 's' && values[4].bytes == 0 && values[4].s[0] == '\0');
    CHECK(values[5].kind == 's' && values[5].bytes == 2 && !memcmp(values[5].s, "\1\2", 2));
    *out = values[0];
    return 0;
}

static void values_come_back_as_bound(void)
{
    tl_value seen = {.kind = '?'};
    const tl_value in[] = {INT(INT64_MIN),
                           REAL(0.1),
                           {.kind = 's', .s = "a\0b", .bytes = 3},
                           {.kind = 'n'},
                           {.kind = 's'}};
    tl_store *s = open_store(scratch("values"), TL_STORE_WRITE);
    CHECK_STATUS(tl_store_exec(s, "SELECT ?, ? AS two, ?, ?, ?, x'0102'", 5, in, take_row, &seen),
                 TL_OK);
    CHECK(seen.kind == 'i');
    tl_store_close(s);
}

static int stop_at_three(void *user, int columns, const char *const *column, const tl_value *values)
{
    (void)columns, (void)column, (void)values;
    return ++*(int *)user == 3;
}

static void statements_and_their_errors(void)
{
    int rows = 0;
    tl_value one = INT(1), odd = {.kind = 'x'};
    tl_store *s = open_store(scratch("errors"), TL_STORE_WRITE);
    CHECK_STATUS(run(s, "SELEC 1"), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "SELEC") != NULL);
    CHECK_STATUS(run(s, ""), TL_EINVAL);
    CHECK_STATUS(run(s, "SELECT 1; SELECT 2"), TL_EINVAL);
    CHECK_STATUS(run(s, "SELECT 1; -- the end\n"), TL_OK);
    CHECK_STATUS(run(s, "SELECT ?"), TL_EINVAL);
    CHECK_STATUS(tl_store_exec(s, "SELECT 1", 1, &one, NULL, NULL), TL_EINVAL);
    CHECK_STATUS(tl_store_exec(s, "SELECT ?", 1, &odd, NULL, NULL), TL_EINVAL);
    CHECK_STATUS(tl_store_exec(s, "VALUES (1), (2), (3), (4)", 0, NULL, stop_at_three, &rows),
                 TL_OK);
    CHECK(rows == 3);
    tl_store_close(s);
}

typedef struct nest {
    tl_store *s;
    int depth, rows;
} nest;

static int go_deeper(void *user, int columns, const char *const *column, const tl_value *values)
{
    nest *n = user;
    (void)columns, (void)column, (void)values;
    n->rows++;
    if (n->depth == 3) return 0;
    n->depth++;
    CHECK_STATUS(tl_store_exec(n->s, "VALUES (1), (2)", 0, NULL, go_deeper, n), TL_OK);
    n->depth--;
    return 0;
}

static void a_statement_may_run_inside_itself(void)
{
    nest n = {.s = open_store(scratch("nest"), TL_STORE_WRITE)};
    for (int i = 0; i < 3; i++) { /* twice from what is kept */
        n.rows = 0;
        CHECK_STATUS(tl_store_exec(n.s, "VALUES (1), (2)", 0, NULL, go_deeper, &n), TL_OK);
        CHECK(n.rows == 2 + 4 + 8 + 16);
    }
    for (int i = 0; i < 40; i++) { /* more texts than are kept */
        char sql[64];
        (void)snprintf(sql, sizeof sql, "SELECT %d", i % 20);
        CHECK(real(n.s, sql) == i % 20);
    }
    tl_store_close(n.s);
}

static void close_rolls_back(void)
{
    tl_store *s = open_store(scratch("back"), TL_STORE_WRITE);
    CHECK_STATUS(trial(s, "kept"), TL_OK);
    CHECK_STATUS(run(s, "BEGIN IMMEDIATE"), TL_OK);
    CHECK_STATUS(trial(s, "lost"), TL_OK);
    tl_store_close(s);
    s = open_store(scratch("back"), TL_STORE_READ);
    CHECK(real(s, "SELECT count(*) FROM v_trials") == 1);
    tl_store_close(s);
}

/* ---- Two at once ---- */

static void who_waits_in_vain_is_told_who_writes(void)
{
    char pid[32], host[256] = "";
    int to_child[2], from_child[2];
    char byte;
    CHECK(pipe(to_child) == 0 && pipe(from_child) == 0);
    pid_t child = fork();
    if (child == 0) { /* keeps a transaction open */
        tl_ctx *own;
        tl_store *held;
        (void)close(to_child[1]); /* or the end of the parent would not be seen */
        int ok = tl_ctx_new(1, &own) == TL_OK &&
                 tl_store_open(own, scratch("lock"), TL_STORE_WRITE, &held) == TL_OK &&
                 run(held, "BEGIN IMMEDIATE") == TL_OK;
        ok = ok && write(from_child[1], "+", 1) == 1 && read(to_child[0], &byte, 1) >= 0;
        _exit(!ok);
    }
    (void)close(from_child[1]);
    CHECK(read(from_child[0], &byte, 1) == 1);
    tl_store *s = NULL;
    CHECK_STATUS(tl_store_open(ctx, scratch("lock"), TL_STORE_WRITE, &s), TL_ELOCKED);
    (void)snprintf(pid, sizeof pid, " %ld ", (long)child);
    (void)gethostname(host, sizeof host - 1);
    CHECK(strstr(tl_errmsg(ctx), pid) && strstr(tl_errmsg(ctx), host));
    tl_store_close(open_store(scratch("lock"), TL_STORE_READ)); /* a reader needs no lock */
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    tl_store_close(open_store(scratch("lock"), TL_STORE_WRITE)); /* the lock died with it */
    (void)close(to_child[0]), (void)close(to_child[1]), (void)close(from_child[0]);
}

static int never(void *user) { return (void)user, 0; }

static int at_once(void *user) { return *(const int *)user; }

static void writers_take_turns(void)
{
    tl_store *one = open_store(scratch("turns"), TL_STORE_WRITE);
    tl_store *two = open_store(scratch("turns"), TL_STORE_WRITE);
    CHECK_STATUS(trial(one, "one"), TL_OK);
    CHECK_STATUS(trial(two, "two"), TL_OK);
    tl_store_watch(two, at_once, &(int){1}); /* it waits for 2 seconds */
    CHECK_STATUS(run(one, "BEGIN IMMEDIATE"), TL_OK);
    CHECK_STATUS(trial(two, "three"), TL_ELOCKED);
    CHECK_STATUS(run(two, "SELECT 1 FROM trials"), TL_OK);
    CHECK_STATUS(trial(one, "three"), TL_OK);
    CHECK_STATUS(run(one, "COMMIT"), TL_OK);
    CHECK_STATUS(trial(two, "three"), TL_EINVAL); /* it is there */
    tl_store_watch(two, never, NULL);
    CHECK_STATUS(run(two, "BEGIN IMMEDIATE"), TL_OK);
    CHECK_STATUS(trial(two, "four"), TL_OK);
    CHECK_STATUS(run(two, "ROLLBACK"), TL_OK);
    CHECK_STATUS(trial(one, "four"), TL_OK);
    tl_store_close(one);
    CHECK_STATUS(trial(two, "five"), TL_OK); /* the log of SQLite is still there */
    tl_store_close(two);
}

static void readers_read_while_one_writes(void)
{
    tl_store *w = open_store(scratch("both"), TL_STORE_WRITE);
    CHECK_STATUS(trial(w, "one"), TL_OK);
    tl_store *r = open_store(scratch("both"), TL_STORE_READ);
    CHECK_STATUS(run(w, "BEGIN IMMEDIATE"), TL_OK);
    CHECK_STATUS(trial(w, "two"), TL_OK);
    CHECK(real(r, "SELECT count(*) FROM v_trials") == 1);
    CHECK_STATUS(run(w, "COMMIT"), TL_OK);
    CHECK(real(r, "SELECT count(*) FROM v_trials") == 2);
    CHECK_STATUS(run(r, "BEGIN"), TL_OK); /* a reader that lingers stops nobody */
    CHECK(real(r, "SELECT count(*) FROM v_trials") == 2);
    CHECK_STATUS(trial(w, "three"), TL_OK);
    CHECK(real(r, "SELECT count(*) FROM v_trials") == 2);
    CHECK_STATUS(trial(r, "four"), TL_EINVAL); /* it may not write */
    tl_store_close(r);
    tl_store_close(w);
}

/* ---- Other files ---- */

static void what_is_not_ours_is_refused(void)
{
    tl_store *s = NULL;
    CHECK_STATUS(tl_store_open(ctx, scratch("nowhere"), TL_STORE_READ, &s), TL_ENOTFOUND);
    CHECK_STATUS(tl_store_open(ctx, "", TL_STORE_WRITE, &s), TL_EINVAL);
    s = open_store(scratch("new"), TL_STORE_WRITE);
    CHECK_STATUS(run(s, "PRAGMA user_version = 99"), TL_OK);
    tl_store_close(s);
    CHECK_STATUS(tl_store_open(ctx, scratch("new"), TL_STORE_WRITE, &s), TL_ECORRUPT);
    CHECK(strstr(tl_errmsg(ctx), "99") && strstr(tl_errmsg(ctx), "newer"));
    CHECK_STATUS(tl_store_open(ctx, scratch("new"), TL_STORE_READ, &s), TL_ECORRUPT);
    s = open_store(scratch("other"), TL_STORE_WRITE);
    CHECK_STATUS(run(s, "PRAGMA application_id = 7"), TL_OK);
    tl_store_close(s);
    CHECK_STATUS(tl_store_open(ctx, scratch("other"), TL_STORE_WRITE, &s), TL_ECORRUPT);
    CHECK(mkdir(scratch("junk"), 0777) == 0);
    CHECK(scratch_write(scratch("junk/runs.db"), "this is no database, whatever it is named", 41));
    CHECK_STATUS(tl_store_open(ctx, scratch("junk"), TL_STORE_WRITE, &s), TL_ECORRUPT);
    CHECK_STATUS(tl_store_open(ctx, scratch("junk"), TL_STORE_READ, &s), TL_ECORRUPT);
    CHECK(scratch_write(scratch("junk/runs.db"), "", 0)); /* an empty file is a new store */
    CHECK_STATUS(tl_store_open(ctx, scratch("junk"), TL_STORE_READ, &s), TL_ENOTFOUND);
    tl_store_close(open_store(scratch("junk"), TL_STORE_WRITE));
}

static void old_schemas_are_backed_up_and_upgraded(void)
{
    tl_store *s = open_store(scratch("old"), TL_STORE_WRITE);
    CHECK_STATUS(trial(s, "t"), TL_OK);
    static const char *const later[] = { /* what versions 2 to 7 made */
        "DROP VIEW v_trials", "DROP VIEW v_metrics", "DROP VIEW v_last", "DROP VIEW v_artifacts",
        "DROP VIEW v_trash", "DROP VIEW v_members", "DROP VIEW v_events", "DROP TABLE members",
        "DROP TABLE journals", "DROP TABLE events", "DROP TABLE news", "DROP INDEX trials_started",
        "ALTER TABLE trials DROP COLUMN seconds", "ALTER TABLE trials DROP COLUMN ended",
        "ALTER TABLE trials DROP COLUMN trashed", "ALTER TABLE trials DROP COLUMN numerics",
        "ALTER TABLE metrics DROP COLUMN at",
    };
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        CHECK_STATUS(run(s, later[i]), TL_OK);
    CHECK_STATUS(run(s, "PRAGMA user_version = 1"), TL_OK);
    tl_store_close(s);
    CHECK_STATUS(tl_store_open(ctx, scratch("old"), TL_STORE_READ, &s), TL_ECORRUPT);
    /* what an interrupted backup left, and an earlier one */
    CHECK(scratch_write(scratch("old/runs.db.v1.tmp"), "half", 4));
    CHECK(scratch_write(scratch("old/runs.db.v1"), "earlier", 7));
    s = open_store(scratch("old"), TL_STORE_WRITE);
    CHECK(real(s, "SELECT count(*) FROM v_trials") == 1);
    CHECK(real(s, "PRAGMA user_version") == 7);
    tl_store_close(s);
    CHECK(scratch_count(scratch("old"), "runs.db.v1") == 1);
    s = open_store(scratch("old"), TL_STORE_READ); /* its schema equals that of a new store */
    CHECK(real(s, "SELECT count(*) FROM v_trials") == 1);
    tl_store_close(s);
    CHECK(mkdir(scratch("backup"), 0777) == 0);
    CHECK(rename(scratch("old/runs.db.v1"), scratch("backup/runs.db")) == 0);
    s = open_store(scratch("backup"), TL_STORE_WRITE); /* the copy is a whole store of version 1 */
    CHECK(real(s, "SELECT count(*) FROM v_trials") == 1);
    CHECK(scratch_count(scratch("backup"), "runs.db.v1") == 1);
    tl_store_close(s);
}

int main(void)
{
    if (!scratch_new() || tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int status = run_tests((const test[]){
        {"views_have_their_columns", views_have_their_columns},
        {"rows_that_make_no_sense_are_refused", rows_that_make_no_sense_are_refused},
        {"values_come_back_as_bound", values_come_back_as_bound},
        {"statements_and_their_errors", statements_and_their_errors},
        {"a_statement_may_run_inside_itself", a_statement_may_run_inside_itself},
        {"close_rolls_back", close_rolls_back},
        {"who_waits_in_vain_is_told_who_writes", who_waits_in_vain_is_told_who_writes},
        {"writers_take_turns", writers_take_turns},
        {"readers_read_while_one_writes", readers_read_while_one_writes},
        {"what_is_not_ours_is_refused", what_is_not_ours_is_refused},
        {"old_schemas_are_backed_up_and_upgraded", old_schemas_are_backed_up_and_upgraded},
        {0}});
    tl_ctx_free(ctx);
    scratch_free();
    return status;
}

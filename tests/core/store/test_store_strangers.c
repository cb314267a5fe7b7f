/* test_store_strangers.c - results folders of others: what is not ours in them does nothing. */
#include "scratch.h"
#include "test.h"
#include "toeplab-lab.h"

static tl_ctx *ctx;

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

static int pass(void *user, int columns, const char *const *names, const tl_value *values)
{
    (void)columns, (void)names, (void)values;
    ++*(int64_t *)user;
    return 0;
}

static int64_t count(tl_store *s, const char *sql)
{
    int64_t rows = 0;
    CHECK_STATUS(tl_store_exec(s, sql, 0, NULL, pass, &rows), TL_OK);
    return rows;
}

/* Triggers of others, and those that kept `last` in older stores, do not run. */
static void no_trigger_runs(void)
{
    static const char *const sql[] = {
        "CREATE TRIGGER swallow BEFORE INSERT ON trials BEGIN SELECT raise(IGNORE); END",
        "CREATE TRIGGER put AFTER INSERT ON trials BEGIN INSERT INTO last VALUES (1, 2, 3, 4); END",
        "CREATE TRIGGER hide AFTER UPDATE ON trials BEGIN DELETE FROM trials; END"};
    tl_store *s = open_store(scratch("triggers"), TL_STORE_WRITE);
    for (int i = 0; i < 3; i++) CHECK_STATUS(run(s, sql[i]), TL_OK);
    tl_store_close(s);
    s = open_store(scratch("triggers"), TL_STORE_WRITE);
    CHECK_STATUS(run(s, "INSERT INTO trials (id, experiment) VALUES ('t', 'e')"), TL_OK);
    CHECK_STATUS(run(s, "UPDATE trials SET notes = 'x'"), TL_OK);
    CHECK(count(s, "SELECT 1 FROM trials WHERE notes = 'x'") == 1);
    CHECK(count(s, "SELECT 1 FROM last") == 0);
    tl_store_close(s);
}

/* Views of others read nothing but tables, and load no code. The same words in a query of ours are
** let pass. */
static void their_views_are_not_trusted(void)
{
    static const char *const sql[] = {"SELECT * FROM pragma_database_list",
                                      "SELECT load_extension('x.so')"};
    for (int i = 0; i < 4; i++) {
        tl_store *s = open_store(scratch("views"), TL_STORE_WRITE);
        CHECK_STATUS(run(s, "DROP VIEW v_last"), TL_OK);
        char view[128];
        (void)snprintf(view, sizeof view, "CREATE VIEW v_last AS %s", sql[i / 2]);
        CHECK_STATUS(run(s, view), TL_OK);
        tl_store_close(s);
        s = open_store(scratch("views"), i % 2 ? TL_STORE_ASK : TL_STORE_READ);
        CHECK(count(s, sql[0]) == 1);
        CHECK_STATUS(run(s, "SELECT * FROM v_last"), TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), "unsafe use of") != NULL);
        tl_store_close(s);
    }
}

/* The tables of SQLite itself, through which a statement could change the others unchecked. */
static void the_schema_is_not_written_by_hand(void)
{
    tl_store *s = open_store(scratch("defensive"), TL_STORE_WRITE);
    CHECK_STATUS(run(s, "PRAGMA writable_schema = ON"), TL_OK);
    CHECK_STATUS(run(s, "DELETE FROM sqlite_schema"), TL_EINVAL);
    tl_store_close(s);
}

/* A folder may be a link, what is in it may not: writing would change what is elsewhere. */
static void links_in_a_folder_are_refused(void)
{
    static const char *const names[] = {"runs.db",         "runs.db-wal", "runs.db-shm",
                                        "runs.db-journal", "lock",        "runs"};
    tl_store *s = NULL;
    CHECK(mkdir(scratch("out"), 0777) == 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[16], path[64];
        (void)snprintf(folder, sizeof folder, "link%zu", i);
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        tl_store_close(open_store(scratch(folder), TL_STORE_WRITE));
        (void)unlink(scratch(path));
        CHECK(symlink("../out", scratch(path)) == 0);
        CHECK_STATUS(tl_store_open(ctx, scratch(folder), TL_STORE_WRITE, &s), TL_ECORRUPT);
        CHECK(strstr(tl_errmsg(ctx), names[i]) && strstr(tl_errmsg(ctx), "symbolic link"));
        if (i != 0)
            CHECK_STATUS(tl_store_open(ctx, scratch(folder), TL_STORE_READ, &s), TL_ECORRUPT);
    }
    CHECK(symlink("triggers", scratch("whole")) == 0);
    tl_store_close(open_store(scratch("whole"), TL_STORE_WRITE));
}

/* SQLite deletes what a hot journal names as its super-journal, wherever that is. */
static void a_journal_that_names_a_file_is_refused(void)
{
    char journal[4096];
    static const unsigned char head[28] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7, 0, 0,
                                           0,    0,    0,    0,    0,    0,    0,    0,    0, 1,
                                           0,    0,    2,    0,    0,    0,    0x10, 0};
    tl_store_close(open_store(scratch("journal"), TL_STORE_WRITE));
    CHECK(scratch_write(scratch("precious"), "precious", 8));
    const char *name = scratch("precious");
    size_t at = 512, bytes = strlen(name);
    unsigned sum = 0;
    memset(journal, 0, sizeof journal);
    memcpy(journal, head, sizeof head);
    memcpy(journal + at + 4, name, bytes);
    for (size_t i = 0; i < bytes; i++) sum += (unsigned)name[i];
    at += 4 + bytes;
    unsigned numbers[2] = {(unsigned)bytes, sum};
    for (int i = 0; i < 2; i++)
        for (int k = 3; k >= 0; k--) journal[at++] = (char)(numbers[i] >> (8 * k));
    memcpy(journal + at, head, 8);
    at += 8;
    CHECK(scratch_write(scratch("journal/runs.db-journal"), journal, at));
    tl_store *s = NULL;
    CHECK_STATUS(tl_store_open(ctx, scratch("journal"), TL_STORE_WRITE, &s), TL_ECORRUPT);
    CHECK(access(scratch("precious"), F_OK) == 0);
}

#define COUNT "WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) "

static int yes(void *user)
{
    (void)user;
    return 1;
}

/* Pages that refer to each other in circles make a scan endless, as this is. */
static void no_statement_is_endless(void)
{
    int64_t rows = 0;
    tl_store_close(open_store(scratch("endless"), TL_STORE_WRITE));
    tl_store *s = open_store(scratch("endless"), TL_STORE_READ);
    CHECK_STATUS(run(s, COUNT "SELECT count(*) FROM n"), TL_ECORRUPT);
    CHECK_STATUS(tl_store_exec(s, COUNT "SELECT i FROM n", 0, NULL, pass, &rows), TL_ECORRUPT);
    CHECK(rows > 100000 && rows < 2000000);
    CHECK_STATUS(run(s, "SELECT 1"), TL_OK);
    tl_store_close(s);
    s = open_store(scratch("endless"), TL_STORE_ASK);
    tl_store_watch(s, yes, NULL);
    CHECK_STATUS(run(s, COUNT "SELECT count(*) FROM n"), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "interrupted"));
    tl_store_close(s);
}

int main(void)
{
    if (!scratch_new() || tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int status = run_tests((const test[]){
        {"no_trigger_runs", no_trigger_runs},
        {"their_views_are_not_trusted", their_views_are_not_trusted},
        {"the_schema_is_not_written_by_hand", the_schema_is_not_written_by_hand},
        {"links_in_a_folder_are_refused", links_in_a_folder_are_refused},
        {"a_journal_that_names_a_file_is_refused", a_journal_that_names_a_file_is_refused},
        {"no_statement_is_endless", no_statement_is_endless},
        {0}});
    tl_ctx_free(ctx);
    scratch_free();
    return status;
}

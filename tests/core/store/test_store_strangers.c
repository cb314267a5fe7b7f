/* test_store_strangers.c - results folders of others: what is not ours in them is refused before it
** can do anything. */
#include "store/store.h"
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

/* A constant that is out of date costs every start some milliseconds, and shows nowhere else. */
static void the_hash_of_the_newest_schema_is_known(void)
{
    char hex[65];
    tl_store *s = open_store(scratch("hash"), TL_STORE_WRITE);
    CHECK_STATUS(store_schema_hash(s, hex), TL_OK);
    CHECK(strcmp(hex, store_schema_newest) == 0);
    tl_store_close(s);
}

/* Each object that is foreign, changed or missing is refused by name, by readers and by the
** writer; what ANALYZE leaves is not. */
static void only_our_schema_is_believed(void)
{
    static const struct {
        const char *sql, *name; /* NULL: it is let pass */
    } cases[] = {
        {"ANALYZE", NULL},
        {"CREATE TRIGGER swallow BEFORE INSERT ON metrics BEGIN SELECT raise(IGNORE); END",
         "trigger 'swallow'"},
        {"CREATE VIEW more AS SELECT 1", "view 'more'"},
        {"CREATE TABLE aaa (x)", "table 'aaa'"},
        {"CREATE INDEX zzz ON metrics (value)", "index 'zzz'"},
        {"CREATE VIEW sqlitf AS SELECT 1", "view 'sqlitf'"},
        {"DROP TRIGGER metrics_insert", "lacks the trigger 'metrics_insert'"},
        {"DROP INDEX events_trial", "lacks the index 'events_trial'"},
        {"DROP VIEW v_last; CREATE VIEW v_last AS WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL "
         "SELECT i + 1 FROM n) SELECT '' AS trial, '' AS name, i AS step, 0.0 AS value FROM n",
         "view 'v_last' other than that of version 7"},
        {"ALTER TABLE trials ADD COLUMN more", "table 'trials' other"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[16];
        (void)snprintf(folder, sizeof folder, "schema%zu", i);
        tl_store *s = open_store(scratch(folder), TL_STORE_WRITE);
        const char *next = strstr(cases[i].sql, "; CREATE VIEW");
        char first[64] = "";
        if (next)
            (void)snprintf(first, sizeof first, "%.*s", (int)(next - cases[i].sql), cases[i].sql);
        if (next) CHECK_STATUS(run(s, first), TL_OK);
        CHECK_STATUS(run(s, next ? next + 2 : cases[i].sql), TL_OK);
        tl_store_close(s);
        tl_status want = cases[i].name ? TL_ECORRUPT : TL_OK;
        for (int mode = TL_STORE_READ; mode <= TL_STORE_ASK; mode++) {
            s = NULL;
            CHECK_STATUS(tl_store_open(ctx, scratch(folder), (tl_store_mode)mode, &s), want);
            if (cases[i].name) CHECK(strstr(tl_errmsg(ctx), cases[i].name));
            tl_store_close(s);
        }
    }
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
    CHECK(symlink("schema0", scratch("whole")) == 0);
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

static int pass(void *user, int columns, const char *const *names, const tl_value *values)
{
    (void)columns, (void)names, (void)values;
    ++*(int64_t *)user;
    return 0;
}

static int yes(void *user)
{
    (void)user;
    return 1;
}

/* Pages that refer to each other in circles make a scan endless, as this is. */
static void no_statement_is_endless(void)
{
    int64_t count = 0;
    tl_store_close(open_store(scratch("endless"), TL_STORE_WRITE));
    tl_store *s = open_store(scratch("endless"), TL_STORE_READ);
    CHECK_STATUS(run(s, COUNT "SELECT count(*) FROM n"), TL_ECORRUPT);
    CHECK_STATUS(tl_store_exec(s, COUNT "SELECT i FROM n", 0, NULL, pass, &count), TL_ECORRUPT);
    CHECK(count > 100000 && count < 2000000);
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
        {"the_hash_of_the_newest_schema_is_known", the_hash_of_the_newest_schema_is_known},
        {"only_our_schema_is_believed", only_our_schema_is_believed},
        {"links_in_a_folder_are_refused", links_in_a_folder_are_refused},
        {"a_journal_that_names_a_file_is_refused", a_journal_that_names_a_file_is_refused},
        {"no_statement_is_endless", no_statement_is_endless},
        {0}});
    tl_ctx_free(ctx);
    scratch_free();
    return status;
}

/* store.c - the store of runs: one SQLite file with one writer; the only file that knows SQLite.
**
** The writer holds FOLDER/lock, so no write ever waits for another one, and SQLite's bug of two
** connections that checkpoint a WAL at once (before 3.51.3) cannot be met: readers never do. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

#include "internal.h"
#include "schema.h" /* made from schema.sql */

#define APPLICATION 0x546f6550 /* "ToeP", as file(1) sees it */
#define VERSION     2          /* the last section of schema.sql */

struct tl_store {
    tl_ctx *ctx;
    sqlite3 *db;
    char *folder, *path; /* path: of the database */
    int lock;            /* descriptor of FOLDER/lock; -1: reading */
};

const char *tl_sqlite_version(void)
{
    return sqlite3_libversion();
}

/* ---- Errors ---------------------------------------------------------------------------------- */

/* Whether the last write to the database or its journal met a quota or a limit; SQLite itself takes
** only ENOSPC for a full disk. */
static int full(sqlite3 *db)
{
    sqlite3_file *journal = NULL;
    int main_error = 0, journal_error = 0;
    (void)sqlite3_file_control(db, "main", SQLITE_FCNTL_LAST_ERRNO, &main_error);
    (void)sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &journal);
    if (journal && journal->pMethods)
        (void)journal->pMethods->xFileControl(journal, SQLITE_FCNTL_LAST_ERRNO, &journal_error);
    return main_error == EFBIG || main_error == EDQUOT || journal_error == EFBIG ||
           journal_error == EDQUOT;
}

static tl_status status_of(sqlite3 *db)
{
    switch (sqlite3_errcode(db) & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return TL_OK;
    case SQLITE_NOMEM:
        return TL_ENOMEM;
    case SQLITE_FULL:
        return TL_ENOSPC;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return TL_ECORRUPT;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return TL_ELOCKED;
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_RANGE:
    case SQLITE_TOOBIG:
    case SQLITE_READONLY:
        return TL_EINVAL;
    default:
        return system == EFBIG || system == EDQUOT ? TL_ENOSPC : TL_EIO;
    }
}

static tl_status fail(const tl_store *s, const char *what)
{
    tl_status st = status_of(s->db);
    return tl_fail(s->ctx, st == TL_OK ? TL_EIO : st, "%s: %s: %s", s->path, what,
                   sqlite3_errmsg(s->db));
}

/* Several statements of our own. */
static tl_status script(tl_store *s, const char *sql)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? TL_OK
                                                                   : fail(s, "cannot set up");
}

static int take_number(void *user, int columns, const char *const *names, const tl_value *values)
{
    (void)columns, (void)names;
    *(int64_t *)user = values[0].i;
    return 0;
}

static tl_status number(tl_store *s, const char *sql, int64_t *out)
{
    return tl_store_exec(s, sql, 0, NULL, take_number, out);
}

/* ---- The lock -------------------------------------------------------------------------------- */

/* What the holder wrote: "PID HOST". */
static tl_status locked(tl_store *s, int fd)
{
    char text[300] = "", host[256] = "?";
    long pid = 0;
    struct stat file;
    double age = fstat(fd, &file) == 0 ? difftime(time(NULL), file.st_mtime) : 0;
    if (pread(fd, text, sizeof text - 1, 0) <= 0 || sscanf(text, "%ld %255s", &pid, host) != 2)
        return tl_fail(s->ctx, TL_ELOCKED, "%s: another process writes here", s->folder);
    return tl_fail(s->ctx, TL_ELOCKED, "%s: process %ld on %s has been writing here for %.0f s",
                   s->folder, pid, host, age > 0 ? age : 0.0);
}

static tl_status take_lock(tl_store *s)
{
    char path[4096], text[300], host[200] = "?";
    if (snprintf(path, sizeof path, "%s/lock", s->folder) >= (int)sizeof path)
        return tl_fail(s->ctx, TL_EINVAL, "%s: too long a name", s->folder);
    s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (s->lock < 0) return tl_fail_errno(s->ctx, "open", path);
    if (flock(s->lock, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? locked(s, s->lock) : tl_fail_errno(s->ctx, "lock", path);
    (void)gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text, "%ld %s\n", (long)getpid(), host);
    /* written before it is cut, so that whoever reads meanwhile finds some holder */
    if (pwrite(s->lock, text, (size_t)n, 0) != n || ftruncate(s->lock, n) != 0)
        return tl_fail_errno(s->ctx, "write", path);
    return TL_OK;
}

/* ---- Schema ---------------------------------------------------------------------------------- */

/* A copy beside the store before it is changed: runs.db.v1 for schema 1. */
static tl_status backup(tl_store *s, int version)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s.v%d", s->path, version) >= (int)sizeof path)
        return tl_fail(s->ctx, TL_EINVAL, "%s: too long a name", s->path);
    if (unlink(path) != 0 && errno != ENOENT) return tl_fail_errno(s->ctx, "remove", path);
    return tl_store_exec(s, "VACUUM INTO ?", 1,
                         &(tl_value){.kind = 's', .s = path, .bytes = strlen(path)}, NULL, NULL);
}

/* Runs the sections of schema.sql after version, all or none. */
static tl_status upgrade(tl_store *s, int version)
{
    char mark[32], stamp[96];
    (void)snprintf(mark, sizeof mark, "-- version %d\n", version + 1);
    (void)snprintf(stamp, sizeof stamp, "PRAGMA application_id = %d; PRAGMA user_version = %d;",
                   APPLICATION, VERSION);
    const char *rest = strstr(schema, mark);
    if (!rest) return tl_fail(s->ctx, TL_EINVAL, "schema.sql has no version %d", version + 1);
    tl_status st = script(s, "BEGIN IMMEDIATE");
    if (st != TL_OK) return st;
    st = script(s, rest);
    if (st == TL_OK) st = script(s, stamp);
    if (st == TL_OK) st = script(s, "COMMIT");
    if (st != TL_OK) (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL); /* st tells why */
    return st;
}

/* Whether this is our file, and of which schema; 0: an empty file. */
static tl_status version_of(tl_store *s, int *out_version)
{
    int64_t application, version, objects;
    tl_status st = number(s, "PRAGMA application_id", &application);
    if (st == TL_OK) st = number(s, "PRAGMA user_version", &version);
    if (st == TL_OK) st = number(s, "SELECT count(*) FROM sqlite_schema", &objects);
    if (st != TL_OK) return st;
    if (!application && !version && !objects) {
        *out_version = 0;
        return TL_OK;
    }
    if (application != APPLICATION || version < 1)
        return tl_fail(s->ctx, TL_ECORRUPT, "%s: is not a store of runs", s->path);
    if (version > VERSION)
        return tl_fail(s->ctx, TL_ECORRUPT,
                       "%s: its schema %lld is newer than %d, the newest known here", s->path,
                       (long long)version, VERSION);
    *out_version = (int)version;
    return TL_OK;
}

/* ---- Opening --------------------------------------------------------------------------------- */

static tl_status connect(tl_store *s, const char *name, int flags)
{
    int rc = sqlite3_open_v2(name, &s->db, flags | SQLITE_OPEN_EXRESCODE, NULL);
    if (!s->db) return tl_fail(s->ctx, TL_ENOMEM, "out of memory");
    if (rc != SQLITE_OK) return fail(s, "cannot open");
    (void)sqlite3_busy_timeout(s->db, 5000);
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    return script(s, "PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON;");
}

static tl_status open_writer(tl_store *s)
{
    int version;
    tl_status st = tl_file_folders(s->ctx, s->folder);
    if (st == TL_OK) st = take_lock(s);
    if (st == TL_OK) st = connect(s, s->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    if (st == TL_OK) st = version_of(s, &version);
    if (st == TL_OK) st = script(s, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;");
    if (st == TL_OK && version > 0 && version < VERSION) st = backup(s, version);
    if (st == TL_OK && version < VERSION) st = upgrade(s, version);
    return st;
}

/* path as a URI of a file that nobody changes. */
static tl_status immutable(tl_store *s, char **out_uri)
{
    char *uri = malloc(3 * strlen(s->path) + 32), *p = uri;
    if (!uri) return tl_fail(s->ctx, TL_ENOMEM, "out of memory");
    p += sprintf(p, "file:");
    for (const char *c = s->path; *c; c++) p += sprintf(p, strchr("?#%", *c) ? "%%%02x" : "%c", *c);
    (void)sprintf(p, "?immutable=1");
    *out_uri = uri;
    return TL_OK;
}

/* A reader of a WAL file needs to make files beside it. Where it may not, and there is no WAL left
** to read, nobody writes either. */
static tl_status open_unwritable(tl_store *s)
{
    char wal[4096], *uri = NULL;
    struct stat file;
    if (snprintf(wal, sizeof wal, "%s-wal", s->path) >= (int)sizeof wal ||
        (stat(wal, &file) == 0 && file.st_size > 0) || access(s->folder, W_OK) == 0)
        return TL_EIO; /* the first failure's message stands */
    tl_status st = immutable(s, &uri);
    if (st != TL_OK) return st;
    (void)sqlite3_close_v2(s->db);
    s->db = NULL;
    st = connect(s, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
    free(uri);
    return st;
}

static tl_status open_reader(tl_store *s)
{
    int version;
    struct stat file;
    if (stat(s->path, &file) != 0) return tl_fail_errno(s->ctx, "open", s->path);
    tl_status st = connect(s, s->path, SQLITE_OPEN_READONLY);
    if (st == TL_OK) st = version_of(s, &version);
    if (st == TL_EIO || st == TL_EINVAL) {
        st = open_unwritable(s);
        if (st == TL_OK) st = version_of(s, &version);
    }
    if (st == TL_OK && version < VERSION)
        return tl_fail(s->ctx, version ? TL_ECORRUPT : TL_ENOTFOUND,
                       version ? "%s: its schema %d is old: the next run there brings it to %d"
                               : "%s: is empty (schema %d of %d)",
                       s->path, version, VERSION);
    return st;
}

tl_status tl_store_open(tl_ctx *ctx, const char *folder, tl_store_mode mode, tl_store **out_store)
{
    tl_store *s = calloc(1, sizeof *s);
    if (!s) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    s->ctx = ctx;
    s->lock = -1;
    s->folder = strdup(folder);
    s->path = malloc(strlen(folder) + 16);
    tl_status st = TL_OK;
    if (!s->folder || !s->path) {
        st = tl_fail(ctx, TL_ENOMEM, "out of memory");
    } else {
        (void)sprintf(s->path, "%s/runs.db", folder);
        st = mode == TL_STORE_WRITE ? open_writer(s) : open_reader(s);
    }
    if (st == TL_OK) {
        *out_store = s;
    } else {
        tl_store_close(s);
    }
    return st;
}

void tl_store_close(tl_store *s)
{
    if (!s) return;
    (void)sqlite3_close_v2(s->db); /* rolls back; the first to open later repeats what is left */
    if (s->lock >= 0) (void)close(s->lock);
    free(s->folder);
    free(s->path);
    free(s);
}

/* ---- Statements ------------------------------------------------------------------------------ */

static int bind(sqlite3_stmt *stmt, int i, const tl_value *v)
{
    switch (v->kind) {
    case 'n':
        return sqlite3_bind_null(stmt, i);
    case 'i':
        return sqlite3_bind_int64(stmt, i, v->i);
    case 'f':
        return sqlite3_bind_double(stmt, i, v->f);
    case 's':
        return sqlite3_bind_text64(stmt, i, v->s ? v->s : "", v->s ? v->bytes : 0, SQLITE_STATIC,
                                   SQLITE_UTF8);
    default:
        return SQLITE_MISUSE;
    }
}

static tl_status prepare(tl_store *s, const char *sql, int count, const tl_value *values,
                         sqlite3_stmt **out)
{
    const char *tail;
    sqlite3_stmt *stmt = NULL, *more = NULL;
    if (sqlite3_prepare_v2(s->db, sql, -1, &stmt, &tail) != SQLITE_OK) return fail(s, sql);
    tl_status st = TL_OK;
    if (sqlite3_prepare_v2(s->db, tail, -1, &more, NULL) != SQLITE_OK || more || !stmt)
        st = tl_fail(s->ctx, TL_EINVAL, "%s: not one statement: %s", s->path, sql);
    (void)sqlite3_finalize(more);
    int want = sqlite3_bind_parameter_count(stmt);
    if (st == TL_OK && want != count)
        st = tl_fail(s->ctx, TL_EINVAL, "%s: %d values for the %d parameters of: %s", s->path,
                     count, want, sql);
    for (int i = 0; st == TL_OK && i < count; i++)
        if (bind(stmt, i + 1, &values[i]) != SQLITE_OK)
            st = tl_fail(s->ctx, TL_EINVAL, "%s: value %d cannot be bound in: %s", s->path, i + 1,
                         sql);
    if (st == TL_OK) {
        *out = stmt;
    } else {
        (void)sqlite3_finalize(stmt);
    }
    return st;
}

/* A text or a blob of nothing may come as NULL. */
static tl_value text(const void *s, int bytes)
{
    return (tl_value){.kind = 's', .s = s ? s : "", .bytes = (size_t)bytes};
}

static tl_value column(sqlite3_stmt *stmt, int i)
{
    const void *s;
    switch (sqlite3_column_type(stmt, i)) {
    case SQLITE_INTEGER:
        return (tl_value){.kind = 'i', .i = sqlite3_column_int64(stmt, i)};
    case SQLITE_FLOAT:
        return (tl_value){.kind = 'f', .f = sqlite3_column_double(stmt, i)};
    case SQLITE_NULL:
        return (tl_value){.kind = 'n'};
    case SQLITE_TEXT:
        s = sqlite3_column_text(stmt, i);
        break;
    default:
        s = sqlite3_column_blob(stmt, i);
        break;
    }
    return text(s, sqlite3_column_bytes(stmt, i)); /* asked for after the text, as SQLite wants */
}

/* Hands every row to row. *out_rc is SQLite's last answer. */
static tl_status rows(tl_store *s, sqlite3_stmt *stmt, tl_row row, void *user, int *out_rc)
{
    int columns = sqlite3_column_count(stmt);
    const char **names = calloc((size_t)columns + 1, sizeof *names);
    tl_value *values = calloc((size_t)columns + 1, sizeof *values);
    tl_status st = names && values ? TL_OK : tl_fail(s->ctx, TL_ENOMEM, "out of memory");
    while (st == TL_OK && (*out_rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        if (!row) continue;
        for (int i = 0; i < columns; i++) {
            names[i] = sqlite3_column_name(stmt, i);
            values[i] = column(stmt, i);
        }
        if (row(user, columns, names, values)) break;
    }
    free(names);
    free(values);
    return st;
}

tl_status tl_store_exec(tl_store *s, const char *sql, int count, const tl_value *values, tl_row row,
                        void *user)
{
    sqlite3_stmt *stmt = NULL;
    int rc = SQLITE_DONE;
    tl_status st = prepare(s, sql, count, values, &stmt);
    if (st != TL_OK) return st;
    st = rows(s, stmt, row, user, &rc);
    if (st == TL_OK && rc != SQLITE_DONE && rc != SQLITE_ROW) st = fail(s, sql);
    (void)sqlite3_finalize(stmt); /* repeats the error of the last step */
    return st;
}

int64_t tl_store_last_id(const tl_store *s)
{
    return sqlite3_last_insert_rowid(s->db);
}

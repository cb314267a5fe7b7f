/* store_exec.c - runs SQL statements with parameters, caches prepared ones, and translates
** SQLite's errors. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "store/store.h"

/* ---- Errors ---------------------------------------------------------------------------------- */

/* Returns EFBIG or EDQUOT if the last write to the database or its journal hit the limit of a
** file's size or a quota, ENOSPC if one to the shared memory beside them found a full disk, all of
** which SQLite reports as I/O errors; else 0. For shared memory it does not report the cause: a
** limit of the file size, where there is one, is taken for it. */
static int full_errno(sqlite3 *db)
{
    struct rlimit most;
    if (sqlite3_extended_errcode(db) == SQLITE_IOERR_SHMSIZE)
        return !getrlimit(RLIMIT_FSIZE, &most) && most.rlim_cur != RLIM_INFINITY ? EFBIG : ENOSPC;
    sqlite3_file *journal = NULL;
    int error[2] = {0, 0};
    (void)sqlite3_file_control(db, "main", SQLITE_FCNTL_LAST_ERRNO, &error[0]);
    (void)sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &journal);
    if (journal && journal->pMethods)
        (void)journal->pMethods->xFileControl(journal, SQLITE_FCNTL_LAST_ERRNO, &error[1]);
    for (int i = 0; i < 2; i++)
        if (error[i] == EFBIG || error[i] == EDQUOT) return error[i];
    return 0;
}

static const struct {
    int code;
    tl_status st;
} codes[] = {/* all other codes are TL_EIO */
             {SQLITE_NOMEM, TL_ENOMEM},     {SQLITE_FULL, TL_ENOSPC},
             {SQLITE_CORRUPT, TL_ECORRUPT}, {SQLITE_NOTADB, TL_ECORRUPT},
             {SQLITE_BUSY, TL_ELOCKED},     {SQLITE_LOCKED, TL_ELOCKED},
             {SQLITE_ERROR, TL_EINVAL},     {SQLITE_RANGE, TL_EINVAL},
             {SQLITE_TOOBIG, TL_EINVAL},    {SQLITE_CONSTRAINT, TL_EINVAL},
             {SQLITE_READONLY, TL_EINVAL},  {SQLITE_INTERRUPT, TL_EINVAL}};

static tl_status status_of(const tl_store *s)
{
    int code = sqlite3_errcode(s->db) & 0xff; /* the higher bits say where */
    /* SQLite reports a file that it cannot open for writing as read-only. */
    if (code == SQLITE_READONLY && s->lock >= 0) return TL_EIO;
    /* All statements but a user's name only what every store of this version has. */
    if (s->mode != TL_STORE_ASK && strncmp(sqlite3_errmsg(s->db), "no such ", 8) == 0)
        return TL_ECORRUPT;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].code == code) return codes[i].st;
    return code == SQLITE_IOERR && full_errno(s->db) ? TL_ENOSPC : TL_EIO;
}

tl_status tl_store_fail(const tl_store *s, const char *what)
{
    tl_status   st = status_of(s);
    const char *why = st == TL_ENOSPC ? tl_status_text(st) : sqlite3_errmsg(s->db);
    if (st == TL_ENOSPC && full_errno(s->db) == EFBIG)
        why = "file too large: the file size limit was reached";
    return tl_fail(s->ctx, st, "%s: %s: %s", s->path, what, why);
}

tl_status tl_store_script(tl_store *s, const char *sql)
{
    s->ticks = 0;
    if (sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK) return TL_OK;
    return tl_store_fail(s, "cannot set up");
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

/* Takes the cached statement of that text out of the cache; NULL: there is none. A statement
** that is run again while it is running thus gets a second copy. */
static sqlite3_stmt *cache_take(tl_store *s, const char *sql)
{
    for (int i = 0; i < STORE_CACHED && s->cached[i]; i++) {
        sqlite3_stmt *stmt = s->cached[i];
        if (strcmp(sqlite3_sql(stmt), sql) != 0) continue;
        memmove(s->cached + i, s->cached + i + 1, (size_t)(STORE_CACHED - 1 - i) * sizeof stmt);
        s->cached[STORE_CACHED - 1] = NULL;
        return stmt;
    }
    return NULL;
}

static void cache_put(tl_store *s, sqlite3_stmt *stmt)
{
    (void)sqlite3_reset(stmt); /* repeats the error of the last step */
    (void)sqlite3_clear_bindings(stmt);
    (void)sqlite3_finalize(s->cached[STORE_CACHED - 1]);
    memmove(s->cached + 1, s->cached, (STORE_CACHED - 1) * sizeof stmt);
    s->cached[0] = stmt;
}

static tl_status prepare(tl_store *s, const char *sql, sqlite3_stmt **out)
{
    const char *tail;
    sqlite3_stmt *stmt = cache_take(s, sql), *more = NULL;
    if (!stmt) {
        if (sqlite3_prepare_v2(s->db, sql, -1, &stmt, &tail) != SQLITE_OK)
            return tl_store_fail(s, sql);
        int rc = sqlite3_prepare_v2(s->db, tail, -1, &more, NULL);
        int several = rc != SQLITE_OK || more;
        (void)sqlite3_finalize(more);
        if (several || !stmt) {
            (void)sqlite3_finalize(stmt);
            return tl_fail(s->ctx, TL_EINVAL, "%s: not one statement: %s", s->path, sql);
        }
    }
    *out = stmt;
    return TL_OK;
}

static tl_status bind_all(tl_store *s, sqlite3_stmt *stmt, int count, const tl_value *values)
{
    int expected = sqlite3_bind_parameter_count(stmt);
    if (expected != count)
        return tl_fail(s->ctx, TL_EINVAL, "%s: %d values for the %d parameters of: %s", s->path,
                       count, expected, sqlite3_sql(stmt));
    for (int i = 0; i < count; i++)
        if (bind(stmt, i + 1, &values[i]) != SQLITE_OK)
            return tl_fail(s->ctx, TL_EINVAL, "%s: value %d cannot be bound in: %s", s->path, i + 1,
                           sqlite3_sql(stmt));
    return TL_OK;
}

/* SQLite may return NULL for an empty text or blob. */
static tl_value text_value(const void *s, int bytes)
{
    return (tl_value){.kind = 's', .s = s ? s : "", .bytes = (size_t)bytes};
}

static tl_value column_value(sqlite3_stmt *stmt, int i)
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
    /* SQLite requires this order: the text first, then its length */
    return text_value(s, sqlite3_column_bytes(stmt, i));
}

/* Refuses a value of another type than the column declares, which SQLite allows in foreign or
** damaged files. */
static tl_status check_types(const tl_store *s, sqlite3_stmt *stmt, int columns,
                             const char *const *names, const tl_value *values, const char *types)
{
    const char *of = "?";
    for (int i = 0; i < columns; i++)
        if (values[i].kind == 's' && (!strcmp(names[i], "id") || !strcmp(names[i], "trial")))
            of = values[i].s;
    for (int i = 0; i < columns; i++) {
        int type = sqlite3_column_type(stmt, i), text = type == SQLITE_TEXT;
        if (!types[i] || type == SQLITE_NULL || (type != SQLITE_BLOB && text == (types[i] == 't')))
            continue;
        return tl_fail(s->ctx, TL_ECORRUPT, "%s: the row of %.64s has no %s as its '%s'", s->path,
                       of, types[i] == 't' ? "text" : "number", names[i]);
    }
    return TL_OK;
}

/* Finds the declared types of the result columns that are columns of a table: 't' text, 'n'
** number, 0 none. */
static void column_types(sqlite3_stmt *stmt, int columns, char *types)
{
    for (int i = 0; i < columns; i++) {
        const char *type = sqlite3_column_decltype(stmt, i);
        types[i] = !type ? 0 : !strcmp(type, "TEXT") ? 't' : *type == 'I' || *type == 'R' ? 'n' : 0;
    }
}

static tl_status fail_endless(const tl_store *s, sqlite3_stmt *stmt)
{
    return tl_fail(s->ctx, TL_ECORRUPT,
                   "%s: is damaged: a statement returns more than the file can hold: %s",
                   s->path, sqlite3_sql(stmt));
}

/* Calls row for every row. *out_rc is SQLite's last result code. */
static tl_status step_rows(tl_store *s, sqlite3_stmt *stmt, tl_row row, void *user, int *out_rc)
{
    int columns = sqlite3_column_count(stmt);
    const char **names = calloc((size_t)columns + 1, sizeof *names);
    tl_value *values = calloc((size_t)columns + 1, sizeof *values);
    char *types = calloc((size_t)columns + 1, 1);
    tl_status st = names && values && types ? TL_OK : tl_fail(s->ctx, TL_ENOMEM, "out of memory");
    if (st == TL_OK && s->mode != TL_STORE_ASK) column_types(stmt, columns, types);
    for (int64_t count = 1; st == TL_OK && (*out_rc = sqlite3_step(stmt)) == SQLITE_ROW; count++) {
        if (tl_store_too_many_rows(s, count)) st = fail_endless(s, stmt);
        if (!row || st != TL_OK) continue;
        for (int i = 0; i < columns; i++) {
            names[i] = sqlite3_column_name(stmt, i);
            values[i] = column_value(stmt, i);
        }
        st = check_types(s, stmt, columns, names, values, types);
        if (st != TL_OK || row(user, columns, names, values)) break;
    }
    free(names);
    free(values);
    free(types);
    return st;
}

tl_status tl_store_exec(tl_store *s, const char *sql, int count, const tl_value *values, tl_row row,
                        void *user)
{
    sqlite3_stmt *stmt = NULL;
    int rc = SQLITE_DONE;
    s->ticks = 0;
    s->endless = 0;
    tl_status st = prepare(s, sql, &stmt);
    if (st != TL_OK) return st;
    st = bind_all(s, stmt, count, values);
    if (st == TL_OK && s->lock >= 0 && !sqlite3_stmt_readonly(stmt))
        st = tl_store_lock(s, STORE_WRITE_SECONDS);
    if (st == TL_OK) st = step_rows(s, stmt, row, user, &rc);
    if (st == TL_OK && rc == SQLITE_INTERRUPT && s->endless) st = fail_endless(s, stmt);
    if (st == TL_OK && rc != SQLITE_DONE && rc != SQLITE_ROW) st = tl_store_fail(s, sql);
    cache_put(s, stmt);
    tl_store_unlock(s);
    return st;
}

static int take_number(void *user, int columns, const char *const *names, const tl_value *values)
{
    (void)columns, (void)names;
    *(int64_t *)user = values[0].i;
    return 0;
}

tl_status tl_store_number(tl_store *s, const char *sql, int64_t *out)
{
    return tl_store_exec(s, sql, 0, NULL, take_number, out);
}

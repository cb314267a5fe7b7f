/* store.c - opens and closes the store of runs, one SQLite file with one writer at a time.
**
** A writer holds FOLDER/lock while a transaction is open. That avoids a bug of SQLite before
** 3.51.3, in which two connections checkpoint the WAL at once: readers never checkpoint. SQLite's
** write-ahead log is for the processes of one machine, so where others may use the folder, each
** machine has a file of its own (place.c). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "store/lock.h"
#include "store/store.h"
#include "store/versions.h"

const char *tl_sqlite_version(void)
{
    return sqlite3_libversion();
}

/* ---- Opening --------------------------------------------------------------------------------- */

static tl_status store_connect(tl_store *s, const char *name, int flags)
{
    flags |= SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_NOMUTEX; /* only one thread uses a context */
    int rc = sqlite3_open_v2(name, &s->db, flags, NULL);
    if (!s->db) return tl_fail(s->ctx, TL_ENOMEM, "out of memory");
    if (rc != SQLITE_OK) return tl_store_fail(s, "cannot open");
    (void)sqlite3_busy_timeout(s->db, 5000);
    /* The schema may be another's. No trigger in it runs, and where we only read, its views reach
    ** nothing but its tables. Writers trust the schema, because SQLite 3.40 counts json_valid,
    ** which our CHECKs call, as unsafe. We register no functions, so this opens nothing else. */
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, s->mode == TL_STORE_WRITE, NULL);
    tl_store_bound(s);
    return tl_store_script(s,
                           "PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON;"
                           /* kB: enough for the index of the ids of 100,000 trials */
                           "PRAGMA cache_size = -16000");
}

/* Closes the database; an open transaction is rolled back. The next connection recovers the WAL. */
static void store_disconnect(tl_store *s)
{
    for (int i = 0; i < STORE_CACHED; i++) {
        (void)sqlite3_finalize(s->cached[i]);
        s->cached[i] = NULL;
    }
    (void)sqlite3_close_v2(s->db);
    s->db = NULL;
}

/* Sets s->place and s->path. */
static tl_status locate(tl_store *s)
{
    char place[PATH_MAX];
    tl_status st = tl_store_place(s->ctx, s->folder, place, sizeof place);
    if (st != TL_OK) return st;
    s->place = strdup(place);
    s->path = malloc(strlen(place) + 16);
    if (!s->place || !s->path) return tl_fail(s->ctx, TL_ENOMEM, "out of memory");
    /* SQLite would take a name that begins with "file:" for a URI. */
    (void)sprintf(s->path, "%s%s/runs.db", strncmp(place, "file:", 5) ? "" : "./", place);
    return TL_OK;
}

static tl_status open_writer(tl_store *s)
{
    int version;
    int64_t objects; /* reading this opens the write-ahead log */
    tl_status st = tl_file_folders(s->ctx, s->folder);
    if (st == TL_OK) st = locate(s); /* the folder exists now */
    if (st == TL_OK) st = tl_file_folders(s->ctx, s->place);
    if (st == TL_OK) st = tl_store_check_files(s);
    if (st == TL_OK) st = tl_lock_open(s->ctx, s->folder, &s->lock);
    if (st == TL_OK) st = tl_lock(s->ctx, s->folder, s->lock, STORE_OPEN_SECONDS, NULL, NULL);
    if (st != TL_OK) return st;
    s->held = s->opening = 1;
    if (st == TL_OK) st = store_connect(s, s->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    if (st == TL_OK) st = tl_store_version(s, &version);
    /* FULL: a commit is on the disk when it returns */
    if (st == TL_OK)
        st = tl_store_script(s, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;");
    if (st == TL_OK && version > 0 && version < STORE_VERSION) st = tl_store_backup(s, version);
    if (st == TL_OK && version < STORE_VERSION) st = tl_store_upgrade(s, version);
    if (st == TL_OK) st = tl_store_number(s, "SELECT count(*) FROM sqlite_schema", &objects);
    if (st == TL_OK) st = tl_store_identify_log(s, &s->wal);
    s->opening = 0;
    tl_store_unlock(s);
    return st;
}

/* Makes the URI of s->path for a file that no process changes, to be freed. */
static tl_status immutable_uri(tl_store *s, char **out_uri)
{
    char *uri = malloc(3 * strlen(s->path) + 32), *p = uri;
    if (!uri) return tl_fail(s->ctx, TL_ENOMEM, "out of memory");
    p += sprintf(p, "file:");
    for (const char *c = s->path; *c; c++) p += sprintf(p, strchr("?#%", *c) ? "%%%02x" : "%c", *c);
    (void)sprintf(p, "?immutable=1");
    *out_uri = uri;
    return TL_OK;
}

/* SQLite needs to create files beside a WAL database even to read it. Where the folder is
** read-only and no WAL is left to read, no process can be writing, so the file is opened as
** immutable. */
static tl_status open_unwritable(tl_store *s)
{
    char wal[4096], *uri = NULL;
    struct stat file;
    if (snprintf(wal, sizeof wal, "%s-wal", s->path) >= (int)sizeof wal ||
        (stat(wal, &file) == 0 && file.st_size > 0) || access(s->place, W_OK) == 0)
        return TL_EIO; /* the message of the first failure stands */
    tl_status st = immutable_uri(s, &uri);
    if (st != TL_OK) return st;
    store_disconnect(s);
    st = store_connect(s, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
    free(uri);
    return st;
}

static tl_status open_reader(tl_store *s)
{
    int version;
    struct stat file;
    tl_status st = locate(s);
    if (st != TL_OK) return st;
    if (stat(s->path, &file) != 0) return tl_fail_errno(s->ctx, "open", s->path);
    st = tl_store_check_files(s);
    if (st != TL_OK) return st;
    st = store_connect(s, s->path, SQLITE_OPEN_READONLY);
    if (st == TL_OK) st = tl_store_version(s, &version);
    if (st == TL_EIO || st == TL_EINVAL) {
        st = open_unwritable(s);
        if (st == TL_OK) st = tl_store_version(s, &version);
    }
    if (st == TL_OK && version < STORE_VERSION)
        return tl_fail(s->ctx, version ? TL_ECORRUPT : TL_ENOTFOUND,
                       version ? "%s: its schema version %d is old; the next run there "
                                 "upgrades it to %d"
                               : "%s: is empty (schema %d of %d)",
                       s->path, version, STORE_VERSION);
    return st;
}

tl_status tl_store_open(tl_ctx *ctx, const char *folder, tl_store_mode mode, tl_store **out_store)
{
    tl_store *s = calloc(1, sizeof *s);
    if (!s) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    s->ctx = ctx;
    ctx->refs++;
    s->mode = mode;
    s->lock = -1;
    s->folder = strdup(folder);
    tl_status st = !s->folder               ? tl_fail(ctx, TL_ENOMEM, "out of memory")
                   : mode == TL_STORE_WRITE ? open_writer(s)
                                            : open_reader(s);
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
    /* The last connection checkpoints when it is closed, which is a write. */
    if (s->db && s->wal.st_ino && tl_store_lock(s, STORE_OPEN_SECONDS) != TL_OK)
        (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    store_disconnect(s);
    if (s->lock >= 0) (void)close(s->lock);
    free(s->folder);
    free(s->place);
    free(s->path);
    tl_ctx_unref(s->ctx);
    free(s);
}

void tl_store_watch(tl_store *s, int (*stopped)(void *user), void *user)
{
    s->stopped = stopped;
    s->user = user;
}

/* store_schema.c - checks a results folder before it is opened: its files must not lead elsewhere,
** and its database must say that it is ours. What else a foreign schema holds is left to SQLite
** (store_connect) and to the bounds of statements. Also upgrades older schemas. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "store/store.h"
#include "schema.h" /* generated from schema.sql */

#define APPLICATION 0x546f6550 /* as file(1) shows it */

/* ---- Files ----------------------------------------------------------------------------------- */

/* SQLite deletes the file that the end of a rollback journal names, its "super-journal",
** wherever that is. We never create one: it belongs to transactions over several databases. */
static tl_status check_journal(const tl_store *s, const char *path)
{
    static const unsigned char magic[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
    unsigned char last[8];
    struct stat file;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? TL_OK : tl_fail_errno(s->ctx, "open", path);
    int named = fstat(fd, &file) == 0 && file.st_size >= 8 &&
                pread(fd, last, sizeof last, file.st_size - 8) == 8 &&
                memcmp(last, magic, sizeof magic) == 0;
    (void)close(fd);
    return named ? tl_fail(s->ctx, TL_ECORRUPT,
                           "%s: was not made by this program: it makes SQLite delete another file",
                           path)
                 : TL_OK;
}

/* SQLite bounds the length of a name from the root on, symbolic links resolved. Beyond it, it only
** reports that it cannot open the file. */
static tl_status check_length(tl_ctx *ctx, const char *folder)
{
    size_t most = (size_t)sqlite3_vfs_find(NULL)->mxPathname - strlen("/runs.db-journal");
    char *real = realpath(folder, NULL); /* NULL: the folder does not exist yet */
    char *here = real || folder[0] == '/' ? NULL : getcwd(NULL, 0);
    size_t bytes = strlen(real ? real : folder) + (here ? strlen(here) + 1 : 0);
    free(real);
    free(here);
    if (bytes <= most) return TL_OK;
    return tl_fail(ctx, TL_EINVAL,
                   "results folder %.60s...: its absolute path has %zu bytes, and SQLite takes at "
                   "most %zu: give a shorter one",
                   folder, bytes, most);
}

tl_status tl_store_check_folder(tl_ctx *ctx, const char *folder)
{
    static const char *const names[] = {"runs.db", "runs.db-wal", "runs.db-shm", "runs.db-journal",
                                        "lock",    "runs",        NULL};
    char path[4096];
    struct stat file;
    tl_status st = check_length(ctx, folder);
    for (int i = 0; st == TL_OK && names[i]; i++) {
        if (snprintf(path, sizeof path, "%s/%s", folder, names[i]) >= (int)sizeof path)
            return tl_fail(ctx, TL_EINVAL, "%s: the name is too long", folder);
        if (lstat(path, &file) != 0) continue; /* missing, or opening it will report why */
        if (S_ISLNK(file.st_mode))
            return tl_fail(ctx, TL_ECORRUPT,
                           "%s: is a symbolic link, which a results folder does not hold (the "
                           "folder itself may be one)",
                           path);
        int runs = strcmp(names[i], "runs") == 0;
        if (runs ? !S_ISDIR(file.st_mode) : !S_ISREG(file.st_mode))
            return tl_fail(ctx, TL_ECORRUPT, "%s: must be a %s", path,
                           runs ? "folder" : "regular file");
    }
    return st;
}

tl_status tl_store_check_files(const tl_store *s)
{
    char path[4096];
    tl_status st = tl_store_check_folder(s->ctx, s->folder); /* also checks that the paths fit */
    if (st == TL_OK) st = tl_store_check_folder(s->ctx, s->place);
    (void)snprintf(path, sizeof path, "%s/runs.db-journal", s->place);
    return st == TL_OK ? check_journal(s, path) : st;
}

/* ---- Versions -------------------------------------------------------------------------------- */

/* Returns where the section after version begins in schema.sql; NULL: there is none. */
static const char *section_after(int version)
{
    char mark[32];
    (void)snprintf(mark, sizeof mark, "-- version %d\n", version + 1);
    return strstr(schema, mark);
}

tl_status tl_store_backup(tl_store *s, int version)
{
    char path[4096], temp[4096 + 4];
    if (snprintf(path, sizeof path, "%s.v%d", s->path, version) >= (int)sizeof path)
        return tl_fail(s->ctx, TL_EINVAL, "%s: the name is too long", s->path);
    /* An earlier backup stays until the new one is complete and on the disk. */
    (void)snprintf(temp, sizeof temp, "%s.tmp", path);
    if (unlink(temp) != 0 && errno != ENOENT) return tl_fail_errno(s->ctx, "remove", temp);
    tl_value name = {.kind = 's', .s = temp, .bytes = strlen(temp)};
    tl_status st = tl_store_exec(s, "VACUUM INTO ?", 1, &name, NULL, NULL);
    if (st == TL_OK) st = tl_file_rename(s->ctx, temp, path);
    if (st != TL_OK) (void)unlink(temp); /* st already holds the failure */
    return st;
}

tl_status tl_store_upgrade(tl_store *s, int version)
{
    char stamp[96];
    const char *rest = section_after(version);
    (void)snprintf(stamp, sizeof stamp, "PRAGMA application_id = %d; PRAGMA user_version = %d;",
                   APPLICATION, STORE_VERSION);
    if (!rest) return tl_fail(s->ctx, TL_EINVAL, "schema.sql has no version %d", version + 1);
    tl_status st = tl_store_script(s, "BEGIN IMMEDIATE");
    if (st != TL_OK) return st;
    st = tl_store_script(s, rest);
    if (st == TL_OK) st = tl_store_script(s, stamp);
    if (st == TL_OK) st = tl_store_script(s, "COMMIT");
    if (st != TL_OK) (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL); /* st has the cause */
    return st;
}

tl_status tl_store_version(tl_store *s, int *out_version)
{
    int64_t application, version, objects;
    tl_status st = tl_store_number(s, "PRAGMA application_id", &application);
    if (st == TL_OK) st = tl_store_number(s, "PRAGMA user_version", &version);
    if (st == TL_OK) st = tl_store_number(s, "SELECT count(*) FROM sqlite_schema", &objects);
    if (st != TL_OK) return st;
    if (!application && !version && !objects) {
        *out_version = 0;
        return TL_OK;
    }
    if (application != APPLICATION || version < 1)
        return tl_fail(s->ctx, TL_ECORRUPT, "%s: is not a store of runs", s->path);
    if (version > STORE_VERSION)
        return tl_fail(s->ctx, TL_ECORRUPT,
                       "%s: its schema version %lld is newer than %d, the newest that this "
                       "program knows",
                       s->path, (long long)version, STORE_VERSION);
    *out_version = (int)version;
    return TL_OK;
}

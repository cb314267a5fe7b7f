/* store.h - declares what the files of the store share: the struct behind tl_store, and the
** checks made when a store is opened (store_schema.c). */
#ifndef TL_STORE_H
#define TL_STORE_H

#include <sys/stat.h>

#include <sqlite3.h>

#include "base/context.h"
#include "toeplab-lab.h"

#define STORE_VERSION 7 /* the last section of schema.sql */
#define STORE_CACHED    8

struct tl_store {
    tl_ctx *ctx;
    sqlite3 *db;
    char *folder;                   /* the results folder */
    char *place, *path;             /* the folder of the database (tl_store_place), and its path */
    int lock;                       /* descriptor of FOLDER/lock; -1: open for reading */
    int held;                       /* whether this store holds the lock */
    int opening;                    /* whether it keeps the lock from statement to statement */
    struct stat wal;                /* the write-ahead log as it was opened */
    /* cached prepared statements that are not running, last used first */
    sqlite3_stmt *cached[STORE_CACHED];
    tl_store_mode mode;
    int64_t ticks;        /* how often SQLite has called the progress handler in this statement */
    /* the handler stopped the statement: the file is too small to explain its length */
    int endless;
    int (*stopped)(void *user); /* whether the program is to end; NULL: never */
    void *user;                 /* for stopped */
};

/* Fails with the message and the status of SQLite's last error. */
tl_status tl_store_fail(const tl_store *s, const char *what);
/* Runs several statements without parameters. */
tl_status tl_store_script(tl_store *s, const char *sql);
tl_status tl_store_number(tl_store *s, const char *sql, int64_t *out);

/* Fills *out for SQLite's write-ahead log. */
tl_status tl_store_identify_log(const tl_store *s, struct stat *out);
/* Takes the lock for a write, waiting up to `seconds` for another process, and checks that the
** write will reach the store. */
tl_status tl_store_lock(tl_store *s, double seconds);
#define STORE_OPEN_SECONDS  5
#define STORE_WRITE_SECONDS 60
/* Gives the lock back, unless a transaction is open. */
void tl_store_unlock(tl_store *s);

/* Runs tl_store_check_folder, and checks that the rollback journal names no file for SQLite to
** delete. */
tl_status tl_store_check_files(const tl_store *s);
/* Returns the version of the schema, by what the header of the database says; 0: an empty file.
** TL_ECORRUPT: it is not a store, or is newer than this program. */
tl_status tl_store_version(tl_store *s, int *out_version);
/* Copies the database before an upgrade: to runs.db.v1 for version 1. */
tl_status tl_store_backup(tl_store *s, int version);
/* Runs the sections of schema.sql after version in one transaction. */
tl_status tl_store_upgrade(tl_store *s, int version);

/* ---- Bounds (store_bounds.c) ---- */
/* Installs a progress handler that stops endless statements: a statement may take no more steps,
** and return no more rows, than the size of the file explains. In mode TL_STORE_ASK the statements
** are a user's own, and only a signal stops them. */
void tl_store_bound(tl_store *s);
/* Whether a statement returns more rows than the size of the file explains. */
int tl_store_too_many_rows(const tl_store *s, int64_t rows);

#endif

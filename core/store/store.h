/* store.h - what the files of the store share: the struct behind tl_store, and what is done when a
** store is opened (store_schema.c). */
#ifndef TL_STORE_H
#define TL_STORE_H

#include <sys/stat.h>

#include <sqlite3.h>

#include "base/context.h"

#define STORE_VERSION 6 /* the last section of schema.sql */
#define STORE_KEPT    8

struct tl_store {
    tl_ctx *ctx;
    sqlite3 *db;
    char *folder, *path;            /* path: of the database */
    int lock;                       /* descriptor of FOLDER/lock; -1: reading */
    struct stat wal;                /* of the write-ahead log as it was opened */
    sqlite3_stmt *kept[STORE_KEPT]; /* prepared statements that nobody runs now, last used first */
    tl_store_mode mode;
    int64_t ticks;        /* how often the statement that runs has asked whether it may go on */
    int endless;          /* it may not: it is longer than the file can account for */
    int (*stopped)(void); /* whether the user wants the program to end; NULL: nobody knows */
};

/* Fails with what SQLite says of its last error. */
tl_status store_fail(const tl_store *s, const char *what);
/* Several statements of our own. */
tl_status store_script(tl_store *s, const char *sql);
tl_status store_number(tl_store *s, const char *sql, int64_t *out);

/* The file names in the folder are regular files of its own. TL_ECORRUPT: a symbolic link, ... */
tl_status store_check_files(const tl_store *s);
/* Whether this is our file, with our schema and nothing else in it, and of which version; 0: an
** empty file. */
tl_status store_version(tl_store *s, int *out_version);
/* store_schema_hash hashes every object of the schema. store_schema_newest is the result for the
** newest version. If they differ, store_version compares with a schema in memory, which is slower;
** a SQLite that formats SQL differently takes that way. */
tl_status store_schema_hash(tl_store *s, char hex[65]);
extern const char store_schema_newest[65];
/* A copy beside the store before it is changed: runs.db.v1 for version 1. */
tl_status store_backup(tl_store *s, int version);
/* Runs the sections of schema.sql after version, all or none. */
tl_status store_upgrade(tl_store *s, int version);

/* ---- Bounds (store_bounds.c) ---- */
/* Statements of ours end: none takes more steps, or gives more rows, than a file of that size can
** be the reason for. Those of TL_STORE_ASK are a user's own, and only a signal ends them. */
void store_bound(tl_store *s);
/* Whether a statement that has given so many rows is endless. */
int store_too_many_rows(const tl_store *s, int64_t rows);

#endif

/* store_bounds.c - stops statements that would never end: pages of a damaged file can refer to
** each other in a circle, so that a scan of a few kilobytes does not return. */
#include <stdio.h>
#include <sys/stat.h>

#include "store/store.h"

#define STEPS_A_TICK 100000  /* steps of SQLite's virtual machine, a few milliseconds */
#define FREE_TICKS   500     /* ticks that any statement may take, a second or two */
#define STEPS_A_BYTE 2000    /* additional steps for each byte of the file */
#define FREE_ROWS    1000000 /* likewise for rows; each byte of the file explains one more row */
/* ticks after which a signal stops a statement; a shorter one is let finish */
#define SIGNAL_TICKS 200

/* The bytes of the database and of its write-ahead log. */
static int64_t database_bytes(const tl_store *s)
{
    char wal[4096];
    struct stat file;
    int64_t bytes = stat(s->path, &file) == 0 ? (int64_t)file.st_size : 0;
    if (snprintf(wal, sizeof wal, "%s-wal", s->path) < (int)sizeof wal && stat(wal, &file) == 0)
        bytes += (int64_t)file.st_size;
    return bytes;
}

static int progress_tick(void *user)
{
    tl_store *s = user;
    s->ticks++;
    if (s->ticks > SIGNAL_TICKS && s->stopped && s->stopped(s->user)) return 1;
    if (s->mode == TL_STORE_ASK || s->ticks <= FREE_TICKS) return 0;
    int64_t most = FREE_TICKS + database_bytes(s) / (STEPS_A_TICK / STEPS_A_BYTE);
    s->endless = s->ticks > most;
    return s->endless;
}

void tl_store_bound(tl_store *s)
{
    sqlite3_progress_handler(s->db, STEPS_A_TICK, progress_tick, s);
}

int tl_store_too_many_rows(const tl_store *s, int64_t rows)
{
    return s->mode != TL_STORE_ASK && rows > FREE_ROWS && rows > FREE_ROWS + database_bytes(s);
}

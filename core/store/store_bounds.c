/* store_bounds.c - no statement runs for ever: pages of a damaged file can refer to each other in
** circles, from which a scan of a few kilobytes does not come back. */
#include <stdio.h>
#include <sys/stat.h>

#include "store/store.h"

#define STEPS_A_TICK 100000  /* of SQLite's machine, a few milliseconds */
#define FREE_TICKS   500     /* any statement may take so many: a second or two */
#define STEPS_A_BYTE 2000    /* and so many steps more for each byte of the file */
#define FREE_ROWS    1000000 /* the same of rows, of which a byte is good for one at most */
#define PATIENCE     200     /* ticks after which a signal ends it; before, its result comes soon */

/* The bytes of the database and of its write-ahead log. */
static int64_t bytes_of(const tl_store *s)
{
    char wal[4096];
    struct stat file;
    int64_t bytes = stat(s->path, &file) == 0 ? (int64_t)file.st_size : 0;
    if (snprintf(wal, sizeof wal, "%s-wal", s->path) < (int)sizeof wal && stat(wal, &file) == 0)
        bytes += (int64_t)file.st_size;
    return bytes;
}

static int tick(void *user)
{
    tl_store *s = user;
    s->ticks++;
    if (s->ticks > PATIENCE && s->stopped && s->stopped()) return 1;
    if (s->mode == TL_STORE_ASK || s->ticks <= FREE_TICKS) return 0;
    int64_t most = FREE_TICKS + bytes_of(s) / (STEPS_A_TICK / STEPS_A_BYTE);
    s->endless = s->ticks > most;
    return s->endless;
}

void store_bound(tl_store *s)
{
    sqlite3_progress_handler(s->db, STEPS_A_TICK, tick, s);
}

int store_too_many_rows(const tl_store *s, int64_t rows)
{
    return s->mode != TL_STORE_ASK && rows > FREE_ROWS && rows > FREE_ROWS + bytes_of(s);
}

/* store_turn.c - takes turns with other processes that write to the same store. */
#include <stdio.h>
#include <sys/stat.h>

#include "base/file.h"
#include "store/lock.h"
#include "store/store.h"

tl_status tl_store_identify_log(const tl_store *s, struct stat *out)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s-wal", s->path) >= (int)sizeof path)
        return tl_fail(s->ctx, TL_EINVAL, "%s: the name is too long", s->path);
    return stat(path, out) == 0 ? TL_OK : tl_fail_errno(s->ctx, "stat", path);
}

tl_status tl_store_check(const tl_store *s)
{
    struct stat wal;
    int moved = 0;
    if (s->lock < 0) return TL_OK; /* a reader loses nothing */
    tl_status st = tl_lock_check(s->ctx, s->folder, s->lock);
    if (st != TL_OK) return st;
    (void)sqlite3_file_control(s->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    if (moved) return tl_fail(s->ctx, TL_ENOTFOUND, "%s: " TL_REPLACED, s->path);
    if (tl_store_identify_log(s, &wal) == TL_OK && tl_same_file(&wal, &s->wal)) return TL_OK;
    return tl_fail(s->ctx, TL_EIO, "%s-wal: " TL_REPLACED, s->path);
}

tl_status tl_store_lock(tl_store *s, double seconds)
{
    if (s->held) return TL_OK;
    tl_status st = tl_lock(s->ctx, s->folder, s->lock, seconds, s->stopped, s->user);
    s->held = st == TL_OK;
    if (st == TL_OK) st = tl_store_check(s);
    if (st != TL_OK) tl_store_unlock(s);
    return st;
}

void tl_store_unlock(tl_store *s)
{
    if (!s->held || s->opening || !sqlite3_get_autocommit(s->db)) return;
    tl_unlock(s->lock);
    s->held = 0;
}

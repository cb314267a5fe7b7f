/* json.c - reads the only JSON that Toeplab needs from others, a tokeniser's vocabulary: a flat
** object of integers. SQLite, which the store needs anyway, does the parsing. */
#include <sqlite3.h>

#include "text/json.h"

static tl_status each_row(tl_ctx *ctx, const char *path, sqlite3_stmt *stmt, tl_json_entry each,
                          void *user, int *out_rc)
{
    tl_status st = TL_OK;
    while (st == TL_OK && (*out_rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        if (sqlite3_column_type(stmt, 0) != SQLITE_TEXT)
            return tl_fail(ctx, TL_ECORRUPT, "%s: not a JSON object", path);
        const char *key = (const char *)sqlite3_column_text(stmt, 0);
        size_t bytes = (size_t)sqlite3_column_bytes(stmt, 0);
        if (!key) return tl_fail(ctx, TL_ENOMEM, "out of memory");
        if (sqlite3_column_type(stmt, 1) != SQLITE_INTEGER)
            return tl_fail(ctx, TL_ECORRUPT, "%s: the value of '%s' is not an integer", path, key);
        st = each(user, key, bytes, sqlite3_column_int64(stmt, 1));
    }
    return st;
}

tl_status tl_json_each(tl_ctx *ctx, const char *path, const char *text, size_t bytes,
                       tl_json_entry each, void *user)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    tl_status st = TL_OK;
    int rc = sqlite3_open(":memory:", &db);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(db, "SELECT key, value FROM json_each(?)", -1, &stmt, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_bind_text64(stmt, 1, text, bytes, SQLITE_STATIC, SQLITE_UTF8);
    if (rc == SQLITE_OK) st = each_row(ctx, path, stmt, each, user, &rc);
    if (st == TL_OK && rc != SQLITE_DONE)
        st = tl_fail(ctx, rc == SQLITE_NOMEM ? TL_ENOMEM : TL_ECORRUPT, "%s: %s", path,
                     db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
    (void)sqlite3_finalize(stmt); /* returns the last step's error again */
    (void)sqlite3_close(db);      /* in memory, so nothing can be lost */
    return st;
}

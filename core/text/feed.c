/* feed.c - buffers a text that arrives in parts, and passes on what can be processed. */
#include <string.h>

#include "base/memory.h"
#include "text/feed.h"

#define MAX_BUFFERED_BYTES ((size_t)64 << 20) /* most bytes buffered without a place to cut */

/* Appends text to the unprocessed rest of earlier parts. */
static tl_status feed_append(tl_feed *f, const char *text, size_t bytes)
{
    tl_status st = tl_grow(f->ctx, &f->rest, &f->capacity, f->bytes + bytes, 1);
    if (st == TL_OK && bytes) memcpy(f->rest + f->bytes, text, bytes);
    if (st == TL_OK) f->bytes += bytes;
    return st;
}

static tl_status feed_run(tl_feed *f, const char *text, size_t bytes, int last, tl_take take,
                          void *user)
{
    size_t used = 0;
    if (f->bytes) {
        tl_status st = feed_append(f, text, bytes);
        if (st == TL_OK) st = take(user, f->rest, f->bytes, last, &used);
        if (st != TL_OK) return st;
        memmove(f->rest, f->rest + used, f->bytes - used);
        f->bytes -= used;
    } else {
        /* processed in place, without a copy */
        tl_status st = take(user, text, bytes, last, &used);
        if (st == TL_OK) st = feed_append(f, text + used, bytes - used);
        if (st != TL_OK) return st;
    }
    f->taken += used;
    return TL_OK;
}

tl_status tl_feed_part(tl_feed *f, const char *text, size_t bytes, int last, tl_take take,
                       void *user)
{
    if (f->ended || f->failed)
        return tl_fail(f->ctx, TL_EINVAL, "the text has ended, or a part of it was refused");
    tl_status st = feed_run(f, text, bytes, last, take, user);
    if (st == TL_OK && f->bytes > MAX_BUFFERED_BYTES)
        st = tl_fail(f->ctx, TL_ECORRUPT,
                     "%zu bytes from offset %llu on have no place to cut: "
                     "this is not text",
                     f->bytes, (unsigned long long)f->taken);
    f->failed = st != TL_OK;
    f->ended = last && st == TL_OK;
    return st;
}

void tl_feed_free(tl_feed *f)
{
    tl_release(f->ctx, f->rest);
    *f = (tl_feed){.ctx = f->ctx};
}

/* feed.h - a text that arrives in parts, and is taken from its beginning as far as what follows
** cannot change the result. */
#ifndef TL_FEED_H
#define TL_FEED_H

#include "base/context.h"

/* Takes what is certain at the beginning of text, and says how many bytes that was. last: nothing
** follows, so everything is. */
typedef tl_status (*tl_take)(void *user, const char *text, size_t bytes, int last,
                             size_t *out_used);

typedef struct tl_feed { /* starts as {.ctx = ctx} */
    tl_ctx *ctx;
    char *rest; /* what was fed but not taken yet */
    size_t bytes, capacity;
    uint64_t taken; /* bytes before rest */
    int ended, failed; /* nothing more is taken */
} tl_feed;

/* The next part; TL_ECORRUPT if nothing could be taken for too long, as in what is no text. */
tl_status tl_feed_part(tl_feed *f, const char *text, size_t bytes, int last, tl_take take,
                       void *user);
void tl_feed_free(tl_feed *f);

#endif

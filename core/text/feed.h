/* feed.h - a text that arrives in parts and is processed from its beginning, as far as later parts
** cannot change the result. */
#ifndef TL_FEED_H
#define TL_FEED_H

#include "base/context.h"
#include "toeplab-lab.h"

/* Processes the part at the beginning of text that later bytes cannot change, and sets *out_used to
** its length. last: text is the end, so all of it is processed. */
typedef tl_status (*tl_take)(void *user, const char *text, size_t bytes, int last,
                             size_t *out_used);

typedef struct tl_feed { /* starts as {.ctx = ctx} */
    tl_ctx *ctx;
    char *rest; /* fed but not yet processed */
    size_t bytes, capacity;
    uint64_t taken; /* bytes processed before rest */
    int ended, failed; /* either refuses further parts */
} tl_feed;

/* Feeds the next part. TL_ECORRUPT: nothing could be processed for too long, as in binary data. */
tl_status tl_feed_part(tl_feed *f, const char *text, size_t bytes, int last, tl_take take,
                       void *user);
void tl_feed_free(tl_feed *f);

#endif

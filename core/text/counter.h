/* counter.h - the distinct words or pieces of a text and how often each occurs. */
#ifndef TL_COUNTER_H
#define TL_COUNTER_H

#include "text/feed.h"
#include "text/intern.h"
#include "text/pieces.h"

struct tl_counter {
    tl_ctx *ctx;
    tl_counter_kind kind;
    tl_feed feed;
    tl_pieces *pieces; /* TL_COUNT_PIECES */
    tl_intern seen;    /* in the order of first occurrence */
    int64_t *counts;
    size_t counts_cap;
};

/* Ends the text: counts what the feed still holds. */
tl_status tl_counter_end(tl_counter *c);

#endif

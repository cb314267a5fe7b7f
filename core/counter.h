/* counter.h - the distinct words or pieces of a text and how often each occurs. */
#ifndef TL_COUNTER_H
#define TL_COUNTER_H

#include "feed.h"
#include "intern.h"
#include "pieces.h"

struct tl_counter {
    tl_ctx *ctx;
    tl_counter_kind kind;
    tl_feed feed;
    tl_pieces *pieces; /* TL_COUNT_PIECES */
    tl_intern seen;    /* in the order of their first occurrence */
    int64_t *counts;
    size_t counts_room;
};

/* Counts what the feed still keeps: the text is at its end. */
tl_status tl_counter_end(tl_counter *c);

#define TL_EOS "<eos>"
#define TL_UNK "<unk>"

/* Called for each word of text, and with TL_EOS at each end of a line; the rest as tl_take says. */
tl_status tl_words_walk(const char *text, size_t bytes, int last, tl_piece each, void *user,
                        size_t *out_used);

#endif

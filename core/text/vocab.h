/* vocab.h - the structs of vocabularies and encoders, and the functions that a kind of vocabulary
** provides. */
#ifndef TL_VOCAB_H
#define TL_VOCAB_H

#include "engine/launch.h"
#include "text/feed.h"

/* How a kind of vocabulary turns text into ids. */
typedef struct tl_vocab_kind {
    /* Encodes the beginning of text that later bytes cannot change, as tl_take does (feed.h), and
    ** passes its ids to tl_encoder_put. */
    tl_status (*take)(tl_encoder *e, const char *text, size_t bytes, int last, size_t *out_used);
    void (*release)(void *state); /* NULL: there is no state */
} tl_vocab_kind;

struct tl_vocab {
    int refs;
    tl_ctx *ctx;
    const tl_vocab_kind *kind;
    void *state; /* owned; defined by the kind */
    int32_t size;
    char *bytes; /* the bytes of all tokens, one after another */
    size_t used, bytes_cap;
    size_t *starts; /* where each token begins in bytes, and the end of the last */
    size_t starts_cap;
    int32_t eos; /* -1: none */
};

/* Creates an empty vocabulary. Takes over state, also on failure. */
tl_status tl_vocab_new(tl_ctx *ctx, const tl_vocab_kind *kind, void *state, tl_vocab **out_v);
/* Adds a token, which decodes to these bytes and gets the next id. */
tl_status tl_vocab_add(tl_vocab *v, const char *token, size_t bytes);
/* Appends bytes to the last token. */
tl_status tl_vocab_extend(tl_vocab *v, const char *token, size_t bytes);
/* Ends the creation of v: stores it in *out_v if st is TL_OK, else frees it; returns st. */
tl_status tl_vocab_finish(tl_status st, tl_vocab *v, tl_vocab **out_v);
/* Fails with TL_EINVAL because the byte at this offset of a text is not UTF-8. */
tl_status tl_vocab_not_utf8(tl_ctx *ctx, const char *byte, uint64_t at);

/* A word or a character, by a number of its own, and how often it occurs. */
typedef struct tl_counted {
    int64_t count;
    int32_t id;
} tl_counted;

/* For qsort: by falling count, then by id. */
int tl_by_frequency(const void *a, const void *b);

#define TL_CHUNK (1 << 18) /* ids per block of an encoder */

typedef struct tl_chunk {
    struct tl_chunk *next;
    int32_t ids[TL_CHUNK];
} tl_chunk;

/* The ids are stored in blocks, so that at most one block is spare or copied at a time. */
struct tl_encoder {
    tl_vocab *vocab;
    tl_feed feed;
    tl_chunk *first, *last;
    int64_t count;
};

tl_status tl_encoder_put(tl_encoder *e, const int32_t *ids, int64_t count);


#endif

/* vocab.h - vocabularies and encoders from inside: what each kind of vocabulary provides. */
#ifndef TL_VOCAB_H
#define TL_VOCAB_H

#include "engine/launch.h"
#include "text/feed.h"

/* what makes ids of text; the functions differ from kind to kind */
typedef struct tl_vocab_kind {
    /* Takes what is certain at the beginning of text, as tl_take says; hands ids to tl_encoder_put.
     */
    tl_status (*take)(tl_encoder *e, const char *text, size_t bytes, int last, size_t *out_used);
    void (*release)(void *state); /* NULL: there is none */
} tl_vocab_kind;

struct tl_vocab {
    int refs;
    tl_ctx *ctx;
    const tl_vocab_kind *kind;
    void *state; /* of the kind, owned */
    int32_t size;
    char *bytes; /* what the tokens decode to, one after the other */
    size_t used, bytes_cap;
    size_t *starts; /* of each token in bytes, and the end of the last */
    size_t starts_cap;
    int32_t eos; /* -1: none */
};

/* An empty vocabulary. Takes state over, also on failure. */
tl_status tl_vocab_new(tl_ctx *ctx, const tl_vocab_kind *kind, void *state, tl_vocab **out_v);
/* The next id decodes to these bytes. */
tl_status tl_vocab_add(tl_vocab *v, const char *token, size_t bytes);
/* More bytes of the last token. */
tl_status tl_vocab_extend(tl_vocab *v, const char *token, size_t bytes);

#define TL_CHUNK (1 << 18) /* ids per block of an encoder's */

typedef struct tl_chunk {
    struct tl_chunk *next;
    int32_t ids[TL_CHUNK];
} tl_chunk;

/* ids in blocks, so that the most that is copied or spare is one block */
struct tl_encoder {
    tl_vocab *vocab;
    tl_feed feed;
    tl_chunk *first, *last;
    int64_t count;
};

tl_status tl_encoder_put(tl_encoder *e, const int32_t *ids, int64_t count);

extern const tl_kernel_row tl_cpu_text[]; /* text.c */

#endif

/* bpe.h - the internals of byte pair encoding. Tokens are numbered in the order of their creation:
** 0..255 are the bytes in the order of the alphabet, then one per merge. ids maps them to the ids
** of the vocabulary. */
#ifndef TL_BPE_H
#define TL_BPE_H

#include "text/intern.h"
#include "text/pieces.h"
#include "text/vocab.h"

#define TL_BPE_BYTES  256
#define TL_BPE_HEADER "#version: 0.2 sha256 of what follows: " /* followed by 64 digits */

/* GPT-2's way to write bytes as printable characters: point maps bytes to code points, and byte
** maps code points 0..323 to bytes, or -1. order[i] is the byte of token i, and number[b] the token
** of byte b. */
typedef struct tl_alphabet {
    uint16_t point[TL_BPE_BYTES];
    int16_t byte[324];
    uint8_t order[TL_BPE_BYTES];
    uint8_t number[TL_BPE_BYTES];
} tl_alphabet;

void tl_alphabet_make(tl_alphabet *a);
/* Writes the bytes of a token in the alphabet, in at most 2 * bytes, and returns the length. */
size_t tl_alphabet_write(const tl_alphabet *a, const char *token, size_t bytes, char *out);
/* Does the reverse, in at most bytes; -1: a character of text is not in the alphabet. */
int64_t tl_alphabet_read(const tl_alphabet *a, const char *text, size_t bytes, char *out);

/* A pair of tokens as a string of 8 bytes, by which a tl_intern numbers pairs. */
#define TL_PAIR(left, right) ((const char *)(const int32_t[]){left, right})
#define TL_PAIR_BYTES        (2 * sizeof(int32_t))

typedef struct tl_bpe {
    tl_ctx *ctx;
    tl_pieces *pieces;
    tl_alphabet alphabet;
    tl_intern tokens;          /* the bytes of each token */
    tl_intern pairs;           /* those that merge, in the order of their merges */
    int32_t *ids;    /* [tokens.count] */
    int lines;       /* each line is stripped and ended by eos, as fairseq prepares a text */
    tl_intern words; /* cached pieces */
    size_t *places;  /* where each piece begins in cache, and the end of the last */
    size_t places_cap;
    int32_t *cache; /* the ids of the cached pieces */
    size_t cache_used, cache_cap;
    struct tl_bpe_part *parts; /* of the piece being encoded */
    size_t parts_cap;
    uint64_t *queue;
    size_t queue_cap;
} tl_bpe;

/* Creates a tokeniser whose tokens are the 256 bytes. */
tl_status tl_bpe_new(tl_ctx *ctx, tl_bpe **out_b);
void tl_bpe_free(tl_bpe *b);
/* Adds the merge of tokens left and right as the next token. If a token of the same bytes exists,
** *out_old is that token and nothing is added; else *out_old is -1. */
tl_status tl_bpe_merge(tl_bpe *b, int32_t left, int32_t right, int32_t *out_old);
/* Creates an empty vocabulary that takes over b, whose ids are set, also on failure. */
tl_status tl_bpe_vocab(tl_bpe *b, tl_vocab **out_v);

#endif

/* bpe.h - byte pair encoding from inside. Tokens are numbered as they are made: 0..255 the bytes in
** the order of alphabet, then one per merge; ids say what number a token has outside. */
#ifndef TL_BPE_H
#define TL_BPE_H

#include "text/intern.h"
#include "text/pieces.h"
#include "text/vocab.h"

#define TL_BPE_BYTES  256
#define TL_BPE_HEADER "#version: 0.2 sha256 of what follows: " /* and 64 digits */

/* How GPT-2 writes bytes as printable characters: its code point for each byte, and the byte (or
** -1) for code points 0..323. order[i] is the byte that is token i, number[b] the token of b. */
typedef struct tl_alphabet {
    uint16_t point[TL_BPE_BYTES];
    int16_t byte[324];
    uint8_t order[TL_BPE_BYTES];
    uint8_t number[TL_BPE_BYTES];
} tl_alphabet;

void tl_alphabet_make(tl_alphabet *a);
/* Writes bytes of a token as GPT-2 does, in at most 2 * bytes. Returns the length. */
size_t tl_alphabet_write(const tl_alphabet *a, const char *token, size_t bytes, char *out);
/* The reverse, in at most bytes; -1 if a character of text stands for no byte. */
int64_t tl_alphabet_read(const tl_alphabet *a, const char *text, size_t bytes, char *out);

/* Where the search for a pair of tokens begins in a hash table of slots, a power of two. */
static inline size_t tl_pair_slot(int32_t left, int32_t right, size_t slots)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return (size_t)((key * 0x9e3779b97f4a7c15u) >> 32) & (slots - 1);
}

typedef struct tl_bpe {
    tl_ctx *ctx;
    tl_pieces *pieces;
    tl_alphabet alphabet;
    tl_intern tokens;          /* all made so far: the bytes of each */
    struct tl_bpe_pair *pairs; /* a power of two, at most half full */
    size_t pair_slots;
    int32_t merges;
    int32_t *ids;    /* [tokens.count] */
    int lines;       /* each line is stripped and ended by eos, as fairseq prepares a text */
    tl_intern words; /* pieces encoded before */
    size_t *places;  /* of each in memory, and the end of the last */
    size_t places_cap;
    int32_t *memory;
    size_t memory_used, memory_cap;
    struct tl_bpe_part *parts; /* of the piece being encoded */
    size_t parts_cap;
    uint64_t *queue;
    size_t queue_cap;
} tl_bpe;

/* With the 256 bytes as tokens. */
tl_status tl_bpe_new(tl_ctx *ctx, tl_bpe **out_b);
void tl_bpe_free(tl_bpe *b);
/* Token left followed by token right becomes the next token; *out_old is a token of the same bytes
** if there is one (then nothing is added), else -1. */
tl_status tl_bpe_merge(tl_bpe *b, int32_t left, int32_t right, int32_t *out_old);
/* The vocabulary around b, which it takes over, also on failure; b->ids are set. Has no tokens. */
tl_status tl_bpe_vocab(tl_bpe *b, tl_vocab **out_v);

#endif

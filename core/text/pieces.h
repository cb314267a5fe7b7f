/* pieces.h - cutting a text into the pieces inside which byte pairs are merged. */
#ifndef TL_PIECES_H
#define TL_PIECES_H

#include "base/context.h"

typedef struct tl_pieces tl_pieces; /* the compiled pattern */

/* Called for each piece in order; anything but TL_OK ends the walk. */
typedef tl_status (*tl_piece)(void *user, const char *piece, size_t bytes);

tl_status tl_pieces_new(tl_ctx *ctx, tl_pieces **out_p);
void tl_pieces_free(tl_pieces *p);
/* Hands the pieces of text to each; as tl_take says, *out_used is where the walk ended. */
tl_status tl_pieces_walk(tl_pieces *p, const char *text, size_t bytes, int last, tl_piece each,
                         void *user, size_t *out_used);

const char *tl_pcre2_version(void);

#define TL_EOS "<eos>"
#define TL_UNK "<unk>"

/* Hands each word of text to each, and TL_EOS at each end of a line; the rest as tl_take says
** (feed.h). */
tl_status tl_words_walk(const char *text, size_t bytes, int last, tl_piece each, void *user,
                        size_t *out_used);

#endif

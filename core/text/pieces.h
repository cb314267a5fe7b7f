/* pieces.h - cuts a text into words, or into the pieces inside which byte pairs are merged. */
#ifndef TL_PIECES_H
#define TL_PIECES_H

#include "base/context.h"
#include "toeplab-lab.h"

typedef struct tl_pieces tl_pieces; /* the compiled pattern */

/* Receives each piece in order; any status but TL_OK ends the walk. */
typedef tl_status (*tl_piece)(void *user, const char *piece, size_t bytes);

tl_status tl_pieces_new(tl_ctx *ctx, tl_pieces **out_p);
void tl_pieces_free(tl_pieces *p);
/* Passes the pieces of text to each. last and *out_used are as for tl_take (feed.h). */
tl_status tl_pieces_walk(tl_pieces *p, const char *text, size_t bytes, int last, tl_piece each,
                         void *user, size_t *out_used);

const char *tl_pcre2_version(void);

#define TL_EOS "<eos>"
#define TL_UNK "<unk>"

/* Passes each word of text to each, and TL_EOS at each end of a line. last and *out_used are as for
** tl_take (feed.h). */
tl_status tl_words_walk(const char *text, size_t bytes, int last, tl_piece each, void *user,
                        size_t *out_used);

#endif

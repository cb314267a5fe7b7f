/* bytes.c - the vocabulary of bytes. */
#include "text/vocab.h"

static tl_status take_bytes(tl_encoder *e, const char *text, size_t bytes, int last,
                            size_t *out_used)
{
    int32_t ids[256];
    tl_status st = TL_OK;
    (void)last;
    for (size_t at = 0; st == TL_OK && at < bytes; at += 256) {
        size_t n = bytes - at < 256 ? bytes - at : 256;
        for (size_t i = 0; i < n; i++) ids[i] = (unsigned char)text[at + i];
        st = tl_encoder_put(e, ids, (int64_t)n);
    }
    *out_used = bytes;
    return st;
}

static const tl_vocab_kind bytes_kind = {.take = take_bytes};

tl_status tl_vocab_new_bytes(tl_ctx *ctx, tl_vocab **out_v)
{
    tl_vocab *v = NULL;
    tl_status st = tl_vocab_new(ctx, &bytes_kind, NULL, &v);
    for (int i = 0; st == TL_OK && i < 256; i++) st = tl_vocab_add(v, &(char){(char)i}, 1);
    return tl_vocab_finish(st, v, out_v);
}

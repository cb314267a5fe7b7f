/* pieces.c - cuts a text into pieces by GPT-2's pattern, using PCRE2, or into words.
**
** The published pattern is
**   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
** where \s is Unicode's White_Space. PCRE2's \s also contains U+180E, so the set is written out.
** Every character begins a match of one of the alternatives, so the pieces cover the text. A byte
** that is not UTF-8 is a piece by itself, and the pieces beside it end as at the end of the
** text. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/memory.h"
#include "text/pieces.h"
#include "text/utf8.h"

#define SPACE                                                                                      \
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"                \
    "\\x{205f}\\x{3000}"
#define PATTERN                                                                                    \
    "'(?:s|t|re|ve|m|ll|d)| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+"                        \
    "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

/* Bytes that must be known after a piece while more text may follow. Two characters decide: an "e"
** after "'r" makes one piece of both. */
#define AHEAD 8

struct tl_pieces {
    tl_ctx *ctx;
    pcre2_code *code;
    pcre2_match_data *match;
    int compiled; /* to machine code, by PCRE2's JIT */
};

const char *tl_pcre2_version(void)
{
#define TEXT(x)              #x
#define NUMBER(major, minor) TEXT(major) "." TEXT(minor)
    return NUMBER(PCRE2_MAJOR, PCRE2_MINOR);
}

void tl_pieces_free(tl_pieces *p)
{
    if (!p) return;
    pcre2_match_data_free(p->match);
    pcre2_code_free(p->code);
    tl_release(p->ctx, p);
}

tl_status tl_pieces_new(tl_ctx *ctx, tl_pieces **out_p)
{
    int error = 0;
    PCRE2_SIZE at = 0;
    tl_pieces *p = tl_alloc(ctx, sizeof *p);
    if (!p) return TL_ENOMEM;
    *p = (tl_pieces){.ctx = ctx};
    p->code = pcre2_compile((PCRE2_SPTR)PATTERN, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, &error,
                            &at, NULL);
    if (p->code) p->match = pcre2_match_data_create(1, NULL);
    if (!p->match) {
        tl_status st = tl_fail(
            ctx, p->code || error == PCRE2_ERROR_HEAP_FAILED ? TL_ENOMEM : TL_EBACKEND,
            "PCRE2 rejects the pattern of pieces: error %d at %zu", error, (size_t)at);
        tl_pieces_free(p);
        return st;
    }
    /* otherwise PCRE2 interprets */
    p->compiled = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
    *out_p = p;
    return TL_OK;
}

/* Finds the end of the piece that begins at at; text has whole characters only. */
static tl_status next_piece(tl_pieces *p, const char *text, size_t bytes, size_t at,
                            size_t *out_end)
{
    PCRE2_SPTR s = (PCRE2_SPTR)text;
    int rc = p->compiled ? pcre2_jit_match(p->code, s, bytes, at, 0, p->match, NULL)
                         : pcre2_match(p->code, s, bytes, at, PCRE2_NO_UTF_CHECK, p->match, NULL);
    size_t end = rc > 0 ? pcre2_get_ovector_pointer(p->match)[1] : 0;
    if (end <= at)
        return tl_fail(p->ctx, TL_EBACKEND, "PCRE2 finds no piece at offset %zu: error %d", at, rc);
    *out_end = end;
    return TL_OK;
}

tl_status tl_pieces_walk(tl_pieces *p, const char *text, size_t bytes, int last, tl_piece each,
                         void *user, size_t *out_used)
{
    tl_status st = TL_OK;
    size_t at = 0, end = 0;
    while (st == TL_OK && at < bytes) {
        size_t valid = at + tl_utf8_valid(text + at, bytes - at);
        /* the bytes after the valid part may be a character's first */
        int open = !last && bytes - valid < 4;
        while (st == TL_OK && at < valid) {
            st = next_piece(p, text, valid, at, &end);
            if (st == TL_OK && open && end + AHEAD > valid) goto done;
            if (st == TL_OK) st = each(user, text + at, end - at);
            at = end;
        }
        if (open || st != TL_OK || at == bytes) break;
        st = each(user, text + at, 1);
        at++;
    }
done:
    *out_used = at;
    return st;
}

/* ---- Words ----------------------------------------------------------------------------------- */

tl_status tl_words_walk(const char *text, size_t bytes, int last, tl_piece each, void *user,
                        size_t *out_used)
{
    tl_status st = TL_OK;
    size_t at = 0, end = 0;
    while (st == TL_OK && at < bytes) {
        for (end = at; end < bytes && text[end] != ' ' && text[end] != '\n';) end++;
        if (end == bytes && !last) break;
        size_t stop = end < bytes && end > at && text[end] == '\n' && text[end - 1] == '\r'
                          ? end - 1 : end;
        if (stop > at) st = each(user, text + at, stop - at);
        if (st == TL_OK && end < bytes && text[end] == '\n')
            st = each(user, TL_EOS, sizeof TL_EOS - 1);
        at = end < bytes ? end + 1 : end;
    }
    *out_used = at;
    return st;
}

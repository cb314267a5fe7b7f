/* utf8.h - decodes, encodes and checks UTF-8, one character at a time. */
#ifndef TL_UTF8_H
#define TL_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define TL_CODE_POINTS 0x110000

/* Decodes the code point at p and sets *out_bytes to its length. Returns -1 if the left >= 1 bytes
** do not begin with a code point in its only valid form (no overlong form, no surrogate). */
static inline int32_t tl_utf8_decode(const unsigned char *p, size_t left, int *out_bytes)
{
    static const int32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    int n = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if ((p[0] >= 0x80 && p[0] < 0xc2) || p[0] >= 0xf5 || (size_t)n > left) return -1;
    int32_t c = n == 1 ? p[0] : p[0] & (0x7f >> n);
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return -1;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[n] || c >= TL_CODE_POINTS || (c >= 0xd800 && c < 0xe000)) return -1;
    *out_bytes = n;
    return c;
}

/* Encodes code point c and returns its length. */
static inline int tl_utf8_encode(uint32_t c, char out[4])
{
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(n == 1 ? c : (0xf0u << (4 - n)) | c);
    return n;
}

/* Returns the length of the longest beginning of text that is valid UTF-8. */
static inline size_t tl_utf8_valid(const char *text, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t at = 0;
    int n = 0;
    while (at < bytes && (p[at] < 0x80 || tl_utf8_decode(p + at, bytes - at, &n) >= 0))
        at += p[at] < 0x80 ? 1 : (size_t)n;
    return at;
}

#endif

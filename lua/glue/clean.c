/* clean.c - replaces control characters in text that is printed, so that nothing in a file, a
** message or a name can control the terminal, and measures how wide a terminal shows it. */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* wcwidth */
#endif
#include <locale.h>
#include <stdio.h>
#include <wchar.h>

#include "rows.h"

/* Returns the length of the UTF-8 character at s, of whose bytes n are left, and its code; 0:
** the bytes are not valid UTF-8. */
static size_t character(const unsigned char *s, size_t n, unsigned *out_code)
{
    static const unsigned least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t bytes = s[0] < 0x80       ? 1
                   : s[0] >> 5 == 6  ? 2
                   : s[0] >> 4 == 14 ? 3
                   : s[0] >> 3 == 30 ? 4
                                     : 0;
    if (bytes == 0 || bytes > n) return 0;
    unsigned code = bytes == 1 ? s[0] : s[0] & (0xffu >> (bytes + 1));
    for (size_t i = 1; i < bytes; i++) {
        if (s[i] >> 6 != 2) return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return 0;
    *out_code = code;
    return bytes;
}

/* Control characters (C0, DEL and C1), line and paragraph separators, and marks that change the
** direction of the text around them. Newline and tab are allowed. */
static int is_control(unsigned c)
{
    return (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0) || c == 0x61c ||
           c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

void glue_clean(lua_State *L, const char *text, size_t length)
{
    const unsigned char *s = (const unsigned char *)text;
    luaL_Buffer out;
    luaL_buffinit(L, &out);
    for (size_t at = 0, done = 0; at <= length;) {
        unsigned code = 0;
        size_t bytes = at < length ? character(s + at, length - at, &code) : 0;
        if (bytes > 0 && !is_control(code)) {
            at += bytes;
            continue;
        }
        luaL_addlstring(&out, text + done, at - done);
        char sign[16] = "";
        if (at < length && code < 0x80 && bytes <= 1)
            (void)snprintf(sign, sizeof sign, "\\x%02x", (unsigned)s[at]);
        else if (at < length)
            (void)snprintf(sign, sizeof sign, "\\u{%x}", code);
        luaL_addstring(&out, sign);
        at += bytes > 0 ? bytes : 1;
        done = at;
    }
    luaL_pushresult(&out);
}

/* clean(text) -> the text with each control character but newline and tab written as \x1b or
** \u{9b}, and each byte that is not UTF-8 as \xff. */
GLUE_CALL(clean, TEXT(text, length), glue_clean(L, text, length))

/* width(text [, most]) -> the columns of a terminal that text takes, or its longest prefix of at
** most `most` columns, and the bytes of that prefix. A wide character (Chinese, emoji) takes two, a
** combining one none, and a byte that is not UTF-8 one. */
static int width(lua_State *L)
{
    size_t length, at = 0;
    const unsigned char *s = (const unsigned char *)luaL_checklstring(L, 1, &length);
    lua_Integer most = luaL_optinteger(L, 2, LUA_MAXINTEGER), columns = 0;
    /* wcwidth knows the characters of the locale alone, and the user's may be "C". Where the
    ** system has no C.UTF-8, each character counts as one column. */
    locale_t unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = unicode ? uselocale(unicode) : (locale_t)0;
    while (at < length) {
        unsigned code = 0;
        size_t bytes = character(s + at, length - at, &code);
        int n = unicode && code >= 0x80 ? wcwidth((wchar_t)code) : 1;
        if (n < 0) n = 1; /* unassigned in this C library */
        if (columns + n > most) break;
        columns += n;
        at += bytes > 0 ? bytes : 1;
    }
    if (unicode) freelocale(uselocale(before));
    lua_pushinteger(L, columns);
    lua_pushinteger(L, (lua_Integer)at);
    return 2;
}

const luaL_Reg glue_clean_functions[] = {{"clean", clean}, {"width", width}, {NULL, NULL}};

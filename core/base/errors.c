/* errors.c - names and texts of the status codes, and the message of the last failure. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "base/plain.h"

const char *tl_status_name(tl_status st)
{
    switch (st) {
#define X(name, value, text) \
    case TL_##name: return #name;
        TL_STATUS_MAP(X)
#undef X
    }
    return "unknown";
}

const char *tl_status_text(tl_status st)
{
    switch (st) {
#define X(name, value, text) \
    case TL_##name: return text;
        TL_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

tl_status tl_fail(tl_ctx *ctx, tl_status st, const char *format, ...)
{
    char    text[sizeof ctx->message]; /* the arguments may point into the old message */
    va_list args;
    va_start(args, format);
    locale_t before = tl_plain_begin();
    (void)vsnprintf(text, sizeof text, format, args);
    tl_plain_end(before);
    va_end(args);
    memcpy(ctx->message, text, sizeof text);
    return st;
}

tl_status tl_check_bytes(tl_ctx *ctx, const char *op, size_t got, size_t expected)
{
    if (got == expected) return TL_OK;
    return tl_fail(ctx, TL_EINVAL, "%s: options.bytes is %zu, this library's options have %zu", op,
                   got, expected);
}

const char *tl_errmsg(const tl_ctx *ctx) { return ctx->message; }

void tl_set_first_axis(tl_ctx *ctx, int first) { ctx->first_axis = first; }

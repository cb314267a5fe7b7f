/* text.c - vocabularies of bytes and characters, and windows into a stream of token ids. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define CODE_POINTS 0x110000

struct tl_vocab {
    tl_ctx *ctx;
    int32_t size;
    int chars;         /* 0: token i is the byte i */
    uint32_t *points;  /* chars: code points in order */
    char (*tokens)[4]; /* bytes of each token */
    uint8_t *lengths;  /* how many */
};

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

/* The code point at p, and its length in *out_bytes; -1 if left bytes do not begin with one in its
** only valid form (no overlong form, no surrogate). */
static int32_t decode(const unsigned char *p, size_t left, int *out_bytes)
{
    static const int32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    int n = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if ((p[0] >= 0x80 && p[0] < 0xc2) || p[0] >= 0xf5 || (size_t)n > left) return -1;
    int32_t c = n == 1 ? p[0] : p[0] & (0x7f >> n);
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return -1;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[n] || c >= CODE_POINTS || (c >= 0xd800 && c < 0xe000)) return -1;
    *out_bytes = n;
    return c;
}

static int encode(uint32_t c, char out[4])
{
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(n == 1 ? c : (0xf0u << (4 - n)) | c);
    return n;
}

static tl_status not_utf8(tl_ctx *ctx, const unsigned char *text, size_t at)
{
    return tl_fail(ctx, TL_EINVAL, "byte 0x%02x at offset %zu is not UTF-8", text[at], at);
}

/* Marks in seen (may be NULL) the characters of text and counts them. */
static tl_status scan(tl_ctx *ctx, const unsigned char *text, size_t bytes, uint8_t *seen,
                      int64_t *out_count)
{
    int n;
    int64_t count = 0;
    for (size_t at = 0; at < bytes; at += (size_t)n, count++) {
        int32_t c = decode(text + at, bytes - at, &n);
        if (c < 0) return not_utf8(ctx, text, at);
        if (seen) seen[c] = 1;
    }
    *out_count = count;
    return TL_OK;
}

/* ---- Vocabularies ---------------------------------------------------------------------------- */

static tl_status vocab_new(tl_ctx *ctx, int32_t size, int chars, tl_vocab **out_v)
{
    tl_vocab *v = calloc(1, sizeof *v);
    if (!v) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    v->ctx = ctx;
    v->size = size;
    v->chars = chars;
    v->points = calloc((size_t)size + 1, sizeof *v->points);
    v->tokens = calloc((size_t)size + 1, sizeof *v->tokens);
    v->lengths = calloc((size_t)size + 1, sizeof *v->lengths);
    if (!v->points || !v->tokens || !v->lengths) {
        tl_vocab_free(v);
        return tl_fail(ctx, TL_ENOMEM, "out of memory: a vocabulary of %d", size);
    }
    *out_v = v;
    return TL_OK;
}

void tl_vocab_free(tl_vocab *v)
{
    if (!v) return;
    free(v->points);
    free(v->tokens);
    free(v->lengths);
    free(v);
}

tl_status tl_vocab_bytes(tl_ctx *ctx, tl_vocab **out_v)
{
    tl_vocab *v;
    tl_status st = vocab_new(ctx, 256, 0, &v);
    if (st != TL_OK) return st;
    for (int i = 0; i < 256; i++) {
        v->tokens[i][0] = (char)i;
        v->lengths[i] = 1;
    }
    *out_v = v;
    return TL_OK;
}

tl_status tl_vocab_chars(tl_ctx *ctx, const char *text, size_t bytes, tl_vocab **out_v)
{
    int64_t count;
    int32_t size = 0;
    tl_vocab *v = NULL;
    uint8_t *seen = calloc(CODE_POINTS, 1);
    if (!seen) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    tl_status st = scan(ctx, (const unsigned char *)text, bytes, seen, &count);
    for (uint32_t c = 0; c < CODE_POINTS; c++) size += seen[c];
    if (st == TL_OK) st = vocab_new(ctx, size, 1, &v);
    for (uint32_t c = 0, i = 0; st == TL_OK && c < CODE_POINTS; c++) {
        if (!seen[c]) continue;
        v->points[i] = c;
        v->lengths[i] = (uint8_t)encode(c, v->tokens[i]);
        i++;
    }
    free(seen);
    if (st == TL_OK) *out_v = v;
    return st;
}

int32_t tl_vocab_size(const tl_vocab *v)
{
    return v->size;
}

const char *tl_vocab_token(const tl_vocab *v, int32_t id, size_t *out_bytes)
{
    if (id < 0 || id >= v->size) return NULL;
    *out_bytes = v->lengths[id];
    return v->tokens[id];
}

/* The id of code point c; -1: none. */
static int32_t find(const tl_vocab *v, uint32_t c)
{
    int32_t low = 0, high = v->size;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (v->points[middle] < c) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < v->size && v->points[low] == c ? low : -1;
}

static tl_status encode_chars(const tl_vocab *v, const unsigned char *text, size_t bytes,
                              int32_t *ids)
{
    int n;
    for (size_t at = 0; at < bytes; at += (size_t)n) {
        int32_t c = decode(text + at, bytes - at, &n);
        if (c < 0) return not_utf8(v->ctx, text, at);
        int32_t id = find(v, (uint32_t)c);
        if (id < 0)
            return tl_fail(v->ctx, TL_ENOTFOUND,
                           "character '%.*s' (U+%04X) at offset %zu is not among the %d known", n,
                           (const char *)text + at, (unsigned)c, at, v->size);
        *ids++ = id;
    }
    return TL_OK;
}

tl_status tl_vocab_encode(const tl_vocab *v, const char *text, size_t bytes, tl_tensor **out_ids)
{
    const unsigned char *p = (const unsigned char *)text;
    int64_t count = (int64_t)bytes;
    tl_tensor *ids = NULL;
    tl_status st = v->chars ? scan(v->ctx, p, bytes, NULL, &count) : TL_OK;
    if (st == TL_OK) st = tl_new(v->ctx, TL_I32, 1, &count, &ids);
    if (st == TL_OK && v->chars) st = encode_chars(v, p, bytes, I32(ids));
    for (size_t i = 0; st == TL_OK && !v->chars && i < bytes; i++) I32(ids)[i] = p[i];
    if (st == TL_OK) {
        *out_ids = ids;
    } else {
        tl_tensor_free(ids);
    }
    return st;
}

/* ---- Windows --------------------------------------------------------------------------------- */

/* in: ids [t], starts [b]   out: rows [b,n] */
static tl_status windows(tl_ctx *ctx, const tl_args *a)
{
    const tl_tensor *ids = a->in[0], *starts = a->in[1];
    tl_tensor *out = a->out[0];
    int64_t n = out->dims[1];
    for (int64_t i = 0; i < starts->len; i++) {
        int64_t start = I32(starts)[i];
        if (start < 0 || start > ids->len - n)
            return tl_fail(ctx, TL_EINVAL, "windows: row %lld is %lld..%lld of %lld ids",
                           (long long)i, (long long)start, (long long)(start + n - 1),
                           (long long)ids->len);
        if (n) memcpy(I32(out) + i * n, I32(ids) + start, (size_t)n * sizeof(int32_t));
    }
    return TL_OK;
}

tl_status tl_windows(tl_tensor *ids, tl_tensor *starts, int64_t n, tl_tensor **out_rows)
{
    tl_ctx *ctx = ids->ctx;
    tl_tensor *rows;
    if (ids->type != TL_I32 || starts->type != TL_I32)
        return tl_fail(ctx, TL_ETYPE, "windows: ids and starts must be int32");
    if (ids->ndim != 1 || starts->ndim != 1)
        return tl_fail(ctx, TL_ESHAPE, "windows: ids is %s, starts is %s, both must be vectors",
                       SHAPE(ids), SHAPE(starts));
    if (n < 0) return tl_fail(ctx, TL_EINVAL, "windows: n is %lld", (long long)n);
    tl_status st = tl_new(ctx, TL_I32, 2, (int64_t[]){starts->len, n}, &rows);
    if (st != TL_OK) return st;
    st = tl_launch(ctx, TL_OP_windows, &(tl_args){.in = {ids, starts}, .out = {rows}});
    if (st == TL_OK) {
        *out_rows = rows;
    } else {
        tl_tensor_free(rows);
    }
    return st;
}

const tl_kernel_row tl_cpu_text[] = {{TL_OP_windows, windows}, {0}};

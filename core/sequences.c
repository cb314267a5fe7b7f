/* sequences.c - sequences of different lengths: the characters of many short texts as ids, and
** batches of such sequences with padding. */
#include <stdlib.h>
#include <string.h>

#include "utf8.h"
#include "vocab.h"

/* ---- Characters that are frequent ------------------------------------------------------------ */

enum { PAD, UNK, EOS, SPECIALS };

typedef struct frequent { /* id of each code point, UNK for those that have none */
    tl_ctx *ctx;
    int32_t ids[TL_CODE_POINTS];
} frequent;

static void release_frequent(void *state)
{
    frequent *f = state;
    tl_release(f->ctx, f);
}

static tl_status not_utf8(tl_ctx *ctx, const char *byte, uint64_t at)
{
    return tl_fail(ctx, TL_EINVAL, "byte 0x%02x at offset %llu is not UTF-8",
                   (unsigned char)*byte, (unsigned long long)at);
}

static tl_status take_frequent(tl_encoder *e, const char *text, size_t bytes, int last,
                               size_t *out_used)
{
    const frequent *f = e->vocab->state;
    int n;
    size_t at = 0;
    for (; at < bytes; at += (size_t)n) {
        int32_t c = tl_utf8_decode((const unsigned char *)text + at, bytes - at, &n);
        if (c < 0 && !last && bytes - at < 4) break; /* the rest of it may follow */
        if (c < 0) return not_utf8(f->ctx, text + at, e->feed.taken + at);
        tl_status st = tl_encoder_put(e, &f->ids[c], 1);
        if (st != TL_OK) return st;
    }
    *out_used = at;
    return TL_OK;
}

static const tl_vocab_kind frequent_kind = {.take = take_frequent, .release = release_frequent};

typedef struct entry {
    int64_t count;
    int32_t point;
} entry;

/* The most frequent first; at a tie the lower code point. */
static int before(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return x->point < y->point ? -1 : x->point > y->point;
}

/* counts [TL_CODE_POINTS] += the characters of text. */
static tl_status count_points(tl_ctx *ctx, const char *text, size_t bytes, entry *counts)
{
    int n;
    for (size_t at = 0; at < bytes; at += (size_t)n) {
        int32_t c = tl_utf8_decode((const unsigned char *)text + at, bytes - at, &n);
        if (c < 0) return not_utf8(ctx, text + at, at);
        counts[c].count++;
    }
    return TL_OK;
}

/* Adds the specials and then what was counted at least least times. */
static tl_status add_frequent(tl_vocab *v, entry *counts, int64_t least)
{
    static const char *const specials[SPECIALS] = {"<pad>", "<unk>", "<eos>"};
    frequent *f = v->state;
    size_t count = 0;
    tl_status st = TL_OK;
    for (int i = 0; st == TL_OK && i < SPECIALS; i++)
        st = tl_vocab_add(v, specials[i], strlen(specials[i]));
    v->eos = EOS;
    for (int32_t i = 0; i < TL_CODE_POINTS; i++) {
        f->ids[i] = UNK;
        if (counts[i].count >= least) counts[count++] = counts[i];
    }
    qsort(counts, count, sizeof *counts, before);
    for (size_t i = 0; st == TL_OK && i < count; i++) {
        char token[4];
        f->ids[counts[i].point] = v->size;
        st = tl_vocab_add(v, token, (size_t)tl_utf8_encode((uint32_t)counts[i].point, token));
    }
    return st;
}

tl_status tl_vocab_frequent(tl_ctx *ctx, const char *text, size_t bytes, int64_t least,
                            tl_vocab **out_v)
{
    tl_vocab *v = NULL;
    if (least < 1)
        return tl_fail(ctx, TL_EINVAL, "vocab_frequent: least is %lld", (long long)least);
    entry *counts = tl_alloc(ctx, TL_CODE_POINTS * sizeof *counts);
    frequent *f = counts ? tl_alloc(ctx, sizeof *f) : NULL;
    tl_status st = f ? TL_OK : TL_ENOMEM;
    for (int32_t i = 0; f && i < TL_CODE_POINTS; i++) counts[i] = (entry){0, i};
    if (f) f->ctx = ctx;
    if (st == TL_OK) st = count_points(ctx, text, bytes, counts);
    if (st == TL_OK) {
        st = tl_vocab_new(ctx, &frequent_kind, f, &v); /* takes f */
        f = NULL;
    }
    if (st == TL_OK) st = add_frequent(v, counts, least);
    tl_release(ctx, counts);
    tl_release(ctx, f);
    if (st == TL_OK) {
        *out_v = v;
    } else {
        tl_vocab_free(v);
    }
    return st;
}

/* ---- Padding --------------------------------------------------------------------------------- */

/* starts [k+1] never falls and stays in ids. */
static tl_status check_starts(const tl_tensor *ids, const tl_tensor *starts)
{
    int64_t last = 0;
    for (int64_t i = 0; i < starts->len; i++) {
        if (I32(starts)[i] < last || I32(starts)[i] > ids->len)
            return tl_fail(ids->ctx, TL_EINVAL, "padded: start %lld is %d, wanted %lld..%lld",
                           (long long)i, I32(starts)[i], (long long)last, (long long)ids->len);
        last = I32(starts)[i];
    }
    return TL_OK;
}

static tl_status check(const tl_tensor *ids, const tl_tensor *starts, const tl_tensor *index,
                       int64_t n)
{
    tl_ctx *ctx = ids->ctx;
    if (ids->type != TL_I32 || starts->type != TL_I32 || index->type != TL_I32)
        return tl_fail(ctx, TL_ETYPE, "padded: ids, starts and index must be int32");
    if (!tl_tensor_ci32(ids) || !tl_tensor_ci32(starts) || !tl_tensor_ci32(index))
        return tl_fail(ctx, TL_EDEVICE, "padded reads tensors of the CPU");
    if (ids->ndim != 1 || starts->ndim != 1 || index->ndim != 1 || starts->len < 1)
        return tl_fail(ctx, TL_ESHAPE, "padded: ids is %s, starts is %s, index is %s, wanted "
                       "vectors, starts of at least 1", SHAPE(ids), SHAPE(starts), SHAPE(index));
    if (n < 1) return tl_fail(ctx, TL_EINVAL, "padded: n is %lld", (long long)n);
    for (int64_t i = 0; i < index->len; i++)
        if (I32(index)[i] < 0 || I32(index)[i] >= starts->len - 1)
            return tl_fail(ctx, TL_EINVAL, "padded: index %lld is %d, wanted 0..%lld",
                           (long long)i, I32(index)[i], (long long)(starts->len - 2));
    return check_starts(ids, starts);
}

tl_status tl_padded(tl_tensor *ids, tl_tensor *starts, tl_tensor *index, int64_t n, int32_t end,
                    int32_t pad, tl_tensor **out_rows, tl_tensor **out_lengths)
{
    tl_tensor *rows = NULL, *lengths = NULL;
    tl_status st = check(ids, starts, index, n);
    if (st == TL_OK) st = tl_new(ids->ctx, TL_I32, 2, (int64_t[]){index->len, n}, &rows);
    if (st == TL_OK) st = tl_new(ids->ctx, TL_I32, 1, &index->len, &lengths);
    for (int64_t i = 0; st == TL_OK && i < index->len; i++) {
        int32_t k = I32(index)[i], *row = I32(rows) + i * n;
        int64_t start = I32(starts)[k], most = n - (end >= 0), length = I32(starts)[k + 1] - start;
        if (length > most) length = most;
        if (length > 0) memcpy(row, I32(ids) + start, (size_t)length * sizeof *row);
        if (end >= 0) row[length++] = end;
        I32(lengths)[i] = (int32_t)length;
        for (int64_t j = length; j < n; j++) row[j] = pad;
    }
    if (st == TL_OK) {
        *out_rows = rows;
        *out_lengths = lengths;
    } else {
        tl_tensor_free(rows);
        tl_tensor_free(lengths);
    }
    return st;
}

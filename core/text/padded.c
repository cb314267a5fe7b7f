/* padded.c - makes batches of sequences of different lengths: truncates each, appends an end token
** and pads it to a common length. */
#include <string.h>

#include "engine/storage.h"
#include "toeplab-lab.h"

/* The starts [k+1] must not decrease and must lie within ids. */
static tl_status check_starts(const tl_tensor *ids, const tl_tensor *starts)
{
    int64_t last = 0;
    for (int64_t i = 0; i < starts->len; i++) {
        if (I32(starts)[i] < last || I32(starts)[i] > ids->len)
            return tl_fail(ids->ctx, TL_EINVAL, "padded: start %lld is %d, not in %lld..%lld",
                           tl_position(ids->ctx, i), I32(starts)[i], (long long)last,
                           (long long)ids->len);
        last = I32(starts)[i];
    }
    return TL_OK;
}

static tl_status padded_check(const tl_tensor *ids, const tl_tensor *starts, const tl_tensor *index,
                              int64_t n)
{
    tl_ctx *ctx = ids->ctx;
    if (ids->type != TL_I32 || starts->type != TL_I32 || index->type != TL_I32)
        return tl_fail(ctx, TL_ETYPE, "padded: ids, starts and index must be int32");
    tl_status st = tl_to_cpu(ids);
    if (st == TL_OK) st = tl_to_cpu(starts);
    if (st == TL_OK) st = tl_to_cpu(index);
    if (st != TL_OK) return st;
    if (ids->ndim != 1 || starts->ndim != 1 || index->ndim != 1 || starts->len < 1)
        return tl_fail(ctx, TL_ESHAPE, "padded: ids is %s, starts is %s, index is %s: all must "
                       "be vectors, starts of at least 1", SHAPE(ids), SHAPE(starts),
                       SHAPE(index));
    if (n < 1) return tl_fail(ctx, TL_EINVAL, "padded: n is %lld", (long long)n);
    for (int64_t i = 0; i < index->len; i++)
        if (I32(index)[i] < 0 || I32(index)[i] >= starts->len - 1)
            return tl_fail(ctx, TL_EINVAL, "padded: index %lld is %d, not in 0..%lld",
                           tl_position(ctx, i), I32(index)[i], (long long)(starts->len - 2));
    return check_starts(ids, starts);
}

tl_status tl_pad_rows(tl_tensor *ids, tl_tensor *starts, tl_tensor *index, int64_t n, int32_t end,
                      int32_t pad, tl_tensor **out_rows, tl_tensor **out_lengths)
{
    tl_tensor *rows = NULL, *lengths = NULL;
    tl_status st = padded_check(ids, starts, index, n);
    if (st == TL_OK)
        st = tl_tensor_new_host(ids->ctx, TL_I32, 2, (int64_t[]){index->len, n}, &rows);
    if (st == TL_OK) st = tl_tensor_new_host(ids->ctx, TL_I32, 1, &index->len, &lengths);
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

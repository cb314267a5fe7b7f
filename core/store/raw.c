/* raw.c - elements as they lie in the files of other programs, such as safetensors and .npy: reads
** them into tensors, whatever their type is, and writes files of texts and tensors.
**
** What a file says about its elements is read elsewhere (lua/toeplab/store/). This file reads bytes
** at an offset. The elements of files and of the processor are little-endian. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/file.h"
#include "base/memory.h"
#include "engine/tensor.h"
#include "toeplab-lab.h"

/* ---- Types ----------------------------------------------------------------------------------- */

/* The type of elements in a file, and of the tensor that holds them. convert writes count elements
** to `to` and returns count, or the index of the first that the tensor cannot hold. NULL: elements
** are read as they are. */
typedef struct element {
    const char *name;
    size_t      bytes;
    tl_type     type;
    int64_t   (*convert)(const void *from, int64_t count, void *to);
} element;

#define INTEGERS(name, kind)                                                   \
    static int64_t from_##name(const void *from, int64_t count, void *to)      \
    {                                                                          \
        const kind *x = from;                                                  \
        int32_t    *y = to;                                                    \
        for (int64_t i = 0; i < count; i++) {                                  \
            double v = (double)x[i];                                           \
            if (v > INT32_MAX || v < INT32_MIN) return i;                      \
            y[i] = (int32_t)x[i];                                              \
        }                                                                      \
        return count;                                                          \
    }

INTEGERS(i64, int64_t)
INTEGERS(i16, int16_t)
INTEGERS(i8, int8_t)
INTEGERS(u64, uint64_t)
INTEGERS(u32, uint32_t)
INTEGERS(u16, uint16_t)
INTEGERS(u8, uint8_t)

static int64_t from_f64(const void *from, int64_t count, void *to)
{
    const double *x = from;
    float        *y = to;
    for (int64_t i = 0; i < count; i++) {
        y[i] = (float)x[i];
        if (isinf(y[i]) && !isinf(x[i])) return i;
    }
    return count;
}

static int64_t from_bool(const void *from, int64_t count, void *to)
{
    const uint8_t *x = from;
    int32_t       *y = to;
    for (int64_t i = 0; i < count; i++) {
        if (x[i] > 1) return i;
        y[i] = x[i];
    }
    return count;
}

static int64_t from_bf16(const void *from, int64_t count, void *to)
{
    const uint16_t *x = from;
    uint32_t       *y = to;
    for (int64_t i = 0; i < count; i++) y[i] = (uint32_t)x[i] << 16;
    return count;
}

/* The bits of the float32 that equals a float16: 1 sign, 5 exponent, 10 fraction bits. */
static uint32_t widened(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, fraction = half & 0x3ffu;
    uint32_t exponent = half >> 10 & 31u;
    if (exponent == 31) return sign | 0x7f800000u | fraction << 13; /* infinity, NaN */
    if (exponent > 0) return sign | (exponent + 112) << 23 | fraction << 13;
    if (fraction == 0) return sign;
    for (exponent = 113; !(fraction & 0x400u); exponent--) fraction <<= 1; /* subnormal */
    return sign | exponent << 23 | (fraction & 0x3ffu) << 13;
}

static int64_t from_f16(const void *from, int64_t count, void *to)
{
    const uint16_t *x = from;
    uint32_t       *y = to;
    for (int64_t i = 0; i < count; i++) y[i] = widened(x[i]);
    return count;
}

static int64_t from_f8_e5m2(const void *from, int64_t count, void *to)
{
    const uint8_t *x = from;
    uint32_t      *y = to;
    for (int64_t i = 0; i < count; i++) y[i] = widened((uint16_t)(x[i] << 8));
    return count;
}

/* 1 sign, 4 exponent, 3 fraction bits; without infinities, and NaN has all but the sign set. */
static int64_t from_f8_e4m3(const void *from, int64_t count, void *to)
{
    const uint8_t *x = from;
    float         *y = to;
    for (int64_t i = 0; i < count; i++) {
        int   exponent = x[i] >> 3 & 15, fraction = x[i] & 7;
        float size = exponent ? ldexpf((float)(8 + fraction), exponent - 10)
                              : ldexpf((float)fraction, -9);
        if (exponent == 15 && fraction == 7) size = NAN;
        y[i] = x[i] & 0x80 ? -size : size;
    }
    return count;
}

static const element elements[] = {
    {"F32", 4, TL_F32, NULL},       {"F64", 8, TL_F32, from_f64}, {"F16", 2, TL_F32, from_f16},
    {"BF16", 2, TL_F32, from_bf16}, {"I32", 4, TL_I32, NULL},     {"I64", 8, TL_I32, from_i64},
    {"I16", 2, TL_I32, from_i16},   {"I8", 1, TL_I32, from_i8},   {"U64", 8, TL_I32, from_u64},
    {"U32", 4, TL_I32, from_u32},   {"U16", 2, TL_I32, from_u16}, {"U8", 1, TL_I32, from_u8},
    {"BOOL", 1, TL_I32, from_bool}, {"F8_E5M2", 1, TL_F32, from_f8_e5m2},
    {"F8_E4M3", 1, TL_F32, from_f8_e4m3},
};

/* Describes an element that convert refused. */
static const char *refused(const element *e)
{
    if (e->type == TL_F32) return "a number too large for float32";
    return e->bytes > 1 ? "an integer of more than 32 bits" : "a boolean other than 0 and 1";
}

static const element *find_element(const char *name)
{
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        if (strcmp(elements[i].name, name) == 0) return &elements[i];
    return NULL;
}

size_t tl_raw_bytes(const char *type)
{
    const element *e = find_element(type);
    return e ? e->bytes : 0;
}

/* ---- Reading --------------------------------------------------------------------------------- */

#define CHUNK ((int64_t)1 << 12) /* elements converted at a time */

/* Reads bytes from fd, which must have as many. */
static tl_status fill(tl_ctx *ctx, const char *path, int fd, void *data, size_t bytes)
{
    ssize_t n = tl_file_read_all(fd, data, bytes);
    if (n < 0) return tl_fail_errno(ctx, "read", path);
    if ((size_t)n == bytes) return TL_OK;
    return tl_fail(ctx, TL_ECORRUPT, "%s: became shorter while it was read", path);
}

static tl_status read_converted(tl_ctx *ctx, const char *path, int fd, const element *e,
                                tl_tensor *t)
{
    _Alignas(8) char buffer[8 * CHUNK];
    tl_status        st = TL_OK;
    for (int64_t at = 0; at < t->len && st == TL_OK; at += CHUNK) {
        int64_t count = t->len - at < CHUNK ? t->len - at : CHUNK;
        st = fill(ctx, path, fd, buffer, (size_t)count * e->bytes);
        int64_t good = st == TL_OK ? e->convert(buffer, count, (char *)DATA(t) + 4 * at) : count;
        if (good < count)
            st = tl_fail(ctx, TL_ETYPE, "%s: element %lld is %s", path,
                         tl_position(ctx, at + good), refused(e));
    }
    return st;
}

/* Refuses a tensor that reaches beyond the end of the file, before memory is allocated for it. */
static tl_status check_extent(tl_ctx *ctx, const char *path, size_t size, int64_t offset,
                              const element *e, int ndim, const int64_t *dims)
{
    double bytes = (double)e->bytes; /* a damaged file may claim any size */
    for (int i = 0; i < ndim; i++) bytes *= (double)dims[i];
    if (offset >= 0 && (double)offset + bytes <= (double)size) return TL_OK;
    return tl_fail(ctx, TL_ECORRUPT, "%s: needs %.0f bytes at offset %lld of a file of %zu",
                   path, bytes, (long long)offset, size);
}

tl_status tl_raw_read(tl_ctx *ctx, const char *path, int64_t offset, const char *type, int ndim,
                      const int64_t *dims, tl_tensor **out_t)
{
    const element *e = find_element(type);
    tl_tensor     *t = NULL;
    size_t         size = 0;
    int            fd = -1;
    if (!e) return tl_fail(ctx, TL_ETYPE, "%s: elements of type %s are not supported", path, type);
    tl_status st = tl_file_open(ctx, path, &fd, &size);
    if (st == TL_OK) st = check_extent(ctx, path, size, offset, e, ndim, dims);
    if (st == TL_OK) st = tl_tensor_new_host(ctx, e->type, ndim, dims, &t);
    if (st == TL_OK && lseek(fd, (off_t)offset, SEEK_SET) < 0)
        st = tl_fail_errno(ctx, "seek", path);
    if (st == TL_OK && e->convert) st = read_converted(ctx, path, fd, e, t);
    else if (st == TL_OK) st = fill(ctx, path, fd, DATA(t), (size_t)t->len * 4);
    if (fd >= 0) (void)close(fd); /* only read, so an error loses nothing */
    return tl_finish(st, t, out_t);
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Returns in *out_copy the elements of x as bf16, which the caller releases. */
static tl_status rounded(tl_ctx *ctx, const tl_tensor *x, void **out_copy)
{
    if (x->type != TL_F32) return tl_fail(ctx, TL_ETYPE, "only float32 can be written as bf16");
    const uint32_t *from = (const void *)tl_tensor_cf32(x); /* NULL: not copied from the GPU */
    uint16_t       *to = from ? tl_alloc(ctx, (size_t)x->len * 2 + 1) : NULL;
    if (!to) return TL_ENOMEM;
    for (int64_t i = 0; i < x->len; i++) to[i] = tl_round_bf16(from[i]);
    *out_copy = to;
    return TL_OK;
}

/* Sets part to the bytes of p; *out_copy is what the caller releases afterwards, or NULL. */
static tl_status as_part(tl_ctx *ctx, const tl_raw_part *p, tl_part *part, void **out_copy)
{
    *out_copy = NULL;
    if (!p->tensor) {
        *part = (tl_part){p->text, p->bytes};
        return TL_OK;
    }
    if (p->bf16) {
        tl_status st = rounded(ctx, p->tensor, out_copy);
        *part = (tl_part){*out_copy, (size_t)p->tensor->len * 2};
        return st;
    }
    const void *data = p->tensor->type == TL_F32 ? (const void *)tl_tensor_cf32(p->tensor)
                                                 : tl_tensor_ci32(p->tensor);
    *part = (tl_part){data, (size_t)p->tensor->len * 4};
    return data ? TL_OK : TL_ENOMEM;
}

tl_status tl_raw_write(tl_ctx *ctx, const char *path, int count, const tl_raw_part *parts)
{
    size_t    slots = (size_t)(count > 0 ? count : 1); /* calloc of 0 may return NULL */
    tl_part  *bytes = calloc(slots, sizeof *bytes);
    void    **copies = calloc(slots, sizeof *copies);
    tl_status st = bytes && copies ? TL_OK : tl_fail(ctx, TL_ENOMEM, "out of memory");
    for (int i = 0; i < count && st == TL_OK; i++)
        st = as_part(ctx, &parts[i], &bytes[i], &copies[i]);
    if (st == TL_OK) st = tl_file_replace(ctx, path, bytes, count);
    for (int i = 0; copies && i < count; i++) tl_release(ctx, copies[i]);
    free(copies);
    free(bytes);
    return st;
}

/* ---- Checksums ------------------------------------------------------------------------------- */

uint32_t tl_crc32(uint32_t before, const void *data, size_t bytes)
{
    static const uint32_t table[16] = { /* the remainders of 4 bits by 0xedb88320 */
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    const unsigned char *p = data;
    uint32_t             crc = ~before;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

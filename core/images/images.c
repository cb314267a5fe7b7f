/* images.c - sets of grey images, one byte per pixel, from which batches of token ids are made. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "engine/storage.h"
#include "images/images.h"

#define MAX_BYTES ((int64_t)1 << 40) /* bytes of a set, so that no product of sizes overflows */

static tl_status images_new(tl_ctx *ctx, int64_t count, int64_t size, tl_images **out_images)
{
    if (size < 1 || count < 0 || size > MAX_BYTES || count > MAX_BYTES / size)
        return tl_fail(ctx, TL_EINVAL, "images: %lld images of %lld bytes are out of range",
                       (long long)count, (long long)size);
    tl_images *images = tl_alloc(ctx, sizeof *images);
    if (!images) return TL_ENOMEM;
    *images = (tl_images){.ctx = ctx, .count = count, .size = size, .fd = -1, .channels = 1};
    ctx->refs++;
    *out_images = images;
    return TL_OK;
}

void tl_images_free(tl_images *images)
{
    if (!images) return;
    tl_ctx *ctx = images->ctx;
    if (images->fd >= 0) (void)close(images->fd);
    tl_release(ctx, images->path);
    tl_release(ctx, images->own);
    tl_release(ctx, images);
    tl_ctx_unref(ctx);
}

tl_status tl_images_alloc(tl_ctx *ctx, int64_t count, int64_t size, tl_images **out_images,
                          uint8_t **out_pixels)
{
    tl_images *images = NULL;
    tl_status st = images_new(ctx, count, size, &images);
    if (st != TL_OK) return st;
    images->own = tl_alloc(ctx, (size_t)(count * size) + 1); /* not NULL, even if it is empty */
    if (!images->own) {
        tl_images_free(images);
        return TL_ENOMEM;
    }
    *out_pixels = images->own;
    *out_images = images;
    return TL_OK;
}

tl_status tl_images_new(tl_ctx *ctx, const void *data, size_t bytes, int64_t size,
                        tl_images **out_images)
{
    uint8_t *pixels;
    if (size < 1 || bytes > (size_t)MAX_BYTES || (int64_t)bytes % size != 0)
        return tl_fail(ctx, TL_EINVAL, "images: %zu bytes are not a multiple of the %lld bytes "
                       "of an image", bytes, (long long)size);
    tl_status st = tl_images_alloc(ctx, (int64_t)bytes / size, size, out_images, &pixels);
    if (st == TL_OK && bytes) memcpy(pixels, data, bytes);
    return st;
}

/* The byte of the file at which image i begins. */
static int64_t place(const tl_images *images, int64_t i)
{
    return images->offset + i * images->stride;
}

/* Fails with a message if the file of bytes bytes is too short for the images. */
static tl_status check_length(const tl_images *images, int64_t bytes)
{
    int64_t need = images->count ? place(images, images->count - 1) + images->size : 0;
    if (bytes >= need) return TL_OK;
    return tl_fail(images->ctx, TL_ECORRUPT,
                   "%s: has %lld bytes, and %lld images of %lld bytes need %lld", images->path,
                   (long long)bytes, (long long)images->count, (long long)images->size,
                   (long long)need);
}

static tl_status open_file(tl_images *images, const char *path)
{
    size_t bytes, name = strlen(path) + 1;
    images->path = tl_alloc(images->ctx, name);
    if (!images->path) return TL_ENOMEM;
    memcpy(images->path, path, name);
    tl_status st = tl_file_open(images->ctx, path, &images->fd, &bytes);
    return st == TL_OK ? check_length(images, (int64_t)bytes) : st;
}

tl_status tl_images_open(tl_ctx *ctx, const char *path, int64_t offset, int64_t stride,
                         int64_t count, int64_t size, tl_images **out_images)
{
    tl_images *images = NULL;
    tl_status st = images_new(ctx, count, size, &images);
    if (st != TL_OK) return st;
    images->offset = offset;
    images->stride = stride;
    if (offset < 0 || offset > MAX_BYTES || stride < size || (count && stride > MAX_BYTES / count))
        st = tl_fail(ctx, TL_EINVAL,
                     "images: offset %lld or stride %lld is out of range for images of %lld bytes",
                     (long long)offset, (long long)stride, (long long)size);
    if (st == TL_OK) st = open_file(images, path);
    if (st == TL_OK)
        *out_images = images;
    else
        tl_images_free(images);
    return st;
}

tl_status tl_images_interleaved(tl_images *images, int64_t channels)
{
    if (channels < 1 || images->size % channels)
        return tl_fail(images->ctx, TL_EINVAL, "images: %lld bytes of an image are not pixels of "
                       "%lld channels", (long long)images->size, (long long)channels);
    images->channels = channels;
    return TL_OK;
}

int64_t tl_images_count(const tl_images *images) { return images->count; }
int64_t tl_images_size(const tl_images *images) { return images->size; }

/* Fails because the file has been cut short since it was opened. */
static tl_status fail_cut(const tl_images *images)
{
    struct stat about;
    if (fstat(images->fd, &about) != 0) return tl_fail_errno(images->ctx, "stat", images->path);
    tl_status st = check_length(images, about.st_size);
    return st != TL_OK ? st
                       : tl_fail(images->ctx, TL_ECORRUPT, "%s: changed while it was read",
                                 images->path);
}

static tl_status read_pixels(const tl_images *images, int64_t i, uint8_t *pixels)
{
    for (int64_t got = 0; got < images->size;) {
        int64_t at = place(images, i) + got;
        ssize_t n = pread(images->fd, pixels + got, (size_t)(images->size - got), (off_t)at);
        if (n < 0 && errno != EINTR) return tl_fail_errno(images->ctx, "read", images->path);
        if (n == 0) return fail_cut(images);
        if (n > 0) got += n;
    }
    return TL_OK;
}

static tl_status copy_bytes(const tl_images *images, int64_t i, uint8_t *pixels)
{
    if (!images->own) return read_pixels(images, i, pixels);
    memcpy(pixels, images->own + i * images->size, (size_t)images->size);
    return TL_OK;
}

/* Copies image i to pixels, channel by channel. */
static tl_status copy_image(const tl_images *images, int64_t i, uint8_t *pixels)
{
    int64_t c = images->channels, n = images->size / c;
    if (c == 1) return copy_bytes(images, i, pixels);
    uint8_t *mixed = tl_alloc(images->ctx, (size_t)images->size);
    if (!mixed) return TL_ENOMEM;
    tl_status st = copy_bytes(images, i, mixed);
    for (int64_t k = 0; st == TL_OK && k < images->size; k++) pixels[k] = mixed[k % n * c + k / n];
    tl_release(images->ctx, mixed);
    return st;
}

tl_status tl_images_pixels(const tl_images *images, int64_t i, uint8_t *pixels)
{
    if (i >= 0 && i < images->count) return copy_image(images, i, pixels);
    return tl_fail(images->ctx, TL_EINVAL, "images: index %lld is not in 0..%lld", (long long)i,
                   (long long)(images->count - 1));
}

tl_status tl_images_batch(const tl_images *images, const tl_tensor *index, tl_tensor **out_ids)
{
    tl_ctx *ctx = images->ctx;
    tl_tensor *ids = NULL;
    if (index->type != TL_I32 || index->ndim != 1)
        return tl_fail(ctx, index->type == TL_I32 ? TL_ESHAPE : TL_ETYPE,
                       "images: index is %s, not an int32 vector", SHAPE(index));
    tl_status st = tl_to_cpu(index);
    for (int64_t i = 0; st == TL_OK && i < index->len; i++)
        if (I32(index)[i] < 0 || I32(index)[i] >= images->count)
            st = tl_fail(ctx, TL_EINVAL, "images: index %lld is %d, not in 0..%lld",
                         tl_position(ctx, i), I32(index)[i], (long long)(images->count - 1));
    if (st == TL_OK)
        st = tl_tensor_new_host(ctx, TL_I32, 2, (int64_t[]){index->len, images->size}, &ids);
    for (int64_t i = 0; st == TL_OK && i < index->len; i++) {
        int32_t *row = I32(ids) + i * images->size;
        /* The bytes are read into the end of the row. Widening them from the front overwrites only
        ** bytes that have been widened already. */
        uint8_t *pixels = (uint8_t *)(row + images->size) - images->size;
        st = copy_image(images, I32(index)[i], pixels);
        for (int64_t k = 0; st == TL_OK && k < images->size; k++) row[k] = pixels[k];
    }
    return tl_finish(st, ids, out_ids);
}

/* test_images.c - sets of images: made from memory and from files, batches of them, wrong ones. */
#include <string.h>

#include "base/memory.h"
#include "scratch.h"
#include "test.h"
#include "toeplab-lab.h"

static tl_ctx *ctx;

static tl_tensor *vector(int count, const int32_t *values)
{
    tl_tensor *t = NULL;
    CHECK_STATUS(tl_tensor_new_host(ctx, TL_I32, 1, (int64_t[]){count}, &t), TL_OK);
    memcpy(tl_tensor_i32(t), values, (size_t)count * sizeof *values);
    return t;
}

/* Whether the batch of the images of these numbers is want [count,size]. */
static int batch_is(const tl_images *images, int count, const int32_t *numbers,
                    const int32_t *want)
{
    tl_tensor *index = vector(count, numbers), *ids = NULL;
    CHECK_STATUS(tl_images_batch(images, index, &ids), TL_OK);
    int64_t size = tl_images_size(images);
    int same = tl_tensor_ndim(ids) == 2 && tl_tensor_dim(ids, 0) == count &&
               tl_tensor_dim(ids, 1) == size &&
               !memcmp(tl_tensor_ci32(ids), want, (size_t)(count * size) * sizeof *want);
    tl_tensor_free(ids);
    tl_tensor_free(index);
    return same;
}

/* The first pixel of image i, of at most 4 bytes; -1: it cannot be read. */
static int first_pixel(const tl_images *images, int64_t i)
{
    uint8_t pixels[4];
    return tl_images_pixels(images, i, pixels) == TL_OK ? pixels[0] : -1;
}

static void images_of_memory(void)
{
    unsigned char data[] = {1, 2, 3, 255, 0, 128};
    tl_images *images = NULL;
    CHECK_STATUS(tl_images_new(ctx, data, sizeof data, 3, &images), TL_OK);
    memset(data, 9, sizeof data); /* the set has copied it */
    CHECK(tl_images_count(images) == 2 && tl_images_size(images) == 3);
    CHECK(batch_is(images, 3, (int32_t[]){1, 0, 1},
                   (int32_t[]){255, 0, 128, 1, 2, 3, 255, 0, 128}));
    CHECK(batch_is(images, 0, (int32_t[]){0}, (int32_t[]){0}));
    uint8_t pixels[3];
    CHECK_STATUS(tl_images_pixels(images, 1, pixels), TL_OK);
    CHECK(pixels[0] == 255 && pixels[2] == 128);
    CHECK_STATUS(tl_images_pixels(images, 2, pixels), TL_EINVAL);
    CHECK_STATUS(tl_images_pixels(images, -1, pixels), TL_EINVAL);
    tl_images_free(images);
    CHECK_STATUS(tl_images_new(ctx, NULL, 0, 3, &images), TL_OK);
    CHECK(tl_images_count(images) == 0);
    tl_images_free(images);
    tl_images_free(NULL);
}

/* Records of a label and 3 pixels, as in the files of CIFAR-10, behind a header. */
static void images_of_a_file(void)
{
    static const char data[] = "head\7abc\10def\11ghi";
    const char *path = scratch("images");
    tl_images *images = NULL, *labels = NULL;
    CHECK(scratch_write(path, data, sizeof data - 1));
    CHECK_STATUS(tl_images_open(ctx, path, 5, 4, 3, 3, &images), TL_OK);
    CHECK_STATUS(tl_images_open(ctx, path, 4, 4, 3, 1, &labels), TL_OK);
    CHECK(batch_is(images, 2, (int32_t[]){2, 0}, (int32_t[]){'g', 'h', 'i', 'a', 'b', 'c'}));
    CHECK(batch_is(labels, 3, (int32_t[]){0, 1, 2}, (int32_t[]){7, 8, 9}));
    (void)unlink(path); /* the set still has the file */
    CHECK(first_pixel(images, 1) == 'd');
    tl_images_free(images);
    tl_images_free(labels);
}

static void a_file_that_is_cut_short(void)
{
    const char *path = scratch("cut");
    tl_images *images = NULL;
    tl_tensor *last = vector(1, (int32_t[]){2}), *ids = NULL;
    CHECK(scratch_write(path, "aaabbbccc", 9));
    CHECK_STATUS(tl_images_open(ctx, path, 0, 3, 3, 3, &images), TL_OK);
    static const int lengths[] = {8, 6, 3, 0}; /* image 1 ends at byte 6 */
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int bytes = lengths[i];
        CHECK(truncate(path, bytes) == 0);
        CHECK_STATUS(tl_images_batch(images, last, &ids), TL_ECORRUPT);
        char message[64];
        (void)snprintf(message, sizeof message, "has %d bytes, and 3 images of 3 bytes need 9",
                       bytes);
        CHECK(strstr(tl_errmsg(ctx), message));
        CHECK(first_pixel(images, 2) == -1);
        CHECK(first_pixel(images, 1) == (bytes >= 6 ? 'b' : -1));
    }
    tl_images_free(images);
    CHECK(scratch_write(path, "head\1aa\2bb\3cc", 13));
    CHECK_STATUS(tl_images_open(ctx, path, 5, 3, 3, 2, &images), TL_OK);
    CHECK(truncate(path, 6) == 0);
    CHECK_STATUS(tl_images_batch(images, last, &ids), TL_ECORRUPT);
    CHECK(strstr(tl_errmsg(ctx), "has 6 bytes, and 3 images of 2 bytes need 13"));
    tl_images_free(images);
    tl_tensor_free(last);
}

static void wrong_files(void)
{
    static const struct {
        int64_t offset, stride, count, size;
        tl_status want;
        const char *message;
    } cases[] = {
        {0, 4, 4, 4, TL_OK, ""},
        {0, 4, 0, 4, TL_OK, ""},
        {1, 4, 4, 4, TL_ECORRUPT, "has 16 bytes, and 4 images of 4 bytes need 17"},
        {0, 4, 5, 4, TL_ECORRUPT, "has 16 bytes, and 5 images of 4 bytes need 20"},
        {-1, 4, 1, 4, TL_EINVAL, "offset -1 or stride 4 is out of range for images of 4 bytes"},
        {0, 3, 1, 4, TL_EINVAL, "offset 0 or stride 3 is out of range"},
        {0, INT64_MAX, 2, 4, TL_EINVAL, "out of range"},
        {0, 4, -1, 4, TL_EINVAL, "-1 images of 4 bytes are out of range"},
        {0, 4, INT64_MAX, 4, TL_EINVAL, "out of range"},
        {0, 4, 1, 0, TL_EINVAL, "1 images of 0 bytes are out of range"},
    };
    tl_images *images = NULL;
    const char *path = scratch("wrong");
    CHECK(scratch_write(path, "0123456789abcdef", 16));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tl_status got = tl_images_open(ctx, path, cases[i].offset, cases[i].stride, cases[i].count,
                                       cases[i].size, &images);
        CHECK_STATUS(got, cases[i].want);
        if (got != TL_OK) CHECK(strstr(tl_errmsg(ctx), cases[i].message));
        if (got == TL_OK) tl_images_free(images);
    }
    CHECK_STATUS(tl_images_open(ctx, scratch("none"), 0, 1, 1, 1, &images), TL_ENOTFOUND);
    CHECK_STATUS(tl_images_open(ctx, scratch_folder, 0, 1, 1, 1, &images), TL_EINVAL);
    CHECK_STATUS(tl_images_new(ctx, "abc", 3, 2, &images), TL_EINVAL);
    CHECK_STATUS(tl_images_new(ctx, "abc", 3, 0, &images), TL_EINVAL);
}

static void wrong_numbers(void)
{
    tl_images *images = NULL;
    tl_tensor *ids = NULL, *wrong = vector(2, (int32_t[]){1, 2}), *real = NULL;
    CHECK_STATUS(tl_images_new(ctx, "abcd", 4, 2, &images), TL_OK);
    CHECK_STATUS(tl_images_batch(images, wrong, &ids), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "index 1 is 2, not in 0..1"));
    tl_tensor_i32(wrong)[1] = -1;
    CHECK_STATUS(tl_images_batch(images, wrong, &ids), TL_EINVAL);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 1, (int64_t[]){1}, &real), TL_OK);
    CHECK_STATUS(tl_images_batch(images, real, &ids), TL_ETYPE);
    tl_tensor_free(real);
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 0, NULL, &real), TL_OK);
    CHECK_STATUS(tl_images_batch(images, real, &ids), TL_ESHAPE);
    tl_tensor_free(real);
    tl_tensor_free(wrong);
    tl_images_free(images);
}

static void interleaved_channels(void)
{
    tl_images *images = NULL;
    CHECK_STATUS(tl_images_new(ctx, "abcdefghijkl", 12, 6, &images), TL_OK);
    CHECK_STATUS(tl_images_interleaved(images, 4), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "6 bytes of an image are not pixels of 4 channels"));
    CHECK_STATUS(tl_images_interleaved(images, 3), TL_OK);
    CHECK(batch_is(images, 2, (int32_t[]){1, 0},
                   (int32_t[]){'g', 'j', 'h', 'k', 'i', 'l', 'a', 'd', 'b', 'e', 'c', 'f'}));
    tl_images_free(images);
}

enum { BATCH = 7, SIZE = 3 * 6 * 5 };

/* Alters images of any levels by each operation in turn, on the threads of c. */
static void alter_all(tl_ctx *c, int32_t *levels)
{
    tl_tensor *ids, *operations, *amounts, *fill, *y;
    CHECK_STATUS(tl_tensor_new_host(c, TL_I32, 2, (int64_t[]){BATCH, SIZE}, &ids), TL_OK);
    CHECK_STATUS(tl_tensor_new_host(c, TL_I32, 2, (int64_t[]){BATCH, 2}, &operations), TL_OK);
    CHECK_STATUS(tl_tensor_new_host(c, TL_F32, 2, (int64_t[]){BATCH, 2}, &amounts), TL_OK);
    CHECK_STATUS(tl_tensor_new_host(c, TL_I32, 1, (int64_t[]){3}, &fill), TL_OK);
    for (int i = 0; i < BATCH * SIZE; i++) tl_tensor_i32(ids)[i] = i * 37 % 256;
    for (int i = 0; i < 2 * BATCH; i++) {
        tl_tensor_i32(operations)[i] = i + 2;
        tl_tensor_f32(amounts)[i] = 0.3f;
    }
    for (int i = 0; i < 3; i++) tl_tensor_i32(fill)[i] = 9;
    CHECK_STATUS(tl_images_alter(ids, 3, 6, 5, operations, amounts, fill, &y), TL_OK);
    memcpy(levels, tl_tensor_ci32(y), BATCH * SIZE * sizeof *levels);
    tl_tensor_free(y);
    CHECK_STATUS(tl_images_alter(ids, 3, 5, 5, operations, amounts, fill, &y), TL_ESHAPE);
    CHECK_STATUS(tl_images_alter(ids, 2, 9, 5, operations, amounts, fill, &y), TL_EINVAL);
    CHECK_STATUS(tl_images_alter(ids, 3, 6, 5, operations, operations, fill, &y), TL_ETYPE);
    tl_tensor_i32(ids)[3] = 256;
    CHECK_STATUS(tl_images_alter(ids, 3, 6, 5, operations, amounts, fill, &y), TL_EINVAL);
    CHECK(strstr(tl_errmsg(c), "level 3 is 256, not in 0..255"));
    tl_tensor_free(ids);
    tl_tensor_free(operations);
    tl_tensor_free(amounts);
    tl_tensor_free(fill);
}

static void altered_by_any_number_of_threads(void)
{
    int32_t one[BATCH * SIZE], three[BATCH * SIZE];
    tl_ctx *other = NULL;
    CHECK_STATUS(tl_ctx_new(3, &other), TL_OK);
    alter_all(ctx, one);
    alter_all(other, three);
    tl_ctx_free(other);
    CHECK(!memcmp(one, three, sizeof one));
}

int main(void)
{
    if (!scratch_new() || tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int failed = run_tests((const test[]){
        {"images of memory", images_of_memory},
        {"images of a file", images_of_a_file},
        {"a file that is cut short", a_file_that_is_cut_short},
        {"wrong files", wrong_files},
        {"wrong numbers", wrong_numbers},
        {"interleaved channels", interleaved_channels},
        {"altered by any number of threads", altered_by_any_number_of_threads},
        {0},
    });
    failed |= tl_memory_info(ctx).tensors != 0;
    tl_ctx_free(ctx);
    scratch_free();
    return failed;
}

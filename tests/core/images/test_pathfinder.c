/* test_pathfinder.c - Pathfinder: images depend on the seed and their number alone, the disks lie
** where the label says, contours are whole, wrong options; and how lines and disks are scaled. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "images/draw.h"
#include "images/images.h"
#include "test.h"
#include "toeplab-lab.h"

#define SEGMENTS 14

static tl_ctx *ctx;

typedef struct drawn {
    tl_images *images;
    tl_tensor *labels, *facts, *paths;
} drawn;

static drawn draw(tl_ctx *with, int64_t size, int64_t first, int64_t count)
{
    drawn d = {0};
    tl_pathfinder o = {.bytes = sizeof o, .size = size, .seed = 7, .first = first, .count = count};
    CHECK_STATUS(tl_pathfinder_draw(with, &o, &d.images, &d.labels, &d.facts, &d.paths), TL_OK);
    return d;
}

static const uint8_t *pixels_of(const drawn *d, int64_t i)
{
    return d->images->own + i * d->images->size;
}

static void drawn_free(drawn *d)
{
    tl_images_free(d->images);
    tl_tensor_free(d->labels);
    tl_tensor_free(d->facts);
    tl_tensor_free(d->paths);
}

/* Whether image i of a equals image k of b, with its label and its facts. */
static int same(const drawn *a, int64_t i, const drawn *b, int64_t k)
{
    const float *x = tl_tensor_cf32(a->facts), *y = tl_tensor_cf32(b->facts);
    return !memcmp(pixels_of(a, i), pixels_of(b, k), (size_t)tl_images_size(a->images)) &&
           tl_tensor_ci32(a->labels)[i] == tl_tensor_ci32(b->labels)[k] &&
           !memcmp(x + i * TL_PATHFINDER_FACTS, y + k * TL_PATHFINDER_FACTS,
                   TL_PATHFINDER_FACTS * sizeof *x);
}

/* ---- Images ---------------------------------------------------------------------------------- */

static void an_image_depends_on_the_seed_and_its_number_alone(void)
{
    drawn all = draw(ctx, 32, 0, 40), part = draw(ctx, 32, 25, 15);
    for (int i = 0; i < 15; i++) CHECK(same(&all, 25 + i, &part, i));
    CHECK(!same(&all, 0, &part, 0) && !same(&all, 1, &all, 2));
    for (int threads = 2; threads <= 3; threads++) {
        tl_ctx *other;
        CHECK_STATUS(tl_ctx_new(threads, &other), TL_OK);
        drawn again = draw(other, 32, 0, 40);
        for (int i = 0; i < 40; i++) CHECK(same(&all, i, &again, i));
        drawn_free(&again);
        tl_ctx_free(other);
    }
    drawn_free(&all);
    drawn_free(&part);
}

/* A change of these hashes is a change of the data: raise the version in tasks/pathfinder.lua. */
static void images_have_not_changed(void)
{
    static const struct {
        int64_t size, count;
        const char *hash;
    } cases[] = {
        {32, 20, "0927156791f65ee4"},
        {64, 1, "c357aab99a22fbaa"},
        {128, 2, "9b7cc3f270f38953"},
        {256, 1, "f8215c34203e1e9b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char hash[65];
        drawn d = draw(ctx, cases[i].size, 0, cases[i].count);
        tl_sha256(pixels_of(&d, 0), (size_t)(cases[i].count * tl_images_size(d.images)), hash);
        CHECK(tl_images_size(d.images) == cases[i].size * cases[i].size);
        CHECK(strncmp(hash, cases[i].hash, 16) == 0);
        drawn_free(&d);
    }
}

static void half_of_the_labels_are_1(void)
{
    enum { COUNT = 600 };
    drawn d = draw(ctx, 32, 0, COUNT);
    int ones = 0;
    for (int i = 0; i < COUNT; i++) {
        int label = tl_tensor_ci32(d.labels)[i];
        CHECK(label == 0 || label == 1);
        ones += label;
    }
    CHECK_NEAR(ones, COUNT / 2, 4 * sqrt(COUNT) / 2);
    drawn_free(&d);
}

/* ---- Contours -------------------------------------------------------------------------------- */

/* The contour of which at is that end: 0 the first tail, 1 the last head; -1: none. */
static int contour_at(const int32_t *paths, int end, const float *at)
{
    for (int contour = 0; contour < 2; contour++) {
        const int32_t *path = paths + contour * SEGMENTS * 4;
        const int32_t *point = end ? path + (SEGMENTS - 1) * 4 + 2 : path;
        if (point[0] == (int)at[0] && point[1] == (int)at[1]) return contour;
    }
    return -1;
}

/* Each segment begins near the head of the one before: the gap is 2 margin, rounded up twice. */
static int is_whole(const int32_t *path, int margin)
{
    for (int k = 1; k < SEGMENTS; k++) {
        const int32_t *head = path + (k - 1) * 4 + 2, *tail = path + k * 4;
        if (hypot(tail[0] - head[0], tail[1] - head[1]) > 2 * margin + 3) return 0;
    }
    return 1;
}

/* Whether each segment of a path is drawn: a pixel on its way is bright. */
static int is_drawn(const int32_t *path, const uint8_t *pixels, int size, int least)
{
    for (int k = 0; k < SEGMENTS; k++, path += 4) {
        int most = 0;
        for (int i = 0; i <= 8; i++) {
            int row = (int)lrint(path[0] + i * (path[2] - path[0]) / 8.0);
            int col = (int)lrint(path[1] + i * (path[3] - path[1]) / 8.0);
            if (row < 0 || row >= size || col < 0 || col >= size) continue;
            if (pixels[row * size + col] > most) most = pixels[row * size + col];
        }
        if (most < least) return 0;
    }
    return 1;
}

static void disks_lie_on_the_ends_that_the_label_says(void)
{
    static const int64_t sizes[] = {32, 128};
    for (size_t k = 0; k < 2; k++) {
        int64_t size = sizes[k], count = size == 32 ? 200 : 5;
        drawn d = draw(ctx, size, 0, count);
        for (int64_t i = 0; i < count; i++) {
            const float *facts = tl_tensor_cf32(d.facts) + i * TL_PATHFINDER_FACTS;
            const int32_t *paths = tl_tensor_ci32(d.paths) + i * 2 * SEGMENTS * 4;
            const uint8_t *pixels = pixels_of(&d, i);
            int first = contour_at(paths, 0, facts + TL_FACT_MARKERS);
            int last = contour_at(paths, 1, facts + TL_FACT_MARKERS + 2);
            CHECK(first >= 0 && last >= 0);
            CHECK((first == last) == (tl_tensor_ci32(d.labels)[i] == 1));
            for (int m = 0; m < 2; m++) {
                int row = (int)facts[TL_FACT_MARKERS + 2 * m];
                int col = (int)facts[TL_FACT_MARKERS + 2 * m + 1];
                CHECK(pixels[row * size + col] >= 221); /* the least of the published images */
                CHECK(is_whole(paths + m * SEGMENTS * 4, (int)facts[TL_FACT_MARGIN]));
                CHECK(is_drawn(paths + m * SEGMENTS * 4, pixels, (int)size,
                               size == 32 ? 100 : 170));
            }
        }
        drawn_free(&d);
    }
}

static void the_margin_of_path_x_is_2_or_3(void)
{
    drawn d = draw(ctx, 128, 0, 12);
    int threes = 0;
    for (int i = 0; i < 12; i++) {
        float margin = tl_tensor_cf32(d.facts)[i * TL_PATHFINDER_FACTS + TL_FACT_MARGIN];
        CHECK(margin == 2 || margin == 3);
        threes += margin == 3;
    }
    CHECK(threes > 0 && threes < 12);
    drawn_free(&d);
}

static void wrong_options(void)
{
    enum { BYTES = sizeof(tl_pathfinder) };
    static const struct {
        tl_pathfinder options;
        const char *message;
    } cases[] = {
        {{8, 32, 1, 0, 1}, "pathfinder: options.bytes is 8, "},
        {{BYTES, 48, 1, 0, 1}, "size is 48, not 32, 64, 128 or 256"},
        {{BYTES, 32, 1, 0, 0}, "first 0 or count 0 is out of range"},
        {{BYTES, 32, 1, -1, 1}, "first -1 or count 1 is out of range"},
        {{BYTES, 32, 1, INT64_MAX, 1}, "is out of range"},
        {{BYTES, 32, 1, 0, INT64_MAX}, "is out of range"},
    };
    tl_images *images = NULL;
    tl_tensor *labels = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(tl_pathfinder_draw(ctx, &cases[i].options, &images, &labels, NULL, NULL),
                     TL_EINVAL);
        CHECK(strstr(tl_errmsg(ctx), cases[i].message));
    }
}

static void without_memory_nothing_is_left(void)
{
    tl_pathfinder o = {.bytes = sizeof o, .size = 32, .seed = 1, .count = 1};
    tl_images *images = NULL;
    tl_tensor *labels = NULL, *facts = NULL, *paths = NULL;
    size_t live = tl_memory_info(ctx).live;
    tl_status st = TL_ENOMEM;
    int n = 0;
    for (; st == TL_ENOMEM && n < 100; n++) {
        tl_alloc_fail_after(ctx, n);
        st = tl_pathfinder_draw(ctx, &o, &images, &labels, &facts, &paths);
        tl_alloc_fail_after(ctx, -1);
        if (st != TL_OK) CHECK(tl_memory_info(ctx).live == live);
    }
    CHECK(st == TL_OK && n > 10);
    drawn_free(&(drawn){images, labels, facts, paths});
}

/* ---- Drawing --------------------------------------------------------------------------------- */

/* The rows of a canvas as text, '#' for a pixel that is set. */
static int canvas_is(const uint8_t *canvas, int size, const char *want)
{
    for (int i = 0; i < size * size; i++)
        if ((canvas[i] != 0) != (want[i + i / size] == '#')) return 0;
    return 1;
}

static void lines_and_disks(void)
{
    uint8_t canvas[49] = {0}, dilated[49];
    tl_draw_line(canvas, 7, 1, 1, 3, 5, 1);
    CHECK(canvas_is(canvas, 7, ".......\n.#.....\n..##...\n....##.\n.......\n.......\n......."));
    memset(canvas, 0, sizeof canvas);
    tl_draw_line(canvas, 7, 3, 1, 3, 5, 3);
    CHECK(canvas_is(canvas, 7, ".......\n.......\n.#####.\n.#####.\n.#####.\n.......\n......."));
    memset(canvas, 0, sizeof canvas);
    tl_draw_line(canvas, 7, 3, 3, 3, 3, 3); /* a point */
    CHECK(canvas_is(canvas, 7, ".......\n.......\n.......\n...#...\n.......\n.......\n......."));
    tl_draw_dilated(canvas, 7, 2, dilated);
    CHECK(canvas_is(dilated, 7, ".......\n...#...\n..###..\n.#####.\n..###..\n...#...\n......."));
    memset(canvas, 0, sizeof canvas);
    tl_draw_disk(canvas, 7, 0, 6, 1.5);
    CHECK(canvas_is(canvas, 7, ".....##\n.....##\n.......\n.......\n.......\n.......\n......."));
}

static void scaling_keeps_what_is_constant(void)
{
    tl_lanczos l;
    uint8_t canvas[64 * 64], scratch[64 * 32], scaled[32 * 32] = {0};
    tl_window all = {0, 0, 31, 31}, part = {3, 4, 5, 30};
    CHECK_STATUS(tl_lanczos_new(ctx, 64, 32, &l), TL_OK);
    memset(canvas, 200, sizeof canvas);
    tl_lanczos_scale(&l, canvas, all, scratch, scaled);
    for (int i = 0; i < 32 * 32; i++) CHECK(scaled[i] == 200);
    for (int i = 0; i < 64 * 64; i++) canvas[i] = (uint8_t)(i * i % 251);
    tl_lanczos_scale(&l, canvas, all, scratch, scaled);
    uint8_t again[32 * 32] = {0};
    tl_lanczos_scale(&l, canvas, part, scratch, again);
    for (int r = 3; r <= 5; r++)
        CHECK(!memcmp(again + r * 32 + 4, scaled + r * 32 + 4, 27));
    CHECK(again[2 * 32 + 10] == 0 && again[6 * 32 + 10] == 0);
    tl_lanczos_free(ctx, &l);
}

int main(void)
{
    if (tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int failed = run_tests((const test[]){
        {"an image depends on the seed and its number alone",
         an_image_depends_on_the_seed_and_its_number_alone},
        {"the images have not changed", images_have_not_changed},
        {"half of the labels are 1", half_of_the_labels_are_1},
        {"disks lie on the ends that the label says", disks_lie_on_the_ends_that_the_label_says},
        {"the margin of Path-X is 2 or 3", the_margin_of_path_x_is_2_or_3},
        {"wrong options", wrong_options},
        {"without memory nothing is left", without_memory_nothing_is_left},
        {"lines and disks", lines_and_disks},
        {"scaling keeps what is constant", scaling_keeps_what_is_constant},
        {0},
    });
    tl_ctx_free(ctx);
    return failed;
}

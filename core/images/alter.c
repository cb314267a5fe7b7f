/* alter.c - the operations of RandAugment (Cubuk et al. 2020) on images of bytes, as the Python
** library Pillow computes them and timm composes them. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "engine/storage.h"
#include "images/draw.h"
#include "images/images.h"

#define LEVELS 256

typedef struct picture { /* the planes of an image, one after another, and scratch of its size */
    int channels, height, width;
    int32_t *x, *scratch;
    const int32_t *fill; /* [channels]: the colour beyond the edge */
} picture;

static int pixels_of(const picture *p) { return p->height * p->width; }

static int32_t clip(float v) { return v <= 0 ? 0 : v >= LEVELS - 1 ? LEVELS - 1 : (int32_t)v; }

/* The brightness of pixel i by the weights of ITU-R 601 in 16 bits, rounded. */
static int32_t grey(const picture *p, int i)
{
    int n = pixels_of(p);
    if (p->channels == 1) return p->x[i];
    return (19595 * p->x[i] + 38470 * p->x[n + i] + 7471 * p->x[2 * n + i] + 32768) >> 16;
}

/* ---- Levels, each changed by itself ---------------------------------------------------------- */

static void histogram(const int32_t *x, int n, int64_t *counts)
{
    memset(counts, 0, LEVELS * sizeof *counts);
    for (int i = 0; i < n; i++) counts[x[i]]++;
}

/* Stretches the levels of a plane to 0..255. */
static void stretch(const int32_t *x, int n, int32_t *table)
{
    int64_t counts[LEVELS];
    int low = 0, high = LEVELS - 1;
    histogram(x, n, counts);
    while (low < high && !counts[low]) low++;
    while (high > low && !counts[high]) high--;
    for (int i = 0; high > low && i < LEVELS; i++) {
        double scale = 255.0 / (high - low);
        int level = (int)(i * scale - low * scale);
        table[i] = level < 0 ? 0 : level > LEVELS - 1 ? LEVELS - 1 : level;
    }
}

/* Spreads the levels of a plane so that each is about as frequent. */
static void equalize(const int32_t *x, int n, int32_t *table)
{
    int64_t counts[LEVELS], total = 0, last = 0;
    histogram(x, n, counts);
    for (int i = 0; i < LEVELS; i++)
        if (counts[i]) total += last = counts[i];
    int64_t step = (total - last) / (LEVELS - 1), sum = step / 2;
    for (int i = 0; step && i < LEVELS; sum += counts[i++])
        table[i] = (int32_t)(sum / step > LEVELS - 1 ? LEVELS - 1 : sum / step);
}

static int32_t level_of(int operation, int amount, int i)
{
    switch (operation) {
    case TL_ALTER_INVERT: return LEVELS - 1 - i;
    case TL_ALTER_POSTERIZE: return amount >= 8 ? i : i & ~((1 << (8 - amount)) - 1);
    case TL_ALTER_SOLARIZE: return i < amount ? i : LEVELS - 1 - i;
    case TL_ALTER_SOLARIZE_ADD:
        return i >= LEVELS / 2 ? i : i + amount < LEVELS ? i + amount : LEVELS - 1;
    default: return i;
    }
}

static void map_levels(const picture *p, int operation, int amount)
{
    int n = pixels_of(p);
    for (int c = 0; c < p->channels; c++) {
        int32_t *x = p->x + c * n, table[LEVELS];
        for (int i = 0; i < LEVELS; i++) table[i] = level_of(operation, amount, i);
        if (operation == TL_ALTER_AUTOCONTRAST) stretch(x, n, table);
        if (operation == TL_ALTER_EQUALIZE) equalize(x, n, table);
        for (int i = 0; i < n; i++) x[i] = table[x[i]];
    }
}

/* ---- Blends of an image and a plainer one ---------------------------------------------------- */

/* An image smoothed by a 3 x 3 filter of weights 1, and 5 in the middle; its edge stays. */
static int32_t smooth(const picture *p, const int32_t *x, int row, int column)
{
    int w = p->width, at = row * w + column;
    if (row == 0 || column == 0 || row == p->height - 1 || column == w - 1) return x[at];
    int sum = 4 * x[at];
    for (int i = -1; i <= 1; i++)
        for (int j = -1; j <= 1; j++) sum += x[at + i * w + j];
    return (2 * sum + 13) / 26;
}

static int32_t mean_grey(const picture *p)
{
    int64_t sum = 0, n = pixels_of(p);
    for (int i = 0; i < n; i++) sum += grey(p, i);
    return (int32_t)((2 * sum + n) / (2 * n));
}

/* Replaces x by plain + factor (x - plain), where plain is a plainer image. */
static void blend(const picture *p, int operation, float factor)
{
    int n = pixels_of(p);
    int32_t mean = operation == TL_ALTER_CONTRAST ? mean_grey(p) : 0;
    for (int c = 0; c < p->channels; c++)
        for (int i = 0; i < n; i++) {
            const int32_t *x = p->x + c * n;
            int32_t plain = mean;
            if (operation == TL_ALTER_COLOR) plain = grey(p, i);
            if (operation == TL_ALTER_SHARPNESS) plain = smooth(p, x, i / p->width, i % p->width);
            p->scratch[c * n + i] = clip((float)plain + factor * (float)(x[i] - plain));
        }
    memcpy(p->x, p->scratch, (size_t)(p->channels * n) * sizeof *p->x);
}

/* ---- Movements ------------------------------------------------------------------------------- */

static double cubic(double v1, double v2, double v3, double v4, double d)
{
    return v2 + d * (v3 - v1 + d * (2 * (v1 - v2) + v3 - v4 + d * (v2 - v1 - v3 + v4)));
}

static int within(int i, int count) { return i < 0 ? 0 : i >= count ? count - 1 : i; }

/* The value of a plane at (across, down) in pixels by cubic interpolation, or fill outside. */
static int32_t sample(const picture *p, const int32_t *x, double across, double down, int32_t fill)
{
    if (!(across >= 0 && across < p->width && down >= 0 && down < p->height)) return fill;
    double values[4], column = floor(across - 0.5), row = floor(down - 0.5);
    for (int i = 0; i < 4; i++) {
        const int32_t *line = x + within((int)row - 1 + i, p->height) * p->width;
        int32_t v[4];
        for (int j = 0; j < 4; j++) v[j] = line[within((int)column - 1 + j, p->width)];
        values[i] = cubic(v[0], v[1], v[2], v[3], across - 0.5 - column);
    }
    return clip((float)cubic(values[0], values[1], values[2], values[3], down - 0.5 - row));
}

/* Fills m with the affine map from the pixels of the altered image to those of the given one. */
static void map_of(const picture *p, int operation, double amount, double *m)
{
    double angle = -amount * TL_PI / 180, x = 0.5 * p->width, y = 0.5 * p->height;
    memcpy(m, (double[]){1, 0, 0, 0, 1, 0}, 6 * sizeof *m);
    switch (operation) {
    case TL_ALTER_SHEAR_X: m[1] = amount; break;
    case TL_ALTER_SHEAR_Y: m[3] = amount; break;
    case TL_ALTER_TRANSLATE_X: m[2] = amount * p->width; break;
    case TL_ALTER_TRANSLATE_Y: m[5] = amount * p->height; break;
    default: /* TL_ALTER_ROTATE */
        m[0] = m[4] = round(cos(angle) * 1e15) / 1e15; /* as Pillow does: exact at 90 degrees */
        m[1] = round(sin(angle) * 1e15) / 1e15, m[3] = -m[1];
        m[2] = x - m[0] * x - m[1] * y, m[5] = y - m[3] * x - m[4] * y;
    }
}

static void move(const picture *p, int operation, double amount)
{
    int n = pixels_of(p);
    double m[6];
    map_of(p, operation, amount, m);
    for (int c = 0; c < p->channels; c++)
        for (int i = 0; i < n; i++) {
            double x = i % p->width + 0.5, y = i / p->width + 0.5;
            p->scratch[c * n + i] = sample(p, p->x + c * n, m[0] * x + m[1] * y + m[2],
                                           m[3] * x + m[4] * y + m[5], p->fill[c]);
        }
    memcpy(p->x, p->scratch, (size_t)(p->channels * n) * sizeof *p->x);
}

/* ---- Batches --------------------------------------------------------------------------------- */

static void alter(const picture *p, int operation, float amount)
{
    if (operation >= TL_ALTER_ROTATE)
        move(p, operation, amount);
    else if (operation >= TL_ALTER_COLOR)
        blend(p, operation, amount);
    else if (operation > TL_ALTER_NONE)
        map_levels(p, operation, (int)amount);
}

typedef struct batch {
    int channels, height, width;
    int64_t count; /* operations of an image */
    int32_t *x, *scratch;
    const int32_t *operations, *fill;
    const float *amounts;
} batch;

static void alter_some(void *about, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const batch *b = about;
    int64_t size = (int64_t)b->channels * b->height * b->width;
    for (int64_t i = first; i < last; i++) {
        picture p = {b->channels, b->height, b->width, b->x + i * size, b->scratch + i * size,
                     b->fill};
        for (int64_t k = i * b->count; k < (i + 1) * b->count; k++)
            alter(&p, b->operations[k], b->amounts[k]);
    }
}

/* Fails with a message unless all numbers of a tensor called what are in 0..most. */
static tl_status check_range(const char *what, const tl_tensor *t, int most)
{
    for (int64_t i = 0; i < t->len; i++)
        if (I32(t)[i] < 0 || I32(t)[i] > most)
            return tl_fail(t->ctx, TL_EINVAL, "images_alter: %s %lld is %d, not in 0..%d", what,
                           tl_position(t->ctx, i), I32(t)[i], most);
    return TL_OK;
}

static tl_status check(const tl_tensor *ids, int64_t channels, int64_t height, int64_t width,
                       const tl_tensor *operations, const tl_tensor *amounts,
                       const tl_tensor *fill)
{
    tl_ctx *ctx = ids->ctx;
    if (ids->type != TL_I32 || operations->type != TL_I32 || amounts->type != TL_F32
        || fill->type != TL_I32)
        return tl_fail(ctx, TL_ETYPE, "images_alter: ids, operations and fill must be int32, "
                       "amounts float32");
    if ((channels != 1 && channels != 3) || height < 1 || width < 1 || height > 1 << 14
        || width > 1 << 14)
        return tl_fail(ctx, TL_EINVAL, "images_alter: %lld channels of %lld x %lld, not 1 or 3 "
                       "channels of 1 x 1 to 16384 x 16384", (long long)channels,
                       (long long)height, (long long)width);
    if (ids->ndim != 2 || ids->dims[1] != channels * height * width || operations->ndim != 2
        || operations->dims[0] != ids->dims[0] || amounts->ndim != 2
        || amounts->dims[0] != ids->dims[0] || amounts->dims[1] != operations->dims[1]
        || fill->len != channels)
        return tl_fail(ctx, TL_ESHAPE, "images_alter: ids are %s, operations %s, amounts %s, fill "
                       "%s, not [b,%lld], [b,k], [b,k] and [%lld]", SHAPE(ids),
                       SHAPE(operations), SHAPE(amounts), SHAPE(fill),
                       (long long)(channels * height * width), (long long)channels);
    tl_status st = tl_to_cpu(ids);
    if (st == TL_OK) st = tl_to_cpu(operations);
    if (st == TL_OK) st = tl_to_cpu(amounts);
    if (st == TL_OK) st = tl_to_cpu(fill);
    if (st == TL_OK) st = check_range("level", ids, LEVELS - 1);
    if (st == TL_OK) st = check_range("fill", fill, LEVELS - 1);
    return st == TL_OK ? check_range("operation", operations, TL_ALTER_TRANSLATE_Y) : st;
}

tl_status tl_images_alter(const tl_tensor *ids, int64_t channels, int64_t height, int64_t width,
                          const tl_tensor *operations, const tl_tensor *amounts,
                          const tl_tensor *fill, tl_tensor **out_ids)
{
    tl_ctx *ctx = ids->ctx;
    tl_tensor *y = NULL;
    int32_t *scratch = NULL;
    tl_status st = check(ids, channels, height, width, operations, amounts, fill);
    if (st == TL_OK) st = tl_tensor_new_host(ctx, TL_I32, 2, ids->dims, &y);
    if (st == TL_OK) {
        size_t bytes = (size_t)ids->len * sizeof *scratch;
        scratch = tl_alloc(ctx, bytes + 1); /* not NULL, even if it is empty */
        if (!scratch) st = TL_ENOMEM;
        else if (bytes) memcpy(I32(y), I32(ids), bytes);
    }
    if (st == TL_OK) {
        batch b = {(int)channels, (int)height, (int)width, operations->dims[1], I32(y), scratch,
                   I32(operations), I32(fill), F32(amounts)};
        tl_parallel(ctx, ids->dims[0], 1, alter_some, &b);
    }
    tl_release(ctx, scratch);
    return tl_finish(st, y, out_ids);
}

/* pathfinder.c - Pathfinder (Linsley et al. 2018): whether two disks lie on the ends of one dashed
** contour or of two. The images are like those of Long Range Arena, drawn by the rules of the
** published generator (contours.c).
**
** Each image is drawn from a part of the stream of its own, so that image i depends on the seed and
** i alone, whatever else is drawn, and by how many threads. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "engine/tensor.h"
#include "images/contours.h"
#include "images/draw.h"
#include "images/images.h"

#define BLOCKS           32 /* bits of the stream position within one image */
#define MAX_IMAGES       ((int64_t)1 << 31)
#define DISTRACTOR_TRIES 5
#define SUPPORT          4 /* pixels by which scaling widens a disk */

/* The settings of Long Range Arena for contours of 14 segments. At 32x32 the published generator
** draws distractors brighter than the two contours. */
static const tl_style styles[] = {
    {.window = 32, .padding = 1, .antialias = 2, .length = 2, .thickness = 0.5, .margins = {1, 1},
     .seed_distance = 7, .continuity = 1.0, .marker_radius = 1.5, .distractors = 5,
     .distractor_segments = 4, .contrast = 1.5, .distractor_contrast = 2},
    {.window = 64, .padding = 1, .antialias = 2, .length = 5, .thickness = 1, .margins = {1, 1},
     .seed_distance = 12, .continuity = 1.8, .marker_radius = 2.5, .distractors = 5,
     .distractor_segments = 4, .contrast = 0.8, .distractor_contrast = 0.8},
    {.window = 128, .padding = 1, .antialias = 2, .length = 5, .thickness = 1.5, .margins = {2, 3},
     .seed_distance = 20, .continuity = 1.8, .marker_radius = 3, .distractors = 8,
     .distractor_segments = 4, .contrast = 0.9, .distractor_contrast = 0.9},
    {.window = 256, .padding = 22, .antialias = 2, .length = 5, .thickness = 2, .margins = {3, 3},
     .seed_distance = 27, .continuity = 1.8, .marker_radius = 5, .distractors = 7,
     .distractor_segments = 4, .contrast = 1, .distractor_contrast = 1},
};

/* The buffers of one thread. */
typedef struct easel {
    uint8_t *mask, *saved, *taken, *contours, *distractors, *markers; /* [window,window] */
    uint8_t *canvas, *scratch; /* [fine,fine], [fine,window], where fine = window antialias */
} easel;

typedef struct drawing {
    const tl_style *style;
    tl_stream stream;
    int64_t first;
    tl_segments *segments[2]; /* of each margin */
    tl_lanczos scale;         /* of the canvas of a marker */
    easel *easels;            /* [threads] */
    uint8_t *memory;
    uint8_t *pixels; /* the results */
    int32_t *labels, *paths;
    float *facts;
} drawing;

typedef struct scene {
    int label, margin, distractors;
    tl_contour pair[2], distractor[8];
    int markers[2][2];
    float facts[TL_PATHFINDER_FACTS];
} scene;

/* ---- One image ------------------------------------------------------------------------------- */

static void compose(tl_field *f, scene *s)
{
    const tl_style *style = f->segments->style;
    tl_grown grown;
    do {
        grown = tl_grow_pair(f, s->pair);
        s->facts[TL_FACT_PAIRS]++;
        s->facts[TL_FACT_NO_SEEDS] += grown == TL_NO_SEEDS;
    } while (grown != TL_GROWN);
    for (int i = 0; i < style->distractors; i++) {
        int try = 0;
        do {
            grown = tl_grow_distractor(f, &s->distractor[s->distractors]);
            s->facts[TL_FACT_TRIES]++;
        } while (grown != TL_GROWN && ++try < DISTRACTOR_TRIES);
        s->distractors += grown == TL_GROWN;
    }
    int first = (int)tl_random_below(f->stream, 2), last = s->label ? first : 1 - first;
    const tl_placed *tail = &s->pair[first].placed[0];
    const tl_placed *head = &s->pair[last].placed[TL_SEGMENTS - 1];
    memcpy(s->markers, (const int[2][2]){{tail->row, tail->col}, {head->row, head->col}},
           sizeof s->markers);
}

/* Adds the lines of a contour to the image `to` by their maximum. */
static void draw_contour(const tl_segments *s, const tl_contour *contour, uint8_t *to)
{
    for (int i = 0; i < contour->count; i++) {
        const tl_placed *p = &contour->placed[i];
        tl_overlap o = tl_overlap_of(s, p);
        const uint8_t *line = s->lines + (size_t)p->way * (size_t)(s->side * s->side) + o.start;
        for (int r = o.top; r <= o.bottom; r++, line += s->side) {
            uint8_t *row = to + r * s->style->window + o.left;
            for (int c = 0; c <= o.right - o.left; c++)
                row[c] = row[c] > line[c] ? row[c] : line[c];
        }
    }
}

/* Adds a marker to e->markers by its maximum. e->taken serves as scratch space. */
static void draw_marker(const drawing *d, const easel *e, const int at[2])
{
    const tl_style *style = d->style;
    int fine = d->scale.from, reach = (int)ceil(style->marker_radius) + SUPPORT;
    int last = style->window - 1;
    tl_window w = {at[0] - reach, at[1] - reach, at[0] + reach, at[1] + reach};
    if (w.top < 0) w.top = 0;
    if (w.left < 0) w.left = 0;
    if (w.bottom > last) w.bottom = last;
    if (w.right > last) w.right = last;
    memset(e->canvas, 0, (size_t)fine * (size_t)fine);
    tl_draw_disk(e->canvas, fine, at[0] * style->antialias, at[1] * style->antialias,
                 style->marker_radius * style->antialias);
    tl_lanczos_scale(&d->scale, e->canvas, w, e->scratch, e->taken);
    for (int r = w.top; r <= w.bottom; r++)
        for (int i = r * style->window + w.left; i <= r * style->window + w.right; i++)
            e->markers[i] = e->markers[i] > e->taken[i] ? e->markers[i] : e->taken[i];
}

/* The value of a pixel before the image is stretched to 0..255. */
static double brightness(const drawing *d, const easel *e, int i)
{
    double value = (float)(e->contours[i] / 255.0 * d->style->contrast);
    double other = (float)(e->distractors[i] / 255.0 * d->style->distractor_contrast);
    double marker = e->markers[i] / 255.0;
    value = value > other ? value : other;
    return value > marker ? value : marker;
}

static void draw_scene(const drawing *d, const tl_segments *segments, scene *s, const easel *e,
                       uint8_t *pixels)
{
    int area = d->style->window * d->style->window;
    double least = INFINITY, most = -INFINITY;
    memset(e->contours, 0, (size_t)area);
    memset(e->distractors, 0, (size_t)area);
    memset(e->markers, 0, (size_t)area);
    for (int i = 0; i < 2; i++) draw_contour(segments, &s->pair[i], e->contours);
    for (int i = 0; i < s->distractors; i++)
        draw_contour(segments, &s->distractor[i], e->distractors);
    for (int i = 0; i < 2; i++) draw_marker(d, e, s->markers[i]);
    for (int i = 0; i < area; i++) {
        double value = brightness(d, e, i);
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    for (int i = 0; i < area; i++)
        pixels[i] = (uint8_t)((brightness(d, e, i) - least) * (255 / (most - least)) + 0.5);
    s->facts[TL_FACT_PEAK] = (float)most;
    s->facts[TL_FACT_FLOOR] = (float)least;
}

/* ---- All images ------------------------------------------------------------------------------ */

/* Writes the tail and the head of each segment of both contours. */
static void write_paths(const tl_segments *segments, const scene *s, int32_t *paths)
{
    for (int i = 0; i < 2 * TL_SEGMENTS; i++, paths += 4) {
        const tl_placed *p = &s->pair[i / TL_SEGMENTS].placed[i % TL_SEGMENTS];
        int known[2] = {p->row, p->col}, other[2], begins = i % TL_SEGMENTS == 0;
        double angle = segments->angles[p->way];
        if (!begins) angle += angle < 0 ? TL_PI : -TL_PI;
        tl_translate(known, angle, segments->style->length, other);
        for (int axis = 0; axis < 2; axis++) {
            paths[axis] = begins ? known[axis] : other[axis];
            paths[2 + axis] = begins ? other[axis] : known[axis];
        }
    }
}

static void draw_image(const drawing *d, const easel *e, int64_t i)
{
    scene s = {0};
    tl_stream stream = d->stream;
    stream.offset = (uint64_t)(d->first + i) << BLOCKS;
    s.label = (int)tl_random_below(&stream, 2);
    s.margin = (int)tl_random_below(&stream, 2);
    const tl_segments *segments = d->segments[s.margin];
    tl_field field = {segments, &stream, e->mask, e->saved, e->taken};
    compose(&field, &s);
    draw_scene(d, segments, &s, e, d->pixels + i * d->style->window * d->style->window);
    d->labels[i] = s.label;
    if (d->paths) write_paths(segments, &s, d->paths + i * 2 * TL_SEGMENTS * 4);
    if (!d->facts) return;
    for (int k = 0; k < 4; k++) s.facts[TL_FACT_MARKERS + k] = (float)s.markers[k / 2][k % 2];
    s.facts[TL_FACT_MARGIN] = (float)segments->margin;
    s.facts[TL_FACT_DISTRACTORS] = (float)s.distractors;
    memcpy(d->facts + i * TL_PATHFINDER_FACTS, s.facts, sizeof s.facts);
}

static void draw_images(void *user, int64_t begin, int64_t end, int part)
{
    const drawing *d = user;
    for (int64_t i = begin; i < end; i++) draw_image(d, &d->easels[part], i);
}

static void drawing_free(tl_ctx *ctx, drawing *d)
{
    tl_segments_free(ctx, d->segments[0]);
    if (d->segments[1] != d->segments[0]) tl_segments_free(ctx, d->segments[1]);
    tl_lanczos_free(ctx, &d->scale);
    tl_release(ctx, d->easels);
    tl_release(ctx, d->memory);
}

static tl_status drawing_new(tl_ctx *ctx, const tl_pathfinder *o, const tl_style *style, drawing *d)
{
    size_t area = (size_t)style->window * (size_t)style->window;
    size_t each = area * (size_t)(6 + style->antialias * style->antialias + style->antialias);
    size_t threads = (size_t)ctx->threads;
    *d = (drawing){.style = style, .first = o->first};
    d->stream = tl_stream_new(o->seed, "pathfinder");
    tl_status st = tl_segments_new(ctx, style, style->margins[0], &d->segments[0]);
    d->segments[1] = d->segments[0];
    if (st == TL_OK && style->margins[1] != style->margins[0])
        st = tl_segments_new(ctx, style, style->margins[1], &d->segments[1]);
    if (st == TL_OK)
        st = tl_lanczos_new(ctx, style->window * style->antialias, style->window, &d->scale);
    if (st != TL_OK) return st;
    d->easels = tl_alloc(ctx, threads * sizeof *d->easels);
    d->memory = tl_alloc(ctx, threads * each);
    if (!d->easels || !d->memory) return TL_ENOMEM;
    for (size_t t = 0; t < threads; t++) {
        uint8_t *at = d->memory + t * each;
        d->easels[t] = (easel){at, at + area, at + 2 * area, at + 3 * area, at + 4 * area,
                               at + 5 * area, at + 6 * area, NULL};
        d->easels[t].scratch = d->easels[t].canvas + area * (size_t)(style->antialias *
                                                                     style->antialias);
    }
    return TL_OK;
}

static tl_status pathfinder_check(tl_ctx *ctx, const tl_pathfinder *o, const tl_style **out_style)
{
    tl_status st = tl_check_bytes(ctx, "pathfinder", o->bytes, sizeof *o);
    if (st != TL_OK) return st;
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
        if (styles[i].window == o->size) *out_style = &styles[i];
    if (!*out_style)
        return tl_fail(ctx, TL_EINVAL, "pathfinder: size is %lld, not 32, 64, 128 or 256",
                       (long long)o->size);
    if (o->count < 1 || o->count > MAX_IMAGES || o->first < 0 || o->first > MAX_IMAGES - o->count)
        return tl_fail(ctx, TL_EINVAL, "pathfinder: first %lld or count %lld is out of range",
                       (long long)o->first, (long long)o->count);
    return TL_OK;
}

tl_status tl_pathfinder_draw(tl_ctx *ctx, const tl_pathfinder *o, tl_images **out_images,
                             tl_tensor **out_labels, tl_tensor **out_facts, tl_tensor **out_paths)
{
    const tl_style *style = NULL;
    drawing d = {0};
    tl_images *images = NULL;
    tl_tensor *labels = NULL, *facts = NULL, *paths = NULL;
    tl_status st = pathfinder_check(ctx, o, &style);
    if (st == TL_OK) st = drawing_new(ctx, o, style, &d);
    if (st == TL_OK)
        st = tl_images_alloc(ctx, o->count, (int64_t)style->window * style->window, &images,
                             &d.pixels);
    if (st == TL_OK) st = tl_tensor_new_host(ctx, TL_I32, 1, &o->count, &labels);
    if (st == TL_OK && out_facts)
        st = tl_tensor_new_host(ctx, TL_F32, 2, (int64_t[]){o->count, TL_PATHFINDER_FACTS}, &facts);
    if (st == TL_OK && out_paths)
        st = tl_tensor_new_host(ctx, TL_I32, 4, (int64_t[]){o->count, 2, TL_SEGMENTS, 4}, &paths);
    if (st == TL_OK) {
        d.labels = I32(labels);
        d.facts = facts ? F32(facts) : NULL;
        d.paths = paths ? I32(paths) : NULL;
        tl_parallel(ctx, o->count, 1, draw_images, &d);
        *out_images = images;
        *out_labels = labels;
        if (out_facts) *out_facts = facts;
        if (out_paths) *out_paths = paths;
    } else {
        tl_images_free(images);
        tl_tensor_free(labels);
        tl_tensor_free(facts);
        tl_tensor_free(paths);
    }
    drawing_free(ctx, &d);
    return st;
}

/* contours.c - grows the dashed contours of Pathfinder on an occupancy mask, with the rules and the
** rounding of the published generator (Linsley et al. 2018, drewlinsley/pathfinder of 2019).
**
** A segment that continues a contour ends at one of a fixed set of pixels around its pivot, and one
** that begins a contour points to a whole number of degrees. So all segments are drawn once, and an
** attempt only compares and copies small pictures. At 32x32 about 320 pairs of contours are tried
** for each image.
**
** Conventions of the published generator that decide the statistics:
**   - Where a contour may begin depends on the direction (the footprint). If in some corner of the
**     image the whole footprint lies outside, it finds no place at all. At 32x32 that is so for 330
**     of 360 directions, so that every first contour begins towards the upper left.
**   - A segment joins the mask when its successor is accepted. The last segment of the first
**     contour never does, so a distractor may touch it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "images/contours.h"
#include "images/draw.h"

#define SEGMENT_TRIES  3
#define MAX_FREE_MASK  76   /* the largest mask that counts as free: 0.3 of 255 */
#define MIN_FREE_SHARE 0.01 /* the share of free pixels below which no distractor is tried */
#define NEGLIGIBLE     1e-12 /* the weight of a turn that is never taken */

/* A mask of k is a float32 of k / 255 in the published generator. */
static double occupied(int k) { return (double)(float)(k / 255.0); }

void tl_translate(const int from[2], double angle, double distance, int out[2])
{
    out[0] = (int)ceil(from[0] + distance * sin(angle));
    out[1] = (int)ceil(from[1] + distance * cos(angle));
}

/* ---- Segments -------------------------------------------------------------------------------- */

static int compare_offsets(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return x[0] != y[0] ? x[0] - y[0] : x[1] - y[1];
}

/* Writes the distinct pixels on the circle around a pivot, and returns their number. */
static int circle(int radius, int (*offsets)[2])
{
    int points = 0, count = 0;
    for (; points < 2 * TL_PI * radius; points++) {
        offsets[points][0] = (int)floor(radius * sin((double)points / radius));
        offsets[points][1] = (int)floor(radius * cos((double)points / radius));
    }
    qsort(offsets, (size_t)points, sizeof *offsets, compare_offsets);
    for (int i = 0; i < points; i++)
        if (i == 0 || compare_offsets(offsets[i], offsets[count - 1]) != 0)
            memmove(offsets[count++], offsets[i], sizeof *offsets);
    return count;
}

/* The weight of a turn between two angles in -pi..pi. */
static double turn_weight(double from, double to, double continuity)
{
    double turn = fabs(to - from);
    turn = fmin(fmin(turn, 2 * TL_PI - turn) * continuity, TL_PI / 2);
    return cos(turn) * cos(turn);
}

/* Draws the segment from the centre of a picture towards angle. canvas has two squares. */
static void draw_segment(const tl_segments *s, const tl_lanczos *l, double angle, uint8_t *canvas,
                         uint8_t *scratch, int way)
{
    const tl_style *style = s->style;
    size_t at = (size_t)way * (size_t)(s->side * s->side), area = (size_t)l->from * (size_t)l->from;
    int centre[2] = {s->reach * style->antialias, s->reach * style->antialias}, end[2];
    tl_window all = {0, 0, s->side - 1, s->side - 1};
    tl_translate(centre, angle, style->length * style->antialias, end);
    memset(canvas, 0, area);
    tl_draw_line(canvas, l->from, centre[0], centre[1], end[0], end[1],
                 (int)(style->thickness * style->antialias + 0.5));
    tl_lanczos_scale(l, canvas, all, scratch, s->lines + at);
    tl_draw_dilated(canvas, l->from, s->margin * style->antialias, canvas + area);
    tl_lanczos_scale(l, canvas + area, all, scratch, s->masks + at);
    for (int i = 0; i < s->side * s->side; i++) {
        int most = 255;
        while (most > 0 && occupied(s->masks[at + (size_t)i]) + occupied(most) >= 1.8) most--;
        s->allowed[at + (size_t)i] = (uint8_t)most;
    }
}

/* Whether in some corner of the image all offsets lead outside. */
static int leaves_a_corner(const int8_t (*offsets)[2], int size)
{
    for (int corner = 0; corner < 4; corner++) {
        int down = corner & 1 ? -1 : 1, right = corner & 2 ? -1 : 1, outside = 0;
        for (int i = 0; i < size; i++)
            outside += offsets[i][0] * down < 0 || offsets[i][1] * right < 0;
        if (outside == size) return 1;
    }
    return 0;
}

/* Collects the pixels that a first segment fully occupies. The published generator centres them
** one pixel off, which shifts them down and right, and cuts them by that pixel. */
static void collect_footprint(tl_segments *s, int way)
{
    int near = s->style->length + s->margin, size = 0;
    const uint8_t *mask = s->masks + (size_t)way * (size_t)(s->side * s->side);
    int8_t (*offsets)[2] = s->footprints[way].offsets;
    for (int r = -near - 1; r < near; r++)
        for (int c = -near - 1; c < near; c++)
            if (mask[(r + s->reach) * s->side + c + s->reach] == 255) {
                offsets[size][0] = (int8_t)(r + 1);
                offsets[size++][1] = (int8_t)(c + 1);
            }
    s->footprints[way].size = leaves_a_corner((const int8_t (*)[2])offsets, size) ? 0 : size;
}

static tl_status draw_segments(tl_ctx *ctx, tl_segments *s)
{
    tl_lanczos l;
    int fine = 2 * s->reach * s->style->antialias + 1;
    tl_status st = tl_lanczos_new(ctx, fine, s->side, &l);
    if (st != TL_OK) return st;
    uint8_t *canvas = tl_alloc(ctx, 3 * (size_t)fine * (size_t)fine);
    for (int way = 0; canvas && way < s->ways; way++) {
        uint8_t *scratch = canvas + 2 * (size_t)fine * (size_t)fine;
        double angle = s->angles[way];
        /* a segment that continues a contour is drawn from its head backwards */
        if (way >= TL_DEGREES) angle += angle < 0 ? TL_PI : -TL_PI;
        draw_segment(s, &l, angle, canvas, scratch, way);
        if (way < TL_DEGREES) collect_footprint(s, way);
    }
    st = canvas ? TL_OK : TL_ENOMEM;
    tl_release(ctx, canvas);
    tl_lanczos_free(ctx, &l);
    return st;
}

void tl_segments_free(tl_ctx *ctx, tl_segments *s)
{
    if (!s) return;
    tl_release(ctx, s->offsets);
    tl_release(ctx, s->angles);
    tl_release(ctx, s->turns);
    tl_release(ctx, s->lines);
    tl_release(ctx, s);
}

static tl_status allocate(tl_ctx *ctx, tl_segments *s)
{
    size_t ways = (size_t)s->ways, pictures = ways * (size_t)(s->side * s->side);
    s->angles = tl_alloc(ctx, ways * sizeof *s->angles);
    s->turns = tl_alloc(ctx, ways * (size_t)s->candidates * sizeof *s->turns);
    s->lines = tl_alloc(ctx, 3 * pictures);
    if (!s->angles || !s->turns || !s->lines) return TL_ENOMEM;
    s->masks = s->lines + pictures;
    s->allowed = s->masks + pictures;
    return TL_OK;
}

tl_status tl_segments_new(tl_ctx *ctx, const tl_style *style, int margin, tl_segments **out_s)
{
    tl_segments *s = tl_alloc(ctx, sizeof *s);
    if (!s) return TL_ENOMEM;
    *s = (tl_segments){.style = style, .margin = margin};
    s->reach = style->length + (int)ceil(style->thickness) + margin;
    s->side = 2 * s->reach + 1;
    for (int r = 0; r <= margin; r++) s->widths[r] = (int)sqrt(margin * margin - r * r);
    int radius = style->length + margin;
    s->offsets = tl_alloc(ctx, TL_CANDIDATES * sizeof *s->offsets);
    s->candidates = s->offsets ? circle(radius, s->offsets) : 0;
    s->ways = TL_DEGREES + s->candidates;
    tl_status st = s->offsets ? allocate(ctx, s) : TL_ENOMEM;
    for (int way = 0; st == TL_OK && way < s->ways; way++) {
        const int *offset = s->offsets[way < TL_DEGREES ? 0 : way - TL_DEGREES];
        s->angles[way] = way < TL_DEGREES ? (way - 180) * TL_PI / 180 : atan2(offset[0], offset[1]);
    }
    for (int way = 0; st == TL_OK && way < s->ways; way++)
        for (int c = 0; c < s->candidates; c++)
            s->turns[way * s->candidates + c] =
                turn_weight(s->angles[way], s->angles[TL_DEGREES + c], style->continuity);
    if (st == TL_OK) st = draw_segments(ctx, s);
    if (st == TL_OK)
        *out_s = s;
    else
        tl_segments_free(ctx, s);
    return st;
}

/* ---- Placing --------------------------------------------------------------------------------- */

tl_overlap tl_overlap_of(const tl_segments *s, const tl_placed *p)
{
    int last = s->style->window - 1, top = p->row - s->reach, left = p->col - s->reach;
    tl_overlap o = {.top = top < 0 ? 0 : top, .left = left < 0 ? 0 : left,
                    .bottom = top + s->side - 1, .right = left + s->side - 1};
    if (o.bottom > last) o.bottom = last;
    if (o.right > last) o.right = last;
    o.start = (o.top - top) * s->side + o.left - left;
    return o;
}

static size_t picture(const tl_segments *s, const tl_placed *p)
{
    return (size_t)p->way * (size_t)(s->side * s->side);
}

/* Whether the mask is small enough everywhere under a segment. */
static int fits(const tl_field *f, const tl_placed *p)
{
    const tl_segments *s = f->segments;
    tl_overlap o = tl_overlap_of(s, p);
    const uint8_t *allowed = s->allowed + picture(s, p) + o.start;
    for (int r = o.top; r <= o.bottom; r++, allowed += s->side) {
        const uint8_t *mask = f->mask + r * s->style->window + o.left;
        int over = 0;
        for (int c = 0; c <= o.right - o.left; c++) over |= mask[c] > allowed[c];
        if (over) return 0;
    }
    return 1;
}

static void occupy(tl_field *f, const tl_placed *p)
{
    const tl_segments *s = f->segments;
    tl_overlap o = tl_overlap_of(s, p);
    const uint8_t *more = s->masks + picture(s, p) + o.start;
    for (int r = o.top; r <= o.bottom; r++, more += s->side) {
        uint8_t *mask = f->mask + r * s->style->window + o.left;
        for (int c = 0; c <= o.right - o.left; c++)
            mask[c] = mask[c] > more[c] ? mask[c] : more[c];
    }
}

static int inside(const tl_field *f, const int at[2])
{
    int window = f->segments->style->window;
    return at[0] >= 0 && at[0] < window && at[1] >= 0 && at[1] < window;
}

/* The largest mask within the margin of a pixel. */
static int nearby(const tl_field *f, const int at[2])
{
    int window = f->segments->style->window, margin = f->segments->margin, most = 0;
    for (int dr = -margin; dr <= margin; dr++) {
        int row = at[0] + dr, width = f->segments->widths[abs(dr)];
        if (row < 0 || row >= window) continue;
        int left = at[1] - width, right = at[1] + width;
        if (left < 0) left = 0;
        if (right >= window) right = window - 1;
        const uint8_t *mask = f->mask + row * window;
        for (int c = left; c <= right; c++) most = mask[c] > most ? mask[c] : most;
    }
    return most;
}

/* ---- Growing --------------------------------------------------------------------------------- */

/* Writes the running sums of the candidates' weights, and returns the total. */
static double candidate_weights(const tl_field *f, const tl_contour *contour, double *sums)
{
    const tl_segments *s = f->segments;
    const double *turns = s->turns + contour->placed[contour->count - 1].way * s->candidates;
    double sum = 0;
    for (int c = 0; c < s->candidates; c++) {
        int head[2] = {contour->pivot[0] + s->offsets[c][0], contour->pivot[1] + s->offsets[c][1]};
        if (turns[c] > NEGLIGIBLE && inside(f, head))
            sum += (1 - occupied(nearby(f, head))) * turns[c];
        sums[c] = sum;
    }
    return sum;
}

/* Adds a segment to a contour. Returns 0 if none fits. */
static int extend(tl_field *f, tl_contour *contour)
{
    const tl_segments *s = f->segments;
    const tl_placed *last = &contour->placed[contour->count - 1];
    double sums[TL_CANDIDATES];
    int pivot[2];
    tl_translate(contour->pivot, s->angles[last->way], s->style->length + 2 * s->margin, pivot);
    memcpy(contour->pivot, pivot, sizeof pivot);
    double total = candidate_weights(f, contour, sums);
    if (total < 1e-4) return 0;
    for (int try = 0; try < SEGMENT_TRIES; try++) {
        double target = tl_random_unit(f->stream) * total;
        int c = 0;
        while (sums[c] <= target && sums[c] < total) c++;
        tl_placed next = {TL_DEGREES + c, pivot[0] + s->offsets[c][0], pivot[1] + s->offsets[c][1]};
        if (!fits(f, &next)) continue;
        occupy(f, last);
        contour->placed[contour->count++] = next;
        return 1;
    }
    return 0;
}

/* Begins a contour at a tail. Returns 0 if its head or its pivot lies outside. */
static int begin(const tl_field *f, tl_contour *contour, int way, const int tail[2])
{
    const tl_segments *s = f->segments;
    double angle = s->angles[way];
    int head[2];
    tl_translate(tail, angle, s->style->length, head);
    tl_translate(head, angle + (angle < 0 ? TL_PI : -TL_PI), s->style->length + s->margin,
                 contour->pivot);
    contour->count = 1;
    contour->placed[0] = (tl_placed){way, tail[0], tail[1]};
    return inside(f, head) && inside(f, contour->pivot);
}

static int draw_way(tl_field *f) { return (int)tl_random_below(f->stream, TL_DEGREES); }

/* Draws a tail in the middle of the image, far enough from its edges for both contours. */
static int central_tail(tl_field *f, int way, int tail[2])
{
    int edge = 2 * f->segments->style->seed_distance, window = f->segments->style->window;
    int size = f->segments->footprints[way].size;
    if (size == 0) return 0;
    for (int axis = 0; axis < 2; axis++) {
        int least = 0, most = 0;
        for (int i = 0; i < size; i++) {
            int offset = f->segments->footprints[way].offsets[i][axis];
            if (i == 0 || offset < least) least = offset;
            if (i == 0 || offset > most) most = offset;
        }
        int first = edge - least, count = window - edge - most - first;
        if (count <= 0) return 0;
        tail[axis] = first + (int)tl_random_below(f->stream, count);
    }
    return 1;
}

static int begin_pair(tl_field *f, tl_contour pair[2])
{
    int tail[2], second[2], good = 0;
    for (int try = 0; try < SEGMENT_TRIES && !good; try++) {
        int way = draw_way(f);
        if (!central_tail(f, way, tail)) return 0;
        good = begin(f, &pair[0], way, tail);
    }
    if (!good) return 0;
    for (int try = 0; try < SEGMENT_TRIES; try++) {
        int way = draw_way(f), distance = f->segments->style->seed_distance;
        double angle = (double)tl_random_below(f->stream, 360) * TL_PI / 180;
        second[0] = (int)rint(tail[0] + distance * sin(angle));
        second[1] = (int)rint(tail[1] + distance * cos(angle));
        if (begin(f, &pair[1], way, second)) return 1;
    }
    return 0;
}

static void empty_mask(tl_field *f)
{
    int window = f->segments->style->window, padding = f->segments->style->padding;
    for (int r = 0; r < window; r++) {
        int edge = r < padding || r >= window - padding;
        memset(f->mask + r * window, edge ? 255 : 0, (size_t)window);
        memset(f->mask + r * window, 255, (size_t)padding);
        memset(f->mask + (r + 1) * window - padding, 255, (size_t)padding);
    }
}

tl_grown tl_grow_pair(tl_field *f, tl_contour pair[2])
{
    if (!begin_pair(f, pair)) return TL_NO_SEEDS;
    empty_mask(f);
    for (int i = 1; i < TL_SEGMENTS; i++)
        if (!extend(f, &pair[0]) || !extend(f, &pair[1])) return TL_STUCK;
    occupy(f, &pair[1].placed[TL_SEGMENTS - 1]);
    return TL_GROWN;
}

/* ---- Distractors ----------------------------------------------------------------------------- */

/* Marks the tails at which the footprint of a way is not free, and returns how many are left. */
static int64_t find_tails(tl_field *f, int way)
{
    int window = f->segments->style->window;
    int64_t area = (int64_t)window * window, left = 0;
    memset(f->taken, 0, (size_t)area);
    for (int i = 0; i < f->segments->footprints[way].size; i++) {
        const int8_t *offset = f->segments->footprints[way].offsets[i];
        int down = offset[0], right = offset[1];
        int top = down < 0 ? -down : 0, bottom = window - (down > 0 ? down : 0);
        int first = right < 0 ? -right : 0, end = window - (right > 0 ? right : 0);
        for (int r = top; r < bottom; r++) {
            const uint8_t *mask = f->mask + (r + down) * window;
            uint8_t *taken = f->taken + r * window;
            for (int c = first; c < end; c++) taken[c] |= mask[c + right] > MAX_FREE_MASK;
        }
    }
    for (int64_t i = 0; i < area; i++) left += !f->taken[i];
    return left;
}

/* Whether too few pixels are free for a distractor. */
static int crowded(const tl_field *f)
{
    int64_t window = f->segments->style->window, free = 0;
    for (int64_t i = 0; i < window * window; i++) free += f->mask[i] <= MAX_FREE_MASK;
    return (double)free / (double)(window * window) < MIN_FREE_SHARE;
}

static int begin_distractor(tl_field *f, tl_contour *contour)
{
    if (crowded(f)) return 0;
    for (int try = 0; try < SEGMENT_TRIES; try++) {
        int way = draw_way(f), window = f->segments->style->window;
        int64_t tails = f->segments->footprints[way].size ? find_tails(f, way) : 0, at = 0;
        if (tails == 0) return 0;
        int64_t skipped = tl_random_below(f->stream, tails);
        while (f->taken[at] || skipped-- > 0) at++;
        if (begin(f, contour, way, (const int[]){(int)(at / window), (int)(at % window)})) return 1;
    }
    return 0;
}

tl_grown tl_grow_distractor(tl_field *f, tl_contour *contour)
{
    size_t area = (size_t)f->segments->style->window * (size_t)f->segments->style->window;
    if (!begin_distractor(f, contour)) return TL_NO_SEEDS;
    memcpy(f->saved, f->mask, area);
    while (contour->count < f->segments->style->distractor_segments)
        if (!extend(f, contour)) {
            memcpy(f->mask, f->saved, area);
            return TL_STUCK;
        }
    occupy(f, &contour->placed[contour->count - 1]);
    return TL_GROWN;
}

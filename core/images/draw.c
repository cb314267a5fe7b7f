/* draw.c - draws lines and disks on square canvases of bytes, and scales canvases down.
**
** The published Pathfinder images were drawn by Pillow. Whether a pixel of a wide line is set, and
** how a scaled pixel is rounded, changes their statistics, so this file follows its conventions:
** half pixels are rounded away from 0 for the beginning of a run and towards 0 for its end, and
** weights have 22 binary places. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "images/draw.h"

#define LOBES  3
#define PLACES 22

static int round_up(double x) { return (int)(x < 0 ? -floor(-x + 0.5) : floor(x + 0.5)); }
static int round_down(double x) { return (int)(x < 0 ? -ceil(-x - 0.5) : ceil(x - 0.5)); }

/* ---- Lines ----------------------------------------------------------------------------------- */

/* A line one pixel wide, by Bresenham's algorithm. */
static void thin_line(uint8_t *canvas, int size, int row, int col, int to_row, int to_col)
{
    int rows = abs(to_row - row), cols = abs(to_col - col);
    int down = to_row > row ? 1 : -1, right = to_col > col ? 1 : -1;
    int steep = rows >= cols, long_way = steep ? rows : cols, short_way = steep ? cols : rows;
    int error = 2 * short_way - long_way;
    for (int i = 0; i <= long_way; i++) {
        canvas[row * size + col] = 255;
        if (error >= 0 && short_way > 0) {
            if (steep) col += right;
            else row += down;
            error -= 2 * long_way;
        }
        error += 2 * short_way;
        if (steep) row += down;
        else col += right;
    }
}

/* The columns that the edges of a polygon span on a row. */
static void edge_span(const int a[2], const int b[2], int row, double *least, double *most)
{
    int low = a[0] < b[0] ? a[0] : b[0], high = a[0] < b[0] ? b[0] : a[0];
    if (row < low || row > high) return;
    double slope = low == high ? 0 : (double)(b[1] - a[1]) / (b[0] - a[0]);
    double col = (row - a[0]) * slope + a[1], end = low == high ? b[1] : col;
    *least = fmin(*least, fmin(col, end));
    *most = fmax(*most, fmax(col, end));
}

static void wide_line(uint8_t *canvas, int size, int row, int col, int to_row, int to_col,
                      int width)
{
    int rows = to_row - row, cols = to_col - col;
    double length = hypot(rows, cols), half = (width - 1) / 2.0;
    double more = round_up(half) / length, less = round_down(half) / length;
    int up = round_up(more * cols), down = round_up(less * cols);
    int left = round_down(less * rows), right = round_down(more * rows);
    const int corners[4][2] = {{row + up, col - left},
                               {to_row + up, to_col - left},
                               {to_row - down, to_col + right},
                               {row - down, col + right}};
    int top = size, bottom = -1;
    for (int i = 0; i < 4; i++) {
        if (corners[i][0] < top) top = corners[i][0];
        if (corners[i][0] > bottom) bottom = corners[i][0];
    }
    for (int r = top; r <= bottom; r++) {
        double least = size, most = -1;
        for (int i = 0; i < 4; i++) edge_span(corners[i], corners[(i + 1) % 4], r, &least, &most);
        for (int c = round_up(least); c <= round_down(most); c++) canvas[r * size + c] = 255;
    }
}

void tl_draw_line(uint8_t *canvas, int size, int row, int col, int to_row, int to_col, int width)
{
    if (width > 1 && (row != to_row || col != to_col))
        wide_line(canvas, size, row, col, to_row, to_col, width);
    else
        thin_line(canvas, size, row, col, to_row, to_col);
}

/* ---- Disks ----------------------------------------------------------------------------------- */

void tl_draw_disk(uint8_t *canvas, int size, int row, int col, double radius)
{
    int reach = (int)radius;
    for (int dr = -reach; dr <= reach; dr++)
        for (int dc = -reach; dc <= reach; dc++) {
            int r = row + dr, c = col + dc;
            if (dr * dr + dc * dc <= radius * radius && r >= 0 && r < size && c >= 0 && c < size)
                canvas[r * size + c] = 255;
        }
}

void tl_draw_dilated(const uint8_t *from, int size, int radius, uint8_t *to)
{
    memset(to, 0, (size_t)size * (size_t)size);
    for (int r = 0; r < size; r++)
        for (int c = 0; c < size; c++)
            if (from[r * size + c]) tl_draw_disk(to, size, r, c, radius);
}

/* ---- Scaling --------------------------------------------------------------------------------- */

static double sinc(double x) { return x == 0 ? 1 : sin(TL_PI * x) / (TL_PI * x); }

static double lanczos(double x) { return fabs(x) < LOBES ? sinc(x) * sinc(x / LOBES) : 0; }

/* Computes the weights of pixel i: of the source pixels whose centres are within the filter's
** support, normalised to a sum of 1. */
static void lanczos_row(tl_lanczos *l, int i, double *row)
{
    double scale = (double)l->from / l->to, centre = (i + 0.5) * scale, support = LOBES * scale;
    int first = (int)(centre - support + 0.5), end = (int)(centre + support + 0.5);
    double sum = 0;
    if (first < 0) first = 0;
    if (end > l->from) end = l->from;
    for (int k = first; k < end; k++)
        sum += row[k - first] = lanczos((k - centre + 0.5) / scale);
    for (int k = 0; k < l->taps; k++) {
        double weight = k < end - first ? row[k] / sum * (1 << PLACES) : 0;
        l->weights[i * l->taps + k] = (int32_t)(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    if (first > l->from - l->taps) { /* the weights behind the last source pixel are 0 */
        int shift = first - (l->from - l->taps);
        int32_t *weights = l->weights + (size_t)i * (size_t)l->taps;
        memmove(weights + shift, weights, (size_t)(l->taps - shift) * sizeof *weights);
        memset(weights, 0, (size_t)shift * sizeof *weights);
        first -= shift;
    }
    l->first[i] = first;
}

tl_status tl_lanczos_new(tl_ctx *ctx, int from, int to, tl_lanczos *out_l)
{
    tl_lanczos l = {.from = from, .to = to};
    l.taps = (int)ceil(LOBES * (double)from / to) * 2 + 1;
    if (l.taps > from) l.taps = from;
    l.first = tl_alloc(ctx, (size_t)to * sizeof *l.first);
    l.weights = tl_alloc(ctx, (size_t)to * (size_t)l.taps * sizeof *l.weights);
    double *row = tl_alloc(ctx, (size_t)l.taps * sizeof *row);
    if (!l.first || !l.weights || !row) {
        tl_release(ctx, row);
        tl_lanczos_free(ctx, &l);
        return TL_ENOMEM;
    }
    for (int i = 0; i < to; i++) lanczos_row(&l, i, row);
    tl_release(ctx, row);
    *out_l = l;
    return TL_OK;
}

void tl_lanczos_free(tl_ctx *ctx, tl_lanczos *l)
{
    tl_release(ctx, l->first);
    tl_release(ctx, l->weights);
    *l = (tl_lanczos){0};
}

/* The weighted mean of source pixels that lie stride bytes apart. */
static uint8_t lanczos_pixel(const tl_lanczos *l, int i, const uint8_t *from, int stride)
{
    const int32_t *weights = l->weights + i * l->taps;
    int64_t sum = 1 << (PLACES - 1);
    from += (ptrdiff_t)l->first[i] * stride;
    for (int k = 0; k < l->taps; k++) sum += (int64_t)weights[k] * from[k * stride];
    sum >>= PLACES;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

void tl_lanczos_scale(const tl_lanczos *l, const uint8_t *canvas, tl_window window,
                      uint8_t *scratch, uint8_t *result)
{
    int end = l->first[window.bottom] + l->taps;
    for (int r = l->first[window.top]; r < end; r++)
        for (int c = window.left; c <= window.right; c++)
            scratch[r * l->to + c] = lanczos_pixel(l, c, canvas + r * l->from, 1);
    for (int r = window.top; r <= window.bottom; r++)
        for (int c = window.left; c <= window.right; c++)
            result[r * l->to + c] = lanczos_pixel(l, r, scratch + c, l->to);
}

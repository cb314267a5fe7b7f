/* contours.h - grows the dashed contours of Pathfinder on an occupancy mask. */
#ifndef TL_CONTOURS_H
#define TL_CONTOURS_H

#include "base/context.h"

#define TL_SEGMENTS 14 /* of a contour; a distractor has fewer */

/* What decides the images of one size. Lengths are in pixels. */
typedef struct tl_style {
    int window, padding; /* an image is [window,window]; `padding` pixels at its edge stay free */
    int antialias;       /* lines are drawn on a canvas finer by this factor */
    int length;          /* of a segment */
    double thickness;
    int margins[2];      /* half the gap between segments; one of the two is drawn for each image */
    int seed_distance;   /* between the first tails of both contours */
    double continuity;   /* a turn of a has the weight cos^2 of min(continuity |a|, 90 degrees) */
    double marker_radius;
    int distractors, distractor_segments;
    double contrast, distractor_contrast;
} tl_style;

/* The segments that can be drawn with one margin, each with its pictures. A segment is known by its
** way: 0..359 begins a contour at its tail and points to the angle way - 180 degrees; way 360 + c
** continues a contour, its head is candidate c of those around the pivot. A picture is
** [side,side] around the tail of a first segment, or the head of any other one. */
#define TL_DEGREES    360
#define TL_MARGIN     3
#define TL_CANDIDATES 64  /* at most, for length + margin up to 10 */
#define TL_FOOTPRINT  289 /* at most, for length + margin up to 8 */
typedef struct tl_segments {
    const tl_style *style;
    int margin, reach, side; /* side = 2 reach + 1 */
    int candidates, ways;    /* ways = 360 + candidates */
    int widths[TL_MARGIN + 1]; /* the half width of a disk of radius margin, by row */
    int (*offsets)[2];       /* [candidates]: from the pivot to the head */
    double *angles;          /* [ways] in radians */
    double *turns;           /* [ways,candidates]: the weight of each candidate after a segment */
    uint8_t *lines;          /* [ways,side,side]: grey values */
    uint8_t *masks;          /* [ways,side,side]: what the segment occupies, of 255 */
    uint8_t *allowed;        /* [ways,side,side]: the largest mask on which it can be placed */
    struct {
        int size; /* 0: no contour begins in this direction */
        int8_t offsets[TL_FOOTPRINT][2];
    } footprints[TL_DEGREES]; /* the pixels around a tail that must be free */
} tl_segments;

tl_status tl_segments_new(tl_ctx *ctx, const tl_style *style, int margin, tl_segments **out_s);
void tl_segments_free(tl_ctx *ctx, tl_segments *s);
/* The point at a distance from another one. Both coordinates are rounded up, as published. */
void tl_translate(const int from[2], double angle, double distance, int out[2]);

typedef struct tl_placed { /* a segment whose picture is centred on (row, col) */
    int way, row, col;
} tl_placed;

/* The part of a segment's picture that lies within the window. */
typedef struct tl_overlap {
    int top, left, bottom, right; /* in the window, inclusive */
    int start; /* index in the picture of (top, left); the rows of a picture are `side` apart */
} tl_overlap;

tl_overlap tl_overlap_of(const tl_segments *s, const tl_placed *p);

typedef struct tl_contour {
    int count;
    tl_placed placed[TL_SEGMENTS];
    int pivot[2]; /* the last segment begins `margin` pixels from its pivot */
} tl_contour;

/* The contours of one image. The caller owns the buffers, each [window,window]. */
typedef struct tl_field {
    const tl_segments *segments;
    tl_stream *stream;
    uint8_t *mask; /* how much each pixel is occupied: 0 free, 255 fully */
    uint8_t *saved, *taken; /* scratch */
} tl_field;

typedef enum tl_grown { TL_GROWN, TL_STUCK, TL_NO_SEEDS } tl_grown;

/* Empties the mask and tries once to draw two contours. TL_NO_SEEDS: their first segments did not
** fit; TL_STUCK: a later one. */
tl_grown tl_grow_pair(tl_field *f, tl_contour pair[2]);
/* Tries once to draw a distractor. If it does not fit, the mask stays as it was. */
tl_grown tl_grow_distractor(tl_field *f, tl_contour *contour);

#endif

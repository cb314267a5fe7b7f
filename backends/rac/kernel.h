/* kernel.h - implements the transforms of rac.h for one instruction set. The file that includes it
** defines LANES, MAX_RADIX, KERNEL (the name of its rac_kernel), NAME and supported().
**
** Functions marked INLINE receive their radix as a constant, so that the switches around them
** compile to one loop per radix. */
#include "lanes.h"
#include "rac.h"

#define POINT (2 * LANES) /* floats of a point */

/* Rows are d channels apart, too far for the hardware prefetcher. The code prefetches this many
** iterations ahead, into the L2 cache, since they share few sets of L1. */
#define AHEAD 24
#define PREFETCH(address, write, cache) __builtin_prefetch(address, write, cache)
#define L1 3
#define L2 2

/* The work at the leaves. */
typedef enum product {
    SPLIT,     /* z = F z */
    MERGE,     /* z = F' z */
    MULTIPLY,  /* z = F'(t F z) */
    CONJUGATE, /* z = F'(conj(t) F z) */
    CORRELATE, /* x = F x, sum += F z conj(x) */
    BOTH       /* CORRELATE and CONJUGATE */
} product;

typedef struct task {
    const rac_split *s;
    product          kind;
    float           *z, *x, *sum;
    const float     *t;
} task;

/* ---- One butterfly --------------------------------------------------------------------------- */

/* One complex number in all lanes. */
INLINE cplx spread(const float *w) { return (cplx){w[0] - (vec){0}, w[1] - (vec){0}}; }

/* w[j-1] = power j of the root of a node, in all lanes. The asm hides its origin from the
** compiler, which would otherwise broadcast it again in each iteration of the next loop, slower
** than a load. */
INLINE void spread_all(int radix, const float *root, cplx *w)
{
    EACH(radix, j, if (j) w[j - 1] = spread(root + 2 * j - 2));
    __asm__ volatile("" : : "r"(w) : "memory");
}

/* The powers are read from w, or from root if w is NULL. */
INLINE void split(int radix, cplx *a, const cplx *w, const float *root)
{
    EACH(radix, j, if (j) a[j] = multiply(a[j], w ? w[j - 1] : spread(root + 2 * j - 2)));
    transform(radix, 1, a);
}

INLINE void merge(int radix, cplx *a, const cplx *w, const float *root)
{
    transform(radix, -1, a);
    EACH(radix, j,
         if (j) a[j] = multiply_conjugate(a[j], w ? w[j - 1] : spread(root + 2 * j - 2)));
}

/* ---- One node -------------------------------------------------------------------------------- */

/* The number of points of a child that are contiguous. */
INLINE int64_t together(const rac_split *s, const rac_level *l)
{
    return l->points < s->run ? l->points : s->run;
}

/* Splits the points of a node, or merges them. */
INLINE void change_points(int radix, int merges, const rac_split *s, const rac_level *l, float *z,
                          const float *root)
{
    int64_t run = together(s, l), step = l->step * LANES;
    cplx    w[7];
    spread_all(radix, root, w);
    for (int64_t k = 0; k < l->points; k += run, z += POINT)
        for (float *end = z + run * POINT; z < end; z += POINT) {
            cplx a[8];
            EACH(radix, j, a[j] = load(z + j * step));
            if (merges)
                merge(radix, a, w, NULL);
            else
                split(radix, a, w, NULL);
            EACH(radix, j, store(z + j * step, a[j]));
        }
}

INLINE void change_node(int merges, const rac_split *s, const rac_level *l, float *z,
                        const float *root)
{
    switch (l->radix) {
    case 3: change_points(3, merges, s, l, z, root); return;
    case 4: change_points(4, merges, s, l, z, root); return;
    case 5: change_points(5, merges, s, l, z, root); return;
    default: change_points(8, merges, s, l, z, root);
    }
}

static void split_node(const rac_split *s, const rac_level *l, float *z, const float *root)
{
    change_node(0, s, l, z, root);
}

static void merge_node(const rac_split *s, const rac_level *l, float *z, const float *root)
{
    change_node(1, s, l, z, root);
}

/* ---- The root, from and to real rows --------------------------------------------------------- */

/* The role of the imaginary rows. */
typedef enum second {
    NONE,  /* there are none */
    FOLD,  /* re - i im */
    CARRY  /* re + i im; a merge adds the old rows im to re before it overwrites them */
} second;

INLINE void split_rows(int radix, second what, const rac_split *s, rac_rows re, rac_rows im,
                       float *z)
{
    const rac_level *l = &s->levels[0];
    const float     *x = re.at, *t = what == NONE ? re.at : im.at;
    int64_t run = together(s, l), step = l->step * LANES;
    int64_t part = l->points * re.stride, other = l->points * im.stride;
    cplx    w[7];
    spread_all(radix, l->roots, w);
    for (int64_t k = 0; k < l->points; k += run, z += POINT)
        for (float *end = z + run * POINT; z < end; z += POINT, x += re.stride) {
            cplx a[8];
            EACH(radix, j, PREFETCH(x + AHEAD * re.stride + j * part, 0, L2));
            EACH(radix, j, a[j].re = *(const loose *)(x + j * part));
            if (what == NONE) {
                a[0].im = (vec){0};
                EACH(radix, j, if (j) a[j] = scaled(w[j - 1], a[j].re));
            } else {
                EACH(radix, j, a[j].im = *(const loose *)(t + j * other));
                if (what == FOLD) EACH(radix, j, a[j].im = -a[j].im);
                EACH(radix, j, if (j) a[j] = multiply(a[j], w[j - 1]));
                t += im.stride;
            }
            transform(radix, 1, a);
            EACH(radix, j, store(z + j * step, a[j]));
        }
}

INLINE void merge_rows(int radix, second what, const rac_split *s, const float *z, rac_rows re,
                       rac_rows im)
{
    const rac_level *l = &s->levels[0];
    int64_t run = together(s, l), step = l->step * LANES;
    int64_t part = l->points * re.stride, other = l->points * im.stride;
    float   scale = 1 / (float)s->size, root[14], *y = re.at, *t = what == NONE ? re.at : im.at;
    cplx    w[7];
    for (int i = 0; i < 2 * radix - 2; i++) root[i] = l->roots[i] * scale;
    spread_all(radix, root, w);
    for (int64_t k = 0; k < l->points; k += run, z += POINT)
        for (const float *end = z + run * POINT; z < end; z += POINT, y += re.stride) {
            cplx a[8];
            EACH(radix, j, PREFETCH(y + AHEAD * re.stride + j * part, 1, L2));
            EACH(radix, j, PREFETCH(y + re.stride + j * part, 1, L1));
            EACH(radix, j, a[j] = load(z + j * step));
            transform(radix, -1, a);
            a[0] = (cplx){a[0].re * scale, a[0].im * scale};
            EACH(radix, j, if (j) a[j] = multiply_conjugate(a[j], w[j - 1]));
            if (what == CARRY) EACH(radix, j, a[j].re += *(const loose *)(t + j * other));
            EACH(radix, j, *(loose *)(y + j * part) = a[j].re);
            if (what == FOLD) EACH(radix, j, *(loose *)(t + j * other) = -a[j].im);
            if (what == CARRY) EACH(radix, j, *(loose *)(t + j * other) = a[j].im);
            t += im.stride;
        }
}

INLINE void split_root_as(second what, const rac_split *s, rac_rows re, rac_rows im, float *z)
{
    switch (s->levels[0].radix) {
    case 3: split_rows(3, what, s, re, im, z); return;
    case 4: split_rows(4, what, s, re, im, z); return;
    case 5: split_rows(5, what, s, re, im, z); return;
    default: split_rows(8, what, s, re, im, z);
    }
}

INLINE void merge_root_as(second what, const rac_split *s, const float *z, rac_rows re,
                          rac_rows im)
{
    switch (s->levels[0].radix) {
    case 3: merge_rows(3, what, s, z, re, im); return;
    case 4: merge_rows(4, what, s, z, re, im); return;
    case 5: merge_rows(5, what, s, z, re, im); return;
    default: merge_rows(8, what, s, z, re, im);
    }
}

/* block = the residues below the root; im.at is NULL if there are no imaginary rows */
static void split_root(second what, const rac_split *s, rac_rows re, rac_rows im, float *z)
{
    if (!im.at) split_root_as(NONE, s, re, im, z);
    else if (what == FOLD) split_root_as(FOLD, s, re, im, z);
    else split_root_as(CARRY, s, re, im, z);
}

static void merge_root(second what, const rac_split *s, const float *z, rac_rows re, rac_rows im)
{
    if (!im.at) merge_root_as(NONE, s, z, re, im);
    else if (what == FOLD) merge_root_as(FOLD, s, z, re, im);
    else merge_root_as(CARRY, s, z, re, im);
}

/* ---- Leaves ---------------------------------------------------------------------------------- */

INLINE cplx leaf_product(product kind, cplx z, const float *t, const float *x, float *sum)
{
    if (kind == CORRELATE || kind == BOTH)
        store(sum, add(load(sum), multiply_conjugate(z, load(x))));
    if (kind == MULTIPLY) return multiply(z, load(t));
    if (kind == CONJUGATE || kind == BOTH) return multiply_conjugate(z, load(t));
    return z;
}

/* Processes `count` consecutive nodes of the last level, from offset `at` on. */
INLINE void leaf_nodes(int radix, product kind, int count, const float *root, const task *w,
                       int64_t at)
{
    float *z = w->z + at, *x = w->x + at, *sum = w->sum + at;
    const float *t = w->t + at;
    for (int i = 0; i < count; i++) {
        cplx a[8];
        EACH(radix, j, a[j] = load(z + j * POINT));
        if (kind != MERGE) split(radix, a, NULL, root);
        EACH(radix, j,
             a[j] = leaf_product(kind, a[j], t + j * POINT, x + j * POINT, sum + j * POINT));
        if (kind != SPLIT && kind != CORRELATE) merge(radix, a, NULL, root);
        if (kind != CORRELATE) EACH(radix, j, store(z + j * POINT, a[j]));
        z += radix * POINT;
        x += radix * POINT;
        t += radix * POINT;
        sum += radix * POINT;
        root += 2 * (radix - 1);
    }
}

INLINE void leaves_of(int radix, int count, const float *root, const task *w, int64_t at)
{
    switch (w->kind) {
    case SPLIT: leaf_nodes(radix, SPLIT, count, root, w, at); return;
    case MERGE: leaf_nodes(radix, MERGE, count, root, w, at); return;
    case MULTIPLY: leaf_nodes(radix, MULTIPLY, count, root, w, at); return;
    case CONJUGATE: leaf_nodes(radix, CONJUGATE, count, root, w, at); return;
    case CORRELATE: leaf_nodes(radix, CORRELATE, count, root, w, at); return;
    case BOTH: leaf_nodes(radix, BOTH, count, root, w, at); return;
    }
}

static void leaves(int radix, int count, const float *root, const task *w, int64_t at)
{
    if (radix == 4) leaves_of(4, count, root, w, at);
    else leaves_of(8, count, root, w, at);
}

/* ---- The tree -------------------------------------------------------------------------------- */

static int correlates(product kind) { return kind == CORRELATE || kind == BOTH; }

static void below(const task *w, int level, int64_t node, int64_t at);

/* A node below the root, whose block is at offset at. */
static void descend(const task *w, int level, int64_t node, int64_t at)
{
    const rac_level *l = &w->s->levels[level];
    const float     *root = l->roots + node * (l->radix - 1) * 2;
    if (correlates(w->kind)) split_node(w->s, l, w->x + at, root);
    if (w->kind != MERGE) split_node(w->s, l, w->z + at, root);
    below(w, level, node, at);
    if (w->kind != SPLIT && w->kind != CORRELATE) merge_node(w->s, l, w->z + at, root);
}

/* The children of a node. */
static void below(const task *w, int level, int64_t node, int64_t at)
{
    const rac_level *l = &w->s->levels[level], *next = l + 1;
    if (level + 2 < w->s->depth) {
        for (int j = 0; j < l->radix; j++)
            descend(w, level + 1, node * l->radix + j, at + j * l->step * LANES);
        return;
    }
    const float *root = next->roots + node * l->radix * (next->radix - 1) * 2;
    if (correlates(w->kind)) {
        task of_x = {.s = w->s, .kind = SPLIT, .z = w->x, .x = w->x, .sum = w->x, .t = w->x};
        leaves(next->radix, l->radix, root, &of_x, at);
    }
    leaves(next->radix, l->radix, root, w, at);
}

/* ---- The kernel ------------------------------------------------------------------------------ */

static void rac_run(const rac_split *s, product kind, float *z, const float *t)
{
    below(&(task){.s = s, .kind = kind, .z = z, .x = z, .sum = z, .t = t ? t : z}, 0, 0, 0);
}

static void analyse(const rac_split *s, rac_rows re, rac_rows im, float *block)
{
    split_root(FOLD, s, re, im, block);
    rac_run(s, SPLIT, block, NULL);
}

static void synthesise(const rac_split *s, float *block, rac_rows re, rac_rows im)
{
    rac_run(s, MERGE, block, NULL);
    merge_root(FOLD, s, block, re, im);
}

static void apply(const rac_split *s, int conjugate, const float *spectrum, rac_rows x,
                  rac_rows next, rac_rows y, rac_rows carry, float *block)
{
    split_root(CARRY, s, x, next, block);
    rac_run(s, conjugate ? CONJUGATE : MULTIPLY, block, spectrum);
    merge_root(CARRY, s, block, y, carry);
}

static void adjoints(const rac_split *s, const float *spectrum, rac_rows x, rac_rows dy,
                     rac_rows next, rac_rows dx, float *sum, float *const blocks[2])
{
    task w = {.s = s, .kind = dx.at ? BOTH : CORRELATE, .z = blocks[0], .x = blocks[1],
              .sum = sum, .t = dx.at ? spectrum : blocks[0]};
    split_root(NONE, s, x, (rac_rows){NULL, 0}, w.x);
    split_root(CARRY, s, dy, next, w.z);
    below(&w, 0, 0, 0);
    if (dx.at) merge_root(NONE, s, w.z, dx, (rac_rows){NULL, 0});
}

static rac_rows contiguous(float *rows) { return (rac_rows){rows, LANES}; }

static void apply_complex(const rac_split *s, int conjugate, const float *spectrum,
                          float *const x[2], float *const y[2], float *block)
{
    split_root(FOLD, s, contiguous(x[0]), contiguous(x[1]), block);
    rac_run(s, conjugate ? CONJUGATE : MULTIPLY, block, spectrum);
    merge_root(FOLD, s, block, contiguous(y[0]), contiguous(y[1]));
}

static void adjoints_complex(const rac_split *s, const float *spectrum, float *const x[2],
                             float *const dy[2], float *const dx[2], float *sum,
                             float *const blocks[2])
{
    task w = {.s = s, .kind = dx ? BOTH : CORRELATE, .z = blocks[0], .x = blocks[1], .sum = sum,
              .t = dx ? spectrum : blocks[0]};
    split_root(FOLD, s, contiguous(x[0]), contiguous(x[1]), w.x);
    split_root(FOLD, s, contiguous(dy[0]), contiguous(dy[1]), w.z);
    below(&w, 0, 0, 0);
    if (dx) merge_root(FOLD, s, w.z, contiguous(dx[0]), contiguous(dx[1]));
}

const rac_kernel KERNEL = {NAME, LANES, MAX_RADIX, supported, analyse, synthesise, apply, adjoints,
                           apply_complex, adjoints_complex};

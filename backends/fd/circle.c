/* circle.c - implements the transforms of circle.h: the spectrum of a real sequence of period 2M,
** that is its values at the roots of
**     X^2M - 1 = (X^M + 1) (X^(M/2) + 1) (X^(M/4) + 1) .. (X^q + 1) (X^q - 1),
** and the products of such spectra, y = F^-1 (H . F x) (SKI, Algorithm 2 and Section 3.3.2).
**
** The loops run over the factors, of which number i has remainders of M / 2^i real entries. Each
** step parts the rows that are left into the remainder modulo X^m + 1, in the upper half, which one
** complex transform of m/2 points takes, and the remainder modulo X^m - 1, in the lower half, which
** the next step parts; the first step needs no arithmetic (part_all). An application multiplies the
** values of a factor as soon as they are computed and transforms them back, so that one block, of
** the size of the largest factor, serves for all.
**
** What is left modulo X^q - 1, where rac has no transform any more, is multiplied by its transform
** matrix: as all lanes share the matrix, that is a product of matrices, and q is 128 at most. */
#include <math.h>
#include <string.h>

#include "circle.h"

#define PI         3.14159265358979323846
#define MIN_POINTS 12  /* points of the shortest transform of rac */
#define MAX_REST   128 /* entries of a rest: multiplying by its matrix is quadratic work */

/* ---- Plan ------------------------------------------------------------------------------------ */

/* Computes the matrices of the rest of q entries: value j is the sum over k of
** s_k exp(2 pi i j k / q), for 0 <= j <= q/2, as the other values are conjugates. The signs are
** those of rows, which have the opposite sign from the middle on. The inverse counts each value but
** the first and the last twice, for its conjugate, and divides by q. */
static tl_status plan_rest(circle *c)
{
    int64_t q = c->rest, rows = q + 2;
    c->there = c->h->alloc(c->h, (size_t)(rows * q) * sizeof *c->there);
    c->back = c->h->alloc(c->h, (size_t)(rows * q) * sizeof *c->back);
    if (!c->there || !c->back) return TL_ENOMEM;
    for (int64_t j = 0; j <= q / 2; j++)
        for (int64_t k = 0; k < q; k++) {
            double angle = 2 * PI * (double)(j * k % q) / (double)q;
            int    end = j == 0 || j == q / 2;
            double sign = 2 * k < q ? 1 : -1, weight = (end ? 1.0 : 2.0) / (double)q;
            double re = sign * cos(angle), im = end ? 0 : sign * sin(angle);
            c->there[2 * j * q + k] = (float)re;
            c->there[(2 * j + 1) * q + k] = (float)im;
            c->back[k * rows + 2 * j] = (float)(weight * re);
            c->back[k * rows + 2 * j + 1] = (float)(weight * im);
        }
    return TL_OK;
}

/* Records the places of the leaves below the node exp(2 pi i f) of a transform, of which the first
** is number `leaf`. A leaf is the value at X = exp(2 pi i f), which is frequency m = 2 M f; one
** above M is the conjugate of the value at 2M - m. */
static void place_leaves(circle *c, int number, int level, int64_t leaf, double f)
{
    const rac_split *s = &c->splits[number];
    if (level == s->depth) {
        int64_t m = (int64_t)(f * 2 * (double)c->half + 0.5), point = c->at[number] + leaf;
        point += leaf / s->run; /* padding */
        if (m <= c->half)
            c->place[m] = (int32_t)point;
        else
            c->place[2 * c->half - m] = (int32_t)~point;
        return;
    }
    for (int j = 0; j < s->levels[level].radix; j++)
        place_leaves(c, number, level + 1, leaf + j * s->levels[level].points,
                     (f + j) / s->levels[level].radix);
}

/* Every transform has the root f = 1/4, the right angle of rac.h. */
static tl_status plan_places(circle *c)
{
    c->place = c->h->alloc(c->h, (size_t)(c->half + 1) * sizeof *c->place);
    if (!c->place) return TL_ENOMEM;
    for (int i = 0; i < c->depth; i++) place_leaves(c, i, 0, 0, 0.25);
    for (int64_t j = 0; j <= c->rest / 2; j++)
        c->place[j * (2 * c->half / c->rest)] = (int32_t)(c->at[c->depth] + j);
    return TL_OK;
}

/* Plans the transforms of M/2, M/4, .. as long as rac has them, and sets the length of the rest.
** rac_split_make chooses the fastest length from `size` on, so another length than `size` ends the
** sequence. */
static tl_status plan_parts(circle *c)
{
    if (c->half % 4 != 0) return TL_OK; /* a length of rac is a multiple of 4 */
    for (int64_t size = c->half / 2; size >= MIN_POINTS; size /= 2) {
        rac_split *s = &c->splits[c->depth];
        tl_status  st = rac_split_make(c->h, size, size, c->kernel->widest, s);
        if (st != TL_OK) return st;
        if (s->size != size) {
            rac_split_free(c->h, s);
            break;
        }
        rac_split_fill(s);
        c->at[c->depth++] = c->points;
        c->points += s->vectors / 2;
        c->rest = 2 * size;
    }
    return TL_OK;
}

tl_status circle_make(const tl_host *h, const rac_kernel *kernel, int64_t half, circle *c)
{
    *c = (circle){.h = h, .kernel = kernel, .half = half};
    tl_status st = plan_parts(c);
    if (st != TL_OK || c->depth == 0 || c->rest > MAX_REST) {
        for (; c->depth > 0; c->depth--) rac_split_free(h, &c->splits[c->depth - 1]);
        return st;
    }
    c->at[c->depth] = c->points;
    c->points += c->rest / 2 + 1;
    st = plan_rest(c);
    return st == TL_OK ? plan_places(c) : st;
}

void circle_free(const circle *c)
{
    for (int i = 0; i < c->depth; i++) rac_split_free(c->h, &c->splits[i]);
    c->h->free(c->h, c->there);
    c->h->free(c->h, c->back);
    c->h->free(c->h, c->place);
}

/* ---- Transforms ------------------------------------------------------------------------------ */

/* part replaces lo and hi, where hi has the opposite sign, by the remainders modulo X^m - 1 and X^m
** + 1; sign -1 negates both, as the second half of a row needs. join is its inverse. */
static void part(int64_t floats, float sign, float *restrict lo, float *restrict hi)
{
    for (int64_t k = 0; k < floats; k++) {
        float sum = sign * (lo[k] - hi[k]);
        hi[k] = sign * (lo[k] + hi[k]);
        lo[k] = sum;
    }
}

/* The sum and the difference of the remainders are twice lo and hi. */
static void join(int64_t floats, float sign, float *restrict lo, float *restrict hi)
{
    for (int64_t k = 0; k < floats; k++) {
        float first = sign * 0.5f * (lo[k] + hi[k]);
        hi[k] = sign * 0.5f * (hi[k] - lo[k]);
        lo[k] = first;
    }
}

/* Splits the first 2 m rows of a circle into the remainders modulo X^m - 1 and, from row m on,
** modulo X^m + 1, for m = M/2, M/4, .. The first transform, of X^M + 1, reads the rows unsplit: as
** sequences are 0 from M on, both remainders of the first step are the M rows themselves. Each half
** of m rows again has the opposite sign from its middle on, so the quarters are parted in pairs. */
static void part_all(const circle *c, int64_t m, float *rows)
{
    int64_t quarter = m / 2 * c->kernel->lanes;
    part(quarter, 1, rows, rows + 2 * quarter);
    part(quarter, -1, rows + quarter, rows + 3 * quarter);
}

static void join_all(const circle *c, int64_t m, float *rows)
{
    int64_t quarter = m / 2 * c->kernel->lanes;
    join(quarter, 1, rows, rows + 2 * quarter);
    join(quarter, -1, rows + quarter, rows + 3 * quarter);
}

/* The real and the imaginary rows of transform i: the lower and the upper half of its remainder. */
typedef struct part_rows {
    float *at[2];
} part_rows;

static part_rows rows_of(const circle *c, int i, float *rows)
{
    int64_t lanes = c->kernel->lanes, size = c->splits[i].size;
    if (i > 0) rows += 2 * size * lanes;
    return (part_rows){{rows, rows + size * lanes}};
}

static rac_rows strided(const circle *c, float *rows)
{
    return (rac_rows){rows, c->kernel->lanes};
}

static float *block_of(const circle *c, int i, const float *block)
{
    return (float *)block + c->at[i] * 2 * c->kernel->lanes;
}

static void split_rest(const circle *c, const float *rows, float *values)
{
    int64_t lanes = c->kernel->lanes;
    c->h->gemm(0, 0, c->rest + 2, lanes, c->rest, 1, c->there, c->rest, rows, lanes, 0, values,
               lanes);
}

static void merge_rest(const circle *c, const float *values, float *rows)
{
    int64_t lanes = c->kernel->lanes;
    c->h->gemm(0, 0, c->rest, lanes, c->rest + 2, 1, c->back, c->rest + 2, values, lanes, 0, rows,
               lanes);
}

void circle_split(const circle *c, float *rows, float *block)
{
    for (int i = 0; i < c->depth; i++) {
        if (i > 0) part_all(c, 2 * c->splits[i].size, rows);
        part_rows r = rows_of(c, i, rows);
        c->kernel->analyse(&c->splits[i], strided(c, r.at[0]), strided(c, r.at[1]),
                           block_of(c, i, block));
    }
    split_rest(c, rows, block_of(c, c->depth, block));
}

void circle_merge(const circle *c, float *block, float *rows, float *others)
{
    merge_rest(c, block_of(c, c->depth, block), rows);
    for (int i = c->depth - 1; i >= 0; i--) {
        part_rows r = rows_of(c, i, i > 0 ? rows : others);
        c->kernel->synthesise(&c->splits[i], block_of(c, i, block), strided(c, r.at[0]),
                              strided(c, r.at[1]));
        if (i > 0) join_all(c, 2 * c->splits[i].size, rows);
    }
}

/* ---- Products -------------------------------------------------------------------------------- */

/* z = z t for direction 1, z conj(t) for -1 */
static void multiply_rest(const circle *c, float direction, float *z, const float *t)
{
    int64_t lanes = c->kernel->lanes;
    for (int64_t k = 0; k <= c->rest / 2; k++, z += 2 * lanes, t += 2 * lanes)
        for (int64_t l = 0; l < lanes; l++) {
            float re = z[l], im = z[l + lanes], turn = direction * t[l + lanes];
            z[l] = re * t[l] - im * turn;
            z[l + lanes] = im * t[l] + re * turn;
        }
}

/* sum += z conj(x) */
static void correlate_rest(const circle *c, float *sum, const float *z, const float *x)
{
    int64_t lanes = c->kernel->lanes;
    for (int64_t k = 0; k <= c->rest / 2; k++, sum += 2 * lanes, z += 2 * lanes, x += 2 * lanes)
        for (int64_t l = 0; l < lanes; l++) {
            sum[l] += z[l] * x[l] + z[l + lanes] * x[l + lanes];
            sum[l + lanes] += z[l + lanes] * x[l] - z[l] * x[l + lanes];
        }
}

/* Product i is complete before the next step parts the rows below it, so that its result replaces
** its input. Only the first one needs a place of its own, `others`, as the later ones read its
** input. */
void circle_apply(const circle *c, int conjugate, const float *spectrum, float *rows,
                  float *others, float *block)
{
    for (int i = 0; i < c->depth; i++) {
        if (i > 0) part_all(c, 2 * c->splits[i].size, rows);
        part_rows x = rows_of(c, i, rows), y = rows_of(c, i, i > 0 ? rows : others);
        c->kernel->apply_complex(&c->splits[i], conjugate, block_of(c, i, spectrum), x.at, y.at,
                                 block);
    }
    split_rest(c, rows, block);
    multiply_rest(c, conjugate ? -1 : 1, block, block_of(c, c->depth, spectrum));
    merge_rest(c, block, rows);
    for (int i = c->depth - 1; i > 0; i--) join_all(c, 2 * c->splits[i].size, rows);
}

/* One pass over the factors gives both adjoints, since both need the values of rows (dy). */
void circle_adjoints(const circle *c, const float *spectrum, float *x, float *rows, float *others,
                     float *sum, float *const blocks[2])
{
    for (int i = 0; i < c->depth; i++) {
        if (i > 0) {
            part_all(c, 2 * c->splits[i].size, x);
            part_all(c, 2 * c->splits[i].size, rows);
        }
        part_rows in = rows_of(c, i, x), dy = rows_of(c, i, rows);
        part_rows dx = rows_of(c, i, i > 0 ? rows : others);
        c->kernel->adjoints_complex(&c->splits[i], spectrum ? block_of(c, i, spectrum) : NULL,
                                    in.at, dy.at, spectrum ? dx.at : NULL, block_of(c, i, sum),
                                    blocks);
    }
    split_rest(c, x, blocks[1]);
    split_rest(c, rows, blocks[0]);
    correlate_rest(c, block_of(c, c->depth, sum), blocks[0], blocks[1]);
    if (!spectrum) return;
    multiply_rest(c, -1, blocks[0], block_of(c, c->depth, spectrum));
    merge_rest(c, blocks[0], rows);
    for (int i = c->depth - 1; i > 0; i--) join_all(c, 2 * c->splits[i].size, rows);
}

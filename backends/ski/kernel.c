/* kernel.c - multiplies by A and A' and computes the gradient of A for a group of channels:
**     v_a = sum over b of k_(a-b) z_b     v_b = sum over a of k_(a-b) g_a
**     dk_l = sum over b of g_(b+l) z_b    -r < l < r
** (SKI, Section 3.2.1: A z is O(r log r)). plan.c chooses between direct sums, whose loops run over
** vectors of LANES channels, and transforms, which take one channel at a time. A product is
** computed once per sequence and group, for a bidirectional operator only; causal.c has sums of its
** own.
**
** Transforms apply a circulant of `size` >= 2r - 1 rows, whose first column is k_0 .. k_(r-1),
** zeros, k_(1-r) .. k_-1. It is so large that a vector of r entries, padded with zeros, meets each
** of these lags where A has it: the first r rows of the product equal the product with A. */
#include <string.h>

#include "../common/angle.h"
#include "ski.h"

/* ---- By transforms --------------------------------------------------------------------------- */

/* The spectrum of one channel of rows, padded with zeros. */
static void spectrum_of(ski_work *w, const lanes *rows, int lane, float *spectrum)
{
    float *line = w->line[0];
    for (int64_t k = 0; k < w->s->r; k++) line[k] = rows[k][lane];
    memset(line + w->s->r, 0, (size_t)(w->s->size - w->s->r) * sizeof *line);
    w->s->transforms->run(w->s->there, line, spectrum);
}

/* A product of spectra: z = z t or z conj(t). */
typedef void product(int64_t bins, float *restrict z, const float *restrict t);

/* v = A from, or A' from if `times` conjugates. */
static void by_transforms(ski_work *w, ski_group *g, const lanes *from, product *times)
{
    const ski_plan *s = w->s;
    for (int lane = 0; lane < LANES; lane++) {
        spectrum_of(w, from, lane, w->line[1]);
        times(s->size / 2 + 1, w->line[1], g->spectra + lane * s->line);
        s->transforms->run(s->back, w->line[1], w->line[0]);
        for (int64_t k = 0; k < s->r; k++) g->v[k][lane] = w->line[0][k];
    }
}

/* Computes the spectra of the circulants of all channels, once per tile and call. They contain the
** factor 1/size of the inverse transform, which saves a pass over each product. */
static void prepare(ski_work *w, ski_group *g)
{
    const ski_plan *s = w->s;
    float          *line = w->line[0], scale = 1.0f / (float)s->size;
    for (int lane = 0; lane < LANES; lane++) {
        memset(line, 0, (size_t)s->size * sizeof *line);
        for (int64_t l = 1 - s->r; l < s->r; l++)
            line[l < 0 ? l + s->size : l] = scale * g->kernel[l + s->zero][lane];
        s->transforms->run(s->there, line, g->spectra + lane * s->line);
    }
}

/* Sets entry l of w->sums to the sum over b of g_(b+l) z_b. */
static void sums_by_transforms(ski_work *w, const ski_group *g)
{
    const ski_plan *s = w->s;
    float           scale = 1.0f / (float)s->size;
    for (int lane = 0; lane < LANES; lane++) {
        spectrum_of(w, g->z, lane, w->line[2]);
        spectrum_of(w, g->g, lane, w->line[1]);
        angle_multiply_conjugate(s->size / 2 + 1, w->line[1], w->line[2]);
        s->transforms->run(s->back, w->line[1], w->line[0]);
        for (int64_t l = 1 - s->r; l < s->r; l++)
            w->sums[l + s->zero][lane] = scale * w->line[0][l < 0 ? l + s->size : l];
    }
}

/* ---- By direct sums -------------------------------------------------------------------------- */

static void reverse(const lanes *from, int64_t count, lanes *to)
{
    for (int64_t k = 0; k < count; k++) to[k] = from[count - 1 - k];
}

/* Computes STEP lags at a time, over the b for which at least one of them lies in g: the range of b
** differs by lag, and g has zeros beyond its ends. Without the cut at `from` and `to` twice as many
** products would be computed. */
static void sums_directly(ski_work *w, const ski_group *g)
{
    int64_t r = w->s->r;
    for (int64_t l = 0; l < w->s->lags; l += STEP) {
        int64_t from = r - l - STEP > 0 ? r - l - STEP : 0;
        int64_t to = 2 * r - 1 - l < r ? 2 * r - 1 - l : r;
        ski_correlate(g->z + from, to - from, g->g + from + l - (r - 1), STEP, w->sums + l,
                      NULL);
    }
}

/* ---- Interface ------------------------------------------------------------------------------- */

/* Direct sums use the kernel as it is. */
void ski_prepare(ski_work *w, ski_group *g)
{
    if (w->s->size) prepare(w, g);
}

/* With z reversed, row a of A z is a correlation: the sum over q of z_(r-1-q) times row a + q of
** kernel, whose row l + r - 1 is the lag l. */
void ski_multiply(ski_work *w, ski_group *g)
{
    if (w->s->size) {
        by_transforms(w, g, g->z, angle_multiply);
    } else {
        reverse(g->z, w->s->r, w->flip);
        ski_correlate(w->flip, w->s->r, g->kernel, w->s->r, g->v, NULL);
    }
}

/* Here the result comes out reversed: output p of the correlation is row r - 1 - p of A'g. */
void ski_transpose(ski_work *w, ski_group *g)
{
    if (w->s->size) {
        by_transforms(w, g, g->g, angle_multiply_conjugate);
    } else {
        ski_correlate(g->g, w->s->r, g->kernel, w->s->r, w->flip, NULL);
        reverse(w->flip, w->s->r, g->v);
    }
}

void ski_kernel_sums(ski_work *w, ski_group *g)
{
    if (w->s->size)
        sums_by_transforms(w, g);
    else
        sums_directly(w, g);
    ski_add(g->kernel_sums, w->sums, w->s->lags);
}

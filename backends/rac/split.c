/* split.c - chooses the kernel, the length and its radices, and computes the roots of the nodes. */
#include <math.h>
#include <string.h>

#include "rac.h"

#define CARRIED 2 /* cycles per point, about, for carrying between blocks */

/* The cost of a pass of a radix, in cycles per point. */
static double pass_cost(int radix, int widest)
{
    switch (radix) {
    case 3: return 5.5;
    case 4: return 5;
    case 5: return 8.5;
    default: return widest == 8 ? 6.5 : 9;
    }
}

/* Writes the radices of size in the order of levels and returns their number, or 0 if size does not
** split. The last is 4 or 8, and there are at least two. Large ones come first, so that the blocks
** below them fit into a cache sooner. */
static int radices_of(int64_t size, int widest, int radices[RAC_DEPTH])
{
    int count = 0, twos = 0, fours;
    for (; size % 5 == 0; size /= 5) radices[count++] = 5;
    for (; size % 3 == 0; size /= 3) radices[count++] = 3;
    for (; size % 2 == 0; size /= 2) twos++;
    if (size != 1 || twos < 2) return 0;
    fours = widest == 8 ? 2 * twos % 3 : twos / 2 - twos % 2;
    int eights = (twos - 2 * fours) / 3, last = widest == 8 && eights > 0;
    for (; eights > last; eights--) radices[count++] = 8;
    for (; fours > 0; fours--) radices[count++] = 4;
    if (last) radices[count++] = 8;
    return count < 2 ? 0 : count;
}

/* The cost of a sequence of n in blocks of size. Carrying between blocks is an additional pass. */
static double cost(int64_t n, int64_t size, int widest)
{
    int    radices[RAC_DEPTH], count = radices_of(size, widest, radices);
    double blocks = (double)((n + size - 1) / size), sum = blocks > 1 ? CARRIED : 0;
    for (int i = 0; i < count; i++) sum += pass_cost(radices[i], widest);
    return count ? sum * blocks * (double)size : HUGE_VAL;
}

/* The fastest length, among the products of 2s, 3s and 5s up to the first that n fits into. */
static int64_t best_size(int64_t n, int64_t kernel, int widest)
{
    int64_t best = 0;
    for (int64_t fives = 1; fives < 2 * n; fives *= 5)
        for (int64_t odd = fives; odd < 2 * n; odd *= 3)
            for (int64_t size = 4 * odd, last = 0; !last; size *= 2) {
                last = size >= n && size >= 12;
                if ((last || (size >= kernel && size >= 12)) &&
                    (!best || cost(n, size, widest) < cost(n, best, widest)))
                    best = size;
            }
    return best;
}

/* Computes the powers of the root of a node with angle f, and of all nodes below it. */
static void set_roots(rac_split *s, int level, int64_t node, double f)
{
    if (level == s->depth) return;
    int    radix = s->levels[level].radix;
    float *root = (float *)s->levels[level].roots + node * (radix - 1) * 2;
    for (int k = 1; k < radix; k++) {
        double angle = 2 * 3.14159265358979323846 * f * k / radix;
        root[2 * k - 2] = (float)cos(angle);
        root[2 * k - 1] = (float)sin(angle);
    }
    for (int j = 0; j < radix; j++) set_roots(s, level + 1, node * radix + j, (f + j) / radix);
}

/* Sets the points and padding of each level, and returns the number of floats of all roots. */
static int64_t set_levels(rac_split *s, const int *radices)
{
    int64_t points = s->size, nodes = 1, floats = 0;
    s->run = (int64_t)radices[s->depth - 2] * radices[s->depth - 1];
    s->vectors = 2 * (s->size + s->size / s->run);
    for (int i = 0; i < s->depth; i++) {
        rac_level *l = &s->levels[i];
        l->radix = radices[i];
        points /= l->radix;
        l->points = points;
        l->step = 2 * (points + points / s->run);
        floats += nodes * (l->radix - 1) * 2;
        nodes *= l->radix;
    }
    return floats;
}

tl_status rac_split_make(const tl_host *h, int64_t n, int64_t kernel, int widest, rac_split *s)
{
    int     radices[RAC_DEPTH];
    int64_t nodes = 1;
    s->size = best_size(n, kernel, widest);
    s->depth = radices_of(s->size, widest, radices);
    s->roots = h->alloc(h, (size_t)set_levels(s, radices) * sizeof *s->roots);
    if (!s->roots) return TL_ENOMEM;
    float *roots = s->roots;
    for (int i = 0; i < s->depth; i++) {
        s->levels[i].roots = roots;
        roots += nodes * (radices[i] - 1) * 2;
        nodes *= radices[i];
    }
    return TL_OK;
}

void rac_split_fill(rac_split *s) { set_roots(s, 0, 0, 0.25); }

void rac_split_free(const tl_host *h, const rac_split *s) { h->free(h, s->roots); }

static const rac_kernel *const kernels[] = {
#if defined(__x86_64__)
    &rac_avx512, &rac_avx2,
#endif
    &rac_portable,
};

const rac_kernel *rac_kernel_named(const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if ((strcmp(name, "auto") == 0 || strcmp(name, kernels[i]->name) == 0) &&
            kernels[i]->supported())
            return kernels[i];
    return NULL;
}

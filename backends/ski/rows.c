/* rows.c - implements the loops over rows of LANES channels: the correlations, the copies between
** them and arrays [n,d], and the products W'x and W v (SKI, Section 3.2.1).
**
** W is stored as the column of each row's first non-zero and 2 or 4 weights. Tokens between the
** same two inducing points have the same columns and form a run: it is summed in registers and
** added to z once, or reads its rows of v once. The width is passed as a constant, so that the
** compiler unrolls the loops over columns. */
#include <string.h>

#include "ski.h"

/* ---- Correlation ----------------------------------------------------------------------------- */

/* Keeps STEP outputs in registers and takes four rows of b at a time, for which STEP + 3 rows of w
** suffice: 15 loads for 32 products, where one row of b at a time would need 9 loads for 8. */
static void correlate_step(const lanes *b, int64_t count, const lanes *w, lanes *out)
{
    lanes   sum[STEP] = {{0}};
    int64_t q = 0;
    for (; q + 4 <= count; q += 4) {
        lanes row[STEP + 3];
        for (int p = 0; p < STEP + 3; p++) row[p] = w[q + p];
        for (int k = 0; k < 4; k++)
            for (int p = 0; p < STEP; p++) sum[p] += b[q + k] * row[p + k];
    }
    for (; q < count; q++)
        for (int p = 0; p < STEP; p++) sum[p] += b[q] * w[q + p];
    for (int p = 0; p < STEP; p++) out[p] = sum[p];
}

/* The prefetches are not a function, since gcc would drop calls of one that does nothing else. */
void ski_correlate(const lanes *b, int64_t count, const lanes *w, int64_t rows, lanes *out,
                   const ski_ahead *ahead)
{
    int64_t steps = ski_up(rows) / STEP, k = 0;
    for (int64_t p = 0; p < steps; p++) {
        for (int64_t share = (p + 1) * BLOCK / steps; ahead && k < share; k++) {
            if (k < ahead->reads[0]) __builtin_prefetch(ahead->read[0] + k * ahead->step, 0, 2);
            if (k < ahead->reads[1]) __builtin_prefetch(ahead->read[1] + k * ahead->step, 0, 2);
            if (k < ahead->writes) __builtin_prefetch(ahead->write + k * ahead->step, 1, 2);
        }
        correlate_step(b, count, w + p * STEP, out + p * STEP);
    }
}

/* ---- To and from memory ---------------------------------------------------------------------- */

/* Copies the channels of a tile from one row to all groups; lanes without a channel become 0, so
** that loops need no test of how many lanes count. */
static void load_row(const ski_work *w, const float *row, lanes *to)
{
    for (int64_t g = 0; g < w->groups; g++, to += w->s->stride) {
        int64_t left = w->channels - g * LANES;
        if (left >= LANES) {
            memcpy(to, row + g * LANES, sizeof *to);
        } else {
            memset(to, 0, sizeof *to);
            memcpy(to, row + g * LANES, (size_t)left * sizeof(float));
        }
    }
}

void ski_load(const ski_work *w, const float *from, int64_t n, int64_t first, int64_t count,
              lanes *to)
{
    for (int64_t k = 0; k < count; k++) {
        int64_t row = first + k;
        if (row >= 0 && row < n)
            load_row(w, from + row * w->s->d, to + k);
        else
            for (int64_t g = 0; g < w->groups; g++) to[g * w->s->stride + k] = (lanes){0};
    }
}

void ski_store(const ski_work *w, int64_t g, const lanes *rows, int64_t count, float *to)
{
    int64_t left = w->channels - g * LANES, some = left < LANES ? left : LANES;
    for (int64_t k = 0; k < count; k++) {
        float *row = to + k * w->s->d + g * LANES;
        if (some == LANES)
            memcpy(row, &rows[k], sizeof *rows);
        else
            memcpy(row, &rows[k], (size_t)some * sizeof(float));
    }
}

void ski_add(double *sums, const lanes *rows, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        for (int c = 0; c < LANES; c++) sums[k * LANES + c] += (double)rows[k][c];
}

/* ---- W --------------------------------------------------------------------------------------- */

/* The end of the run of tokens from i on that have the same columns of W. */
static int64_t run_end(const ski_plan *s, int64_t i, int64_t end)
{
    int32_t start = s->start[i];
    while (i < end && s->start[i] == start) i++;
    return i;
}

#define GROUPS_AT_ONCE 4 /* groups summed at once: independent sums hide latency */

/* z += W' x for tokens from..end-1 of some groups; x has rows of step floats. An addition to a sum
** has to wait for the one before it, so several groups take turns. */
static inline void gather(const ski_plan *s, int64_t from, int64_t end, const float *x,
                          int64_t step, int groups, int width, lanes *z)
{
    for (int64_t i = from, next; i < end; i = next) {
        lanes sum[GROUPS_AT_ONCE][WIDTH] = {{{0}}};
        next = run_end(s, i, end);
        for (int64_t k = i; k < next; k++)
            for (int g = 0; g < groups; g++) {
                lanes row;
                memcpy(&row, x + (k - from) * step + g * LANES, sizeof row);
                for (int q = 0; q < width; q++) sum[g][q] += s->weight[k * width + q] * row;
            }
        for (int g = 0; g < groups; g++)
            for (int q = 0; q < width; q++) z[g * s->stride + s->start[i] + q] += sum[g][q];
    }
}

/* Passes constant numbers of groups and columns, so that the compiler unrolls the loops. */
static void gather_some(const ski_plan *s, int64_t first, int64_t end, const float *x,
                        int64_t step, int groups, lanes *z)
{
    if (groups == GROUPS_AT_ONCE && s->width == 2)
        gather(s, first, end, x, step, GROUPS_AT_ONCE, 2, z);
    else if (groups == GROUPS_AT_ONCE)
        gather(s, first, end, x, step, GROUPS_AT_ONCE, WIDTH, z);
    else if (s->width == 2)
        gather(s, first, end, x, step, 1, 2, z);
    else
        gather(s, first, end, x, step, 1, WIDTH, z);
}

/* The same for one group, with four independent partial sums, since no other group fills the time
** in which an addition waits for the one before it. */
static inline void gather_one(const ski_plan *s, int64_t from, int64_t end, const lanes *x,
                              int width, lanes *z)
{
    for (int64_t i = from, next; i < end; i = next) {
        lanes        sum[4][WIDTH] = {{{0}}}, *to = z + s->start[i];
        const float *weight = s->weight + i * width;
        int64_t      k = i;
        next = run_end(s, i, end);
        for (; k + 4 <= next; k += 4, x += 4, weight += 4 * width)
            for (int j = 0; j < 4; j++)
                for (int q = 0; q < width; q++) sum[j][q] += weight[j * width + q] * x[j];
        for (; k < next; k++, x++, weight += width)
            for (int q = 0; q < width; q++) sum[0][q] += weight[q] * *x;
        for (int q = 0; q < width; q++)
            to[q] += (sum[0][q] + sum[1][q]) + (sum[2][q] + sum[3][q]);
    }
}

void ski_gather_rows(const ski_plan *s, const lanes *x, int64_t first, int64_t count, lanes *z)
{
    if (s->width == 2)
        gather_one(s, first, first + count, x, 2, z);
    else
        gather_one(s, first, first + count, x, WIDTH, z);
}

/* Whole groups are read in place. The group that ends with d is copied first: a vector read from x
** would reach into the next row, and behind x after the last one. */
void ski_gather(const ski_work *w, const float *x, int64_t first, int64_t count, lanes *z)
{
    const ski_plan *s = w->s;
    int64_t         whole = w->channels / LANES, g = 0, left = w->channels % LANES;
    const float    *rows = x + first * s->d;
    lanes           part[BLOCK];
    for (; g + GROUPS_AT_ONCE <= whole; g += GROUPS_AT_ONCE)
        gather_some(s, first, first + count, rows + g * LANES, s->d, GROUPS_AT_ONCE,
                    z + g * s->stride);
    for (; g < whole; g++)
        gather_some(s, first, first + count, rows + g * LANES, s->d, 1, z + g * s->stride);
    if (!left) return;
    for (int64_t k = 0; k < count; k++) {
        part[k] = (lanes){0};
        memcpy(&part[k], rows + k * s->d + g * LANES, (size_t)left * sizeof(float));
    }
    ski_gather_rows(s, part, first, count, z + g * s->stride);
}

/* to = rows + W v, where `to` has rows of step floats. */
static inline void spread(const ski_plan *s, int64_t first, int64_t count, int width,
                          const lanes *v, const lanes *rows, float *to, int64_t step)
{
    for (int64_t i = first, next; i < first + count; i = next) {
        const lanes *from = v + s->start[i];
        next = run_end(s, i, first + count);
        for (int64_t k = i; k < next; k++) {
            lanes sum = rows[k - first];
            for (int q = 0; q < width; q++) sum += s->weight[k * width + q] * from[q];
            memcpy(to + (k - first) * step, &sum, sizeof sum);
        }
    }
}

/* A whole group is written straight to y. The group that ends with d is computed in place of `rows`
** first, for the same reason as in ski_gather. */
void ski_spread(const ski_work *w, int64_t g, int64_t first, int64_t count, const lanes *v,
                lanes *rows, float *y)
{
    const ski_plan *s = w->s;
    int             whole = (g + 1) * LANES <= w->channels;
    float          *to = whole ? y + first * s->d + g * LANES : (float *)rows;
    int64_t         step = whole ? s->d : LANES;
    if (s->width == 2)
        spread(s, first, count, 2, v, rows, to, step);
    else
        spread(s, first, count, WIDTH, v, rows, to, step);
    if (!whole) ski_store(w, g, rows, count, y + first * s->d);
}

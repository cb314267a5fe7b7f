/* kneser_ney.c - n-grams by interpolated modified Kneser-Ney smoothing (Chen & Goodman 1998).
**
**   P_k(c|h) = (a(h c) - D(a(h c)) + g(h) P_k-1(c|h')) / sum_x a(h x),   P_0 = 1/v
**
** h is the k-1 tokens before c, and h' is h without its oldest token. At the highest order a(h c)
** counts h c in train; below, it counts the distinct tokens before h c, where the beginning of a
** text counts as one. D(1), D(2) and D(3), which serves all above too, are estimated from how many
** h c have a = 1, 2, 3, 4; g(h) is the sum of what was discounted. After an h that train has not,
** P_k = P_k-1.
**
** A row is a token with the tokens before it. The rows of train and test are sorted by context,
** the nearest token first, so that the rows of a context are adjacent at every order. Memory: 9
** bytes a token, 16 for each of the vocabulary, and 8 for each of test. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "engine/tensor.h"
#include "text/ngram.h"

#define ABSENT    (-1)
#define MAX_COUNT 5 /* counts from here on are tallied together */

typedef struct tally { /* of the tokens that follow a context */
    uint64_t sum;
    /* how many tokens have the count of the place; the last: or more */
    uint64_t kinds[MAX_COUNT + 1];
} tally;

typedef struct count { /* of a token in the group and the part of it that were seen last */
    uint32_t group, part, count;
} count;

typedef struct model {
    tl_ctx *ctx;
    const int32_t *train, *test;
    int64_t len, step, last; /* tokens of train; between rows; of a row, its token's place */
    uint32_t learnt, rows;   /* rows of train; rows of both */
    int order;
    int32_t v;
    uint32_t *sorted;
    uint8_t *same; /* how many tokens of context a sorted row shares with the one before it */
    count *counts;
    double *p;
} model;

/* Returns the token that is `back` places before the token of a row; ABSENT if there is none. */
static int32_t token(const model *m, uint32_t row, int back)
{
    int64_t at = row * m->step + m->last - back;
    return at < 0 ? ABSENT : at < m->len ? m->train[at] : m->test[at - m->len];
}

/* Sorts by counting, the furthest token first. */
static tl_status sort_rows(model *m)
{
    uint32_t *from = tl_alloc(m->ctx, m->rows * sizeof *from);
    uint32_t *ends = from ? tl_alloc(m->ctx, ((size_t)m->v + 1) * sizeof *ends) : NULL;
    if (!ends) {
        tl_release(m->ctx, from);
        return TL_ENOMEM;
    }
    for (uint32_t i = 0; i < m->rows; i++) m->sorted[i] = i;
    for (int back = m->order - 1; back > 0; back--) {
        memset(ends, 0, ((size_t)m->v + 1) * sizeof *ends);
        for (uint32_t i = 0; i < m->rows; i++) ends[token(m, i, back) + 1]++;
        for (int32_t id = 0; id < m->v; id++) ends[id + 1] += ends[id];
        memcpy(from, m->sorted, m->rows * sizeof *from);
        for (uint32_t i = m->rows; i-- > 0;)
            m->sorted[--ends[token(m, from[i], back) + 1]] = from[i];
    }
    tl_release(m->ctx, from);
    tl_release(m->ctx, ends);
    m->same[0] = 0;
    for (uint32_t i = 1; i < m->rows; i++) {
        int same = 0;
        while (same < m->order - 1 &&
               token(m, m->sorted[i], same + 1) == token(m, m->sorted[i - 1], same + 1))
            same++;
        m->same[i] = (uint8_t)same;
    }
    return TL_OK;
}

/* Returns the end of the group that begins at a sorted row: all with its k-1 tokens of context. */
static uint32_t group_end(const model *m, uint32_t first, int k)
{
    uint32_t end = first + 1;
    while (end < m->rows && m->same[end] >= k - 1) end++;
    return end;
}

static int has_context(const model *m, uint32_t row, int k)
{
    for (int back = 1; back < k; back++)
        if (token(m, row, back) == ABSENT) return 0;
    return 1;
}

/* Counts what follows the context of a group. m->counts has the counts of the tokens whose group is
** this one, which is named by its end; a part of it, by its first row. */
static tally count_group(const model *m, uint32_t first, uint32_t end, int k)
{
    tally t = {0};
    uint32_t part = first;
    for (uint32_t i = first; i < end; i++) {
        if (i > first && m->same[i] < k) part = i;
        if (m->sorted[i] >= m->learnt) continue;
        count *c = &m->counts[token(m, m->sorted[i], 0)];
        int new = c->group != end;
        if (!new && c->part == part && k < m->order) continue;
        if (new)
            *c = (count){.group = end};
        else
            t.kinds[c->count < MAX_COUNT ? c->count : MAX_COUNT]--;
        c->part = part;
        c->count++;
        t.kinds[c->count < MAX_COUNT ? c->count : MAX_COUNT]++;
        t.sum++;
    }
    return t;
}

/* Sets d[1] to d[3] from how many sequences have each count. Where too few sequences make an
** estimate impossible, they are 1/2, 1 and 3/2, as in KenLM. */
static void discounts(const uint64_t *kinds, double *d)
{
    double y = (double)kinds[1] / ((double)kinds[1] + 2 * (double)kinds[2]);
    int known = kinds[1] && kinds[2] && kinds[3];
    for (int j = 1; j <= 3 && known; j++) {
        d[j] = j - (j + 1) * y * (double)kinds[j + 1] / (double)kinds[j];
        known = d[j] > 0 && d[j] <= j;
    }
    for (int j = 1; j <= 3 && !known; j++) d[j] = j / 2.0;
}

/* Turns m->p from P_k-1 into P_k for the rows of test in a group. */
static void apply_group(const model *m, uint32_t first, uint32_t end, int k, const double *d)
{
    uint32_t i = first;
    while (i < end && m->sorted[i] < m->learnt) i++;
    if (i == end) return; /* nothing to predict: do not count */
    tally t = count_group(m, first, end, k);
    if (!t.sum) return;
    double kept = d[1] * (double)t.kinds[1] + d[2] * (double)t.kinds[2] +
                  d[3] * (double)(t.kinds[3] + t.kinds[4] + t.kinds[MAX_COUNT]);
    for (; i < end; i++) {
        if (m->sorted[i] < m->learnt) continue;
        const count *c = &m->counts[token(m, m->sorted[i], 0)];
        uint32_t a = c->group == end ? c->count : 0;
        double *p = &m->p[m->sorted[i] - m->learnt];
        *p = (a - d[a < 3 ? a : 3] + kept * *p) / (double)t.sum;
    }
}

static void level(const model *m, int k)
{
    uint64_t kinds[MAX_COUNT + 1] = {0};
    double d[4] = {0};
    memset(m->counts, 0, (size_t)m->v * sizeof *m->counts);
    for (uint32_t first = 0, end; first < m->rows; first = end) {
        end = group_end(m, first, k);
        if (!has_context(m, m->sorted[first], k)) continue;
        tally t = count_group(m, first, end, k);
        for (int j = 1; j < MAX_COUNT; j++) kinds[j] += t.kinds[j];
    }
    discounts(kinds, d);
    memset(m->counts, 0, (size_t)m->v * sizeof *m->counts);
    for (uint32_t first = 0, end; first < m->rows; first = end) {
        end = group_end(m, first, k);
        if (has_context(m, m->sorted[first], k)) apply_group(m, first, end, k, d);
    }
}

tl_status tl_kneser_ney(const tl_tensor *train, const tl_tensor *test, int order, int32_t v,
                        double *out_bits)
{
    tl_ctx *ctx = train->ctx;
    int alone = train->ndim == 1;
    int64_t learnt = alone ? train->len : train->dims[0], asked = alone ? test->len : test->dims[0];
    if (learnt + asked >= UINT32_MAX)
        return tl_fail(ctx, TL_EINVAL, "ngram: train and test have 2^32 tokens or more");
    size_t rows = (size_t)(learnt + asked);
    model m = {.ctx = ctx,
               .train = I32(train),
               .test = I32(test),
               .len = train->len,
               .step = alone ? 1 : order,
               .last = alone ? 0 : order - 1,
               .learnt = (uint32_t)learnt,
               .rows = (uint32_t)rows,
               .order = order,
               .v = v};
    m.sorted = tl_alloc(ctx, rows * sizeof *m.sorted);
    m.same = m.sorted ? tl_alloc(ctx, rows) : NULL;
    m.counts = m.same ? tl_alloc(ctx, (size_t)v * sizeof *m.counts) : NULL;
    m.p = m.counts ? tl_alloc(ctx, (size_t)asked * sizeof *m.p) : NULL;
    tl_status st = m.p ? sort_rows(&m) : TL_ENOMEM;
    double bits = 0;
    for (int64_t i = 0; st == TL_OK && i < asked; i++) m.p[i] = 1.0 / v;
    for (int k = 1; st == TL_OK && k <= order; k++) level(&m, k);
    for (int64_t i = 0; st == TL_OK && i < asked; i++) bits -= log2(m.p[i]);
    if (st == TL_OK) *out_bits = bits / (double)asked;
    tl_release(ctx, m.sorted);
    tl_release(ctx, m.same);
    tl_release(ctx, m.counts);
    tl_release(ctx, m.p);
    return st;
}

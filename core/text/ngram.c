/* ngram.c - interpolated n-grams, the baseline for trained language models. Those by Kneser-Ney
** smoothing are in kneser_ney.c; here are those by Witten-Bell smoothing:
**
**   P_k(c|h) = (count(h c) + T(h) P_k-1(c|h')) / (count(h) + T(h)),   P_0 = 1/v
**
** h is the k-1 tokens before c, and h' is h without its oldest token. count(h) is how often any
** token follows h in train, and T(h) how many distinct tokens do. All sequences of up to `order`
** tokens form a tree whose edges lie in one hash table. Each context length keeps its node in the
** tree and follows one edge per token, so a token costs `order` look-ups. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "engine/storage.h"
#include "text/ngram.h"
#include "toeplab-lab.h"

#define MAX_ORDER 32
#define NONE      UINT32_MAX
#define ROOT      0u

typedef struct edge { /* the edge of a token from one node to another; count 0: an empty slot */
    uint32_t from;
    int32_t token;
    uint32_t to, count;
} edge;

typedef struct node {
    uint32_t followed, kinds; /* count(h) and T(h) */
} node;

typedef struct tree {
    tl_ctx *ctx;
    edge *edges;
    node *nodes;
    size_t slots, used, capacity; /* slots: of edges, a power of two; the others: of nodes */
} tree;

static size_t slot_of(const tree *t, uint32_t from, int32_t token)
{
    uint64_t h = ((uint64_t)from << 32 | (uint32_t)token) * 0x9e3779b97f4a7c15u;
    return (size_t)(h ^ h >> 29) & (t->slots - 1);
}

/* Returns the edge, or the empty slot where it belongs. */
static edge *tree_look(const tree *t, uint32_t from, int32_t token)
{
    size_t i = slot_of(t, from, token);
    while (t->edges[i].count && (t->edges[i].from != from || t->edges[i].token != token))
        i = (i + 1) & (t->slots - 1);
    return &t->edges[i];
}

/* Makes sure that one more node and its edge fit; the hash table stays at most half full. */
static tl_status tree_grow(tree *t)
{
    if (t->used < t->capacity) return TL_OK;
    size_t capacity = t->capacity ? 2 * t->capacity : 1 << 12;
    if (capacity >= NONE) return tl_fail(t->ctx, TL_ENOMEM, "ngram: more than 2^32 sequences");
    tree old = *t;
    edge *edges = tl_alloc(t->ctx, 2 * capacity * sizeof *edges);
    node *nodes = edges ? tl_alloc(t->ctx, capacity * sizeof *nodes) : NULL;
    if (!nodes) {
        tl_release(t->ctx, edges);
        return TL_ENOMEM;
    }
    memset(edges, 0, 2 * capacity * sizeof *edges);
    memset(nodes, 0, capacity * sizeof *nodes);
    if (old.used) memcpy(nodes, old.nodes, old.used * sizeof *nodes);
    *t = (tree){t->ctx, edges, nodes, 2 * capacity, old.used, capacity};
    for (size_t i = 0; i < old.slots; i++)
        if (old.edges[i].count) *tree_look(t, old.edges[i].from, old.edges[i].token) = old.edges[i];
    tl_release(t->ctx, old.edges);
    tl_release(t->ctx, old.nodes);
    return TL_OK;
}

/* Counts token after node from; *out_to is the node it leads to. */
static tl_status tree_count(tree *t, uint32_t from, int32_t token, uint32_t *out_to)
{
    tl_status st = tree_grow(t);
    if (st != TL_OK) return st;
    edge *e = tree_look(t, from, token);
    if (!e->count) {
        *e = (edge){.from = from, .token = token, .to = (uint32_t)t->used++};
        t->nodes[from].kinds++;
    }
    e->count++;
    t->nodes[from].followed++;
    *out_to = e->to;
    return TL_OK;
}

/* Advances all contexts by token. contexts[k] is the node of the last k tokens, or NONE. The
** longest goes first, because each comes from the next shorter one. */
static void move_on(const tree *t, uint32_t *contexts, int order, int32_t token)
{
    for (int k = order - 1; k > 0; k--) {
        const edge *e = contexts[k - 1] == NONE ? NULL : tree_look(t, contexts[k - 1], token);
        contexts[k] = e && e->count ? e->to : NONE;
    }
}

static tl_status tree_learn(tree *t, uint32_t *contexts, int order, const tl_tensor *train)
{
    t->used = 1;
    for (int64_t i = 0; i < train->len; i++) {
        uint32_t next[MAX_ORDER + 1];
        for (int k = 0; k < order; k++) {
            next[k + 1] = NONE;
            if (contexts[k] == NONE) continue;
            tl_status st = tree_count(t, contexts[k], I32(train)[i], &next[k + 1]);
            if (st != TL_OK) return st;
        }
        if (order) memcpy(contexts + 1, next + 1, (size_t)(order - 1) * sizeof *contexts);
    }
    return TL_OK;
}

static double probability(const tree *t, const uint32_t *contexts, int order, int32_t token,
                          int32_t v)
{
    double p = 1.0 / v;
    for (int k = 0; k < order && contexts[k] != NONE; k++) {
        node h = t->nodes[contexts[k]];
        if (!h.followed) break; /* longer contexts were not followed either */
        const edge *e = tree_look(t, contexts[k], token);
        p = (e->count + h.kinds * p) / ((double)h.followed + h.kinds);
    }
    return p;
}

/* Checks a stream of tokens, or a table of them with a context of `order` - 1 tokens in each row,
** which may be -1: absent. */
static tl_status ngram_check(tl_ctx *ctx, const char *name, const tl_tensor *t, int order,
                             int32_t v)
{
    if (t->type != TL_I32) return tl_fail(ctx, TL_ETYPE, "ngram: %s must be int32", name);
    if (t->ndim == 2 && (order == 0 || t->dims[1] != order))
        return tl_fail(ctx, TL_ESHAPE, "ngram: %s is %s: the rows of order %d have %d columns",
                       name, SHAPE(t), order, order);
    if (t->len >= NONE) return tl_fail(ctx, TL_EINVAL, "ngram: %s has 2^32 tokens or more", name);
    tl_status st = tl_to_cpu(t);
    if (st != TL_OK) return st;
    for (int64_t i = 0; i < t->len; i++) {
        int32_t least = t->ndim == 2 && (i + 1) % order ? -1 : 0;
        if (I32(t)[i] < least || I32(t)[i] >= v)
            return tl_fail(ctx, TL_EINVAL, "ngram: %s[%lld] is %d, the vocabulary has %d", name,
                           tl_position(ctx, i), I32(t)[i], v);
    }
    return TL_OK;
}

static tl_status witten_bell(const tl_tensor *train, const tl_tensor *test, int order, int32_t v,
                             double *out_bits)
{
    tree t = {.ctx = train->ctx};
    double bits = 0;
    uint32_t contexts[MAX_ORDER] = {ROOT};
    for (int k = 1; k < MAX_ORDER; k++) contexts[k] = NONE;
    tl_status st = tree_grow(&t);
    if (st == TL_OK) st = tree_learn(&t, contexts, order, train);
    for (int64_t i = 0; st == TL_OK && i < test->len; i++) {
        bits -= log2(probability(&t, contexts, order, I32(test)[i], v));
        move_on(&t, contexts, order, I32(test)[i]);
    }
    if (st == TL_OK) *out_bits = bits / (double)test->len;
    tl_release(t.ctx, t.edges);
    tl_release(t.ctx, t.nodes);
    return st;
}

tl_status tl_ngram_bits(tl_tensor *train, tl_tensor *test, int order, int32_t v,
                        tl_smoothing smoothing, double *out_bits)
{
    tl_ctx *ctx = train->ctx;
    int rows = smoothing == TL_KNESER_NEY && train->ndim == 2 && test->ndim == 2;
    if (order < 0 || order > MAX_ORDER)
        return tl_fail(ctx, TL_EINVAL, "ngram: order %d is not in 0..%d", order, MAX_ORDER);
    if (!rows && (train->ndim != 1 || test->ndim != 1))
        return tl_fail(ctx, TL_ESHAPE, "ngram: train is %s and test %s: both must be vectors%s",
                       SHAPE(train), SHAPE(test),
                       smoothing == TL_KNESER_NEY ? ", or both matrices" : "");
    tl_status st = ngram_check(ctx, "train", train, order, v);
    if (st == TL_OK) st = ngram_check(ctx, "test", test, order, v);
    if (st == TL_OK && !test->len) st = tl_fail(ctx, TL_EINVAL, "ngram: the test text is empty");
    if (st != TL_OK) return st;
    if (smoothing == TL_KNESER_NEY) return tl_kneser_ney(train, test, order, v, out_bits);
    return witten_bell(train, test, order, v, out_bits);
}

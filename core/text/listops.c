/* listops.c - ListOps: nested lists of digits under MIN, MAX, MED and SM (Nangia & Bowman 2018),
** drawn by the rules of Long Range Arena's generator (Tay et al. 2021).
**
** Each expression is drawn from its own part of one stream, so that expression i does not depend on
** the outcome of the others.
**
** Unlike other tasks, ListOps is written in C, because every trial draws its examples afresh: the
** published 100,000 examples take 152 million random words and 103 million tokens, which is 3.5 s
** of CPU time; in Lua, drawing alone took 59 s. */
#include <string.h>

#include "base/memory.h"
#include "base/philox.h"
#include "engine/launch.h"
#include "toeplab-lab.h"
#include "text/intern.h"

enum { DIGIT = 3, MIN = 13, MAX, MED, SM, CLOSE }; /* tokens; DIGIT is the digit 0 */

#define BLOCKS      24      /* bits of the stream position within one expression */
#define MAX_TOKENS  1000000 /* most tokens, so that these bits suffice */
#define MAX_REPEATS 2000000 /* most draws in a row without a new expression */

/* the tokens from MIN on */
static const char *const names[] = {"[MIN", "[MAX", "[MED", "[SM", "]"};

/* ---- Values ---------------------------------------------------------------------------------- */

/* Returns the value of a list of count digits, of which counts[v] equal v. */
static int listops_apply(int op, const int32_t counts[10], int32_t count)
{
    int64_t sum = 0, twice = 0;
    int least = -1, most = 0;
    int32_t seen = 0, low = (count - 1) / 2, high = count / 2; /* the ranks of the median */
    for (int v = 0; v < 10; v++) {
        int32_t before = seen;
        seen += counts[v];
        sum += (int64_t)v * counts[v];
        if (counts[v]) most = v;
        if (counts[v] && least < 0) least = v;
        if (low >= before && low < seen) twice += v;
        if (high >= before && high < seen) twice += v;
    }
    switch (op) {
    case MIN: return least;
    case MAX: return most;
    case MED: return (int)(twice / 2);
    default: return (int)(sum % 10);
    }
}

/* Evaluates the expression tokens [n]. The scratch buffer stack [n] holds a digit as itself and an
** open list as -1 - its place. args may be NULL; else args[i] becomes the length of the list that
** begins at i. */
static tl_status evaluate(tl_ctx *ctx, const uint8_t *tokens, int64_t n, int32_t *stack,
                          int32_t *args, int *out_value)
{
    int64_t height = 0, i = 0;
    for (; i < n && (i == 0 || height > 1 || stack[0] < 0); i++) {
        int token = tokens[i];
        if (token < DIGIT || token > CLOSE)
            return tl_fail(ctx, TL_EINVAL, "listops: token %lld is %d, not in %d..%d",
                           tl_position(ctx, i), token, DIGIT, CLOSE);
        if (token != CLOSE) {
            stack[height++] = token < MIN ? token - DIGIT : -1 - (int32_t)i;
            continue;
        }
        int32_t counts[10] = {0}, count = 0;
        for (; height > 0 && stack[height - 1] >= 0; count++) counts[stack[--height]]++;
        if (height == 0 || count == 0)
            return tl_fail(ctx, TL_EINVAL, "listops: token %lld closes %s",
                           tl_position(ctx, i), height ? "an empty list" : "no list");
        int32_t open = -1 - stack[height - 1];
        if (args) args[open] = count;
        stack[height - 1] = listops_apply(tokens[open], counts, count);
    }
    if (height == 0 || stack[height - 1] < 0 || height > 1)
        return tl_fail(ctx, TL_EINVAL, "listops: the expression of %lld tokens does not end",
                       (long long)n);
    if (i < n)
        return tl_fail(ctx, TL_EINVAL, "listops: the expression ends after %lld of %lld tokens",
                       (long long)i, (long long)n);
    *out_value = stack[0];
    return TL_OK;
}

/* An expression from the caller, with two scratch numbers per token. */
typedef struct given {
    int64_t n;
    int32_t *stack, *args; /* stack owns the memory of all three */
    uint8_t *tokens;
} given;

static tl_status given_new(tl_ctx *ctx, int64_t n, given *g)
{
    *g = (given){0};
    if (n < 1 || n > INT32_MAX / 16)
        return tl_fail(ctx, TL_EINVAL, "listops: %lld tokens are too few or too many",
                       (long long)n);
    *g = (given){.n = n, .stack = tl_alloc(ctx, (size_t)n * (2 * sizeof(int32_t) + 1))};
    if (!g->stack) return TL_ENOMEM;
    g->args = g->stack + n;
    g->tokens = (uint8_t *)(g->args + n);
    return TL_OK;
}

/* Copies ids[first .. first+n-1] into g and evaluates them. The caller releases g->stack in any
** case. */
static tl_status listops_take(const tl_tensor *ids, int64_t first, int64_t n, given *g,
                              int *out_value)
{
    tl_ctx *ctx = ids->ctx;
    *g = (given){0}; /* nothing to release yet */
    if (ids->type != TL_I32) return tl_fail(ctx, TL_ETYPE, "listops: ids must be int32");
    if (first < 0 || n < 0 || first > ids->len - n)
        return tl_fail(ctx, TL_EINVAL, "listops: ids have no %lld tokens from %lld on, but %lld in "
                       "all", (long long)n, (long long)first, (long long)ids->len);
    tl_status st = tl_to_cpu(ids);
    if (st == TL_OK) st = given_new(ctx, n, g);
    if (st != TL_OK) return st;
    for (int64_t i = 0; i < n; i++) {
        int32_t id = I32(ids)[first + i];
        g->tokens[i] = id < 0 || id > CLOSE ? 0 : (uint8_t)id;
    }
    return evaluate(ctx, g->tokens, n, g->stack, g->args, out_value);
}

tl_status tl_listops_value(const tl_tensor *ids, int64_t first, int64_t n, int *out_value)
{
    given g;
    tl_status st = listops_take(ids, first, n, &g, out_value);
    tl_release(ids->ctx, g.stack);
    return st;
}

/* ---- Texts ----------------------------------------------------------------------------------- */

static int blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* Returns the token of a word, 0 for a parenthesis, -1 for anything else. */
static int token_of(const char *word, size_t bytes)
{
    if (bytes == 1 && word[0] >= '0' && word[0] <= '9') return DIGIT + word[0] - '0';
    if (bytes == 1 && (word[0] == '(' || word[0] == ')')) return 0;
    if (bytes == 1 && word[0] == 'X') return CLOSE; /* as some data sets write it */
    for (int i = 0; i <= CLOSE - MIN; i++)
        if (strlen(names[i]) == bytes && memcmp(names[i], word, bytes) == 0) return MIN + i;
    return -1;
}

tl_status tl_listops_parse(tl_ctx *ctx, const char *text, size_t bytes, tl_tensor **out_ids)
{
    given g;
    int value;
    int64_t n = 0;
    size_t end;
    tl_tensor *ids = NULL;
    tl_status st = given_new(ctx, (int64_t)bytes + 1, &g);
    for (size_t at = 0; st == TL_OK && at < bytes; at = end) {
        for (end = at; end < bytes && !blank(text[end]);) end++;
        int token = end == at ? 0 : token_of(text + at, end - at);
        if (token < 0)
            st = tl_fail(ctx, TL_EINVAL, "listops: '%.*s' at offset %zu is not a token",
                         (int)(end - at < 20 ? end - at : 20), text + at, at);
        if (token > 0) g.tokens[n++] = (uint8_t)token;
        if (end == at) end++;
    }
    if (st == TL_OK) st = evaluate(ctx, g.tokens, n, g.stack, NULL, &value);
    if (st == TL_OK) st = tl_tensor_new_host(ctx, TL_I32, 1, &n, &ids);
    for (int64_t i = 0; st == TL_OK && i < n; i++) I32(ids)[i] = g.tokens[i];
    tl_release(ctx, g.stack);
    return tl_finish(st, ids, out_ids);
}

typedef struct output {
    char *text;
    size_t size, used;
} output;

static void put_text(output *o, const char *s)
{
    for (; *s; s++, o->used++)
        if (o->used < o->size) o->text[o->used] = *s;
}

/* Writes a list of k values as k+1 nested pairs, each closed after the value that it adds: ( ( (
** [MAX 2 ) 9 ) ] ) */
static void write_expression(const given *g, output *o)
{
    int64_t depth = 0;
    for (int64_t i = 0; i < g->n; i++) {
        int token = g->tokens[i];
        if (i > 0) put_text(o, " ");
        if (token >= MIN && token < CLOSE) {
            for (int32_t k = 0; k <= g->args[i]; k++) put_text(o, "( ");
            put_text(o, names[token - MIN]);
            depth++;
            continue;
        }
        put_text(o, token == CLOSE ? "] )" : (const char[]){(char)('0' + token - DIGIT), 0});
        depth -= token == CLOSE;
        if (depth > 0) put_text(o, " )");
    }
}

tl_status tl_listops_text(const tl_tensor *ids, int64_t first, int64_t n, char *text, size_t size,
                          size_t *out_bytes)
{
    given g;
    int value;
    output o = {text, size, 0};
    tl_status st = listops_take(ids, first, n, &g, &value);
    if (st == TL_OK) {
        write_expression(&g, &o);
        *out_bytes = o.used;
    }
    tl_release(ids->ctx, g.stack);
    return st;
}

/* ---- Drawing --------------------------------------------------------------------------------- */

typedef struct drawer {
    const tl_listops *opt;
    uint64_t key, counter;
    uint32_t words[4];
    int left;        /* unused words */
    int64_t n;       /* number of tokens so far */
    uint8_t *tokens; /* [max_length] */
    int32_t *stack;
} drawer;

static uint32_t draw_word(drawer *d)
{
    if (!d->left) tl_philox(d->key, d->counter++, d->words);
    d->left = (d->left + 3) % 4;
    return d->words[d->left];
}

/* Returns a number in 0..bound-1 from all of a word but its last two bits. */
static int below(uint32_t w, int bound)
{
    return (int)((uint64_t)(w >> 2) * (uint64_t)bound >> 30);
}

static int draw_token(drawer *d, int token)
{
    if (d->n == d->opt->max_length) return 0;
    d->tokens[d->n++] = (uint8_t)token;
    return 1;
}

/* Appends a digit, or with probability 1/4 a list. Returns 0 if the expression gets too long. */
static int draw_node(drawer *d, int depth)
{
    uint32_t w = draw_word(d);
    if (depth == d->opt->max_depth || (w & 3) != 0) return draw_token(d, DIGIT + below(w, 10));
    w = draw_word(d);
    int good = draw_token(d, MIN + (int)(w & 3)), args = 2 + below(w, d->opt->max_args - 1);
    for (int i = 0; good && i < args; i++) good = draw_node(d, depth + 1);
    return good && draw_token(d, CLOSE);
}

/* Draws expression i; returns whether its length is within the limits. */
static int draw_expression(drawer *d, uint64_t i)
{
    d->counter = i << BLOCKS;
    d->left = 0;
    d->n = 0;
    return draw_node(d, 1) && d->n >= d->opt->min_length;
}

/* Fills list with distinct expressions and answers [count] with their values. */
static tl_status draw_all(tl_ctx *ctx, drawer *d, tl_intern *list, int32_t *answers)
{
    const tl_listops *o = d->opt;
    int32_t id;
    int value;
    tl_status st = TL_OK;
    uint64_t last = 0; /* the last draw that was new */
    for (uint64_t i = 0; st == TL_OK && list->count < o->count; i++) {
        if (i - last > MAX_REPEATS)
            return tl_fail(ctx, TL_EINVAL,
                           "listops: %d of %lld distinct expressions of %lld to %lld tokens found",
                           list->count, (long long)o->count, (long long)o->min_length,
                           (long long)o->max_length);
        if (!draw_expression(d, i)) continue;
        int32_t before = list->count;
        st = tl_intern_add(list, (const char *)d->tokens, (size_t)d->n, &id);
        if (st != TL_OK || id < before) continue;
        last = i;
        st = evaluate(ctx, d->tokens, d->n, d->stack, NULL, &value);
        if (st == TL_OK) answers[id] = value;
    }
    return st;
}

static tl_status listops_check(tl_ctx *ctx, const tl_listops *o)
{
    tl_status st = tl_check_bytes(ctx, "listops", o->bytes, sizeof *o);
    if (st != TL_OK) return st;
    if (o->count < 1 || o->count > INT32_MAX / 2)
        return tl_fail(ctx, TL_EINVAL, "listops: count %lld is out of range", (long long)o->count);
    if (o->min_length < 1 || o->max_length < o->min_length || o->max_length > MAX_TOKENS)
        return tl_fail(ctx, TL_EINVAL, "listops: lengths %lld..%lld are not in 1..%d",
                       (long long)o->min_length, (long long)o->max_length, MAX_TOKENS);
    if (o->max_depth < 1 || o->max_depth > 1000 || o->max_args < 2 || o->max_args > 1000)
        return tl_fail(ctx, TL_EINVAL, "listops: max_depth is %d, not in 1..1000, or max_args is "
                       "%d, not in 2..1000", o->max_depth, o->max_args);
    return TL_OK;
}

/* Returns the strings of list as ids [t] and starts [count+1]. */
static tl_status export_list(tl_ctx *ctx, const tl_intern *list, tl_tensor **out_ids,
                          tl_tensor **out_starts)
{
    int64_t total = (int64_t)list->used, count = (int64_t)list->count + 1;
    tl_tensor *ids = NULL, *starts = NULL;
    tl_status st = total <= INT32_MAX ? tl_tensor_new_host(ctx, TL_I32, 1, &total, &ids)
                                      : tl_fail(ctx, TL_EINVAL, "listops: %lld tokens are too many",
                                                (long long)total);
    if (st == TL_OK) st = tl_tensor_new_host(ctx, TL_I32, 1, &count, &starts);
    if (st != TL_OK) {
        tl_tensor_free(ids);
        return st;
    }
    for (int64_t i = 0; i < total; i++) I32(ids)[i] = (uint8_t)list->bytes[i];
    for (int64_t i = 0; i < count; i++) I32(starts)[i] = (int32_t)list->starts[i];
    *out_ids = ids;
    *out_starts = starts;
    return TL_OK;
}

tl_status tl_listops_draw(tl_ctx *ctx, const tl_listops *o, tl_tensor **out_ids,
                          tl_tensor **out_starts, tl_tensor **out_answers)
{
    tl_tensor *answers = NULL;
    tl_intern list = {.ctx = ctx};
    tl_status st = listops_check(ctx, o);
    if (st != TL_OK) return st;
    drawer d = {.opt = o, .key = tl_stream_new(o->seed, "listops").key};
    st = tl_tensor_new_host(ctx, TL_I32, 1, &o->count, &answers);
    if (st == TL_OK) {
        d.stack = tl_alloc(ctx, (size_t)o->max_length * (sizeof(int32_t) + 1));
        if (d.stack) d.tokens = (uint8_t *)(d.stack + o->max_length);
        st = d.stack ? draw_all(ctx, &d, &list, I32(answers)) : TL_ENOMEM;
    }
    if (st == TL_OK) st = export_list(ctx, &list, out_ids, out_starts);
    tl_release(ctx, d.stack);
    tl_intern_free(&list);
    return tl_finish(st, answers, out_answers);
}

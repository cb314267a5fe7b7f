/* exchange.c - turns some tokens of all channels into all tokens of some channels, and back, with
** gradients. Each direction is the gradient of the other. */
#include <string.h>

#include "base/memory.h"
#include "ranks/ranks.h"

/* A whole sequence of all channels, cut both ways among p ranks. */
typedef struct cut {
    int64_t b, m, c; /* rows; tokens and channels of a rank */
    int     p;
} cut;

/* Copies [b,m,p c], some tokens of all channels, to or from its parts by channels, [p][b,m,c]. */
static void by_channels(const cut *k, float *tokens, float *parts, int to_parts)
{
    size_t bytes = (size_t)k->c * sizeof(float);
    for (int q = 0; q < k->p; q++)
        for (int64_t row = 0; row < k->b * k->m; row++) {
            float *whole = tokens + (row * k->p + q) * k->c;
            float *part = parts + (q * k->b * k->m + row) * k->c;
            if (to_parts) memcpy(part, whole, bytes);
            else memcpy(whole, part, bytes);
        }
}

/* Copies [b,p m,c], all tokens of some channels, to or from its parts by tokens, [p][b,m,c]. */
static void by_tokens(const cut *k, float *channels, float *parts, int to_parts)
{
    size_t size = (size_t)(k->m * k->c), bytes = size * sizeof(float);
    for (int q = 0; q < k->p; q++)
        for (int64_t i = 0; i < k->b; i++) {
            float *whole = channels + (size_t)(i * k->p + q) * size;
            float *part = parts + (size_t)(q * k->b + i) * size;
            if (to_parts) memcpy(part, whole, bytes);
            else memcpy(whole, part, bytes);
        }
}

static tl_status run(tl_ranks *r, const cut *k, tl_tensor *x, const int64_t *dims, int to_channels,
                     tl_tensor **out_y)
{
    const int64_t channels[3] = {k->b * k->m, k->p, k->c}, tokens[3] = {k->b, k->p, k->m * k->c};
    if (r->link)
        return tl_link_turn(r, x, to_channels ? channels : tokens, to_channels ? tokens : channels,
                            dims, out_y);
    int64_t   part = k->b * k->m * k->c;
    tl_status st = tl_to_cpu(x);
    if (st == TL_OK) st = tl_tensor_new_host(r->ctx, TL_F32, 3, dims, out_y);
    if (st != TL_OK) return st;
    tl_tensor *y = *out_y;
    float *in = tl_alloc(r->ctx, (size_t)(2 * part * k->p) * sizeof *in);
    if (!in) return TL_ENOMEM;
    float *out = in + part * k->p;
    if (to_channels) by_channels(k, F32(x), in, 1);
    else by_tokens(k, F32(x), in, 1);
    st = r->transport->exchange(r->ctx, r->group, in, out, part);
    if (st == TL_OK && to_channels) by_tokens(k, F32(y), out, 0);
    else if (st == TL_OK) by_channels(k, F32(y), out, 0);
    tl_release(r->ctx, in);
    return st;
}

static tl_status turn(tl_ranks *r, tl_tensor *x, int to_channels, tl_tensor **out_y);

static void release(void *r) { tl_ranks_free(r); }

/* saved: p: the group   i: whether the operator went to channels */
static tl_status turn_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_tensor *g = NULL;
    tl_status  st = turn(node->saved.p, dy, !node->saved.list.i[0], &g);
    return tl_accumulate_all(ctx, node, st, &g, 1);
}

static tl_status turn(tl_ranks *r, tl_tensor *x, int to_channels, tl_tensor **out_y)
{
    const char *op = to_channels ? "to_channels" : "to_tokens";
    int         p = r->size, axis = to_channels ? 2 : 1;
    if (x->type != TL_F32) return tl_fail(r->ctx, TL_ETYPE, "%s: x is not float32", op);
    if (x->ndim != 3)
        return tl_fail(r->ctx, TL_ESHAPE, "%s: x is %s, not [b,n,d]", op, SHAPE(x));
    if (x->dims[axis] % p != 0)
        return tl_fail(r->ctx, TL_ESHAPE, "%s: %lld %s cannot be divided among %d ranks", op,
                       (long long)x->dims[axis], to_channels ? "channels" : "tokens", p);
    int64_t dims[3] = {x->dims[0], to_channels ? x->dims[1] * p : x->dims[1] / p,
                       to_channels ? x->dims[2] / p : x->dims[2] * p};
    cut     k = {dims[0], to_channels ? x->dims[1] : dims[1], to_channels ? dims[2] : x->dims[2],
                 p};
    tl_tensor *y = NULL;
    tl_args    saved = {.p = r, .list = {.i = {to_channels}}};
    tl_status  st = run(r, &k, x, dims, to_channels, &y);
    if (st == TL_OK) {
        r->refs++;
        st = tl_record(r->ctx, y, turn_grad, &x, 1, &saved, release);
    }
    return tl_finish(st, y, out_y);
}

tl_status tl_ranks_to_channels(tl_ranks *r, tl_tensor *x, tl_tensor **out_y)
{
    return turn(r, x, 1, out_y);
}

tl_status tl_ranks_to_tokens(tl_ranks *r, tl_tensor *x, tl_tensor **out_y)
{
    return turn(r, x, 0, out_y);
}

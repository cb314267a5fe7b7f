/* matmul.c - defines the operators matmul and linear. */
#include <string.h>

#include "base/threads.h"
#include "engine/gradient.h"
#include "products/gemm.h"
#include "products/product.h"

/* ---- Kernels --------------------------------------------------------------------------------- */

tl_status tl_cpu_matmul(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_matmul *m = &a->matmul;
    tl_matmul_sizes s = tl_matmul_sizes_of(m);
    if (m->y->len == 0) return TL_OK;
    if (s.k == 0) return m->add ? TL_OK : tl_tensor_fill(m->y, 0);
    tl_product p = {.m = s.m, .n = s.n, .k = s.k, .alpha = 1, .beta = m->add ? 1.0f : 0.0f,
                    .trans_a = (int)m->trans_a, .trans_b = (int)m->trans_b};
    return tl_gemm_batch(ctx, s.count, &p, F32(m->a), F32(m->b), F32(m->y));
}

typedef struct rows {
    const float *bias;
    float       *y;
    int64_t      cols;
} rows;

static void spread(void *user, int64_t begin, int64_t end, int thread)
{
    const rows *p = user;
    (void)thread;
    for (int64_t r = begin; r < end; r++)
        memcpy(p->y + r * p->cols, p->bias, (size_t)p->cols * sizeof *p->y);
}

/* Writes a row to every row of y, to which a product is then added. */
TL_PARALLEL(spread, j.cols > 0 ? a->y->len / j.cols : 0, 1 + 16384 / (j.cols + 1), spread, rows,
            F32(a->row), F32(a->y), a->row->len)

/* ---- Matmul ---------------------------------------------------------------------------------- */

/* g = op(a) op(b), the gradient of the input x with the slot `to`. It is added in place to a
** gradient that exists already. */
static tl_status gradient(tl_slot *to, const tl_tensor *x, tl_tensor *a, int ta, tl_tensor *b,
                          int tb, tl_tensor **g)
{
    tl_args   args = {.matmul = {.a = a, .b = b, .trans_a = ta, .trans_b = tb}};
    tl_shape  shape = tl_shape_of(x);
    tl_status st = tl_grad_buffer(a->ctx, to, &shape, &args.matmul.y, &args.matmul.add);
    if (st == TL_OK) st = tl_launch(a->ctx, TL_OP_matmul, &args);
    return tl_finish(st, args.matmul.y, g);
}

/* y = A B with A = op(a), B = op(b): dA = dy B^T, dB = A^T dy, transposed back where op does. */
static tl_status matmul_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    const struct tl_args_matmul *s = &node->saved.matmul;
    tl_slot   *to_a = TL_SLOT(node, matmul, a), *to_b = TL_SLOT(node, matmul, b);
    tl_tensor *a = s->a, *b = s->b, *g[2] = {NULL, NULL};
    int        ta = (int)s->trans_a, tb = (int)s->trans_b;
    tl_status  st = TL_OK;
    if (to_a) {
        if (ta)
            st = gradient(to_a, a, b, tb, dy, 1, &g[0]);
        else
            st = gradient(to_a, a, dy, 0, b, !tb, &g[0]);
    }
    if (st == TL_OK && to_b) {
        if (tb)
            st = gradient(to_b, b, dy, 1, a, ta, &g[1]);
        else
            st = gradient(to_b, b, a, !ta, dy, 0, &g[1]);
    }
    return tl_accumulate_all(ctx, node, st, g, 2);
}

/* Checks the shapes and writes the dimensions of y. */
static tl_status match(const tl_tensor *a, int ta, const tl_tensor *b, int tb, int64_t *dims)
{
    tl_ctx *ctx = a->ctx;
    int     fold = b->ndim == 2 && a->ndim > 2, fits = a->ndim >= 2 && b->ndim >= 2;
    if (a->type != TL_F32 || b->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "matmul: a and b must be float32");
    if (fold && ta)
        return tl_fail(ctx, TL_ESHAPE, "matmul: a is %s, b is %s: trans_a requires an a with as "
                       "many axes as b", SHAPE(a), SHAPE(b));
    int64_t m = tl_tensor_dim(a, ta ? -1 : -2), k = tl_tensor_dim(a, ta ? -2 : -1);
    int64_t n = tl_tensor_dim(b, tb ? -2 : -1), rows_b = tl_tensor_dim(b, tb ? -1 : -2);
    fits = fits && k == rows_b && (fold || a->ndim == b->ndim);
    for (int i = 0; fits && i < a->ndim - 2; i++) {
        if (fold)
            m *= a->dims[i];
        else
            fits = a->dims[i] == b->dims[i];
    }
    if (!fits)
        return tl_fail(ctx, TL_ESHAPE, "matmul: a is %s%s, b is %s%s, not [..,m,k] and [..,k,n]",
                       SHAPE(a), ta ? " transposed" : "", SHAPE(b), tb ? " transposed" : "");
    tl_status st = tl_gemm_fits(ctx, "matmul", m, n, k);
    if (st != TL_OK) return st;
    memcpy(dims, a->dims, sizeof a->dims);
    dims[a->ndim - 2] = fold ? a->dims[a->ndim - 2] : m;
    dims[a->ndim - 1] = n;
    return TL_OK;
}

tl_status tl_matmul(tl_tensor *a, int trans_a, tl_tensor *b, int trans_b, tl_tensor **out_y)
{
    tl_args   saved = {.matmul = {.a = a, .b = b, .trans_a = trans_a != 0,
                                  .trans_b = trans_b != 0}}, args = saved;
    int64_t   dims[TL_MAXDIMS];
    tl_status st = match(a, trans_a != 0, b, trans_b != 0, dims);
    if (st == TL_OK) st = tl_new(a->ctx, TL_F32, a->ndim, dims, &args.matmul.y);
    if (st != TL_OK) return st;
    return tl_run_recorded(TL_OP_matmul, &args, 2, matmul_grad, &saved, out_y);
}

/* ---- Linear ---------------------------------------------------------------------------------- */

enum { X, W, BIAS, INPUTS }; /* of the tape's node, which two kernels compute */

/* dx = dy w, dw = dy^T x, dbias = the sum of dy's rows. */
static tl_status linear_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_slot   *to_x = node->in[X], *to_w = node->in[W], *to_bias = node->in[BIAS];
    tl_tensor *x = node->saved.matmul.a, *w = node->saved.matmul.b, *g[INPUTS] = {NULL};
    tl_status  st = TL_OK;
    if (to_x) st = gradient(to_x, x, dy, 0, w, 0, &g[X]);
    if (st == TL_OK && to_w) st = gradient(to_w, w, dy, 1, x, 0, &g[W]);
    if (st == TL_OK && to_bias) {
        tl_args  a = {.reduce_to = {.x = dy}};
        tl_shape shape = {1, {w->dims[0]}};
        st = tl_grad_buffer(ctx, to_bias, &shape, &a.reduce_to.y, &a.reduce_to.add);
        if (st == TL_OK) st = tl_launch(ctx, TL_OP_reduce_to, &a);
        st = tl_finish(st, a.reduce_to.y, &g[BIAS]);
    }
    return tl_accumulate_all(ctx, node, st, g, INPUTS);
}

static tl_status check_linear(const tl_tensor *x, const tl_tensor *w, const tl_tensor *bias)
{
    tl_ctx *ctx = x->ctx;
    if (x->type != TL_F32 || w->type != TL_F32 || (bias && bias->type != TL_F32))
        return tl_fail(ctx, TL_ETYPE, "linear: x, w and bias must be float32");
    if (x->ndim < 1 || w->ndim != 2 || tl_cols(x) != w->dims[1])
        return tl_fail(ctx, TL_ESHAPE, "linear: x is %s, w is %s, not [..,inputs] and "
                       "[outputs,inputs]", SHAPE(x), SHAPE(w));
    if (bias && (bias->ndim != 1 || bias->dims[0] != w->dims[0]))
        return tl_fail(ctx, TL_ESHAPE, "linear: bias is %s, not [%lld], as w is %s",
                       SHAPE(bias), (long long)w->dims[0], SHAPE(w));
    return tl_gemm_fits(ctx, "linear", tl_rows(x), w->dims[0], w->dims[1]);
}

tl_status tl_linear(tl_tensor *x, tl_tensor *w, tl_tensor *bias, tl_tensor **out_y)
{
    tl_ctx   *ctx = x->ctx;
    int64_t   dims[TL_MAXDIMS];
    tl_status st = check_linear(x, w, bias);
    if (st != TL_OK) return st;
    memcpy(dims, x->dims, sizeof dims);
    dims[x->ndim - 1] = w->dims[0];
    tl_args a = {.matmul = {.a = x, .b = w, .trans_b = 1, .add = bias != NULL}};
    tl_args saved = {.matmul = {.a = x, .b = w}};
    st = tl_new(ctx, TL_F32, x->ndim, dims, &a.matmul.y);
    tl_args spread_bias = {.spread = {.row = bias, .y = a.matmul.y}};
    if (st == TL_OK && bias) st = tl_launch(ctx, TL_OP_spread, &spread_bias);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_matmul, &a);
    if (st == TL_OK)
        st = tl_record(ctx, a.matmul.y, linear_grad, (tl_tensor *[]){x, w, bias}, INPUTS, &saved,
                       NULL);
    return tl_finish(st, a.matmul.y, out_y);
}

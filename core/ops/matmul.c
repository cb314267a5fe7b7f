/* matmul.c - defines the operators matmul and linear. */
#include <string.h>

#include "base/threads.h"
#include "engine/gradient.h"
#include "ops/ops.h"
#include "products/gemm.h"
#include "products/product.h"

/* ---- Kernels --------------------------------------------------------------------------------- */

/* The arguments are those of tl_matmul_sizes_of. */
static tl_status matmul_kernel(tl_ctx *ctx, const tl_args *a)
{
    tl_matmul_sizes s = tl_matmul_sizes_of(a);
    if (a->out[0]->len == 0) return TL_OK;
    if (s.k == 0) return a->i[2] ? TL_OK : tl_tensor_fill(a->out[0], 0);
    tl_product p = {.m = s.m, .n = s.n, .k = s.k, .alpha = 1, .beta = a->i[2] ? 1.0f : 0.0f,
                    .trans_a = (int)a->i[0], .trans_b = (int)a->i[1]};
    return tl_gemm_batch(ctx, s.count, &p, F32(a->in[0]), F32(a->in[1]), F32(a->out[0]));
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

/* Writes in[0] to every row of out[0], to which a product is then added. */
static tl_status spread_kernel(tl_ctx *ctx, const tl_args *a)
{
    rows p = {F32(a->in[0]), F32(a->out[0]), a->in[0]->len};
    if (p.cols > 0) tl_parallel(ctx, a->out[0]->len / p.cols, 1 + 16384 / p.cols, spread, &p);
    return TL_OK;
}

/* ---- Matmul ---------------------------------------------------------------------------------- */

/* g = op(a) op(b), the gradient of input number `to` of node, of x's shape. It is added in place to
** a gradient that exists already. */
static tl_status gradient(const tl_node *node, int to, const tl_tensor *x, tl_tensor *a, int ta,
                          tl_tensor *b, int tb, tl_tensor **g)
{
    tl_args   args = {.in = {a, b}, .i = {ta, tb}};
    tl_shape  shape = tl_shape_of(x);
    tl_status st = tl_grad_buffer(a->ctx, node->in[to], &shape, &args.out[0], &args.i[2]);
    if (st == TL_OK) st = tl_launch(a->ctx, TL_OP_matmul, &args);
    return tl_finish(st, args.out[0], g);
}

/* y = A B with A = op(a), B = op(b): dA = dy B^T, dB = A^T dy, transposed back where op does. */
static tl_status matmul_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    const tl_args *s = &node->saved;
    tl_tensor     *a = s->in[0], *b = s->in[1], *g[2] = {NULL, NULL};
    int            ta = (int)s->i[0], tb = (int)s->i[1];
    tl_status      st = TL_OK;
    if (node->in[0]) {
        if (ta)
            st = gradient(node, 0, a, b, tb, dy, 1, &g[0]);
        else
            st = gradient(node, 0, a, dy, 0, b, !tb, &g[0]);
    }
    if (st == TL_OK && node->in[1]) {
        if (tb)
            st = gradient(node, 1, b, dy, 1, a, ta, &g[1]);
        else
            st = gradient(node, 1, b, a, !ta, dy, 0, &g[1]);
    }
    return tl_hand_over(ctx, node, st, g, 2);
}

/* Checks the shapes and writes the dimensions of y. */
static tl_status match(const tl_tensor *a, int ta, const tl_tensor *b, int tb, int64_t *dims)
{
    tl_ctx *ctx = a->ctx;
    int     fold = b->ndim == 2 && a->ndim > 2, fits = a->ndim >= 2 && b->ndim >= 2;
    if (a->type != TL_F32 || b->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "matmul: operands are not both float32");
    if (fold && ta)
        return tl_fail(ctx, TL_ESHAPE, "matmul: trans_a with a %s and one matrix b %s", SHAPE(a),
                       SHAPE(b));
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
        return tl_fail(ctx, TL_ESHAPE, "matmul: a is %s%s, b is %s%s", SHAPE(a),
                       ta ? " transposed" : "", SHAPE(b), tb ? " transposed" : "");
    tl_status st = tl_gemm_fits(ctx, "matmul", m, n, k);
    if (st != TL_OK) return st;
    memcpy(dims, a->dims, sizeof a->dims);
    dims[a->ndim - 2] = fold ? a->dims[a->ndim - 2] : m;
    dims[a->ndim - 1] = n;
    return TL_OK;
}

tl_status tl_matmul(tl_tensor *a, int trans_a, tl_tensor *b, int trans_b, tl_tensor **out_y)
{
    tl_args   args = {.in = {a, b}, .i = {trans_a != 0, trans_b != 0}}, saved = args;
    int64_t   dims[TL_MAXDIMS];
    tl_status st = match(a, trans_a != 0, b, trans_b != 0, dims);
    if (st == TL_OK) st = tl_new(a->ctx, TL_F32, a->ndim, dims, &args.out[0]);
    if (st != TL_OK) return st;
    return tl_run_recorded(TL_OP_matmul, &args, 2, matmul_grad, &saved, out_y);
}

/* ---- Linear ---------------------------------------------------------------------------------- */

/* dx = dy w, dw = dy^T x, dbias = the sum of dy's rows. */
static tl_status linear_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    tl_tensor *x = node->saved.in[0], *w = node->saved.in[1], *g[3] = {NULL, NULL, NULL};
    tl_status  st = TL_OK;
    if (node->in[0]) st = gradient(node, 0, x, dy, 0, w, 0, &g[0]);
    if (st == TL_OK && node->in[1]) st = gradient(node, 1, w, dy, 1, x, 0, &g[1]);
    if (st == TL_OK && node->in[2]) {
        tl_args  a = {.in = {dy}};
        tl_shape shape = {1, {w->dims[0]}};
        st = tl_grad_buffer(ctx, node->in[2], &shape, &a.out[0], &a.i[0]);
        if (st == TL_OK) st = tl_launch(ctx, TL_OP_reduce_to, &a);
        st = tl_finish(st, a.out[0], &g[2]);
    }
    return tl_hand_over(ctx, node, st, g, 3);
}

static tl_status check_linear(const tl_tensor *x, const tl_tensor *w, const tl_tensor *bias)
{
    tl_ctx *ctx = x->ctx;
    if (x->type != TL_F32 || w->type != TL_F32 || (bias && bias->type != TL_F32))
        return tl_fail(ctx, TL_ETYPE, "linear: operands are not all float32");
    if (x->ndim < 1 || w->ndim != 2 || tl_cols(x) != w->dims[1])
        return tl_fail(ctx, TL_ESHAPE, "linear: x is %s, w is %s", SHAPE(x), SHAPE(w));
    if (bias && (bias->ndim != 1 || bias->dims[0] != w->dims[0]))
        return tl_fail(ctx, TL_ESHAPE, "linear: bias is %s, w is %s", SHAPE(bias), SHAPE(w));
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
    tl_args a = {.in = {x, w}, .i = {0, 1, bias != NULL}};
    tl_args spread_bias = {.in = {bias}}, saved = {.in = {x, w}};
    st = tl_new(ctx, TL_F32, x->ndim, dims, &a.out[0]);
    spread_bias.out[0] = a.out[0];
    if (st == TL_OK && bias) st = tl_launch(ctx, TL_OP_spread, &spread_bias);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_matmul, &a);
    if (st == TL_OK)
        st = tl_record(ctx, a.out[0], linear_grad, (tl_tensor *[]){x, w, bias}, 3, &saved, NULL);
    return tl_finish(st, a.out[0], out_y);
}

const tl_kernel_row tl_cpu_matmul[] = {
    {TL_OP_matmul, matmul_kernel}, {TL_OP_spread, spread_kernel}, {0}};

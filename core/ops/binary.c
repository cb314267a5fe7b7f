/* binary.c - computes arithmetic of two tensors with broadcasting, and the sum that is its
** adjoint. */
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "engine/gradient.h"
#include "ops/walk.h"

static tl_status broadcast(tl_ctx *ctx, const char *op, const tl_tensor *a, const tl_tensor *b,
                           int *out_ndim, int64_t *out)
{
    int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int i = 0; i < ndim; i++) {
        int64_t p = tl_tensor_dim(a, i - ndim), q = tl_tensor_dim(b, i - ndim);
        if (p != q && p != 1 && q != 1)
            return tl_fail(ctx, TL_ESHAPE, "%s: a is %s, b is %s: the shapes do not "
                           "broadcast", op, SHAPE(a), SHAPE(b));
        out[i] = p == 1 ? q : p;
    }
    *out_ndim = ndim;
    return TL_OK;
}

/* ---- Arithmetic ------------------------------------------------------------------------------ */

/* Strides are mostly 0 or 1, and these cases have loops that vectorise. */
TL_INLINE void inner(tl_binary_kind kind, int64_t n, const float *a, int64_t sa, const float *b,
                     int64_t sb, float *restrict y)
{
    if (sa == 1 && sb == 1)
        for (int64_t i = 0; i < n; i++) y[i] = tl_binary_value(kind, a[i], b[i]);
    else if (sa == 1 && sb == 0)
        for (int64_t i = 0; i < n; i++) y[i] = tl_binary_value(kind, a[i], b[0]);
    else if (sa == 0 && sb == 1)
        for (int64_t i = 0; i < n; i++) y[i] = tl_binary_value(kind, a[0], b[i]);
    else
        for (int64_t i = 0; i < n; i++) y[i] = tl_binary_value(kind, a[i * sa], b[i * sb]);
}

typedef struct job {
    tl_binary_kind kind;
    const tl_walk *w;
    const float   *a, *b;
    float         *y;
} job;

static void span(const job *j, int64_t n, const float *a, int64_t sa, const float *b, int64_t sb,
                 float *y)
{
    switch (j->kind) {
#define X(k, name) \
    case TL_BINARY_##k: inner(TL_BINARY_##k, n, a, sa, b, sb, y); break;
        TL_BINARY_MAP(X)
#undef X
    case TL_BINARY_KINDS: break;
    }
}

static void rows_body(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    int        last = j->w->ndim - 1;
    int64_t    n = j->w->dims[last], a, b;
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        tl_walk_offsets(j->w, row, &a, &b);
        span(j, n, j->a + a, j->w->a[last], j->b + b, j->w->b[last], j->y + row * n);
    }
}

static void flat_body(void *user, int64_t begin, int64_t end, int thread)
{
    const job *j = user;
    (void)thread;
    span(j, end - begin, j->a + begin * j->w->a[0], j->w->a[0], j->b + begin * j->w->b[0],
         j->w->b[0], j->y + begin);
}

/* y = a op b, in the broadcast shape */
tl_status tl_cpu_binary(tl_ctx *ctx, const tl_args *a)
{
    const struct tl_args_binary *b = &a->binary;
    const tl_tensor *y = b->y;
    if (y->len == 0) return TL_OK;
    tl_walk w = tl_walk_of(b->a, b->b, y->ndim, y->dims);
    job     j = {(tl_binary_kind)b->kind, &w, F32(b->a), F32(b->b), F32(y)};
    int64_t n = w.dims[w.ndim - 1];
    if (w.ndim == 1)
        tl_parallel(ctx, n, 16384, flat_body, &j);
    else
        tl_parallel(ctx, y->len / n, 1 + 16384 / n, rows_body, &j);
    return TL_OK;
}

/* y = x, int32 */
tl_status tl_cpu_to_float(tl_ctx *ctx, const tl_args *a)
{
    const int32_t *x = I32(a->to_float.x);
    float         *y = F32(a->to_float.y);
    (void)ctx;
    for (int64_t i = 0; i < a->to_float.y->len; i++) y[i] = (float)x[i];
    return TL_OK;
}

tl_status tl_to_float(tl_tensor *x, tl_tensor **out_y)
{
    if (x->type != TL_I32) return tl_fail(x->ctx, TL_ETYPE, "to_float: x is float32 already");
    tl_args   a = {.to_float = {.x = x}};
    tl_status st = tl_new(x->ctx, TL_F32, x->ndim, x->dims, &a.to_float.y);
    if (st == TL_OK) st = tl_launch(x->ctx, TL_OP_to_float, &a);
    return tl_finish(st, a.to_float.y, out_y);
}

/* The gradient of a maximum or minimum: da = dy where the result y equals a, broadcast, or a is
** NaN, and 0 elsewhere. */
tl_status tl_cpu_pick(tl_ctx *ctx, const tl_args *args)
{
    const tl_tensor *y = args->pick.y;
    const float     *from = F32(args->pick.a), *dy = F32(args->pick.dy);
    float           *da = F32(args->pick.da);
    if (y->len == 0) return TL_OK;
    tl_walk w = tl_walk_of(args->pick.a, y, y->ndim, y->dims);
    int64_t n = w.dims[w.ndim - 1], step = w.a[w.ndim - 1], a, b;
    (void)ctx;
    for (int64_t row = 0; row < y->len / n; row++) {
        tl_walk_offsets(&w, row, &a, &b);
        for (int64_t i = 0, k = row * n; i < n; i++, k++)
            da[k] = tl_binary_selects(from[a + i * step], F32(y)[k]) ? dy[k] : 0.0f;
    }
    return TL_OK;
}

/* ---- The adjoint of a broadcast -------------------------------------------------------------- */

typedef struct columns {
    const float *x;
    float       *y;
    int64_t      rows, cols;
    int          add;
} columns;

#define STRIP 1024 /* columns whose sums stay in the L1 cache */

/* y[c] = (or += if add) the sum of x[row,c] over the rows, in float64. */
static void columns_body(void *user, int64_t begin, int64_t end, int thread)
{
    const columns *j = user;
    (void)thread;
    for (int64_t c = begin; c < end; c += STRIP) {
        int64_t n = end - c < STRIP ? end - c : STRIP;
        double  sum[STRIP] = {0};
        for (int64_t r = 0; r < j->rows; r++) {
            const float *x = j->x + r * j->cols + c;
            for (int64_t i = 0; i < n; i++) sum[i] += x[i];
        }
        for (int64_t i = 0; i < n; i++)
            j->y[c + i] = j->add ? j->y[c + i] + (float)sum[i] : (float)sum[i];
    }
}

/* Handles any broadcast dimensions, adding the elements in x's order. */
static tl_status scatter(tl_ctx *ctx, const tl_tensor *x, tl_tensor *y, int add)
{
    size_t  bytes = (size_t)y->len * sizeof(double);
    double *sum = tl_alloc(ctx, bytes);
    if (!sum) return TL_ENOMEM;
    memset(sum, 0, bytes);
    tl_walk w = tl_walk_of(y, x, x->ndim, x->dims);
    int     last = w.ndim - 1;
    int64_t n = w.dims[last], a, b;
    for (int64_t row = 0; row < x->len / n; row++) {
        tl_walk_offsets(&w, row, &a, &b);
        for (int64_t i = 0; i < n; i++) sum[a + i * w.a[last]] += F32(x)[row * n + i];
    }
    for (int64_t i = 0; i < y->len; i++)
        F32(y)[i] = add ? F32(y)[i] + (float)sum[i] : (float)sum[i];
    tl_release(ctx, sum);
    return TL_OK;
}

/* Whether y's dimensions are the last ones of x, so that x is a matrix with rows of y's length. */
static int is_suffix(const tl_tensor *x, const tl_tensor *y)
{
    for (int i = 1; i <= x->ndim; i++) {
        int64_t size = i <= y->ndim ? y->dims[y->ndim - i] : 1;
        if (size != x->dims[x->ndim - i]) {
            for (; i <= y->ndim; i++)
                if (y->dims[y->ndim - i] != 1) return 0;
            return 1;
        }
    }
    return 1;
}

/* y = (or += if add) x summed over the dimensions along which y was broadcast */
tl_status tl_cpu_reduce_to(tl_ctx *ctx, const tl_args *a)
{
    const tl_tensor *x = a->reduce_to.x;
    tl_tensor       *y = a->reduce_to.y;
    int              add = a->reduce_to.add != 0;
    if (x->len == 0) return add ? TL_OK : tl_tensor_fill(y, 0);
    if (!is_suffix(x, y)) return scatter(ctx, x, y, add);
    columns j = {F32(x), F32(y), x->len / y->len, y->len, add};
    tl_parallel(ctx, y->len, 64, columns_body, &j);
    return TL_OK;
}

/* ---- Public function and its gradient -------------------------------------------------------- */

/* Replaces *g, unless it is NULL, by its sum to the shape of the operand. */
static tl_status unstretch(tl_ctx *ctx, const tl_shape *shape, tl_tensor **g)
{
    tl_args a = {.reduce_to = {.x = *g}};
    if (!*g || tl_has_shape(*g, shape->ndim, shape->dims)) return TL_OK;
    tl_status st = tl_new_shaped(ctx, shape, &a.reduce_to.y);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_reduce_to, &a);
    tl_tensor_free(*g);
    *g = NULL;
    return tl_finish(st, a.reduce_to.y, g);
}

/* da = dy where y is a's value, so that a tie goes to a, else 0; db is the rest. */
static tl_status taken(tl_ctx *ctx, tl_binary_kind kind, tl_tensor *a, tl_tensor *b, tl_tensor *dy,
                       tl_tensor **out_da, tl_tensor **out_db)
{
    tl_args   args = {.pick = {.a = a, .dy = dy}};
    tl_status st = tl_binary(kind, a, b, &args.pick.y);
    if (st == TL_OK) st = tl_new_like(dy, &args.pick.da);
    if (st == TL_OK) st = tl_launch(ctx, TL_OP_pick, &args);
    if (st == TL_OK) st = tl_binary(TL_BINARY_SUB, dy, args.pick.da, out_db);
    tl_tensor_free(args.pick.y);
    return tl_finish(st, args.pick.da, out_da);
}

/* dy times the derivative `slope` at a and b. */
static tl_status times(tl_binary_kind slope, tl_tensor *a, tl_tensor *b, tl_tensor *dy,
                       tl_tensor **out_g)
{
    tl_tensor *s = NULL;
    tl_status  st = tl_binary(slope, a, b, &s);
    if (st == TL_OK) st = tl_binary(TL_BINARY_MUL, dy, s, out_g);
    tl_tensor_free(s);
    return st;
}

/* Computes da and db in the broadcast shape, not yet summed to the shapes of the operands. */
static tl_status parts(tl_ctx *ctx, tl_binary_kind kind, tl_tensor *a, tl_tensor *b,
                       tl_tensor *dy, const tl_node *node, tl_tensor **da, tl_tensor **db)
{
    int        to_a = TL_SLOT(node, binary, a) != NULL, to_b = TL_SLOT(node, binary, b) != NULL;
    tl_status  st = TL_OK;
    tl_tensor *q = NULL;
    switch (kind) {
    case TL_BINARY_ADD:
        *da = tl_tensor_retain(dy);
        *db = tl_tensor_retain(dy);
        break;
    case TL_BINARY_SUB:
        *da = tl_tensor_retain(dy);
        if (to_b) st = tl_affine(dy, -1, 0, db);
        break;
    case TL_BINARY_MUL:
        if (to_a) st = tl_binary(TL_BINARY_MUL, dy, b, da);
        if (to_b && st == TL_OK) st = tl_binary(TL_BINARY_MUL, dy, a, db);
        break;
    case TL_BINARY_DIV:
        st = tl_binary(TL_BINARY_DIV, dy, b, da);
        if (to_b && st == TL_OK) {
            st = tl_binary(TL_BINARY_DIV, a, b, &q);
            if (st == TL_OK) st = tl_binary(TL_BINARY_MUL, *da, q, db);
            tl_tensor_free(q);
            q = *db;
            *db = NULL;
            if (st == TL_OK) st = tl_affine(q, -1, 0, db);
            tl_tensor_free(q);
        }
        break;
    case TL_BINARY_MAX:
    case TL_BINARY_MIN: st = taken(ctx, kind, a, b, dy, da, db); break;
    case TL_BINARY_POW:
        if (to_a) st = times(TL_BINARY_POW_BASE, a, b, dy, da);
        if (to_b && st == TL_OK) st = times(TL_BINARY_POW_EXPONENT, a, b, dy, db);
        break;
    case TL_BINARY_KEEP:
    case TL_BINARY_DROP:
        if (to_b) st = tl_binary(kind, a, dy, db);
        break;
    default: break; /* these are not recorded */
    }
    return st;
}

/* saved: a and b if the gradient needs them, the kind, and shape: of a, b */
static tl_status binary_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    const tl_args *s = &node->saved;
    tl_tensor     *g[2] = {NULL, NULL};
    const struct tl_args_binary *b = &s->binary;
    tl_status st = parts(ctx, (tl_binary_kind)b->kind, b->a, b->b, dy, node, &g[0], &g[1]);
    for (int i = 0; i < 2 && st == TL_OK; i++)
        if (node->in[i]) st = unstretch(ctx, &s->shape[i], &g[i]);
    return tl_accumulate_all(ctx, node, st, g, 2);
}

tl_status tl_binary(tl_binary_kind kind, tl_tensor *a, tl_tensor *b, tl_tensor **out_y)
{
    static const char *const names[] = {
#define X(k, name) #name,
        TL_BINARY_MAP(X)
#undef X
    };
    tl_ctx *ctx = a->ctx;
    int     ndim = 0;
    int64_t dims[TL_MAXDIMS];
    if ((int)kind < 0 || kind >= TL_BINARY_KINDS)
        return tl_fail(ctx, TL_EINVAL, "binary: no operation %d", (int)kind);
    if (a->type != TL_F32 || b->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "%s: the operands are %s and %s, and must be float32",
                       names[kind], a->type == TL_F32 ? "float32" : "int32",
                       b->type == TL_F32 ? "float32" : "int32");
    tl_status st = broadcast(ctx, names[kind], a, b, &ndim, dims);
    if (st != TL_OK) return st;
    tl_args args = {.binary = {.a = a, .b = b, .kind = kind},
                    .shape = {tl_shape_of(a), tl_shape_of(b)}};
    tl_args saved = args;
    if (kind <= TL_BINARY_SUB) saved.binary.a = saved.binary.b = NULL;
    if (kind == TL_BINARY_KEEP || kind == TL_BINARY_DROP) saved.binary.b = NULL;
    st = tl_new(ctx, TL_F32, ndim, dims, &args.binary.y);
    if (st != TL_OK) return st;
    if (kind < TL_BINARY_LT)
        return tl_run_recorded(TL_OP_binary, &args, 2, binary_grad, &saved, out_y);
    return tl_finish(tl_launch(ctx, TL_OP_binary, &args), args.binary.y, out_y);
}

tl_status tl_where(tl_tensor *cond, tl_tensor *a, tl_tensor *b, tl_tensor **out_y)
{
    tl_tensor *kept = NULL, *rest = NULL;
    if (cond->type != TL_F32 || a->type != TL_F32 || b->type != TL_F32)
        return tl_fail(cond->ctx, TL_ETYPE, "where: the condition, a and b must be float32");
    tl_status st = tl_binary(TL_BINARY_KEEP, cond, a, &kept);
    if (st == TL_OK) st = tl_binary(TL_BINARY_DROP, cond, b, &rest);
    if (st == TL_OK) st = tl_binary(TL_BINARY_ADD, kept, rest, out_y);
    tl_tensor_free(kept);
    tl_tensor_free(rest);
    if (st == TL_ESHAPE)
        return tl_fail(cond->ctx, st, "where: the condition is %s, a is %s, b is %s: the shapes do "
                       "not broadcast", SHAPE(cond), SHAPE(a), SHAPE(b));
    return st;
}

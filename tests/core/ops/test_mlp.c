/* test_mlp.c - the network in one pass against differences of its values, and against the same
** network one operator after another. */
#include "base/memory.h"
#include "gradients.h"
#include "operations.h"
#include "tensors.h"

/* ---- Gradients against differences ----------------------------------------------------------- */

#define TWO {ANY, 2, {5, 3}}, {ANY, 1, {5}}, {ANY, 2, {2, 5}}, {ANY, 1, {2}}
#define THREE {ANY, 2, {5, 3}}, {ANY, 1, {5}}, {ANY, 2, {5, 5}}, {ANY, 1, {5}}, TO_TWO
#define TO_TWO {ANY, 2, {2, 5}}, {ANY, 1, {2}}
#define NORM {POSITIVE, 1, {5}}, {ANY, 1, {5}}

static const gradient_case cases[] = {
    {"two layers", mlp, 5, .in = {{ANY, 2, {4, 3}}, TWO}, .i = {0, TL_UNARY_tanh, 0, 2}},
    {"scaled rows", mlp, 5, .in = {{ANY, 2, {4, 3}}, TWO},
     .i = {TL_NORM_SIMPLE, TL_UNARY_silu, 0, 2}, .f = {0.2, 1}},
    {"layer", mlp, 7, .in = {{ANY, 2, {4, 3}}, TWO, NORM},
     .i = {TL_NORM_LAYER, TL_UNARY_silu, 0, 2}, .f = {0.2}},
    {"layer, scaled rows", mlp, 7, .in = {{ANY, 2, {4, 3}}, TWO, NORM},
     .i = {TL_NORM_LAYER, TL_UNARY_gelu, 0, 2}, .f = {0.2, 1}},
    {"rms", mlp, 7, .in = {{ANY, 2, {4, 3}}, TWO, NORM},
     .i = {TL_NORM_RMS, TL_UNARY_sigmoid, 0, 2}, .f = {0.2}},
    {"rms weight", mlp, 6, .in = {{ANY, 2, {4, 3}}, TWO, {ANY, 1, {5}}},
     .i = {TL_NORM_RMS, TL_UNARY_identity, 0, 2}, .f = {0.2}},
    {"no norm, weight and bias", mlp, 7, .in = {{ANY, 2, {4, 3}}, TWO, NORM},
     .i = {0, TL_UNARY_softplus, 0, 2}},
    {"three layers", mlp, 7, .in = {{ANY, 2, {4, 3}}, THREE},
     .i = {TL_NORM_RMS, TL_UNARY_silu, 0, 3}, .f = {0.3}},
    {"residual", mlp, 7, .in = {{ANY, 2, {4, 3}}, THREE},
     .i = {TL_NORM_SIMPLE, TL_UNARY_tanh, 1, 3}, .f = {0.3}},
    {"residual, layer, scaled rows", mlp, 7, .in = {{ANY, 2, {4, 3}}, THREE},
     .i = {TL_NORM_LAYER, TL_UNARY_silu, 1, 3}, .f = {0.3, 1}},
    {"ones", mlp, 5, .in = {{ANY, 2, {1, 1}}, {ANY, 2, {1, 1}}, {ANY, 1, {1}}, {ANY, 2, {1, 1}},
     {ANY, 1, {1}}}, .i = {TL_NORM_SIMPLE, TL_UNARY_silu, 0, 2}, .f = {0.5}},
    {0},
};

static void differences(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    for (const gradient_case *c = cases; c->name; c++) {
        double error = gradient_error(ctx, c);
        if (error > 1) printf("%s: %.3g times the tolerance\n", c->name, error);
        CHECK(error <= 1);
    }
    CHECK(tl_memory_info(ctx).tensors == 0);
    tl_ctx_free(ctx);
}

/* ---- Against operators one by one ------------------------------------------------------------ */

typedef struct shape {
    int64_t rows, inputs, hidden, outputs;
    int     layers;
} shape;

static const shape shapes[] = {
    {1, 1, 64, 40, 3}, {2, 1, 5, 3, 2},   {63, 3, 32, 17, 4},  {64, 1, 64, 130, 3},
    {65, 1, 33, 1, 3}, {129, 20, 7, 9, 5}, {300, 1, 64, 300, 4}, {31, 2, 600, 33, 3},
};

#define MAX_LAYERS 5
#define TOLERATED 5e-5 /* one row's gradient by x nearly cancels where it is normed */

typedef struct network {
    tl_ctx      *ctx;
    shape        s;
    tl_norm_kind norm;
    tl_unary_kind act;
    int          residual;
    tl_tensor   *x, *dy, *scale, *params[4 * MAX_LAYERS];
    tl_mlp_layer layers[MAX_LAYERS];
} network;

static tl_tensor *parameter(network *n, int k, int ndim, const int64_t *dims, double mean)
{
    int64_t    fan = ndim > 1 ? dims[1] : 4;
    tl_tensor *t = normals(n->ctx, ndim, dims, mean, 1 / sqrt((double)fan), (uint64_t)k + 10);
    CHECK_STATUS(tl_set_requires_grad(t, 1), TL_OK);
    return n->params[k] = t;
}

static network make(int threads, const shape *s, tl_norm_kind norm, tl_unary_kind act, int residual)
{
    network n = {.s = *s, .norm = norm, .act = act, .residual = residual};
    CHECK_STATUS(tl_ctx_new(threads, &n.ctx), TL_OK);
    n.x = normals(n.ctx, 2, (int64_t[]){s->rows, s->inputs}, 0, 1, 1);
    n.dy = normals(n.ctx, 2, (int64_t[]){s->rows, s->outputs}, 0, 1, 2);
    n.scale = uniforms(n.ctx, 1, &s->rows, -1, 1, 3);
    CHECK_STATUS(tl_set_requires_grad(n.x, 1), TL_OK);
    for (int l = 0; l < s->layers; l++) {
        int64_t       o = l == s->layers - 1 ? s->outputs : s->hidden;
        int64_t       k = l == 0 ? s->inputs : s->hidden;
        tl_mlp_layer *p = &n.layers[l];
        p->weight = parameter(&n, 4 * l, 2, (int64_t[]){o, k}, 0);
        p->bias = parameter(&n, 4 * l + 1, 1, &o, 0);
        if (l == 0) continue;
        p->norm = norm;
        p->eps = 1e-5;
        if (norm == TL_NORM_LAYER || norm == TL_NORM_RMS)
            p->norm_weight = parameter(&n, 4 * l + 2, 1, &k, 1);
        if (norm == TL_NORM_LAYER) p->norm_bias = parameter(&n, 4 * l + 3, 1, &k, 0);
    }
    return n;
}

static void drop(network *n)
{
    tl_tensor_free(n->x);
    tl_tensor_free(n->dy);
    tl_tensor_free(n->scale);
    free_all(n->params, 4 * MAX_LAYERS);
    CHECK(tl_memory_info(n->ctx).tensors == 0);
    tl_ctx_free(n->ctx);
}

static tl_status normed(const network *n, const tl_mlp_layer *p, tl_tensor *x, tl_tensor **out)
{
    switch (n->norm) {
    case TL_NORM_LAYER: return tl_layer_norm(x, p->norm_weight, p->norm_bias, p->eps, out);
    case TL_NORM_RMS: return tl_rms_norm(x, p->norm_weight, p->eps, out);
    case TL_NORM_SIMPLE: return tl_simple_rms_norm(x, p->eps, out);
    default: *out = tl_tensor_retain(x); return TL_OK;
    }
}

/* Takes *x over and puts x op y there. */
static void combine(tl_binary_kind kind, tl_tensor **x, tl_tensor *y)
{
    tl_tensor *a = *x;
    CHECK_STATUS(tl_binary(kind, a, y, x), TL_OK);
    tl_tensor_free(a);
}

static tl_tensor *one_by_one(const network *n)
{
    tl_tensor *x = NULL, *column = NULL;
    CHECK_STATUS(tl_linear(n->x, n->layers[0].weight, n->layers[0].bias, &x), TL_OK);
    for (int l = 1; l < n->s.layers; l++) {
        const tl_mlp_layer *p = &n->layers[l];
        tl_tensor *z = NULL, *a = NULL, *y = NULL;
        CHECK_STATUS(normed(n, p, x, &z), TL_OK);
        CHECK_STATUS(tl_unary(n->act, z, &a), TL_OK);
        CHECK_STATUS(tl_linear(a, p->weight, p->bias, &y), TL_OK);
        if (n->residual && l < n->s.layers - 1) combine(TL_BINARY_ADD, &y, x);
        tl_tensor_free(a);
        tl_tensor_free(z);
        tl_tensor_free(x);
        x = y;
    }
    CHECK_STATUS(tl_reshape(n->scale, 2, (int64_t[]){-1, 1}, &column), TL_OK);
    combine(TL_BINARY_MUL, &x, column);
    tl_tensor_free(column);
    return x;
}

static tl_tensor *in_one(const network *n)
{
    tl_tensor *y = NULL;
    CHECK_STATUS(tl_mlp(n->x, n->layers, n->s.layers, n->act, n->residual, n->scale, &y), TL_OK);
    return y;
}

/* The gradients of all that run() was made from, x's last; they are forgotten there. */
static void gradients_of(const network *n, tl_tensor *y, tl_tensor **grads)
{
    CHECK_STATUS(tl_backward_from(n->ctx, y, n->dy), TL_OK);
    for (int k = 0; k <= 4 * MAX_LAYERS; k++) {
        tl_tensor *t = k < 4 * MAX_LAYERS ? n->params[k] : n->x;
        grads[k] = t && tl_grad(t) ? tl_tensor_retain(tl_grad(t)) : NULL;
        CHECK(!t || !tl_requires_grad(t) || grads[k]);
        if (t) CHECK_STATUS(tl_set_grad(t, NULL), TL_OK);
    }
}

static int same_bits(const tl_tensor *a, const tl_tensor *b)
{
    return memcmp(tl_tensor_cf32(a), tl_tensor_cf32(b), (size_t)tl_tensor_len(a) * 4) == 0;
}

static void check_network(network *n)
{
    tl_tensor *want[4 * MAX_LAYERS + 1], *got[4 * MAX_LAYERS + 1], *again[4 * MAX_LAYERS + 1];
    tl_tensor *y = one_by_one(n), *z = in_one(n), *u;
    double     worst = distance(z, y);
    CHECK(tl_tape_len(n->ctx) > 0);
    int was = tl_set_recording(n->ctx, 0);
    u = in_one(n); /* keeps no states */
    (void)tl_set_recording(n->ctx, was);
    CHECK(same_bits(u, z));
    tl_tensor_free(u);
    tl_tape_clear(n->ctx);
    tl_tensor_free(y);
    tl_tensor_free(z);
    y = one_by_one(n);
    gradients_of(n, y, want);
    z = in_one(n);
    gradients_of(n, z, got);
    u = in_one(n);
    gradients_of(n, u, again);
    for (int k = 0; k <= 4 * MAX_LAYERS; k++) {
        if (!want[k]) continue;
        worst = fmax(worst, distance(got[k], want[k]));
        CHECK(same_bits(got[k], again[k]));
    }
    if (!(worst < TOLERATED))
        printf("%s, norm %d, %d rows, hidden %d: off by %g\n", tl_unary_name(n->act),
               (int)n->norm, (int)n->s.rows, (int)n->s.hidden, worst);
    CHECK(worst < TOLERATED);
    free_all(want, 4 * MAX_LAYERS + 1);
    free_all(got, 4 * MAX_LAYERS + 1);
    free_all(again, 4 * MAX_LAYERS + 1);
    tl_tensor_free(u);
    tl_tensor_free(y);
    tl_tensor_free(z);
}

/* Values and gradients to rounding; the same bits again, and with nothing recorded. */
static void composition(void)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int norm = TL_NORM_NONE; norm <= TL_NORM_SIMPLE; norm++)
            for (int residual = 0; residual < 2; residual++)
                for (int threads = 1; threads <= 3; threads++) {
                    network n = make(threads, &shapes[i], (tl_norm_kind)norm,
                                     residual ? TL_UNARY_silu : TL_UNARY_gelu, residual);
                    check_network(&n);
                    drop(&n);
                }
}

/* Slopes of 0 and kinks included; functions that are defined for positive numbers only do not suit
** a norm's result. */
static void activations(void)
{
    for (int act = 0; act < TL_UNARY_KINDS; act++) {
        if (act == TL_UNARY_sqrt || act == TL_UNARY_rsqrt || act == TL_UNARY_log ||
            act == TL_UNARY_reciprocal)
            continue;
        network n = make(2, &(shape){70, 2, 20, 7, 3}, TL_NORM_LAYER, (tl_unary_kind)act, 0);
        check_network(&n);
        drop(&n);
    }
}

/* ---- Rows that are zero, tiny or large ------------------------------------------------------- */

/* Without biases a row of zeros stays one, and no 1/eps appears in gradients; rows whose squares
** float32 cannot hold are normed all the same. */
static void extremes(void)
{
    static const float sizes[] = {0, 1e-25f, 1e-12f, 1, 1e12f, 1e25f};
    for (int norm = TL_NORM_LAYER; norm <= TL_NORM_SIMPLE; norm++) {
        network n = make(2, &(shape){6, 1, 64, 12, 3}, (tl_norm_kind)norm, TL_UNARY_silu, 0);
        for (int l = 0; l < 3; l++) {
            CHECK_STATUS(tl_tensor_fill(n.layers[l].bias, 0), TL_OK);
            n.layers[l].eps = norm == TL_NORM_SIMPLE ? 1e-8 : 1e-5;
        }
        for (int r = 0; r < 6; r++) {
            tl_tensor_f32(n.x)[r] = sizes[r];
            tl_tensor_f32(n.dy)[r * 12] = 1;
        }
        tl_tensor *y = one_by_one(&n), *z = in_one(&n);
        CHECK(distance(z, y) < 2e-5);
        if (norm == TL_NORM_SIMPLE)
            for (int i = 0; i < 12; i++) CHECK(tl_tensor_cf32(z)[i] == 0);
        tl_tape_clear(n.ctx);
        tl_tensor_free(y);
        tl_tensor_free(z);
        drop(&n);
    }
    network n = make(2, &(shape){64, 1, 16, 5, 4}, TL_NORM_SIMPLE, TL_UNARY_silu, 0);
    for (int l = 0; l < 4; l++) {
        CHECK_STATUS(tl_tensor_fill(n.layers[l].bias, 0), TL_OK);
        n.layers[l].eps = 1e-8;
    }
    for (int r = 0; r < 64; r++) tl_tensor_f32(n.x)[r] = (float)r;
    CHECK_STATUS(tl_set_requires_grad(n.x, 0), TL_OK); /* that would be 0, but for rounding */
    check_network(&n);
    drop(&n);
}

/* ---- The tape, and memory -------------------------------------------------------------------- */

static void changed_in_place(void)
{
    network    n = make(1, &(shape){9, 1, 8, 3, 3}, TL_NORM_RMS, TL_UNARY_relu, 0);
    tl_tensor *y = in_one(&n);
    CHECK_STATUS(tl_tensor_fill(n.layers[2].norm_weight, 2), TL_OK);
    CHECK_STATUS(tl_backward_from(n.ctx, y, n.dy), TL_EINVAL);
    CHECK(strstr(tl_errmsg(n.ctx), "changed in place") != NULL);
    tl_tensor_free(y);
    drop(&n);
}

/* A weight that is a result of another operator gets its gradient there, and is spent after it. */
static void computed_weight(void)
{
    network    n = make(1, &(shape){9, 1, 8, 3, 3}, TL_NORM_RMS, TL_UNARY_silu, 0);
    tl_tensor *raw = n.layers[1].weight, *want, *y = in_one(&n);
    CHECK_STATUS(tl_backward_from(n.ctx, y, n.dy), TL_OK);
    want = tl_tensor_retain(tl_grad(raw));
    tl_tensor_free(y);
    CHECK_STATUS(tl_set_grad(raw, NULL), TL_OK);
    CHECK_STATUS(tl_affine(raw, 1, 0, &n.layers[1].weight), TL_OK);
    y = in_one(&n);
    CHECK_STATUS(tl_backward_from(n.ctx, y, n.dy), TL_OK);
    CHECK(distance(tl_grad(raw), want) == 0);
    tl_tensor_free(y);
    CHECK_STATUS(tl_mlp(n.x, n.layers, 3, n.act, 0, NULL, &y), TL_EINVAL);
    CHECK(strstr(tl_errmsg(n.ctx), "[8,8]") != NULL);
    tl_tensor_free(n.layers[1].weight);
    tl_tensor_free(want);
    drop(&n);
}

static void out_of_memory(void)
{
    network   n = make(2, &(shape){70, 1, 8, 3, 3}, TL_NORM_LAYER, TL_UNARY_silu, 0);
    tl_status st = TL_ENOMEM;
    int64_t   tensors = tl_memory_info(n.ctx).tensors;
    for (int i = 0; i < 1000 && st == TL_ENOMEM; i++) {
        tl_tensor *y = NULL;
        tl_alloc_fail_after(n.ctx, i);
        st = tl_mlp(n.x, n.layers, 3, n.act, 0, n.scale, &y);
        if (st == TL_OK) st = tl_backward_from(n.ctx, y, n.dy);
        tl_alloc_fail_after(n.ctx, -1);
        tl_tensor_free(y);
        tl_tape_clear(n.ctx);
        for (int k = 0; k < 4 * MAX_LAYERS; k++)
            if (n.params[k]) CHECK_STATUS(tl_set_grad(n.params[k], NULL), TL_OK);
        CHECK_STATUS(tl_set_grad(n.x, NULL), TL_OK);
        CHECK(tl_memory_info(n.ctx).tensors == tensors);
    }
    CHECK_STATUS(st, TL_OK);
    drop(&n);
}

int main(void)
{
    return run_tests((const test[]){{"gradients against differences", differences},
                                    {"norms, sizes and threads, against operators", composition},
                                    {"activations, against operators", activations},
                                    {"rows of zeros, tiny and large ones", extremes},
                                    {"a parameter changed in place is noticed", changed_in_place},
                                    {"a computed weight", computed_weight},
                                    {"out of memory", out_of_memory},
                                    {0}});
}

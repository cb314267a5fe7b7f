/* mlp.c - computes a network of linear layers, norms and activations as one operator.
**
** One parallel loop over the rows computes all layers for a block of rows at a time (mlp_rows.c),
** so that activations between layers stay in the L1 and L2 caches. The backward pass reads the
** saved output of every layer and recomputes norms and activations. The gradient of a parameter is
** a sum over rows: each thread has a partial sum, and these are added in the order of the threads,
** so that the result repeats exactly. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"
#include "engine/gradient.h"
#include "products/gemm.h"
#include "ops/mlp.h"

#define GRAIN        16   /* rows that justify another thread */
#define WEIGHT_GRAIN 4096 /* weights to transpose or add that justify another thread */

enum { X, SCALE, STATES, FIRST }; /* in the list on the tape; parameters follow */

/* ---- Kernels --------------------------------------------------------------------------------- */

static int64_t length(const mlp_layer *p, int k)
{
    return k == MLP_WEIGHT ? p->inputs * p->outputs : k == MLP_BIAS ? p->outputs : p->inputs;
}

/* Weights are transposed in groups of 16 rows, numbered through all layers. */
static int64_t groups(const mlp_layer *p) { return (p->outputs + 15) / 16; }

static void transpose_group(const mlp_layer *p, int64_t group)
{
    const float *w = p->param[MLP_WEIGHT];
    int64_t      from = 16 * group, to = from + 16 < p->outputs ? from + 16 : p->outputs;
    for (int64_t k = 0; k < p->inputs; k++)
        for (int64_t o = from; o < to; o++)
            p->transposed[k * p->outputs + o] = w[o * p->inputs + k];
}

static void transpose(void *user, int64_t begin, int64_t end, int thread)
{
    const mlp *j = user;
    int64_t    at = 0;
    (void)thread;
    for (int l = 0; l < j->count; at += groups(&j->layers[l++]))
        for (int64_t g = 0; g < groups(&j->layers[l]); g++)
            if (at + g >= begin && at + g < end) transpose_group(&j->layers[l], g);
}

static size_t scratch_floats(const tl_ctx *ctx, const mlp *j)
{
    return (size_t)(ctx->threads * MLP_SCRATCH * MLP_ROWS * j->width);
}

/* p: the network */
tl_status tl_cpu_mlp(tl_ctx *ctx, const tl_args *a)
{
    mlp    *j = a->p;
    int64_t all = 0, count = 0;
    for (int l = 0; l < j->count; l++) {
        all += length(&j->layers[l], MLP_WEIGHT);
        count += groups(&j->layers[l]);
    }
    if (tl_gemm_ready(ctx) != TL_OK) return TL_ENOMEM;
    float *memory = tl_alloc(ctx, (scratch_floats(ctx, j) + (size_t)all) * sizeof *memory);
    if (!memory) return TL_ENOMEM;
    float *next = j->scratch = memory;
    next += scratch_floats(ctx, j);
    for (int l = 0; l < j->count; l++) {
        j->layers[l].transposed = next;
        next += length(&j->layers[l], MLP_WEIGHT);
    }
    tl_parallel(ctx, count, 1 + WEIGHT_GRAIN * count / all, transpose, j);
    tl_parallel(ctx, j->rows, GRAIN, tl_mlp_forward, j);
    tl_release(ctx, memory);
    return TL_OK;
}

/* Adds the partial sums of all threads, for the parameters at offsets begin..end-1. */
static void add_threads(void *user, int64_t begin, int64_t end, int thread)
{
    const mlp *j = user;
    (void)thread;
    for (int l = 0; l < j->count; l++) {
        const mlp_layer *p = &j->layers[l];
        for (int k = 0; k < MLP_PARAMS; k++) {
            int64_t from = p->at[k] > begin ? p->at[k] : begin;
            int64_t to = p->at[k] + length(p, k) < end ? p->at[k] + length(p, k) : end;
            float  *grad = p->grad[k];
            for (int64_t t = 0, first = 1; grad && t < j->threads; t++) {
                if (!j->ran[t]) continue;
                const float *sum = j->sums + t * j->total;
                for (int64_t i = from; i < to; i++)
                    grad[i - p->at[k]] = first ? sum[i] : grad[i - p->at[k]] + sum[i];
                first = 0;
            }
        }
    }
}

/* p: the network, with pointers to its gradients */
tl_status tl_cpu_mlp_grad(tl_ctx *ctx, const tl_args *a)
{
    mlp *j = a->p;
    j->total = 0;
    for (int l = 0; l < j->count; l++)
        for (int k = 0; k < MLP_PARAMS; k++) {
            j->layers[l].at[k] = j->total;
            if (j->layers[l].grad[k]) j->total += length(&j->layers[l], k);
        }
    j->total = (j->total + 15) / 16 * 16; /* each thread's sums start on a cache line */
    size_t floats = scratch_floats(ctx, j) + (size_t)(j->threads * j->total);
    j->scratch = tl_alloc(ctx, floats * sizeof *j->scratch);
    if (!j->scratch) return TL_ENOMEM;
    j->sums = j->scratch + scratch_floats(ctx, j);
    memset(j->ran, 0, (size_t)j->threads * sizeof *j->ran);
    tl_parallel(ctx, j->rows, GRAIN, tl_mlp_backward, j);
    tl_parallel(ctx, j->total, WEIGHT_GRAIN, add_threads, j);
    tl_release(ctx, j->scratch);
    return TL_OK;
}

/* ---- The gradient ---------------------------------------------------------------------------- */

/* Moves the operands to the context's device and reads their addresses, which may have changed
** since the forward pass. */
static tl_status mlp_bind(tl_ctx *ctx, mlp *j, tl_tensor *const *list)
{
    for (int i = 0; i < FIRST + j->count * MLP_PARAMS; i++) {
        tl_status st = list[i] ? tl_to_device(list[i], ctx->device) : TL_OK;
        if (st != TL_OK) return st;
    }
    j->x = F32(list[X]);
    j->scale = list[SCALE] ? F32(list[SCALE]) : NULL;
    j->states = list[STATES] ? F32(list[STATES]) : NULL;
    for (int l = 0; l < j->count; l++)
        for (int k = 0; k < MLP_PARAMS; k++) {
            const tl_tensor *t = list[FIRST + l * MLP_PARAMS + k];
            j->layers[l].param[k] = t ? F32(t) : k == MLP_NORM_WEIGHT ? j->ones : j->zeros;
        }
    return TL_OK;
}

/* Allocates a gradient for each input that requires one, in the order of the list. */
static tl_status new_gradients(const tl_node *node, tl_tensor **grads)
{
    mlp      *j = node->saved.p;
    tl_status st = TL_OK;
    for (int i = 0; i < node->count && st == TL_OK; i++) {
        const tl_listed *listed = &node->list[i];
        if (!listed->slot || i == SCALE || i == STATES) continue;
        st = tl_new_like(listed->t, &grads[i]);
        if (st == TL_OK && i >= FIRST)
            j->layers[(i - FIRST) / MLP_PARAMS].grad[(i - FIRST) % MLP_PARAMS] = F32(grads[i]);
    }
    j->dx = grads[X] ? F32(grads[X]) : NULL;
    return st;
}

/* Without rows all gradients are 0. */
static tl_status mlp_clear(tl_tensor *const *grads, int count)
{
    tl_status st = TL_OK;
    for (int i = 0; i < count && st == TL_OK; i++)
        if (grads[i]) st = tl_tensor_fill(grads[i], 0);
    return st;
}

static tl_status mlp_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    mlp        *j = node->saved.p;
    tl_tensor **grads = calloc(2 * (size_t)node->count, sizeof *grads), **list;
    if (!grads) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    list = grads + node->count;
    for (int i = 0; i < node->count; i++) list[i] = node->list[i].t;
    tl_status st = mlp_bind(ctx, j, list);
    if (st == TL_OK) st = tl_to_device(dy, ctx->device);
    if (st == TL_OK) st = new_gradients(node, grads);
    tl_args a = {.mlp_grad = {.dy = dy, .states = list[STATES], .dx = grads[X]}, .p = j};
    j->dy = F32(dy);
    if (st == TL_OK)
        st = j->rows ? tl_launch(ctx, TL_OP_mlp_grad, &a) : mlp_clear(grads, node->count);
    for (int i = 0; i < node->count; i++) {
        if (!grads[i]) continue;
        if (st == TL_OK)
            st = tl_accumulate(ctx, node->list[i].slot, grads[i]);
        else
            tl_tensor_free(grads[i]);
    }
    free(grads);
    return st;
}

/* ---- The public function --------------------------------------------------------------------- */

static tl_status check_vector(const tl_tensor *t, const char *name, int l, int64_t size)
{
    if (!t) return TL_OK;
    if (t->type != TL_F32)
        return tl_fail(t->ctx, TL_ETYPE, "mlp: %s of layer %d is int32, not float32", name, l + 1);
    if (t->ndim == 1 && t->len == size) return TL_OK;
    return tl_fail(t->ctx, TL_ESHAPE, "mlp: %s of layer %d is %s, not [%lld]", name, l + 1,
                   SHAPE(t), (long long)size);
}

/* Checks layer l, which receives `inputs` numbers per row. */
static tl_status check_layer(tl_ctx *ctx, const tl_mlp_layer *p, int l, int64_t inputs)
{
    const tl_tensor *w = p->weight;
    if (w->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "mlp: weight of layer %d is int32, not float32", l + 1);
    if (w->ndim != 2 || w->dims[1] != inputs || w->dims[0] < 1)
        return tl_fail(ctx, TL_ESHAPE, "mlp: weight of layer %d is %s, not [outputs,%lld]",
                       l + 1, SHAPE(w), (long long)inputs);
    if (p->norm < TL_NORM_NONE || p->norm > TL_NORM_SIMPLE || !(p->eps >= 0))
        return tl_fail(ctx, TL_EINVAL, "mlp: layer %d has the norm %d or the eps %g, which are out "
                       "of range", l + 1, (int)p->norm,
                       p->eps);
    tl_status st = check_vector(p->bias, "bias", l, w->dims[0]);
    if (st == TL_OK) st = check_vector(p->norm_weight, "norm_weight", l, inputs);
    if (st == TL_OK) st = check_vector(p->norm_bias, "norm_bias", l, inputs);
    return st;
}

static tl_status mlp_check(const tl_tensor *x, const tl_mlp_layer *layers, int count,
                           tl_unary_kind act, int residual, const tl_tensor *scale)
{
    tl_ctx   *ctx = x->ctx;
    tl_status st = TL_OK;
    int64_t   inputs = tl_cols(x);
    if (count < 2) return tl_fail(ctx, TL_EINVAL, "mlp: %d layers, at least 2 are needed", count);
    if (!tl_unary_name(act)) return tl_fail(ctx, TL_EINVAL, "mlp: no function %d", (int)act);
    if (x->type != TL_F32 || (scale && scale->type != TL_F32))
        return tl_fail(ctx, TL_ETYPE, "mlp: x or scale is int32, not float32");
    if (tl_needs_grad(ctx, scale))
        return tl_fail(ctx, TL_EINVAL, "mlp: scale %s requires a gradient, but mlp computes none "
                       "for it", SHAPE(scale));
    if (x->ndim != 2 || inputs < 1)
        return tl_fail(ctx, TL_ESHAPE, "mlp: x is %s, not [p,k]", SHAPE(x));
    if (scale && (scale->ndim != 1 || scale->len != x->dims[0]))
        return tl_fail(ctx, TL_ESHAPE, "mlp: x is %s, scale is %s, not [%lld]", SHAPE(x),
                       SHAPE(scale), (long long)x->dims[0]);
    for (int l = 0; l < count && st == TL_OK; l++) {
        int64_t outputs = layers[l].weight->ndim == 2 ? layers[l].weight->dims[0] : 0;
        st = check_layer(ctx, &layers[l], l, inputs);
        if (st == TL_OK && residual && l > 0 && l < count - 1 && inputs != outputs)
            st = tl_fail(ctx, TL_ESHAPE, "mlp: layer %d has %lld outputs and %lld inputs: a "
                         "residual requires equal numbers", l + 1, (long long)outputs,
                         (long long)inputs);
        if (st == TL_OK) st = tl_gemm_fits(ctx, "mlp", x->dims[0], outputs, inputs);
        inputs = outputs;
    }
    return st;
}

/* Allocates the network in one block, together with the zeros and ones that stand for parameters
** that are not given; the caller releases it with free. The parameters are listed in `list`. */
static mlp *mlp_new(tl_ctx *ctx, const tl_mlp_layer *layers, int count, tl_tensor **list)
{
    int64_t longest = 1, width = 1, held = 0;
    for (int l = 0; l < count; l++) {
        int64_t o = layers[l].weight->dims[0], k = layers[l].weight->dims[1];
        if (l > 0 && k > width) width = k;
        if (o > longest) longest = o;
        if (k > longest) longest = k;
    }
    size_t bytes = sizeof(mlp) + (size_t)count * sizeof(mlp_layer);
    mlp   *j = calloc(1, bytes + (size_t)(2 * longest) * sizeof(float) +
                             (size_t)ctx->threads * sizeof(int));
    if (!j) return NULL;
    float *zeros = (float *)(void *)((char *)j + bytes), *ones = zeros + longest;
    for (int64_t i = 0; i < longest; i++) ones[i] = 1;
    for (int l = 0; l < count; l++) {
        const tl_mlp_layer *from = &layers[l];
        tl_tensor *given[] = {from->weight, from->bias, from->norm_weight, from->norm_bias};
        mlp_layer *to = &j->layers[l];
        *to = (mlp_layer){.norm = from->norm, .eps = (float)from->eps, .before = held,
                          .inputs = from->weight->dims[1], .outputs = from->weight->dims[0]};
        if (l < count - 1) held += to->outputs;
        for (int k = 0; k < MLP_PARAMS; k++) list[FIRST + l * MLP_PARAMS + k] = given[k];
    }
    j->zeros = zeros;
    j->ones = ones;
    j->count = count;
    j->width = width;
    j->held = held;
    j->threads = ctx->threads;
    j->ran = (int *)(void *)(ones + longest);
    return j;
}

/* Whether an input requires a gradient, so that the states must be saved. */
static int mlp_recorded(const tl_ctx *ctx, tl_tensor *const *list, int count)
{
    for (int i = 0; i < count; i++)
        if (tl_needs_grad(ctx, list[i])) return 1;
    return 0;
}

static tl_status mlp_run(tl_ctx *ctx, mlp *j, tl_tensor **list, int count, tl_tensor **out_y)
{
    tl_tensor *y = NULL;
    tl_args    saved = {.p = j};
    j->rows = list[X]->dims[0];
    int64_t   held = j->rows * j->held, d = j->layers[j->count - 1].outputs;
    tl_status st = tl_new(ctx, TL_F32, 2, (int64_t[]){j->rows, d}, &y);
    if (st == TL_OK && mlp_recorded(ctx, list, count))
        st = tl_new(ctx, TL_F32, 1, &held, &list[STATES]);
    if (st == TL_OK) st = mlp_bind(ctx, j, list);
    if (st == TL_OK && j->rows > 0) {
        tl_args a = {.mlp = {.x = list[X], .y = y, .states = list[STATES]}, .p = j};
        j->y = F32(y);
        st = tl_launch(ctx, TL_OP_mlp, &a);
    }
    if (st == TL_OK)
        st = tl_record_list(ctx, y, mlp_grad, list, count, 1, &saved, free);
    else
        free(j);
    tl_tensor_free(list[STATES]);
    return tl_finish(st, y, out_y);
}

tl_status tl_mlp(tl_tensor *x, const tl_mlp_layer *layers, int count, tl_unary_kind act,
                 int residual, tl_tensor *scale, tl_tensor **out_y)
{
    tl_ctx   *ctx = x->ctx;
    int       listed = FIRST + count * MLP_PARAMS;
    tl_status st = mlp_check(x, layers, count, act, residual, scale);
    if (st != TL_OK) return st;
    tl_tensor **list = calloc((size_t)listed, sizeof *list);
    mlp        *j = list ? mlp_new(ctx, layers, count, list) : NULL;
    if (j) {
        list[X] = x;
        list[SCALE] = scale;
        j->act = act;
        j->residual = residual != 0;
        st = mlp_run(ctx, j, list, listed, out_y);
    } else {
        st = tl_fail(ctx, TL_ENOMEM, "out of memory");
    }
    free(list);
    return st;
}

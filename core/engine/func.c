/* func.c - differentiable functions whose results and gradients the program computes.
**
** A node of the tape has one result, and such a function may have several. So its node has a result
** of no elements, which is the input of one node for each true result. Backward reaches those
** nodes first, and they store the gradients of the results for the function's own node. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/backward.h"

typedef struct tl_running_func {
    tl_func    of;
    char       name[64];
    tl_shape  *in_shapes, *out_shapes;
    tl_tensor **dys; /* of the results; NULL: backward has not reached that one */
    int        inputs, outputs;
    /* while its backward function runs: */
    unsigned   written; /* how often the dys that it still has had been changed before */
    int64_t    choice;  /* ctx->choice of the pass around it */
} func;

static void func_release(void *p)
{
    func *f = p;
    for (int i = 0; f->dys && i < f->outputs; i++) tl_tensor_free(f->dys[i]);
    free(f->dys);
    free(f->in_shapes);
    free(f->out_shapes);
    f->of.release(f->of.user);
    free(f);
}

/* Takes over of->user; NULL: out of memory. */
static func *func_new(const tl_func *of, tl_tensor *const *inputs, int count,
                      tl_tensor *const *values, int outputs)
{
    func *f = calloc(1, sizeof *f);
    if (!f) {
        of->release(of->user);
        return NULL;
    }
    *f = (func){.of = *of, .inputs = count, .outputs = outputs};
    (void)snprintf(f->name, sizeof f->name, "%s", of->name);
    f->in_shapes = calloc((size_t)count + 1, sizeof *f->in_shapes);
    f->out_shapes = calloc((size_t)outputs + 1, sizeof *f->out_shapes);
    f->dys = calloc((size_t)outputs + 1, sizeof *f->dys);
    if (!f->in_shapes || !f->out_shapes || !f->dys) {
        func_release(f);
        return NULL;
    }
    for (int i = 0; i < count; i++)
        if (inputs[i]) f->in_shapes[i] = tl_shape_of(inputs[i]);
    for (int i = 0; i < outputs; i++) f->out_shapes[i] = tl_shape_of(values[i]);
    return f;
}

/* ---- Backward -------------------------------------------------------------------------------- */

static tl_status new_empty(tl_ctx *ctx, tl_tensor **out_t)
{
    return tl_new(ctx, TL_F32, 1, (int64_t[]){0}, out_t);
}

/* The gradient function of a result. p: the func   i[0]: the number of the result */
static tl_status store_dy(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    func      *f = node->saved.p;
    tl_tensor *none;
    f->dys[node->saved.list.i[0]] = tl_tensor_retain(dy);
    if (!node->in[0] || node->in[0]->grad) return TL_OK;
    tl_status st = new_empty(ctx, &none); /* so that backward does not skip the function's node */
    return st == TL_OK ? tl_accumulate(ctx, node->in[0], none) : st;
}

/* Counts the changes of the results' gradients. */
static unsigned written(const func *f)
{
    unsigned sum = 0;
    for (int i = 0; i < f->outputs; i++)
        if (f->dys[i]) sum += f->dys[i]->storage->version;
    return sum;
}

/* Takes over a reference for each of dxs. The one that a scope would free may be among them: then
** the tensor leaves its scope. It stays if the program has one more, as by tl_tensor_retain. */
static void take_over(tl_tensor *const *dxs, int count)
{
    for (int i = 0; i < count; i++)
        if (dxs[i]) dxs[i]->held++;
    for (int i = 0; i < count; i++)
        if (dxs[i] && dxs[i]->refs <= dxs[i]->tape_refs + dxs[i]->held) tl_scope_leave(dxs[i]);
    for (int i = 0; i < count; i++)
        if (dxs[i]) dxs[i]->held--;
}

/* Calls the program's backward function, which may record operators and go backward through them:
** the tape below the present length is not theirs. */
static tl_status call_backward(tl_ctx *ctx, func *f, tl_tensor **dxs)
{
    int64_t    base = ctx->tape_base;
    tl_tensor *one = ctx->one;
    func      *outer = ctx->func;
    f->written = written(f);
    f->choice = ctx->choice;
    ctx->tape_base = ctx->tape_len;
    ctx->func = f;
    ctx->choice = 0;
    tl_status st = f->of.backward(f->of.user, f->dys, dxs);
    take_over(dxs, f->inputs);
    tl_scope_end(ctx, ctx->scope_base + 1);
    if (st == TL_OK && written(f) != f->written) /* other nodes may share its storage */
        st = tl_fail(ctx, TL_EINVAL, "%s: backward changed a gradient in place that it was given",
                     f->name);
    tl_tape_clear(ctx);
    ctx->tape_base = base;
    ctx->choice = f->choice;
    ctx->func = outer;
    ctx->one = one;
    (void)tl_set_recording(ctx, 0);
    return st;
}

tl_status tl_backward_within(tl_ctx *ctx, tl_tensor *y, tl_tensor *dy)
{
    func   *f = ctx->func;
    int64_t was = ctx->choice;
    for (int i = 0; f && i < f->outputs; i++) {
        if (f->dys[i] != dy) continue;
        /* no second owner: an owner decides whether gradients are added in place, and so how they
        ** are rounded */
        f->written -= dy->storage->version;
        tl_tensor_free(f->dys[i]);
        f->dys[i] = NULL;
    }
    ctx->choice = f ? f->choice : 0;
    if (ctx->choice) tl_prune(ctx, ctx->choice);
    tl_status st = tl_backward_given(ctx, y, dy);
    ctx->choice = was;
    return st;
}

static tl_status check_dx(tl_ctx *ctx, const func *f, int i, const tl_tensor *dx)
{
    tl_tensor like = {.ndim = f->in_shapes[i].ndim};
    for (int k = 0; k < like.ndim; k++) like.dims[k] = f->in_shapes[i].dims[k];
    if (dx->type != TL_F32)
        return tl_fail(ctx, TL_ETYPE, "%s: the gradient of input %lld is not float32", f->name,
                       tl_position(ctx, i));
    if (tl_same_shape(dx, &like)) return TL_OK;
    return tl_fail(ctx, TL_ESHAPE, "%s: the gradient of input %lld is %s, the input %s", f->name,
                   tl_position(ctx, i), SHAPE(dx), SHAPE(&like));
}

/* saved: p: the func   list: the inputs, then what the function saved */
static tl_status func_grad(tl_ctx *ctx, tl_node *node, tl_tensor *dy)
{
    func       *f = node->saved.p;
    tl_tensor **dxs = calloc((size_t)f->inputs + 1, sizeof *dxs);
    tl_status   st = dxs ? TL_OK : tl_fail(ctx, TL_ENOMEM, "out of memory");
    (void)dy; /* has no elements */
    for (int i = 0; i < f->outputs && st == TL_OK; i++)
        if (!f->dys[i])
            st = tl_tensor_new(ctx, TL_F32, f->out_shapes[i].ndim, f->out_shapes[i].dims,
                               &f->dys[i]);
    if (st == TL_OK) st = call_backward(ctx, f, dxs);
    for (int i = 0; dxs && i < f->inputs; i++) {
        if (!dxs[i]) continue;
        if (st == TL_OK && node->list[i].slot) st = check_dx(ctx, f, i, dxs[i]);
        if (st == TL_OK)
            st = tl_accumulate(ctx, node->list[i].slot, dxs[i]);
        else
            tl_tensor_free(dxs[i]);
    }
    free(dxs);
    return st;
}

/* ---- Recording ------------------------------------------------------------------------------- */

/* Lists what the node watches: the inputs, and views of the saved tensors, because a view has no
** slot. *out_list is NULL after a failure. */
static tl_status make_list(tl_ctx *ctx, tl_tensor *const *inputs, int count,
                           tl_tensor *const *saved, int kept, tl_tensor ***out_list)
{
    tl_tensor **list = calloc((size_t)count + (size_t)kept + 1, sizeof *list);
    tl_status   st = list ? TL_OK : tl_fail(ctx, TL_ENOMEM, "out of memory");
    for (int i = 0; i < count && list; i++) list[i] = inputs[i];
    for (int i = 0; i < kept && st == TL_OK; i++)
        st = tl_tensor_view(saved[i], 0, saved[i]->ndim, saved[i]->dims, &list[count + i]);
    *out_list = list;
    return st;
}

static void free_list(tl_tensor **list, int count, int kept)
{
    for (int i = 0; list && i < kept; i++) tl_tensor_free(list[count + i]);
    free(list);
}

/* Records the function's node, whose result is the empty tensor hidden. Takes over f. */
static tl_status record_node(tl_ctx *ctx, func *f, tl_tensor *const *inputs,
                             tl_tensor *const *saved, int kept, tl_tensor *hidden)
{
    tl_tensor **list;
    tl_args     args = {.p = f};
    int         count = f->inputs; /* f may be gone below */
    tl_status   st = make_list(ctx, inputs, count, saved, kept, &list);
    if (st == TL_OK)
        st = tl_record_list(ctx, hidden, func_grad, list, count + kept, 1, &args, func_release);
    else
        func_release(f);
    for (int i = 0; hidden->slot && i < count; i++) { /* the node needs no values of its inputs */
        tl_listed *listed = &ctx->tape[hidden->slot->node].list[i];
        tl_tensor_drop(listed->t);
        listed->t = NULL;
    }
    free_list(list, count, kept);
    return st;
}

tl_status tl_record_func(tl_ctx *ctx, const tl_func *of, tl_tensor *const *inputs, int count,
                         tl_tensor *const *saved, int kept, tl_tensor *const *values, int outputs,
                         tl_tensor **out_results)
{
    tl_tensor *hidden = NULL;
    func      *f = func_new(of, inputs, count, values, outputs);
    int        made = 0;
    tl_status  st = f ? new_empty(ctx, &hidden) : tl_fail(ctx, TL_ENOMEM, "out of memory");
    if (st == TL_OK) st = record_node(ctx, f, inputs, saved, kept, hidden);
    else if (f) func_release(f);
    for (; made < outputs && st == TL_OK; made++) {
        tl_tensor *v = values[made];
        tl_args    args = {.p = f, .list = {.i = {made}}};
        st = tl_tensor_view(v, 0, v->ndim, v->dims, &out_results[made]);
        if (st != TL_OK) break;
        if (hidden->slot && v->type == TL_F32)
            st = tl_record(ctx, out_results[made], store_dy, &hidden, 1, &args, NULL);
    }
    for (int i = 0; i < made && st != TL_OK; i++) {
        tl_tensor_free(out_results[i]);
        out_results[i] = NULL;
    }
    tl_tensor_free(hidden);
    return st;
}

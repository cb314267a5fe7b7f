/* tape.c - records operators for reverse-mode differentiation (backward.c).
**
** A tensor that requires a gradient has a slot, where its gradient accumulates. The tape's nodes
** own slots and the tensors that gradients need, but no other tensors, so a result that a script
** drops and no gradient needs is freed at once. */
#include <stdlib.h>
#include <string.h>

#include "engine/tape.h"

/* ---- Recording ------------------------------------------------------------------------------- */

int tl_set_recording(tl_ctx *ctx, int on)
{
    int was = ctx->recording;
    ctx->recording = on != 0;
    return was;
}

int tl_needs_grad(const tl_ctx *ctx, const tl_tensor *t) { return ctx->recording && t && t->slot; }

int64_t tl_tape_len(const tl_ctx *ctx) { return ctx->tape_len; }

static tl_status tape_grow(tl_ctx *ctx)
{
    if (ctx->tape_len < ctx->tape_cap) return TL_OK;
    int64_t  cap = ctx->tape_cap ? 2 * ctx->tape_cap : 256;
    tl_node *tape = realloc(ctx->tape, (size_t)cap * sizeof *tape);
    if (!tape) return tl_fail(ctx, TL_ENOMEM, "out of memory: a tape of %lld operators",
                              (long long)cap);
    ctx->tape = tape;
    ctx->tape_cap = cap;
    return TL_OK;
}

tl_tensor *tl_take_saved(tl_node *node, int i)
{
    tl_tensor *t = node->saved.list.in[i];
    node->saved.list.in[i] = NULL;
    if (t) t->tape_refs--;
    return t;
}

void tl_node_clear(tl_node *node)
{
    node->out->consumed = 1;
    tl_slot_free(node->out);
    for (int i = 0; i < TL_ARGS; i++) {
        tl_slot_free(node->in[i]);
        tl_tensor_free(tl_take_saved(node, i));
    }
    for (int i = 0; i < node->count; i++) {
        tl_slot_free(node->list[i].slot);
        tl_tensor_drop(node->list[i].t);
    }
    free(node->list);
    if (node->release) node->release(node->saved.p);
}

/* Sets *recorded to whether an operator on inputs has to be recorded. Fails for a recorded result
** that was overwritten, perhaps through a view: its node no longer computes what it holds. */
static tl_status check_inputs(tl_ctx *ctx, tl_tensor *const *inputs, int count, int *recorded)
{
    *recorded = 0;
    for (int i = 0; i < count; i++) {
        if (!tl_needs_grad(ctx, inputs[i])) continue;
        const tl_slot *slot = inputs[i]->slot;
        *recorded = 1;
        if (slot->consumed)
            return tl_fail(ctx, TL_EINVAL,
                           "operand %d, %s, is a result whose tape is gone (an earlier backward "
                           "consumed it): compute it again, or use a clone of it",
                           i + 1, SHAPE(inputs[i]));
        if (!slot->leaf && slot->version != inputs[i]->storage->version)
            return tl_fail(ctx, TL_EINVAL,
                           "operand %d, %s, was computed by an operator and then changed in "
                           "place, so its inputs would get wrong gradients: clone it before the "
                           "change",
                           i + 1, SHAPE(inputs[i]));
    }
    return TL_OK;
}

/* Appends a node whose result is out; NULL: out of memory. */
static tl_node *tape_append(tl_ctx *ctx, tl_tensor *out, tl_grad_fn grad, const tl_args *saved,
                            void (*release)(void *p))
{
    if (tape_grow(ctx) != TL_OK) return NULL;
    tl_slot *slot = tl_slot_new(0);
    if (!slot) {
        (void)tl_fail(ctx, TL_ENOMEM, "out of memory");
        return NULL;
    }
    tl_node *node = &ctx->tape[ctx->tape_len++];
    *node = (tl_node){.grad = grad, .out = slot, .release = release,
                       .precision = ctx->precision};
    if (saved) node->saved = *saved;
    /* the tape does not own outputs */
    memset(node->saved.list.out, 0, sizeof node->saved.list.out);
    for (int i = 0; i < TL_ARGS; i++) {
        if (!node->saved.list.in[i]) continue;
        node->version[i] = tl_tensor_retain(node->saved.list.in[i])->storage->version;
        node->saved.list.in[i]->tape_refs++;
    }
    slot->node = ctx->tape_len - 1;
    slot->version = out->storage->version;
    out->slot = tl_slot_retain(slot);
    return node;
}

tl_status tl_record(tl_ctx *ctx, tl_tensor *out, tl_grad_fn grad, tl_tensor *const *inputs,
                    int count, const tl_args *saved, void (*release)(void *p))
{
    int       recorded;
    tl_status st = check_inputs(ctx, inputs, count, &recorded);
    tl_node  *node = NULL;
    if (st == TL_OK && recorded && !(node = tape_append(ctx, out, grad, saved, release)))
        st = TL_ENOMEM;
    for (int i = 0; node && i < count; i++)
        node->in[i] = inputs[i] ? tl_slot_retain(inputs[i]->slot) : NULL;
    if (!node && release && saved) release(saved->p);
    return st;
}

tl_status tl_run_recorded(tl_op op, const tl_args *a, int inputs, tl_grad_fn grad,
                          const tl_args *saved, tl_tensor **out_y)
{
    tl_ctx   *ctx = a->list.in[0]->ctx;
    tl_status st = tl_launch(ctx, op, a);
    if (st == TL_OK) st = tl_record(ctx, a->list.out[0], grad, a->list.in, inputs, saved, NULL);
    return tl_finish(st, a->list.out[0], out_y);
}

tl_status tl_record_list(tl_ctx *ctx, tl_tensor *out, tl_grad_fn grad, tl_tensor *const *list,
                         int count, int needed, const tl_args *saved, void (*release)(void *p))
{
    int        recorded;
    tl_listed *all = NULL;
    tl_node   *node = NULL;
    tl_status  st = check_inputs(ctx, list, count, &recorded);
    if (st == TL_OK && recorded && !(all = calloc((size_t)count, sizeof *all)))
        st = tl_fail(ctx, TL_ENOMEM, "out of memory");
    if (all && !(node = tape_append(ctx, out, grad, saved, release))) {
        st = TL_ENOMEM;
        free(all);
    }
    if (node) {
        node->list = all;
        node->count = count;
    }
    for (int i = 0; node && i < count; i++)
        if (list[i])
            all[i] = (tl_listed){needed ? tl_tensor_hold(list[i]) : NULL,
                                 tl_slot_retain(list[i]->slot), list[i]->storage->version};
    if (!node && release && saved) release(saved->p);
    return st;
}

void tl_allow_recompute(tl_ctx *ctx, tl_tensor *out, tl_op op)
{
    if (!out->slot) return;
    const tl_node *node = &ctx->tape[out->slot->node];
    /* recompute from stored tensors only, never through a chain */
    for (int i = 0; i < TL_ARGS; i++) {
        const tl_tensor *t = node->saved.list.in[i];
        if (t && t->slot && t->slot->recompute) return;
    }
    out->slot->recompute = (int)op;
}

void tl_tape_clear(tl_ctx *ctx)
{
    while (ctx->tape_len > ctx->tape_base) {
        tl_node node = ctx->tape[--ctx->tape_len];
        tl_node_clear(&node);
    }
}

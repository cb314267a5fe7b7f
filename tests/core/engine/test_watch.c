/* test_watch.c - a watched backward pass: when leaves are reached and done, and that gradients
** which are deferred are added in the order of a plain pass, bit for bit. */
#include <string.h>

#include "engine/backward.h"
#include "tensors.h"

enum { SHARED = 1, OTHER = 2 }; /* the numbers of the leaves */

typedef struct watcher {
    tl_watch   watch;
    tl_tensor *prefix; /* what the gradient of SHARED begins with; it comes with its last use */
    int        deferred, arrived, done[3], order[2], count;
} watcher;

static tl_status reach(tl_watch *watch, tl_ctx *ctx, tl_slot *leaf, int *out_defer)
{
    watcher *w = (watcher *)watch;
    (void)ctx;
    CHECK(!w->done[leaf->number]);
    if (leaf->number != SHARED || w->arrived) return TL_OK;
    *out_defer = leaf->uses > 1;
    w->deferred += *out_defer;
    if (*out_defer) return TL_OK;
    w->arrived = 1;
    leaf->grad = w->prefix;
    w->prefix = NULL;
    return TL_OK;
}

static tl_status done(tl_watch *watch, tl_ctx *ctx, tl_slot *leaf)
{
    watcher *w = (watcher *)watch;
    (void)ctx;
    CHECK(leaf->grad != NULL && !w->done[leaf->number]);
    w->done[leaf->number] = 1;
    if (w->count < 2) w->order[w->count++] = leaf->number;
    return TL_OK;
}

typedef struct problem {
    tl_tensor *x, *w, *other; /* x [300,12]   w, other [12,12] */
} problem;

/* The sum of silu(silu(x w^T) other^T) w^T, squared: w is used first and last. */
static tl_tensor *loss_of(const problem *p)
{
    tl_tensor *t[7] = {p->x};
    CHECK_STATUS(tl_linear(t[0], p->w, NULL, &t[1]), TL_OK);
    CHECK_STATUS(tl_unary(TL_UNARY_silu, t[1], &t[2]), TL_OK);
    CHECK_STATUS(tl_linear(t[2], p->other, NULL, &t[3]), TL_OK);
    CHECK_STATUS(tl_linear(t[3], p->w, NULL, &t[4]), TL_OK);
    CHECK_STATUS(tl_unary(TL_UNARY_square, t[4], &t[5]), TL_OK);
    CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, t[5], TL_ALL_AXES, 0, &t[6]), TL_OK);
    for (int i = 1; i < 6; i++) tl_tensor_free(t[i]);
    return t[6];
}

static tl_tensor *copy_of(tl_tensor *t)
{
    tl_tensor *y = zeros(tl_tensor_ctx(t), t->ndim, t->dims);
    CHECK_STATUS(tl_tensor_copy(y, t), TL_OK);
    return y;
}

static int same_bits(tl_tensor *a, tl_tensor *b)
{
    return memcmp(tl_tensor_cf32(a), tl_tensor_cf32(b), (size_t)tl_tensor_len(a) * 4) == 0;
}

static void order_of_sums(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    problem p = {normals(ctx, 2, (int64_t[]){300, 12}, 0, 1, 1),
                 normals(ctx, 2, (int64_t[]){12, 12}, 0, 1, 2),
                 normals(ctx, 2, (int64_t[]){12, 12}, 0, 1, 3)};
    tl_tensor *prefix = normals(ctx, 2, (int64_t[]){12, 12}, 0, 100, 4);
    CHECK_STATUS(tl_set_requires_grad(p.w, 1), TL_OK);
    CHECK_STATUS(tl_set_requires_grad(p.other, 1), TL_OK);

    tl_tensor *begun = copy_of(prefix), *loss = loss_of(&p);
    CHECK_STATUS(tl_set_grad(p.w, begun), TL_OK);
    tl_tensor_free(begun);
    CHECK_STATUS(tl_backward(ctx, loss), TL_OK);
    tl_tensor_free(loss);
    tl_tensor *want = copy_of(tl_grad(p.w)), *want_other = copy_of(tl_grad(p.other));

    CHECK_STATUS(tl_set_grad(p.w, NULL), TL_OK);
    CHECK_STATUS(tl_set_grad(p.other, NULL), TL_OK);
    watcher w = {.watch = {reach, done}, .prefix = prefix};
    p.w->slot->number = SHARED;
    p.other->slot->number = OTHER;
    loss = loss_of(&p);
    CHECK_STATUS(tl_backward_watched(ctx, loss, &w.watch), TL_OK);
    tl_tensor_free(loss);
    CHECK(w.deferred == 1 && w.arrived && w.count == 2);
    CHECK(w.order[0] == OTHER && w.order[1] == SHARED);
    CHECK(p.w->slot->uses == 0 && p.other->slot->uses == 0);
    CHECK(same_bits(tl_grad(p.w), want) && same_bits(tl_grad(p.other), want_other));

    tl_tensor *all[] = {p.x, p.w, p.other, want, want_other};
    for (int i = 0; i < 5; i++) tl_tensor_free(all[i]);
    CHECK(tl_memory_info(ctx).tensors == 0);
    tl_ctx_free(ctx);
}

static tl_status fails(tl_watch *watch, tl_ctx *ctx, tl_slot *leaf, int *out_defer)
{
    (void)watch;
    *out_defer = leaf->number == SHARED && leaf->uses > 1;
    if (*out_defer) return TL_OK;
    return tl_fail(ctx, TL_EIO, "the rank before is gone");
}

static void failure_frees_all(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    problem p = {normals(ctx, 2, (int64_t[]){300, 12}, 0, 1, 1),
                 normals(ctx, 2, (int64_t[]){12, 12}, 0, 1, 2),
                 normals(ctx, 2, (int64_t[]){12, 12}, 0, 1, 3)};
    CHECK_STATUS(tl_set_requires_grad(p.w, 1), TL_OK);
    CHECK_STATUS(tl_set_requires_grad(p.other, 1), TL_OK);
    p.w->slot->number = SHARED;
    p.other->slot->number = OTHER;
    tl_watch   watch = {fails, done};
    tl_tensor *loss = loss_of(&p);
    CHECK_STATUS(tl_backward_watched(ctx, loss, &watch), TL_EIO);
    CHECK(tl_tape_len(ctx) == 0);
    tl_tensor_free(loss);
    tl_tensor *all[] = {p.x, p.w, p.other};
    for (int i = 0; i < 3; i++) tl_tensor_free(all[i]);
    CHECK(tl_memory_info(ctx).tensors == 0);
    tl_ctx_free(ctx);
}

int main(void)
{
    return run_tests((const test[]){{"sums keep their order", order_of_sums},
                                    {"a failure frees all", failure_frees_all},
                                    {0}});
}

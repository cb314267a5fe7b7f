/* test_scope.c - what a scope frees, and what stays after it. */
#include "tensors.h"

static tl_ctx    *ctx;
static tl_tensor *w;    /* [4], a leaf from outside of all scopes */
static tl_tensor *kept; /* what a case leaves to the caller */

static tl_tensor *leaf(int ndim, const int64_t *dims)
{
    tl_tensor *t = uniforms(ctx, ndim, dims, 1, 2, 1);
    CHECK_STATUS(tl_set_requires_grad(t, 1), TL_OK);
    return t;
}

static tl_tensor *product(tl_tensor *a, tl_tensor *b)
{
    tl_tensor *y = NULL;
    CHECK_STATUS(tl_binary(TL_BINARY_MUL, a, b, &y), TL_OK);
    return y;
}

static tl_tensor *sum(tl_tensor *x)
{
    tl_tensor *y = NULL;
    CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, x, TL_ALL_AXES, 0, &y), TL_OK);
    return y;
}

/* The gradient of the sum of times w^power. */
static void check_power(int times, int power)
{
    const float *x = tl_tensor_cf32(w), *g = tl_tensor_cf32(tl_grad(w));
    for (int i = 0; i < 4; i++)
        CHECK_NEAR((double)g[i], times * power * pow((double)x[i], power - 1), 1e-5);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void results(void)
{
    tl_tensor *y = NULL, *view = NULL, *odd = NULL;
    CHECK_STATUS(tl_where(w, w, w, &y), TL_OK); /* has results of its own */
    CHECK_STATUS(tl_tensor_view(y, 1, 1, (int64_t[]){2}, &view), TL_OK);
    tl_tensor_free(y);
    CHECK(tl_tensor_cf32(view)[1] == tl_tensor_cf32(w)[2]);
    CHECK_STATUS(tl_reshape(w, 1, (int64_t[]){5}, &odd), TL_ESHAPE);
}

static void training(void) { CHECK_STATUS(tl_backward(ctx, sum(product(w, w))), TL_OK); }

/* The tape saves the square, whose scope ends before backward. */
static void saved_and_freed(void)
{
    int        inner = tl_scope_begin(ctx);
    tl_tensor *square = product(w, w), *loss = tl_scope_keep(sum(product(square, w)));
    tl_tensor_free(square);
    tl_scope_end(ctx, inner);
    CHECK_STATUS(tl_backward(ctx, loss), TL_OK);
    check_power(1, 3);
}

static void recorded(void) { (void)product(product(w, w), w); }

static void mlp(void)
{
    tl_tensor *x = leaf(2, (int64_t[]){5, 4}), *weight = leaf(2, (int64_t[]){4, 4}), *y = NULL;
    tl_mlp_layer layers[] = {{.weight = weight}, {.weight = weight}};
    CHECK_STATUS(tl_mlp(x, layers, 2, TL_UNARY_relu, 0, NULL, &y), TL_OK);
    tl_tensor_free(x);
    tl_tensor_free(weight);
    CHECK_STATUS(tl_backward(ctx, sum(y)), TL_OK);
}

static void retained(void)
{
    kept = tl_tensor_retain(product(w, w));
    tl_tensor_free(tl_tensor_retain(kept)); /* one owner more, and it again */
}

static void kept_twice(void)
{
    int inner = tl_scope_begin(ctx);
    (void)product(w, w);
    kept = tl_scope_keep(product(w, w));
    tl_scope_end(ctx, inner);
    CHECK(tl_tensor_len(kept) == 4); /* it is in the outer scope now */
    CHECK(tl_scope_keep(w) == w);    /* is in no scope */
    (void)tl_scope_keep(kept);
}

static void kept_outside(void)
{
    tl_tensor *outer = product(w, w);
    int        inner = tl_scope_begin(ctx);
    (void)tl_scope_keep(outer); /* is not of the inner scope, so it stays in its own */
    tl_scope_end(ctx, inner);
}

static void nested(void)
{
    int64_t count = tl_tensor_count(ctx);
    int     inner = tl_scope_begin(ctx);
    (void)product(w, w);
    (void)tl_scope_keep(product(w, w)); /* to the scope of the case */
    (void)tl_scope_begin(ctx);
    (void)product(w, w);
    tl_scope_end(ctx, inner);
    CHECK(tl_tensor_count(ctx) == count + 1);
    (void)product(w, w);
    CHECK(tl_scope_begin(ctx) == inner); /* which the scope of the case ends */
    (void)product(w, w);
    tl_scope_end(ctx, inner + 7); /* there is none */
}

static void gradient_given(void)
{
    const int64_t n = 4;
    tl_tensor    *g = uniforms(ctx, 1, &n, 1, 2, 5), *h = uniforms(ctx, 1, &n, 1, 2, 6);
    CHECK_STATUS(tl_set_grad(w, g), TL_OK);
    tl_tensor_free(g);
    CHECK_STATUS(tl_set_grad(w, h), TL_OK);
    tl_tensor_free(h);
    CHECK_STATUS(tl_backward(ctx, sum(w)), TL_OK); /* adds to it */
}

/* The leaf's gradient is the same tensor as the given one, or as the 1 of the loss, at first. */
static void gradient_passed_on(void)
{
    tl_tensor *x = leaf(1, (int64_t[]){4}), *one = leaf(1, (int64_t[]){1}), *y = NULL;
    tl_tensor *dy = uniforms(ctx, 1, (int64_t[]){4}, 1, 2, 5);
    CHECK_STATUS(tl_binary(TL_BINARY_ADD, w, x, &y), TL_OK);
    CHECK_STATUS(tl_backward_from(ctx, y, dy), TL_OK);
    CHECK_STATUS(tl_reshape(one, 0, NULL, &y), TL_OK);
    CHECK_STATUS(tl_backward(ctx, y), TL_OK);
    CHECK(tl_tensor_cf32(tl_grad(one))[0] == 1);
}

static void chosen(void)
{
    tl_tensor *dx[2] = {NULL, NULL}, *square = product(w, w);
    CHECK_STATUS(tl_gradients(ctx, sum(square), (tl_tensor *[]){w, w}, 2, dx), TL_OK);
    CHECK(tl_tensor_cf32(dx[1])[0] == tl_tensor_cf32(dx[0])[0]);
    kept = tl_scope_keep(dx[1]);
}

static void state(void)
{
    tl_recurrence *r = NULL, *fork = NULL;
    tl_tensor     *t = uniforms(ctx, 2, (int64_t[]){5, 3}, 0, 1, 7);
    tl_tensor     *x = zeros(ctx, 2, (int64_t[]){1, 3}), *g = zeros(ctx, 1, (int64_t[]){1});
    int            inner = tl_scope_begin(ctx);
    tl_tensor_f32(g)[0] = 1;
    CHECK_STATUS(tl_recurrence_new(t, g, TL_RECURRENCE_RING, 1, &r), TL_OK);
    CHECK_STATUS(tl_recurrence_fork(r, &fork), TL_OK);
    tl_scope_end(ctx, inner);
    CHECK_STATUS(tl_recurrence_step(r, x, x), TL_OK);
    tl_recurrence_free(r);
    CHECK_STATUS(tl_recurrence_step(fork, x, x), TL_OK);
    tl_recurrence_free(fork);
}

/* ---- Functions of the program ---------------------------------------------------------------- */

typedef struct cubed { /* y = x^3 */
    tl_tensor *x, *aside; /* of the function's own, outside of scopes */
    int        fails, calls, releases;
} cubed;

/* dx = 3 x^2 dy. Leaves a scope open, with dx in it, after a pass within. */
static tl_status cubed_backward(void *user, tl_tensor *const *dys, tl_tensor **out_dxs)
{
    cubed     *f = user;
    tl_tensor *square, *dx = NULL, *y;
    int        scope;
    if (f->calls++ == 1) f->aside = zeros(ctx, 1, (int64_t[]){4});
    scope = tl_scope_begin(ctx);
    square = tl_scope_keep(product(f->x, f->x));
    tl_scope_end(ctx, 1); /* the scopes around the pass are not its own */
    (void)tl_scope_begin(ctx);
    CHECK_STATUS(tl_affine(product(square, dys[0]), 3, 0, &dx), TL_OK);
    out_dxs[0] = dx;
    tl_tensor_free(square);
    (void)tl_set_recording(ctx, 1);
    y = product(leaf(1, (int64_t[]){4}), dys[0]);
    CHECK_STATUS(tl_backward_within(ctx, y, product(dys[0], dys[0])), TL_OK);
    CHECK(tl_scope_begin(ctx) > scope);
    return f->fails ? tl_fail(ctx, TL_EINVAL, "as it should") : TL_OK;
}

static void cubed_release(void *user) { ((cubed *)user)->releases++; }

static void run_cubed(int fails)
{
    cubed      f = {.x = w, .fails = fails};
    tl_func    of = {"cubed", cubed_backward, cubed_release, &f};
    tl_tensor *value, *y[3] = {NULL}, *outer = product(w, w);
    (void)tl_set_recording(ctx, 0);
    value = product(outer, w);
    (void)tl_set_recording(ctx, 1);
    for (int i = 0; i < 2; i++)
        CHECK_STATUS(tl_record_func(ctx, &of, &w, 1, &outer, 1, &value, 1, &y[i]), TL_OK);
    CHECK_STATUS(tl_concat(ctx, y, 2, 0, &y[2]), TL_OK);
    CHECK_STATUS(tl_backward(ctx, sum(y[2])), fails ? TL_EINVAL : TL_OK);
    CHECK(f.releases == 2 && tl_tensor_len(outer) == 4);
    if (!fails) check_power(2, 3);
    tl_tensor_free(f.aside);
    (void)zeros(ctx, 1, (int64_t[]){4}); /* is in the scope of the case again */
    tl_tape_clear(ctx);
}

static void function(void) { run_cubed(0); }
static void failing_function(void) { run_cubed(1); }

/* A function of two inputs. Its backward returns one tensor as both gradients, or for the first. */
typedef struct handed {
    tl_tensor *g; /* of the scope around the pass; NULL: of a scope within, or what backward got */
    int        inner, both, retained;
} handed;

static tl_status handed_backward(void *user, tl_tensor *const *dys, tl_tensor **out_dxs)
{
    const handed *h = user;
    tl_tensor    *g = h->g;
    if (h->inner) {
        (void)tl_scope_begin(ctx);
        g = uniforms(ctx, 1, (int64_t[]){4}, 1, 2, 9);
    }
    out_dxs[0] = g && !h->retained ? g : tl_tensor_retain(g ? g : dys[0]);
    if (h->both) out_dxs[1] = tl_tensor_retain(out_dxs[0]);
    return TL_OK;
}

static void handed_release(void *user) { (void)user; }

static void run_handed(handed h)
{
    tl_func    of = {"handed", handed_backward, handed_release, &h};
    tl_tensor *dy = uniforms(ctx, 1, (int64_t[]){4}, 1, 2, 5), *y = NULL;
    tl_tensor *inputs[] = {w, leaf(1, (int64_t[]){4})};
    CHECK_STATUS(tl_record_func(ctx, &of, inputs, 2, NULL, 0, &inputs[1], 1, &y), TL_OK);
    CHECK_STATUS(tl_backward_from(ctx, y, dy), TL_OK);
    CHECK(!tl_grad(inputs[1]) == !h.both);
    CHECK(tl_tensor_cf32(dy)[0] > 0);
    if (h.retained && h.g) CHECK(tl_tensor_cf32(h.g)[0] == 0);
}

static void handed_on(void)
{
    for (int both = 0; both < 2; both++) {
        tl_tensor *given = zeros(ctx, 1, (int64_t[]){4});
        tl_tensor *retained = zeros(ctx, 1, (int64_t[]){4});
        run_handed((handed){.both = both});
        run_handed((handed){.g = given, .both = both});
        run_handed((handed){.g = retained, .both = both, .retained = 1});
        run_handed((handed){.inner = 1, .both = both});
        run_handed((handed){.inner = 1, .both = both, .retained = 1});
        CHECK_STATUS(tl_set_grad(w, NULL), TL_OK);
        run_handed((handed){.g = zeros(ctx, 1, (int64_t[]){4}), .both = both});
    }
}

/* ---- The table ------------------------------------------------------------------------------- */

static const struct scope_case {
    const char *name;
    void (*run)(void);
    int left, tape; /* how many tensors there are after it without, and at most with, the tape's */
} cases[] = {
    {"results, views and what failed", results, 0, 3},
    {"the gradient of a leaf stays", training, 1, 1},
    {"tensors that the tape saved and the program freed", saved_and_freed, 1, 1},
    {"what the tape saved stays until it is cleared", recorded, 0, 1},
    {"layers that were freed before backward", mlp, 0, 0},
    {"a retained tensor stays", retained, 1, 1},
    {"a tensor moves from scope to scope to the caller", kept_twice, 1, 1},
    {"a tensor of another scope is not moved", kept_outside, 0, 0},
    {"scopes in scopes", nested, 0, 0},
    {"a gradient given to a leaf stays", gradient_given, 1, 1},
    {"a gradient that backward passes on stays", gradient_passed_on, 1, 1},
    {"gradients of chosen tensors", chosen, 1, 1},
    {"the state of a recurrence stays", state, 0, 0},
    {"a function of the program", function, 1, 1},
    {"a function of the program that fails", failing_function, 0, 0},
    {"gradients that a function returns", handed_on, 1, 1},
    {0},
};

static const struct scope_case *now;

/* Runs a case in a scope of its own. */
static void run_case(void)
{
    int64_t count = tl_tensor_count(ctx);
    int     scope = tl_scope_begin(ctx);
    now->run();
    tl_scope_end(ctx, scope);
    CHECK(tl_tensor_count(ctx) >= count + now->left);
    CHECK(tl_tensor_count(ctx) <= count + now->tape);
    tl_tape_clear(ctx);
    CHECK(tl_tensor_count(ctx) == count + now->left);
    CHECK_STATUS(tl_set_grad(w, NULL), TL_OK);
    tl_tensor_free(now->left && !tl_grad(w) ? kept : NULL);
    kept = NULL;
    CHECK(tl_tensor_count(ctx) == count);
}

/* A context that is freed ends its scopes. */
static void freed_context(void)
{
    tl_ctx    *own = NULL;
    tl_tensor *t = NULL;
    CHECK_STATUS(tl_ctx_new(1, &own), TL_OK);
    (void)tl_scope_begin(own);
    CHECK_STATUS(tl_tensor_new(own, TL_F32, 0, NULL, &t), TL_OK);
    (void)tl_scope_begin(own);
    CHECK_STATUS(tl_tensor_new(own, TL_F32, 0, NULL, &t), TL_OK);
    tl_ctx_free(own); /* the address sanitiser reports what is left */
}

int main(void)
{
    int failed = 0;
    if (tl_ctx_new(2, &ctx) != TL_OK) return 1;
    w = leaf(1, (int64_t[]){4});
    for (now = cases; now->name; now++)
        failed |= run_tests((const test[]){{now->name, run_case}, {0}});
    failed |= run_tests((const test[]){{"a context that is freed", freed_context}, {0}});
    tl_tensor_free(w);
    tl_ctx_free(ctx);
    return failed;
}

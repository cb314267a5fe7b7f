/* operators.h - the operators: a row names the inputs, outputs, integers and real numbers of each.
** From it come the struct of its arguments, the checks of a launch, and its name in a profile. A
** gradient function reads what an operator saves through the same structs. */
#ifndef TL_OPERATORS_H
#define TL_OPERATORS_H

#include <assert.h>
#include "engine/plugin.h"

/* Names are unique within a row, whose parts are separated by commas:
**   T(kind, name)      a tensor: F32, I32, ANY of both types, or OPT: float32 or NULL
**   TS(kind, name, n)  n tensors   N(name), NS(name, n)  integers   R(name)  a real number
** The kernel of a norm writes stats, which are an input because the gradient reads them. */
/* clang-format off */
#define TL_OP_MAP(X, T, TS, N, NS, R) \
    X(copy, T(ANY, x), T(ANY, y), , ) \
    X(fill, , T(ANY, y), , R(value)) \
    X(unary, T(F32, x), T(F32, y), N(kind), ) \
    X(unary_grad, T(F32, x) T(F32, dy), T(F32, dx), N(kind), ) \
    X(binary, T(F32, a) T(F32, b), T(F32, y), N(kind), ) \
    X(pick, T(F32, a) T(F32, y) T(F32, dy), T(F32, da), , ) \
    X(to_float, T(I32, x), T(F32, y), , ) \
    X(reduce_to, T(F32, x), T(F32, y), N(add), ) \
    X(affine, T(F32, x), T(F32, y), , R(scale) R(shift)) \
    X(axpy, T(F32, x), T(F32, y), , R(scale)) \
    X(gate, T(F32, a) T(F32, b), T(F32, y), N(kind), ) \
    X(gate_grad, T(F32, a) T(F32, b) T(F32, dy), T(F32, da) T(F32, db), N(kind), ) \
    X(matmul, T(F32, a) T(F32, b), T(F32, y), N(trans_a) N(trans_b) N(add), ) \
    X(spread, T(F32, row), T(F32, y), , ) \
    X(reduce, T(F32, x), T(F32, y), N(kind) N(axis), ) \
    X(reduce_grad, T(OPT, x) T(OPT, y) T(F32, dy), T(F32, dx), N(kind) N(axis), ) \
    X(argmax, T(F32, x), T(I32, index), , ) \
    X(cumsum, T(F32, x), T(F32, y), N(axis) N(reverse), ) \
    X(transpose, T(F32, x), T(F32, y), NS(axes, TL_MAXDIMS), ) \
    X(slice, T(ANY, x), T(ANY, y), N(axis) N(first), ) \
    X(paste, T(ANY, x), T(ANY, y), N(axis) N(first) N(clear), ) \
    X(gather, T(F32, x) T(I32, index), T(F32, y), N(each) N(table) N(cols), ) \
    X(gather_grad, T(F32, dy) T(I32, index), T(F32, dx), N(each) N(table) N(cols) N(add), ) \
    X(windows, T(I32, ids) T(I32, starts), T(I32, rows), , ) \
    X(argsort, T(ANY, x), T(I32, order) T(I32, rank), , ) \
    X(topk, T(ANY, x), T(I32, places) T(I32, slots), , ) \
    X(softmax, T(F32, x), T(F32, y), N(causal) N(log), ) \
    X(softmax_grad, T(F32, y) T(F32, dy), T(F32, dx), N(causal) N(log), ) \
    X(attention, T(F32, q) T(F32, k) T(F32, v) T(OPT, bias) T(OPT, mask), \
      T(F32, y) T(OPT, stats), N(causal) N(window) N(key) N(offset), R(scale) R(p)) \
    X(attention_grad, T(F32, q) T(F32, k) T(F32, v) T(OPT, bias) T(OPT, mask) T(F32, y) \
      T(F32, stats) T(F32, dy), T(F32, dq) T(F32, dk) T(F32, dv) T(OPT, dbias), \
      N(causal) N(window) N(key) N(offset), R(scale) R(p)) \
    X(cross_entropy, T(F32, x) T(OPT, w) T(OPT, bias) T(I32, targets), \
      T(F32, loss) T(OPT, dx) T(OPT, dw) T(OPT, dbias), N(ignore), ) \
    X(norm, T(F32, x) T(OPT, weight) T(OPT, bias) T(F32, stats), T(F32, y), N(kind), R(eps)) \
    X(norm_grad, T(F32, x) T(OPT, weight) T(F32, stats) T(F32, dy), \
      T(OPT, dx) T(OPT, dweight) T(OPT, dbias), N(kind) N(add), ) \
    X(batch_norm, T(F32, x) T(OPT, weight) T(OPT, bias), \
      T(F32, y) T(F32, stats) T(F32, running_mean) T(F32, running_var), \
      N(training), R(momentum) R(eps)) \
    X(batch_norm_grad, T(F32, x) T(OPT, weight) T(OPT, bias) T(F32, stats) T(F32, dy), \
      T(OPT, dx) T(OPT, dweight) T(OPT, dbias), N(training), ) \
    X(conv, T(F32, x) T(F32, taps), T(F32, y), N(origin) N(adjoint), ) \
    X(conv_grad, T(F32, x) T(F32, dy), T(F32, dtaps), N(origin), ) \
    X(transform, T(F32, x), T(F32, y), N(kind) N(n) N(axis), R(scale)) \
    X(uniform, , T(F32, y), N(key) N(offset), R(low) R(high)) \
    X(normal, , T(F32, y), N(key) N(offset), R(mean) R(deviation)) \
    X(integers, , T(I32, y), N(key) N(offset) N(bound), ) \
    X(places, T(F32, lengths), T(I32, places), N(key) N(offset), ) \
    X(dropout, T(F32, x), T(F32, y), N(key) N(offset), R(p)) \
    X(adam, , , , ) \
    X(sgd, , , , ) \
    X(norm2, , , , ) \
    X(tno, T(OPT, coef) T(F32, x) TS(OPT, params, TL_TNO_PARAMS) T(OPT, cache), \
      T(F32, y) T(OPT, new_cache), , ) \
    X(tno_grad, T(OPT, coef) T(F32, x) TS(OPT, params, TL_TNO_PARAMS) T(OPT, cache) T(F32, dy), \
      T(OPT, dcoef) T(OPT, dx) TS(OPT, dparams, TL_TNO_PARAMS), , ) \
    X(decay, T(F32, coef) T(F32, lags) T(F32, gamma), T(F32, y), , ) \
    X(decay_grad, T(F32, coef) T(F32, lags) T(F32, gamma) T(F32, dy), T(F32, dgamma), , ) \
    X(recurrence, T(F32, x), T(F32, y), , ) \
    X(mlp, T(F32, x), T(F32, y) T(OPT, states), , ) \
    X(mlp_grad, T(F32, dy) T(F32, states), T(OPT, dx), , ) \
    X(selective_scan, T(F32, x) T(F32, delta) T(F32, a) T(F32, b) T(F32, c) T(OPT, skip) \
      T(OPT, states), T(F32, y), , ) \
    X(selective_scan_grad, T(F32, x) T(F32, delta) T(F32, a) T(F32, b) T(F32, c) T(OPT, skip) \
      T(F32, states) T(F32, dy), T(F32, dx) T(F32, ddelta) T(F32, da) T(F32, db) T(F32, dc) \
      T(OPT, dskip), , ) \
    X(linear_recurrence, T(F32, q) T(F32, k) T(F32, v) T(F32, g) T(OPT, states), T(F32, y), , ) \
    X(linear_recurrence_grad, T(F32, q) T(F32, k) T(F32, v) T(F32, g) T(F32, states) T(F32, dy), \
      T(F32, dq) T(F32, dk) T(F32, dv) T(F32, dg), , ) \
    X(cauchy, T(F32, v) T(F32, poles) T(F32, nodes), T(F32, y), N(pairs), ) \
    X(cauchy_grad, T(F32, v) T(F32, poles) T(F32, nodes) T(F32, dy), T(F32, dv) T(F32, dpoles), \
      N(pairs), )
/* clang-format on */

typedef enum tl_op {
#define X(name, in, out, n, r) TL_OP_##name,
    TL_OP_MAP(X, , , , , )
#undef X
    TL_OPS
} tl_op;

/* One more than any operator has of inputs, outputs, integers or real numbers, so that no list of
** unused places in the structs below is empty. */
#define TL_ARGS 9

#define ONE(...) + 1
#define LIST(name, n) + n
#define LIST_OF(kind, name, n) + n
enum { /* how many places each operator has */
#define X(op, in, out, n, r) \
    TL_IN_##op = 0 in, TL_OUT_##op = 0 out, TL_N_##op = 0 n, TL_R_##op = 0 r,
    TL_OP_MAP(X, ONE, LIST_OF, ONE, LIST, ONE)
#undef X
    TL_PLACES
};
#undef ONE
#undef LIST
#undef LIST_OF

/* The same places without names, for code that serves all operators. */
typedef struct tl_list {
    tl_tensor *in[TL_ARGS];
    tl_tensor *out[TL_ARGS];
    int64_t i[TL_ARGS];
    double f[TL_ARGS];
} tl_list;

/* struct tl_args_unary and so on: the places of each operator, laid out as a tl_list. */
#define T(kind, name) tl_tensor *name;
#define TS(kind, name, n) tl_tensor *name[n];
#define N(name) int64_t name;
#define NS(name, n) int64_t name[n];
#define R(name) double name;
#define X(op, in, out, n, r) \
    struct tl_args_##op { \
        in tl_tensor *no_in[TL_ARGS - TL_IN_##op]; \
        out tl_tensor *no_out[TL_ARGS - TL_OUT_##op]; \
        n int64_t no_n[TL_ARGS - TL_N_##op]; \
        r double no_r[TL_ARGS - TL_R_##op]; \
    }; \
    static_assert(sizeof(struct tl_args_##op) == sizeof(tl_list), #op ": places");
TL_OP_MAP(X, T, TS, N, NS, R)
#undef T
#undef TS
#undef N
#undef NS
#undef R
#undef X

#endif

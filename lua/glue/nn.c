/* nn.c - the operators that layers are built from, in Lua: softmax and losses, norms, fused
** MLPs, convolution, scans, transforms. */
#include <string.h>

#include "rows.h"

/* ---- Networks -------------------------------------------------------------------------------- */

/* Pushes a field of the table at the top. */
static int raw_field(lua_State *L, const char *name)
{
    lua_pushstring(L, name);
    return lua_rawget(L, -2);
}

/* Returns a tensor field of the table at the top, which keeps the tensor alive; NULL if it is
** nil. */
static tl_tensor *tensor_field(lua_State *L, int arg, int l, const char *name)
{
    int        type = raw_field(L, name);
    tl_tensor *t = glue_test_tensor(L, -1);
    if (type != LUA_TNIL && !t)
        glue_argerror(L, arg, "%s of layer %d is %s, not an open tensor", name, l,
                      luaL_typename(L, -1));
    lua_pop(L, 1);
    return t;
}

static tl_norm_kind norm_field(lua_State *L, int arg, int l)
{
    /* in the order of tl_norm_kind */
    static const char *const names[] = {"none", "layer", "rms", "simple", NULL};
    int         kind = 0;
    const char *name = raw_field(L, "norm") == LUA_TNIL ? "none" : lua_tostring(L, -1);
    while (names[kind] && !(name && strcmp(names[kind], name) == 0)) kind++;
    if (!names[kind]) glue_argerror(L, arg, "no norm '%s' for layer %d", name ? name : "?", l);
    lua_pop(L, 1);
    return (tl_norm_kind)kind;
}

static tl_mlp_layer mlp_layer(lua_State *L, int arg, int l)
{
    if (lua_rawgeti(L, arg, l) != LUA_TTABLE)
        glue_argerror(L, arg, "layer %d is %s, not a table", l, luaL_typename(L, -1));
    tl_mlp_layer p = {.weight = tensor_field(L, arg, l, "weight"),
                      .bias = tensor_field(L, arg, l, "bias"),
                      .norm = norm_field(L, arg, l),
                      .norm_weight = tensor_field(L, arg, l, "norm_weight"),
                      .norm_bias = tensor_field(L, arg, l, "norm_bias")};
    if (!p.weight) glue_argerror(L, arg, "layer %d has no weight", l);
    raw_field(L, "eps");
    p.eps = lua_tonumber(L, -1);
    lua_pop(L, 2);
    return p;
}

/* mlp(x, {{weight=, bias=, norm=, eps=, norm_weight=, norm_bias=}, ..}, act [, residual [, scale]])
*/
static int mlp(lua_State *L)
{
    tl_tensor *x = glue_tensor(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_Unsigned  count = lua_rawlen(L, 2);
    tl_unary_kind act = (tl_unary_kind)glue_unary_kind(L, 3);
    int           residual = glue_flag(L, 4, "residual");
    tl_tensor    *scale = glue_opt_tensor(L, 5);
    glue_last(L, 5);
    luaL_argcheck(L, count < 1000, 2, "too many layers");
    tl_mlp_layer *layers = lua_newuserdatauv(L, (size_t)count * sizeof *layers + 1, 0);
    for (int l = 0; l < (int)count; l++) layers[l] = mlp_layer(L, 2, l + 1);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_mlp(x, layers, (int)count, act, residual, scale, y));
}

/* Returns an optional tensor field of the table at arg, which keeps the tensor alive. */
static tl_tensor *option_tensor(lua_State *L, int arg, const char *name)
{
    lua_getfield(L, arg, name);
    tl_tensor *t = lua_isnil(L, -1) ? NULL : glue_test_tensor(L, -1);
    if (!lua_isnil(L, -1) && !t)
        glue_argerror(L, arg, "%s is not an open tensor (%s)", name, luaL_typename(L, -1));
    lua_pop(L, 1);
    return t;
}

/* attention(q, k, v, {scale=, bias=, mask=, causal=, window=, dropout=, stream=}) */
static int attention(lua_State *L)
{
    static const char *const names[] = {"scale", "bias", "mask", "causal", "window", "dropout",
                                        "stream", NULL};
    const int64_t none = 0;
    const double  all = 0;
    tl_tensor *q = glue_tensor(L, 1), *k = glue_tensor(L, 2), *v = glue_tensor(L, 3);
    luaL_checktype(L, 4, LUA_TTABLE);
    glue_last(L, 4);
    glue_known(L, 4, names);
    tl_attention_options o = {.bytes = sizeof o, .scale = glue_number_field(L, 4, "scale", NULL),
                              .bias = option_tensor(L, 4, "bias"),
                              .mask = option_tensor(L, 4, "mask"),
                              .window = glue_integer_field(L, 4, "window", &none),
                              .dropout = glue_number_field(L, 4, "dropout", &all)};
    lua_getfield(L, 4, "causal");
    o.causal = lua_toboolean(L, -1);
    if (!lua_isnil(L, -1) && !lua_isboolean(L, -1))
        glue_argerror(L, 4, "causal is %s, not true or false", luaL_typename(L, -1));
    lua_getfield(L, 4, "stream");
    o.stream = glue_test_stream(L, -1);
    if (!lua_isnil(L, -1) && !o.stream)
        glue_argerror(L, 4, "stream is %s, not a stream", luaL_typename(L, -1));
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_attention(q, k, v, &o, y));
}

/* ---- Functions that are rows ----------------------------------------------------------------- */

/* The default is an id that no target has, so that none is ignored. */
#define IGNORE(name) int name = glue_opt_int(L, ++arg, INT32_MIN, INT32_MIN, INT32_MAX);
/* An axis of a complex tensor: its last one, the real and imaginary parts, does not count. */
#define COMPLEX_AXIS(name, x) int name = glue_axis(L, ++arg, tl_tensor_ndim(x) - 1);

/* clang-format off */
#define ROWS(X) \
    X(softmax, TENSOR(x) FLAG(causal), tl_softmax(x, causal, y)) \
    X(log_softmax, TENSOR(x), tl_log_softmax(x, y)) \
    X(cross_entropy, TENSOR(logits) TENSOR(targets) IGNORE(ignore), \
      tl_cross_entropy(logits, targets, ignore, y)) \
    X(linear_cross_entropy, TENSOR(x) TENSOR(w) OPTIONAL(bias) TENSOR(targets) IGNORE(ignore), \
      tl_linear_cross_entropy(x, w, bias, targets, ignore, y)) \
    X(layer_norm, TENSOR(x) OPTIONAL(w) OPTIONAL(b) NUMBER(eps), tl_layer_norm(x, w, b, eps, y)) \
    X(rms_norm, TENSOR(x) OPTIONAL(w) NUMBER(eps), tl_rms_norm(x, w, eps, y)) \
    X(simple_rms_norm, TENSOR(x) NUMBER(eps), tl_simple_rms_norm(x, eps, y)) \
    X(scale_norm, TENSOR(x) TENSOR(w) NUMBER(eps), tl_scale_norm(x, w, eps, y)) \
    X(batch_norm, TENSOR(x) TENSOR(w) TENSOR(b) TENSOR(mean) TENSOR(var) FLAG(training) \
      NUMBER(momentum) NUMBER(eps), \
      tl_batch_norm(x, w, b, mean, var, training, momentum, eps, y)) \
    X(depthwise_conv, TENSOR(x) TENSOR(taps) INTEGER(origin), \
      tl_depthwise_conv(x, taps, origin, y)) \
    X(selective_scan, TENSOR(x) TENSOR(delta) TENSOR(a) TENSOR(b) TENSOR(c) OPTIONAL(skip), \
      tl_selective_scan(x, delta, a, b, c, skip, y)) \
    X(linear_recurrence, TENSOR(q) TENSOR(k) TENSOR(v) TENSOR(g), \
      tl_linear_recurrence(q, k, v, g, y)) \
    X(cauchy, TENSOR(v) TENSOR(poles) TENSOR(nodes) FLAG(pairs), \
      tl_cauchy(v, poles, nodes, pairs, y)) \
    X(decay, TENSOR(coef) TENSOR(lags) TENSOR(gamma), tl_decay(coef, lags, gamma, y)) \
    X(fft, TENSOR(x) COMPLEX_AXIS(axis, x), tl_fft(x, axis, 0, y)) \
    X(ifft, TENSOR(x) COMPLEX_AXIS(axis, x), tl_fft(x, axis, 1, y)) \
    X(rfft, TENSOR(x) AXIS(axis, x), tl_rfft(x, axis, y)) \
    X(irfft, TENSOR(x) COMPLEX_AXIS(axis, x) INTEGER(n), tl_irfft(x, axis, n, y))
/* clang-format on */

ROWS(GLUE_FUNCTION)

const luaL_Reg glue_nn_functions[] = {{"mlp", mlp}, {"attention", attention},
                                       ROWS(GLUE_ENTRY){NULL, NULL}};

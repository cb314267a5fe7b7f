/* nn.c - the operators that layers are built from, in Lua: softmax and losses, norms, fused
** MLPs, convolution, scans, transforms. */
#include <string.h>

#include "glue.h"

#define NO_IGNORE INT32_MIN /* an id that no target has, so that none is ignored by default */

static int ignore_id(lua_State *L, int arg)
{
    return glue_opt_int(L, arg, NO_IGNORE, INT32_MIN, INT32_MAX);
}

/* ---- Softmax and losses ---------------------------------------------------------------------- */

static int softmax(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1);
    int         causal = lua_toboolean(L, 2);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_softmax(x, causal, y));
}

static int log_softmax(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_log_softmax(x, y));
}

static int cross_entropy(lua_State *L)
{
    tl_tensor  *logits = glue_tensor(L, 1), *targets = glue_tensor(L, 2);
    int         ignore = ignore_id(L, 3);
    tl_tensor **loss = glue_push_tensor(L);
    return glue_result(L, tl_cross_entropy(logits, targets, ignore, loss));
}

static int linear_cross_entropy(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1), *w = glue_tensor(L, 2), *bias = glue_opt_tensor(L, 3);
    tl_tensor  *targets = glue_tensor(L, 4);
    int         ignore = ignore_id(L, 5);
    tl_tensor **loss = glue_push_tensor(L);
    return glue_result(L, tl_linear_cross_entropy(x, w, bias, targets, ignore, loss));
}

/* ---- Norms ----------------------------------------------------------------------------------- */

static int layer_norm(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1), *w = glue_opt_tensor(L, 2), *b = glue_opt_tensor(L, 3);
    double      eps = luaL_checknumber(L, 4);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_layer_norm(x, w, b, eps, y));
}

static int rms_norm(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1), *w = glue_opt_tensor(L, 2);
    double      eps = luaL_checknumber(L, 3);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_rms_norm(x, w, eps, y));
}

static int simple_rms_norm(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1);
    double      eps = luaL_checknumber(L, 2);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_simple_rms_norm(x, eps, y));
}

static int scale_norm(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1), *w = glue_tensor(L, 2);
    double      eps = luaL_checknumber(L, 3);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_scale_norm(x, w, eps, y));
}

static int batch_norm(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1), *w = glue_tensor(L, 2), *b = glue_tensor(L, 3);
    tl_tensor  *mean = glue_tensor(L, 4), *var = glue_tensor(L, 5);
    int         training = lua_toboolean(L, 6);
    double      momentum = luaL_checknumber(L, 7), eps = luaL_checknumber(L, 8);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_batch_norm(x, w, b, mean, var, training, momentum, eps, y));
}

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
    int           residual = lua_toboolean(L, 4);
    tl_tensor    *scale = glue_opt_tensor(L, 5);
    luaL_argcheck(L, count < 1000, 2, "too many layers");
    tl_mlp_layer *layers = lua_newuserdatauv(L, (size_t)count * sizeof *layers + 1, 0);
    for (int l = 0; l < (int)count; l++) layers[l] = mlp_layer(L, 2, l + 1);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_mlp(x, layers, (int)count, act, residual, scale, y));
}

/* ---- Convolution, scans and transforms ------------------------------------------------------- */

static int depthwise_conv(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1), *taps = glue_tensor(L, 2);
    lua_Integer origin = luaL_checkinteger(L, 3);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_depthwise_conv(x, taps, origin, y));
}

static int selective_scan(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1), *delta = glue_tensor(L, 2), *a = glue_tensor(L, 3);
    tl_tensor  *b = glue_tensor(L, 4), *c = glue_tensor(L, 5), *skip = glue_opt_tensor(L, 6);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_selective_scan(x, delta, a, b, c, skip, y));
}

static int linear_recurrence(lua_State *L)
{
    tl_tensor  *q = glue_tensor(L, 1), *k = glue_tensor(L, 2), *v = glue_tensor(L, 3);
    tl_tensor  *g = glue_tensor(L, 4);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_linear_recurrence(q, k, v, g, y));
}

/* Reads the axis at arg of a complex tensor, whose last axis holds the real and imaginary parts
** and does not count. */
static int complex_axis(lua_State *L, int arg, const tl_tensor *x)
{
    return glue_axis(L, arg, tl_tensor_ndim(x) - 1);
}

static int fft(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1);
    int         axis = complex_axis(L, 2, x);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_fft(x, axis, 0, y));
}

static int ifft(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1);
    int         axis = complex_axis(L, 2, x);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_fft(x, axis, 1, y));
}

static int rfft(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1);
    int         axis = glue_axis(L, 2, tl_tensor_ndim(x));
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_rfft(x, axis, y));
}

static int irfft(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1);
    int         axis = complex_axis(L, 2, x);
    lua_Integer n = luaL_checkinteger(L, 3);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_irfft(x, axis, n, y));
}

const luaL_Reg glue_nn_functions[] = {
    {"softmax", softmax},
    {"log_softmax", log_softmax},
    {"cross_entropy", cross_entropy},
    {"linear_cross_entropy", linear_cross_entropy},
    {"layer_norm", layer_norm},
    {"rms_norm", rms_norm},
    {"simple_rms_norm", simple_rms_norm},
    {"scale_norm", scale_norm},
    {"batch_norm", batch_norm},
    {"mlp", mlp},
    {"depthwise_conv", depthwise_conv},
    {"selective_scan", selective_scan},
    {"linear_recurrence", linear_recurrence},
    {"fft", fft},
    {"ifft", ifft},
    {"rfft", rfft},
    {"irfft", irfft},
    {NULL, NULL},
};

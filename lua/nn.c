/* nn.c - what layers are made of, in Lua: softmax and losses, norms, convolution, transforms. */
#include "glue.h"

#define NO_IGNORE INT32_MIN /* no target is passed over unless the script says so */

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

/* ---- Convolution and transforms -------------------------------------------------------------- */

static int depthwise_conv(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1), *taps = glue_tensor(L, 2);
    lua_Integer origin = luaL_checkinteger(L, 3);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_depthwise_conv(x, taps, origin, y));
}

/* The axis at arg of a complex tensor, whose last axis of size 2 does not count. */
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
    {"depthwise_conv", depthwise_conv},
    {"fft", fft},
    {"ifft", ifft},
    {"rfft", rfft},
    {"irfft", irfft},
    {NULL, NULL},
};

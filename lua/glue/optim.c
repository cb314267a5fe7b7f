/* optim.c - optimiser steps in Lua, over arrays of tensors with a checked table of options. */
#include <string.h>

#include "rows.h"

/* Like glue_tensors, but there must be count tensors, one for each parameter. */
static tl_tensor **one_per_param(lua_State *L, int arg, int count)
{
    int         given;
    tl_tensor **list = glue_tensors(L, arg, &given);
    if (given != count) glue_argerror(L, arg, "%d tensors for %d parameters", given, count);
    return list;
}

static tl_adam_kind adam_kind(lua_State *L, int arg)
{
    static const char *const names[] = {
        [TL_ADAM_L2] = "adam", [TL_ADAM_DECOUPLED] = "adamw", [TL_ADAM_FAIRSEQ] = "fairseq", NULL};
    int i = TL_ADAM_L2;
    lua_getfield(L, arg, "kind");
    if (!lua_isnil(L, -1)) {
        const char *kind = luaL_tolstring(L, -1, NULL);
        while (names[i] && strcmp(kind, names[i]) != 0) i++;
        if (!names[i]) glue_argerror(L, arg, "kind '%s' is not adam, adamw or fairseq", kind);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return (tl_adam_kind)i;
}

static int adam_step(lua_State *L)
{
    static const char *const names[] = {"kind", "lr",           "beta1", "beta2",
                                        "eps",  "weight_decay", "step",  NULL};
    glue_known(L, 4, names);
    double          step = glue_number_field(L, 4, "step", NULL);
    double          scale = luaL_optnumber(L, 5, 1);
    tl_adam_options opt = {
        .bytes = sizeof opt,
        .kind = adam_kind(L, 4),
        .lr = glue_number_field(L, 4, "lr", NULL),
        .beta1 = glue_number_field(L, 4, "beta1", &(double){0.9}),
        .beta2 = glue_number_field(L, 4, "beta2", &(double){0.999}),
        .eps = glue_number_field(L, 4, "eps", &(double){1e-8}),
        .weight_decay = glue_number_field(L, 4, "weight_decay", &(double){0}),
    };
    luaL_argcheck(L, step >= 1 && step <= 1e15, 4, "step counts from 1");
    opt.step = (int64_t)step;
    int         count;
    tl_tensor **params = glue_tensors(L, 1, &count);
    tl_tensor **m = one_per_param(L, 2, count), **v = one_per_param(L, 3, count);
    glue_check(L, tl_adam_step(params, m, v, count, &opt, scale));
    return 0;
}

static int sgd_step(lua_State *L)
{
    static const char *const names[] = {"lr", "momentum", "weight_decay", NULL};
    glue_known(L, 3, names);
    double lr = glue_number_field(L, 3, "lr", NULL);
    double momentum = glue_number_field(L, 3, "momentum", &(double){0});
    double decay = glue_number_field(L, 3, "weight_decay", &(double){0});
    double scale = luaL_optnumber(L, 4, 1);
    int    count, none = lua_isnoneornil(L, 2);
    luaL_argcheck(L, !none || momentum == 0, 2, "momentum needs buffers");
    tl_tensor **params = glue_tensors(L, 1, &count);
    tl_tensor **buffers = none ? NULL : one_per_param(L, 2, count);
    glue_check(L, tl_sgd_step(params, buffers, count, lr, momentum, decay, scale));
    return 0;
}

GLUE_CALL(grad_norm, int count; tl_tensor **params = glue_tensors(L, 1, &count);, double norm;
          glue_check(L, tl_grad_norm(params, count, &norm)); lua_pushnumber(L, norm))

const luaL_Reg glue_optim_functions[] = {
    {"adam_step", adam_step}, {"sgd_step", sgd_step}, {"grad_norm", grad_norm}, {NULL, NULL}};

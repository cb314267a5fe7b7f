/* svd.c - singular values and linear systems, in Lua. */
#include "glue.h"

static int svd(lua_State *L)
{
    tl_tensor  *a = glue_tensor(L, 1);
    tl_tensor **u = glue_push_tensor(L), **s = glue_push_tensor(L), **v = glue_push_tensor(L);
    glue_check(L, tl_svd(a, u, s, v));
    return 3;
}

static int singular_values(lua_State *L)
{
    tl_tensor  *a = glue_tensor(L, 1);
    tl_tensor **s = glue_push_tensor(L);
    return glue_result(L, tl_svd(a, NULL, s, NULL));
}

static int solve(lua_State *L)
{
    tl_tensor  *a = glue_tensor(L, 1), *b = glue_tensor(L, 2);
    tl_tensor **x = glue_push_tensor(L);
    return glue_result(L, tl_solve(a, b, x));
}

const luaL_Reg glue_svd_functions[] = {
    {"svd", svd},
    {"singular_values", singular_values},
    {"solve", solve},
    {NULL, NULL},
};

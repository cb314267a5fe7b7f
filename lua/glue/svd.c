/* svd.c - singular values and linear systems, in Lua. */
#include "rows.h"

static int svd(lua_State *L)
{
    tl_tensor  *a = glue_tensor(L, 1);
    tl_tensor **u = glue_push_tensor(L), **s = glue_push_tensor(L), **v = glue_push_tensor(L);
    glue_check(L, tl_svd(a, u, s, v));
    return 3;
}

#define ROWS(X) \
    X(singular_values, TENSOR(a), tl_svd(a, NULL, y, NULL)) \
    X(solve, TENSOR(a) TENSOR(b), tl_solve(a, b, y))

ROWS(GLUE_FUNCTION)

const luaL_Reg glue_svd_functions[] = {{"svd", svd}, ROWS(GLUE_ENTRY){NULL, NULL}};

/* svd.c - singular values and linear systems, in Lua. */
#include "rows.h"

GLUE_CALL(svd, TENSOR(a), tl_tensor **u = glue_push_tensor(L), **s = glue_push_tensor(L);
          tl_tensor **v = glue_push_tensor(L); glue_check(L, tl_svd(a, u, s, v)))

#define ROWS(X) \
    X(singular_values, TENSOR(a), tl_svd(a, NULL, y, NULL)) \
    X(solve, TENSOR(a) TENSOR(b), tl_solve(a, b, y))

ROWS(GLUE_FUNCTION)

const luaL_Reg glue_svd_functions[] = {{"svd", svd}, ROWS(GLUE_ENTRY){NULL, NULL}};

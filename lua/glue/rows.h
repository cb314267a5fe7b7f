/* rows.h - functions of Lua written as rows of a table, which name a function's arguments in their
** order and the call that writes its only result, the tensor *y. A file lists its rows as
** ROWS(X); ROWS(GLUE_FUNCTION) then defines the functions, and ROWS(GLUE_ENTRY) registers them. */
#ifndef TL_ROWS_H
#define TL_ROWS_H

#include "glue.h"

#define TENSOR(name)     tl_tensor *name = glue_tensor(L, ++arg);
#define OPTIONAL(name)   tl_tensor *name = glue_opt_tensor(L, ++arg); /* NULL for nil or none */
#define NUMBER(name)     double name = luaL_checknumber(L, ++arg);
#define INTEGER(name)    lua_Integer name = luaL_checkinteger(L, ++arg);
#define FLAG(name)       int name = glue_flag(L, ++arg, #name);
#define UNARY_KIND(name) tl_unary_kind name = (tl_unary_kind)glue_unary_kind(L, ++arg);
#define AXIS(name, x)    int name = glue_axis(L, ++arg, tl_tensor_ndim(x));

#define GLUE_FUNCTION(name, arguments, call)                                                       \
    static int name(lua_State *L)                                                                  \
    {                                                                                              \
        int arg = 0;                                                                               \
        arguments glue_last(L, arg);                                                               \
        tl_tensor **y = glue_push_tensor(L);                                                       \
        return glue_result(L, call);                                                               \
    }
#define GLUE_ENTRY(name, arguments, call) {#name, name},

#endif

/* rows.h - functions of Lua written as rows, which name a function's arguments in their order and
** the call that it makes. A file may list rows as ROWS(X); ROWS(GLUE_FUNCTION) then defines the
** functions, and ROWS(GLUE_ENTRY) registers them.
**
**     GLUE_CALL(dim, TENSOR(t) AXIS(axis, t), lua_pushinteger(L, tl_tensor_dim(t, axis)))
** is t:dim(axis). An argument is a declaration with its semicolon; `arg` is the number of the last
** one that was read. What has no name here is declared in full, or read by its number. */
#ifndef TL_ROWS_H
#define TL_ROWS_H

#include "glue.h"

#define TENSOR(name)     tl_tensor *name = glue_tensor(L, ++arg);
#define OPTIONAL(name)   tl_tensor *name = glue_opt_tensor(L, ++arg); /* NULL for nil or none */
#define NUMBER(name)     double name = luaL_checknumber(L, ++arg);
#define OPT_NUMBER(name, preset) double name = luaL_optnumber(L, ++arg, preset);
#define INTEGER(name)    lua_Integer name = luaL_checkinteger(L, ++arg);
#define OPT_INTEGER(name, preset) lua_Integer name = luaL_optinteger(L, ++arg, preset);
#define INT(name, min, max) int name = glue_int(L, ++arg, min, max);
#define STRING(name)     const char *name = luaL_checkstring(L, ++arg);
#define OPT_STRING(name) const char *name = luaL_optstring(L, ++arg, NULL);
#define TEXT(name, bytes) size_t bytes; const char *name = luaL_checklstring(L, ++arg, &bytes);
#define OPTION(name, type, words) type name = (type)luaL_checkoption(L, ++arg, NULL, words);
#define FLAG(name)       int name = glue_flag(L, ++arg, #name);
#define UNARY_KIND(name) tl_unary_kind name = (tl_unary_kind)glue_unary_kind(L, ++arg);
#define AXIS(name, x)    int name = glue_axis(L, ++arg, tl_tensor_ndim(x));

/* The object in the box at the next argument. */
#define BOXED(type, name, class, member) type *name = glue_open_box(L, ++arg, &class)->as.member;

/* call writes the only result, the tensor *y. */
#define GLUE_FUNCTION(name, arguments, call)                                                       \
    static int name(lua_State *L)                                                                  \
    {                                                                                              \
        int arg = 0;                                                                               \
        arguments glue_last(L, arg);                                                               \
        tl_tensor **y = glue_push_tensor(L);                                                       \
        return glue_result(L, call);                                                               \
    }
/* call makes the only result, an object of that class, in the box *b. */
#define GLUE_NEW(name, arguments, class, call)                                                     \
    static int name(lua_State *L)                                                                  \
    {                                                                                              \
        int arg = 0;                                                                               \
        (void)arg;                                                                                 \
        arguments glue_box *b = glue_push(L, &class);                                              \
        glue_check(L, call);                                                                       \
        return 1;                                                                                  \
    }
/* The statements that follow the arguments push the results. */
#define GLUE_CALL(name, arguments, ...)                                                            \
    static int name(lua_State *L)                                                                  \
    {                                                                                              \
        int arg = 0;                                                                               \
        (void)arg;                                                                                 \
        arguments int top = lua_gettop(L);                                                         \
        __VA_ARGS__;                                                                               \
        return lua_gettop(L) - top;                                                                \
    }
#define GLUE_ENTRY(name, arguments, call) {#name, name},

#endif

/* tno.c - Toeplitz neural operators and their backends in Lua. */
#include <stdio.h>
#include <string.h>

#include "rows.h"

static void release_tno(glue_box *b) { tl_tno_free(b->as.tno); }

static tl_tno *tno(lua_State *L) { return glue_open_box(L, 1, &glue_tno_class)->as.tno; }

#define TNO(name) BOXED(tl_tno, name, glue_tno_class, tno)

/* ---- Making one ------------------------------------------------------------------------------ */

/* Replaces the value at the top by "key=value". Lua itself would print a number with 14 digits
** only. */
static void push_option(lua_State *L, int arg, const char *key)
{
    char text[64];
    if (lua_type(L, -1) == LUA_TNUMBER && !lua_isinteger(L, -1)) {
        (void)snprintf(text, sizeof text, "%.17g", lua_tonumber(L, -1));
        lua_pushfstring(L, "%s=%s", key, text);
    } else if (lua_isboolean(L, -1) || lua_isstring(L, -1)) {
        const char *value = luaL_tolstring(L, -1, NULL);
        lua_pushfstring(L, "%s=%s", key, value);
        lua_remove(L, -2);
    } else {
        glue_argerror(L, arg, "option '%s' is a %s", key, luaL_typename(L, -1));
    }
    lua_remove(L, -2);
}

/* Returns the option table at arg as "key=value" strings sorted by key, ended by NULL, in a
** block that is pushed and keeps the strings alive. */
static const char *const *options(lua_State *L, int arg)
{
    if (lua_isnoneornil(L, arg)) return NULL;
    glue_sorted_keys(L, arg);
    int count = (int)lua_rawlen(L, -1);
    luaL_argcheck(L, count < 100, arg, "too many options");
    const char **list = lua_newuserdatauv(L, (size_t)(count + 1) * sizeof *list, count);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, -2, i + 1);
        const char *key = lua_tostring(L, -1);
        lua_pushvalue(L, -1);
        lua_rawget(L, arg);
        push_option(L, arg, key);
        list[i] = lua_tostring(L, -1);
        (void)lua_setiuservalue(L, -3, i + 1);
        lua_pop(L, 1);
    }
    list[count] = NULL;
    return list;
}

GLUE_NEW(core_tno, STRING(backend) INTEGER(n) INTEGER(d) FLAG(causal)
         const char *const *given = options(L, ++arg);, glue_tno_class,
         tl_tno_new(glue_ctx(L), backend, n, d, causal, given, &b->as.tno))

/* ---- Questions ------------------------------------------------------------------------------- */

GLUE_FUNCTION(points, TNO(o), tl_tno_points(o, y))
GLUE_CALL(width, TNO(o), lua_pushinteger(L, tl_tno_width(o)))
GLUE_CALL(domain, TNO(o), lua_pushstring(L, tl_tno_domain(o)))
GLUE_CALL(chosen, TNO(o), lua_pushstring(L, tl_tno_backend_name(o)))
GLUE_CALL(warning, TNO(o), lua_pushstring(L, tl_tno_warning(o))) /* NULL: nil */

static int params(lua_State *L)
{
    tl_tno *o = tno(L);
    lua_newtable(L);
    for (int i = 0; i < tl_tno_param_count(o); i++) {
        const char *name, *init;
        int         ndim;
        int64_t     dims[TL_MAXDIMS];
        glue_check(L, tl_tno_param(o, i, &name, &ndim, dims, &init));
        lua_createtable(L, 0, 3);
        lua_pushstring(L, name);
        lua_setfield(L, -2, "name");
        lua_pushstring(L, init);
        lua_setfield(L, -2, "init");
        lua_createtable(L, ndim, 0);
        for (int k = 0; k < ndim; k++) {
            lua_pushinteger(L, dims[k]);
            lua_rawseti(L, -2, k + 1);
        }
        lua_setfield(L, -2, "shape");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* ---- Application ----------------------------------------------------------------------------- */

/* Returns the backend's own parameters at arg, in a block that is pushed. */
static tl_tensor **own_params(lua_State *L, int arg, const tl_tno *o)
{
    int count = 0, needed = tl_tno_param_count(o);
    if (lua_isnoneornil(L, arg) && needed == 0) return NULL;
    tl_tensor **list = glue_tensors(L, arg, &count);
    if (count != needed) glue_argerror(L, arg, "%d parameters, the backend has %d", count, needed);
    return list;
}

/* o:apply(coef, params, x [, true or cache]) -> y [, cache]. cache holds what the backend
** derives from coef and params, such as spectra; true makes a new one. With a cache, coef may be
** nil. */
static int apply(lua_State *L)
{
    lua_settop(L, 5); /* values pushed below must not count as arguments */
    tl_tno    *o = tno(L);
    int        again = lua_toboolean(L, 5), first = lua_isboolean(L, 5);
    tl_tensor *coef = again && !first ? glue_opt_tensor(L, 2) : glue_tensor(L, 2);
    tl_tensor **own = own_params(L, 3, o), *x = glue_tensor(L, 4);
    tl_tensor *given = again && !first ? glue_tensor(L, 5) : NULL, **cache = &given;
    if (first) cache = glue_push_tensor(L);
    int         at = lua_gettop(L);
    tl_tensor **y = glue_push_tensor(L);
    (void)glue_result(L, tl_tno_apply_cached(o, coef, own, x, again ? cache : NULL, y));
    if (!again) return 1;
    if (first && *cache) lua_pushvalue(L, at);
    else if (given) lua_pushvalue(L, 5);
    else lua_pushnil(L);
    return 2;
}

static int dense(lua_State *L)
{
    tl_tno     *o = tno(L);
    tl_tensor  *coef = glue_tensor(L, 2), **own = own_params(L, 3, o);
    tl_tensor **t = glue_push_tensor(L);
    return glue_result(L, tl_tno_dense(o, coef, own, t));
}

/* ---- Backends -------------------------------------------------------------------------------- */

/* Sets field name of the table at the top to text, unless text is NULL. */
static void set_text(lua_State *L, const char *name, const char *text)
{
    if (!text) return;
    lua_pushstring(L, text);
    lua_setfield(L, -2, name);
}

static void push_backend_options(lua_State *L, int i)
{
    const char *name, *type, *preset, *range, *help;
    lua_newtable(L);
    const tl_ctx *ctx = glue_ctx(L);
    for (int j = 0; tl_backend_option(ctx, i, j, &name, &type, &preset, &range, &help); j++) {
        lua_newtable(L);
        set_text(L, "name", name);
        set_text(L, "type", type);
        set_text(L, "default", preset);
        set_text(L, "range", range);
        set_text(L, "help", help);
        lua_rawseti(L, -2, j + 1);
    }
}

static int backends(lua_State *L)
{
    const tl_ctx *ctx = glue_ctx(L);
    lua_newtable(L);
    for (int i = 0; i < tl_backend_count(ctx); i++) {
        lua_newtable(L);
        set_text(L, "name", tl_backend_name(ctx, i));
        set_text(L, "summary", tl_backend_summary(ctx, i));
        set_text(L, "path", tl_backend_path(ctx, i));
        push_backend_options(L, i);
        lua_setfield(L, -2, "options");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int backend_problems(lua_State *L)
{
    const tl_ctx *ctx = glue_ctx(L);
    lua_newtable(L);
    for (int i = 0; i < tl_backend_problem_count(ctx); i++) {
        lua_pushstring(L, tl_backend_problem(ctx, i));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

GLUE_CALL(load_backend, STRING(path), glue_check(L, tl_backend_load(glue_ctx(L), path)))

/* ---- Tables ---------------------------------------------------------------------------------- */

const luaL_Reg glue_tno_functions[] = {
    {"tno", core_tno},
    {"backends", backends},
    {"backend_problems", backend_problems},
    {"load_backend", load_backend},
    {NULL, NULL},
};

static const luaL_Reg methods[] = {
    {"points", points},   {"width", width}, {"domain", domain}, {"params", params},
    {"chosen", chosen},
    {"warning", warning}, {"apply", apply}, {"dense", dense},   {NULL, NULL},
};

const glue_class glue_tno_class = {"toeplab.tno", release_tno, methods, NULL};

/* glue.c - shared parts of the glue: boxes that own engine objects, errors, and reading of
** arguments. */
#include <limits.h>
#include <stdarg.h>
#include <string.h>

#include "glue.h"

/* ---- Context and errors ---------------------------------------------------------------------- */

tl_ctx *glue_ctx(lua_State *L) { return lua_touserdata(L, lua_upvalueindex(1)); }

#define ERROR "toeplab.error"

/* Replaces the string at the top by an error object with that message. */
static void push_error(lua_State *L, const char *status)
{
    lua_createtable(L, 0, 2);
    lua_insert(L, -2);
    lua_setfield(L, -2, "message");
    lua_pushstring(L, status);
    lua_setfield(L, -2, "status");
    luaL_setmetatable(L, ERROR);
}

void glue_check(lua_State *L, tl_status st)
{
    if (st == TL_OK) return;
    glue_raise_pending(L);
    const char *message = tl_errmsg(glue_ctx(L));
    luaL_where(L, 1);
    lua_pushstring(L, *message ? message : tl_status_text(st));
    lua_concat(L, 2);
    push_error(L, tl_status_name(st));
    lua_error(L);
}

const char *glue_error_text(lua_State *L, int arg)
{
    if (!lua_getmetatable(L, arg)) return NULL;
    luaL_getmetatable(L, ERROR);
    int ours = lua_rawequal(L, -1, -2);
    lua_pop(L, 2);
    if (!ours) return NULL;
    lua_getfield(L, arg, "message");
    return lua_tostring(L, -1);
}

/* error(status, message) -> an error object like those that the engine raises, for Lua's error() */
static int new_error(lua_State *L)
{
    const char *status = luaL_checkstring(L, 1);
    (void)luaL_checkstring(L, 2);
    lua_settop(L, 2);
    push_error(L, status);
    return 1;
}

static int error_text(lua_State *L)
{
    lua_getfield(L, 1, "message");
    return 1;
}

static int join_error(lua_State *L)
{
    (void)luaL_tolstring(L, 1, NULL);
    (void)luaL_tolstring(L, 2, NULL);
    lua_concat(L, 2);
    return 1;
}

void glue_error_open(lua_State *L)
{
    static const luaL_Reg meta[] = {
        {"__tostring", error_text}, {"__concat", join_error}, {NULL, NULL}};
    glue_metatable(L, ERROR, meta, NULL);
}

const luaL_Reg glue_error_functions[] = {{"error", new_error}, {NULL, NULL}};

int glue_argerror(lua_State *L, int arg, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *message = lua_pushvfstring(L, format, args);
    va_end(args);
    return luaL_argerror(L, arg, message);
}

void glue_set(lua_State *L, const luaL_Reg *list)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    luaL_setfuncs(L, list, 1);
}

void glue_metatable(lua_State *L, const char *name, const luaL_Reg *meta, const luaL_Reg *methods)
{
    luaL_newmetatable(L, name);
    if (meta) glue_set(L, meta);
    if (methods) {
        lua_newtable(L);
        glue_set(L, methods);
        lua_setfield(L, -2, "__index");
    }
    lua_pop(L, 1);
}

void glue_set_kind(lua_State *L, const char *name, lua_CFunction f, int kind)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushinteger(L, kind);
    lua_pushcclosure(L, f, 2);
    lua_setfield(L, -2, name);
}

/* ---- Boxes ----------------------------------------------------------------------------------- */

/* The name of the class in messages: "tensor". */
static const char *class_word(const glue_class *class)
{
    return class->name + sizeof "toeplab." - 1;
}

/* Implements __gc, __close and close; upvalue 2 is the class. */
static int close_box(lua_State *L)
{
    const glue_class *class = lua_touserdata(L, lua_upvalueindex(2));
    glue_box         *b = luaL_checkudata(L, 1, class->name);
    if (b->busy) return luaL_error(L, "close: the %s is in use", class_word(class));
    if (b->as.any) {
        glue_box old = *b;
        b->as.any = NULL;
        class->release(&old);
    }
    return 0;
}

static void set_close(lua_State *L, const char *name, const glue_class *class)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushlightuserdata(L, (void *)class);
    lua_pushcclosure(L, close_box, 2);
    lua_setfield(L, -2, name);
}

void glue_class_open(lua_State *L, const glue_class *class)
{
    if (luaL_newmetatable(L, class->name)) {
        set_close(L, "__gc", class);
        set_close(L, "__close", class);
        if (class->meta) glue_set(L, class->meta);
        lua_newtable(L);
        set_close(L, "close", class);
        glue_set(L, class->methods);
        lua_setfield(L, -2, "__index");
    }
    lua_pop(L, 1);
}

glue_box *glue_push(lua_State *L, const glue_class *class)
{
    glue_box *b = lua_newuserdatauv(L, sizeof *b, 0);
    b->as.any = NULL;
    b->busy = 0;
    luaL_setmetatable(L, class->name);
    return b;
}

glue_box *glue_open_box(lua_State *L, int arg, const glue_class *class)
{
    glue_box *b = luaL_checkudata(L, arg, class->name);
    if (!b->as.any) glue_argerror(L, arg, "%s is closed", class_word(class));
    return b;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

tl_tensor *glue_tensor(lua_State *L, int arg)
{
    return glue_open_box(L, arg, &glue_tensor_class)->as.tensor;
}

tl_tensor *glue_opt_tensor(lua_State *L, int arg)
{
    return lua_isnoneornil(L, arg) ? NULL : glue_tensor(L, arg);
}

int glue_is_tensor(lua_State *L, int arg)
{
    return luaL_testudata(L, arg, glue_tensor_class.name) != NULL;
}

tl_tensor *glue_test_tensor(lua_State *L, int index)
{
    const glue_box *b = luaL_testudata(L, index, glue_tensor_class.name);
    return b ? b->as.tensor : NULL;
}

const void *glue_elements(lua_State *L, tl_tensor *t)
{
    char        first[4];
    const void *data = tl_tensor_type(t) == TL_F32 ? (const void *)tl_tensor_cf32(t)
                                                   : tl_tensor_ci32(t);
    if (data) return data;
    /* What fails for one element says why; if only the whole does not fit, its message stands. */
    tl_status st = tl_tensor_read(t, 0, tl_tensor_len(t) > 0, first);
    glue_check(L, st == TL_OK ? TL_ENOMEM : st);
    return NULL;
}

#define MIN_GARBAGE 16384 /* tensors that may be garbage, however small the heap is: some MiB */
#define PER_KIB     4     /* the same for each KiB of the heap that a collection traverses */

/* Bounds how many tensors are garbage, which Lua's own pace does not: it lets the heap double, but
** what has a finalizer outlives the cycle that finds it, so that each cycle has more left from the
** one before. A full collection runs once there are twice the tensors that the last one left, and
** as many more as make it worth its time. */
static void keep_pace(lua_State *L)
{
    static const char most = 0; /* its address is a registry key: the count that triggers */
    int64_t           limit = MIN_GARBAGE;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &most) == LUA_TNUMBER) limit = lua_tointeger(L, -1);
    lua_pop(L, 1);
    if (tl_tensor_count(glue_ctx(L)) < limit || !lua_gc(L, LUA_GCISRUNNING)) return;
    lua_gc(L, LUA_GCCOLLECT);
    int64_t more = (int64_t)PER_KIB * lua_gc(L, LUA_GCCOUNT);
    limit = 2 * tl_tensor_count(glue_ctx(L)) + (more > MIN_GARBAGE ? more : MIN_GARBAGE);
    lua_pushinteger(L, limit);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &most);
}

tl_tensor **glue_push_tensor(lua_State *L)
{
    keep_pace(L);
    return &glue_push(L, &glue_tensor_class)->as.tensor;
}

/* The collector sees a box of 16 bytes, not the megabytes that the tensor holds, and would let
** gigabytes of garbage accumulate. Reporting every byte would make it traverse the whole heap
** for each large tensor. So we report at most a share of the heap: a cycle then completes each
** time new tensors amount to 1/32 of the live ones (at least 10 MiB), which also bounds the
** garbage. */
static void report_memory(lua_State *L, const tl_tensor *t)
{
    const double floor = 320 << 20;
    double       kib = 4.0 * (double)tl_tensor_len(t) / 1024;
    if (kib < 1) return; /* asking for live memory may query the GPU's driver */
    double       live = (double)tl_memory_info(glue_ctx(L)).live;
    double       share = 32 * 1024 * kib / (live > floor ? live : floor) * lua_gc(L, LUA_GCCOUNT);
    int          reported = (int)(kib < share ? kib : share);
    if (reported > 0) lua_gc(L, LUA_GCSTEP, reported); /* 0 would force a whole step */
}

int glue_result(lua_State *L, tl_status st)
{
    glue_check(L, st);
    report_memory(L, ((const glue_box *)lua_touserdata(L, -1))->as.tensor);
    return 1;
}

tl_tensor **glue_tensors(lua_State *L, int arg, int *out_count)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    lua_Unsigned count = lua_rawlen(L, arg);
    luaL_argcheck(L, count < INT_MAX, arg, "too many tensors");
    tl_tensor **list = lua_newuserdatauv(L, (size_t)count * sizeof *list + 1, 0);
    for (int i = 0; i < (int)count; i++) {
        lua_rawgeti(L, arg, i + 1);
        const glue_box *b = luaL_testudata(L, -1, glue_tensor_class.name);
        if (!b || !b->as.any)
            glue_argerror(L, arg, "element %d is %s, not an open tensor", i + 1,
                          b ? "a closed one" : luaL_typename(L, -1));
        list[i] = b->as.tensor;
        lua_pop(L, 1);
    }
    *out_count = (int)count;
    return list;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

int glue_int(lua_State *L, int arg, int min, int max)
{
    lua_Integer i = luaL_checkinteger(L, arg);
    if (i < min || i > max) glue_argerror(L, arg, "%I is not in %d..%d", i, min, max);
    return (int)i;
}

int glue_opt_int(lua_State *L, int arg, int preset, int min, int max)
{
    return lua_isnoneornil(L, arg) ? preset : glue_int(L, arg, min, max);
}

int glue_flag(lua_State *L, int arg, const char *name)
{
    if (!lua_isnoneornil(L, arg) && !lua_isboolean(L, arg))
        glue_argerror(L, arg, "%s must be true or false, got %s", name,
                      luaL_tolstring(L, arg, NULL));
    return lua_toboolean(L, arg);
}

void glue_last(lua_State *L, int arg)
{
    if (lua_gettop(L) > arg) glue_argerror(L, arg + 1, "one argument too many");
}

int glue_axis(lua_State *L, int arg, int ndim)
{
    lua_Integer axis = luaL_checkinteger(L, arg);
    if (axis == 0 || axis < -ndim || axis > ndim)
        glue_argerror(L, arg, "no axis %I: the axes are 1 to %d, or -1 for the last", axis, ndim);
    return (int)(axis > 0 ? axis - 1 : axis + ndim);
}

/* Returns dimension i (from 1) of those given at arg. */
static lua_Integer dimension(lua_State *L, int arg, int table, int i)
{
    int         whole;
    lua_Integer dim;
    if (!table) return luaL_checkinteger(L, arg + i - 1);
    lua_rawgeti(L, arg, i);
    dim = lua_tointegerx(L, -1, &whole);
    if (!whole)
        glue_argerror(L, arg, "dimension %d is not an integer (%s)", i, luaL_typename(L, -1));
    lua_pop(L, 1);
    return dim;
}

int glue_dims(lua_State *L, int arg, int64_t dims[TL_MAXDIMS])
{
    int         table = lua_istable(L, arg);
    lua_Integer count = table ? (lua_Integer)lua_rawlen(L, arg) : lua_gettop(L) - arg + 1;
    if (count > TL_MAXDIMS)
        glue_argerror(L, arg, "%I dimensions, at most %d", count, TL_MAXDIMS);
    for (int i = 0; i < count; i++) dims[i] = dimension(L, arg, table, i + 1);
    return count > 0 ? (int)count : 0;
}

int glue_unary_kind(lua_State *L, int arg)
{
    const char *name = luaL_checkstring(L, arg);
    for (int kind = 0; kind < TL_UNARY_KINDS; kind++)
        if (strcmp(name, tl_unary_name((tl_unary_kind)kind)) == 0) return kind;
    return glue_argerror(L, arg, "no function '%s'; unary_names() lists them", name);
}

/* ---- Option tables --------------------------------------------------------------------------- */

void glue_known(lua_State *L, int arg, const char *const *names)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1)) {
        const char *key = luaL_tolstring(L, -2, NULL);
        int         known = 0;
        for (int i = 0; names[i] && !known; i++) known = strcmp(key, names[i]) == 0;
        if (!known) glue_argerror(L, arg, "unknown option '%s'", key);
        lua_pop(L, 1);
    }
}

double glue_number_field(lua_State *L, int arg, const char *name, const double *preset)
{
    int    number;
    double value;
    lua_pushstring(L, name);
    lua_rawget(L, arg);
    value = lua_tonumberx(L, -1, &number);
    if (lua_isnil(L, -1) && preset) {
        value = *preset;
    } else if (lua_isnil(L, -1)) {
        glue_argerror(L, arg, "option '%s' is required", name);
    } else if (!number) {
        glue_argerror(L, arg, "option '%s' is not a number (%s)", name, luaL_typename(L, -1));
    }
    lua_pop(L, 1);
    return value;
}

int64_t glue_integer_field(lua_State *L, int arg, const char *name, const int64_t *preset)
{
    int whole;
    lua_pushstring(L, name);
    int missing = lua_rawget(L, arg) == LUA_TNIL && preset;
    lua_Integer value = lua_tointegerx(L, -1, &whole);
    if (!whole && !missing)
        glue_argerror(L, arg, "option '%s' is not an integer (%s)", name, luaL_typename(L, -1));
    lua_pop(L, 1);
    return missing ? *preset : value;
}

void glue_sort(lua_State *L)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    lua_getfield(L, -1, LUA_TABLIBNAME);
    lua_getfield(L, -1, "sort");
    lua_pushvalue(L, -4);
    lua_call(L, 1, 0);
    lua_pop(L, 2);
}

void glue_sorted_keys(lua_State *L, int arg)
{
    int count = 0;
    luaL_checktype(L, arg, LUA_TTABLE);
    lua_newtable(L);
    lua_pushnil(L);
    while (lua_next(L, arg)) {
        lua_pop(L, 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            glue_argerror(L, arg, "key '%s' is not a string", luaL_tolstring(L, -1, NULL));
        lua_pushvalue(L, -1);
        lua_rawseti(L, -3, ++count);
    }
    glue_sort(L);
}

/* ---- Settings of the context ----------------------------------------------------------------- */

#define SCOPE "toeplab.scope"

typedef struct scope {
    glue_setting set;
    int          was;
} scope;

static int scope_close(lua_State *L)
{
    const scope *s = luaL_checkudata(L, 1, SCOPE);
    (void)s->set(glue_ctx(L), s->was);
    return 0;
}

/* The scope resets the setting when this function returns or raises; without a pcall, the
** traceback of an error stays whole. */
int glue_scope(lua_State *L, int arg, glue_setting set, int value)
{
    if (!luaL_getmetafield(L, arg, "__call")) {
        luaL_checktype(L, arg, LUA_TFUNCTION);
    } else {
        lua_pop(L, 1);
    }
    scope *s = lua_newuserdatauv(L, sizeof *s, 0);
    *s = (scope){set, set(glue_ctx(L), value)};
    (void)set(glue_ctx(L), s->was);
    luaL_setmetatable(L, SCOPE);
    lua_insert(L, arg);
    lua_toclose(L, arg);
    (void)set(glue_ctx(L), value);
    lua_call(L, lua_gettop(L) - arg - 1, LUA_MULTRET);
    return lua_gettop(L) - arg;
}

void glue_scope_open(lua_State *L)
{
    static const luaL_Reg meta[] = {{"__close", scope_close}, {NULL, NULL}};
    glue_metatable(L, SCOPE, meta, NULL);
}

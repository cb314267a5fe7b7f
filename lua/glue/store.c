/* store.c - the store of runs in Lua: SQL statements with parameters, whose rows come as tables. */
#include <limits.h>
#include <string.h>

#include "rows.h"

static void release_store(glue_box *b) { tl_store_close(b->as.store); }

/* ---- Opening --------------------------------------------------------------------------------- */

/* Returns nil, the message and the name of the status. */
static int refused(lua_State *L, tl_status st)
{
    lua_pushnil(L);
    lua_pushstring(L, tl_errmsg(glue_ctx(L)));
    lua_pushstring(L, tl_status_name(st));
    return 3;
}

static int interrupted(void *user) { return (void)user, glue_interrupted(); }

static int core_store(lua_State *L)
{
    static const char *const   modes[] = {"r", "w", "ask", NULL};
    static const tl_store_mode known[] = {TL_STORE_READ, TL_STORE_WRITE, TL_STORE_ASK};
    const char *folder = luaL_checkstring(L, 1);
    int         mode = luaL_checkoption(L, 2, "r", modes);
    glue_box   *b = glue_push(L, &glue_store_class);
    tl_status   st = tl_store_open(glue_ctx(L), folder, known[mode], &b->as.store);
    if (st != TL_OK) return refused(L, st);
    tl_store_watch(b->as.store, interrupted, NULL);
    return 1;
}

static int store_check_folder(lua_State *L)
{
    tl_status st = tl_store_check_folder(glue_ctx(L), luaL_checkstring(L, 1));
    if (st != TL_OK) return refused(L, st);
    lua_pushboolean(L, 1);
    return 1;
}

static int store_place(lua_State *L)
{
    char      place[PATH_MAX];
    tl_status st = tl_store_place(glue_ctx(L), luaL_checkstring(L, 1), place, sizeof place);
    if (st != TL_OK) return refused(L, st);
    lua_pushstring(L, place);
    return 1;
}

/* ---- Parameters ------------------------------------------------------------------------------ */

/* Reads the value at the top as an SQL value; whatever holds a text keeps it alive. */
static tl_value value(lua_State *L, int arg, int i)
{
    tl_value v = {.kind = 'n'};
    switch (lua_type(L, -1)) {
    case LUA_TNIL: break;
    case LUA_TBOOLEAN:
        v.kind = 'i';
        v.i = lua_toboolean(L, -1);
        break;
    case LUA_TNUMBER:
        v.kind = lua_isinteger(L, -1) ? 'i' : 'f';
        if (v.kind == 'i') v.i = lua_tointeger(L, -1);
        if (v.kind == 'f') v.f = lua_tonumber(L, -1);
        break;
    case LUA_TSTRING:
        v.kind = 's';
        v.s = lua_tolstring(L, -1, &v.bytes);
        break;
    default: glue_argerror(L, arg, "parameter %d is a %s", i, luaL_typename(L, -1));
    }
    return v;
}

/* Reads the parameters in the table at arg, n of them or else its length, into a block that is
** pushed. The block also keeps the strings alive, because a row function may change the table. */
static tl_value *parameters(lua_State *L, int arg, int *out_count)
{
    *out_count = 0;
    if (lua_isnoneornil(L, arg)) return NULL;
    luaL_checktype(L, arg, LUA_TTABLE);
    lua_getfield(L, arg, "n");
    lua_Integer n = lua_isnil(L, -1) ? (lua_Integer)lua_rawlen(L, arg) : lua_tointeger(L, -1);
    luaL_argcheck(L, n >= 0 && n <= 32766, arg, "n is not in 0..32766");
    lua_pop(L, 1);
    tl_value *list = lua_newuserdatauv(L, (size_t)n * sizeof *list + 1, (int)n);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, arg, i + 1);
        list[i] = value(L, arg, i + 1);
        (void)lua_setiuservalue(L, -2, i + 1);
    }
    *out_count = (int)n;
    return list;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

typedef struct visit { /* what row passes to take_row */
    lua_State             *L;
    /* stack index of the array that collects the rows, or of the function */
    int                    rows;
    int                    plain;  /* the function receives the values themselves, not a table */
    int                    count;
    int                    failed; /* a row raised an error, which is at the top */
    int                    columns;
    const char *const     *names;
    const tl_value        *values;
} visit;

static void push_value(lua_State *L, const tl_value *v)
{
    switch (v->kind) {
    case 'i': lua_pushinteger(L, v->i); break;
    case 'f': lua_pushnumber(L, v->f); break;
    case 's': lua_pushlstring(L, v->s, v->bytes); break;
    default: lua_pushnil(L); break;
    }
}

/* Protected, with the array or function and the visit as arguments: takes one row. */
static int take_row(lua_State *L)
{
    visit *v = lua_touserdata(L, 2);
    if (v->plain) {
        luaL_checkstack(L, v->columns, "columns");
        lua_pushvalue(L, 1);
        for (int i = 0; i < v->columns; i++) push_value(L, &v->values[i]);
        lua_call(L, v->columns, 0);
        return 0;
    }
    lua_createtable(L, 0, v->columns);
    for (int i = 0; i < v->columns; i++) {
        push_value(L, &v->values[i]);
        lua_setfield(L, -2, v->names[i]);
    }
    if (lua_istable(L, 1)) {
        lua_rawseti(L, 1, ++v->count);
    } else {
        lua_pushvalue(L, 1);
        lua_insert(L, -2);
        lua_call(L, 1, 0);
    }
    return 0;
}

/* No Lua error may jump over the engine, so lua_pcall runs take_row. The error stays at the top
** until the statement has ended. */
static int protected_row(void *user, int columns, const char *const *names, const tl_value *values)
{
    visit     *v = user;
    lua_State *L = v->L;
    v->columns = columns;
    v->names = names;
    v->values = values;
    lua_pushcfunction(L, take_row);
    lua_pushvalue(L, v->rows);
    lua_pushlightuserdata(L, v);
    v->failed = lua_pcall(L, 2, 0, 0) != LUA_OK;
    return v->failed;
}

/* Runs the statement at argument 2 with the parameters at argument 3. Rows go to the array or
** function at the index sink, plain or as tables. */
static void run_statement(lua_State *L, int sink, int plain)
{
    int         count;
    glue_box   *b = glue_open_box(L, 1, &glue_store_class);
    const char *sql = luaL_checkstring(L, 2);
    tl_value   *values = parameters(L, 3, &count);
    visit       v = {.L = L, .rows = sink, .plain = plain};
    luaL_checkstack(L, 8, "rows");
    b->busy++;
    tl_status st = tl_store_exec(b->as.store, sql, count, values, protected_row, &v);
    b->busy--;
    if (v.failed) lua_error(L);
    glue_check(L, st);
}

static int exec(lua_State *L)
{
    lua_settop(L, 3);
    lua_newtable(L);
    run_statement(L, 4, 0);
    lua_settop(L, 4);
    return 1;
}

static int each(lua_State *L)
{
    luaL_checktype(L, 4, LUA_TFUNCTION);
    run_statement(L, 4, 0);
    return 0;
}

static int tuples(lua_State *L)
{
    luaL_checktype(L, 4, LUA_TFUNCTION);
    run_statement(L, 4, 1);
    return 0;
}

GLUE_CALL(check, BOXED(tl_store, s, glue_store_class, store), glue_check(L, tl_store_check(s)))

const luaL_Reg glue_store_functions[] = {
    {"store", core_store}, {"store_check_folder", store_check_folder},
    {"store_place", store_place}, {NULL, NULL}};

static const luaL_Reg methods[] = {
    {"exec", exec}, {"each", each}, {"tuples", tuples}, {"check", check}, {NULL, NULL}};

const glue_class glue_store_class = {"toeplab.store", release_store, methods, NULL};

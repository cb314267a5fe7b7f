/* random.c - random streams in Lua. They are counter-based, so two integers are their whole
** state. */
#include "rows.h"

#define STREAM "toeplab.stream"

tl_stream *glue_test_stream(lua_State *L, int arg) { return luaL_testudata(L, arg, STREAM); }

static tl_stream *stream(lua_State *L) { return luaL_checkudata(L, 1, STREAM); }

static int core_stream(lua_State *L)
{
    lua_Integer seed = luaL_checkinteger(L, 1);
    const char *purpose = luaL_checkstring(L, 2);
    tl_stream  *s = lua_newuserdatauv(L, sizeof *s, 0);
    *s = tl_stream_new((uint64_t)seed, purpose);
    luaL_setmetatable(L, STREAM);
    return 1;
}

static int uniform(lua_State *L)
{
    tl_stream *s = stream(L);
    tl_tensor *t = glue_tensor(L, 2);
    double     low = luaL_optnumber(L, 3, 0), high = luaL_optnumber(L, 4, 1);
    glue_check(L, tl_random_uniform(t, s, low, high));
    lua_settop(L, 2);
    return 1;
}

static int normal(lua_State *L)
{
    tl_stream *s = stream(L);
    tl_tensor *t = glue_tensor(L, 2);
    double     mean = luaL_optnumber(L, 3, 0), deviation = luaL_optnumber(L, 4, 1);
    glue_check(L, tl_random_normal(t, s, mean, deviation));
    lua_settop(L, 2);
    return 1;
}

static int permutation(lua_State *L)
{
    tl_stream  *s = stream(L);
    int64_t     n = luaL_checkinteger(L, 2);
    tl_tensor **t = glue_push_tensor(L);
    glue_result(L, tl_tensor_new(glue_ctx(L), TL_I32, 1, &n, t));
    glue_check(L, tl_random_permutation(*t, s));
    return 1;
}

/* s:integers(bound, d1, ...) -> int32 [d1,...] */
static int integers(lua_State *L)
{
    tl_stream  *s = stream(L);
    int64_t     bound = luaL_checkinteger(L, 2), dims[TL_MAXDIMS];
    int         ndim = glue_dims(L, 3, dims);
    tl_tensor **t = glue_push_tensor(L);
    glue_result(L, tl_tensor_new(glue_ctx(L), TL_I32, ndim, dims, t));
    glue_check(L, tl_random_integers(*t, s, bound));
    return 1;
}

static int below(lua_State *L)
{
    tl_stream  *s = stream(L);
    lua_Integer bound = luaL_checkinteger(L, 2);
    luaL_argcheck(L, bound >= 1, 2, "bound is less than 1");
    lua_pushinteger(L, tl_random_below(s, bound));
    return 1;
}

static int unit(lua_State *L)
{
    lua_pushnumber(L, tl_random_unit(stream(L)));
    return 1;
}

static int sample(lua_State *L)
{
    tl_stream *s = stream(L);
    tl_tensor *logits = glue_tensor(L, 2);
    double     temperature = luaL_optnumber(L, 3, 1);
    int        top_k = glue_opt_int(L, 4, 0, 0, INT32_MAX);
    int32_t    id;
    glue_check(L, tl_sample(logits, temperature, top_k, s, &id));
    lua_pushinteger(L, id);
    return 1;
}

static int state(lua_State *L)
{
    const tl_stream *s = stream(L);
    lua_pushinteger(L, (lua_Integer)s->key);
    lua_pushinteger(L, (lua_Integer)s->offset);
    return 2;
}

static int set_state(lua_State *L)
{
    tl_stream  *s = stream(L);
    lua_Integer key = luaL_checkinteger(L, 2), offset = luaL_checkinteger(L, 3);
    *s = (tl_stream){(uint64_t)key, (uint64_t)offset};
    return 0;
}

#define SELF(name) tl_stream *name = stream(L); arg++;

#define ROWS(X) \
    X(places, SELF(s) TENSOR(lengths) INTEGER(count), tl_random_places(lengths, count, s, y)) \
    X(dropout, SELF(s) TENSOR(x) NUMBER(p), tl_dropout(x, p, s, y))

ROWS(GLUE_FUNCTION)

void glue_random_open(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"uniform", uniform}, {"normal", normal}, {"permutation", permutation}, {"below", below},
        {"unit", unit},       {"sample", sample}, {"integers", integers},       {"state", state},
        {"set_state", set_state}, ROWS(GLUE_ENTRY){NULL, NULL},
    };
    glue_metatable(L, STREAM, NULL, methods);
}

const luaL_Reg glue_random_functions[] = {{"stream", core_stream}, {NULL, NULL}};

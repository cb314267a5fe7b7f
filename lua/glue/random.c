/* random.c - random streams in Lua. They are counter-based, so two integers are their whole
** state. */
#include "rows.h"

#define STREAM "toeplab.stream"

tl_stream *glue_test_stream(lua_State *L, int arg) { return luaL_testudata(L, arg, STREAM); }

static tl_stream *stream(lua_State *L) { return luaL_checkudata(L, 1, STREAM); }

#define SELF(name) tl_stream *name = stream(L); arg++;

static int core_stream(lua_State *L)
{
    lua_Integer seed = luaL_checkinteger(L, 1);
    const char *purpose = luaL_checkstring(L, 2);
    tl_stream  *s = lua_newuserdatauv(L, sizeof *s, 0);
    *s = tl_stream_new((uint64_t)seed, purpose);
    luaL_setmetatable(L, STREAM);
    return 1;
}

GLUE_CALL(uniform, SELF(s) TENSOR(t) OPT_NUMBER(low, 0) OPT_NUMBER(high, 1),
          glue_check(L, tl_random_uniform(t, s, low, high)); lua_pushvalue(L, 2))
GLUE_CALL(normal, SELF(s) TENSOR(t) OPT_NUMBER(mean, 0) OPT_NUMBER(deviation, 1),
          glue_check(L, tl_random_normal(t, s, mean, deviation)); lua_pushvalue(L, 2))

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

GLUE_CALL(below, SELF(s) INTEGER(bound),
          luaL_argcheck(L, bound >= 1, 2, "bound is less than 1");
          lua_pushinteger(L, tl_random_below(s, bound)))
GLUE_CALL(unit, SELF(s), lua_pushnumber(L, tl_random_unit(s)))
GLUE_CALL(sample, SELF(s) TENSOR(logits) OPT_NUMBER(temperature, 1), int32_t id;
          int top_k = glue_opt_int(L, 4, 0, 0, INT32_MAX);
          glue_check(L, tl_sample(logits, temperature, top_k, s, &id)); lua_pushinteger(L, id))
GLUE_CALL(state, SELF(s), lua_pushinteger(L, (lua_Integer)s->key);
          lua_pushinteger(L, (lua_Integer)s->offset))
GLUE_CALL(set_state, SELF(s) INTEGER(key) INTEGER(offset),
          *s = (tl_stream){(uint64_t)key, (uint64_t)offset})

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

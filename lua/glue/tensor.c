/* tensor.c - tensors in Lua: creating, reading and filling them. */
#include <math.h>

#include "rows.h"

static void release_tensor(glue_box *b) { tl_tensor_free(b->as.tensor); }

static const char *type_name(const tl_tensor *t)
{
    return tl_tensor_type(t) == TL_F32 ? "float32" : "int32";
}

/* ---- From and to nested tables --------------------------------------------------------------- */

/* The state of reading a nested table. */
typedef struct reader {
    tl_type  type;
    int      ndim;
    int64_t  dims[TL_MAXDIMS];
    float   *f32;
    int32_t *i32;
    int64_t  filled;
} reader;

/* Finds the shape that the first elements of the value at arg imply. */
static void find_shape(lua_State *L, int arg, reader *r)
{
    int top = lua_gettop(L);
    lua_pushvalue(L, arg);
    for (r->ndim = 0; lua_istable(L, -1); r->ndim++) {
        luaL_argcheck(L, r->ndim < TL_MAXDIMS, arg, "table is nested too deep");
        r->dims[r->ndim] = (int64_t)lua_rawlen(L, -1);
        lua_rawgeti(L, -1, 1);
    }
    if (lua_isnil(L, -1) && r->ndim == 0) luaL_typeerror(L, arg, "table");
    lua_settop(L, top);
}

static void read_number(lua_State *L, int arg, reader *r)
{
    int         fine;
    lua_Integer i = 0;
    double      f = 0;
    if (r->type == TL_F32) {
        f = lua_tonumberx(L, -1, &fine);
    } else {
        i = lua_tointegerx(L, -1, &fine);
        fine = fine && i >= INT32_MIN && i <= INT32_MAX;
    }
    if (!fine || lua_type(L, -1) != LUA_TNUMBER)
        glue_argerror(L, arg, "element %I is not a %s (%s)", (long long)r->filled + 1,
                      r->f32 ? "number" : "32-bit integer", luaL_tolstring(L, -1, NULL));
    if (r->f32) {
        r->f32[r->filled++] = (float)f;
    } else {
        r->i32[r->filled++] = (int32_t)i;
    }
}

/* Reads the value at the top, which is nested level deep in the table at arg. */
static void read_level(lua_State *L, int arg, int level, reader *r)
{
    if (level == r->ndim) {
        read_number(L, arg, r);
        return;
    }
    luaL_checkstack(L, 4, "nested table");
    if (!lua_istable(L, -1))
        glue_argerror(L, arg, "%s at depth %d, where tables are", luaL_typename(L, -1), level);
    int64_t count = (int64_t)lua_rawlen(L, -1);
    if (count != r->dims[level])
        glue_argerror(L, arg, "table is ragged: %I elements at depth %d, not %I", (long long)count,
                      level + 1, (long long)r->dims[level]);
    for (int64_t i = 1; i <= count; i++) {
        lua_rawgeti(L, -1, i);
        read_level(L, arg, level + 1, r);
        lua_pop(L, 1);
    }
}

/* The box owns the tensor before the elements are read, because a bad element raises. */
static int from_table(lua_State *L, tl_type type)
{
    reader r = {.type = type};
    luaL_checkany(L, 1);
    find_shape(L, 1, &r);
    tl_tensor **t = glue_push_tensor(L);
    glue_result(L, tl_tensor_new_host(glue_ctx(L), type, r.ndim, r.dims, t));
    r.f32 = tl_tensor_f32(*t);
    r.i32 = tl_tensor_i32(*t);
    lua_pushvalue(L, 1);
    read_level(L, 1, 0, &r);
    lua_pop(L, 1);
    return 1;
}

static int core_tensor(lua_State *L) { return from_table(L, TL_F32); }
static int core_ids(lua_State *L) { return from_table(L, TL_I32); }

typedef union element { float f32; int32_t i32; } element;

static void push_number(lua_State *L, const tl_tensor *t, element e)
{
    if (tl_tensor_type(t) == TL_F32)
        lua_pushnumber(L, (lua_Number)e.f32);
    else
        lua_pushinteger(L, e.i32);
}

static void push_element(lua_State *L, tl_tensor *t, int64_t i)
{
    element e;
    glue_check(L, tl_tensor_read(t, i, 1, &e));
    push_number(L, t, e);
}

static void push_level(lua_State *L, const tl_tensor *t, int level, const element **next)
{
    if (level == tl_tensor_ndim(t)) {
        push_number(L, t, *(*next)++);
        return;
    }
    int64_t count = tl_tensor_dim(t, level);
    luaL_checkstack(L, 4, "nested table");
    lua_createtable(L, count < 1 << 20 ? (int)count : 1 << 20, 0);
    for (int64_t i = 1; i <= count; i++) {
        push_level(L, t, level + 1, next);
        lua_rawseti(L, -2, i);
    }
}

static int totable(lua_State *L)
{
    tl_tensor     *t = glue_tensor(L, 1);
    int64_t        len = tl_tensor_len(t);
    element       *all = lua_newuserdatauv(L, (size_t)len * sizeof *all, 0);
    const element *next = all;
    /* one copy of all elements, and t stays on its device */
    glue_check(L, tl_tensor_read(t, 0, len, all));
    push_level(L, t, 0, &next);
    return 1;
}

/* ---- Filled tensors -------------------------------------------------------------------------- */

static int filled(lua_State *L, int ndim, const int64_t *dims, double value)
{
    tl_tensor **t = glue_push_tensor(L);
    tl_status   st = tl_tensor_new(glue_ctx(L), TL_F32, ndim, dims, t);
    if (st == TL_OK && value != 0) st = tl_tensor_fill(*t, value);
    return glue_result(L, st);
}

static int core_zeros(lua_State *L)
{
    int64_t dims[TL_MAXDIMS];
    int     ndim = glue_dims(L, 1, dims);
    return filled(L, ndim, dims, 0);
}

static int core_ones(lua_State *L)
{
    int64_t dims[TL_MAXDIMS];
    int     ndim = glue_dims(L, 1, dims);
    return filled(L, ndim, dims, 1);
}

static int core_full(lua_State *L)
{
    int64_t dims[TL_MAXDIMS];
    luaL_checktype(L, 1, LUA_TTABLE);
    double value = luaL_checknumber(L, 2);
    return filled(L, glue_dims(L, 1, dims), dims, value);
}

static int core_range(lua_State *L)
{
    double first = luaL_checknumber(L, 1), last = luaL_checknumber(L, 2);
    double step = luaL_optnumber(L, 3, 1);
    luaL_argcheck(L, step != 0, 3, "step is 0");
    double steps = floor((last - first) / step);
    luaL_argcheck(L, steps < 1e15, 2, "range has no end"); /* also false for NaN */
    int64_t     n = steps < 0 ? 0 : (int64_t)steps + 1;
    tl_tensor **t = glue_push_tensor(L);
    glue_result(L, tl_tensor_new_host(glue_ctx(L), TL_F32, 1, &n, t));
    float *to = tl_tensor_f32(*t);
    for (int64_t i = 0; i < n; i++) to[i] = (float)(first + (double)i * step);
    return 1;
}

/* ---- Questions ------------------------------------------------------------------------------- */

static int shape(lua_State *L)
{
    tl_tensor *t = glue_tensor(L, 1);
    lua_createtable(L, tl_tensor_ndim(t), 0);
    for (int i = 0; i < tl_tensor_ndim(t); i++) {
        lua_pushinteger(L, tl_tensor_dim(t, i));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

GLUE_CALL(dim, TENSOR(t) AXIS(axis, t), lua_pushinteger(L, tl_tensor_dim(t, axis)))
GLUE_CALL(ndim, TENSOR(t), lua_pushinteger(L, tl_tensor_ndim(t)))
GLUE_CALL(numel, TENSOR(t), lua_pushinteger(L, tl_tensor_len(t)))

/* The number changes whenever an operator, copy or fill writes the tensor. */
GLUE_CALL(version, TENSOR(t), lua_pushinteger(L, tl_tensor_version(t)))
GLUE_CALL(type, TENSOR(t), lua_pushstring(L, type_name(t)))

static int item(lua_State *L)
{
    tl_tensor *t = glue_tensor(L, 1);
    lua_Integer len = tl_tensor_len(t);
    if (len != 1) return luaL_error(L, "item: the tensor has %I elements, not 1", len);
    push_element(L, t, 0);
    return 1;
}

static int get(lua_State *L)
{
    tl_tensor *t = glue_tensor(L, 1);
    int        axes = tl_tensor_ndim(t), given = lua_gettop(L) - 1;
    int64_t    offset = 0;
    if (given != axes) return luaL_error(L, "get: %d positions for %d axes", given, axes);
    for (int i = 0; i < axes; i++) {
        lua_Integer at = luaL_checkinteger(L, i + 2);
        if (at < 1 || at > tl_tensor_dim(t, i))
            glue_argerror(L, i + 2, "position %I of %I", at, (long long)tl_tensor_dim(t, i));
        offset = offset * tl_tensor_dim(t, i) + at - 1;
    }
    push_element(L, t, offset);
    return 1;
}

/* One line, for messages; show adds the numbers. */
static int tostring(lua_State *L)
{
    char            text[160];
    const glue_box *b = luaL_checkudata(L, 1, glue_tensor_class.name);
    if (!b->as.any) {
        lua_pushliteral(L, "tensor (closed)");
    } else {
        (void)tl_tensor_shape(b->as.tensor, text, sizeof text);
        lua_pushfstring(L, "tensor %s %s", text, type_name(b->as.tensor));
    }
    return 1;
}

static int show(lua_State *L)
{
    luaL_Buffer     out;
    const glue_box *b = luaL_checkudata(L, 1, glue_tensor_class.name);
    luaL_buffinit(L, &out);
    (void)luaL_tolstring(L, 1, NULL);
    luaL_addvalue(&out);
    if (b->as.any) glue_add_numbers(L, &out, b->as.tensor);
    luaL_pushresult(&out);
    return 1;
}

/* ---- Contents -------------------------------------------------------------------------------- */

GLUE_CALL(copy, TENSOR(to) TENSOR(from), glue_check(L, tl_tensor_copy(to, from));
          lua_pushvalue(L, 1))
GLUE_CALL(fill, TENSOR(t) NUMBER(value),
          luaL_argcheck(L, tl_tensor_type(t) == TL_F32 || fabs(value) <= INT32_MAX, 2,
                        "not 32 bits");
          glue_check(L, tl_tensor_fill(t, value)); lua_pushvalue(L, 1))

static int clone(lua_State *L)
{
    tl_tensor *x = glue_tensor(L, 1), **t = glue_push_tensor(L);
    int64_t    dims[TL_MAXDIMS];
    for (int i = 0; i < tl_tensor_ndim(x); i++) dims[i] = tl_tensor_dim(x, i);
    tl_status st = tl_tensor_new(glue_ctx(L), tl_tensor_type(x), tl_tensor_ndim(x), dims, t);
    if (st == TL_OK) st = tl_tensor_copy(*t, x);
    return glue_result(L, st);
}

static int view(lua_State *L)
{
    tl_tensor *x = glue_tensor(L, 1);
    if (!lua_istable(L, 3)) {
        return luaL_error(L, "view takes an offset and a shape, as x:view(0, {2, 8}); for "
                             "PyTorch's x.view(4, -1) write x:reshape(4, -1)");
    }
    lua_Integer offset = luaL_checkinteger(L, 2);
    int64_t     dims[TL_MAXDIMS];
    int         axes = glue_dims(L, 3, dims);
    tl_tensor **t = glue_push_tensor(L);
    glue_check(L, tl_tensor_view(x, offset, axes, dims, t));
    return 1;
}

/* ---- Tables ---------------------------------------------------------------------------------- */

const luaL_Reg glue_tensor_functions[] = {
    {"tensor", core_tensor}, {"ids", core_ids},   {"zeros", core_zeros}, {"ones", core_ones},
    {"full", core_full},     {"range", core_range}, {NULL, NULL},
};

static const luaL_Reg methods[] = {
    {"shape", shape}, {"dim", dim},   {"ndim", ndim},   {"numel", numel},     {"type", type},
    {"version", version},
    {"item", item},   {"get", get},   {"copy", copy},   {"totable", totable}, {"fill", fill},
    {"clone", clone}, {"view", view}, {"show", show},       {NULL, NULL},
};

static const luaL_Reg meta[] = {{"__tostring", tostring}, {NULL, NULL}};

const glue_class glue_tensor_class = {"toeplab.tensor", release_tensor, methods, meta};

/* ops.c - general operators in Lua: arithmetic, unary functions, products, reductions and
** shapes. */
#include <string.h>

#include "rows.h"

#define KIND(L) ((int)lua_tointeger(L, lua_upvalueindex(2)))

/* ---- Elementwise ----------------------------------------------------------------------------- */

/* silu(x), exp(x), ... and x:silu(); upvalue 2 is the kind. */
static int unary_kind(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_unary((tl_unary_kind)KIND(L), x, y));
}

static int unary_names(lua_State *L)
{
    lua_createtable(L, TL_UNARY_KINDS, 0);
    for (int kind = 0; kind < TL_UNARY_KINDS; kind++) {
        lua_pushstring(L, tl_unary_name((tl_unary_kind)kind));
        lua_rawseti(L, -2, kind + 1);
    }
    return 1;
}

/* A tensor x and a number v combine as scale x + shift, with scale = s + t v and shift = u v.
** The second form is for a number on the left. */
static const struct form {
    double s, t, u;
} forms[][2] = {
    [TL_BINARY_ADD] = {{1, 0, 1}, {1, 0, 1}},
    [TL_BINARY_SUB] = {{1, 0, -1}, {-1, 0, 1}}, /* x - v and v - x */
    [TL_BINARY_MUL] = {{0, 1, 0}, {0, 1, 0}},
};

static int with_number(lua_State *L, int number)
{
    const struct form *f = &forms[KIND(L)][number == 1];
    double             v = luaL_checknumber(L, number);
    tl_tensor         *x = glue_tensor(L, 3 - number);
    tl_tensor        **y = glue_push_tensor(L);
    return glue_result(L, tl_affine(x, f->s + f->t * v, f->u * v, y));
}

/* Returns the operand at arg; a number is replaced by a tensor without dimensions. */
static tl_tensor *operand(lua_State *L, int arg)
{
    if (lua_type(L, arg) != LUA_TNUMBER) return glue_tensor(L, arg);
    double      v = lua_tonumber(L, arg);
    tl_tensor **t = glue_push_tensor(L);
    glue_result(L, tl_tensor_new(glue_ctx(L), TL_F32, 0, NULL, t));
    glue_check(L, tl_tensor_fill(*t, v));
    lua_replace(L, arg);
    return *t;
}

/* Replaces an int32 tensor at arg by its values in float32. */
static void as_float(lua_State *L, int arg)
{
    if (lua_type(L, arg) == LUA_TNUMBER) return;
    tl_tensor *x = glue_tensor(L, arg);
    if (tl_tensor_type(x) != TL_I32) return;
    tl_tensor **y = glue_push_tensor(L);
    glue_result(L, tl_to_float(x, y));
    lua_replace(L, arg);
}

/* x:float() -> x as float32, x itself where it is */
static int to_float(lua_State *L)
{
    (void)glue_tensor(L, 1);
    glue_last(L, 1);
    as_float(L, 1);
    lua_settop(L, 1);
    return 1;
}

/* a + b, max(a, b), ... of two tensors, or a tensor and a number; comparisons take int32 tensors,
** too. Upvalue 2 is the kind. */
static int arithmetic(lua_State *L)
{
    int kind = KIND(L), number = lua_type(L, 1) == LUA_TNUMBER ? 1 : 2;
    lua_settop(L, 2);
    if (kind >= TL_BINARY_LT && kind <= TL_BINARY_NE)
        for (int arg = 1; arg <= 2; arg++) as_float(L, arg);
    if (lua_type(L, number) == LUA_TNUMBER) {
        (void)glue_tensor(L, 3 - number);
        if (kind <= TL_BINARY_MUL) return with_number(L, number);
        if (kind == TL_BINARY_POW && number == 2 && lua_tonumber(L, 2) == 2) { /* needs no powf */
            tl_tensor **y = glue_push_tensor(L);
            return glue_result(L, tl_unary(TL_UNARY_square, glue_tensor(L, 1), y));
        }
    }
    tl_tensor  *a = operand(L, 1), *b = operand(L, 2);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_binary((tl_binary_kind)kind, a, b, y));
}

/* where(cond, a, b) of tensors and numbers */
static int where(lua_State *L)
{
    lua_settop(L, 3);
    tl_tensor  *cond = glue_tensor(L, 1), *a = operand(L, 2), *b = operand(L, 3);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_where(cond, a, b, y));
}

/* ---- Products -------------------------------------------------------------------------------- */

static const char *const precision_names[] = {[TL_PRECISION_F32] = "float32",
                                              [TL_PRECISION_BF16] = "bf16",
                                              [TL_PRECISION_TF32] = "tf32", NULL};

static int set_precision(tl_ctx *ctx, int kind)
{
    int was = tl_precision(ctx);
    (void)tl_set_precision(ctx, (tl_precision_kind)kind);
    return was;
}

/* precision([name[, f, ...]]) -> the previous precision; with f, the results of f(...) under
** that name */
static int precision(lua_State *L)
{
    tl_ctx *ctx = glue_ctx(L);
    int     was = tl_precision(ctx);
    int     kind = lua_isnoneornil(L, 1) ? was : luaL_checkoption(L, 1, NULL, precision_names);
    glue_check(L, tl_set_precision(ctx, (tl_precision_kind)kind));
    if (!lua_isnoneornil(L, 2)) {
        (void)set_precision(ctx, was);
        return glue_scope(L, 2, set_precision, kind);
    }
    lua_pushstring(L, precision_names[was]);
    return 1;
}

/* precisions([device]) -> the names of the precisions that the device has, by default the
** current one */
static int precisions(lua_State *L)
{
    const char *device = luaL_optstring(L, 1, NULL);
    lua_newtable(L);
    for (int i = 0, n = 0; precision_names[i]; i++) {
        int there = device ? i != TL_PRECISION_TF32 || strcmp(device, "cpu") != 0
                           : tl_has_precision(glue_ctx(L), (tl_precision_kind)i);
        if (!there) continue;
        lua_pushstring(L, precision_names[i]);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

/* ---- Reductions ------------------------------------------------------------------------------ */

/* x:sum([axis[, keep]]), x:mean, x:amax; upvalue 2 is the kind. */
static int reduce(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1);
    int         axis = lua_isnoneornil(L, 2) ? TL_ALL_AXES : glue_axis(L, 2, tl_tensor_ndim(x));
    int         keep = glue_flag(L, 3, "keep");
    glue_last(L, 3);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_reduce((tl_reduce_kind)KIND(L), x, axis, keep, y));
}

/* ---- Shape ----------------------------------------------------------------------------------- */

static int reshape(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1);
    int64_t     dims[TL_MAXDIMS];
    int         ndim = glue_dims(L, 2, dims);
    tl_tensor **y = glue_push_tensor(L);
    /* shares memory, so there is none to report to the collector */
    glue_check(L, tl_reshape(x, ndim, dims, y));
    return 1;
}

static int transpose(lua_State *L)
{
    tl_tensor *x = glue_tensor(L, 1);
    int        a = glue_axis(L, 2, tl_tensor_ndim(x)), b = glue_axis(L, 3, tl_tensor_ndim(x));
    int        axes[TL_MAXDIMS] = {0, 1, 2, 3, 4, 5};
    axes[a] = b;
    axes[b] = a;
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_transpose(x, axes, y));
}

static int permute(lua_State *L)
{
    tl_tensor *x = glue_tensor(L, 1);
    int        ndim = tl_tensor_ndim(x), axes[TL_MAXDIMS];
    int64_t    given[TL_MAXDIMS];
    if (!lua_istable(L, 2)) {
        return luaL_error(L, "permute takes a list of axes from 1 on, as x:permute {2, 1, 3}");
    }
    luaL_argcheck(L, glue_dims(L, 2, given) == ndim, 2, "not one entry per axis");
    for (int i = 0; i < ndim; i++) {
        lua_pushinteger(L, given[i]);
        lua_replace(L, 2);
        axes[i] = glue_axis(L, 2, ndim);
    }
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_transpose(x, axes, y));
}

static int narrow(lua_State *L)
{
    tl_tensor  *x = glue_tensor(L, 1);
    int         axis = glue_axis(L, 2, tl_tensor_ndim(x));
    lua_Integer size = tl_tensor_dim(x, axis);
    lua_Integer first = luaL_checkinteger(L, 3), count = luaL_checkinteger(L, 4);
    glue_last(L, 4);
    if (first < 1 || first > size + 1) glue_argerror(L, 3, "position %I of %I", first, size);
    if (count < 0 || count > size - first + 1)
        glue_argerror(L, 4, "%I elements from position %I of %I", count, first, size);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_slice(x, axis, first - 1, count, y));
}

static int concat(lua_State *L)
{
    int         count;
    glue_last(L, 2);
    lua_settop(L, 2); /* values pushed below must not count as arguments */
    tl_tensor **xs = glue_tensors(L, 1, &count);
    luaL_argcheck(L, count > 0, 1, "no tensors");
    int         axis = glue_axis(L, 2, tl_tensor_ndim(xs[0]));
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_concat(tl_tensor_ctx(xs[0]), xs, count, axis, y));
}

/* ---- Sorting --------------------------------------------------------------------------------- */

/* x:argsort() -> order, rank */
GLUE_CALL(argsort, TENSOR(x) glue_last(L, arg);,
          tl_tensor **order = glue_push_tensor(L), **rank = glue_push_tensor(L);
          glue_result(L, tl_argsort(x, order, rank)))

/* x:topk(k) -> places, slots */
GLUE_CALL(topk, TENSOR(x) INTEGER(k),
          tl_tensor **places = glue_push_tensor(L), **slots = glue_push_tensor(L);
          glue_result(L, tl_topk(x, k, places, slots)))

/* ---- Tables ---------------------------------------------------------------------------------- */

typedef struct family { /* functions that differ only in upvalue 2; the list ends with {0} */
    const char   *name;
    lua_CFunction f;
    int           kind;
} family;

static void set_family(lua_State *L, const family *list)
{
    for (; list->name; list++) glue_set_kind(L, list->name, list->f, list->kind);
}

void glue_unary_open(lua_State *L)
{
    for (int kind = 0; kind < TL_UNARY_KINDS; kind++)
        glue_set_kind(L, tl_unary_name((tl_unary_kind)kind), unary_kind, kind);
}

void glue_binary_open(lua_State *L)
{
    set_family(L, (const family[]){
        {"max", arithmetic, TL_BINARY_MAX}, {"min", arithmetic, TL_BINARY_MIN}, {0}});
}

void glue_compare_open(lua_State *L)
{
    set_family(L, (const family[]){
        {"lt", arithmetic, TL_BINARY_LT}, {"le", arithmetic, TL_BINARY_LE},
        {"gt", arithmetic, TL_BINARY_GT}, {"ge", arithmetic, TL_BINARY_GE},
        {"eq", arithmetic, TL_BINARY_EQ}, {"ne", arithmetic, TL_BINARY_NE},
        {"pow", arithmetic, TL_BINARY_POW}, {0}});
}

void glue_reduce_open(lua_State *L)
{
    set_family(L, (const family[]){
        {"sum", reduce, TL_REDUCE_SUM}, {"mean", reduce, TL_REDUCE_MEAN},
        {"amax", reduce, TL_REDUCE_MAX}, {0}});
}

void glue_arithmetic_open(lua_State *L)
{
    set_family(L, (const family[]){
        {"__add", arithmetic, TL_BINARY_ADD}, {"__sub", arithmetic, TL_BINARY_SUB},
        {"__mul", arithmetic, TL_BINARY_MUL}, {"__div", arithmetic, TL_BINARY_DIV},
        {"__pow", arithmetic, TL_BINARY_POW},
        {"__unm", unary_kind, TL_UNARY_neg}, {0}});
}

/* clang-format off */
#define FUNCTIONS(X) \
    X(unary, UNARY_KIND(kind) TENSOR(x), tl_unary(kind, x, y)) \
    X(gate, UNARY_KIND(kind) TENSOR(a) TENSOR(b), tl_gate(kind, a, b, y)) \
    X(affine, TENSOR(x) NUMBER(scale) NUMBER(shift), tl_affine(x, scale, shift, y)) \
    X(matmul, TENSOR(a) TENSOR(b) FLAG(trans_a) FLAG(trans_b), \
      tl_matmul(a, trans_a, b, trans_b, y)) \
    X(linear, TENSOR(x) TENSOR(w) OPTIONAL(bias), tl_linear(x, w, bias, y)) \
    X(windows, TENSOR(ids) TENSOR(starts) INTEGER(n), tl_gather_windows(ids, starts, n, y))

#define METHODS(X) \
    X(argmax, TENSOR(x), tl_argmax(x, y)) \
    X(cumsum, TENSOR(x) AXIS(axis, x), tl_cumsum(x, axis, y)) \
    X(gather, TENSOR(x) TENSOR(index), tl_gather(x, index, y)) \
    X(batch_gather, TENSOR(x) TENSOR(index), tl_batch_gather(x, index, y))
/* clang-format on */

FUNCTIONS(GLUE_FUNCTION)
METHODS(GLUE_FUNCTION)

const luaL_Reg glue_ops_functions[] = {
    {"unary_names", unary_names}, {"concat", concat},         {"where", where},
    {"precision", precision},     {"precisions", precisions}, FUNCTIONS(GLUE_ENTRY){NULL, NULL},
};

const luaL_Reg glue_ops_methods[] = {
    {"reshape", reshape}, {"transpose", transpose}, {"permute", permute}, {"narrow", narrow},
    {"argsort", argsort}, {"topk", topk},           {"float", to_float},
    METHODS(GLUE_ENTRY){NULL, NULL},
};

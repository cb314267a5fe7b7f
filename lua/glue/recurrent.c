/* recurrent.c - runs causal Toeplitz operators one position at a time, in Lua. */
#include "glue.h"

static void release_recurrence(glue_box *b) { tl_recurrence_free(b->as.recurrence); }

static tl_recurrence *recurrence(lua_State *L)
{
    return glue_open_box(L, 1, &glue_recurrence_class)->as.recurrence;
}

/* ---- Making one ------------------------------------------------------------------------------ */

/* in the order of tl_recurrence_kind */
static const char *const kinds[] = {"ring", "exact", "published", "relaxed", NULL};

/* recurrence(t, gamma or nil, kind [, sequences]) */
static int core_recurrence(lua_State *L)
{
    tl_tensor *t = glue_tensor(L, 1), *gamma = glue_opt_tensor(L, 2);
    int        kind = luaL_checkoption(L, 3, NULL, kinds);
    lua_Integer b = luaL_optinteger(L, 4, 1);
    glue_box   *box = glue_push(L, &glue_recurrence_class);
    glue_check(L, tl_recurrence_new(t, gamma, (tl_recurrence_kind)kind, b, &box->as.recurrence));
    return 1;
}

/* relaxed_recurrence(t, gamma or nil, sequences, positions) */
static int core_relaxed(lua_State *L)
{
    tl_tensor  *t = glue_tensor(L, 1), *gamma = glue_opt_tensor(L, 2);
    lua_Integer b = luaL_checkinteger(L, 3), positions = luaL_checkinteger(L, 4);
    glue_box   *box = glue_push(L, &glue_recurrence_class);
    glue_check(L, tl_recurrence_new_relaxed(t, gamma, b, positions, &box->as.recurrence));
    return 1;
}

/* recurrence_of_modes(b, decay, kind, lags, period [, sequences]) */
static int core_of_modes(lua_State *L)
{
    tl_tensor  *modes = glue_tensor(L, 1), *decay = glue_tensor(L, 2);
    int         kind = luaL_checkoption(L, 3, NULL, kinds);
    lua_Integer lags = luaL_checkinteger(L, 4), period = luaL_checkinteger(L, 5);
    lua_Integer b = luaL_optinteger(L, 6, 1);
    glue_box   *box = glue_push(L, &glue_recurrence_class);
    glue_check(L, tl_recurrence_from_modes(modes, decay, (tl_recurrence_kind)kind, lags, period, b,
                                           &box->as.recurrence));
    return 1;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* r:step(x [, y]) -> y, a new tensor unless it is given */
static int step(lua_State *L)
{
    tl_recurrence *r = recurrence(L);
    tl_tensor     *x = glue_tensor(L, 2);
    int64_t        dims[TL_MAXDIMS];
    if (!lua_isnoneornil(L, 3)) {
        glue_check(L, tl_recurrence_step(r, x, glue_tensor(L, 3)));
        lua_settop(L, 3);
        return 1;
    }
    for (int i = 0; i < tl_tensor_ndim(x); i++) dims[i] = tl_tensor_dim(x, i);
    tl_tensor **y = glue_push_tensor(L);
    glue_check(L, tl_tensor_new(glue_ctx(L), TL_F32, tl_tensor_ndim(x), dims, y));
    return glue_result(L, tl_recurrence_step(r, x, *y));
}

static int fork_of(lua_State *L)
{
    tl_recurrence *r = recurrence(L);
    glue_box      *box = glue_push(L, &glue_recurrence_class);
    glue_check(L, tl_recurrence_fork(r, &box->as.recurrence));
    return 1;
}

static int reset(lua_State *L)
{
    tl_recurrence_reset(recurrence(L));
    return 0;
}

/* ---- Questions ------------------------------------------------------------------------------- */

static int sizes(lua_State *L)
{
    tl_recurrence_size s = tl_recurrence_sizes(recurrence(L));
    const struct {
        const char *name;
        int64_t     value;
    } fields[] = {{"sequences", s.b}, {"channels", s.d}, {"lags", s.lags}, {"modes", s.modes},
                  {"period", s.period}, {"state_bytes", (int64_t)s.state_bytes},
                  {"kernel_bytes", (int64_t)s.kernel_bytes}};
    lua_newtable(L);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        lua_pushinteger(L, fields[i].value);
        lua_setfield(L, -2, fields[i].name);
    }
    lua_pushstring(L, kinds[s.kind]);
    lua_setfield(L, -2, "kind");
    return 1;
}

/* r:modes() -> b, lambda, decay */
static int modes(lua_State *L)
{
    tl_recurrence *r = recurrence(L);
    tl_tensor    **b = glue_push_tensor(L), **lambda = glue_push_tensor(L);
    tl_tensor    **decay = glue_push_tensor(L);
    glue_check(L, tl_recurrence_modes(r, b, lambda, decay));
    return 3;
}

/* ---- Tables ---------------------------------------------------------------------------------- */

const luaL_Reg glue_recurrence_functions[] = {
    {"recurrence", core_recurrence}, {"relaxed_recurrence", core_relaxed},
    {"recurrence_of_modes", core_of_modes}, {NULL, NULL}};

static const luaL_Reg methods[] = {
    {"step", step},   {"fork", fork_of}, {"reset", reset},
    {"sizes", sizes}, {"modes", modes},  {NULL, NULL}};

const glue_class glue_recurrence_class = {"toeplab.recurrence", release_recurrence, methods, NULL};

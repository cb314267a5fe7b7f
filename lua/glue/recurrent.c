/* recurrent.c - runs causal Toeplitz operators one position at a time, in Lua. */
#include "rows.h"

static void release_recurrence(glue_box *b) { tl_recurrence_free(b->as.recurrence); }

#define RECURRENCE BOXED(tl_recurrence, r, glue_recurrence_class, recurrence)

/* ---- Making one ------------------------------------------------------------------------------ */

/* in the order of tl_recurrence_kind */
static const char *const kinds[] = {"ring", "exact", "published", "relaxed", NULL};

GLUE_NEW(core_recurrence, TENSOR(t) OPTIONAL(gamma) OPTION(kind, tl_recurrence_kind, kinds)
         OPT_INTEGER(sequences, 1), glue_recurrence_class,
         tl_recurrence_new(t, gamma, kind, sequences, &b->as.recurrence))
GLUE_NEW(core_relaxed, TENSOR(t) OPTIONAL(gamma) INTEGER(sequences) INTEGER(positions),
         glue_recurrence_class,
         tl_recurrence_new_relaxed(t, gamma, sequences, positions, &b->as.recurrence))
GLUE_NEW(core_of_modes, TENSOR(modes) TENSOR(decay) OPTION(kind, tl_recurrence_kind, kinds)
         INTEGER(lags) INTEGER(period) OPT_INTEGER(sequences, 1), glue_recurrence_class,
         tl_recurrence_from_modes(modes, decay, kind, lags, period, sequences,
                                  &b->as.recurrence))

/* ---- Steps ----------------------------------------------------------------------------------- */

/* r:step(x [, y]) -> y, a new tensor unless it is given */
static int step(lua_State *L)
{
    int            arg = 0;
    RECURRENCE
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

GLUE_NEW(fork_of, RECURRENCE, glue_recurrence_class, tl_recurrence_fork(r, &b->as.recurrence))
GLUE_CALL(reset, RECURRENCE, tl_recurrence_reset(r))

/* ---- Questions ------------------------------------------------------------------------------- */

static int sizes(lua_State *L)
{
    int arg = 0;
    RECURRENCE
    tl_recurrence_size s = tl_recurrence_sizes(r);
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
GLUE_CALL(modes, RECURRENCE, tl_tensor **b = glue_push_tensor(L), **lambda = glue_push_tensor(L);
          tl_tensor **decay = glue_push_tensor(L);
          glue_check(L, tl_recurrence_modes(r, b, lambda, decay)))

/* ---- Tables ---------------------------------------------------------------------------------- */

const luaL_Reg glue_recurrence_functions[] = {
    {"recurrence", core_recurrence}, {"relaxed_recurrence", core_relaxed},
    {"recurrence_of_modes", core_of_modes}, {NULL, NULL}};

static const luaL_Reg methods[] = {
    {"step", step},   {"fork", fork_of}, {"reset", reset},
    {"sizes", sizes}, {"modes", modes},  {NULL, NULL}};

const glue_class glue_recurrence_class = {"toeplab.recurrence", release_recurrence, methods, NULL};

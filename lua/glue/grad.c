/* grad.c - gradients in Lua: leaves, backward, and running without recording. */
#include "glue.h"

#define HEAP_KIB (8 << 10)  /* of Lua objects, which take some milliseconds to collect */
#define WORTH    (4 << 20)  /* bytes of tensors below which a collection frees too little */
#define SHARE    8          /* a collection waits until tensors have grown by 1/SHARE */

static int require_grad(lua_State *L)
{
    tl_tensor *t = glue_tensor(L, 1);
    glue_check(L, tl_set_requires_grad(t, lua_isnoneornil(L, 2) || lua_toboolean(L, 2)));
    lua_settop(L, 1);
    return 1;
}

static int requires_grad(lua_State *L)
{
    lua_pushboolean(L, tl_requires_grad(glue_tensor(L, 1)));
    return 1;
}

static int grad(lua_State *L)
{
    tl_tensor *t = glue_tensor(L, 1);
    if (!tl_grad(t)) {
        lua_pushnil(L);
        return 1;
    }
    tl_tensor **g = glue_push_tensor(L);
    *g = tl_tensor_retain(tl_grad(t));
    return 1;
}

static int set_grad(lua_State *L)
{
    tl_tensor *t = glue_tensor(L, 1);
    glue_check(L, tl_set_grad(t, glue_opt_tensor(L, 2)));
    return 0;
}

/* Collects garbage before backward. Tensors that the script no longer uses hold their memory
** until Lua collects them; if that happened only during the next forward pass, backward would
** need twice the memory. A large Lua heap takes too long to collect, and too few or hardly grown
** tensors are not worth it. */
static void collect_garbage(lua_State *L)
{
    /* its address is a registry key: the bytes live after the last collection */
    static const char after = 0;
    lua_Integer       live = (lua_Integer)tl_memory_info(glue_ctx(L)).live;
    (void)lua_rawgetp(L, LUA_REGISTRYINDEX, &after);
    lua_Integer left = lua_tointeger(L, -1);
    lua_pop(L, 1);
    if (live > WORTH && live > left + left / SHARE && lua_gc(L, LUA_GCCOUNT) < HEAP_KIB) {
        lua_gc(L, LUA_GCCOLLECT);
        live = (lua_Integer)tl_memory_info(glue_ctx(L)).live;
    } else if (live > left) {
        return;
    }
    lua_pushinteger(L, live);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &after);
}

static int backward(lua_State *L)
{
    collect_garbage(L);
    tl_tensor *dy = glue_opt_tensor(L, 2);
    if (dy)
        glue_check(L, tl_backward_from(glue_ctx(L), glue_tensor(L, 1), dy));
    else
        glue_check(L, tl_backward(glue_ctx(L), glue_tensor(L, 1)));
    return 0;
}

/* ---- Recording ------------------------------------------------------------------------------- */

static int record(tl_ctx *ctx, int on) { return tl_set_recording(ctx, on); }

static int no_grad(lua_State *L) { return glue_scope(L, 1, record, 0); }

static int recording(lua_State *L)
{
    int given = !lua_isnoneornil(L, 1);
    int was = tl_set_recording(glue_ctx(L), lua_toboolean(L, 1));
    if (!given) (void)tl_set_recording(glue_ctx(L), was);
    lua_pushboolean(L, was);
    return 1;
}

static int tape_clear(lua_State *L)
{
    tl_tape_clear(glue_ctx(L));
    return 0;
}

static int tape_length(lua_State *L)
{
    lua_pushinteger(L, tl_tape_len(glue_ctx(L)));
    return 1;
}

const luaL_Reg glue_grad_functions[] = {
    {"no_grad", no_grad},         {"recording", recording}, {"tape_clear", tape_clear},
    {"tape_length", tape_length}, {NULL, NULL},
};

const luaL_Reg glue_grad_methods[] = {
    {"require_grad", require_grad}, {"requires_grad", requires_grad}, {"grad", grad},
    {"set_grad", set_grad},         {"backward", backward},           {NULL, NULL},
};

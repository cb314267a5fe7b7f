/* grad.c - gradients in Lua: leaves, backward, and running without recording. */
#include <stdio.h>
#include <stdlib.h>

#include "rows.h"

#define HEAP_KIB          (8 << 10) /* of Lua objects, which take some milliseconds to collect */
#define MIN_GARBAGE_BYTES (4 << 20) /* bytes of tensors below which a collection frees too little */
#define GROWTH            8         /* a collection waits until tensors have grown by 1/GROWTH */

GLUE_CALL(require_grad, TENSOR(t), int on = lua_isnoneornil(L, 2) || lua_toboolean(L, 2);
          glue_check(L, tl_set_requires_grad(t, on)); lua_pushvalue(L, 1))
GLUE_CALL(requires_grad, TENSOR(t), lua_pushboolean(L, tl_requires_grad(t)))

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

GLUE_CALL(set_grad, TENSOR(t) OPTIONAL(g), glue_check(L, tl_set_grad(t, g)))

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
    if (live > MIN_GARBAGE_BYTES && live > left + left / GROWTH &&
        lua_gc(L, LUA_GCCOUNT) < HEAP_KIB) {
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
    if (dy && lua_toboolean(L, 3)) {
        tl_tensor *y = glue_tensor(L, 1);
        ((glue_box *)lua_touserdata(L, 2))->as.tensor = NULL; /* the pass owns dy now */
        glue_check(L, tl_backward_within(glue_ctx(L), y, dy));
    } else if (dy)
        glue_check(L, tl_backward_from(glue_ctx(L), glue_tensor(L, 1), dy));
    else
        glue_check(L, tl_backward(glue_ctx(L), glue_tensor(L, 1)));
    return 0;
}

/* gradients(y, x) -> the gradient, or (y, {x, ..}) -> {the gradients} */
static int gradients(lua_State *L)
{
    tl_tensor *y = glue_tensor(L, 1), *one[1], **xs = one;
    int        count = 1, list = lua_istable(L, 2);
    lua_settop(L, 2);
    if (list) xs = glue_tensors(L, 2, &count);
    else one[0] = glue_tensor(L, 2);
    tl_tensor **grads = lua_newuserdatauv(L, (size_t)count * sizeof *grads + 1, 0);
    lua_createtable(L, count, 0);
    glue_box **boxes = lua_newuserdatauv(L, (size_t)count * sizeof *boxes + 1, 0);
    lua_insert(L, -2);
    for (int i = 0; i < count; i++) {
        boxes[i] = glue_push(L, &glue_tensor_class);
        lua_rawseti(L, -2, i + 1);
    }
    glue_check(L, tl_gradients(glue_ctx(L), y, xs, count, grads));
    for (int i = 0; i < count; i++) boxes[i]->as.tensor = grads[i];
    if (!list) lua_rawgeti(L, -1, 1);
    return 1;
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

GLUE_CALL(tape_clear, , tl_tape_clear(glue_ctx(L)))
GLUE_CALL(tape_length, , lua_pushinteger(L, tl_tape_len(glue_ctx(L))))

/* ---- Functions of the script ----------------------------------------------------------------- */

/* The keeper is a userdata in the registry. It clears the tape before the Lua state ends, and its
** values are: the thread on which the engine calls backward functions, run_backward, and the error
** that it has raised, or no_error. */
#define KEEPER "toeplab.keeper"
enum { THREAD = 1, RUN, PENDING };

static const char keeper_key = 0; /* its address is the key of the keeper in the registry */

static void *no_error(void) { return (void *)&keeper_key; } /* because an error may be nil */

typedef struct own_func { /* belongs to a node of the tape */
    lua_State *thread;
    int        ref; /* of {backward, saved} in the registry */
    int        inputs, outputs;
    char       name[64];
} own_func;

typedef struct own_call {
    const own_func   *f;
    tl_tensor *const *dys;
    tl_tensor       **dxs;
} own_call;

void glue_grad_open(lua_State *L)
{
    /* what is on the tape refers to this Lua state */
    static const luaL_Reg meta[] = {{"__gc", tape_clear}, {NULL, NULL}};
    glue_metatable(L, KEEPER, meta, NULL);
}

/* Runs a backward function and stores its results. */
static int run_backward(lua_State *L)
{
    const own_call *call = lua_touserdata(L, 1);
    const own_func *f = call->f;
    lua_settop(L, 1);
    lua_rawgeti(L, LUA_REGISTRYINDEX, f->ref);
    lua_rawgeti(L, 2, 1);
    lua_rawgeti(L, 2, 2);
    luaL_checkstack(L, f->outputs + 1, "gradients");
    for (int i = 0; i < f->outputs; i++) {
        tl_tensor **dy = glue_push_tensor(L);
        *dy = tl_tensor_retain(call->dys[i]);
    }
    lua_call(L, f->outputs + 1, LUA_MULTRET);
    int given = lua_gettop(L) - 2;
    if (given != f->inputs)
        return luaL_error(L, "%s: backward returns %d values for %d inputs: return a gradient or "
                          "nil for each", f->name, given, f->inputs);
    for (int i = 0; i < given; i++) {
        tl_tensor *dx = glue_test_tensor(L, i + 3);
        if (!dx && lua_toboolean(L, i + 3))
            return luaL_error(L, "%s: value %d of backward is a %s, not a tensor or nil", f->name,
                              i + 1, luaL_typename(L, i + 3));
        call->dxs[i] = dx ? tl_tensor_retain(dx) : NULL;
    }
    return 0;
}

static tl_status call_backward(void *user, tl_tensor *const *dys, tl_tensor **out_dxs)
{
    own_func  *f = user;
    lua_State *L = f->thread;
    own_call   call = {f, dys, out_dxs};
    if (!lua_checkstack(L, 4)) return TL_ENOMEM;
    (void)lua_rawgetp(L, LUA_REGISTRYINDEX, &keeper_key);
    (void)lua_getiuservalue(L, -1, RUN);
    lua_pushlightuserdata(L, &call);
    int failed = lua_pcall(L, 1, 0, 0) != LUA_OK;
    if (failed) lua_setiuservalue(L, -2, PENDING);
    lua_pop(L, 1);
    return failed ? TL_EINVAL : TL_OK;
}

static void release_func(void *user)
{
    own_func *f = user;
    luaL_unref(f->thread, LUA_REGISTRYINDEX, f->ref);
    free(f);
}

static void push_keeper(lua_State *L)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &keeper_key) == LUA_TUSERDATA) return;
    lua_pop(L, 1);
    (void)lua_newuserdatauv(L, 0, PENDING);
    (void)lua_newthread(L);
    lua_setiuservalue(L, -2, THREAD);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushcclosure(L, run_backward, 1);
    lua_setiuservalue(L, -2, RUN);
    lua_pushlightuserdata(L, no_error());
    lua_setiuservalue(L, -2, PENDING);
    luaL_setmetatable(L, KEEPER);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &keeper_key);
}

void glue_raise_pending(lua_State *L)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &keeper_key) == LUA_TUSERDATA) {
        (void)lua_getiuservalue(L, -1, PENDING);
        int pending = lua_touserdata(L, -1) != no_error();
        lua_pushlightuserdata(L, no_error());
        lua_setiuservalue(L, -3, PENDING);
        if (pending) lua_error(L);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* Pushes a block with the tensors at first .. first+count-1, NULL for other values. */
static tl_tensor **tensors_at(lua_State *L, int first, int count)
{
    tl_tensor **list = lua_newuserdatauv(L, (size_t)count * sizeof *list + 1, 0);
    for (int i = 0; i < count; i++) list[i] = glue_test_tensor(L, first + i);
    return list;
}

/* Pushes a block with the tensors among the values of the table at arg. */
static tl_tensor **tensors_in(lua_State *L, int arg, int *out_count)
{
    int count = 0;
    for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1)) count++;
    tl_tensor **list = lua_newuserdatauv(L, (size_t)count * sizeof *list + 1, 0);
    count = 0;
    for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1))
        if ((list[count] = glue_test_tensor(L, -1))) count++;
    *out_count = count;
    return list;
}

/* Creates what the node keeps: backward, upvalue 4, and the table at saved. */
static own_func *own_func_new(lua_State *L, int saved, int inputs, int outputs)
{
    push_keeper(L);
    (void)lua_getiuservalue(L, -1, THREAD);
    lua_State *thread = lua_tothread(L, -1); /* which the keeper keeps */
    lua_pop(L, 2);
    lua_createtable(L, 2, 0);
    lua_pushvalue(L, lua_upvalueindex(4));
    lua_rawseti(L, -2, 1);
    lua_pushvalue(L, saved);
    lua_rawseti(L, -2, 2);
    int       ref = luaL_ref(L, LUA_REGISTRYINDEX);
    own_func *f = malloc(sizeof *f);
    if (!f) {
        luaL_unref(L, LUA_REGISTRYINDEX, ref);
        luaL_error(L, "out of memory");
    } else {
        *f = (own_func){.thread = thread, .ref = ref, .inputs = inputs, .outputs = outputs};
        (void)snprintf(f->name, sizeof f->name, "%s", lua_tostring(L, lua_upvalueindex(2)));
    }
    return f;
}

/* The function that func returns; upvalue 2 is its name, 3 forward, 4 backward. */
static int apply(lua_State *L)
{
    const char *name = lua_tostring(L, lua_upvalueindex(2));
    int         inputs = lua_gettop(L), saved = inputs + 1, kept;
    luaL_checkstack(L, inputs + LUA_MINSTACK, "arguments");
    lua_newtable(L);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushcclosure(L, no_grad, 1);
    lua_pushvalue(L, lua_upvalueindex(3));
    lua_pushvalue(L, saved);
    for (int i = 1; i <= inputs; i++) lua_pushvalue(L, i);
    lua_call(L, inputs + 2, LUA_MULTRET);
    int outputs = lua_gettop(L) - saved;
    luaL_checkstack(L, outputs + LUA_MINSTACK, "results");
    for (int i = 1; i <= outputs; i++)
        if (!glue_test_tensor(L, saved + i))
            return luaL_error(L, "%s: value %d of forward is a %s, not an open tensor", name, i,
                              luaL_typename(L, saved + i));
    if (outputs == 0) return luaL_error(L, "%s: forward returns no tensor", name);
    tl_tensor **xs = tensors_at(L, 1, inputs), **values = tensors_at(L, saved + 1, outputs);
    tl_tensor **keep = tensors_in(L, saved, &kept);
    tl_tensor **ys = lua_newuserdatauv(L, (size_t)outputs * sizeof *ys, 0);
    int first = lua_gettop(L) + 1;
    for (int i = 0; i < outputs; i++) (void)glue_push_tensor(L);
    own_func *f = own_func_new(L, saved, inputs, outputs);
    glue_check(L, tl_record_func(glue_ctx(L), &(tl_func){name, call_backward, release_func, f}, xs,
                                 inputs, keep, kept, values, outputs, ys));
    for (int i = 0; i < outputs; i++)
        ((glue_box *)lua_touserdata(L, first + i))->as.tensor = ys[i];
    return outputs;
}

/* func { [name =,] forward =, backward = } -> a function */
static int func(lua_State *L)
{
    static const char *const names[] = {"name", "forward", "backward", NULL};
    glue_known(L, 1, names);
    lua_settop(L, 1);
    lua_pushvalue(L, lua_upvalueindex(1));
    for (int i = 0; names[i]; i++) {
        int type = lua_getfield(L, 1, names[i]);
        if (i == 0 && type == LUA_TNIL) {
            lua_pop(L, 1);
            lua_pushliteral(L, "func");
        } else if (type != (i == 0 ? LUA_TSTRING : LUA_TFUNCTION)) {
            return glue_argerror(L, 1, "%s is a %s, not a %s", names[i], luaL_typename(L, -1),
                                 i == 0 ? "string" : "function");
        }
    }
    lua_pushcclosure(L, apply, 4);
    return 1;
}

const luaL_Reg glue_grad_functions[] = {
    {"grad", gradients},          {"func", func},
    {"no_grad", no_grad},         {"recording", recording}, {"tape_clear", tape_clear},
    {"tape_length", tape_length}, {NULL, NULL},
};

const luaL_Reg glue_grad_methods[] = {
    {"require_grad", require_grad}, {"requires_grad", requires_grad}, {"grad", grad},
    {"set_grad", set_grad},         {"backward", backward},           {NULL, NULL},
};

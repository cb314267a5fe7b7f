/* graph.c - captures GPU work as graphs and runs them again, in Lua. */
#include "rows.h"

static void release_graph(glue_box *b) { tl_graph_free(b->as.graph); }

/* Returns the random streams of the array at arg, in a block that is pushed. */
static tl_stream **streams(lua_State *L, int arg, int *out_count)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    int         count = (int)lua_rawlen(L, arg);
    tl_stream **list = lua_newuserdatauv(L, ((size_t)count + 1) * sizeof *list, 0);
    for (int i = 0; i < count; i++) { /* the array keeps them alive */
        (void)lua_rawgeti(L, arg, i + 1);
        list[i] = glue_test_stream(L, -1);
        if (!list[i]) glue_argerror(L, arg, "element %d is not a stream", i + 1);
        lua_pop(L, 1);
    }
    *out_count = count;
    return list;
}

/* Protected, with f and the graph as arguments: calls f and ends the capture. Garbage is
** collected before the end, so that the graph can reuse its memory. */
static int run_and_end_capture(lua_State *L)
{
    tl_graph *g = lua_touserdata(L, 2);
    int       count = 0;
    lua_pushvalue(L, 1);
    lua_call(L, 0, 1);
    tl_tensor **results = lua_isnil(L, 3) ? NULL : glue_tensors(L, 3, &count);
    lua_gc(L, LUA_GCCOLLECT);
    glue_check(L, tl_graph_end(g, results, count));
    return 0;
}

/* capture(streams, f) -> the GPU work that f() launches, as a graph that has not run; nil and
** the error if f raised one or the capture failed. Raises if no capture can begin. f returns the
** list of its results, or nothing. */
static int capture(lua_State *L)
{
    int         count;
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    tl_stream **list = streams(L, 1, &count);
    glue_box   *box = glue_push(L, &glue_graph_class);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushcclosure(L, run_and_end_capture, 1);
    lua_pushvalue(L, 2);
    lua_gc(L, LUA_GCCOLLECT); /* older garbage would hold its memory during the capture */
    glue_check(L, tl_graph_begin(glue_ctx(L), list, count, &box->as.graph));
    lua_pushlightuserdata(L, box->as.graph);
    if (lua_pcall(L, 2, 0, 0) == LUA_OK) return 1;
    tl_graph_free(box->as.graph);
    box->as.graph = NULL;
    lua_gc(L, LUA_GCCOLLECT); /* frees the tensors that the failed capture made */
    lua_pushnil(L);
    lua_insert(L, -2);
    return 2;
}

/* g:run(streams) -> whether it ran; false: the work has to be captured again */
static int graph_run(lua_State *L)
{
    tl_graph   *g = glue_open_box(L, 1, &glue_graph_class)->as.graph;
    int         count, ran = 0;
    tl_stream **list = streams(L, 2, &count);
    glue_check(L, tl_graph_run(g, list, count, &ran));
    lua_pushboolean(L, ran);
    return 1;
}

/* has_graphs() -> whether the device can capture work */
GLUE_CALL(has_graphs, , lua_pushboolean(L, tl_has_graphs(glue_ctx(L))))

static const luaL_Reg methods[] = {{"run", graph_run}, {NULL, NULL}};
const glue_class glue_graph_class = {"toeplab.graph", release_graph, methods, NULL};
const luaL_Reg glue_graph_functions[] = {
    {"capture", capture}, {"has_graphs", has_graphs}, {NULL, NULL}};

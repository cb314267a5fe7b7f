/* module.c - the module toeplab.core as a C library, by which any interpreter of Lua 5.4 has
** require "toeplab". The program preloads the module and does not use this file.
**
** It reads the environment variables TOEPLAB_THREADS and TOEPLAB_DEVICE, as `toeplab lua` does. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "glue.h"

#define CONTEXT "toeplab.context"

/* Implements __gc. Lua finalises this object last, because it is older than any of the engine. */
static int free_context(lua_State *L)
{
    tl_ctx **box = lua_touserdata(L, 1);
    tl_ctx_free(*box);
    *box = NULL;
    return 0;
}

/* Returns the context of this Lua state, which the registry holds until the state is closed. */
static tl_ctx *open_context(lua_State *L)
{
    if (lua_getfield(L, LUA_REGISTRYINDEX, CONTEXT) == LUA_TUSERDATA)
        return *(tl_ctx **)lua_touserdata(L, -1);
    const char *text = getenv("TOEPLAB_THREADS"), *device = getenv("TOEPLAB_DEVICE");
    int         threads = text && *text ? glue_threads(text) : 0;
    if (threads < 0) luaL_error(L, "TOEPLAB_THREADS: " GLUE_THREADS_ERROR, text);
    tl_ctx **box = lua_newuserdatauv(L, sizeof *box, 0);
    *box = NULL;
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, free_context);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    tl_status st = tl_ctx_new(threads, box);
    if (st != TL_OK) luaL_error(L, "cannot start the engine: %s", tl_status_text(st));
    /* before the first tensor */
    if (device && *device && tl_set_device(*box, device) != TL_OK)
        luaL_error(L, "TOEPLAB_DEVICE: %s", tl_errmsg(*box));
    lua_setfield(L, LUA_REGISTRYINDEX, CONTEXT);
    return *box;
}

/* Pushes the path of the program, PREFIX/bin/toeplab, where PREFIX holds the nearest folder above
** the module (links resolved) that is named lib or lib64; false if it is not there. */
static void push_program(lua_State *L, const char *file)
{
    char folder[PATH_MAX], program[PATH_MAX + sizeof "/bin/toeplab"];
    if (file && realpath(file, folder)) {
        char *slash = strrchr(folder, '/');
        for (; slash; slash = strrchr(folder, '/')) {
            *slash = '\0';
            if (!strcmp(slash + 1, "lib") || !strcmp(slash + 1, "lib64")) break;
        }
        (void)snprintf(program, sizeof program, "%s/bin/toeplab", folder);
        if (slash && access(program, X_OK) == 0) {
            lua_pushstring(L, program);
            return;
        }
    }
    lua_pushboolean(L, 0);
}

/* Called by require, with the name of the module and its file. */
__attribute__((visibility("default"))) int luaopen_toeplab_core(lua_State *L);
int luaopen_toeplab_core(lua_State *L)
{
    luaL_checkversion(L);
    tl_ctx *ctx = open_context(L);
    push_program(L, lua_tostring(L, 2));
    lua_setfield(L, LUA_REGISTRYINDEX, GLUE_PROGRAM);
    lua_pushlightuserdata(L, ctx);
    lua_pushcclosure(L, glue_core_open, 1);
    lua_call(L, 0, 1);
    return 1;
}

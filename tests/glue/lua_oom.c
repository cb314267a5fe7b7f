/* lua_oom.c - memory runs out at every allocation in turn, Lua's and the engine's: each time there
** is an error and nothing is left over, and with enough memory the script runs. One refusal is not
** enough, as Lua collects its garbage and tries again: after the n-th allocation all are refused.
**
**   lua_oom SCRIPT [DEVICE]      the script is given the name of an empty folder */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "glue.h"
#include "test.h"

#define LIMIT 20000 /* allocations that no script here comes near */

typedef struct meter {
    int64_t left;  /* allocations still granted */
    size_t  bytes; /* in use */
} meter;

static void *counted(void *user, void *p, size_t old_size, size_t new_size)
{
    meter *m = user;
    size_t had = p ? old_size : 0;
    if (new_size == 0) {
        m->bytes -= had;
        free(p);
        return NULL;
    }
    if (new_size > had && m->left-- <= 0) { /* Lua relies on it that a block can shrink */
        m->left = 0;
        return NULL;
    }
    void *q = realloc(p, new_size);
    if (q) m->bytes += new_size - had;
    return q;
}

/* Protected: the context, the script and the folder that it is given. */
static int run(lua_State *L)
{
    luaL_openlibs(L);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushvalue(L, 1);
    lua_pushcclosure(L, glue_core_open, 1);
    lua_setfield(L, -2, "toeplab.core");
    if (luaL_loadfile(L, lua_touserdata(L, 2)) != LUA_OK) lua_error(L);
    lua_pushstring(L, lua_touserdata(L, 3));
    lua_call(L, 1, 0);
    return 0;
}

static tl_ctx     *ctx;
static const char *script;
static char        folder[] = "/tmp/toeplab-oom-XXXXXX";

/* Runs the script where Lua may allocate n times; returns whether it ran to its end. */
static int runs(int64_t n, char *message, size_t size)
{
    meter      m = {.left = n};
    lua_State *L = lua_newstate(counted, &m);
    int        fine = 0;
    (void)snprintf(message, size, "no state");
    if (L) {
        lua_pushcfunction(L, run);
        lua_pushlightuserdata(L, ctx);
        lua_pushlightuserdata(L, (void *)script);
        lua_pushlightuserdata(L, folder);
        fine = lua_pcall(L, 3, 0, 0) == LUA_OK;
        m.left = INT64_MAX; /* for the text of an error object */
        (void)snprintf(message, size, "%s", fine ? "" : luaL_tolstring(L, -1, NULL));
        lua_close(L);
    }
    (void)tl_set_recording(ctx, 1);
    tl_tape_clear(ctx);
    CHECK(m.bytes == 0);
    return fine;
}

/* Whether message says that memory ran out, and nothing else. */
static int is_memory(const char *message)
{
    return strstr(message, "memory") != NULL || strcmp(message, "no state") == 0;
}

static void sweep_lua(void)
{
    char    message[512] = "";
    int64_t n = 0, tensors = tl_memory_info(ctx).tensors;
    while (n < LIMIT && !runs(n, message, sizeof message)) {
        CHECK(is_memory(message));
        CHECK(tl_memory_info(ctx).tensors == tensors);
        if (test_failures) break;
        n++;
    }
    CHECK(tl_memory_info(ctx).tensors == tensors);
    CHECK(n > 100 && n < LIMIT);
    printf("  runs with %lld allocations of Lua, fails cleanly with fewer%s%s\n", (long long)n,
           *message ? ": " : "", message);
}

static void sweep_engine(void)
{
    char    message[512] = "";
    int64_t n = 0, tensors = tl_memory_info(ctx).tensors;
    for (;; n++) {
        tl_alloc_fail_after(ctx, n);
        int fine = runs(INT64_MAX, message, sizeof message);
        tl_alloc_fail_after(ctx, -1);
        CHECK(tl_memory_info(ctx).tensors == tensors);
        if (fine) break;
        CHECK(is_memory(message));
        if (test_failures || n == LIMIT) break;
    }
    CHECK(n > 2 && n < LIMIT);
    printf("  runs with %lld allocations of the engine, fails cleanly with fewer%s%s\n",
           (long long)n, *message ? ": " : "", message);
}

/* Without this a script that fails for another reason would be swept in vain. */
static void runs_whole(void)
{
    char message[512];
    CHECK(runs(INT64_MAX, message, sizeof message));
    if (*message) printf("  %s\n", message);
}

static void empty_folder(void)
{
    char command[sizeof folder + 16];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) printf("  %s is left behind\n", folder);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3 || !mkdtemp(folder) || tl_ctx_new(1, &ctx) != TL_OK) {
        printf("usage: lua_oom SCRIPT [DEVICE]\n");
        return 2;
    }
    if (argc > 2 && tl_set_device(ctx, argv[2]) != TL_OK) {
        printf("%s\n", tl_errmsg(ctx));
        return 2;
    }
    script = argv[1];
    int failed = run_tests((const test[]){{"the script runs", runs_whole},
                                          {"Lua runs out of memory", sweep_lua},
                                          {"the engine runs out of memory", sweep_engine},
                                          {0}});
    tl_ctx_free(ctx);
    empty_folder();
    return failed;
}

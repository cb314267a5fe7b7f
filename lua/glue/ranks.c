/* ranks.c - groups of processes in Lua. Ranks count from 0, as MPI counts them. */
#include <limits.h>
#include <string.h>

#include "glue.h"

static void release_ranks(glue_box *b) { tl_ranks_free(b->as.ranks); }

static tl_ranks *ranks(lua_State *L) { return glue_open_box(L, 1, &glue_ranks_class)->as.ranks; }

/* ranks_file([name]) -> the path of the shared object for groups, "mpi", or "nccl"; nil and why
** there is none */
static int ranks_file(lua_State *L)
{
    char      path[PATH_MAX];
    tl_status st = tl_ranks_file(glue_ctx(L), luaL_optstring(L, 1, "mpi"), path, sizeof path);
    if (st == TL_ENOTFOUND) {
        lua_pushnil(L);
        lua_pushstring(L, tl_errmsg(glue_ctx(L)));
        return 2;
    }
    glue_check(L, st);
    lua_pushstring(L, path);
    return 1;
}

/* ranks_open() -> the group of all processes that were started together */
static int ranks_open(lua_State *L)
{
    glue_box *b = glue_push(L, &glue_ranks_class);
    glue_check(L, tl_ranks_open(glue_ctx(L), &b->as.ranks));
    return 1;
}

static int split(lua_State *L)
{
    tl_ranks *r = ranks(L);
    int       colour = glue_int(L, 2, 0, INT_MAX);
    glue_box *b = glue_push(L, &glue_ranks_class);
    glue_check(L, tl_ranks_split(r, colour, &b->as.ranks));
    return 1;
}

static int rank(lua_State *L)
{
    lua_pushinteger(L, tl_ranks_rank(ranks(L)));
    return 1;
}

static int size(lua_State *L)
{
    lua_pushinteger(L, tl_ranks_size(ranks(L)));
    return 1;
}

/* r:link() -> "nccl"; nil if tensors go through the memory of the CPU */
static int link_name(lua_State *L)
{
    const char *name = tl_ranks_link(ranks(L));
    lua_pushstring(L, name); /* NULL: nil */
    return 1;
}

static int end_all(lua_State *L)
{
    tl_ranks_end_all(ranks(L), glue_opt_int(L, 2, 1, 0, 255));
    return 0;
}

static int barrier(lua_State *L)
{
    glue_check(L, tl_ranks_barrier(ranks(L)));
    return 0;
}

static int broadcast(lua_State *L)
{
    glue_check(L, tl_ranks_broadcast(ranks(L), glue_int(L, 2, 0, INT_MAX), glue_tensor(L, 3)));
    return 0;
}

/* r:text(root, text) -> the text that rank root has given; the others' argument is not read */
static int text(lua_State *L)
{
    tl_ranks   *r = ranks(L);
    int         root = glue_int(L, 2, 0, INT_MAX), own = tl_ranks_rank(r) == root;
    size_t      bytes = 0;
    const char *given = own ? luaL_checklstring(L, 3, &bytes) : NULL;
    if (bytes > INT_MAX) glue_argerror(L, 3, "a text of %I bytes", (lua_Integer)bytes);
    int32_t     length = (int32_t)bytes;
    glue_check(L, tl_ranks_broadcast_words(r, root, &length, 1));
    size_t   words = ((size_t)length + 3) / 4;
    int32_t *block = lua_newuserdatauv(L, (words + 1) * sizeof *block, 0);
    block[words > 0 ? words - 1 : 0] = 0;
    if (own) memcpy(block, given, bytes);
    glue_check(L, tl_ranks_broadcast_words(r, root, block, (int64_t)words));
    lua_pushlstring(L, (const char *)block, (size_t)length);
    return 1;
}

static int sum(lua_State *L)
{
    glue_check(L, tl_ranks_sum(ranks(L), glue_tensor(L, 2)));
    return 0;
}

/* r:send_word(to, tag, word) */
static int send_word(lua_State *L)
{
    glue_check(L, tl_ranks_send_word(ranks(L), glue_int(L, 2, 0, INT_MAX),
                                     glue_int(L, 3, 1, 32767), glue_int(L, 4, INT_MIN, INT_MAX)));
    return 0;
}

/* r:take_word(from, tag) -> the word, nil if none has arrived */
static int take_word(lua_State *L)
{
    int     there = 0;
    int32_t word = 0;
    glue_check(L, tl_ranks_take_word(ranks(L), glue_int(L, 2, 0, INT_MAX),
                                     glue_int(L, 3, 1, 32767), &there, &word));
    if (there) lua_pushinteger(L, word);
    else lua_pushnil(L);
    return 1;
}

/* r:send(to, tag, tensor) */
static int send(lua_State *L)
{
    glue_check(L, tl_ranks_send(ranks(L), glue_int(L, 2, 0, INT_MAX), glue_int(L, 3, 1, 32767),
                                glue_tensor(L, 4)));
    return 0;
}

/* r:receive(from, tag, tensor) */
static int receive(lua_State *L)
{
    glue_check(L, tl_ranks_receive(ranks(L), glue_int(L, 2, 0, INT_MAX), glue_int(L, 3, 1, 32767),
                                   glue_tensor(L, 4)));
    return 0;
}

static int to_channels(lua_State *L)
{
    tl_ranks   *r = ranks(L);
    tl_tensor  *x = glue_tensor(L, 2);
    tl_tensor **y = glue_push_tensor(L);
    return glue_result(L, tl_ranks_to_channels(r, x, y));
}

static int to_tokens(lua_State *L)
{
    tl_ranks   *r = ranks(L);
    tl_tensor  *y = glue_tensor(L, 2);
    tl_tensor **x = glue_push_tensor(L);
    return glue_result(L, tl_ranks_to_tokens(r, y, x));
}

/* r:backward(loss, leaves, from, to), with nil for no loss or no rank */
static int backward(lua_State *L)
{
    tl_ranks   *r = ranks(L);
    tl_tensor  *loss = glue_opt_tensor(L, 2);
    int         from = glue_opt_int(L, 4, -1, -1, INT_MAX);
    int         to = glue_opt_int(L, 5, -1, -1, INT_MAX);
    int         count;
    tl_tensor **leaves = glue_tensors(L, 3, &count);
    glue_check(L, tl_ranks_backward(r, loss, leaves, count, from, to));
    return 0;
}

static int finish(lua_State *L)
{
    glue_check(L, tl_ranks_finish(ranks(L)));
    return 0;
}

static const luaL_Reg methods[] = {
    {"rank", rank},           {"size", size},           {"split", split},
    {"link", link_name},
    {"end_all", end_all},     {"barrier", barrier},     {"broadcast", broadcast},
    {"text", text},           {"sum", sum},             {"send_word", send_word},
    {"take_word", take_word}, {"send", send},           {"receive", receive},
    {"to_channels", to_channels}, {"to_tokens", to_tokens}, {"backward", backward},
    {"finish", finish},       {NULL, NULL},
};

const glue_class glue_ranks_class = {"toeplab.ranks", release_ranks, methods, NULL};

const luaL_Reg glue_ranks_functions[] = {
    {"ranks_file", ranks_file}, {"ranks_open", ranks_open}, {NULL, NULL}};

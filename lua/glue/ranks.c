/* ranks.c - groups of processes in Lua. Ranks count from 0, as MPI counts them. */
#include <limits.h>
#include <string.h>

#include "rows.h"

static void release_ranks(glue_box *b) { tl_ranks_free(b->as.ranks); }

#define RANKS     BOXED(tl_ranks, r, glue_ranks_class, ranks)
#define RANK(name) INT(name, 0, INT_MAX)
#define TAG(name) INT(name, 1, 32767)

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
GLUE_NEW(ranks_open, , glue_ranks_class, tl_ranks_open(glue_ctx(L), &b->as.ranks))
GLUE_NEW(split, RANKS INT(colour, 0, INT_MAX), glue_ranks_class,
         tl_ranks_split(r, colour, &b->as.ranks))
GLUE_CALL(rank, RANKS, lua_pushinteger(L, tl_ranks_rank(r)))
GLUE_CALL(size, RANKS, lua_pushinteger(L, tl_ranks_size(r)))

/* r:link() -> "nccl"; NULL, nil in Lua, if tensors go through the memory of the CPU */
GLUE_CALL(link_name, RANKS, lua_pushstring(L, tl_ranks_link(r)))
GLUE_CALL(end_all, RANKS, tl_ranks_end_all(r, glue_opt_int(L, 2, 1, 0, 255)))
GLUE_CALL(barrier, RANKS, glue_check(L, tl_ranks_barrier(r)))
GLUE_CALL(broadcast, RANKS RANK(root) TENSOR(t), glue_check(L, tl_ranks_broadcast(r, root, t)))

/* r:text(root, text) -> the text that rank root has given; the others' argument is not read */
static int text(lua_State *L)
{
    int         arg = 0;
    RANKS
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

GLUE_CALL(sum, RANKS TENSOR(t), glue_check(L, tl_ranks_sum(r, t)))

/* r:send_word(to, tag, word) */
GLUE_CALL(send_word, RANKS RANK(to) TAG(tag) INT(word, INT_MIN, INT_MAX),
          glue_check(L, tl_ranks_send_word(r, to, tag, word)))

/* r:take_word(from, tag) -> the word, nil if none has arrived */
GLUE_CALL(take_word, RANKS RANK(from) TAG(tag), int there = 0; int32_t word = 0;
          glue_check(L, tl_ranks_take_word(r, from, tag, &there, &word));
          if (there) lua_pushinteger(L, word); else lua_pushnil(L))

/* r:send(to, tag, tensor) */
GLUE_CALL(send, RANKS RANK(to) TAG(tag) TENSOR(t), glue_check(L, tl_ranks_send(r, to, tag, t)))

/* r:receive(from, tag, tensor) */
GLUE_CALL(receive, RANKS RANK(from) TAG(tag) TENSOR(t),
          glue_check(L, tl_ranks_receive(r, from, tag, t)))
GLUE_FUNCTION(to_channels, RANKS TENSOR(x), tl_ranks_to_channels(r, x, y))
GLUE_FUNCTION(to_tokens, RANKS TENSOR(x), tl_ranks_to_tokens(r, x, y))

/* r:backward(loss, leaves, from, to), with nil for no loss or no rank */
static int backward(lua_State *L)
{
    int         arg = 0;
    RANKS
    tl_tensor  *loss = glue_opt_tensor(L, 2);
    int         from = glue_opt_int(L, 4, -1, -1, INT_MAX);
    int         to = glue_opt_int(L, 5, -1, -1, INT_MAX);
    int         count;
    tl_tensor **leaves = glue_tensors(L, 3, &count);
    glue_check(L, tl_ranks_backward(r, loss, leaves, count, from, to));
    return 0;
}

GLUE_CALL(finish, RANKS, glue_check(L, tl_ranks_finish(r)))

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

/* listops.c - generates examples of ListOps (Nangia and Bowman, 2018), in Lua. */
#include "rows.h"

static int small(int64_t value)
{
    return value < -1 ? -1 : value > INT32_MAX ? INT32_MAX : (int)value;
}

/* listops{seed=, count=, min_length=, max_length=, max_depth=, max_args=}: ids, starts, answers */
static int listops(lua_State *L)
{
    static const char *const known[] = {"seed",       "count",     "min_length",
                                        "max_length", "max_depth", "max_args", NULL};
    const int64_t ten = 10;
    glue_known(L, 1, known);
    tl_listops o = {
        .bytes = sizeof o,
        .seed = (uint64_t)glue_integer_field(L, 1, "seed", NULL),
        .count = glue_integer_field(L, 1, "count", NULL),
        .min_length = glue_integer_field(L, 1, "min_length", NULL),
        .max_length = glue_integer_field(L, 1, "max_length", NULL),
        .max_depth = small(glue_integer_field(L, 1, "max_depth", &ten)),
        .max_args = small(glue_integer_field(L, 1, "max_args", &ten)),
    };
    tl_tensor **starts = glue_push_tensor(L), **answers = glue_push_tensor(L);
    tl_tensor **ids = glue_push_tensor(L); /* the largest, whose memory glue_result reports */
    glue_result(L, tl_listops_draw(glue_ctx(L), &o, ids, starts, answers));
    lua_rotate(L, -3, 1);
    return 3;
}

GLUE_FUNCTION(listops_parse, TEXT(text, bytes), tl_listops_parse(glue_ctx(L), text, bytes, y))

/* Returns the part of the ids at argument 1 that begins at argument 2 (from 0) and has as many
** elements as argument 3 says. */
static tl_tensor *expression(lua_State *L, int64_t *first, int64_t *n)
{
    tl_tensor *ids = glue_tensor(L, 1);
    *first = luaL_optinteger(L, 2, 0);
    luaL_argcheck(L, *first >= 0, 2, "positions begin at 0");
    *n = luaL_optinteger(L, 3, tl_tensor_len(ids) - *first);
    return ids;
}

GLUE_CALL(listops_value, int64_t first; int64_t n; tl_tensor *ids = expression(L, &first, &n);,
          int value; glue_check(L, tl_listops_value(ids, first, n, &value));
          lua_pushinteger(L, value))

static int listops_text(lua_State *L)
{
    luaL_Buffer text;
    size_t bytes;
    int64_t first, n;
    tl_tensor *ids = expression(L, &first, &n);
    glue_check(L, tl_listops_text(ids, first, n, NULL, 0, &bytes));
    char *at = luaL_buffinitsize(L, &text, bytes);
    glue_check(L, tl_listops_text(ids, first, n, at, bytes, &bytes));
    luaL_pushresultsize(&text, bytes);
    return 1;
}

const luaL_Reg glue_listops_functions[] = {
    {"listops", listops},
    {"listops_parse", listops_parse},
    {"listops_value", listops_value},
    {"listops_text", listops_text},
    {NULL, NULL},
};

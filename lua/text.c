/* text.c - vocabularies, windows of a token stream and n-gram models in Lua. */
#include "glue.h"

static void release(glue_box *b) { tl_vocab_free(b->as.vocab); }

static tl_vocab *vocab(lua_State *L) { return glue_open_box(L, 1, &glue_vocab_class)->as.vocab; }

static int vocab_bytes(lua_State *L)
{
    glue_box *b = glue_push(L, &glue_vocab_class);
    glue_check(L, tl_vocab_bytes(glue_ctx(L), &b->as.vocab));
    return 1;
}

static int vocab_chars(lua_State *L)
{
    size_t      bytes;
    const char *text = luaL_checklstring(L, 1, &bytes);
    glue_box   *b = glue_push(L, &glue_vocab_class);
    glue_check(L, tl_vocab_chars(glue_ctx(L), text, bytes, &b->as.vocab));
    return 1;
}

static int size(lua_State *L)
{
    lua_pushinteger(L, tl_vocab_size(vocab(L)));
    return 1;
}

static int token(lua_State *L)
{
    tl_vocab   *v = vocab(L);
    size_t      bytes;
    const char *text = tl_vocab_token(v, glue_int(L, 2, INT32_MIN, INT32_MAX), &bytes);
    if (text) {
        lua_pushlstring(L, text, bytes);
    } else {
        lua_pushnil(L);
    }
    return 1;
}

static int encode(lua_State *L)
{
    tl_vocab   *v = vocab(L);
    size_t      bytes;
    const char *text = luaL_checklstring(L, 2, &bytes);
    tl_tensor **ids = glue_push_tensor(L);
    return glue_result(L, tl_vocab_encode(v, text, bytes, ids));
}

/* Id number i (from 0) of the int32 tensor or the table of integers at argument 2. */
static lua_Integer id_at(lua_State *L, const int32_t *ids, int64_t i)
{
    int         whole;
    lua_Integer id;
    if (ids) return ids[i];
    lua_rawgeti(L, 2, i + 1);
    id = lua_tointegerx(L, -1, &whole);
    if (!whole) glue_argerror(L, 2, "id %I is a %s", (long long)i + 1, luaL_typename(L, -1));
    lua_pop(L, 1);
    return id;
}

static int decode(lua_State *L)
{
    tl_vocab      *v = vocab(L);
    const int32_t *ids = NULL;
    int64_t        count;
    luaL_Buffer    text;
    if (glue_is_tensor(L, 2)) {
        tl_tensor *t = glue_tensor(L, 2);
        ids = tl_tensor_ci32(t);
        count = tl_tensor_len(t);
        luaL_argcheck(L, ids, 2, "ids are int32");
    } else {
        luaL_checktype(L, 2, LUA_TTABLE);
        count = (int64_t)lua_rawlen(L, 2);
    }
    luaL_buffinit(L, &text);
    for (int64_t i = 0; i < count; i++) {
        size_t      bytes = 0;
        lua_Integer id = id_at(L, ids, i);
        int         fits = id >= 0 && id < tl_vocab_size(v);
        const char *s = fits ? tl_vocab_token(v, (int32_t)id, &bytes) : NULL;
        if (!s) glue_argerror(L, 2, "id %I is not in 0..%d", id, tl_vocab_size(v) - 1);
        luaL_addlstring(&text, s, bytes);
    }
    luaL_pushresult(&text);
    return 1;
}

static int windows(lua_State *L)
{
    tl_tensor  *ids = glue_tensor(L, 1), *starts = glue_tensor(L, 2);
    lua_Integer n = luaL_checkinteger(L, 3);
    tl_tensor **rows = glue_push_tensor(L);
    return glue_result(L, tl_windows(ids, starts, n, rows));
}

static int ngram_bits(lua_State *L)
{
    tl_tensor *train = glue_tensor(L, 1), *test = glue_tensor(L, 2);
    int        order = glue_int(L, 3, 0, INT32_MAX), size_v = glue_int(L, 4, 1, INT32_MAX);
    double     bits;
    glue_check(L, tl_ngram_bits(train, test, order, size_v, &bits));
    lua_pushnumber(L, bits);
    return 1;
}

const luaL_Reg glue_text_functions[] = {
    {"vocab_bytes", vocab_bytes}, {"vocab_chars", vocab_chars}, {"windows", windows},
    {"ngram_bits", ngram_bits},   {NULL, NULL},
};

static const luaL_Reg methods[] = {
    {"size", size}, {"token", token}, {"encode", encode}, {"decode", decode}, {NULL, NULL}};

const glue_class glue_vocab_class = {"toeplab.vocab", release, methods, NULL};

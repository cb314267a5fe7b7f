/* text.c - vocabularies, encoders and counters, windows of token streams and n-gram models, in
** Lua. */
#include "glue.h"

static void release_vocab(glue_box *b) { tl_vocab_free(b->as.vocab); }

static tl_vocab *vocab(lua_State *L) { return glue_open_box(L, 1, &glue_vocab_class)->as.vocab; }

static int vocab_bytes(lua_State *L)
{
    glue_box *b = glue_push(L, &glue_vocab_class);
    glue_check(L, tl_vocab_new_bytes(glue_ctx(L), &b->as.vocab));
    return 1;
}

static int vocab_chars(lua_State *L)
{
    size_t      bytes;
    const char *text = luaL_checklstring(L, 1, &bytes);
    glue_box   *b = glue_push(L, &glue_vocab_class);
    glue_check(L, tl_vocab_new_chars(glue_ctx(L), text, bytes, &b->as.vocab));
    return 1;
}

static int vocab_frequent(lua_State *L)
{
    size_t bytes;
    const char *text = luaL_checklstring(L, 1, &bytes);
    lua_Integer least = luaL_checkinteger(L, 2);
    glue_box *b = glue_push(L, &glue_vocab_class);
    glue_check(L, tl_vocab_new_frequent(glue_ctx(L), text, bytes, least, &b->as.vocab));
    return 1;
}

static int vocab_bpe(lua_State *L)
{
    const char *merges = luaL_checkstring(L, 1), *encoder = luaL_optstring(L, 2, NULL);
    const char *dictionary = luaL_optstring(L, 3, NULL);
    glue_box   *b = glue_push(L, &glue_vocab_class);
    glue_check(L, tl_vocab_new_bpe(glue_ctx(L), merges, encoder, dictionary, &b->as.vocab));
    return 1;
}

static int size(lua_State *L)
{
    lua_pushinteger(L, tl_vocab_size(vocab(L)));
    return 1;
}

/* v:eos() -> the id of the token that ends a line, or nil */
static int eos(lua_State *L)
{
    int32_t id = tl_vocab_eos(vocab(L));
    if (id < 0) {
        lua_pushnil(L);
    } else {
        lua_pushinteger(L, id);
    }
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

/* Returns id number i (from 0) of the int32 tensor or the table of integers at argument 2. */
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
        luaL_argcheck(L, tl_tensor_type(t) == TL_I32, 2, "ids are int32");
        ids = glue_elements(L, t);
        count = tl_tensor_len(t);
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

/* ---- Texts in parts -------------------------------------------------------------------------- */

static void release_encoder(glue_box *b) { tl_encoder_free(b->as.encoder); }

static tl_encoder *encoder(lua_State *L)
{
    return glue_open_box(L, 1, &glue_encoder_class)->as.encoder;
}

static int new_encoder(lua_State *L)
{
    tl_vocab *v = vocab(L);
    glue_box *b = glue_push(L, &glue_encoder_class);
    glue_check(L, tl_encoder_new(v, &b->as.encoder));
    return 1;
}

static int encoder_feed(lua_State *L)
{
    tl_encoder *e = encoder(L);
    size_t      bytes;
    const char *text = luaL_checklstring(L, 2, &bytes);
    glue_check(L, tl_encoder_feed(e, text, bytes));
    return 0;
}

static int encoder_count(lua_State *L)
{
    lua_pushinteger(L, tl_encoder_count(encoder(L)));
    return 1;
}

static int encoder_finish(lua_State *L)
{
    tl_encoder *e = encoder(L);
    tl_tensor **ids = glue_push_tensor(L);
    return glue_result(L, tl_encoder_finish(e, ids));
}

static void release_counter(glue_box *b) { tl_counter_free(b->as.counter); }

static tl_counter *counter(lua_State *L)
{
    return glue_open_box(L, 1, &glue_counter_class)->as.counter;
}

static int new_counter(lua_State *L)
{
    static const char *const kinds[] = {"words", "pieces", NULL};
    static const tl_counter_kind values[] = {TL_COUNT_WORDS, TL_COUNT_PIECES};
    tl_counter_kind kind = values[luaL_checkoption(L, 1, NULL, kinds)];
    glue_box       *b = glue_push(L, &glue_counter_class);
    glue_check(L, tl_counter_new(glue_ctx(L), kind, &b->as.counter));
    return 1;
}

static int counter_feed(lua_State *L)
{
    tl_counter *c = counter(L);
    size_t      bytes;
    const char *text = luaL_checklstring(L, 2, &bytes);
    glue_check(L, tl_counter_feed(c, text, bytes));
    return 0;
}

static int counter_size(lua_State *L)
{
    lua_pushinteger(L, tl_counter_size(counter(L)));
    return 1;
}

static int vocab_words(lua_State *L)
{
    tl_counter *c = counter(L);
    glue_box   *b = glue_push(L, &glue_vocab_class);
    glue_check(L, tl_vocab_new_words(c, &b->as.vocab));
    return 1;
}

static int bpe_train(lua_State *L)
{
    tl_counter *c = counter(L);
    int         tokens = glue_int(L, 2, 0, INT32_MAX);
    glue_check(L, tl_bpe_train(c, tokens, luaL_checkstring(L, 3)));
    return 0;
}

/* ---- Ids ------------------------------------------------------------------------------------- */

/* padded(ids, starts, index, n, end or nil, pad) -> rows, lengths */
static int padded(lua_State *L)
{
    tl_tensor *ids = glue_tensor(L, 1), *starts = glue_tensor(L, 2), *index = glue_tensor(L, 3);
    lua_Integer n = luaL_checkinteger(L, 4);
    int end = lua_isnoneornil(L, 5) ? -1 : glue_int(L, 5, 0, INT32_MAX);
    int pad = glue_opt_int(L, 6, 0, 0, INT32_MAX);
    tl_tensor **lengths = glue_push_tensor(L), **rows = glue_push_tensor(L);
    glue_result(L, tl_pad_rows(ids, starts, index, n, end, pad, rows, lengths));
    lua_rotate(L, -2, 1);
    return 2;
}

/* ngram_bits(train, test, order, v [, smoothing]) -> bits */
static int ngram_bits(lua_State *L)
{
    static const char *const names[] = {"witten-bell", "kneser-ney", NULL};
    tl_tensor *train = glue_tensor(L, 1), *test = glue_tensor(L, 2);
    int        order = glue_int(L, 3, 0, INT32_MAX), size_v = glue_int(L, 4, 1, INT32_MAX);
    int        smoothing = luaL_checkoption(L, 5, names[TL_WITTEN_BELL], names);
    double     bits;
    glue_check(L, tl_ngram_bits(train, test, order, size_v, (tl_smoothing)smoothing, &bits));
    lua_pushnumber(L, bits);
    return 1;
}

const luaL_Reg glue_text_functions[] = {
    {"vocab_bytes", vocab_bytes}, {"vocab_chars", vocab_chars}, {"vocab_words", vocab_words},
    {"vocab_bpe", vocab_bpe},     {"bpe_train", bpe_train},     {"counter", new_counter},
    {"ngram_bits", ngram_bits},   {"padded", padded},
    {"vocab_frequent", vocab_frequent}, {NULL, NULL},
};

static const luaL_Reg methods[] = {
    {"size", size},     {"token", token},         {"encode", encode}, {"decode", decode},
    {"eos", eos},       {"encoder", new_encoder}, {NULL, NULL}};
static const luaL_Reg encoder_methods[] = {
    {"feed", encoder_feed}, {"count", encoder_count}, {"finish", encoder_finish}, {NULL, NULL}};
static const luaL_Reg counter_methods[] = {
    {"feed", counter_feed}, {"size", counter_size}, {NULL, NULL}};

const glue_class glue_vocab_class = {"toeplab.vocab", release_vocab, methods, NULL};
const glue_class glue_encoder_class = {"toeplab.encoder", release_encoder, encoder_methods, NULL};
const glue_class glue_counter_class = {"toeplab.counter", release_counter, counter_methods, NULL};

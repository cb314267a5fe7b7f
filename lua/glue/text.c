/* text.c - vocabularies, encoders and counters, windows of token streams and n-gram models, in
** Lua. */
#include "rows.h"

static void release_vocab(glue_box *b) { tl_vocab_free(b->as.vocab); }

#define VOCAB   BOXED(tl_vocab, v, glue_vocab_class, vocab)
#define ENCODER BOXED(tl_encoder, e, glue_encoder_class, encoder)
#define COUNTER BOXED(tl_counter, c, glue_counter_class, counter)

GLUE_NEW(vocab_bytes, , glue_vocab_class, tl_vocab_new_bytes(glue_ctx(L), &b->as.vocab))
GLUE_NEW(vocab_chars, TEXT(text, bytes), glue_vocab_class,
         tl_vocab_new_chars(glue_ctx(L), text, bytes, &b->as.vocab))
GLUE_NEW(vocab_frequent, TEXT(text, bytes) INTEGER(least), glue_vocab_class,
         tl_vocab_new_frequent(glue_ctx(L), text, bytes, least, &b->as.vocab))
GLUE_NEW(vocab_bpe, STRING(merges) OPT_STRING(encoder) OPT_STRING(dictionary), glue_vocab_class,
         tl_vocab_new_bpe(glue_ctx(L), merges, encoder, dictionary, &b->as.vocab))
GLUE_CALL(size, VOCAB, lua_pushinteger(L, tl_vocab_size(v)))

/* v:eos() -> the id of the token that ends a line, or nil */
GLUE_CALL(eos, VOCAB, int32_t id = tl_vocab_eos(v);
          if (id < 0) lua_pushnil(L); else lua_pushinteger(L, id))
GLUE_CALL(token, VOCAB INT(id, INT32_MIN, INT32_MAX), size_t bytes = 0;
          const char *text = tl_vocab_token(v, id, &bytes);
          if (text) lua_pushlstring(L, text, bytes); else lua_pushnil(L))
GLUE_FUNCTION(encode, VOCAB TEXT(text, bytes), tl_vocab_encode(v, text, bytes, y))

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
    int            arg = 0;
    VOCAB
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

GLUE_NEW(new_encoder, VOCAB, glue_encoder_class, tl_encoder_new(v, &b->as.encoder))
GLUE_CALL(encoder_feed, ENCODER TEXT(text, bytes), glue_check(L, tl_encoder_feed(e, text, bytes)))
GLUE_CALL(encoder_count, ENCODER, lua_pushinteger(L, tl_encoder_count(e)))
GLUE_FUNCTION(encoder_finish, ENCODER, tl_encoder_finish(e, y))

static void release_counter(glue_box *b) { tl_counter_free(b->as.counter); }

/* in the order of tl_counter_kind */
static const char *const counted[] = {"words", "pieces", NULL};

GLUE_NEW(new_counter, OPTION(kind, tl_counter_kind, counted), glue_counter_class,
         tl_counter_new(glue_ctx(L), kind, &b->as.counter))
GLUE_CALL(counter_feed, COUNTER TEXT(text, bytes), glue_check(L, tl_counter_feed(c, text, bytes)))
GLUE_CALL(counter_size, COUNTER, lua_pushinteger(L, tl_counter_size(c)))
GLUE_NEW(vocab_words, COUNTER, glue_vocab_class, tl_vocab_new_words(c, &b->as.vocab))
GLUE_CALL(bpe_train, COUNTER INT(tokens, 0, INT32_MAX) STRING(path),
          glue_check(L, tl_bpe_train(c, tokens, path)))

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

/* in the order of tl_smoothing */
static const char *const smoothings[] = {"witten-bell", "kneser-ney", NULL};

GLUE_CALL(ngram_bits, TENSOR(train) TENSOR(test) INT(order, 0, INT32_MAX) INT(v, 1, INT32_MAX),
          double bits; int smoothing = luaL_checkoption(L, 5, *smoothings, smoothings);
          glue_check(L, tl_ngram_bits(train, test, order, v, (tl_smoothing)smoothing, &bits));
          lua_pushnumber(L, bits))

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

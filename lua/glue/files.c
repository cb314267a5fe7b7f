/* files.c - checksums, HDF5 files and raw elements of files in Lua. */
#include <string.h>

#include "rows.h"

static void release_h5(glue_box *b) { tl_h5_close(b->as.h5); }

static tl_h5 *h5(lua_State *L) { return glue_open_box(L, 1, &glue_h5_class)->as.h5; }

/* ---- Checksums ------------------------------------------------------------------------------- */

/* Returns the bytes of the text or of the elements of the tensor at arg; elements are copied to
** the CPU first. */
static const void *data_of(lua_State *L, int arg, size_t *out_bytes)
{
    if (!glue_is_tensor(L, arg)) return luaL_checklstring(L, arg, out_bytes);
    tl_tensor *t = glue_tensor(L, arg);
    *out_bytes = (size_t)tl_tensor_len(t) * 4;
    return glue_elements(L, t);
}

GLUE_CALL(sha256, size_t bytes; const void *data = data_of(L, 1, &bytes);, char hex[65];
          tl_sha256(data, bytes, hex); lua_pushstring(L, hex))
GLUE_CALL(sha256_file, STRING(path), char hex[65];
          glue_check(L, tl_sha256_file(glue_ctx(L), path, hex)); lua_pushstring(L, hex))

/* crc32(text or tensor [, before]): the CRC-32 of zip files, continued from the one before. */
GLUE_CALL(crc32, size_t bytes; const void *data = data_of(L, 1, &bytes);,
          uint32_t before = (uint32_t)luaL_optinteger(L, 2, 0);
          lua_pushinteger(L, tl_crc32(before, data, bytes)))

/* inflate(path, offset, packed, to_path, bytes) */
GLUE_CALL(inflate, STRING(path) INTEGER(offset) INTEGER(packed) STRING(to) INTEGER(bytes),
          glue_check(L, tl_inflate(glue_ctx(L), path, offset, packed, to, bytes)))

/* ---- Raw elements ---------------------------------------------------------------------------- */

/* raw_bytes(type): the bytes of an element, or nil if there is no such type. */
GLUE_CALL(raw_bytes, TEXT(type, length), size_t bytes = 0;
          if (strlen(type) == length) bytes = tl_raw_bytes(type);
          if (bytes) lua_pushinteger(L, (lua_Integer)bytes); else lua_pushnil(L))

static int raw_read(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1), *type = luaL_checkstring(L, 3);
    int64_t     offset = luaL_checkinteger(L, 2), dims[TL_MAXDIMS];
    luaL_checktype(L, 4, LUA_TTABLE);
    int         ndim = glue_dims(L, 4, dims);
    tl_tensor **t = glue_push_tensor(L);
    return glue_result(L, tl_raw_read(glue_ctx(L), path, offset, type, ndim, dims, t));
}

/* Reads the part at the top, which the list at argument 2 keeps alive: text, a tensor, or {tensor},
** which is rounded to bf16. */
static tl_raw_part raw_part(lua_State *L, int i)
{
    tl_raw_part p = {0};
    if (lua_type(L, -1) == LUA_TSTRING) {
        p.text = lua_tolstring(L, -1, &p.bytes);
        return p;
    }
    p.bf16 = lua_istable(L, -1);
    if (p.bf16) lua_rawgeti(L, -1, 1);
    p.tensor = glue_test_tensor(L, -1);
    if (!p.tensor)
        glue_argerror(L, 2, "part %d is a %s, not text or an open tensor", i,
                      luaL_typename(L, -1));
    if (p.bf16) lua_pop(L, 1);
    return p;
}

/* raw_write(path, {text or tensor or {tensor}, ...}) */
static int raw_write(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    lua_settop(L, 2);
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_argcheck(L, lua_rawlen(L, 2) < 1 << 24, 2, "too many parts");
    int          count = (int)lua_rawlen(L, 2);
    tl_raw_part *parts = lua_newuserdatauv(L, (size_t)count * sizeof *parts + 1, 0);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 2, i + 1);
        parts[i] = raw_part(L, i + 1);
        lua_pop(L, 1);
    }
    glue_check(L, tl_raw_write(glue_ctx(L), path, count, parts));
    return 0;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* Reads {{name, tensor}, ...} at argument 2 into two arrays that are pushed. */
static int entries(lua_State *L, const char ***out_names, tl_tensor ***out_tensors)
{
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_argcheck(L, lua_rawlen(L, 2) < 1 << 24, 2, "too many tensors");
    int          count = (int)lua_rawlen(L, 2);
    const char **names = lua_newuserdatauv(L, (size_t)count * sizeof *names + 1, 0);
    tl_tensor  **tensors = lua_newuserdatauv(L, (size_t)count * sizeof *tensors + 1, 0);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 2, i + 1);
        if (!lua_istable(L, -1)) glue_argerror(L, 2, "entry %d is not {name, tensor}", i + 1);
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        const glue_box *b = luaL_testudata(L, -1, glue_tensor_class.name);
        if (lua_type(L, -2) != LUA_TSTRING || !b || !b->as.any)
            glue_argerror(L, 2, "entry %d is {%s, %s}, not a name and an open tensor", i + 1,
                          luaL_typename(L, -2), luaL_typename(L, -1));
        names[i] = lua_tostring(L, -2); /* the table keeps the name and the tensor alive */
        tensors[i] = b->as.tensor;
        lua_pop(L, 3);
    }
    *out_names = names;
    *out_tensors = tensors;
    return count;
}

/* Reads the value at the top as an attribute; the table it came from keeps a text alive. */
static tl_attr attribute(lua_State *L, int arg, const char *name)
{
    tl_attr a = {.name = name};
    int     type = lua_type(L, -1);
    if (type == LUA_TBOOLEAN || lua_isinteger(L, -1)) {
        a.kind = 'i';
        a.i = type == LUA_TBOOLEAN ? lua_toboolean(L, -1) : lua_tointeger(L, -1);
    } else if (type == LUA_TNUMBER) {
        a.kind = 'f';
        a.f = lua_tonumber(L, -1);
    } else if (type == LUA_TSTRING) {
        size_t bytes;
        a.kind = 's';
        a.s = lua_tolstring(L, -1, &bytes);
        if (strlen(a.s) != bytes) glue_argerror(L, arg, "attribute '%s' has a zero byte", name);
    } else {
        glue_argerror(L, arg, "attribute '%s' is a %s", name, luaL_typename(L, -1));
    }
    return a;
}

/* Reads the table at arg as attributes, sorted by name, into an array that is pushed. */
static tl_attr *attributes(lua_State *L, int arg, int *out_count)
{
    *out_count = 0;
    if (lua_isnoneornil(L, arg)) return NULL;
    glue_sorted_keys(L, arg);
    luaL_argcheck(L, lua_rawlen(L, -1) < 1 << 20, arg, "too many attributes");
    int      count = (int)lua_rawlen(L, -1);
    tl_attr *list = lua_newuserdatauv(L, (size_t)count * sizeof *list + 1, 0);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, -2, i + 1);
        const char *name = lua_tostring(L, -1);
        lua_rawget(L, arg);
        list[i] = attribute(L, arg, name);
        lua_pop(L, 1);
    }
    *out_count = count;
    return list;
}

static int h5_write(lua_State *L)
{
    const char  *path = luaL_checkstring(L, 1), **names;
    tl_tensor  **tensors;
    lua_settop(L, 4); /* values pushed below must not count as arguments */
    int          attr_count, count = entries(L, &names, &tensors);
    tl_attr     *attrs = attributes(L, 3, &attr_count);
    glue_check(L, tl_h5_write(glue_ctx(L), path, count, names, tensors, attr_count, attrs,
                              lua_toboolean(L, 4)));
    return 0;
}

/* ---- Reading --------------------------------------------------------------------------------- */

GLUE_NEW(h5_open, STRING(path), glue_h5_class, tl_h5_open(glue_ctx(L), path, &b->as.h5))

static int h5_children(lua_State *L)
{
    tl_h5      *f = h5(L);
    const char *group = luaL_checkstring(L, 2), *name;
    char        kind;
    tl_status   st;
    lua_newtable(L);
    for (int64_t i = 0; (st = tl_h5_child(f, group, i, &name, &kind)) == TL_OK; i++) {
        lua_createtable(L, 0, 2);
        lua_pushstring(L, name);
        lua_setfield(L, -2, "name");
        lua_pushstring(L, kind == 'g' ? "group" : "dataset");
        lua_setfield(L, -2, "kind");
        lua_rawseti(L, -2, i + 1);
    }
    if (st != TL_ENOTFOUND) glue_check(L, st);
    return 1;
}

static void push_attribute(lua_State *L, const tl_attr *a)
{
    switch (a->kind) {
    case 'i': lua_pushinteger(L, a->i); break;
    case 'f': lua_pushnumber(L, a->f); break;
    default: lua_pushstring(L, a->s); break;
    }
}

static int attrs(lua_State *L)
{
    tl_h5      *f = h5(L);
    const char *object = luaL_checkstring(L, 2);
    tl_attr     a;
    tl_status   st;
    lua_newtable(L);
    for (int64_t i = 0; (st = tl_h5_attr(f, object, i, &a)) == TL_OK; i++) {
        lua_pushstring(L, a.name);
        push_attribute(L, &a);
        lua_rawset(L, -3);
    }
    if (st != TL_ENOTFOUND) glue_check(L, st);
    return 1;
}

GLUE_FUNCTION(h5_read, BOXED(tl_h5, f, glue_h5_class, h5) STRING(name), tl_h5_read(f, name, y))

const luaL_Reg glue_files_functions[] = {
    {"sha256", sha256}, {"sha256_file", sha256_file}, {"crc32", crc32}, {"inflate", inflate},
    {"raw_bytes", raw_bytes}, {"raw_read", raw_read}, {"raw_write", raw_write},
    {"h5_write", h5_write}, {"h5_open", h5_open}, {NULL, NULL},
};

static const luaL_Reg methods[] = {
    {"children", h5_children}, {"attrs", attrs}, {"read", h5_read}, {NULL, NULL}};

const glue_class glue_h5_class = {"toeplab.h5", release_h5, methods, NULL};

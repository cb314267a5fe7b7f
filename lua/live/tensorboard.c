/* tensorboard.c - a module of Lua: makes the records of TensorBoard's event files (event.proto).
** Each function returns the bytes to append to a file, whose first record is made by version.
**
**   version(time)               time: seconds since 1970
**   scalars(time, step, list)   list: {name, number, name, number, ...}
**   restart(time, step)         TensorBoard forgets what it has read of this step and later ones
**   begin(time, list)           the hyperparameters of a run: {name, value, ...}, where a value is
**                               a number, a string or a boolean
**   finish(time, good)          the end of a run, and whether it ended well */
#include <event.pb-c.h>
#include <lauxlib.h>
#include <lua.h>

__attribute__((visibility("default"))) int luaopen_toeplab_tensorboard(lua_State *L);

/* ---- Records --------------------------------------------------------------------------------- */

/* The cyclic redundancy check of Castagnoli, CRC-32C. */
static uint32_t crc32c(const uint8_t *bytes, size_t size)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    return ~crc;
}

/* Writes the check of the bytes in the form that the format stores: rotated, with a constant. */
static void put_check(uint8_t *out, const uint8_t *bytes, size_t size)
{
    uint32_t crc = crc32c(bytes, size);
    crc = (crc >> 15 | crc << 17) + 0xa282ead8u;
    for (int i = 0; i < 4; i++) out[i] = (uint8_t)(crc >> 8 * i);
}

/* Pushes a record: the length of the message, its check, the message, its check. */
static int push_record(lua_State *L, const Toeplab__Event *event)
{
    luaL_Buffer buffer;
    size_t      size = toeplab__event__get_packed_size(event);
    uint8_t    *out = (uint8_t *)luaL_buffinitsize(L, &buffer, size + 16);
    for (int i = 0; i < 8; i++) out[i] = (uint8_t)((uint64_t)size >> 8 * i);
    put_check(out + 8, out, 8);
    (void)toeplab__event__pack(event, out + 12);
    put_check(out + 12 + size, out + 12, size);
    luaL_pushresultsize(&buffer, size + 16);
    return 1;
}

static Toeplab__Event new_event(lua_State *L, Toeplab__Event__WhatCase what)
{
    Toeplab__Event event = TOEPLAB__EVENT__INIT;
    event.wall_time = luaL_checknumber(L, 1);
    event.what_case = what;
    return event;
}

static int version(lua_State *L)
{
    char           name[] = "brain.Event:2";
    Toeplab__Event event = new_event(L, TOEPLAB__EVENT__WHAT_FILE_VERSION);
    event.file_version = name;
    return push_record(L, &event);
}

static int restart(lua_State *L)
{
    Toeplab__SessionLog log = TOEPLAB__SESSION_LOG__INIT;
    Toeplab__Event      event = new_event(L, TOEPLAB__EVENT__WHAT_SESSION_LOG);
    log.status = TOEPLAB__SESSION_LOG__STATUS__START;
    event.step = luaL_checkinteger(L, 2);
    event.session_log = &log;
    return push_record(L, &event);
}

/* ---- Lists ----------------------------------------------------------------------------------- */

/* The number of pairs in the list at arg, raises if it is not a list of pairs. */
static size_t count_pairs(lua_State *L, int arg)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    lua_Unsigned n = lua_rawlen(L, arg);
    luaL_argcheck(L, n % 2 == 0, arg, "a name without a value");
    return (size_t)(n / 2);
}

/* Pushes the value of pair i of the list at arg, and returns its name, which the list keeps. */
static char *push_pair(lua_State *L, int arg, size_t i)
{
    (void)lua_rawgeti(L, arg, (lua_Integer)(2 * i + 1));
    luaL_argcheck(L, lua_type(L, -1) == LUA_TSTRING, arg, "a name is not a string");
    char *name = (char *)lua_tostring(L, -1);
    lua_pop(L, 1);
    (void)lua_rawgeti(L, arg, (lua_Integer)(2 * i + 2));
    return name;
}

/* A block that Lua's collector frees, also after an error. */
static void *block(lua_State *L, size_t count, size_t size)
{
    return lua_newuserdatauv(L, (count + 1) * size, 0);
}

static int scalars(lua_State *L)
{
    Toeplab__Event           event = new_event(L, TOEPLAB__EVENT__WHAT_SUMMARY);
    Toeplab__Summary         summary = TOEPLAB__SUMMARY__INIT;
    size_t                   count = count_pairs(L, 3);
    Toeplab__Summary__Value  *values = block(L, count, sizeof *values);
    Toeplab__Summary__Value **list = block(L, count, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        values[i] = (Toeplab__Summary__Value)TOEPLAB__SUMMARY__VALUE__INIT;
        values[i].tag = push_pair(L, 3, i);
        luaL_argcheck(L, lua_type(L, -1) == LUA_TNUMBER, 3, "a value is not a number");
        values[i].value_case = TOEPLAB__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
        values[i].simple_value = (float)lua_tonumber(L, -1);
        lua_pop(L, 1);
        list[i] = &values[i];
    }
    summary.n_value = count;
    summary.value = list;
    event.step = luaL_checkinteger(L, 2);
    event.summary = &summary;
    return push_record(L, &event);
}

/* ---- Hyperparameters ------------------------------------------------------------------------- */

/* Pushes a record that hands content to TensorBoard's plugin of hyperparameters. */
static int push_hparams(lua_State *L, Toeplab__Event *event, char *tag, Toeplab__Hparams *content)
{
    char                       name[] = "hparams";
    Toeplab__Summary           summary = TOEPLAB__SUMMARY__INIT;
    Toeplab__Summary__Value    value = TOEPLAB__SUMMARY__VALUE__INIT, *list[] = {&value};
    Toeplab__Metadata          about = TOEPLAB__METADATA__INIT;
    Toeplab__Metadata__Plugin  plugin = TOEPLAB__METADATA__PLUGIN__INIT;
    plugin.plugin_name = name;
    plugin.content.len = toeplab__hparams__get_packed_size(content);
    plugin.content.data = block(L, plugin.content.len, 1);
    (void)toeplab__hparams__pack(content, plugin.content.data);
    about.plugin_data = &plugin;
    value.tag = tag;
    value.metadata = &about;
    summary.n_value = 1;
    summary.value = list;
    event->summary = &summary;
    return push_record(L, event);
}

/* Reads the value at the top of the stack, which the list keeps. */
static Toeplab__Scalar scalar(lua_State *L)
{
    Toeplab__Scalar value = TOEPLAB__SCALAR__INIT;
    if (lua_type(L, -1) == LUA_TNUMBER) {
        value.kind_case = TOEPLAB__SCALAR__KIND_NUMBER_VALUE;
        value.number_value = lua_tonumber(L, -1);
    } else if (lua_isboolean(L, -1)) {
        value.kind_case = TOEPLAB__SCALAR__KIND_BOOL_VALUE;
        value.bool_value = lua_toboolean(L, -1);
    } else {
        luaL_argcheck(L, lua_type(L, -1) == LUA_TSTRING, 2, "a value is a table");
        value.kind_case = TOEPLAB__SCALAR__KIND_STRING_VALUE;
        value.string_value = (char *)lua_tostring(L, -1);
    }
    lua_pop(L, 1);
    return value;
}

static int begin(lua_State *L)
{
    char             tag[] = "_hparams_/session_start_info";
    Toeplab__Event   event = new_event(L, TOEPLAB__EVENT__WHAT_SUMMARY);
    Toeplab__Hparams content = TOEPLAB__HPARAMS__INIT;
    Toeplab__Start   start = TOEPLAB__START__INIT;
    size_t           count = count_pairs(L, 2);
    Toeplab__Scalar *values = block(L, count, sizeof *values);
    Toeplab__Entry  *entries = block(L, count, sizeof *entries);
    Toeplab__Entry **list = block(L, count, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        entries[i] = (Toeplab__Entry)TOEPLAB__ENTRY__INIT;
        entries[i].key = push_pair(L, 2, i);
        values[i] = scalar(L);
        entries[i].value = &values[i];
        list[i] = &entries[i];
    }
    start.n_hparams = count;
    start.hparams = list;
    start.start_time_secs = event.wall_time;
    content.what_case = TOEPLAB__HPARAMS__WHAT_SESSION_START_INFO;
    content.session_start_info = &start;
    return push_hparams(L, &event, tag, &content);
}

static int finish(lua_State *L)
{
    char             tag[] = "_hparams_/session_end_info";
    Toeplab__Event   event = new_event(L, TOEPLAB__EVENT__WHAT_SUMMARY);
    Toeplab__Hparams content = TOEPLAB__HPARAMS__INIT;
    Toeplab__End     end = TOEPLAB__END__INIT;
    end.status = lua_toboolean(L, 2) ? TOEPLAB__END__OUTCOME__SUCCESS
                                     : TOEPLAB__END__OUTCOME__FAILURE;
    end.end_time_secs = event.wall_time;
    content.what_case = TOEPLAB__HPARAMS__WHAT_SESSION_END_INFO;
    content.session_end_info = &end;
    return push_hparams(L, &event, tag, &content);
}

int luaopen_toeplab_tensorboard(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"version", version}, {"scalars", scalars}, {"restart", restart},
        {"begin", begin},     {"finish", finish},   {NULL, NULL},
    };
    luaL_newlib(L, functions);
    return 1;
}

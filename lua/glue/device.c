/* device.c - the device that this process computes on, and questions about other devices, in
** Lua. */
#include <limits.h>

#include "rows.h"

GLUE_CALL(use_device, STRING(name), glue_check(L, tl_set_device(glue_ctx(L), name)))

/* device() -> its name and its description */
GLUE_CALL(device, , lua_pushstring(L, tl_device_name(glue_ctx(L)));
          lua_pushstring(L, tl_device_about(glue_ctx(L))))
GLUE_CALL(synchronize, , glue_check(L, tl_synchronize(glue_ctx(L))))

/* Returns nil and the message if the device is missing, and raises any other error. */
static int absent(lua_State *L, tl_status st)
{
    if (st != TL_EDEVICE) glue_check(L, st);
    lua_pushnil(L);
    lua_pushstring(L, tl_errmsg(glue_ctx(L)));
    return 2;
}

/* device_file(name) -> the path of the device's shared object; nil and why there is none */
static int device_file(lua_State *L)
{
    char      path[PATH_MAX];
    tl_status st = tl_device_file(glue_ctx(L), luaL_checkstring(L, 1), path, sizeof path);
    if (st != TL_OK) return absent(L, st);
    lua_pushstring(L, path);
    return 1;
}

/* look_at_device(name) -> how many GPUs there are, and the description of the named one; nil and
** why it cannot be used. No device is opened. */
static int look_at_device(lua_State *L)
{
    char      about[512];
    int       count = 0;
    tl_status st = tl_device_look(glue_ctx(L), luaL_checkstring(L, 1), &count, about, sizeof about);
    if (st != TL_OK) return absent(L, st);
    lua_pushinteger(L, count);
    lua_pushstring(L, about);
    return 2;
}

/* device_takes(name, backend) -> whether the backend runs on the device; nil and why there is no
** such device */
static int device_takes(lua_State *L)
{
    int         takes = 0;
    const char *name = luaL_checkstring(L, 1), *backend = luaL_checkstring(L, 2);
    tl_status   st = tl_device_takes(glue_ctx(L), name, backend, &takes);
    if (st != TL_OK) return absent(L, st);
    lua_pushboolean(L, takes);
    return 1;
}

const luaL_Reg glue_device_functions[] = {
    {"use_device", use_device},   {"device", device},
    {"synchronize", synchronize}, {"device_file", device_file},
    {"look_at_device", look_at_device}, {"device_takes", device_takes},
    {NULL, NULL},
};

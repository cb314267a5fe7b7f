/* system.c - operating system functions that standard Lua lacks: clocks, terminals, folders, whole
** files.
**
** On failure file functions return nil, "PATH: reason" and the errno, like Lua's own. If the
** disk or a limit on open files is the cause, the name of the engine's status follows: "ENOSPC" or
** "EIO". */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "rows.h"

/* ---- Clocks and process ---------------------------------------------------------------------- */

static double seconds(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t) != 0) return 0;
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

GLUE_CALL(now, , lua_pushnumber(L, seconds(CLOCK_REALTIME)))
GLUE_CALL(monotonic, , lua_pushnumber(L, seconds(CLOCK_MONOTONIC)))

/* A signal ends the sleep early, so that the caller can react to it. */
static int sleep_for(lua_State *L)
{
    double s = luaL_checknumber(L, 1);
    luaL_argcheck(L, s >= 0 && s < 1e9, 1, "not in 0..1e9 seconds");
    struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    (void)nanosleep(&t, NULL);
    return 0;
}

GLUE_CALL(process_id, , lua_pushinteger(L, getpid()))

static int hostname(lua_State *L)
{
    char name[256] = "";
    if (gethostname(name, sizeof name - 1) != 0) return luaL_fileresult(L, 0, "hostname");
    lua_pushstring(L, name);
    return 1;
}

/* executable() -> the path of the program toeplab, which starts workers */
static int executable(lua_State *L)
{
    char path[PATH_MAX];
    int  kind = lua_getfield(L, LUA_REGISTRYINDEX, GLUE_PROGRAM);
    if (kind == LUA_TSTRING) return 1;
    if (kind == LUA_TBOOLEAN)
        return luaL_error(L, "this needs the program toeplab, which is not installed beside the "
                             "module toeplab.core");
    if (!glue_executable(path, sizeof path)) return luaL_fileresult(L, 0, "/proc/self/exe");
    lua_pushstring(L, path);
    return 1;
}

int glue_executable(char *path, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n < 0) return 0;
    path[n] = '\0';
    return 1;
}

int glue_threads(const char *text)
{
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && n >= 1 && n <= 4096 ? (int)n : -1;
}

/* cache_dir() -> the folder for cached files, or nil where there is none */
GLUE_CALL(cache_dir, , lua_pushstring(L, tl_cache_dir(glue_ctx(L))))

/* ---- Terminal -------------------------------------------------------------------------------- */

GLUE_CALL(is_terminal, INT(fd, 0, INT_MAX), lua_pushboolean(L, isatty(fd)))

/* Returns what the environment says, else the size of the terminal behind stdout or stderr, else
** preset. */
static lua_Integer extent(const char *variable, int of_rows, lua_Integer preset)
{
    const char    *text = getenv(variable);
    long           n = text ? strtol(text, NULL, 10) : 0;
    struct winsize w;
    for (int fd = 1; n <= 0 && fd <= 2; fd++)
        if (ioctl(fd, TIOCGWINSZ, &w) == 0) n = of_rows ? w.ws_row : w.ws_col;
    return n > 0 && n < 100000 ? n : preset;
}

GLUE_CALL(columns, , lua_pushinteger(L, extent("COLUMNS", 0, 80)))
GLUE_CALL(rows, , lua_pushinteger(L, extent("LINES", 1, 24)))

/* Single keys of the terminal behind stdin, without echo, until the object is closed. */
#define KEYS "toeplab.keys"

typedef struct keys {
    struct termios before;
    int            open;
} keys;

static int close_keys(lua_State *L)
{
    keys *k = luaL_checkudata(L, 1, KEYS);
    if (k->open) (void)tcsetattr(0, TCSAFLUSH, &k->before);
    k->open = 0;
    return 0;
}

/* keys() -> an object with the method read; nil and the reason if stdin is not a terminal. Ctrl-C
** still sends its signal, but Ctrl-Z and Ctrl-\, which would leave the terminal as it is, do not.
** */
static int open_keys(lua_State *L)
{
    struct termios own;
    keys          *k = lua_newuserdatauv(L, sizeof *k, 0);
    k->open = 0;
    luaL_setmetatable(L, KEYS);
    if (tcgetattr(0, &k->before) != 0) return luaL_fileresult(L, 0, "standard input");
    own = k->before;
    own.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    own.c_cc[VMIN] = 0;
    own.c_cc[VTIME] = 0;
    own.c_cc[VSUSP] = own.c_cc[VQUIT] = _POSIX_VDISABLE;
    if (tcsetattr(0, TCSAFLUSH, &own) != 0) return luaL_fileresult(L, 0, "standard input");
    k->open = 1;
    return 1;
}

/* k:read(seconds) -> what was typed; "" if nothing was within that time, or a signal came; nil if
** the terminal is gone */
static int read_keys(lua_State *L)
{
    const keys   *k = luaL_checkudata(L, 1, KEYS);
    double        seconds = luaL_checknumber(L, 2);
    char          text[64];
    ssize_t       n = 0;
    struct pollfd in = {.fd = 0, .events = POLLIN};
    luaL_argcheck(L, k->open, 1, "the keys are closed");
    luaL_argcheck(L, seconds >= 0 && seconds < 1e6, 2, "not in 0..1e6 seconds");
    if (poll(&in, 1, (int)(seconds * 1e3)) > 0) {
        n = read(0, text, sizeof text);
        if (n <= 0) return 0;
    }
    lua_pushlstring(L, text, (size_t)n);
    return 1;
}

/* ---- Folders and files ----------------------------------------------------------------------- */

static int file_result(lua_State *L, int fine, const char *path)
{
    int error = errno, results = luaL_fileresult(L, fine, path);
    int full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    int fault = error == EIO || error == EROFS || error == EMFILE || error == ENFILE;
    if (fine || (!full && !fault)) return results;
    lua_pushstring(L, tl_status_name(full ? TL_ENOSPC : TL_EIO));
    return results + 1;
}

/* Like file_result, for a function of the engine, with its message. */
static int engine_result(lua_State *L, tl_status st)
{
    int results = file_result(L, st == TL_OK, NULL);
    if (st == TL_OK) return results;
    lua_pushstring(L, tl_errmsg(glue_ctx(L)));
    lua_replace(L, -results);
    return results;
}

static int make_folders(lua_State *L)
{
    size_t      size;
    const char *path = luaL_checklstring(L, 1, &size);
    luaL_argcheck(L, size > 0, 1, "empty path");
    return engine_result(L, tl_file_folders(glue_ctx(L), path));
}

/* An open folder is in a userdata, so that an error closes it. */
#define FOLDER "toeplab.folder"

static int close_folder(lua_State *L)
{
    DIR **d = luaL_checkudata(L, 1, FOLDER);
    if (*d) (void)closedir(*d);
    *d = NULL;
    return 0;
}

static int list(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    DIR       **d = lua_newuserdatauv(L, sizeof(DIR *), 0);
    *d = NULL;
    luaL_setmetatable(L, FOLDER);
    lua_toclose(L, -1);
    *d = opendir(path);
    if (!*d) return file_result(L, 0, path);
    lua_newtable(L);
    int count = 0;
    errno = 0;
    for (const struct dirent *e = readdir(*d); e; e = readdir(*d)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        lua_pushstring(L, e->d_name);
        lua_rawseti(L, -2, ++count);
        errno = 0;
    }
    if (errno) return file_result(L, 0, path);
    glue_sort(L);
    return 1;
}

GLUE_CALL(exists, STRING(path), struct stat s; lua_pushboolean(L, stat(path, &s) == 0))

/* same(path, path) -> whether both lead to one file or folder */
GLUE_CALL(same, STRING(one) STRING(other), struct stat a, b;
          lua_pushboolean(L, stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
                             a.st_ino == b.st_ino))

/* kind(path) -> "file", "folder", "other" (a device, a pipe) or nil; then whether path is a
** symbolic link */
static int kind(lua_State *L)
{
    struct stat s;
    const char *path = luaL_checkstring(L, 1);
    if (stat(path, &s) == 0)
        lua_pushstring(L, S_ISREG(s.st_mode) ? "file" : S_ISDIR(s.st_mode) ? "folder" : "other");
    else
        lua_pushnil(L);
    lua_pushboolean(L, lstat(path, &s) == 0 && S_ISLNK(s.st_mode));
    return 2;
}

/* size(path) -> the file's size in bytes */
GLUE_CALL(file_size, STRING(path), struct stat s;
          if (stat(path, &s) == 0) lua_pushinteger(L, (lua_Integer)s.st_size);
          else file_result(L, 0, path))
GLUE_CALL(free_space, STRING(path), struct statvfs s;
          if (statvfs(path, &s) != 0) file_result(L, 0, path);
          else lua_pushinteger(L, (lua_Integer)s.f_bavail * (lua_Integer)s.f_frsize))
GLUE_CALL(rename_file, STRING(from) STRING(to), file_result(L, rename(from, to) == 0, from))

/* link(from, to): gives the file at `from` the second name `to`, unless that name is taken. Of
** several processes, on any hosts of a shared file system, one succeeds. */
GLUE_CALL(link_file, STRING(from) STRING(to), file_result(L, link(from, to) == 0, to))
GLUE_CALL(remove_file, STRING(path), file_result(L, remove(path) == 0, path))

/* The file is in a userdata of Lua's io library, so that an error closes it. */
static int close_stream(lua_State *L)
{
    luaL_Stream *s = luaL_checkudata(L, 1, LUA_FILEHANDLE);
    return luaL_fileresult(L, fclose(s->f) == 0, NULL);
}

/* group_limits() -> processors, bytes: what control groups allow, or math.huge */
GLUE_CALL(group_limits, , double processors, memory; tl_group_limits(&processors, &memory);
          lua_pushnumber(L, processors); lua_pushnumber(L, memory))

static int read_file(lua_State *L)
{
    const char  *path = luaL_checkstring(L, 1);
    luaL_Stream *s = lua_newuserdatauv(L, sizeof *s, 0);
    luaL_Buffer  text;
    s->closef = NULL;
    luaL_setmetatable(L, LUA_FILEHANDLE);
    lua_toclose(L, -1);
    s->f = fopen(path, "rb");
    if (!s->f) return file_result(L, 0, path);
    s->closef = close_stream;
    luaL_buffinit(L, &text);
    for (size_t n = 1; n > 0;) {
        n = fread(luaL_prepbuffer(&text), 1, LUAL_BUFFERSIZE, s->f);
        luaL_addsize(&text, n);
    }
    luaL_pushresult(&text);
    return ferror(s->f) ? file_result(L, 0, path) : 1;
}

/* sync(file): returns once what was written to the open file is on the disk. */
static int sync_file(lua_State *L)
{
    const luaL_Stream *s = luaL_checkudata(L, 1, LUA_FILEHANDLE);
    luaL_argcheck(L, s->closef != NULL, 1, "the file is closed");
    int fine = fflush(s->f) == 0 && fsync(fileno(s->f)) == 0;
    return file_result(L, fine, NULL);
}

GLUE_CALL(sync_folder, STRING(path), engine_result(L, tl_file_sync_folder(glue_ctx(L), path)))
GLUE_CALL(write_file, STRING(path) TEXT(text, size),
          engine_result(L, tl_file_write(glue_ctx(L), path, text, size)))

/* ---- Tables ---------------------------------------------------------------------------------- */

void glue_sys_open(lua_State *L)
{
    static const luaL_Reg meta[] = {
        {"__gc", close_folder}, {"__close", close_folder}, {NULL, NULL}};
    static const luaL_Reg keys_meta[] = {
        {"__gc", close_keys}, {"__close", close_keys}, {NULL, NULL}};
    static const luaL_Reg keys_methods[] = {{"read", read_keys}, {NULL, NULL}};
    glue_metatable(L, FOLDER, meta, NULL);
    glue_metatable(L, KEYS, keys_meta, keys_methods);
}

const luaL_Reg glue_sys_functions[] = {
    {"now", now},
    {"clock", monotonic},
    {"sleep", sleep_for},
    {"getpid", process_id},
    {"hostname", hostname},
    {"executable", executable},
    {"cache_dir", cache_dir},
    {"isatty", is_terminal},
    {"columns", columns},
    {"rows", rows},
    {"keys", open_keys},
    {"mkdir", make_folders},
    {"list", list},
    {"exists", exists},
    {"kind", kind},
    {"same", same},
    {"size", file_size},
    {"free_space", free_space},
    {"rename", rename_file},
    {"link", link_file},
    {"remove", remove_file},
    {"group_limits", group_limits},
    {"read_file", read_file},
    {"write_file", write_file},
    {"sync", sync_file},
    {"sync_folder", sync_folder},
    {NULL, NULL},
};

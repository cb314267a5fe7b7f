/* main.c - the toeplab program: creates the engine's context and a Lua state, finds the Lua library
** and runs its commands.
**
**   toeplab [--threads N] VERB [ARGUMENTS]   is run by module toeplab.commands
**   toeplab lua [FILE [ARGUMENTS]]           runs a Lua script (standard input without FILE), with
**                                            its folder and the library in package.path; with -i,
**                                            module toeplab.commands.lua reads it line by line
**
** This file reads the environment variables TOEPLAB_THREADS, TOEPLAB_LUA, TOEPLAB_TRACEBACK and,
** for scripts only, TOEPLAB_DEVICE: the verbs read that themselves. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "glue.h"

#define USAGE 2
#define STACK (1 << 20) /* bytes; 200 nested calls of C from Lua, the most, take 420 KiB */

typedef struct start { /* the argument of the protected functions */
    tl_ctx *ctx;
    int     argc;
    char  **argv; /* begins with the verb and ends with NULL */
    int     reported; /* whether an error was printed */
    int     lost; /* errno of the first write of print that failed; 0: none did */
    int     script; /* whether a user's script is run, not a verb */
} start;

/* ---- Options before the verb ----------------------------------------------------------------- */

/* Removes --threads N or --threads=N from the words and returns N, or else TOEPLAB_THREADS; 0:
** neither is given; -1: not a valid number, which has been reported. */
static int take_threads(int *argc, char ***argv)
{
    static const char option[] = "--threads";
    const char       *text = getenv("TOEPLAB_THREADS"), *word = *argc > 0 ? **argv : "";
    size_t            length = sizeof option - 1;
    if (text && !*text) text = NULL;
    if (strncmp(word, option, length) == 0 && (word[length] == '=' || word[length] == '\0')) {
        int words = word[length] == '=' || *argc < 2 ? 1 : 2;
        text = words == 2 ? (*argv)[1] : word[length] == '=' ? word + length + 1 : "";
        *argc -= words;
        *argv += words;
    }
    if (!text) return 0;
    int n = glue_threads(text);
    if (n < 0) (void)fprintf(stderr, "toeplab: " GLUE_THREADS_ERROR "\n", text);
    return n;
}

/* ---- The Lua library ------------------------------------------------------------------------- */

/* Whether the folder named at the top holds the library. */
static int holds_library(lua_State *L)
{
    const char *file = lua_pushfstring(L, "%s/toeplab/init.lua", lua_tostring(L, -1));
    int         found = access(file, R_OK) == 0;
    lua_pop(L, 1);
    return found;
}

/* Pushes the folder that holds toeplab/init.lua: TOEPLAB_LUA, or the folder of an installation or
** of the source tree. Returns whether one does; if not, it pushes one that it tried. */
static int find_library(lua_State *L)
{
    char        program[PATH_MAX];
    const char *given = getenv("TOEPLAB_LUA");
    if (given && *given) {
        lua_pushstring(L, given);
        return holds_library(L);
    }
    char *slash = glue_executable(program, sizeof program) ? strrchr(program, '/') : NULL;
    if (slash) *slash = '\0';
    lua_pushfstring(L, "%s/../share/lua/5.4", slash ? program : "");
#ifdef TL_LUA_DIR
    if (holds_library(L)) return 1;
    lua_pushliteral(L, TL_LUA_DIR);
    if (holds_library(L)) return 1;
    lua_pop(L, 1);
#endif
    return holds_library(L);
}

/* Prepends folder to package.path. */
static void add_path(lua_State *L, const char *folder)
{
    lua_getglobal(L, LUA_LOADLIBNAME);
    lua_getfield(L, -1, "path");
    lua_pushfstring(L, "%s/?.lua;%s/?/init.lua;%s", folder, folder, lua_tostring(L, -1));
    lua_setfield(L, -3, "path");
    lua_pop(L, 2);
}

static void preload(lua_State *L, tl_ctx *ctx)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushlightuserdata(L, ctx);
    lua_pushcclosure(L, glue_core_open, 1);
    lua_setfield(L, -2, "toeplab.core");
    lua_pop(L, 1);
}

/* ---- Verbs ----------------------------------------------------------------------------------- */

/* Raises the message at the top as an error that ends the program with USAGE. */
static int usage_error(lua_State *L)
{
    lua_createtable(L, 0, 2);
    lua_insert(L, -2);
    lua_setfield(L, -2, "message");
    lua_pushinteger(L, USAGE);
    lua_setfield(L, -2, "code");
    return lua_error(L);
}

/* Pushes the words as a table: the word at index first gets 1, those before it 0, -1, ... */
static void push_words(lua_State *L, const start *s, int first)
{
    lua_createtable(L, s->argc, 1);
    for (int i = 0; i < s->argc; i++) {
        lua_pushstring(L, s->argv[i]);
        lua_rawseti(L, -2, i - first + 1);
    }
}

/* Selects the device of TOEPLAB_DEVICE, which must happen before the first tensor. */
static void use_device(lua_State *L, tl_ctx *ctx)
{
    const char *device = getenv("TOEPLAB_DEVICE");
    if (!device || !*device || tl_set_device(ctx, device) == TL_OK) return;
    lua_pushfstring(L, "TOEPLAB_DEVICE: %s", tl_errmsg(ctx));
    (void)usage_error(L);
}

/* Loads the script or the code after -e. Returns nonzero, with the message at the top, on
** failure. */
static int load_script(lua_State *L, const start *s, const char *file)
{
    if (s->argc < 2 || strcmp(s->argv[1], "-e") != 0) return luaL_loadfile(L, file) != LUA_OK;
    if (s->argc > 2) return luaL_loadbuffer(L, s->argv[2], strlen(s->argv[2]), "=-e") != LUA_OK;
    lua_pushliteral(L, "lua: -e needs CODE: lua -e 'print(1)'");
    return 1;
}

/* Runs `toeplab lua FILE ARGUMENTS` as `lua FILE ARGUMENTS` would, with `arg` and `...`; or `lua
** -e CODE`. */
static int run_script(lua_State *L, const start *s)
{
    use_device(L, s->ctx);
    char        folder[PATH_MAX];
    /* then the code is one more word */
    int         code = s->argc > 1 && strcmp(s->argv[1], "-e") == 0;
    const char *file = s->argc > 1 && strcmp(s->argv[1], "-") != 0 ? s->argv[1] : NULL;
    const char *slash = file ? strrchr(file, '/') : NULL;
    int         length = slash ? (int)(slash - file) : 1;
    (void)snprintf(folder, sizeof folder, "%.*s", length, slash ? file : ".");
    add_path(L, folder);
    push_words(L, s, 2 + code);
    lua_setglobal(L, "arg");
    if (load_script(L, s, file)) return usage_error(L);
    int given = s->argc > 2 + code ? s->argc - 2 - code : 0;
    luaL_checkstack(L, given, "arguments");
    for (int i = 0; i < given; i++) lua_pushstring(L, s->argv[i + 2 + code]);
    lua_call(L, given, 0);
    lua_pushinteger(L, 0);
    return 1;
}

/* Whether the words run a script. The library handles --help and -i of the verb lua, as of all
** verbs, so options other than -e go there, where a misspelt one is an error. */
static int is_script(const start *s)
{
    if (s->argc < 1 || strcmp(s->argv[0], "lua") != 0) return 0;
    if (s->argc < 2 || s->argv[1][0] != '-' || s->argv[1][1] == '\0') return 1;
    return strcmp(s->argv[1], "-e") == 0;
}

static int run_command(lua_State *L, start *s)
{
    lua_getglobal(L, "require");
    lua_pushliteral(L, "toeplab.commands");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "main");
    push_words(L, s, 0);
    lua_call(L, 1, 2);
    s->reported = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return 1;
}

/* Pushes the text of the value at i; for a tensor, its numbers too. */
static const char *text_of(lua_State *L, int i, size_t *length)
{
    if (!glue_is_tensor(L, i)) return luaL_tolstring(L, i, length);
    luaL_getmetafield(L, i, "__index");
    lua_getfield(L, -1, "show");
    lua_remove(L, -2);
    lua_pushvalue(L, i);
    lua_call(L, 1, 1);
    return lua_tolstring(L, -1, length);
}

/* Replaces Lua's print, which neither reports a full disk nor shows the numbers of a tensor.
** Verbs may print text from files of others, so it is cleaned; a user's script prints unchanged. */
static int print_values(lua_State *L)
{
    start *s = lua_touserdata(L, lua_upvalueindex(1));
    int    n = lua_gettop(L);
    errno = 0;
    for (int i = 1; i <= n; i++) {
        size_t      length;
        const char *text = text_of(L, i, &length);
        if (!s->script) {
            glue_clean(L, text, length);
            lua_remove(L, -2);
            text = lua_tolstring(L, -1, &length);
        }
        if (i > 1) (void)fputc('\t', stdout);
        (void)fwrite(text, 1, length, stdout);
        lua_pop(L, 1);
    }
    (void)fputc('\n', stdout);
    if ((fflush(stdout) != 0 || ferror(stdout)) && !s->lost) s->lost = errno ? errno : EIO;
    return 0;
}

/* Whether the program ends where it means to. An exit() elsewhere, for instance in a plugin, must
** not look like success. */
static int ends;

static void check_end(void)
{
    if (ends) return;
    (void)fflush(stdout);
    (void)fputs("toeplab: a plugin or a library ended the program by exit()\n", stderr);
    _exit(1);
}

/* os.exit, whose original is the upvalue. */
static int exit_here(lua_State *L)
{
    ends = 1;
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 0);
    return 0;
}

/* Protected: runs the script or command and pushes the exit code. */
static int run_protected(lua_State *L)
{
    start *s = lua_touserdata(L, 1);
    luaL_openlibs(L);
    lua_pushlightuserdata(L, s);
    lua_pushcclosure(L, print_values, 1);
    lua_setglobal(L, "print");
    (void)lua_getglobal(L, "os");
    (void)lua_getfield(L, -1, "exit");
    lua_pushcclosure(L, exit_here, 1);
    lua_setfield(L, -2, "exit");
    lua_pop(L, 1);
    lua_warning(L, "@on", 0); /* for instance from a backend that its options make slow */
    preload(L, s->ctx);
    int         found = find_library(L);
    const char *library = lua_tostring(L, -1);
    if (found) add_path(L, library);
    s->script = is_script(s);
    if (s->script) return run_script(L, s);
    if (!found) {
        lua_pushfstring(L, "no Lua library in %s; set TOEPLAB_LUA to its folder", library);
        return usage_error(L);
    }
    return run_command(L, s);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

/* Replaces the string at the top, an error message, by one that names the line of the script that
** led to it, if the library is loaded. */
static void locate(lua_State *L)
{
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    if (lua_getfield(L, -1, "toeplab.base.errors") == LUA_TTABLE) {
        (void)lua_getfield(L, -1, "located");
        lua_pushvalue(L, -4);
        lua_call(L, 1, 1);
        lua_replace(L, -4);
    }
    lua_pop(L, 2);
}

static int traceback(lua_State *L)
{
    const char *trace = getenv("TOEPLAB_TRACEBACK");
    if (!lua_isstring(L, 1) && !glue_error_text(L, 1)) return 1;
    locate(L);
    if (trace && *trace) luaL_traceback(L, L, lua_tostring(L, -1), 1);
    return 1;
}

/* Protected: replaces an error, a table {code=, message=} or any other value, by its text and
** exit code. The text becomes one line unless it has a traceback. */
static int explain_error(lua_State *L)
{
    const char *trace = getenv("TOEPLAB_TRACEBACK");
    lua_Integer code = 1;
    if (lua_istable(L, 1)) {
        lua_getfield(L, 1, "code");
        if (lua_isinteger(L, -1)) code = lua_tointeger(L, -1);
        lua_getfield(L, 1, "message");
        if (lua_isstring(L, -1)) lua_replace(L, 1);
    }
    size_t      length;
    const char *text = luaL_tolstring(L, 1, &length);
    glue_clean(L, text, length);
    text = lua_tostring(L, -1);
    if (!trace || !*trace) (void)luaL_gsub(L, luaL_gsub(L, text, "\n\t", " "), "\n", " ");
    lua_pushinteger(L, code);
    return 2;
}

/* Prints "toeplab: MESSAGE" for the error object at the top and returns the exit code. */
static int report_error(lua_State *L)
{
    const char *text = "out of memory";
    int         code = 1;
    lua_pushcfunction(L, explain_error);
    lua_insert(L, -2);
    if (lua_pcall(L, 1, 2, 0) == LUA_OK) {
        text = lua_tostring(L, -2);
        code = (int)lua_tointeger(L, -1);
    }
    (void)fflush(stdout);
    (void)fprintf(stderr, "toeplab: %s\n", text);
    return code;
}

/* ---- Start and end --------------------------------------------------------------------------- */

#define LAST_WORD "."

/* Goes on in a child process and waits for it. Returns in the child only. Whatever ends the child,
** be it a plugin's _exit(0), the parent fails unless the child's last message on GLUE_CHANNEL is
** LAST_WORD; the message before names what was running. */
static void continue_in_child(void)
{
    char  text[256] = "a plugin or a library";
    int   pair[2], status = 0;
    pid_t child = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(pair[1], GLUE_CHANNEL);
        (void)fcntl(GLUE_CHANNEL, F_SETFD, FD_CLOEXEC);
        return;
    }
    if (child < 0) {
        (void)fprintf(stderr, "toeplab: cannot start a child process: %s\n", strerror(errno));
        _exit(1);
    }
    (void)close(pair[1]);
    /* A process that a plugin has forked may keep the channel open. */
    struct pollfd channel = {.fd = pair[0], .events = POLLIN};
    int           ended = 0;
    while (strcmp(text, LAST_WORD) != 0) {
        int     ready = poll(&channel, 1, ended ? 0 : 100);
        ssize_t n = ready > 0 ? recv(pair[0], text, sizeof text - 1, 0) : -1;
        if (n > 0) text[n] = '\0';
        if (n == 0 || (ended && ready <= 0)) break;
        if (!ended && n < 0) ended = waitpid(child, &status, WNOHANG) == child;
    }
    while (!ended && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    int code = number ? 128 + number : WEXITSTATUS(status);
    if (strcmp(text, LAST_WORD) != 0 && number != SIGPIPE) {
        (void)fprintf(stderr, "toeplab: %s ended the program (%s %d)\n", text,
                      number ? "signal" : "exit code", number ? number : code);
        if (code == 0) code = 1;
    }
    _exit(code);
}

static int run_lua(start *s)
{
    int        code = 1;
    lua_State *L = luaL_newstate();
    if (!L) {
        (void)fputs("toeplab: out of memory\n", stderr);
        return code;
    }
    lua_pushcfunction(L, traceback);
    lua_pushcfunction(L, run_protected);
    lua_pushlightuserdata(L, s);
    if (lua_pcall(L, 1, 1, 1) == LUA_OK) {
        code = lua_isinteger(L, -1) ? (int)lua_tointeger(L, -1) : 0;
    } else {
        code = report_error(L);
        s->reported = 1;
    }
    lua_close(L);
    return code;
}

/* Opens /dev/null for each closed standard descriptor. Otherwise the next file opened would get
** its number, and output would be written into that file. */
static void open_standard_descriptors(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

/* Raises a smaller limit of the stack to STACK and starts the program again, because the libraries
** have read the limit by now and their threads would overflow. Returns only if the limit is large
** enough (1) or cannot be raised (0). */
static int ample_stack(char **argv)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_STACK, &r) != 0 || r.rlim_cur >= STACK) return 1;
    if (r.rlim_max >= STACK) {
        r.rlim_cur = STACK;
        if (setrlimit(RLIMIT_STACK, &r) == 0) (void)execv("/proc/self/exe", argv);
    }
    (void)fprintf(stderr,
                  "toeplab: the stack limit is %lu KiB, but at least %d KiB are needed: "
                  "run ulimit -s %d\n",
                  (unsigned long)(r.rlim_max / 1024), STACK / 1024, STACK / 1024);
    return 0;
}

int main(int argc, char **argv)
{
    open_standard_descriptors();
    if (!ample_stack(argv)) return 1;
    start s = {.argc = argc > 0 ? argc - 1 : 0, .argv = argc > 0 ? argv + 1 : argv};
    /* Even if the parent ignores them: `| head` ends the program silently, and the status of a
    ** child can be waited for. */
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGCHLD, SIG_DFL);
    (void)signal(SIGXFSZ, SIG_IGN); /* makes a file size limit an error, like a full disk */
    int threads = take_threads(&s.argc, &s.argv);
    if (threads < 0) return USAGE;
    int apart = s.argc > 0 && strcmp(*s.argv, "verify") == 0; /* it runs plugins to test them */
    if (apart)
        continue_in_child();
    else
        (void)atexit(check_end);
    tl_status st = tl_ctx_new(threads, &s.ctx);
    int       code = 1;
    s.reported = st != TL_OK;
    if (s.reported)
        (void)fprintf(stderr, "toeplab: cannot start the engine: %s\n", tl_status_text(st));
    else
        code = run_lua(&s);
    tl_ctx_free(s.ctx);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && !s.reported && !glue_output_outlived()) {
        int lost = s.lost ? s.lost : errno;
        (void)fprintf(stderr, "toeplab: standard output: %s\n",
                      lost ? strerror(lost) : "a write failed");
        if (code == 0) code = 1;
    }
    ends = 1;
    if (apart && write(GLUE_CHANNEL, LAST_WORD, strlen(LAST_WORD)) < 0) code = 1;
#ifndef __SANITIZE_ADDRESS__ /* AddressSanitizer looks for leaks at exit */
    /* at exit OpenBLAS would wait for its threads, forever if they could not be created */
    _exit(code);
#endif
    return code;
}

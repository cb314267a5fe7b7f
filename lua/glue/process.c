/* process.c - child processes in Lua, for the workers of a run. A child gets a pipe to its standard
** input and one from its descriptor 3; what it prints is appended to a file.
**
**   p = core.sys.spawn({program, argument, ...} [, log])   log: the file for what the child prints;
**                      nil: that is lost. Returns nil and the reason if it fails, and true if that
**                      is the log's fault
**   p:send(text)       true; or nil and the reason if the child has ended
**   p:receive()        what the child has sent since; "" if nothing; nil once it closed its end
**   p:signal(name)     "INT", "TERM", "KILL", "HUP", "USR1", "USR2"
**   p:wait([block])    nil while it runs; else its exit code, or nil and the signal's number.
**                      255: this process has waited for it by other means
**   p:pid()            the child's process id; 0 once it has been waited for
**   p:kill()           kills the child and its process group, and closes the pipes
**   core.sys.poll({p, ...}, seconds)   true once one of them has sent or closed its end; false
**                      after these seconds, or on a signal
** and in the child
**   core.sys.hear([seconds]) what the parent has sent, waiting up to `seconds`; nil: it has ended
**   core.sys.tell(text)      sends to the parent
**   core.sys.print_to(path)  appends what this process prints to a file from now on
**
** A child is in a process group of its own, so keys pressed at the terminal reach only the
** parent, which decides. A process that is garbage collected is killed. Processes that a child
** has started are killed when it ends. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rows.h"

#define PROCESS  "toeplab.process"
#define MAX_ARGS 256 /* most arguments of a child, and processes to poll */
#define UNKNOWN  (255 << 8) /* as waitpid encodes exit code 255 */

extern char **environ;

typedef struct process {
    pid_t pid;     /* 0: not started, or already waited for */
    int   in, out; /* pipes to its stdin and from its descriptor 3; -1: closed */
    int   status;  /* as waitpid returned it */
} process;

static void close_fd(int *fd)
{
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

/* Waits for the child's end, or checks for it with WNOHANG; returns whether it has ended. The
** group is killed before waitpid frees its number for reuse. If the child was reaped elsewhere, its
** end is unknown and its number may belong to another process. */
static int reap(process *p, int flags)
{
    siginfo_t info;
    int       fine;
    do {
        info.si_pid = 0;
        fine = waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOWAIT | flags);
    } while (fine < 0 && errno == EINTR);
    if (fine == 0 && info.si_pid == 0) return 0;
    if (fine == 0) {
        (void)kill(-p->pid, SIGKILL);
        do fine = waitpid(p->pid, &p->status, 0);
        while (fine < 0 && errno == EINTR);
    }
    if (fine < 0) p->status = UNKNOWN;
    p->pid = 0;
    return 1;
}

static process *to_process(lua_State *L) { return luaL_checkudata(L, 1, PROCESS); }

static void kill_and_close(process *p)
{
    close_fd(&p->in);
    close_fd(&p->out);
    if (p->pid > 0) {
        (void)kill(p->pid, SIGKILL);
        (void)reap(p, 0);
    }
}

static int process_close(lua_State *L)
{
    kill_and_close(to_process(L));
    return 0;
}

/* ---- Start ----------------------------------------------------------------------------------- */

static int read_argv(lua_State *L, char *argv[MAX_ARGS])
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Unsigned n = lua_rawlen(L, 1);
    luaL_argcheck(L, n >= 1 && n < MAX_ARGS, 1, "must have 1 to 255 strings");
    for (lua_Unsigned i = 0; i < n; i++) {
        if (lua_rawgeti(L, 1, (lua_Integer)i + 1) != LUA_TSTRING)
            return luaL_argerror(L, 1, "must hold strings");
        argv[i] = (char *)lua_tostring(L, -1); /* the table keeps the text alive */
        lua_pop(L, 1);
    }
    argv[n] = NULL;
    return (int)n;
}

/* Makes a pipe whose ends close on exec, because the child gets copies of those it needs.
** Neither end gets the number of a descriptor that the child uses. */
static int make_pipe(int ends[2])
{
    if (pipe(ends) != 0) return errno;
    for (int i = 0; i < 2; i++) {
        int high = fcntl(ends[i], F_DUPFD, GLUE_CHANNEL + 1), error = errno;
        (void)close(ends[i]);
        ends[i] = high;
        if (high < 0) return error;
    }
    (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    (void)fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    return 0;
}

/* Opens a log for appending. A link, a pipe or a device in its place is refused, because a
** results folder may come from someone else and lead elsewhere. */
static int open_log(const char *path)
{
    struct stat s;
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    int fd = open(path, flags, 0666);
    if (fd < 0 || (fstat(fd, &s) == 0 && S_ISREG(s.st_mode))) return fd;
    (void)close(fd);
    errno = EINVAL;
    return -1;
}

/* Lets children be waited for, also in an interpreter that has inherited the opposite. */
static void keep_children(void)
{
    struct sigaction old;
    if (sigaction(SIGCHLD, NULL, &old) != 0) return;
    if (old.sa_handler != SIG_IGN && !(old.sa_flags & SA_NOCLDWAIT)) return;
    if (old.sa_handler == SIG_IGN) old.sa_handler = SIG_DFL;
    old.sa_flags &= ~SA_NOCLDWAIT;
    (void)sigaction(SIGCHLD, &old, NULL);
}

static int spawn_child(process *p, char *argv[], const int in[2], const int out[2], int log)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t          how;
    sigset_t                   plain;
    (void)sigemptyset(&plain);
    for (int s = 1; s < 32; s++)
        if (s != SIGKILL && s != SIGSTOP && s != SIGHUP) (void)sigaddset(&plain, s);
    int error = posix_spawn_file_actions_init(&files);
    if (error) return error;
    error = posix_spawnattr_init(&how);
    /* The log is copied first, because its descriptor may be 3. */
    if (!error) error = posix_spawn_file_actions_adddup2(&files, log, 1);
    if (!error) error = posix_spawn_file_actions_adddup2(&files, log, 2);
    if (!error) error = posix_spawn_file_actions_adddup2(&files, in[0], 0);
    if (!error) error = posix_spawn_file_actions_adddup2(&files, out[1], GLUE_CHANNEL);
    if (!error)
        error = posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    if (!error) error = posix_spawnattr_setpgroup(&how, 0);
    if (!error) error = posix_spawnattr_setsigdefault(&how, &plain);
    if (!error) error = posix_spawn(&p->pid, argv[0], &files, &how, argv, environ);
    if (error) p->pid = 0;
    (void)posix_spawnattr_destroy(&how);
    (void)posix_spawn_file_actions_destroy(&files);
    return error;
}

static int failure(lua_State *L, const char *what, int error)
{
    lua_pushnil(L);
    lua_pushfstring(L, "%s: %s", what, strerror(error));
    return 2;
}

static int spawn(lua_State *L)
{
    char       *argv[MAX_ARGS];
    int         in[2] = {-1, -1}, out[2] = {-1, -1};
    const char *log = luaL_optstring(L, 2, NULL);
    (void)read_argv(L, argv);
    process *p = lua_newuserdatauv(L, sizeof *p, 0);
    *p = (process){.in = -1, .out = -1};
    luaL_setmetatable(L, PROCESS);
    int log_fd = log ? open_log(log) : open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (log_fd < 0) {
        (void)failure(L, log ? log : "/dev/null", errno);
        lua_pushboolean(L, 1);
        return 3;
    }
    int error = make_pipe(in);
    if (!error) error = make_pipe(out);
    keep_children();
    if (!error) error = spawn_child(p, argv, in, out, log_fd);
    (void)close(log_fd);
    close_fd(&in[0]);
    close_fd(&out[1]);
    p->in = in[1];
    p->out = out[0];
    if (error) {
        kill_and_close(p);
        return failure(L, argv[0], error);
    }
    (void)fcntl(p->out, F_SETFL, O_NONBLOCK);
    return 1;
}

/* ---- Talk ------------------------------------------------------------------------------------ */

/* Writes all of text without raising SIGPIPE; returns 0 or errno. */
static int write_all(int fd, const char *text, size_t size)
{
    void (*old)(int) = signal(SIGPIPE, SIG_IGN);
    int error = fd < 0 ? EPIPE : 0;
    while (size > 0 && !error) {
        ssize_t n = write(fd, text, size);
        if (n < 0 && errno != EINTR) error = errno;
        if (n < 0) continue;
        text += n;
        size -= (size_t)n;
    }
    (void)signal(SIGPIPE, old);
    return error;
}

/* Writes the text at arg to fd. */
static int send_to(lua_State *L, int fd, int arg)
{
    size_t      size;
    const char *text = luaL_checklstring(L, arg, &size);
    int         error = write_all(fd, text, size);
    if (error) return failure(L, "send", error);
    lua_pushboolean(L, 1);
    return 1;
}

/* Pushes what can be read from fd now, or nil if that is nothing and fd is at its end. Returns
** whether it is. */
static int push_available(lua_State *L, int fd)
{
    luaL_Buffer text;
    size_t      got = 0;
    int         ended = fd < 0;
    luaL_buffinit(L, &text);
    while (!ended) {
        ssize_t n = read(fd, luaL_prepbuffer(&text), LUAL_BUFFERSIZE);
        if (n > 0) {
            luaL_addsize(&text, (size_t)n);
            got += (size_t)n;
        } else if (n == 0) {
            ended = 1;
        } else if (errno != EINTR) {
            break; /* EAGAIN: no more for now */
        }
    }
    luaL_pushresult(&text);
    if (got == 0 && ended) lua_pushnil(L);
    return ended;
}

static int send_text(lua_State *L) { return send_to(L, to_process(L)->in, 2); }

static int receive(lua_State *L)
{
    process *p = to_process(L);
    if (push_available(L, p->out)) close_fd(&p->out);
    return 1;
}

static int tell(lua_State *L) { return send_to(L, GLUE_CHANNEL, 1); }

static int hear(lua_State *L)
{
    double        seconds = luaL_optnumber(L, 1, 0);
    struct pollfd in = {.fd = 0, .events = POLLIN};
    (void)fcntl(0, F_SETFL, O_NONBLOCK);
    luaL_argcheck(L, seconds >= 0 && seconds < 1e6, 1, "not in 0..1e6 seconds");
    if (seconds > 0) (void)poll(&in, 1, (int)(seconds * 1e3)); /* a signal ends the wait too */
    (void)push_available(L, 0);
    return 1;
}

static int send_signal(lua_State *L)
{
    static const char *const names[] = {"INT", "TERM", "KILL", "HUP", "USR1", "USR2", NULL};
    static const int numbers[] = {SIGINT, SIGTERM, SIGKILL, SIGHUP, SIGUSR1, SIGUSR2};
    process                 *p = to_process(L);
    int                      which = luaL_checkoption(L, 2, NULL, names);
    lua_pushboolean(L, p->pid > 0 && kill(p->pid, numbers[which]) == 0);
    return 1;
}

static int wait_for(lua_State *L)
{
    process *p = to_process(L);
    int      flags = lua_toboolean(L, 2) ? 0 : WNOHANG;
    if (p->pid > 0 && !reap(p, flags)) return 0;
    if (WIFEXITED(p->status)) {
        lua_pushinteger(L, WEXITSTATUS(p->status));
        return 1;
    }
    lua_pushnil(L);
    lua_pushinteger(L, WTERMSIG(p->status));
    return 2;
}

GLUE_CALL(process_id, , lua_pushinteger(L, to_process(L)->pid))

static int poll_all(lua_State *L)
{
    struct pollfd fds[MAX_ARGS];
    luaL_checktype(L, 1, LUA_TTABLE);
    double       seconds = luaL_checknumber(L, 2);
    lua_Unsigned n = lua_rawlen(L, 1);
    luaL_argcheck(L, n <= MAX_ARGS, 1, "at most 256 processes");
    luaL_argcheck(L, seconds >= 0 && seconds < 1e6, 2, "not in 0..1e6 seconds");
    for (lua_Unsigned i = 0; i < n; i++) {
        (void)lua_rawgeti(L, 1, (lua_Integer)i + 1);
        process *p = luaL_checkudata(L, -1, PROCESS);
        fds[i] = (struct pollfd){.fd = p->out, .events = POLLIN};
        lua_pop(L, 1);
    }
    lua_pushboolean(L, poll(fds, (nfds_t)n, (int)(seconds * 1e3)) > 0);
    return 1;
}

/* lock(file [, shared]) -> whether the open file could be locked: by this process alone or, if
** shared, together with others that share it; nil and the reason if its file system has no locks.
** The lock lasts until the file is closed or this process dies; child processes do not inherit
** it. */
static int lock_file(lua_State *L)
{
    const luaL_Stream *s = luaL_checkudata(L, 1, LUA_FILEHANDLE);
    int                how = lua_toboolean(L, 2) ? LOCK_SH : LOCK_EX;
    luaL_argcheck(L, s->closef != NULL, 1, "the file is closed");
    (void)fcntl(fileno(s->f), F_SETFD, FD_CLOEXEC);
    int locked = flock(fileno(s->f), how | LOCK_NB) == 0;
    if (!locked && errno != EWOULDBLOCK && errno != EINTR) {
        lua_pushnil(L);
        lua_pushfstring(L, "the file cannot be locked: %s", strerror(errno));
        return 2;
    }
    lua_pushboolean(L, locked);
    return 1;
}

/* kill(pid) -> whether SIGKILL could be sent to that process, which need not be a child */
GLUE_CALL(kill_process, INTEGER(pid), luaL_argcheck(L, pid > 1 && pid <= INT_MAX, 1, "no process");
          lua_pushboolean(L, kill((pid_t)pid, SIGKILL) == 0))

/* print_to(path): from now on, appends what this process prints to the file. */
static int print_to(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    int         fd = open_log(path);
    if (fd < 0) return failure(L, path, errno);
    (void)fflush(NULL);
    int error = dup2(fd, 1) < 0 || dup2(fd, 2) < 0 ? errno : 0;
    (void)close(fd);
    if (error) return failure(L, path, error);
    lua_pushboolean(L, 1);
    return 1;
}

void glue_process_open(lua_State *L)
{
    static const luaL_Reg methods[] = {
        {"send", send_text}, {"receive", receive}, {"signal", send_signal}, {"wait", wait_for},
        {"pid", process_id}, {"kill", process_close}, {NULL, NULL},
    };
    static const luaL_Reg meta[] = {
        {"__gc", process_close}, {"__close", process_close}, {NULL, NULL}};
    glue_metatable(L, PROCESS, meta, methods);
}

const luaL_Reg glue_process_functions[] = {
    {"spawn", spawn},       {"poll", poll_all},  {"hear", hear},         {"tell", tell},
    {"print_to", print_to}, {"lock", lock_file}, {"kill", kill_process}, {NULL, NULL},
};

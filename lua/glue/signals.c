/* signals.c - catches signals as counts that scripts read, and ends a worker whose parent has died.
**
**   core.sys.catch_signals()    notes SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 from now on, unless
**                               they are ignored; the third SIGINT ends the process all the same
**   core.sys.release_signals()  restores what the signals did before
**   core.sys.interrupted()      the number of SIGINT received; then "TERM", "HUP", "USR1" or "USR2"
**                               if one of those was received
**   core.sys.on_signal(fn)      once a signal has been received, calls fn() every 1000 instructions
**                               of Lua, also in coroutines created later; nil stops that
**   core.sys.output_ready()     true once standard output takes bytes without waiting; false after
**                               a signal, or a fifth of a second
**   core.sys.outlive_output()   from now on a write to a pipe that nobody reads any more fails, and
**                               neither ends this process nor counts as lost output
**   core.sys.end_with_parent()  when the parent dies, sends this process SIGTERM, and 8 seconds
**                               later kills it, and the group that it leads, if it has not ended
**
** The handler runs on its own stack: oneDNN's AVX-512 kernels keep data below the stack pointer,
** where the system would put the handler's frame (core/products/onednn.c). Only the thread that
** called catch_signals counts. The engine's threads block all signals; a thread of another
** library that receives one passes it on. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "glue.h"

#define STACK_BYTES   (64 << 10) /* saved AVX-512 and AMX registers take 11 kB of it */
#define GRACE_SECONDS 8          /* time to finish the step and write a checkpoint */

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

#define COUNT (sizeof numbers / sizeof *numbers)

/* These are mutable globals because a signal handler receives nothing but the number of the signal.
** The program has few others: locks around libraries that are not thread-safe (HDF5, the planner of
** FFTW), the count of open groups in mpi.c, and a flag for the handler at exit in main.c. */
static volatile sig_atomic_t interrupts, ending;
static struct {
    pthread_t        thread; /* the thread that counts */
    int              caught[COUNT];
    struct sigaction before[COUNT];
    char             stack[STACK_BYTES];
} signals;

static void on_signal(int number)
{
    int error = errno;
    if (!pthread_equal(pthread_self(), signals.thread)) {
        (void)pthread_kill(signals.thread, number);
    } else if (number == SIGINT) {
        if (interrupts < SIG_ATOMIC_MAX) interrupts++;
        if (interrupts >= 2) (void)signal(SIGINT, SIG_DFL); /* the third one ends the process */
    } else {
        ending = number;
    }
    errno = error;
}

static int catch_signals(lua_State *L)
{
    stack_t          own = {.ss_sp = signals.stack, .ss_size = sizeof signals.stack};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    signals.thread = pthread_self();
    if (sigaltstack(&own, NULL) != 0)
        return luaL_error(L, "catch_signals: sigaltstack: %s", strerror(errno));
    (void)sigfillset(&action.sa_mask);
    for (size_t i = 0; i < COUNT; i++) {
        struct sigaction old;
        if (signals.caught[i] || sigaction(numbers[i], NULL, &old) != 0) continue;
        if (old.sa_handler == SIG_IGN) continue; /* nohup, or a job in the background */
        if (sigaction(numbers[i], &action, NULL) != 0)
            return luaL_error(L, "catch_signals: %s", strerror(errno));
        signals.before[i] = old;
        signals.caught[i] = 1;
    }
    return 0;
}

static int release_signals(lua_State *L)
{
    (void)L;
    for (size_t i = 0; i < COUNT; i++) {
        if (signals.caught[i]) (void)sigaction(numbers[i], &signals.before[i], NULL);
        signals.caught[i] = 0;
    }
    return 0;
}

int glue_interrupted(void) { return interrupts > 0 || ending != 0; }

static int interrupted(lua_State *L)
{
    static const char *const names[] = {"INT", "TERM", "HUP", "USR1", "USR2"};
    int                      number = ending;
    lua_pushinteger(L, interrupts);
    for (size_t i = 0; i < COUNT; i++) {
        if (numbers[i] != number) continue;
        lua_pushstring(L, names[i]);
        return 2;
    }
    return 1;
}

/* A write to a full pipe would be restarted after a signal, for as long as nobody reads. */
static int output_ready(lua_State *L)
{
    struct pollfd out = {.fd = 1, .events = POLLOUT};
    int           ready = poll(&out, 1, 200);
    lua_pushboolean(L, ready > 0 || (ready < 0 && errno != EINTR)); /* a write reports it */
    return 1;
}

static void on_pipe(int number) { (void)number; }

/* A handler, unlike SIG_IGN, is not inherited by the programs that this one starts. */
static int outlive_output(lua_State *L)
{
    struct sigaction action = {.sa_handler = on_pipe, .sa_flags = SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    if (sigaction(SIGPIPE, &action, NULL) != 0)
        return luaL_error(L, "outlive_output: %s", strerror(errno));
    return 0;
}

int glue_output_outlived(void)
{
    struct sigaction action;
    struct pollfd    out = {.fd = 1, .events = POLLOUT};
    if (sigaction(SIGPIPE, NULL, &action) != 0 || action.sa_handler != on_pipe) return 0;
    int closed = (fcntl(1, F_GETFL) & O_ACCMODE) == O_RDONLY; /* since main.c opened it */
    return closed || (poll(&out, 1, 0) > 0 && out.revents & POLLERR);
}

/* ---- Between instructions -------------------------------------------------------------------- */

#define HOOK_INSTRUCTIONS 1000 /* the most that run before a signal is noticed */

static const char on_signal_key = 0; /* its address is the registry key of the function */

static void signal_hook(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    if (!glue_interrupted()) return;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &on_signal_key) == LUA_TFUNCTION) lua_call(L, 0, 0);
}

/* lua_newthread copies a C hook to each new coroutine. A hook of debug.sethook would not be
** called there, because it looks up its Lua function by thread. */
static int on_signal_call(lua_State *L)
{
    int on = !lua_isnoneornil(L, 1);
    if (on) luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &on_signal_key);
    lua_sethook(L, on ? signal_hook : NULL, on ? LUA_MASKCOUNT : 0, HOOK_INSTRUCTIONS);
    return 0;
}

/* ---- The parent ------------------------------------------------------------------------------ */

/* Watches from a thread of its own, because a step that never ends does not look at signals. */
static void *watch_parent(void *user)
{
    pid_t           parent = (pid_t)(intptr_t)user;
    struct timespec look = {.tv_nsec = 500 * 1000 * 1000}, grace = {.tv_sec = GRACE_SECONDS};
    while (getppid() == parent) (void)nanosleep(&look, NULL);
    (void)nanosleep(&grace, NULL);
    (void)kill(getpgrp() == getpid() ? 0 : getpid(), SIGKILL); /* 0: the whole group */
    return NULL;
}

static int end_with_parent(lua_State *L)
{
    sigset_t  all, before;
    pthread_t thread;
#ifdef __linux__
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    (void)fcntl(GLUE_CHANNEL, F_SETFD, FD_CLOEXEC); /* so that child processes do not inherit it */
    int error = pthread_create(&thread, NULL, watch_parent, (void *)(intptr_t)getppid());
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) return luaL_error(L, "end_with_parent: %s", strerror(error));
    (void)pthread_detach(thread);
    return 0;
}

const luaL_Reg glue_signal_functions[] = {
    {"catch_signals", catch_signals},
    {"release_signals", release_signals},
    {"interrupted", interrupted},
    {"output_ready", output_ready},
    {"outlive_output", outlive_output},
    {"on_signal", on_signal_call},
    {"end_with_parent", end_with_parent},
    {NULL, NULL},
};

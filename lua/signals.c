/* signals.c - signals as counts that scripts look at; how a worker without a parent ends.
**
**   core.sys.catch_signals()    counts SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 from now on; the
**                               third SIGINT ends the process all the same
**   core.sys.release_signals()  they do again what they did before
**   core.sys.interrupted()      how many SIGINT came; and "TERM", "HUP", "USR1", "USR2" if it came
**   core.sys.on_signal(fn)      once a signal has come, calls fn() every 1000 instructions of Lua;
**                               in coroutines that are made from now on too; nil: stops that
**   core.sys.end_with_parent()  when the parent is gone, this process is sent SIGTERM; 8 seconds
**                               later it is killed with its group if it has not ended
**
** The handler runs on a stack of its own: oneDNN's AVX-512 kernels keep data below the stack
** pointer, where the system would put the handler's frame (core/ops/onednn.c). Only the thread that
** called catch_signals counts. The engine's threads block all signals, and a thread of another
** library that is hit passes the signal on. */
#include <errno.h>
#include <fcntl.h>
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

#define STACK_BYTES   (64 << 10) /* the registers of AVX-512 and AMX take 11 kB of it */
#define GRACE_SECONDS 8          /* for the step in hand and its checkpoint */

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

#define COUNT (sizeof numbers / sizeof *numbers)

/* The only mutable globals of the program: a signal handler can reach nothing else. */
static volatile sig_atomic_t interrupts, ending;
static struct {
    pthread_t        thread; /* the one that counts */
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

/* ---- Between instructions -------------------------------------------------------------------- */

#define HOOK_INSTRUCTIONS 1000 /* at most so many pass before a signal is seen */

static const char on_signal_key = 0; /* its address names the function in the registry */

static void look(lua_State *L, lua_Debug *ar)
{
    (void)ar;
    if (!glue_interrupted()) return;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &on_signal_key) == LUA_TFUNCTION) lua_call(L, 0, 0);
}

/* lua_newthread copies a hook made in C to each new coroutine; one made by debug.sethook, which is
** a Lua function looked up by its thread, would not be called there. */
static int on_signal_call(lua_State *L)
{
    int on = !lua_isnoneornil(L, 1);
    if (on) luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_settop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &on_signal_key);
    lua_sethook(L, on ? look : NULL, on ? LUA_MASKCOUNT : 0, HOOK_INSTRUCTIONS);
    return 0;
}

/* ---- The parent ------------------------------------------------------------------------------ */

/* A thread of its own, because a step that never ends looks at no signal. */
static void *watch_parent(void *user)
{
    pid_t           parent = (pid_t)(intptr_t)user;
    struct timespec look = {.tv_nsec = 500 * 1000 * 1000}, grace = {.tv_sec = GRACE_SECONDS};
    while (getppid() == parent) (void)nanosleep(&look, NULL);
    (void)nanosleep(&grace, NULL);
    (void)kill(getpgrp() == getpid() ? 0 : getpid(), SIGKILL); /* 0: with what it has started */
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
    (void)fcntl(GLUE_CHANNEL, F_SETFD, FD_CLOEXEC); /* what this process starts does not hold it */
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
    {"on_signal", on_signal_call},
    {"end_with_parent", end_with_parent},
    {NULL, NULL},
};

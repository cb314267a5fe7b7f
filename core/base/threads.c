/* threads.c - the engine's parallel loop, run by a pool of threads.
**
** An idle thread first spins for a few microseconds, because the next loop of a training step
** mostly follows at once. Then it yields between polls for about a millisecond, because waking a
** sleeping thread costs as much as a small loop. Then it sleeps. OpenMP's runtimes spin for
** milliseconds without yielding, which made a step many times slower on a machine whose
** processors are shared.
**
** fork() copies the pool but none of its threads, and a lock that a thread held stays locked in the
** child. The child therefore touches no worker: it runs all parts of a loop itself. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/threads.h"

#define SPIN_POLLS 2000 /* polls before the thread yields: 20 to 40 microseconds */
#define MAX_POLLS  4000 /* polls before it sleeps */

typedef struct job {
    tl_body body;
    void   *user;
    int64_t count, parts;
} job;

typedef struct worker {
    struct tl_pool *pool;
    pthread_t       thread;
    int64_t         part; /* from 1 on; the caller runs part 0 */
    atomic_int      state;
    pthread_mutex_t lock;
    pthread_cond_t  wake;
} worker;

enum { IDLE, WORK, STOP };

struct tl_pool {
    int             count; /* number of workers running */
    int             busy;
    pid_t           process; /* whose threads the workers are */
    job             job;
    atomic_int      pending;
    pthread_mutex_t lock;
    pthread_cond_t  done;
    worker          workers[];
};

static void spin_pause(int polls)
{
    if (polls >= SPIN_POLLS) (void)sched_yield();
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void job_run(const job *j, int64_t t)
{
    j->body(j->user, j->count * t / j->parts, j->count * (t + 1) / j->parts, (int)t);
}

static int worker_await(worker *w)
{
    int state = IDLE;
    for (int i = 0; i < MAX_POLLS && state == IDLE; i++, spin_pause(i))
        state = atomic_load(&w->state);
    if (state == IDLE) {
        pthread_mutex_lock(&w->lock);
        while ((state = atomic_load(&w->state)) == IDLE) pthread_cond_wait(&w->wake, &w->lock);
        pthread_mutex_unlock(&w->lock);
    }
    return state;
}

static void *worker_main(void *user)
{
    worker         *w = user;
    struct tl_pool *pool = w->pool;
    while (worker_await(w) == WORK) {
        atomic_store(&w->state, IDLE);
        job_run(&pool->job, w->part);
        if (atomic_fetch_sub(&pool->pending, 1) == 1) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
    }
    return NULL;
}

static void worker_post(worker *w, int state)
{
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->state, state);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

/* Whether a fork has left the workers behind in the parent. */
static int pool_forked(const struct tl_pool *pool) { return pool->process != getpid(); }

/* Waits until the workers have finished their parts. */
static void pool_await(struct tl_pool *pool)
{
    for (int i = 0; i < MAX_POLLS && atomic_load(&pool->pending) > 0; i++) spin_pause(i);
    if (atomic_load(&pool->pending) > 0) {
        pthread_mutex_lock(&pool->lock);
        while (atomic_load(&pool->pending) > 0) pthread_cond_wait(&pool->done, &pool->lock);
        pthread_mutex_unlock(&pool->lock);
    }
}

int64_t tl_parallel_parts(const tl_ctx *ctx, int64_t count, int64_t grain)
{
    int64_t parts = grain < 1 ? count : count / grain;
    if (parts < 1) return 1;
    return parts < ctx->threads ? parts : ctx->threads;
}

void tl_parallel(const tl_ctx *ctx, int64_t count, int64_t grain, tl_body body, void *user)
{
    struct tl_pool *pool = ctx->pool;
    int64_t         parts = tl_parallel_parts(ctx, count, grain);
    if (count <= 0) return;
    if (parts <= 1 || pool->busy) { /* busy: called inside a body, where waiting would deadlock */
        body(user, 0, count, 0);
        return;
    }
    pool->busy = 1;
    pool->job = (job){body, user, count, parts};
    if (pool_forked(pool)) {
        for (int64_t t = 0; t < parts; t++) job_run(&pool->job, t);
    } else {
        atomic_store(&pool->pending, (int)parts - 1);
        for (int64_t t = 1; t < parts; t++) worker_post(&pool->workers[t - 1], WORK);
        job_run(&pool->job, 0);
        pool_await(pool);
    }
    pool->busy = 0;
}

/* ---- Opening and closing --------------------------------------------------------------------- */

int tl_processors(double quota)
{
    cpu_set_t set;
    long      count = sysconf(_SC_NPROCESSORS_ONLN);
    if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
    if (count < 1) count = 1;
    return quota < (double)count ? (int)ceil(quota) : (int)count;
}

/* Starts the workers with all signals blocked, so that only the program's own threads handle
** them. */
static tl_status start_workers(struct tl_pool *pool, int count)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int failed = 0; pool->count < count && !failed;) {
        worker *w = &pool->workers[pool->count];
        w->pool = pool;
        w->part = pool->count + 1;
        atomic_init(&w->state, IDLE);
        pthread_mutex_init(&w->lock, NULL);
        pthread_cond_init(&w->wake, NULL);
        failed = pthread_create(&w->thread, NULL, worker_main, w) != 0;
        pool->count += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool->count == count ? TL_OK : TL_ENOMEM;
}

tl_status tl_threads_open(tl_ctx *ctx)
{
    int count = ctx->threads - 1;
    ctx->pool = calloc(1, sizeof *ctx->pool + (size_t)count * sizeof(worker));
    if (!ctx->pool) return TL_ENOMEM;
    ctx->pool->process = getpid();
    pthread_mutex_init(&ctx->pool->lock, NULL);
    pthread_cond_init(&ctx->pool->done, NULL);
    return start_workers(ctx->pool, count);
}

static void stop_workers(struct tl_pool *pool)
{
    for (int i = 0; i < pool->count; i++) worker_post(&pool->workers[i], STOP);
    for (int i = 0; i < pool->count; i++) {
        worker *w = &pool->workers[i];
        pthread_join(w->thread, NULL);
        pthread_cond_destroy(&w->wake);
        pthread_mutex_destroy(&w->lock);
    }
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
}

void tl_threads_close(tl_ctx *ctx)
{
    struct tl_pool *pool = ctx->pool;
    if (!pool) return;
    if (!pool_forked(pool)) stop_workers(pool);
    free(pool);
    ctx->pool = NULL;
}

int tl_threads(const tl_ctx *ctx) { return ctx->threads; }

int tl_threads_running(const tl_ctx *ctx) { return pool_forked(ctx->pool) ? 1 : ctx->threads; }

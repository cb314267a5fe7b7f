/* choose.c - implements the backend "auto": measures the backends that compute the same operator
** and takes the fastest for a problem. The context and a file in the cache folder store each
** choice, in lines of the form
**     VERSION HOST THREADS N D CAUSAL BACKEND
** so that a program that is run again computes the same bits. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "engine/device.h"
#include "engine/plugin.h"
#include "tno/plan.h"

#define RUNS     3   /* timed runs of each backend; the shortest counts */
#define LOCK_TRIES 200 /* times 50 ms that it waits for another's measurement */
#define CHANNELS 64  /* at most, per thread: more would take longer and not change the choice */

/* Up to DIRECT positions, where speed hardly counts, only those that add the terms of each output
** by themselves: a transform errs relative to the largest values of the row. */
#define DIRECT 16
static int candidate(const tl_tno_backend *b, int64_t n)
{
    return n <= b->auto_length && (n > DIRECT || b->auto_length < INT64_MAX);
}

/* ---- Measurement ----------------------------------------------------------------------------- */

/* The shortest of RUNS forward and backward passes over one sequence, after one to warm up. */
static tl_status time_plan(const tl_plan *p, const tl_tno_args *a, double *out_seconds)
{
    tl_status st = TL_OK;
    for (int i = 0; i <= RUNS && st == TL_OK; i++) {
        double start = tl_seconds();
        st = tl_plan_forward(p, a);
        if (st == TL_OK) st = p->form.backward(p->state, a);
        double seconds = tl_seconds() - start;
        if (i == 1 || (i > 1 && seconds < *out_seconds)) *out_seconds = seconds;
    }
    return st;
}

static tl_status time_backend(tl_ctx *ctx, const tl_tno_backend *b, const tl_tno_problem *p,
                              double *out_seconds)
{
    tl_plan   plan;
    tl_status st = tl_plan_open(&ctx->host, TL_CPU, b, p, NULL, &plan);
    if (st != TL_OK) return st;
    int64_t rows = p->n * p->d, points = plan.points * p->d, count = 2 * points + 4 * rows;
    float  *all = tl_alloc(ctx, (size_t)count * sizeof *all);
    if (!all) {
        st = TL_ENOMEM;
    } else {
        float *x = all + 2 * points, *y = x + rows, *dy = y + rows, *dx = dy + rows;
        for (int64_t k = 0; k < count; k++) all[k] = 1;
        tl_tno_args a = {.b = 1, .coef = all, .x = x, .y = y, .dy = dy, .dx = dx,
                         .dcoef = all + points};
        st = time_plan(&plan, &a, out_seconds);
    }
    tl_release(ctx, all);
    tl_plan_close(&plan);
    return st;
}

/* Measures every candidate. One that fails loses; the first such error is returned only if none is
** left. */
static tl_status choice_measure(tl_ctx *ctx, const tl_tno_problem *p, const char **out_name)
{
    tl_tno_problem small = *p;
    tl_status      error = TL_EBACKEND;
    double         best = 0, seconds = 0;
    char           message[sizeof ctx->message] = "";
    if (small.d > CHANNELS * ctx->host.threads) small.d = CHANNELS * ctx->host.threads;
    *out_name = NULL;
    for (const tl_plugin *plugin = ctx->plugins; plugin; plugin = plugin->next) {
        const tl_tno_backend *b = plugin->entry;
        if (!candidate(b, p->n)) continue;
        tl_status st = time_backend(ctx, b, &small, &seconds);
        if (st != TL_OK && st != TL_EBACKEND && error == TL_EBACKEND) {
            error = st;
            memcpy(message, ctx->message, sizeof message);
        }
        if (st != TL_OK || (*out_name && seconds >= best)) continue;
        *out_name = b->name;
        best = seconds;
    }
    ctx->message[0] = 0; /* the message of a candidate that lost */
    if (*out_name) return TL_OK;
    if (error != TL_EBACKEND) return tl_fail(ctx, error, "%s", message);
    return tl_fail(ctx, TL_EBACKEND, "backend 'auto': no loaded candidate accepts the problem");
}

/* ---- Cache ----------------------------------------------------------------------------------- */

/* The loaded candidate named by the line of text that begins with key, or NULL. */
static const char *choice_find(const tl_ctx *ctx, const char *text, const char *key, int64_t n)
{
    size_t len = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) != 0) continue;
        for (const tl_plugin *p = ctx->plugins; p; p = p->next) {
            size_t name = strlen(p->entry->name);
            if (strncmp(line + len, p->entry->name, name) == 0 && line[len + name] == '\n' &&
                candidate(p->entry, n))
                return p->entry->name;
        }
    }
    return NULL;
}

static tl_status choice_remember(tl_ctx *ctx, const char *line)
{
    size_t had = ctx->choices ? strlen(ctx->choices) : 0;
    char  *all = realloc(ctx->choices, had + strlen(line) + 1);
    if (!all) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    memcpy(all + had, line, strlen(line) + 1);
    ctx->choices = all;
    return TL_OK;
}

/* Appends the line by a single write, so that lines of several processes do not mix. An error is
** ignored, since the next run can measure again. */
static void choice_save(const char *path, const char *line)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return;
    ssize_t written = write(fd, line, strlen(line));
    (void)written;
    (void)close(fd);
}

/* Locks the guard of this host's choices, so that one process or thread at a time measures and all
** of them take what the first one found. Returns its descriptor, to be closed; -1: there is no
** lock, or another has held it longer than measuring takes. */
static int choice_lock(const char *folder, const char *host)
{
    const struct timespec pause = {0, 50 * 1000000};
    char path[4096];
    int  n = snprintf(path, sizeof path, "%s/backends.%s.lock", folder, host);
    if (n < 0 || (size_t)n >= sizeof path) return -1;
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    for (int i = 0; lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0; i++) {
        int busy = errno == EWOULDBLOCK || errno == EINTR;
        if (busy && i < LOCK_TRIES) {
            (void)nanosleep(&pause, NULL);
            continue;
        }
        (void)close(lock);
        lock = -1;
    }
    return lock;
}

/* Sets *out_name to the choice that the file at path has, if it has one. */
static void choice_read(tl_ctx *ctx, const char *path, const char *key, int64_t n,
                        const char **out_name)
{
    char  *text = NULL;
    size_t bytes;
    if (access(path, R_OK) == 0 && tl_file_read(ctx, path, &text, &bytes) == TL_OK)
        *out_name = choice_find(ctx, text, key, n);
    tl_release(ctx, text);
    ctx->message[0] = 0; /* a file that cannot be read counts as missing */
}

/* On a device nothing is measured: a form knows the lengths at which it is the fastest, and all
** others are the same computation, so that the first candidate serves. */
static tl_status choose_on_device(tl_ctx *ctx, const tl_tno_problem *p, const char **out_name)
{
    *out_name = NULL;
    for (const tl_plugin *plugin = ctx->plugins; plugin; plugin = plugin->next) {
        const tl_tno_backend *b = plugin->entry;
        const tl_tno_form    *form = NULL;
        if (b->auto_length > 0 && ctx->engine->form) form = ctx->engine->form(ctx, b->name);
        if (!form) continue;
        if (form->auto_length && p->n <= form->auto_length(ctx, p->causal)) {
            *out_name = b->name;
            return TL_OK;
        }
        if (!*out_name && candidate(b, p->n)) *out_name = b->name;
    }
    if (*out_name) return TL_OK;
    return tl_fail(ctx, TL_EBACKEND, "backend 'auto': no loaded candidate runs on %s",
                   tl_device_name(ctx));
}

/* Takes the choice from the file of choices, or measures it and adds it there. */
static tl_status choice_shared(tl_ctx *ctx, const tl_tno_problem *p, const char *host,
                               const char *key, const char **out_name)
{
    char path[4096], line[440];
    (void)snprintf(path, sizeof path, "%s/backends.chosen", ctx->host.cache_dir);
    choice_read(ctx, path, key, p->n, out_name);
    if (*out_name) return TL_OK;
    int lock = choice_lock(ctx->host.cache_dir, host);
    choice_read(ctx, path, key, p->n, out_name); /* another may have measured meanwhile */
    int       found = *out_name != NULL;
    tl_status st = found ? TL_OK : choice_measure(ctx, p, out_name);
    if (st == TL_OK && !found) {
        (void)snprintf(line, sizeof line, "%s%s\n", key, *out_name);
        choice_save(path, line);
    }
    if (lock >= 0) (void)close(lock);
    return st;
}

tl_status tl_choose(tl_ctx *ctx, const tl_tno_problem *p, const char **out_name)
{
    char key[400], line[440], host[200] = "?";
    if (ctx->device != TL_CPU) return choose_on_device(ctx, p, out_name);
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(key, sizeof key, "%s %s %d %lld %lld %d ", TL_VERSION, host, ctx->host.threads,
                   (long long)p->n, (long long)p->d, p->causal);
    *out_name = choice_find(ctx, ctx->choices, key, p->n);
    if (*out_name) return TL_OK;
    tl_status st = ctx->host.cache_dir ? choice_shared(ctx, p, host, key, out_name)
                                       : choice_measure(ctx, p, out_name);
    if (st != TL_OK) return st;
    (void)snprintf(line, sizeof line, "%s%s\n", key, *out_name);
    return choice_remember(ctx, line);
}

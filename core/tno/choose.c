/* choose.c - implements the backend "auto": measures the backends that compute the same operator
** and takes the fastest for a problem. The context and a file in the cache folder store each
** choice, in lines of the form
**     VERSION HOST THREADS N D CAUSAL BACKEND
** so that a program that is run again computes the same bits. On a device, a form states the length
** up to which it is expected to be the fastest, and the lengths at which this GPU is measured, too,
** and the choice stored as
**     VERSION DEVICE precision NUMBER N D CAUSAL BACKEND */
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

#define RUNS       3     /* timed runs of each backend; the shortest counts */
#define LOCK_TRIES 200   /* times 50 ms that it waits for another's measurement */
#define LINE       1000  /* bytes of a stored choice at most */
#define CHANNELS   64    /* at most, per thread: more would take longer and not change the choice */
/* On a device: */
#define TOKENS     16384 /* positions of a measurement */
#define WIDTH      512   /* channels of a measurement, at most */

/* Up to DIRECT positions, where speed hardly counts, only those that add the terms of each output
** by themselves: a transform errs relative to the largest values of the row. */
#define DIRECT 16
static int candidate(const tl_tno_backend *b, int64_t n)
{
    return n <= b->auto_length && (n > DIRECT || b->auto_length < INT64_MAX);
}

/* The form of a candidate on a device, or NULL. One with a length of its own has code that the CPU
** lacks, so that the CPU's limit does not hold. */
static const tl_tno_form *form_of(tl_ctx *ctx, const tl_tno_backend *b, int64_t n)
{
    if (b->auto_length == 0 || !ctx->engine->form) return NULL;
    const tl_tno_form *form = ctx->engine->form(ctx, b->name);
    if (!form || (n <= DIRECT && b->auto_length == INT64_MAX)) return NULL;
    return form->auto_length || n <= b->auto_length ? form : NULL;
}

/* On a device: the backend whose form states the smallest length that is long enough, else one
** without a length. NULL: there is none. */
typedef struct forms {
    const tl_tno_backend *usual;
    int                   measure; /* whether times decide at this length */
} forms;

static forms forms_of(tl_ctx *ctx, const tl_tno_problem *p)
{
    forms   f = {0};
    int64_t best = 0;
    for (const tl_plugin *plugin = ctx->plugins; plugin; plugin = plugin->next) {
        const tl_tno_form *form = form_of(ctx, plugin->entry, p->n);
        if (!form) continue;
        int64_t rank = INT64_MAX - 1;
        if (form->auto_length) {
            tl_auto_length own = form->auto_length(ctx, p->causal);
            if (own.from <= p->n && p->n <= own.to) f.measure = 1;
            rank = p->n <= own.length ? own.length : INT64_MAX;
        }
        if (f.usual && rank >= best) continue;
        f.usual = plugin->entry;
        best = rank;
    }
    return f;
}

static int is_candidate(tl_ctx *ctx, const tl_tno_problem *p, const tl_tno_backend *b)
{
    return ctx->device == TL_CPU ? candidate(b, p->n) : form_of(ctx, b, p->n) != NULL;
}

/* ---- Measurement ----------------------------------------------------------------------------- */

/* The shortest of RUNS forward and backward passes, after one to warm up. */
static tl_status time_plan(tl_ctx *ctx, const tl_plan *p, const tl_tno_args *a,
                           double *out_seconds)
{
    tl_status st = TL_OK;
    for (int i = 0; i <= RUNS && st == TL_OK; i++) {
        double start = tl_seconds();
        st = tl_plan_forward(p, a);
        if (st == TL_OK) st = p->form.backward(p->state, a);
        if (st == TL_OK) st = tl_synchronize(ctx);
        double seconds = tl_seconds() - start;
        if (i == 1 || (i > 1 && seconds < *out_seconds)) *out_seconds = seconds;
    }
    return st;
}

/* Over one sequence; on a device over TOKENS positions, to which all of it contributes. */
static tl_status time_backend(tl_ctx *ctx, const tl_tno_backend *b, const tl_tno_problem *p,
                              double *out_seconds)
{
    tl_plan    plan;
    tl_tensor *all = NULL;
    tl_status  st = tl_plan_open(&ctx->host, ctx->device, b, p, NULL, &plan);
    if (st != TL_OK) return st;
    int64_t sequences = ctx->device == TL_CPU || p->n > TOKENS ? 1 : TOKENS / p->n;
    int64_t rows = sequences * p->n * p->d, points = plan.points * p->d;
    int64_t count = 2 * points + 4 * rows;
    st = tl_tensor_new(ctx, TL_F32, 1, &count, &all);
    if (st == TL_OK) st = tl_tensor_fill(all, 1);
    if (st == TL_OK) {
        float *coef = F32(all), *x = coef + 2 * points, *dy = x + 2 * rows;
        tl_tno_args a = {.b = sequences, .coef = coef, .x = x, .y = x + rows, .dy = dy,
                         .dx = dy + rows, .dcoef = coef + points};
        st = time_plan(ctx, &plan, &a, out_seconds);
    }
    tl_tensor_free(all);
    tl_plan_close(&plan);
    return st;
}

/* Measures every candidate. On the CPU one that fails loses, and the first such error is returned
** only if none is left. On a device a failure ends the measurement, so that no choice is stored. */
static tl_status choice_measure(tl_ctx *ctx, const tl_tno_problem *p, const char **out_name)
{
    tl_tno_problem small = *p;
    tl_status      error = TL_EBACKEND;
    double         best = 0, seconds = 0;
    char           message[sizeof ctx->message] = "";
    int64_t        most = ctx->device == TL_CPU ? CHANNELS * ctx->host.threads : WIDTH;
    if (small.d > most) small.d = most;
    *out_name = NULL;
    for (const tl_plugin *plugin = ctx->plugins; plugin; plugin = plugin->next) {
        const tl_tno_backend *b = plugin->entry;
        if (!is_candidate(ctx, p, b)) continue;
        tl_status st = time_backend(ctx, b, &small, &seconds);
        if (st != TL_OK && ctx->device != TL_CPU) return st; /* memory may be free another time */
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
static const char *choice_find(tl_ctx *ctx, const char *text, const char *key,
                               const tl_tno_problem *problem)
{
    size_t len = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) != 0) continue;
        for (const tl_plugin *p = ctx->plugins; p; p = p->next) {
            size_t name = strlen(p->entry->name);
            if (strncmp(line + len, p->entry->name, name) == 0 && line[len + name] == '\n' &&
                is_candidate(ctx, problem, p->entry))
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
static void choice_read(tl_ctx *ctx, const char *path, const char *key,
                        const tl_tno_problem *p, const char **out_name)
{
    char  *text = NULL;
    size_t bytes;
    if (access(path, R_OK) == 0 && tl_file_read(ctx, path, &text, &bytes) == TL_OK)
        *out_name = choice_find(ctx, text, key, p);
    tl_release(ctx, text);
    ctx->message[0] = 0; /* a file that cannot be read counts as missing */
}

/* Takes the choice from the file of choices, or measures it and adds it there. */
static tl_status choice_shared(tl_ctx *ctx, const tl_tno_problem *p, const char *host,
                               const char *key, const char **out_name)
{
    char path[4096], line[LINE];
    (void)snprintf(path, sizeof path, "%s/backends.chosen", ctx->host.cache_dir);
    choice_read(ctx, path, key, p, out_name);
    if (*out_name) return TL_OK;
    int lock = choice_lock(ctx->host.cache_dir, host);
    choice_read(ctx, path, key, p, out_name); /* another may have measured meanwhile */
    int       found = *out_name != NULL;
    tl_status st = found ? TL_OK : choice_measure(ctx, p, out_name);
    if (st == TL_OK && !found) {
        (void)snprintf(line, sizeof line, "%s%s\n", key, *out_name);
        choice_save(path, line);
    }
    if (lock >= 0) (void)close(lock);
    return st;
}

/* Takes the choice from the context or the file, or measures it. */
static tl_status choose_by_time(tl_ctx *ctx, const tl_tno_problem *p, const char **out_name)
{
    char key[LINE - 50], line[LINE], host[200] = "?";
    (void)gethostname(host, sizeof host - 1);
    if (ctx->device == TL_CPU)
        (void)snprintf(key, sizeof key, "%s %s %d %lld %lld %d ", TL_VERSION, host,
                       ctx->host.threads, (long long)p->n, (long long)p->d, p->causal);
    else
        (void)snprintf(key, sizeof key, "%s %s precision %d %lld %lld %d ", TL_VERSION,
                       tl_device_about(ctx), (int)ctx->precision, (long long)p->n,
                       (long long)p->d, p->causal);
    *out_name = choice_find(ctx, ctx->choices, key, p);
    if (*out_name) return TL_OK;
    tl_status st = ctx->host.cache_dir ? choice_shared(ctx, p, host, key, out_name)
                                       : choice_measure(ctx, p, out_name);
    if (st != TL_OK) return st;
    (void)snprintf(line, sizeof line, "%s%s\n", key, *out_name);
    return choice_remember(ctx, line);
}

/* Where a device cannot measure, for want of memory or in a capture, the lengths of the forms
** decide. */
static tl_status choose_on_device(tl_ctx *ctx, const tl_tno_problem *p, const char **out_name)
{
    forms f = forms_of(ctx, p);
    if (f.measure && !ctx->capture) {
        if (choose_by_time(ctx, p, out_name) == TL_OK) return TL_OK;
        ctx->message[0] = 0;
    }
    if (!f.usual)
        return tl_fail(ctx, TL_EBACKEND, "backend 'auto': no loaded candidate runs on %s",
                       tl_device_name(ctx));
    *out_name = f.usual->name;
    return TL_OK;
}

tl_status tl_choose(tl_ctx *ctx, const tl_tno_problem *p, const char **out_name)
{
    return ctx->device == TL_CPU ? choose_by_time(ctx, p, out_name)
                                 : choose_on_device(ctx, p, out_name);
}

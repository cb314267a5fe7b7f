/* plan.c - makes FFTW plans, which are measured once per kind of machine and stored as wisdom. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "../common/size.h"
#include "fft.h"

#define PATH            4096
#define LOCK_TRIES      60000 /* waits of 10 ms for another process that measures: 10 minutes */
#define ALWAYS_MEASURED 2048  /* lengths up to this one are measured whatever their factors */
/* measuring takes 16 s at this length, and longer ones more */
#define MAX_MEASURED    ((int64_t)1 << 20)

/* FFTW has one planner per process, which is not thread-safe; executing a plan is. */
static pthread_mutex_t planner = PTHREAD_MUTEX_INITIALIZER;

typedef struct request {
    tl_transform_kind kind;
    int               n;
    float            *in, *out; /* measuring overwrites them */
} request;

static fftwf_plan fft_make(const request *r, unsigned flags)
{
    fftwf_complex *in = (fftwf_complex *)r->in, *out = (fftwf_complex *)r->out;
    switch (r->kind) {
    case TL_C2C_FORWARD: return fftwf_plan_dft_1d(r->n, in, out, FFTW_FORWARD, flags);
    case TL_C2C_BACKWARD: return fftwf_plan_dft_1d(r->n, in, out, FFTW_BACKWARD, flags);
    case TL_R2C: return fftwf_plan_dft_r2c_1d(r->n, r->in, out, flags);
    case TL_C2R: return fftwf_plan_dft_c2r_1d(r->n, in, r->out, flags | FFTW_PRESERVE_INPUT);
    }
    return NULL;
}

/* ---- Wisdom ---------------------------------------------------------------------------------- */

/* Writes text to a new file and renames that to path, so that readers never see a part of it.
** Returns 1 on success. */
static int wisdom_replace(const char *path, const char *text)
{
    char   temporary[PATH + 32];
    size_t left = strlen(text);
    (void)snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) return 0;
    while (left > 0) {
        ssize_t n = write(file, text, left);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        text += n;
        left -= (size_t)n;
    }
    int whole = left == 0 && fsync(file) == 0;
    whole = close(file) == 0 && whole;
    if (whole && rename(temporary, path) == 0) return 1;
    (void)unlink(temporary);
    return 0;
}

static int wisdom_save(const char *path)
{
    char *text = fftwf_export_wisdom_to_string();
    int   saved = text && wisdom_replace(path, text);
    free(text);
    return saved;
}

/* The plan that the file at path describes, or NULL. */
static fftwf_plan wisdom_find(const request *r, const char *path)
{
    fftwf_forget_wisdom();
    if (!fftwf_import_wisdom_from_filename(path)) return NULL;
    return fft_make(r, FFTW_MEASURE | FFTW_WISDOM_ONLY);
}

/* Writes the paths of the wisdom and of its lock. FFTW refuses wisdom of another version or
** instruction set, so the names hold the signature by which it does: machines of several kinds that
** share a folder have a file each. Returns 1 on success. */
static int wisdom_paths(const char *folder, char path[PATH], char guard[PATH])
{
    char     version[32], old[PATH];
    unsigned id[4];
    fftwf_forget_wisdom();
    char *text = fftwf_export_wisdom_to_string(); /* "(fftw-3.3.10 fftwf_wisdom #x9e7d4dee .. )" */
    int   known = text && sscanf(text, "(%31[a-z0-9.-] %*s #x%x #x%x #x%x #x%x", version, &id[0],
                                 &id[1], &id[2], &id[3]) == 5;
    free(text);
    if (!known) return 0;
    int m = snprintf(guard, PATH, "%s/%s-%08x%08x%08x%08x.lock", folder, version, id[0], id[1],
                     id[2], id[3]);
    if (m < 0 || m >= PATH - 2) return 0; /* the other paths are longer by two */
    (void)snprintf(path, PATH, "%.*s.wisdom", m - 5, guard);
    (void)snprintf(old, PATH, "%s/fftw3f.wisdom", folder); /* its name in old versions */
    if (access(path, F_OK) != 0) (void)link(old, path);
    return 1;
}

/* Locks the open file. TL_ENOTFOUND: this file system has no locks. TL_EBACKEND: the file stayed
** locked during all LOCK_TRIES. One measurement takes seconds (see MAX_MEASURED), so the process
** that holds the lock is most likely stopped. */
static tl_status wisdom_lock(const tl_host *h, int lock, const char *guard)
{
    const struct timespec pause = {0, 10 * 1000000};
    for (int i = 0; flock(lock, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK && errno != EINTR) return TL_ENOTFOUND;
        if (i >= LOCK_TRIES)
            return h->fail(h, TL_EBACKEND, "fft: another process has locked %s for %d minutes: end "
                           "it, or set TOEPLAB_CACHE to another folder", guard, LOCK_TRIES / 6000);
        (void)nanosleep(&pause, NULL);
    }
    return TL_OK;
}

/* Measures a plan, saves it and makes it again from the file, as a restarted run will. */
static fftwf_plan wisdom_add(const request *r, const char *path)
{
    fftwf_plan plan = NULL, trial = fft_make(r, FFTW_MEASURE);
    if (trial && wisdom_save(path)) plan = wisdom_find(r, path);
    if (trial) fftwf_destroy_plan(trial);
    return plan;
}

/* Finds the stored plan, or measures and stores one; writes NULL if the folder cannot be written or
** locked. The lock lets one process at a time measure, so that two never use different plans for
** the same problem; reading needs none, since the file is replaced as a whole. */
static tl_status measured(const tl_host *h, const request *r, fftwf_plan *out_plan)
{
    char      path[PATH], guard[PATH];
    tl_status st = TL_OK;
    *out_plan = NULL;
    if (!wisdom_paths(h->cache_dir, path, guard)) return TL_OK;
    int lock = open(guard, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0) return TL_OK;
    *out_plan = wisdom_find(r, path);
    if (!*out_plan) {
        st = wisdom_lock(h, lock, guard);
        *out_plan = wisdom_find(r, path); /* another process may have stored it meanwhile */
        if (!*out_plan && st == TL_OK) *out_plan = wisdom_add(r, path);
    }
    (void)close(lock);
    return *out_plan || st == TL_ENOTFOUND ? TL_OK : st;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* Whether a length is measured: at one above MAX_MEASURED, or with a factor above 7, FFTW may take
** minutes (169 s at 1,048,577). The rule does not depend on a clock, so that a repeated run has the
** same plans. */
static int worth_measuring(int64_t n)
{
    return n <= ALWAYS_MEASURED || (n <= MAX_MEASURED && good_size(n) == n);
}

tl_status fft_plan(const tl_host *h, tl_transform_kind kind, int64_t n, int measure,
                   fftwf_plan *out_plan)
{
    fftwf_plan plan = NULL;
    tl_status  st = TL_OK;
    if (n < 1 || n > FFT_LONGEST)
        return h->fail(h, TL_EINVAL, "fft: the length of a transform is %lld, not 1 to %lld",
                       (long long)n, (long long)FFT_LONGEST);
    size_t  bytes = ((size_t)n + 2) * 2 * sizeof(float);
    request r = {kind, (int)n, h->alloc(h, bytes), h->alloc(h, bytes)};
    if (r.in && r.out) {
        (void)pthread_mutex_lock(&planner);
        if (measure && h->cache_dir && worth_measuring(n)) st = measured(h, &r, &plan);
        if (!plan && st == TL_OK) {
            fftwf_forget_wisdom(); /* or the estimate would depend on it */
            plan = fft_make(&r, FFTW_ESTIMATE);
        }
        (void)pthread_mutex_unlock(&planner);
    }
    h->free(h, r.in);
    h->free(h, r.out);
    if (st != TL_OK) return st;
    if (!plan) return h->fail(h, TL_ENOMEM, "fft: no memory for a plan of %lld", (long long)n);
    *out_plan = plan;
    return TL_OK;
}

void fft_plan_free(fftwf_plan plan)
{
    if (!plan) return;
    (void)pthread_mutex_lock(&planner); /* plans share tables with the planner */
    fftwf_destroy_plan(plan);
    (void)pthread_mutex_unlock(&planner);
}

/* ---- For the host ---------------------------------------------------------------------------- */

typedef struct shared { /* a plan that the host caches */
    const tl_host    *h;
    tl_transform_kind kind;
    fftwf_plan        plan;
} shared;

static tl_status plan_shared(const tl_host *h, tl_transform_kind kind, int64_t n, void **out_plan)
{
    shared *s = h->alloc(h, sizeof *s);
    if (!s) return TL_ENOMEM;
    *s = (shared){h, kind, NULL};
    tl_status st = fft_plan(h, kind, n, 1, &s->plan);
    if (st == TL_OK)
        *out_plan = s;
    else
        h->free(h, s);
    return st;
}

static void run_shared(const void *plan, const float *in, float *out)
{
    const shared  *s = plan;
    float         *from = (float *)in; /* FFTW_PRESERVE_INPUT: it is not written */
    fftwf_complex *a = (fftwf_complex *)from, *b = (fftwf_complex *)out;
    if (s->kind == TL_R2C)
        fftwf_execute_dft_r2c(s->plan, from, b);
    else if (s->kind == TL_C2R)
        fftwf_execute_dft_c2r(s->plan, a, out);
    else
        fftwf_execute_dft(s->plan, a, b);
}

static void release_shared(void *plan)
{
    shared *s = plan;
    fft_plan_free(s->plan);
    s->h->free(s->h, s);
}

const tl_transforms fft_transforms = {fftwf_version, plan_shared, run_shared, release_shared};

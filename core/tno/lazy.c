/* lazy.c - computes the large tiles of the relaxed form in a background thread, so that no position
** waits for one.
**
** Let h be TL_LAZY_FROM or a larger power of two, and number the blocks of h positions from 0 on.
** The tiles of level h pair each block I of outputs with block I-2 of inputs and, if I is odd,
** with block I-3:
**     y_(Ih+i) += sum over j < h of k_(2h+i-j) x_((I-2)h+j)     0 <= i < h     (near)
**     y_(Ih+i) += sum over j < h of k_(3h+i-j) x_((I-3)h+j)                    (far).
** These are the pairs that are two or more blocks of h apart, but in the same or neighbouring
** blocks of 2h; so every pair that is two or more blocks of TL_LAZY_FROM apart belongs to exactly
** one level. The inputs of a tile are complete h positions before its first output, so the thread
** has that long to compute it. The price is three tiles of h in 2h positions, where relaxed.c
** computes one (compare Gardner, 1995).
**
** The thread computes some channels of one sequence at a time, always for the stream and level
** whose output is needed in the fewest positions, of the largest level among equals. Where a caller
** would have to wait, it computes other channels of the same tile meanwhile.
**
** In a context of one thread there is none in the background, and the caller spreads the channels
** over the positions that it has for a tile, LANE channels at a position. So b sequences of d
** channels have b d / LANE such units; the cost of one still grows with h.
**
** A sum depends on the order of its terms, which is fixed for a number of threads. With a thread in
** the background, of two levels that write one row the larger one was begun earlier, is due no
** later, and is finished before the smaller one begins.
**
** fork() copies the streams without the thread, which may have been in the middle of a tile: in the
** child, streams made before the fork can only be freed. */
#include "tno/lazy.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

#define GROUP  64 /* most channels at a time, in a context of several threads */
#define LAZY_LEVELS 48

/* ---- Kernels --------------------------------------------------------------------------------- */

enum { NEAR, FAR, KINDS }; /* of tiles */
enum { BACKGROUND, CALLER, THREADS }; /* who computes one */

typedef struct lazy_level { /* number l has tiles of TL_LAZY_FROM 2^l */
    int64_t       h;
    tl_tile_plan *plan[THREADS];
    /* [groups,KINDS], of the backend. FAR is NULL where the kernel or the stream ends before it,
    ** NEAR never is. */
    float **caches;
} lazy_level;

struct tl_lazy_kernel {
    tl_ctx *ctx;
    int64_t    width; /* of a group of channels */
    int64_t    groups;
    int64_t    end; /* positions of a stream */
    int        levels;
    lazy_level level[LAZY_LEVELS];
};

static int64_t slots(const tl_lazy_kernel *k) { return k->groups * KINDS; }

void tl_lazy_kernel_free(tl_lazy_kernel *k)
{
    if (!k) return;
    for (int l = 0; l < k->levels; l++) {
        float **caches = k->level[l].caches;
        for (int64_t i = 0; caches && i < slots(k); i++) tl_release(k->ctx, caches[i]);
        free(caches);
        for (int i = 0; i < THREADS; i++) tl_tile_plan_drop(k->ctx, k->level[l].plan[i]);
    }
    free(k);
}

size_t tl_lazy_kernel_bytes(const tl_lazy_kernel *k)
{
    int64_t floats = 0;
    for (int l = 0; k && l < k->levels; l++)
        for (int64_t i = 0; i < slots(k); i++)
            if (k->level[l].caches[i])
                floats += tl_plan_cache_floats(&k->level[l].plan[CALLER]->hosted.plan);
    return (size_t)floats * sizeof(float);
}

/* Adds the level of h. coef: a scratch buffer of at least [2h-1,k->width]. */
static tl_status add_level(tl_lazy_kernel *k, int64_t h, const float *kernel, int64_t lags,
                           int64_t d, float *coef)
{
    tl_ctx *ctx = k->ctx;
    lazy_level *l = &k->level[k->levels++];
    *l = (lazy_level){.h = h, .caches = calloc((size_t)slots(k), sizeof *l->caches)};
    tl_status st = l->caches ? TL_OK : tl_fail(ctx, TL_ENOMEM, "out of memory");
    for (int i = ctx->threads > 1 ? BACKGROUND : CALLER; i < THREADS && st == TL_OK; i++)
        st = tl_tile_plan_find(ctx, h, k->width, 1 + i, &l->plan[i]);
    for (int64_t i = 0; i < slots(k) && st == TL_OK; i++) {
        int64_t before = (i % KINDS + 1) * h; /* the lags of its tile begin after this one */
        if (before >= lags - 1 || before + h >= k->end) continue;
        tl_kernel_part(kernel, lags, d, before + 1, 2 * h - 1, i / KINDS * k->width, k->width,
                       coef);
        st = tl_tile_plan_cache(ctx, l->plan[CALLER], coef, &l->caches[i]);
    }
    return st;
}

tl_status tl_lazy_kernel_new(tl_ctx *ctx, const float *kernel, int64_t lags, int64_t d,
                             int64_t positions, tl_lazy_kernel **out_k)
{
    int64_t end = positions > 0 ? positions : INT64_MAX, top = TL_LAZY_FROM;
    *out_k = NULL;
    if (lags - 1 <= TL_LAZY_FROM || end <= 2 * TL_LAZY_FROM) return TL_OK;
    while (2 * top < lags - 1 && 4 * top < end) top *= 2;
    tl_lazy_kernel *k = calloc(1, sizeof *k);
    if (!k) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    k->ctx = ctx;
    k->end = end;
    int64_t most = ctx->threads > 1 ? GROUP : LANE;
    k->groups = (d + most - 1) / most;
    k->width = ((d + k->groups - 1) / k->groups + LANE - 1) / LANE * LANE;
    float    *coef = tl_alloc(ctx, (size_t)(2 * top * k->width) * sizeof *coef);
    tl_status st = coef ? TL_OK : TL_ENOMEM;
    for (int64_t h = TL_LAZY_FROM; h <= top && st == TL_OK; h *= 2)
        st = add_level(k, h, kernel, lags, d, coef);
    tl_release(ctx, coef);
    if (st == TL_OK)
        *out_k = k;
    else
        tl_lazy_kernel_free(k);
    return st;
}

/* ---- Tiles ----------------------------------------------------------------------------------- */

struct tl_lazy {
    const tl_lazy_kernel *k;
    struct tl_background *g;
    float                *state; /* [b,rows,width] */
    int64_t               b, rows, width;
    int64_t               at;          /* the last multiple of TL_LAZY_FROM that was reached */
    int64_t               due[LAZY_LEVELS]; /* the first output of unfinished tiles; 0: none */
    /* Units of these tiles: a sequence and a group of channels each. */
    int64_t               begun[LAZY_LEVELS], ended[LAZY_LEVELS];
    tl_status             status;       /* of the tiles so far */
    tl_lazy              *next;
};

/* Adds what the inputs of block `from` contribute to the outputs of block `to`, for a group of
** channels of one sequence. */
static tl_status lazy_add_tile(const tl_lazy *s, tl_tile_plan *p, float *cache, int64_t from,
                               int64_t to, float *rows, int64_t channels)
{
    int64_t       h = p->hosted.plan.problem.n, width = s->k->width, first = to * h % s->rows;
    int64_t       count = s->rows - first < h ? s->rows - first : h;
    const float  *x = rows + from * h % s->rows * s->width;
    float        *y = rows + first * s->width;
    for (int64_t i = 0; i < h; i++) {
        memcpy(p->x + i * width, x + i * s->width, (size_t)channels * sizeof *x);
        for (int64_t c = channels; c < width; c++) p->x[i * width + c] = 0;
    }
    tl_tno_args a = {.b = 1, .x = p->x, .y = p->y, .cache = cache, .cached = 1};
    tl_status   st = tl_plan_forward(&p->hosted.plan, &a);
    for (int64_t i = 0; i < count && st == TL_OK; i++)
        for (int64_t c = 0; c < channels; c++) y[i * s->width + c] += p->y[i * width + c];
    return st;
}

/* Computes a unit of a level: both tiles of a group of channels of one sequence. */
static tl_status add_unit(const tl_lazy *s, int number, int64_t due, int64_t unit, int thread)
{
    const tl_lazy_kernel *k = s->k;
    const lazy_level     *l = &k->level[number];
    int64_t               to = due / l->h, group = unit % k->groups, c = group * k->width;
    int64_t               channels = s->width - c < k->width ? s->width - c : k->width;
    float                *rows = s->state + unit / k->groups * s->rows * s->width + c;
    float *const         *caches = l->caches + group * KINDS;
    tl_status st = lazy_add_tile(s, l->plan[thread], caches[NEAR], to - 2, to, rows, channels);
    if (st == TL_OK && to % 2 && caches[FAR])
        st = lazy_add_tile(s, l->plan[thread], caches[FAR], to - 3, to, rows, channels);
    return st;
}

/* ---- The thread ------------------------------------------------------------------------------ */

struct tl_background {
    tl_lazy        *first;   /* the list of all streams */
    tl_lazy        *running; /* whose tile the thread is computing, or NULL */
    int             alone;   /* there is no thread: the callers compute all tiles */
    int             stop;
    pid_t           process; /* whose thread it is */
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  changed; /* there is more to do, or a unit has ended */
};

static int64_t units(const tl_lazy *s) { return s->b * s->k->groups; }

/* Returns the stream with a unit to begin whose tiles are needed in the fewest positions, and their
** level; NULL: there is none. While a caller finishes the first tiles of a stream, its others
** wait. */
static tl_lazy *find_due(const struct tl_background *g, int *out_level)
{
    tl_lazy *found = NULL;
    int64_t  left = INT64_MAX;
    for (tl_lazy *s = g->first; s; s = s->next) {
        int first = -1;
        for (int l = s->k->levels - 1; l >= 0; l--)
            if (s->due[l] && (first < 0 || s->due[l] < s->due[first])) first = l;
        if (first < 0 || s->due[first] - s->at >= left || s->begun[first] == units(s)) continue;
        found = s;
        *out_level = first;
        left = s->due[first] - s->at;
    }
    return found;
}

/* Computes the next unit of a level. The caller holds the lock, which is free meanwhile. */
static void run_unit(struct tl_background *g, tl_lazy *s, int l, int thread)
{
    int64_t due = s->due[l], unit = s->begun[l]++;
    pthread_mutex_unlock(&g->lock);
    tl_status st = add_unit(s, l, due, unit, thread);
    pthread_mutex_lock(&g->lock);
    if (st != TL_OK) s->status = st;
    if (++s->ended[l] == units(s)) s->begun[l] = s->ended[l] = s->due[l] = 0;
    pthread_cond_broadcast(&g->changed);
}

static void *thread_main(void *user)
{
    struct tl_background *g = user;
    int                   l = 0;
    pthread_mutex_lock(&g->lock);
    while (!g->stop) {
        g->running = find_due(g, &l);
        if (g->running)
            run_unit(g, g->running, l, BACKGROUND);
        else
            pthread_cond_wait(&g->changed, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

static tl_status background_open(tl_ctx *ctx)
{
    struct tl_background *g = calloc(1, sizeof *g);
    sigset_t              all, before;
    if (!g) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    g->process = getpid();
    ctx->background = g;
    sigfillset(&all); /* only the program's own threads handle signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    g->alone = ctx->threads == 1 || pthread_create(&g->thread, NULL, thread_main, g) != 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return TL_OK;
}

/* Whether a fork has left the thread behind in the parent, perhaps with the lock. */
static int background_forked(const struct tl_background *g)
{
    return !g->alone && g->process != getpid();
}

static void background_stop(struct tl_background *g)
{
    if (!g->alone) {
        pthread_mutex_lock(&g->lock);
        g->stop = 1;
        pthread_cond_broadcast(&g->changed);
        pthread_mutex_unlock(&g->lock);
        pthread_join(g->thread, NULL);
    }
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
}

static void background_close(tl_ctx *ctx, struct tl_background *g)
{
    if (!background_forked(g)) background_stop(g);
    if (ctx->background == g) ctx->background = NULL;
    free(g);
}

/* ---- Streams --------------------------------------------------------------------------------- */

tl_status tl_lazy_new(const tl_lazy_kernel *k, float *state, int64_t b, int64_t rows,
                      int64_t width, tl_lazy **out_s)
{
    tl_ctx  *ctx = k->ctx;
    tl_lazy *s = calloc(1, sizeof *s);
    if (!s) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    tl_status st = TL_OK;
    if (!ctx->background || background_forked(ctx->background)) st = background_open(ctx);
    if (st != TL_OK) {
        free(s);
        return st;
    }
    struct tl_background *g = ctx->background;
    *s = (tl_lazy){.k = k, .g = g, .state = state, .b = b, .rows = rows, .width = width};
    pthread_mutex_lock(&g->lock);
    s->next = g->first;
    g->first = s;
    pthread_mutex_unlock(&g->lock);
    *out_s = s;
    return TL_OK;
}

/* Drops the tiles that wait. The caller holds the lock. */
static void drop(struct tl_background *g, tl_lazy *s)
{
    memset(s->due, 0, sizeof s->due);
    while (g->running == s) pthread_cond_wait(&g->changed, &g->lock);
    memset(s->begun, 0, sizeof s->begun);
    memset(s->ended, 0, sizeof s->ended);
    s->status = TL_OK;
    s->at = 0;
}

void tl_lazy_cancel(tl_lazy *s)
{
    struct tl_background *g = s->g;
    if (background_forked(g)) return;
    pthread_mutex_lock(&g->lock);
    drop(g, s);
    pthread_mutex_unlock(&g->lock);
}

static void unlink_stream(struct tl_background *g, const tl_lazy *s)
{
    tl_lazy **at = &g->first;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
}

void tl_lazy_free(tl_lazy *s)
{
    if (!s) return;
    struct tl_background *g = s->g;
    if (background_forked(g)) {
        unlink_stream(g, s);
    } else {
        pthread_mutex_lock(&g->lock);
        drop(g, s);
        unlink_stream(g, s);
        pthread_mutex_unlock(&g->lock);
    }
    if (!g->first) background_close(s->k->ctx, g);
    free(s);
}

tl_status tl_lazy_await(tl_lazy *s, int64_t p)
{
    struct tl_background *g = s->g;
    if (background_forked(g))
        return tl_fail(s->k->ctx, TL_EINVAL, "relaxed: after fork(), the child cannot continue a "
                       "recurrence that was created before");
    pthread_mutex_lock(&g->lock);
    for (int l = s->k->levels - 1; l >= 0; l--)
        while (s->due[l] == p)
            if (s->begun[l] < units(s))
                run_unit(g, s, l, CALLER);
            else
                pthread_cond_wait(&g->changed, &g->lock);
    tl_status st = s->status;
    pthread_mutex_unlock(&g->lock);
    return st == TL_OK ? st : tl_fail(s->k->ctx, st, "relaxed: a tile could not be computed");
}

void tl_lazy_advance(tl_lazy *s, int64_t p)
{
    struct tl_background *g = s->g;
    if (!g->alone) return;
    pthread_mutex_lock(&g->lock);
    for (int l = s->k->levels - 1; l >= 0; l--) {
        int64_t h = s->k->level[l].h, part = units(s) * (p + h - s->due[l]) / h;
        while (s->due[l] && s->begun[l] < part) run_unit(g, s, l, CALLER);
    }
    pthread_mutex_unlock(&g->lock);
}

void tl_lazy_begin(tl_lazy *s, int64_t p)
{
    struct tl_background *g = s->g;
    pthread_mutex_lock(&g->lock);
    s->at = p;
    for (int l = 0; l < s->k->levels && p % s->k->level[l].h == 0; l++)
        if (s->k->level[l].h < s->k->end - p) s->due[l] = p + s->k->level[l].h;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* fftw_plain.c - the convolution of a Toeplitz operator by FFTW used plainly: channels are copied
** to where the numbers of each are neighbours, padded with zeros to 2n, transformed (r2c,
** FFTW_MEASURE), multiplied and transformed back, some at a time. A peer of `toeplab bench tno`; requests
** and answers are those of torch_peer.py.
**
**   fftw_plain THREADS
**
** Forward: Y = T X. Backward: dX = conj(T) D, dT = sum over b of conj(X) D, X computed again. */
#include <fftw3.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { MOST_THREADS = 256, LINE = 1024, LANES = 16, SMALL = 64 };

typedef struct problem {
    int   n, b, d, causal, backward;
    float *x, *dy, *y, *dx; /* [b,n,d] */
    float *coef, *dcoef;    /* [points,d]: lags 0..n-1, or -(n-1)..n-1 */
    fftwf_plan forward, back;
} problem;

typedef struct worker { /* the channels first..last-1, and room for LANES of them */
    const problem *p;
    int            first, last, lanes;   /* lanes: computed at a time */
    size_t         reals, complexes;     /* from one lane to the next: aligned as FFTW requires */
    float         *time;                 /* [LANES,2n] */
    fftwf_complex *t, *x, *dt, *product; /* [LANES,n+1] */
    pthread_t      thread;
} worker;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- Some channels --------------------------------------------------------------------------- */

static void transform(worker *w, fftwf_complex *to)
{
    for (int l = 0; l < w->lanes; l++)
        fftwf_execute_dft_r2c(w->p->forward, w->time + l * w->reals, to + l * w->complexes);
}

static void transform_back(worker *w, fftwf_complex *from)
{
    for (int l = 0; l < w->lanes; l++)
        fftwf_execute_dft_c2r(w->p->back, from + l * w->complexes, w->time + l * w->reals);
}

/* Every d-th number of from, and zeros. */
static void load(worker *w, const float *from, fftwf_complex *to)
{
    int n = w->p->n, d = w->p->d;
    memset(w->time, 0, sizeof(float) * LANES * w->reals);
    for (int i = 0; i < n; i++)
        for (int l = 0; l < w->lanes; l++) w->time[l * w->reals + i] = from[(size_t)i * d + l];
    transform(w, to);
}

/* Lag k is at k, or 2n + k where it is negative. */
static int place(const problem *p, int row)
{
    int lag = p->causal ? row : row - (p->n - 1);
    return lag < 0 ? 2 * p->n + lag : lag;
}

static int points(const problem *p) { return p->causal ? p->n : 2 * p->n - 1; }

static void load_coef(worker *w, const float *from)
{
    const problem *p = w->p;
    memset(w->time, 0, sizeof(float) * LANES * w->reals);
    for (int r = 0; r < points(p); r++)
        for (int l = 0; l < w->lanes; l++)
            w->time[l * w->reals + place(p, r)] = from[(size_t)r * p->d + l];
    transform(w, w->t);
}

static void store(worker *w, fftwf_complex *from, float *to)
{
    int   n = w->p->n, d = w->p->d;
    float scale = 1.0F / (2.0F * (float)n);
    transform_back(w, from);
    for (int i = 0; i < n; i++)
        for (int l = 0; l < w->lanes; l++)
            to[(size_t)i * d + l] = scale * w->time[l * w->reals + i];
}

static void store_coef(worker *w, float *to)
{
    const problem *p = w->p;
    float          scale = 1.0F / (2.0F * (float)p->n);
    transform_back(w, w->dt);
    for (int r = 0; r < points(p); r++)
        for (int l = 0; l < w->lanes; l++)
            to[(size_t)r * p->d + l] = scale * w->time[l * w->reals + place(p, r)];
}

static void forward(worker *w, size_t at)
{
    load(w, w->p->x + at, w->x);
    for (size_t k = 0; k < w->lanes * w->complexes; k++) {
        w->product[k][0] = w->t[k][0] * w->x[k][0] - w->t[k][1] * w->x[k][1];
        w->product[k][1] = w->t[k][0] * w->x[k][1] + w->t[k][1] * w->x[k][0];
    }
    store(w, w->product, w->p->y + at);
}

static void backward(worker *w, size_t at)
{
    const problem *p = w->p;
    fftwf_complex *g = w->product;
    load(w, p->dy + at, g);
    for (size_t k = 0; k < w->lanes * w->complexes; k++) {
        float re = g[k][0], im = g[k][1];
        w->dt[k][0] += w->x[k][0] * re + w->x[k][1] * im;
        w->dt[k][1] += w->x[k][0] * im - w->x[k][1] * re;
        g[k][0] = w->t[k][0] * re + w->t[k][1] * im;
        g[k][1] = w->t[k][0] * im - w->t[k][1] * re;
    }
    store(w, g, p->dx + at);
}

static void *channels(void *user)
{
    worker        *w = user;
    const problem *p = w->p;
    for (int c = w->first; c < w->last; c += LANES) {
        w->lanes = w->last - c < LANES ? w->last - c : LANES;
        load_coef(w, p->coef + c);
        memset(w->dt, 0, sizeof *w->dt * LANES * w->complexes);
        for (int b = 0; b < p->b; b++) {
            size_t at = (size_t)b * p->n * p->d + c;
            forward(w, at);
            if (p->backward) backward(w, at);
        }
        if (p->backward) store_coef(w, p->dcoef + c);
    }
    return NULL;
}

/* ---- A problem ------------------------------------------------------------------------------- */

static void *room(size_t bytes)
{
    void *p = fftwf_malloc(bytes);
    if (!p) {
        puts("error no memory");
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

static float *noise(size_t count)
{
    float *x = room(count * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = (float)rand() / (float)RAND_MAX - 0.5F;
    return x;
}

static void forget(problem *p, worker *workers, int threads)
{
    float *arrays[] = {p->x, p->dy, p->y, p->dx, p->coef, p->dcoef};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) fftwf_free(arrays[i]);
    if (p->forward) fftwf_destroy_plan(p->forward);
    if (p->back) fftwf_destroy_plan(p->back);
    for (int i = 0; i < threads; i++) {
        fftwf_complex *own[] = {workers[i].t, workers[i].x, workers[i].dt, workers[i].product};
        for (size_t j = 0; j < sizeof own / sizeof *own; j++) fftwf_free(own[j]);
        fftwf_free(workers[i].time);
    }
    memset(p, 0, sizeof *p);
}

static void make(problem *p, worker *workers, int threads)
{
    size_t all = (size_t)p->b * p->n * p->d, points = (size_t)(p->causal ? 1 : 2) * p->n * p->d;
    p->x = noise(all);
    p->dy = noise(all);
    p->coef = noise(points);
    p->y = room(all * sizeof(float));
    p->dx = room(all * sizeof(float));
    p->dcoef = room(points * sizeof(float));
    for (int i = 0; i < threads; i++) {
        worker *w = &workers[i];
        *w = (worker){.p = p, .first = (int)((long)p->d * i / threads),
                      .last = (int)((long)p->d * (i + 1) / threads)};
        w->reals = (2 * (size_t)p->n + 3) / 4 * 4;
        w->complexes = ((size_t)p->n + 2) / 2 * 2;
        w->time = room(sizeof(float) * LANES * w->reals);
        fftwf_complex **own[] = {&w->t, &w->x, &w->dt, &w->product};
        for (size_t j = 0; j < sizeof own / sizeof *own; j++)
            *own[j] = room(sizeof(fftwf_complex) * LANES * w->complexes);
    }
    p->forward = fftwf_plan_dft_r2c_1d(2 * p->n, workers->time, workers->t, FFTW_MEASURE);
    p->back = fftwf_plan_dft_c2r_1d(2 * p->n, workers->t, workers->time, FFTW_MEASURE);
}

static void run(worker *workers, int threads)
{
    for (int i = 1; i < threads; i++) {
        if (pthread_create(&workers[i].thread, NULL, channels, &workers[i])) {
            puts("error no thread");
            exit(1);
        }
    }
    (void)channels(&workers[0]);
    for (int i = 1; i < threads; i++) (void)pthread_join(workers[i].thread, NULL);
}

/* ---- Whether it is right --------------------------------------------------------------------- */

/* The largest difference of Y from the sums of its definition, and with the backward pass that of
** <D,Y>, <dX,X> and <dT,T>, which are equal. */
static double error_of(const problem *p)
{
    double worst = 0, dy_y = 0, dx_x = 0, dt_t = 0;
    for (int b = 0; b < p->b; b++)
        for (int i = 0; i < p->n; i++)
            for (int c = 0; c < p->d; c++) {
                size_t row = (size_t)b * p->n, at = (row + i) * p->d + c;
                double sum = 0;
                for (int j = 0; j < (p->causal ? i + 1 : p->n); j++)
                    sum += (double)p->x[(row + j) * p->d + c] *
                           p->coef[(size_t)(i - j + (p->causal ? 0 : p->n - 1)) * p->d + c];
                worst = fmax(worst, fabs(sum - p->y[at]));
                dy_y += (double)p->dy[at] * p->y[at];
                dx_x += (double)p->dx[at] * p->x[at];
            }
    for (size_t k = 0; k < (size_t)points(p) * p->d; k++) dt_t += (double)p->dcoef[k] * p->coef[k];
    if (!p->backward) return worst;
    return fmax(worst, fmax(fabs(dy_y - dx_x), fabs(dy_y - dt_t)));
}

/* ---- Requests -------------------------------------------------------------------------------- */

static int number(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    return at ? atoi(at + strlen(key)) : 0;
}

/* What is asked in "make what=tno n=.. b=.. dim=.. causal=.. pass=..": 0 unless it can be done. */
static int parse(const char *line, problem *p)
{
    *p = (problem){.n = number(line, " n="), .b = number(line, " b="), .d = number(line, " dim="),
                   .causal = strstr(line, " causal=true") != NULL,
                   .backward = strstr(line, " pass=fwd+bwd") != NULL};
    return strstr(line, " what=tno") && p->n > 0 && p->b > 0 && p->d > 0;
}

static double timed(worker *workers, int threads, int calls)
{
    run(workers, threads); /* warms the caches, which others have used in between */
    double start = now();
    for (int i = 0; i < calls; i++) run(workers, threads);
    return (now() - start) / calls;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    if (threads < 1 || threads > MOST_THREADS) return 2;
    static worker workers[MOST_THREADS];
    problem       p = {0};
    char          line[LINE];
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    printf("fftw plain: %s, r2c of length 2n, %d threads\n", fftwf_version, threads);
    while (fgets(line, sizeof line, stdin) && line[0] != '\n') {
        struct rusage usage;
        problem       asked;
        if (!strncmp(line, "run ", 4) && p.x) {
            printf("%.9g\n", timed(workers, threads, atoi(line + 4)));
        } else if (!strncmp(line, "memory", 6) && !getrusage(RUSAGE_SELF, &usage)) {
            printf("rss=%ld\n", 1024 * usage.ru_maxrss);
        } else if (!strncmp(line, "make ", 5) && parse(line, &asked)) {
            if (p.x) forget(&p, workers, threads);
            p = asked;
            make(&p, workers, threads);
            run(workers, threads);
            if (p.n <= SMALL)
                printf("ok parameters=0 error=%.3g\n", error_of(&p));
            else
                puts("ok parameters=0");
        } else {
            puts("error not understood");
        }
    }
    if (p.x) forget(&p, workers, threads);
    return 0;
}

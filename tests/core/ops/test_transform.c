/* test_transform.c - Fourier transforms against their definition, and what their tuning leaves on
** disk. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tensors.h"

#define TOLERANCE 1e-6 /* of the largest entry */
#define TWO_PI    6.283185307179586477

static tl_ctx *ctx;

static const int64_t lengths[] = {1, 2, 3, 4, 5, 8, 15, 16, 31, 64, 97, 100, 210, 257, 1024};
#define LENGTHS ((int)(sizeof lengths / sizeof *lengths))

/* The definition for x [outer,n,inner,2], in float64; sign -1: forward. */
static tl_tensor *slow(const tl_tensor *x, int sign, double scale)
{
    int64_t      dims[] = {tl_tensor_dim(x, 0), tl_tensor_dim(x, 1), tl_tensor_dim(x, 2), 2};
    tl_tensor   *y = zeros(ctx, 4, dims);
    const float *from = tl_tensor_cf32(x);
    for (int64_t o = 0; o < dims[0]; o++)
        for (int64_t k = 0; k < dims[1]; k++)
            for (int64_t v = 0; v < dims[2]; v++) {
                double re = 0, im = 0;
                for (int64_t j = 0; j < dims[1]; j++) {
                    double       turn = (double)(j * k % dims[1]) / (double)dims[1];
                    double       angle = sign * TWO_PI * turn;
                    const float *z = from + ((o * dims[1] + j) * dims[2] + v) * 2;
                    re += z[0] * cos(angle) - z[1] * sin(angle);
                    im += z[0] * sin(angle) + z[1] * cos(angle);
                }
                float *z = tl_tensor_f32(y) + ((o * dims[1] + k) * dims[2] + v) * 2;
                z[0] = (float)(scale * re);
                z[1] = (float)(scale * im);
            }
    return y;
}

static void equal_the_definition(void)
{
    for (int i = 0; i < LENGTHS; i++) {
        int64_t    n = lengths[i], inner = n < 300 ? 11 : 2;
        tl_tensor *x = uniforms(ctx, 4, (int64_t[]){2, n, inner, 2}, -1, 1, 1);
        tl_tensor *y = NULL, *z = NULL;
        tl_tensor *want = slow(x, -1, 1), *inverse = slow(x, 1, 1.0 / (double)n);
        CHECK_STATUS(tl_fft(x, 1, 0, &y), TL_OK);
        CHECK(distance(y, want) < TOLERANCE);
        CHECK_STATUS(tl_fft(x, -2, 1, &z), TL_OK);
        CHECK(distance(z, inverse) < TOLERANCE);
        tl_tensor_f32(want)[0] += 1e-4f * (float)n; /* a planted fault is seen */
        CHECK(distance(y, want) > TOLERANCE);
        tl_tensor *all[] = {x, y, z, want, inverse};
        for (int k = 0; k < 5; k++) tl_tensor_free(all[k]);
    }
}

/* rfft is the first half of fft, along the last axis, and irfft undoes it. */
static void real_ones_are_halves(void)
{
    for (int i = 0; i < LENGTHS; i++) {
        int64_t    n = lengths[i], bins = n / 2 + 1;
        tl_tensor *x = uniforms(ctx, 2, (int64_t[]){3, n}, -1, 1, 2);
        tl_tensor *whole = zeros(ctx, 3, (int64_t[]){3, n, 2});
        tl_tensor *y = NULL, *half = NULL, *back = NULL, *first = NULL;
        for (int64_t k = 0; k < 3 * n; k++) {
            tl_tensor_f32(whole)[2 * k] = tl_tensor_cf32(x)[k];
            tl_tensor_f32(whole)[2 * k + 1] = 0;
        }
        CHECK_STATUS(tl_fft(whole, 1, 0, &y), TL_OK);
        CHECK_STATUS(tl_slice(y, 1, 0, bins, &first), TL_OK);
        CHECK_STATUS(tl_rfft(x, -1, &half), TL_OK);
        CHECK(tl_tensor_ndim(half) == 3 && tl_tensor_dim(half, 1) == bins);
        CHECK(distance(half, first) < TOLERANCE);
        CHECK_STATUS(tl_irfft(half, 1, n, &back), TL_OK);
        CHECK(tl_tensor_ndim(back) == 2 && distance(back, x) < TOLERANCE);
        tl_tensor *all[] = {x, whole, y, half, back, first};
        for (int k = 0; k < 6; k++) tl_tensor_free(all[k]);
    }
}

static void round_trips_return(void)
{
    for (int axis = 0; axis < 3; axis++) {
        tl_tensor *x = uniforms(ctx, 4, (int64_t[]){6, 35, 20, 2}, -1, 1, 3), *y = NULL, *z = NULL;
        CHECK_STATUS(tl_fft(x, axis, 0, &y), TL_OK);
        CHECK_STATUS(tl_fft(y, axis, 1, &z), TL_OK);
        CHECK(distance(z, x) < TOLERANCE);
        CHECK(distance(y, x) > 0.1);
        tl_tensor_free(x);
        tl_tensor_free(y);
        tl_tensor_free(z);
    }
}

/* ---- Gradients ------------------------------------------------------------------------------- */

enum { FFT, IFFT, RFFT, IRFFT };

static tl_status apply(int kind, tl_tensor *x, int64_t n, tl_tensor **out_y)
{
    if (kind == RFFT) return tl_rfft(x, 1, out_y);
    return kind == IRFFT ? tl_irfft(x, 1, n, out_y) : tl_fft(x, 1, kind == IFFT, out_y);
}

static double dot(const tl_tensor *a, const tl_tensor *b)
{
    double sum = 0;
    if (tl_tensor_len(a) != tl_tensor_len(b)) return NAN;
    for (int64_t k = 0; k < tl_tensor_len(a); k++)
        sum += (double)tl_tensor_cf32(a)[k] * tl_tensor_cf32(b)[k];
    return sum;
}

/* The gradient of <A x, dy> is A' dy: <A u, dy> = <u, A' dy> for any u. */
static void adjoint(int kind, int64_t n)
{
    int64_t    rows = kind == IRFFT ? n / 2 + 1 : n;
    int        ndim = kind == RFFT ? 3 : 4;
    tl_tensor *x = uniforms(ctx, ndim, (int64_t[]){2, rows, 5, 2}, -1, 1, 4), *y = NULL, *au = NULL;
    tl_tensor *u = uniforms(ctx, ndim, (int64_t[]){2, rows, 5, 2}, -1, 1, 5);
    tl_tensor *product = NULL, *loss = NULL;
    CHECK_STATUS(tl_set_requires_grad(x, 1), TL_OK);
    CHECK_STATUS(apply(kind, x, n, &y), TL_OK);
    CHECK_STATUS(apply(kind, u, n, &au), TL_OK);
    int64_t dims[TL_MAXDIMS];
    for (int k = 0; k < tl_tensor_ndim(y); k++) dims[k] = tl_tensor_dim(y, k);
    tl_tensor *dy = uniforms(ctx, tl_tensor_ndim(y), dims, -1, 1, 6);
    CHECK_STATUS(tl_binary(TL_BINARY_MUL, y, dy, &product), TL_OK);
    CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, product, TL_ALL_AXES, 0, &loss), TL_OK);
    CHECK_STATUS(tl_backward(ctx, loss), TL_OK);
    double size = sqrt(dot(au, au) * dot(dy, dy));
    CHECK_NEAR(dot(au, dy), dot(u, tl_grad(x)), 1e-6 * size);
    CHECK(size > 0);
    tl_tensor *all[] = {x, y, au, u, product, loss, dy};
    for (int k = 0; k < 7; k++) tl_tensor_free(all[k]);
}

static void gradients_are_adjoints(void)
{
    for (int i = 0; i < LENGTHS; i++)
        for (int kind = FFT; kind <= IRFFT; kind++) adjoint(kind, lengths[i]);
}

static void wrong_arguments_are_refused(void)
{
    tl_tensor *x = uniforms(ctx, 3, (int64_t[]){2, 5, 2}, -1, 1, 7), *y = NULL;
    tl_tensor *real = uniforms(ctx, 2, (int64_t[]){4, 3}, -1, 1, 8);
    tl_tensor *none = uniforms(ctx, 2, (int64_t[]){0, 2}, -1, 1, 9);
    CHECK_STATUS(tl_fft(x, 2, 0, &y), TL_EINVAL);
    CHECK_STATUS(tl_fft(real, 0, 0, &y), TL_ESHAPE);
    CHECK(strcmp(tl_errmsg(ctx), "fft: x is [4,3], a complex tensor is [..,2]") == 0);
    CHECK_STATUS(tl_irfft(x, 1, 7, &y), TL_ESHAPE);
    CHECK_STATUS(tl_irfft(x, 1, 10, &y), TL_ESHAPE);
    CHECK_STATUS(tl_fft(none, 0, 0, &y), TL_ESHAPE);
    CHECK(y == NULL);
    tl_tensor_free(x);
    tl_tensor_free(real);
    tl_tensor_free(none);
}

/* Scratch buffers hold the vectors that are in work at a time, of which there is one here. */
static void one_vector_needs_one_line_of_scratch(void)
{
    const int64_t n = 1 << 16, bytes = 4 * n;
    tl_tensor    *x = uniforms(ctx, 2, (int64_t[]){n, 1}, -1, 1, 1), *y = NULL;
    CHECK_STATUS(tl_rfft(x, 0, &y), TL_OK);
    tl_tensor_free(y);
    size_t before = tl_memory_info(ctx).live;
    tl_memory_reset_peak(ctx);
    CHECK_STATUS(tl_rfft(x, 0, &y), TL_OK);
    CHECK(tl_memory_info(ctx).peak - before < (size_t)(4 * bytes)); /* y, and x and y as lines */
    tl_tensor_free(x);
    tl_tensor_free(y);
}

/* ---- Tuning ---------------------------------------------------------------------------------- */

static char folder[512], wisdom[1024], lock[1024];

/* Names the files that tuning made in the folder. */
static void find_files(void)
{
    DIR *dir = opendir(folder);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        char *to = strstr(e->d_name, ".wisdom") ? wisdom : strstr(e->d_name, ".lock") ? lock : NULL;
        if (to && strncmp(e->d_name, "fftw-3.", 7) == 0)
            (void)snprintf(to, sizeof wisdom, "%s/%s", folder, e->d_name);
    }
    if (dir) (void)closedir(dir);
}

/* y of one operator in a context of its own, which measures. */
static tl_tensor *tuned(int64_t n)
{
    tl_tensor *y = NULL, *coef, *x;
    tl_tno    *tno = NULL;
    tl_ctx    *kept = ctx;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    coef = uniforms(ctx, 2, (int64_t[]){n, 3}, -1, 1, 10);
    x = uniforms(ctx, 3, (int64_t[]){1, n, 3}, -1, 1, 11);
    CHECK_STATUS(tl_tno_new(ctx, "fft", n, 3, 1, NULL, &tno), TL_OK);
    if (tno) CHECK_STATUS(tl_tno_apply(tno, coef, NULL, x, &y), TL_OK);
    tl_tensor_free(coef);
    tl_tensor_free(x);
    tl_tno_free(tno);
    tl_ctx_free(ctx);
    ctx = kept;
    if (!y) exit(1);
    return y;
}

static long size_of(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 ? (long)s.st_size : -1;
}

/* A second run finds what the first one measured, changes nothing and computes the same. */
static void tuning_is_remembered(void)
{
    CHECK(wisdom[0] == 0);
    tl_tensor *first = tuned(750);
    find_files();
    long       size = size_of(wisdom);
    CHECK(size > 0);
    tl_tensor *again = tuned(750);
    CHECK(size_of(wisdom) == size);
    CHECK(distance(again, first) == 0);
    tl_tensor *other = tuned(441);
    CHECK(size_of(wisdom) > size); /* kept with what was there */
    tl_tensor_free(first);
    tl_tensor_free(again);
    tl_tensor_free(other);
}

/* FFTW measures longer ones for minutes, and no time limit would give the same plan twice. */
static void long_transforms_are_not_measured(void)
{
    const int64_t n = (1 << 20) + (1 << 18); /* a product of small primes */
    long       size = size_of(wisdom);
    tl_ctx    *tuning = NULL;
    tl_tensor *x = NULL, *y = NULL;
    CHECK_STATUS(tl_ctx_new(1, &tuning), TL_OK);
    CHECK_STATUS(tl_tensor_new(tuning, TL_F32, 1, &n, &x), TL_OK);
    CHECK_STATUS(tl_rfft(x, 0, &y), TL_OK);
    CHECK(size_of(wisdom) == size);
    tl_tensor_free(x);
    tl_tensor_free(y);
    tl_ctx_free(tuning);
}

static void bad_tuning_is_replaced(void)
{
    CHECK(truncate(wisdom, 40) == 0);
    tl_tensor_free(tuned(750));
    CHECK(size_of(wisdom) > 40);
}

/* Whoever holds the lock measures something else, perhaps for long. */
static void stored_tuning_needs_no_lock(void)
{
    tl_tensor *first = tuned(750);
    int        held = open(lock, O_RDWR);
    time_t     start = time(NULL);
    CHECK(held >= 0 && flock(held, LOCK_EX | LOCK_NB) == 0);
    tl_tensor *again = tuned(750);
    CHECK(time(NULL) - start < 30 && distance(again, first) == 0);
    (void)close(held);
    tl_tensor_free(first);
    tl_tensor_free(again);
}

/* Wisdom was once one file for all machines: one of this kind is taken over, another one is left to
** the machines that read it. */
static void machines_of_other_kinds_keep_their_tuning(void)
{
    char       old[600];
    long       size = size_of(wisdom);
    tl_tensor *first = tuned(750), *again;
    (void)snprintf(old, sizeof old, "%s/fftw3f.wisdom", folder);
    CHECK(rename(wisdom, old) == 0);
    again = tuned(750);
    CHECK(size_of(wisdom) == size && distance(again, first) == 0);
    tl_tensor_free(again);
    CHECK(remove(wisdom) == 0 && truncate(old, 40) == 0);
    again = tuned(750);
    CHECK(size_of(wisdom) > 40 && size_of(old) == 40);
    CHECK(remove(old) == 0);
    tl_tensor_free(first);
    tl_tensor_free(again);
}

/* Where nothing can be written FFTW does not measure, so that runs still repeat. */
static void missing_folder(void)
{
    CHECK(setenv("TOEPLAB_CACHE", wisdom, 1) == 0); /* a file where a folder should be */
    tl_tensor *first = tuned(750), *again = tuned(750);
    CHECK(distance(again, first) == 0);
    tl_tensor_free(first);
    tl_tensor_free(again);
}

int main(void)
{
    (void)snprintf(folder, sizeof folder, "%s/toeplab-cache-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    (void)setenv("TOEPLAB_CACHE", "", 1);
    if (!mkdtemp(folder) || tl_ctx_new(2, &ctx) != TL_OK) return 1;
    (void)setenv("TOEPLAB_CACHE", folder, 1); /* for the contexts of the tuning cases */
    int failed = run_tests((const test[]){
        {"transforms equal the definition", equal_the_definition},
        {"real transforms are halves of complex ones", real_ones_are_halves},
        {"round trips return", round_trips_return},
        {"gradients are adjoints", gradients_are_adjoints},
        {"wrong arguments are refused", wrong_arguments_are_refused},
        {"one vector needs one line of scratch", one_vector_needs_one_line_of_scratch},
        {"tuning is remembered", tuning_is_remembered},
        {"long transforms are not measured", long_transforms_are_not_measured},
        {"bad tuning is replaced", bad_tuning_is_replaced},
        {"stored tuning needs no lock", stored_tuning_needs_no_lock},
        {"machines of other kinds keep their tuning", machines_of_other_kinds_keep_their_tuning},
        {"a missing folder for tuning is not an error", missing_folder},
        {0},
    });
    tl_ctx_free(ctx);
    (void)remove(wisdom);
    (void)remove(lock);
    (void)rmdir(folder);
    return failed;
}

/* test_emulate.cpp - tests the emulation of tensor cores by the definition of their fragments, and
** that a kernel in which a __syncthreads is missing computes something else. */
#include "emulate.h"
#include "test.h"

static uint32_t seed = 1;

static int small() /* a number that bf16 holds, and so do sums of products of it */
{
    seed = seed * 1664525u + 1013904223u;
    return (int)(seed >> 24) % 17 - 8;
}

static uint32_t pair(float lower, float upper) { return pack_bf16(lower, upper); }

/* ---- Tile products --------------------------------------------------------------------------- */

/* The places of element i of a lane in A [16,16], B [16,8] and C [16,8] (PTX ISA, "Matrix fragments
** for mma.m16n8k16 with floating point type"). */
static int row_of_a(int lane, int i) { return lane / 4 + (i < 2 || (i >= 4 && i < 6) ? 0 : 8); }
static int column_of_a(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8); }
static int row_of_b(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8); }
static int column_of_b(int lane) { return lane / 4; }
static int row_of_c(int lane, int i) { return lane / 4 + (i < 2 ? 0 : 8); }
static int column_of_c(int lane, int i) { return lane % 4 * 2 + (i & 1); }

static uint32_t word_of_a(const float *a, int lane, int word)
{
    int i = 2 * word, row = row_of_a(lane, i), column = column_of_a(lane, i);
    return pair(a[row * 16 + column], a[row_of_a(lane, i + 1) * 16 + column_of_a(lane, i + 1)]);
}

static uint32_t word_of_b(const float *b, int lane, int word)
{
    int i = 2 * word, column = column_of_b(lane);
    return pair(b[row_of_b(lane, i) * 8 + column], b[row_of_b(lane, i + 1) * 8 + column]);
}

/* A warp computes c += a b for its own matrices. */
static void products(const float *a, const float *b, float *c)
{
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float sums[4];
    a += warp * 256;
    b += warp * 128;
    c += warp * 128;
    for (int i = 0; i < 4; i++) sums[i] = c[row_of_c(lane, i) * 8 + column_of_c(lane, i)];
    multiply_tile(sums, word_of_a(a, lane, 0), word_of_a(a, lane, 1), word_of_a(a, lane, 2),
                  word_of_a(a, lane, 3), word_of_b(b, lane, 0), word_of_b(b, lane, 1));
    for (int i = 0; i < 4; i++) c[row_of_c(lane, i) * 8 + column_of_c(lane, i)] = sums[i];
}

static void a_tile_product_is_that_of_its_matrices(void)
{
    const int WARPS = 3;
    float a[WARPS * 256], b[WARPS * 128], c[WARPS * 128], want[WARPS * 128];
    for (int draw = 0; draw < 20; draw++) {
        for (float &v : a) v = (float)small();
        for (float &v : b) v = (float)small();
        for (int e = 0; e < WARPS * 128; e++) {
            int warp = e / 128, row = e % 128 / 8, column = e % 8;
            want[e] = c[e] = (float)small();
            for (int k = 0; k < 16; k++)
                want[e] += a[warp * 256 + row * 16 + k] * b[warp * 128 + k * 8 + column];
        }
        LAUNCH_SYNC(products, 1, 32 * WARPS, a, b, c);
        CHECK(memcmp(c, want, sizeof c) == 0);
    }
}

/* Every element has its place: the product of two matrices with one 1 each is one 1, or 0. */
static void a_tile_product_has_each_element_in_its_place(void)
{
    for (int e = 0; e < 256; e++)
        for (int column = 0; column < 8; column++) {
            float a[256] = {}, b[128] = {}, c[128] = {};
            a[e] = 1;
            b[e % 16 * 8 + column] = 1;
            LAUNCH_SYNC(products, 1, 32, a, b, c);
            for (int i = 0; i < 128; i++) CHECK(c[i] == (i == e / 16 * 8 + column));
        }
}

static void sums_of_a_tile_product_are_truncated(void)
{
    float a[256] = {}, b[128] = {}, c[128] = {};
    a[0] = b[0] = ldexpf(1, -13); /* a product of 2^-26 */
    c[0] = 1;
    LAUNCH_SYNC(products, 1, 32, a, b, c);
    CHECK(c[0] == 1);
    a[0] = -a[0];
    LAUNCH_SYNC(products, 1, 32, a, b, c);
    CHECK(c[0] == nextafterf(1, 0));
}

/* The words of A, for a tile of a Toeplitz matrix with t[lag] at its upper left, are the pairs
** P[s], P[s+8], P[s-8] and P[s] again (backends/matrix/apply.cu). */
static void a_toeplitz_tile_consists_of_three_words(void)
{
    float t[64], a[256];
    for (float &v : t) v = (float)small();
    for (int lag = 16; lag < 48; lag++) {
        for (int e = 0; e < 256; e++) a[e] = t[lag + e / 16 - e % 16];
        for (int lane = 0; lane < 32; lane++) {
            const float *s = t + lag + lane / 4 - 2 * (lane % 4);
            CHECK(word_of_a(a, lane, 0) == pair(s[0], s[-1]));
            CHECK(word_of_a(a, lane, 1) == pair(s[8], s[7]));
            CHECK(word_of_a(a, lane, 2) == pair(s[-8], s[-9]));
            CHECK(word_of_a(a, lane, 3) == pair(s[0], s[-1]));
        }
    }
}

/* ---- Barriers -------------------------------------------------------------------------------- */

#define STEPS 3
#define WARPS 4

enum { ALL, NO_BARRIER_AFTER_WRITING, NO_BARRIER_AFTER_READING };

/* Each thread sums what a thread of another warp wrote, between tile products and shuffles, at
** which a warp waits for itself only. */
template <int MISSING> static void exchange(const float *x, float *y)
{
    SHARED_WORDS(words);
    int me = (int)threadIdx.x, count = 32 * WARPS;
    float sum = 0, unused[4] = {};
    for (int step = 0; step < STEPS; step++) {
        words[me] = __float_as_uint(x[step * count + me]);
        if (MISSING != NO_BARRIER_AFTER_WRITING) __syncthreads();
        sum += __uint_as_float(words[(me + 64) % count]);
        multiply_tile(unused, 0, 0, 0, 0, 0, 0);
        sum += 0 * __shfl_xor_sync(0xffffffffu, sum, 1);
        if (MISSING != NO_BARRIER_AFTER_READING) __syncthreads();
    }
    y[me] = sum;
}

/* Returns whether the sums are right if threads and warps run forwards, or backwards. */
template <int MISSING> static bool right(int backwards)
{
    const int count = 32 * WARPS;
    float x[STEPS * count], y[count];
    for (float &v : x) v = (float)small();
    if (backwards) setenv("EMULATE_BACKWARDS", "1", 1);
    LAUNCH_SHARED(exchange<MISSING>, 1, count, 4 * count, x, y);
    unsetenv("EMULATE_BACKWARDS");
    for (int me = 0; me < count; me++) {
        float sum = 0;
        for (int step = 0; step < STEPS; step++) sum += x[step * count + (me + 64) % count];
        if (y[me] != sum) return false; /* a NaN, too */
    }
    return true;
}

static void a_missing_barrier_shows_in_either_order(void)
{
    for (int backwards = 0; backwards < 2; backwards++) {
        CHECK(right<ALL>(backwards));
        CHECK(!right<NO_BARRIER_AFTER_WRITING>(backwards));
        CHECK(!right<NO_BARRIER_AFTER_READING>(backwards));
    }
}

int main()
{
    static const test tests[] = {
        {"a tile product is that of its matrices", a_tile_product_is_that_of_its_matrices},
        {"a tile product has each element in its place",
         a_tile_product_has_each_element_in_its_place},
        {"sums of a tile product are truncated", sums_of_a_tile_product_are_truncated},
        {"a Toeplitz tile consists of three words", a_toeplitz_tile_consists_of_three_words},
        {"a missing barrier shows in either order", a_missing_barrier_shows_in_either_order},
        {},
    };
    return run_tests(tests);
}

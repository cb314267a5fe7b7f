/* test_svd.c - singular values and linear systems: matrices with known answers, orthogonality, what
** is put together again, and what is refused. */
#include "base/memory.h"
#include "tensors.h"

typedef struct case_of {
    int64_t m, n;
} case_of;

static const case_of sizes[] = {{1, 1}, {5, 5}, {9, 4}, {4, 9}, {1, 7}, {7, 1}, {65, 33}, {64, 64}};

static tl_ctx *context(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    if (!ctx) exit(1);
    return ctx;
}

static tl_tensor *matrix(tl_ctx *ctx, int64_t m, int64_t n, const float *values)
{
    tl_tensor *a = zeros(ctx, 2, (const int64_t[]){m, n});
    for (int64_t k = 0; values && k < m * n; k++) tl_tensor_f32(a)[k] = values[k];
    return a;
}

static double value(const tl_tensor *s, int64_t i) { return (double)tl_tensor_cf32(s)[i]; }

/* The singular values of a, and a freed. */
static tl_tensor *values_of(tl_tensor *a)
{
    tl_tensor *s = NULL;
    CHECK_STATUS(tl_svd(a, NULL, &s, NULL), TL_OK);
    tl_tensor_free(a);
    if (!s) exit(1);
    return s;
}

static void known_matrices(void)
{
    tl_ctx     *ctx = context();
    const float diagonal[] = {0, -3, 0, 0, 0, 2, 0.5f, 0, 0};
    const float ones[] = {1, 1, 1, 1, 1, 1};     /* rank one: sqrt 6 and 0 */
    const float golden[] = {1, 1, 0, 1};         /* the golden ratio and its inverse */
    tl_tensor  *s = values_of(matrix(ctx, 3, 3, diagonal));
    CHECK_NEAR(value(s, 0), 3, 1e-6);
    CHECK_NEAR(value(s, 1), 2, 1e-6);
    CHECK_NEAR(value(s, 2), 0.5, 1e-7);
    tl_tensor_free(s);
    s = values_of(matrix(ctx, 2, 3, ones));
    CHECK(tl_tensor_len(s) == 2);
    CHECK_NEAR(value(s, 0), sqrt(6), 1e-6);
    CHECK_NEAR(value(s, 1), 0, 1e-12);
    tl_tensor_free(s);
    s = values_of(matrix(ctx, 2, 2, golden));
    CHECK_NEAR(value(s, 0), (sqrt(5) + 1) / 2, 1e-6);
    CHECK_NEAR(value(s, 1), (sqrt(5) - 1) / 2, 1e-6);
    tl_tensor_free(s);
    tl_ctx_free(ctx);
}

/* The second difference matrix: 2 - 2 cos(pi k/(n+1)), k = n..1. */
static void second_differences(void)
{
    tl_ctx    *ctx = context();
    const int  n = 40;
    tl_tensor *a = matrix(ctx, n, n, NULL);
    for (int i = 0; i < n; i++) {
        tl_tensor_f32(a)[i * n + i] = 2;
        if (i > 0) tl_tensor_f32(a)[i * n + i - 1] = -1;
        if (i + 1 < n) tl_tensor_f32(a)[i * n + i + 1] = -1;
    }
    tl_tensor *s = values_of(a);
    for (int k = n; k >= 1; k--)
        CHECK_NEAR(value(s, n - k), 2 - 2 * cos(acos(-1.0) * k / (n + 1)), 1e-6);
    tl_tensor_free(s);
    tl_ctx_free(ctx);
}

/* How far the rows (columns if by_columns) of t are from orthonormal. */
static double slant(const tl_tensor *t, int by_columns)
{
    int64_t m = tl_tensor_dim(t, 0), n = tl_tensor_dim(t, 1);
    int64_t count = by_columns ? n : m, length = by_columns ? m : n;
    double  worst = 0;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = i == j ? -1 : 0;
            for (int64_t k = 0; k < length; k++)
                sum += value(t, by_columns ? k * n + i : i * n + k)
                       * value(t, by_columns ? k * n + j : j * n + k);
            worst = worse(worst, fabs(sum));
        }
    return worst;
}

static double remade(const tl_tensor *a, const tl_tensor *u, const tl_tensor *s,
                     const tl_tensor *v)
{
    int64_t m = tl_tensor_dim(a, 0), n = tl_tensor_dim(a, 1), least = tl_tensor_len(s);
    double  worst = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < least; k++)
                sum += value(u, i * least + k) * value(s, k) * value(v, k * n + j);
            worst = worse(worst, fabs(sum - value(a, i * n + j)));
        }
    return worst;
}

static void orthogonal_and_remade(void)
{
    tl_ctx *ctx = context();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const case_of *c = sizes + i;
        tl_tensor     *u = NULL, *s = NULL, *v = NULL, *alone = NULL;
        tl_tensor     *a = normals(ctx, 2, (const int64_t[]){c->m, c->n}, 0, 1, i);
        CHECK_STATUS(tl_svd(a, &u, &s, &v), TL_OK);
        CHECK_STATUS(tl_svd(a, NULL, &alone, NULL), TL_OK);
        CHECK(tl_tensor_dim(u, 0) == c->m && tl_tensor_dim(v, 1) == c->n);
        CHECK(slant(u, 1) < 1e-6);
        CHECK(slant(v, 0) < 1e-6);
        CHECK(remade(a, u, s, v) < 1e-5);
        CHECK(distance(alone, s) < 1e-6);
        for (int64_t k = 1; k < tl_tensor_len(s); k++) CHECK(value(s, k) <= value(s, k - 1));
        tl_tensor_free(a);
        tl_tensor_free(u);
        tl_tensor_free(s);
        tl_tensor_free(v);
        tl_tensor_free(alone);
    }
    tl_ctx_free(ctx);
}

/* Either factor may be asked for without the other. */
static void one_factor_alone(void)
{
    tl_ctx    *ctx = context();
    tl_tensor *a = normals(ctx, 2, (const int64_t[]){5, 3}, 0, 1, 7);
    tl_tensor *u = NULL, *s = NULL, *v = NULL, *only_u = NULL, *only_v = NULL, *t = NULL;
    CHECK_STATUS(tl_svd(a, &u, &s, &v), TL_OK);
    CHECK_STATUS(tl_svd(a, &only_u, &t, NULL), TL_OK);
    tl_tensor_free(t);
    CHECK_STATUS(tl_svd(a, NULL, &t, &only_v), TL_OK);
    CHECK(only_u && distance(only_u, u) == 0);
    CHECK(only_v && distance(only_v, v) == 0);
    CHECK(distance(t, s) == 0);
    tl_tensor *const all[] = {a, u, s, v, only_u, only_v, t};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tl_tensor_free(all[i]);
    tl_ctx_free(ctx);
}

static void solved(void)
{
    tl_ctx     *ctx = context();
    tl_tensor  *x = NULL;
    const float upper[] = {2, 1, 0, 4}, right[] = {5, 4, 12, 8};
    tl_tensor  *a = matrix(ctx, 2, 2, upper), *b = matrix(ctx, 2, 2, right);
    CHECK_STATUS(tl_solve(a, b, &x), TL_OK);
    const float *got = tl_tensor_cf32(x);
    CHECK(got[0] == 1 && got[1] == 1 && got[2] == 3 && got[3] == 2);
    tl_tensor_free(a);
    tl_tensor_free(b);
    tl_tensor_free(x);
    a = normals(ctx, 2, (const int64_t[]){30, 30}, 0, 1, 1);
    b = normals(ctx, 2, (const int64_t[]){30, 7}, 0, 1, 2);
    CHECK_STATUS(tl_solve(a, b, &x), TL_OK);
    tl_tensor *again = NULL;
    CHECK_STATUS(tl_matmul(a, 0, x, 0, &again), TL_OK);
    CHECK(distance(again, b) < 1e-4);
    tl_tensor_free(a);
    tl_tensor_free(b);
    tl_tensor_free(x);
    tl_tensor_free(again);
    tl_ctx_free(ctx);
}

static void empty_ones(void)
{
    tl_ctx    *ctx = context();
    tl_tensor *u = NULL, *s = NULL, *v = NULL, *x = NULL;
    tl_tensor *a = zeros(ctx, 2, (const int64_t[]){0, 3});
    CHECK_STATUS(tl_svd(a, &u, &s, &v), TL_OK);
    CHECK(tl_tensor_len(s) == 0 && tl_tensor_dim(v, 1) == 3);
    tl_tensor_free(a);
    tl_tensor_free(u);
    tl_tensor_free(s);
    tl_tensor_free(v);
    a = zeros(ctx, 2, (const int64_t[]){0, 0});
    CHECK_STATUS(tl_solve(a, a, &x), TL_OK);
    tl_tensor_free(a);
    tl_tensor_free(x);
    tl_ctx_free(ctx);
}

static void refused(void)
{
    tl_ctx    *ctx = context();
    tl_tensor *s = NULL, *ids = NULL;
    tl_tensor *a = matrix(ctx, 3, 2, NULL), *b = matrix(ctx, 2, 2, NULL), *vector = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 1, (const int64_t[]){4}, &vector), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 2, (const int64_t[]){2, 2}, &ids), TL_OK);
    CHECK_STATUS(tl_svd(vector, NULL, &s, NULL), TL_ESHAPE);
    CHECK_STATUS(tl_svd(ids, NULL, &s, NULL), TL_ETYPE);
    CHECK_STATUS(tl_solve(a, b, &s), TL_ESHAPE);
    CHECK_STATUS(tl_solve(b, a, &s), TL_ESHAPE);
    CHECK_STATUS(tl_solve(b, b, &s), TL_EINVAL); /* all zeros: singular */
    tl_tensor_f32(a)[3] = INFINITY;
    CHECK_STATUS(tl_svd(a, NULL, &s, NULL), TL_EINVAL);
    CHECK(s == NULL);
    tl_tensor_free(a);
    tl_tensor_free(b);
    tl_tensor_free(vector);
    tl_tensor_free(ids);
    tl_ctx_free(ctx);
}

/* With every n-th allocation refused: TL_ENOMEM and nothing left, until it goes through. */
static void without_memory(void)
{
    tl_ctx    *ctx = context();
    tl_tensor *a = normals(ctx, 2, (const int64_t[]){6, 4}, 0, 1, 1);
    int64_t    before = tl_memory_info(ctx).tensors;
    size_t     live = tl_memory_info(ctx).live;
    tl_status  st = TL_ENOMEM;
    for (int n = 0; st == TL_ENOMEM && n < 100; n++) {
        tl_tensor *u = NULL, *s = NULL, *v = NULL;
        tl_alloc_fail_after(ctx, n);
        st = tl_svd(a, &u, &s, &v);
        tl_alloc_fail_after(ctx, -1);
        tl_tensor_free(u);
        tl_tensor_free(s);
        tl_tensor_free(v);
        CHECK(tl_memory_info(ctx).tensors == before && tl_memory_info(ctx).live == live);
    }
    CHECK_STATUS(st, TL_OK);
    tl_tensor_free(a);
    tl_ctx_free(ctx);
}

int main(void)
{
    return run_tests((const test[]){{"known matrices", known_matrices},
                                    {"second differences", second_differences},
                                    {"orthogonal, and remade", orthogonal_and_remade},
                                    {"one factor alone", one_factor_alone},
                                    {"solved", solved},
                                    {"empty ones", empty_ones},
                                    {"refused", refused},
                                    {"without memory", without_memory},
                                    {0}});
}

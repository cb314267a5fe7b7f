/* test_rac.c - the backend rac with each instruction set of this processor: every short length and
** some long ones against naive and fft, and what is true of any operator and its adjoints. */
#include <string.h>
#include <sys/resource.h>

#include "rac.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GNUC__) && \
    !defined(__clang__)
#define LIMITED /* the address space is not a sanitiser's */
#endif

static answer run(tl_tno *tno, const shape *s) { return run_for(DX | DCOEF, tno, s); }

/* How many outputs of rac differ from the outputs of another backend, over the instruction sets. */
static int differences(const char *backend, const shape *s)
{
    int    bad = 0;
    answer want = run(operator_of(backend, NULL, s), s);
    for (int i = 0; i < SETS; i++) {
        tl_tno *tno = operator_of("rac", sets[i], s);
        if (!tno) continue;
        answer got = run(tno, s);
        double y = distance(got.y, want.y), dx = distance(got.dx, want.dx);
        double dcoef = distance(got.dcoef, want.dcoef);
        int    wrong = (y > TOLERANCE) + (dx > TOLERANCE) + (dcoef > TOLERANCE);
        if (wrong)
            printf("  %s n %lld b %lld d %lld %s: y %.2g dx %.2g dcoef %.2g\n", sets[i],
                   (long long)s->n, (long long)s->b, (long long)s->d,
                   s->causal ? "causal" : "not causal", y, dx, dcoef);
        bad += wrong;
        answer_free(&got);
    }
    answer_free(&want);
    return bad;
}

/* 19 channels: whole tiles and parts of one, in 4, 8 and 16 lanes. */
static void short_lengths(void)
{
    for (int64_t n = 1; n <= 200; n += STRIDE)
        for (int causal = 0; causal < 2; causal++) {
            int64_t d = n < 50 || n % 16 == 0 ? 19 : 3;
            CHECK(differences("naive", &(shape){n, 2, d, causal}) == 0);
        }
}

static void long_lengths(void)
{
    static const int64_t lengths[] = {211, 256, 257, 384, 509, 512, 625, 1000, 1009, 1021, 1024,
                                      1536, 2048, 2187, 3001, 4093, 4096, 5000, 8192};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i += STRIDE)
        for (int causal = 0; causal < 2; causal++) {
            shape s = {lengths[i], 2, 19, causal};
            CHECK(differences("fft", &s) == 0);
            if (s.n > 1100) continue;
            s = (shape){lengths[i], 1, 1, causal};
            CHECK(differences("naive", &s) == 0);
        }
}

/* A fault in one entry of the coefficients must show. */
static void a_planted_fault_is_seen(void)
{
    shape  s = {31, 1, 5, 0};
    answer want = run(operator_of("naive", NULL, &s), &s);
    answer got = run(operator_of("rac", "isa=portable", &s), &s);
    CHECK(distance(got.dcoef, want.dcoef) <= TOLERANCE);
    tl_tensor_f32(got.dcoef)[7] += 1e-3f;
    CHECK(distance(got.dcoef, want.dcoef) > TOLERANCE);
    answer_free(&want);
    answer_free(&got);
}

/* y is linear in x and in the coefficients, so y dy = x dx = coef dcoef. */
static void adjoints_agree(void)
{
    static const shape shapes[] = {{1, 1, 1, 1},     {37, 3, 20, 0},   {100, 5, 2, 1},
                                   {512, 2, 32, 1},  {512, 2, 32, 0},  {1500, 1, 16, 0},
                                   {4096, 1, 16, 1}};
    int checked = 0;
    for (int i = 0; i < SETS; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            tl_tno *tno = operator_of("rac", sets[i], &shapes[k]);
            if (!tno) continue;
            answer r = run(tno, &shapes[k]);
            double size = sqrt(dot(r.y, r.y) * dot(r.dy, r.dy)), y = dot(r.y, r.dy);
            CHECK(size > 0.1);
            CHECK_NEAR(y, dot(r.x, r.dx), 1e-6 * size);
            CHECK_NEAR(y, dot(r.coef, r.dcoef), 1e-6 * size);
            answer_free(&r);
            checked++;
        }
    CHECK(checked >= 7);
}

/* A gradient that is not wanted changes nothing about the other one. */
static void gradients_are_independent(void)
{
    shape s = {60, 3, 21, 0};
    for (int i = 0; i < SETS; i++) {
        tl_tno *tno = operator_of("rac", sets[i], &s);
        if (!tno) continue;
        answer both = run(tno, &s);
        answer x = run_for(DX, operator_of("rac", sets[i], &s), &s);
        answer coef = run_for(DCOEF, operator_of("rac", sets[i], &s), &s);
        CHECK(distance(x.dx, both.dx) == 0);
        CHECK(distance(coef.dcoef, both.dcoef) == 0);
        answer_free(&both);
        answer_free(&x);
        answer_free(&coef);
    }
}

/* Few channels: the sums over the batch are made in groups. */
static void threads_give_equal_bits(void)
{
    static const shape shapes[] = {{50, 7, 3, 0}, {64, 5, 35, 1}, {200, 2, 70, 0}, {33, 9, 20, 1}};
    tl_ctx *kept = ctx;
    for (int i = 0; i < SETS; i++)
        for (int k = 0; k < 4; k++) {
            answer first = {0};
            for (int threads = 1; threads < 8; threads += 2) {
                CHECK_STATUS(tl_ctx_new(threads, &ctx), TL_OK);
                tl_tno *tno = operator_of("rac", sets[i], &shapes[k]);
                answer  r = {0};
                if (tno) r = run(tno, &shapes[k]);
                tl_ctx_free(ctx);
                if (!tno) continue;
                if (!first.y) {
                    first = r;
                    continue;
                }
                CHECK(distance(r.y, first.y) == 0);
                CHECK(distance(r.dx, first.dx) == 0);
                CHECK(distance(r.dcoef, first.dcoef) == 0);
                answer_free(&r);
            }
            answer_free(&first);
        }
    ctx = kept;
}

/* What is kept of the coefficients changes no bit, and is of use without them. */
static void kept_spectra(void)
{
    static const shape shapes[] = {{60, 1, 21, 0}, {64, 5, 3, 1}, {512, 2, 48, 1}};
    for (int i = 0; i < SETS; i++)
        for (int k = 0; k < 3; k++) {
            tl_tno *tno = operator_of("rac", sets[i], &shapes[k]);
            if (!tno) continue;
            answer     r = run(operator_of("rac", sets[i], &shapes[k]), &shapes[k]);
            tl_tensor *kept = NULL, *first = NULL, *again = NULL, *none = NULL;
            CHECK_STATUS(tl_tno_apply_cached(tno, r.coef, NULL, r.x, &kept, &first), TL_OK);
            CHECK(kept != NULL);
            tl_tensor *made = kept;
            CHECK_STATUS(tl_set_requires_grad(r.coef, 0), TL_OK);
            CHECK_STATUS(tl_tensor_fill(r.coef, 0), TL_OK);
            CHECK_STATUS(tl_tno_apply_cached(tno, r.coef, NULL, r.x, &kept, &again), TL_OK);
            CHECK(kept == made);
            CHECK(distance(first, r.y) == 0 && distance(again, r.y) == 0);
            CHECK_STATUS(tl_tno_apply_cached(tno, r.coef, NULL, r.x, &r.coef, &none), TL_ESHAPE);
            CHECK(none == NULL);
            tl_tensor_free(kept);
            tl_tensor_free(first);
            tl_tensor_free(again);
            tl_tno_free(tno);
            answer_free(&r);
        }
}

/* Later inputs reach earlier outputs of a causal operator by rounding only. */
static void causal_to_rounding(void)
{
    shape s = {300, 1, 16, 1};
    for (int i = 0; i < SETS; i++) {
        tl_tno *tno = operator_of("rac", sets[i], &s);
        if (!tno) continue;
        answer     r = run(tno, &s);
        tl_tensor *y = NULL;
        double     before = 0, after = 0;
        for (int64_t k = 150 * s.d; k < s.n * s.d; k++) tl_tensor_f32(r.x)[k] += 1;
        tno = operator_of("rac", sets[i], &s);
        CHECK_STATUS(tl_tno_apply(tno, r.coef, NULL, r.x, &y), TL_OK);
        for (int64_t k = 0; k < s.n * s.d; k++) {
            double change = fabs((double)tl_tensor_cf32(y)[k] - tl_tensor_cf32(r.y)[k]);
            double *side = k < 150 * s.d ? &before : &after;
            *side = worse(*side, change);
        }
        CHECK(before <= 1e-5); /* entries of y are about 10 */
        CHECK(after > 0.1);
        tl_tensor_free(y);
        tl_tno_free(tno);
        answer_free(&r);
    }
}

/* A length without memory for its plan is refused before gigabytes of roots are computed. */
static void too_long(void)
{
#ifdef LIMITED
    struct rlimit old, tight;
    struct rusage before, after;
    tl_tno       *tno = NULL;
    CHECK(getrlimit(RLIMIT_AS, &old) == 0);
    tight = old;
    tight.rlim_cur = (rlim_t)4 << 30;
    CHECK(setrlimit(RLIMIT_AS, &tight) == 0);
    (void)getrusage(RUSAGE_SELF, &before);
    CHECK_STATUS(tl_tno_new(ctx, "rac", 1 << 27, 1, 1, NULL, &tno), TL_ENOMEM);
    (void)getrusage(RUSAGE_SELF, &after);
    CHECK(after.ru_maxrss - before.ru_maxrss < 100 << 10); /* KiB */
    CHECK(setrlimit(RLIMIT_AS, &old) == 0);
#endif
}

static void words_are_checked(void)
{
    tl_tno *tno = NULL;
    CHECK_STATUS(tl_tno_new(ctx, "rac", 8, 1, 1, (const char *[]){"isa=sse9", NULL}, &tno),
                 TL_EINVAL);
    CHECK(tno == NULL);
}

int main(void)
{
    (void)setenv("TOEPLAB_CACHE", "", 1);
    if (tl_ctx_new(2, &ctx) != TL_OK) return 1;
    int failed = run_tests((const test[]){
        {"every length to 200", short_lengths},
        {"long lengths", long_lengths},
        {"a planted fault is seen", a_planted_fault_is_seen},
        {"adjoints agree", adjoints_agree},
        {"gradients are independent", gradients_are_independent},
        {"threads give equal bits", threads_give_equal_bits},
        {"kept spectra", kept_spectra},
        {"causal to rounding", causal_to_rounding},
        {"words are checked", words_are_checked},
        {"a length without memory", too_long},
        {0},
    });
    tl_ctx_free(ctx);
    return failed;
}

/* test.h - what every C test program is made of: a table of named cases, and checks that NDEBUG
** cannot remove.
**
**   static void sums(void) { CHECK(1 + 1 == 2); }
**   int main(void) { return run_tests((const test[]){{"sums", sums}, {0}}); }
**
** A failed check prints its place and goes on, so that one run shows all failures of a case. The
** status of the program is 1 if any case failed or if there was none: a test that runs nothing has
** not passed. */
#ifndef TL_TEST_H
#define TL_TEST_H

#include <math.h>
#include <stdio.h>

#include "toeplab.h"

typedef struct test { /* tables are ended by {0} */
    const char *name;
    void (*run)(void);
} test;

/* A long table of shapes is walked in steps of this. The thread sanitiser, which looks for races
** and not for numbers, takes a part of it: it is 30 times slower. */
#ifdef __SANITIZE_THREAD__
#define STRIDE 5
#else
#define STRIDE 1
#endif

static int test_failures; /* of the running case */

static inline int test_fail(const char *file, int line)
{
    test_failures++;
    return printf("%s:%d: ", file, line);
}

#define CHECK(cond)                                                                             \
    do {                                                                                        \
        if (!(cond)) {                                                                          \
            test_fail(__FILE__, __LINE__);                                                      \
            printf("%s\n", #cond);                                                              \
        }                                                                                       \
    } while (0)

#define CHECK_STATUS(got, want)                                                                 \
    do {                                                                                        \
        tl_status test_got = (got), test_want = (want);                                         \
        if (test_got != test_want) {                                                            \
            test_fail(__FILE__, __LINE__);                                                      \
            printf("%s is %s, not %s\n", #got, tl_status_name(test_got),                        \
                   tl_status_name(test_want));                                                  \
        }                                                                                       \
    } while (0)

/* |a - b| <= tol; a NaN on either side fails. */
#define CHECK_NEAR(a, b, tol)                                                                   \
    do {                                                                                        \
        double test_a = (a), test_b = (b), test_tol = (tol);                                    \
        if (!(fabs(test_a - test_b) <= test_tol)) {                                             \
            test_fail(__FILE__, __LINE__);                                                      \
            printf("%s is %.9g, %s is %.9g: more than %.3g apart\n", #a, test_a, #b, test_b,    \
                   test_tol);                                                                   \
        }                                                                                       \
    } while (0)

/* The larger of worst and error. A NaN stays, so that it fails the check of the result; fmax would
** drop it. */
static inline double worse(double worst, double error)
{
    return isnan(worst) || error <= worst ? worst : error;
}

static inline int run_tests(const test *tests)
{
    int passed = 0, failed = 0;
    for (; tests->name; tests++) {
        test_failures = 0;
        tests->run();
        printf("%s %s\n", test_failures ? "not ok" : "ok", tests->name);
        fflush(stdout);
        if (test_failures) {
            failed++;
        } else {
            passed++;
        }
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}

#endif

/* test_locale.c - a decimal comma in the program's locale changes no number. */
#include <locale.h>

#include "scratch.h"
#include "test.h"

static void numbers_keep_their_point(void)
{
    const char *const options[] = {"lambda=0.99", NULL}, *const wrong[] = {"lambda=1.5", NULL};
    char        text[16];
    tl_ctx     *ctx = NULL;
    tl_tno     *tno = NULL;
    (void)snprintf(text, sizeof text, "%g", 0.5);
    CHECK(strcmp(text, "0,5") == 0);
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    CHECK_STATUS(tl_tno_new(ctx, "ski", 8, 2, 1, options, &tno), TL_OK);
    tl_tno_free(tno);
    CHECK_STATUS(tl_tno_new(ctx, "ski", 8, 2, 1, wrong, &tno), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "'1.5'"));
    (void)tl_fail(ctx, TL_EINVAL, "%g", 0.25);
    CHECK(strcmp(tl_errmsg(ctx), "0.25") == 0);
    tl_ctx_free(ctx);
    (void)snprintf(text, sizeof text, "%g", 0.5);
    CHECK(strcmp(text, "0,5") == 0); /* the program keeps its own */
}

int main(void)
{
    char command[2048];
    if (!scratch_new()) return 1;
    (void)snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 '%s' >/dev/null 2>&1",
                   scratch("de_DE.UTF-8"));
    int made = system(command) == 0 && setenv("LOCPATH", scratch_folder, 1) == 0 &&
               setlocale(LC_ALL, "de_DE.UTF-8");
    if (!made) (void)printf("skipped: localedef makes no locale with a decimal comma\n");
    int result = made ? run_tests((const test[]){{"numbers keep their point",
                                                  numbers_keep_their_point},
                                                 {NULL, NULL}})
                      : 77;
    scratch_free();
    return result;
}

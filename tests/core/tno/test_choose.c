/* test_choose.c - the backend "auto": a choice among backends that mean the same, remembered. */
#include <string.h>
#include <unistd.h>

#include "engine/plugin.h"
#include "scratch.h"
#include "tensors.h"

static char file[4200];

/* What a new context with the cache of this test chooses for n; "" if it refuses. */
static void choose(int64_t n, char *name, size_t size)
{
    tl_ctx *ctx = NULL;
    tl_tno *tno = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    name[0] = 0;
    if (tl_tno_new(ctx, "auto", n, 5, 1, NULL, &tno) == TL_OK)
        (void)snprintf(name, size, "%s", tl_tno_backend_name(tno));
    tl_tno_free(tno);
    tl_ctx_free(ctx);
}

/* The first line, and how many there are. */
static int lines_of(char *first, size_t size)
{
    FILE *f = fopen(file, "r");
    char  line[500];
    int   count = 0;
    first[0] = 0;
    while (f && fgets(line, sizeof line, f))
        if (count++ == 0) (void)snprintf(first, size, "%s", line);
    if (f) (void)fclose(f);
    return count;
}

static void a_choice_is_one_of_them(void)
{
    char name[40], line[500];
    choose(64, name, sizeof name);
    CHECK(strcmp(name, "rac") == 0 || strcmp(name, "fft") == 0 || strcmp(name, "matrix") == 0);
    CHECK(lines_of(line, sizeof line) == 1);
    CHECK(strncmp(line, TL_VERSION " ", strlen(TL_VERSION) + 1) == 0);
    CHECK(strstr(line, " 2 64 5 1 ") != NULL);
    CHECK(strstr(line, name) != NULL);
    choose(64, name, sizeof name);
    CHECK(lines_of(line, sizeof line) == 1); /* it was not measured again */
}

/* Beside values of 1e27 in a row, a transform has noise where 1 is right. */
static void a_very_short_one_has_small_outputs_right(void)
{
    const int64_t dims[3] = {1, 10, 1};
    tl_ctx    *ctx = NULL;
    tl_tno    *tno = NULL;
    tl_tensor *coef = NULL, *x = NULL, *y = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    CHECK_STATUS(tl_tno_new(ctx, "auto", 10, 1, 1, NULL, &tno), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 2, dims + 1, &coef), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 3, dims, &x), TL_OK);
    CHECK_STATUS(tl_tensor_fill(coef, 1), TL_OK);
    for (int i = 0; i < 10; i++) tl_tensor_f32(x)[i] = i < 9 ? 1 : 1e27f;
    CHECK_STATUS(tl_tno_apply(tno, coef, NULL, x, &y), TL_OK);
    for (int i = 0; y && i < 9; i++) CHECK(tl_tensor_cf32(y)[i] == (float)(i + 1));
    tl_tensor_free(y);
    tl_tensor_free(x);
    tl_tensor_free(coef);
    tl_tno_free(tno);
    tl_ctx_free(ctx);
}

/* What stands in the file decides, unless no such backend is there. */
static void the_file_is_believed(void)
{
    static const char *const words[] = {"matrix", "fft", "rac", "none"};
    char line[500], name[40];
    CHECK(lines_of(line, sizeof line) >= 1);
    char *word = strrchr(line, ' ');
    CHECK(word != NULL);
    if (!word) return;
    for (int i = 0; i < 4; i++) {
        FILE *f = fopen(file, "w");
        CHECK(f != NULL);
        if (!f) return;
        (void)snprintf(word + 1, 40, "%s", words[i]);
        (void)fprintf(f, "garbage\n%s\n", line);
        (void)fclose(f);
        choose(64, name, sizeof name);
        if (i < 3) CHECK(strcmp(name, words[i]) == 0);
        if (i == 3) CHECK(name[0] != 0 && strcmp(name, "none") != 0);
    }
}

static void matrix_is_for_short_ones(void)
{
    char name[40];
    choose(300, name, sizeof name);
    CHECK(strcmp(name, "rac") == 0 || strcmp(name, "fft") == 0);
}

/* Processes that start together on an empty cache would measure differently; they choose alike. */
static void processes_that_start_together_choose_alike(void)
{
    enum { PROCESSES = 4 };
    int    ends[2], go[2];
    char   names[PROCESSES][40] = {{0}}, line[500];
    (void)unlink(file);
    CHECK(pipe(ends) == 0 && pipe(go) == 0);
    for (int i = 0; i < PROCESSES; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid != 0) continue;
        char name[40] = {0};
        (void)close(go[1]);
        (void)!read(go[0], line, 1); /* until the last one is there */
        choose(100, name, sizeof name);
        (void)!write(ends[1], name, sizeof name);
        _exit(0);
    }
    (void)close(go[0]);
    (void)close(go[1]);
    (void)close(ends[1]); /* so that a child that dies ends the reading */
    for (int i = 0; i < PROCESSES; i++) {
        CHECK(read(ends[0], names[i], sizeof names[i]) == sizeof names[i]);
        CHECK(names[i][0] && strcmp(names[i], names[0]) == 0);
    }
    for (int i = 0; i < PROCESSES; i++) CHECK(wait(NULL) > 0);
    (void)close(ends[0]);
    CHECK(lines_of(line, sizeof line) == 1);
}

static void options_are_refused(void)
{
    tl_ctx *ctx = NULL;
    tl_tno *tno = NULL;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    CHECK_STATUS(tl_tno_new(ctx, "auto", 8, 1, 1, (const char *[]){"isa=avx2", NULL}, &tno),
                 TL_EINVAL);
    CHECK(tno == NULL);
    tl_ctx_free(ctx);
}

static tl_status fail_to_plan(const tl_host *h, const tl_tno_problem *p, void **out_plan)
{
    (void)p;
    (void)out_plan;
    return h->fail(h, TL_EINVAL, "no plan of any kind");
}

/* A candidate whose plan fails loses; alone it is the error. */
static void a_candidate_that_fails_loses(void)
{
    tl_ctx *ctx = NULL;
    tl_tno *tno = NULL;
    (void)setenv("TOEPLAB_CACHE", "", 1);
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    const tl_tno_backend *naive = NULL;
    CHECK_STATUS(tl_find_backend(ctx, "naive", &naive), TL_OK);
    tl_plugin     *ours = ctx->plugins;
    tl_tno_backend bad = *naive;
    bad.name = "bad";
    bad.auto_length = INT64_MAX;
    bad.plan = fail_to_plan;
    tl_plugin first = {&bad, NULL, ours};
    ctx->plugins = &first;
    CHECK_STATUS(tl_tno_new(ctx, "auto", 24, 2, 1, NULL, &tno), TL_OK);
    if (tno) CHECK(strcmp(tl_tno_backend_name(tno), "bad") != 0);
    tl_tno_free(tno);
    tno = NULL;
    first.next = NULL;
    CHECK_STATUS(tl_tno_new(ctx, "auto", 25, 2, 1, NULL, &tno), TL_EINVAL);
    CHECK(strcmp(tl_errmsg(ctx), "no plan of any kind") == 0 && tno == NULL);
    ctx->plugins = ours;
    tl_ctx_free(ctx);
}

/* Without a folder the context remembers. */
static void it_works_without_a_folder(void)
{
    tl_ctx *ctx = NULL;
    tl_tno *a = NULL, *b = NULL;
    (void)setenv("TOEPLAB_CACHE", "", 1);
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    CHECK_STATUS(tl_tno_new(ctx, "auto", 40, 3, 0, NULL, &a), TL_OK);
    CHECK_STATUS(tl_tno_new(ctx, "auto", 40, 3, 0, NULL, &b), TL_OK);
    if (a && b) CHECK(strcmp(tl_tno_backend_name(a), tl_tno_backend_name(b)) == 0);
    tl_tno_free(a);
    tl_tno_free(b);
    tl_ctx_free(ctx);
}

int main(void)
{
    if (!scratch_new()) return 1;
    (void)setenv("TOEPLAB_CACHE", scratch_folder, 1);
    (void)snprintf(file, sizeof file, "%s", scratch("backends.chosen"));
    int failed = run_tests((const test[]){
        {"a choice is one of them", a_choice_is_one_of_them},
        {"the file is believed", the_file_is_believed},
        {"a very short one has small outputs right", a_very_short_one_has_small_outputs_right},
        {"matrix is for short ones", matrix_is_for_short_ones},
        {"processes that start together choose alike",
         processes_that_start_together_choose_alike},
        {"options are refused", options_are_refused},
        {"a candidate that fails loses", a_candidate_that_fails_loses},
        {"it works without a folder", it_works_without_a_folder},
        {0},
    });
    scratch_free();
    return failed;
}

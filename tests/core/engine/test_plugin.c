/* test_plugin.c - loading backends: a whole one compiled outside the tree, and the files that have
** to be refused, each with its reason. The compiler is $CC, or cc. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

#define PATH 4096

static char folder[PATH / 8]; /* where plugins are compiled; not in the tree */

/* Compiles text, or the file source if text is NULL, to folder/name. 1: done */
static int compile(const char *name, const char *source, const char *text)
{
    char        command[8 * PATH], file[2 * PATH], core[PATH];
    const char *cc = getenv("CC");
    (void)snprintf(core, sizeof core, "%s", __FILE__);
    char *slash = strrchr(core, '/');
    if (!slash) return 0;
    (void)snprintf(slash, sizeof core - (size_t)(slash - core), "/../../../core");
    if (text) {
        (void)snprintf(file, sizeof file, "%s/%s.c", folder, name);
        FILE *f = fopen(file, "w");
        if (!f || fputs(text, f) < 0 || fclose(f) != 0) return 0;
    } else {
        (void)snprintf(file, sizeof file, "%s/../tests/%s", core, source);
    }
    (void)snprintf(command, sizeof command, "%s -shared -fPIC -I'%s' '%s' -o '%s/%s'",
                   cc ? cc : "cc", core, file, folder, name);
    return system(command) == 0;
}

static void forget(const char *name)
{
    char path[PATH];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    (void)remove(path);
}

static void path_of(const char *name, char *path)
{
    (void)snprintf(path, PATH, "%s/%s", folder, name);
}

static int index_of(const tl_ctx *ctx, const char *name)
{
    for (int i = 0; i < tl_backend_count(ctx); i++)
        if (strcmp(tl_backend_name(ctx, i), name) == 0) return i;
    return -1;
}

static tl_ctx *context(void)
{
    tl_ctx *ctx = NULL;
    CHECK_STATUS(tl_ctx_new(2, &ctx), TL_OK);
    if (!ctx) exit(1); /* nothing below can be said */
    return ctx;
}

/* Loading the file of that name fails and the message holds part. */
static void refused(tl_ctx *ctx, const char *name, const char *part)
{
    char path[PATH];
    path_of(name, path);
    int before = tl_backend_count(ctx);
    CHECK_STATUS(tl_backend_load(ctx, path), TL_EBACKEND);
    CHECK(strncmp(tl_errmsg(ctx), path, strlen(path)) == 0);
    CHECK(strstr(tl_errmsg(ctx), part) != NULL);
    if (!strstr(tl_errmsg(ctx), part)) printf("  message: %s\n", tl_errmsg(ctx));
    CHECK(tl_backend_count(ctx) == before);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void ours_are_found(void)
{
    tl_ctx *ctx = context();
    CHECK(index_of(ctx, "naive") >= 0);
    CHECK(index_of(ctx, "matrix") >= 0);
    CHECK(index_of(ctx, "fft") >= 0);
    for (int i = 0; i < tl_backend_problem_count(ctx); i++)
        printf("  problem: %s\n", tl_backend_problem(ctx, i));
    CHECK(tl_backend_problem_count(ctx) == 0);
    CHECK(tl_backend_name(ctx, -1) == NULL);
    CHECK(tl_backend_path(ctx, tl_backend_count(ctx)) == NULL);
    CHECK(tl_backend_problem(ctx, 0) == NULL);
    tl_ctx_free(ctx);
}

/* y = 2 x_i + 3 x_(i-1), then its gradients and its matrix, which the host makes. */
static void use_shift(tl_ctx *ctx)
{
    tl_tno    *tno = NULL;
    tl_tensor *coef, *x, *y, *sum, *dense;
    CHECK_STATUS(tl_tno_new(ctx, "shift", 3, 1, 0, NULL, &tno), TL_EBACKEND);
    CHECK(strstr(tl_errmsg(ctx), "it looks back only") != NULL);
    CHECK_STATUS(tl_tno_new(ctx, "shift", 3, 1, 1, NULL, &tno), TL_OK);
    if (!tno) return;
    CHECK(tl_tno_warning(tno) == NULL);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 2, (int64_t[]){2, 1}, &coef), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 3, (int64_t[]){1, 3, 1}, &x), TL_OK);
    memcpy(tl_tensor_f32(coef), (float[]){2, 3}, sizeof(float[2]));
    memcpy(tl_tensor_f32(x), (float[]){1, 10, 100}, sizeof(float[3]));
    CHECK_STATUS(tl_set_requires_grad(coef, 1), TL_OK);
    CHECK_STATUS(tl_set_requires_grad(x, 1), TL_OK);
    CHECK_STATUS(tl_tno_apply(tno, coef, NULL, x, &y), TL_OK);
    CHECK(memcmp(tl_tensor_cf32(y), (float[]){2, 23, 230}, sizeof(float[3])) == 0);
    CHECK_STATUS(tl_reduce(TL_REDUCE_SUM, y, TL_ALL_AXES, 0, &sum), TL_OK);
    CHECK_STATUS(tl_backward(ctx, sum), TL_OK);
    CHECK(memcmp(tl_tensor_cf32(tl_grad(x)), (float[]){5, 5, 2}, sizeof(float[3])) == 0);
    CHECK(memcmp(tl_tensor_cf32(tl_grad(coef)), (float[]){111, 11}, sizeof(float[2])) == 0);
    CHECK_STATUS(tl_tno_dense(tno, coef, NULL, &dense), TL_OK);
    CHECK(memcmp(tl_tensor_cf32(dense), (float[]){2, 0, 0, 3, 2, 0, 0, 3, 2},
                 sizeof(float[9])) == 0);
    tl_tensor_free(dense);
    tl_tensor_free(sum);
    tl_tensor_free(y);
    tl_tensor_free(x);
    tl_tensor_free(coef);
    tl_tno_free(tno);
}

static void one_from_outside_works(void)
{
    char path[PATH];
    path_of("shift.so", path);
    CHECK(compile("shift.so", "plugin/shift.c", NULL));
    CHECK(setenv("TOEPLAB_BACKENDS", folder, 1) == 0);
    tl_ctx *ctx = context();
    int     i = index_of(ctx, "shift");
    CHECK(i >= 0);
    if (i >= 0) {
        CHECK(strcmp(tl_backend_path(ctx, i), path) == 0);
        CHECK(strcmp(tl_backend_summary(ctx, i), "the token and the one before") == 0);
        use_shift(ctx);
        refused(ctx, "shift.so", "a backend named 'shift' is already loaded from ");
    }
    tl_ctx_free(ctx);
    forget("shift.so");
    (void)unsetenv("TOEPLAB_BACKENDS");
}

static void wrong_files_are_refused(void)
{
    tl_ctx *ctx = context();
    CHECK(compile("abi.so", NULL, "const unsigned tl_tno_backend_entry[64] = {99};\n"));
    CHECK(compile("other.so", NULL, "int something_else = 1;\n"));
    CHECK(compile("twin.so", NULL,
                  "#include \"backend.h\"\n"
                  "static int yes(const tl_tno_problem *p, char *w, size_t s) {\n"
                  "  (void)p; (void)w; (void)s; return 1; }\n"
                  "static int64_t points(const tl_tno_problem *p, double *o) {\n"
                  "  (void)o; return p->n; }\n"
                  "static tl_status plan(const tl_host *h, const tl_tno_problem *p, void **o) {\n"
                  "  (void)h; (void)p; (void)o; return TL_ENOMEM; }\n"
                  "static tl_status run(void *p, const tl_tno_args *a) {\n"
                  "  (void)p; (void)a; return TL_OK; }\n"
                  "static void end(void *p) { (void)p; }\n"
                  "const tl_tno_backend tl_tno_backend_entry = {.abi = TL_TNO_ABI,\n"
                  "  .name = \"naive\", .summary = \"not ours\", .domain = \"lag\",\n"
                  "  .accepts = yes, .points = points, .plan = plan, .forward = run,\n"
                  "  .backward = run, .release = end};\n"));
    CHECK(compile("where.so", NULL,
                  "#include \"backend.h\"\n"
                  "const tl_tno_backend tl_tno_backend_entry = {.abi = TL_TNO_ABI,\n"
                  "  .name = \"where\", .summary = \"points of what?\", .domain = \"lagg\"};\n"));
    CHECK(compile("half.so", NULL,
                  "#include \"backend.h\"\n"
                  "const tl_tno_backend tl_tno_backend_entry = {.abi = TL_TNO_ABI,\n"
                  "  .name = \"half\", .summary = \"no functions\", .domain = \"lag\"};\n"));
    CHECK(compile("word.so", NULL,
                  "#include \"backend.h\"\n"
                  "const tl_tno_backend tl_tno_backend_entry = {.abi = TL_TNO_ABI,\n"
                  "  .name = \"auto\", .summary = \"which?\", .domain = \"lag\"};\n"));
    refused(ctx, "abi.so", "built for ABI 99, but this is ABI 3");
    refused(ctx, "other.so", "exports no tl_tno_backend_entry");
    refused(ctx, "word.so", "the name 'auto' is reserved");
    refused(ctx, "where.so", "its domain is not \"lag\", \"warp\" or \"frequency\"");
    refused(ctx, "other.so.c", "");
    refused(ctx, "absent.so", "No such file");
    refused(ctx, "twin.so", "a backend named 'naive' is already loaded from ");
    refused(ctx, "half.so", "it lacks accepts or points");
    tl_ctx_free(ctx);
}

/* The same files, on the search path: remembered, no error, and told when a name is missed. */
static void problems_are_remembered(void)
{
    char paths[PATH];
    (void)snprintf(paths, sizeof paths, "%s::%s/absent", folder, folder);
    CHECK(setenv("TOEPLAB_BACKENDS", paths, 1) == 0);
    tl_ctx *ctx = context();
    static const char *const parts[] = {"abi.so: built for ABI 99", "half.so: it lacks",
                                        "other.so: exports no ", "twin.so: a backend named",
                                        "where.so: its domain", "word.so: the name 'auto' is",
                                        "absent: No such file"};
    CHECK(tl_backend_problem_count(ctx) == 7);
    for (int i = 0; i < 7 && i < tl_backend_problem_count(ctx); i++)
        CHECK(strstr(tl_backend_problem(ctx, i), parts[i]) != NULL);
    tl_tno *tno = NULL;
    CHECK_STATUS(tl_tno_new(ctx, "nave", 4, 1, 1, NULL, &tno), TL_EBACKEND);
    CHECK(strstr(tl_errmsg(ctx), "no backend is named 'nave'; did you mean 'naive'?") != NULL);
    CHECK(strstr(tl_errmsg(ctx), "fft, matrix, naive") != NULL);
    CHECK(strstr(tl_errmsg(ctx), "7 plugin files could not be used") != NULL);
    tl_ctx_free(ctx);
    (void)unsetenv("TOEPLAB_BACKENDS");
}

/* The content of the plugin of that name in *out_bytes; to be freed. */
static unsigned char *content(const char *name, size_t *out_bytes)
{
    char path[PATH];
    path_of(name, path);
    FILE *f = fopen(path, "rb");
    unsigned char *data = malloc(1 << 20);
    *out_bytes = f && data ? fread(data, 1, 1 << 20, f) : 0;
    if (f) (void)fclose(f);
    return data;
}

static void write_cut(const unsigned char *data, size_t bytes)
{
    char path[PATH];
    path_of("cut.so", path);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
}

/* dlopen would map what is not there, and die of SIGBUS. A plugin is code: one that is damaged
** otherwise can do anything, and cannot be refused. */
static void cut_files_are_refused(void)
{
    enum { CUTS = 1000 };
    size_t bytes;
    tl_ctx *ctx = context();
    CHECK(compile("whole.so", "plugin/shift.c", NULL));
    unsigned char *data = content("whole.so", &bytes);
    CHECK(bytes > 4096);
    for (size_t i = 0; i < CUTS && !test_failures; i++) {
        write_cut(data, i < 80 ? i : bytes - 1 - (i - 80) * (bytes - 81) / (CUTS - 80));
        refused(ctx, "cut.so", i < 64 ? "" : "cut.so: is truncated");
    }
    write_cut(data, bytes);
    char path[PATH];
    path_of("cut.so", path);
    CHECK_STATUS(tl_backend_load(ctx, path), TL_OK);
    tl_ctx_free(ctx);
    forget("cut.so");
    forget("whole.so");
    free(data);
}

static tl_status with(tl_ctx *ctx, const char *backend, const char *option)
{
    tl_tno   *tno = NULL;
    tl_status st = tl_tno_new(ctx, backend, 4, 1, 1, (const char *[]){option, NULL}, &tno);
    CHECK((st == TL_OK) == (tno != NULL));
    tl_tno_free(tno);
    return st;
}

static void options_are_checked(void)
{
    tl_ctx     *ctx = context();
    const char *name, *type, *preset, *range, *help;
    int         fft = index_of(ctx, "fft");
    CHECK(tl_backend_option(ctx, fft, 0, &name, &type, &preset, &range, &help) == 1);
    CHECK(strcmp(name, "planner") == 0 && strcmp(type, "word") == 0);
    CHECK(strcmp(preset, "measure") == 0 && strcmp(range, "measure estimate") == 0);
    CHECK(tl_backend_option(ctx, fft, 1, &name, &type, &preset, &range, &help) == 0);
    CHECK(tl_backend_option(ctx, 99, 0, &name, &type, &preset, &range, &help) == 0);

    CHECK_STATUS(with(ctx, "fft", "planer=estimate"), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "has no option 'planer'; did you mean 'planner'?") != NULL);
    CHECK_STATUS(with(ctx, "fft", "taps=3"), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "has no option 'taps'; its options: planner") != NULL);
    CHECK_STATUS(with(ctx, "fft", "planner=guess"), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "planner is 'guess', not one of measure estimate") != NULL);
    CHECK_STATUS(with(ctx, "fft", "planner"), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "option 'planner' has no '=value'") != NULL);
    CHECK_STATUS(with(ctx, "fft", "planner=estimate"), TL_OK);
    tl_ctx_free(ctx);
}

/* The types that none of our backends has, by a backend made for it. */
static void option_types_are_checked(void)
{
    static const struct {
        const char *text;
        tl_status   want;
    } cases[] = {
        {"taps=3", TL_OK},        {"taps=0", TL_EINVAL},      {"taps=9", TL_EINVAL},
        {"taps=3.5", TL_EINVAL},  {"taps=", TL_EINVAL},       {"taps=3x", TL_EINVAL},
        {"rate=0.25", TL_OK},     {"rate=nan", TL_EINVAL},    {"rate=1.5", TL_EINVAL},
        {"even=true", TL_OK},     {"even=0", TL_OK},          {"even=maybe", TL_EINVAL},
        {"taps=99999999999999999999", TL_EINVAL},             {"rate=-1e400", TL_EINVAL},
    };
    static const char source[] = /* shift.c with another entry, which has a table */
        "#define tl_tno_backend_entry shift_entry\n"
        "#include \"../tests/plugin/shift.c\"\n"
        "#undef tl_tno_backend_entry\n"
        "static const tl_option table[] = {{\"taps\", 'i', \"2\", \"1..8\", \"\"},\n"
        "  {\"rate\", 'f', \"0.5\", \"0..1\", \"\"}, {\"even\", 'b', \"0\", 0, \"\"}, {0}};\n"
        "TL_EXPORT extern const tl_tno_backend tl_tno_backend_entry;\n"
        "const tl_tno_backend tl_tno_backend_entry = {.abi = TL_TNO_ABI,\n"
        "  .name = \"options\", .summary = \"\", .domain = \"lag\", .options = table,\n"
        "  .accepts = accepts, .points = points, .plan = make, .forward = forward,\n"
        "  .backward = backward, .release = free};\n";
    char path[PATH];
    path_of("options.so", path);
    CHECK(compile("options.so", NULL, source));
    tl_ctx *ctx = context();
    CHECK_STATUS(tl_backend_load(ctx, path), TL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tl_status st = with(ctx, "options", cases[i].text);
        CHECK_STATUS(st, cases[i].want);
        if (st != cases[i].want) printf("  option %s: %s\n", cases[i].text, tl_errmsg(ctx));
    }
    tl_ctx_free(ctx);
    forget("options.so");
    forget("options.so.c");
}

/* A backend with these fields in the place of shift's is loaded, and says this of an operator. */
static void bad_answer(int number, const char *fields, const char *message)
{
    static const char format[] =
        "#define tl_tno_backend_entry shift_entry\n"
        "#include \"../tests/plugin/shift.c\"\n"
        "#undef tl_tno_backend_entry\n"
        "static int silent(const tl_tno_problem *p, char *why, size_t size)\n"
        "{ return (void)p, (void)why, (void)size, 0; }\n"
        "static int64_t none(const tl_tno_problem *p, double *o) { return (void)p, (void)o, 0; }\n"
        "static int64_t many(const tl_tno_problem *p, double *o)\n"
        "{ return (void)p, (void)o, INT64_MAX / 8; }\n"
        "static int narrow(const tl_tno_problem *p) { return (void)p, 0; }\n"
        "static int wide(const tl_tno_problem *p) { return (void)p, 2; }\n"
        "static int seven(const tl_tno_problem *p, int64_t d[6]) { return (void)p, (void)d, 7; }\n"
        "static int minus(const tl_tno_problem *p, int64_t d[6]) { return (void)p, (void)d, -1; }\n"
        "static const tl_param deep[] = {{\"w\", \"zeros\", seven}, {0}};\n"
        "static const tl_param less[] = {{\"v\", \"zeros\", minus}, {0}};\n"
        "TL_EXPORT extern const tl_tno_backend tl_tno_backend_entry;\n"
        "const tl_tno_backend tl_tno_backend_entry = {.abi = TL_TNO_ABI, .name = \"bad\",\n"
        "  .summary = \"\", .domain = \"lag\", .plan = make, .forward = forward,\n"
        "  .backward = backward, .release = free, %s};\n";
    char    source[sizeof format + 100], name[16], path[PATH];
    tl_tno *tno = NULL;
    (void)snprintf(source, sizeof source, format, fields);
    (void)snprintf(name, sizeof name, "bad%d.so", number); /* a name is mapped once */
    path_of(name, path);
    CHECK(compile(name, NULL, source));
    tl_ctx *ctx = context();
    CHECK_STATUS(tl_backend_load(ctx, path), TL_OK);
    tl_status st = tl_tno_new(ctx, "bad", 4, 1, 1, NULL, &tno);
    if (st == TL_OK) {
        const char *param, *init;
        int         ndim;
        int64_t     dims[TL_MAXDIMS];
        st = tl_tno_param(tno, 0, &param, &ndim, dims, &init);
    }
    CHECK_STATUS(st, TL_EBACKEND);
    CHECK(strstr(tl_errmsg(ctx), message) != NULL);
    if (!strstr(tl_errmsg(ctx), message)) printf("  %s\n", tl_errmsg(ctx));
    tl_tno_free(tno);
    tl_ctx_free(ctx);
    forget(name);
    (void)snprintf(name, sizeof name, "bad%d.so.c", number);
    forget(name);
}

static void bad_answers_are_errors(void)
{
    static const struct {
        const char *fields, *message;
    } rows[] = {
        {".accepts = silent, .points = points",
         "backend 'bad' does not take n 4, d 1, causal: it gives no reason"},
        {".accepts = accepts, .points = none", "backend 'bad' declares 0 points of width 1"},
        {".accepts = accepts, .points = many, .width = wide",
         "backend 'bad' declares 1152921504606846975 points of width 2"},
        {".accepts = accepts, .points = points, .width = narrow",
         "backend 'bad' declares 2 points of width 0"},
        {".accepts = accepts, .points = points, .params = deep",
         "backend 'bad': parameter w has 7 dimensions"},
        {".accepts = accepts, .points = points, .params = less",
         "backend 'bad': parameter v has -1 dimensions"},
    };
    for (int i = 0; i < 6; i++) bad_answer(i, rows[i].fields, rows[i].message);
}

int main(void)
{
    (void)snprintf(folder, sizeof folder, "%s/toeplab-plugin-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(folder)) return 1;
    (void)setenv("TOEPLAB_CACHE", "", 1);
    (void)unsetenv("TOEPLAB_BACKENDS");
    int failed = run_tests((const test[]){
        {"our own backends are found", ours_are_found},
        {"a backend from outside the tree works", one_from_outside_works},
        {"wrong files are refused with their reason", wrong_files_are_refused},
        {"problems of the search path are remembered", problems_are_remembered},
        {"cut files are refused", cut_files_are_refused},
        {"options are checked against the table", options_are_checked},
        {"integers, numbers and booleans are checked", option_types_are_checked},
        {"bad answers of a backend are errors", bad_answers_are_errors},
        {0},
    });
    static const char *const left[] = {"abi.so", "other.so", "twin.so", "half.so",
                                       "where.so"};
    for (int i = 0; i < 5; i++) {
        char source[64];
        (void)snprintf(source, sizeof source, "%s.c", left[i]);
        forget(left[i]);
        forget(source);
    }
    (void)rmdir(folder);
    return failed;
}

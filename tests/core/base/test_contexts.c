/* test_contexts.c - several contexts in one process, each used by a thread of its own: they write
** and read HDF5 at the same time and replace the same file. A context lives until what it made is
** freed. */
#include <pthread.h>

#include "scratch.h"
#include "test.h"
#include "toeplab-lab.h"

enum { THREADS = 3, TIMES = 40, LENGTH = 3000 };

static char shared[1024]; /* the file that all threads replace */

typedef struct job {
    int number, failed;
    char path[1024];
} job;

/* Runs body by all threads, and returns how many of their calls failed. */
static int run_all(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    job jobs[THREADS] = {0};
    int failed = 0;
    for (int i = 0; i < THREADS; i++) {
        char name[32];
        jobs[i].number = i;
        (void)snprintf(name, sizeof name, "own%d.h5", i);
        (void)snprintf(jobs[i].path, sizeof jobs[i].path, "%s", scratch(name));
    }
    int started = 0;
    while (started < THREADS && !pthread_create(&threads[started], NULL, body, &jobs[started]))
        started++;
    failed += THREADS - started;
    for (int i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
        failed += jobs[i].failed;
    }
    return failed;
}

/* A file of tests/. */
static void beside(const char *name, char *path, size_t size)
{
    (void)snprintf(path, size, "%s", __FILE__);
    char *slash = strrchr(path, '/') + 1;
    (void)snprintf(slash, size - (size_t)(slash - path), "../../%s", name);
}

/* ---- At the same time ------------------------------------------------------------------------ */

/* Writes the thread's own HDF5 file and reads it again. */
static void *write_and_read(void *user)
{
    job *j = user;
    tl_ctx *ctx = NULL;
    tl_tensor *t = NULL;
    j->failed = tl_ctx_new(1, &ctx) != TL_OK;
    if (j->failed) return NULL;
    int64_t n = LENGTH;
    j->failed += tl_tensor_new(ctx, TL_F32, 1, &n, &t) != TL_OK;
    for (int i = 0; t && i < TIMES; i++) {
        tl_tensor *back = NULL;
        tl_h5 *f = NULL;
        tl_tensor_f32(t)[LENGTH - 1] = (float)(100 * j->number + i);
        j->failed += tl_h5_write(ctx, j->path, 1, &(const char *){"t"}, &t, 0, NULL, 0) != TL_OK;
        j->failed += tl_h5_open(ctx, j->path, &f) != TL_OK;
        j->failed += !f || tl_h5_read(f, "t", &back) != TL_OK;
        j->failed += !back || tl_tensor_f32(back)[LENGTH - 1] != tl_tensor_f32(t)[LENGTH - 1];
        tl_tensor_free(back);
        tl_h5_close(f);
    }
    tl_tensor_free(t);
    tl_ctx_free(ctx);
    return NULL;
}

/* Each image needs a name of its own, or HDF5 a lock around it. */
static void each_writes_and_reads_hdf5(void) { CHECK(run_all(write_and_read) == 0); }

/* The first thread opens a file that a forked process reads; the others are in HDF5 meanwhile. */
static void *open_strangers(void *user)
{
    job *j = user;
    char path[1024];
    tl_ctx *ctx = NULL;
    if (j->number > 0) return write_and_read(user);
    beside("foreign.h5", path, sizeof path);
    j->failed = tl_ctx_new(1, &ctx) != TL_OK;
    if (j->failed) return NULL;
    for (int i = 0; i < TIMES && !j->failed; i++) {
        tl_h5 *f = NULL;
        j->failed += tl_h5_open(ctx, path, &f) != TL_OK;
        tl_h5_close(f);
    }
    tl_ctx_free(ctx);
    return NULL;
}

static void files_of_others_are_read_meanwhile(void) { CHECK(run_all(open_strangers) == 0); }

/* All threads replace one file. Each fills it with a letter of its own. */
static void *replace_one(void *user)
{
    job *j = user;
    char text[LENGTH];
    tl_ctx *ctx = NULL;
    memset(text, 'a' + j->number, sizeof text);
    j->failed = tl_ctx_new(1, &ctx) != TL_OK;
    if (j->failed) return NULL;
    for (int i = 0; i < TIMES; i++)
        j->failed += tl_file_write(ctx, shared, text, sizeof text) != TL_OK;
    tl_ctx_free(ctx);
    return NULL;
}

static void one_file_is_replaced_as_a_whole(void)
{
    size_t bytes;
    (void)snprintf(shared, sizeof shared, "%s", scratch("shared"));
    CHECK(run_all(replace_one) == 0);
    unsigned char *text = scratch_read(shared, &bytes);
    CHECK(bytes == LENGTH);
    for (size_t i = 1; text && i < bytes; i++)
        if (text[i] != text[0]) CHECK(!"two writers mixed");
    CHECK(scratch_count(scratch_folder, ".tmp.") == 0);
    free(text);
}

/* ---- Lifetimes ------------------------------------------------------------------------------- */

static void objects_keep_their_context(void)
{
    tl_ctx *ctx = NULL;
    tl_vocab *vocab = NULL;
    tl_encoder *encoder = NULL;
    tl_counter *counter = NULL;
    tl_tensor *ids = NULL, *t = NULL;
    tl_h5 *f = NULL;
    tl_store *store = NULL;
    int64_t n = 4;
    CHECK_STATUS(tl_ctx_new(1, &ctx), TL_OK);
    CHECK_STATUS(tl_tensor_new(ctx, TL_F32, 1, &n, &t), TL_OK);
    CHECK_STATUS(tl_h5_write(ctx, scratch("a.h5"), 1, &(const char *){"t"}, &t, 0, NULL, 0), TL_OK);
    tl_tensor_free(t);
    CHECK_STATUS(tl_h5_open(ctx, scratch("a.h5"), &f), TL_OK);
    CHECK_STATUS(tl_vocab_new_bytes(ctx, &vocab), TL_OK);
    CHECK_STATUS(tl_encoder_new(vocab, &encoder), TL_OK);
    CHECK_STATUS(tl_counter_new(ctx, TL_COUNT_WORDS, &counter), TL_OK);
    CHECK_STATUS(tl_store_open(ctx, scratch_folder, TL_STORE_WRITE, &store), TL_OK);
    tl_ctx_free(ctx);
    tl_vocab_free(vocab); /* the encoder keeps it */
    CHECK_STATUS(tl_encoder_feed(encoder, "abc", 3), TL_OK);
    CHECK_STATUS(tl_encoder_finish(encoder, &ids), TL_OK);
    CHECK(tl_tensor_len(ids) == 3);
    tl_encoder_free(encoder);
    tl_tensor_free(ids);
    CHECK_STATUS(tl_counter_feed(counter, "a b a ", 6), TL_OK);
    CHECK(tl_counter_size(counter) == 2);
    tl_counter_free(counter);
    CHECK_STATUS(tl_h5_read(f, "t", &t), TL_OK);
    tl_h5_close(f);
    CHECK(tl_tensor_len(t) == 4);
    tl_tensor_free(t);
    tl_store_close(store);
}

/* A daemon may have closed its standard descriptors, whose numbers new ones then get. */
static void standard_descriptors_may_be_closed(void)
{
    int status = 0;
    char path[1024];
    beside("foreign.h5", path, sizeof path);
    pid_t pid = fork();
    if (pid == 0) {
        tl_ctx *ctx = NULL;
        tl_h5 *f = NULL;
        for (int i = 0; i < 3; i++) (void)close(i);
        int good = tl_ctx_new(1, &ctx) == TL_OK && tl_h5_open(ctx, path, &f) == TL_OK;
        _exit(good ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void)
{
    if (!scratch_new()) return 1;
    int status = run_tests((const test[]){
        {"each writes and reads HDF5", each_writes_and_reads_hdf5},
        {"files of others are read meanwhile", files_of_others_are_read_meanwhile},
        {"one file is replaced as a whole", one_file_is_replaced_as_a_whole},
        {"objects keep their context", objects_keep_their_context},
        {"standard descriptors may be closed", standard_descriptors_may_be_closed},
        {0}});
    scratch_free();
    return status;
}

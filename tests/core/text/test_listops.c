/* test_listops.c - ListOps: values, texts, drawing; and sequences: frequent characters, padding. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "test.h"
#include "toeplab-lab.h"

static tl_ctx *ctx;

/* ---- Values and texts ------------------------------------------------------------------------ */

/* The value of text; -1 if it is not an expression. */
static int value_of(const char *text)
{
    int value = -1;
    tl_tensor *ids = NULL;
    if (tl_listops_parse(ctx, text, strlen(text), &ids) != TL_OK) return -1;
    CHECK_STATUS(tl_listops_value(ids, 0, tl_tensor_len(ids), &value), TL_OK);
    tl_tensor_free(ids);
    return value;
}

static void operators(void)
{
    CHECK(value_of("7") == 7);
    CHECK(value_of("[MIN 4 9 2 ]") == 2 && value_of("[MAX 4 9 2 ]") == 9);
    CHECK(value_of("[MED 4 9 2 ]") == 4 && value_of("[MED 1 9 8 2 ]") == 5);
    CHECK(value_of("[MED 1 9 6 2 ]") == 4); /* 2 and 6 */
    CHECK(value_of("[MED 0 9 5 2 ]") == 3); /* 2 and 5, rounded down */
    CHECK(value_of("[MED 3 ]") == 3 && value_of("[MED 2 7 ]") == 4);
    CHECK(value_of("[SM 4 9 2 ]") == 5 && value_of("[SM 5 5 ]") == 0);
    CHECK(value_of("[MAX 2 [MIN 4 7 X 0 [SM 9 9 9 X X") == 7);
}

/* From the published test sets: as they are written, and their answers. */
static const struct {
    int answer;
    const char *text;
} published[] = {
    {6, "( ( ( ( ( [MAX ( ( ( [MED 5 ) 0 ) ] ) ) ( ( ( ( [MED 5 ) ( ( ( ( ( [MAX 9 ) 9 ) 5 ) 5 )"
        " ] ) ) 0 ) ] ) ) 0 ) 6 ) ] )"},
    {9, "( ( ( [MAX 2 ) 9 ) ] )"},
    {0, "0"},
};

static void texts_are_as_published(void)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        char text[512];
        size_t bytes = 0;
        tl_tensor *ids = NULL;
        const char *want = published[i].text;
        CHECK(value_of(want) == published[i].answer);
        CHECK_STATUS(tl_listops_parse(ctx, want, strlen(want), &ids), TL_OK);
        int64_t n = tl_tensor_len(ids);
        CHECK_STATUS(tl_listops_text(ids, 0, n, text, sizeof text, &bytes), TL_OK);
        CHECK(bytes == strlen(want) && !memcmp(text, want, bytes));
        memset(text, '#', sizeof text);
        CHECK_STATUS(tl_listops_text(ids, 0, n, text, 1, &bytes), TL_OK); /* no room: the length */
        CHECK(bytes == strlen(want) && text[0] == want[0] && text[1] == '#');
        tl_tensor_free(ids);
    }
}

static void invalid_expressions(void)
{
    static const char *const wrong[][2] = {
        {"", "does not end"},           {"[MIN 1", "does not end"},
        {"[MIN ]", "an empty list"},    {"]", "closes no list"},
        {"1 2", "ends after 1 of 2"}, {"[MIN 1 ] ]", "ends after 3 of 4"},
        {"[MIN 1 12 ]", "'12' at offset 7"}, {"[FIRST 1 ]", "'[FIRST' at offset 0"},
        {"[MIN [MAX 1 ]", "does not end"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tl_tensor *ids = NULL;
        CHECK_STATUS(tl_listops_parse(ctx, wrong[i][0], strlen(wrong[i][0]), &ids), TL_EINVAL);
        if (!strstr(tl_errmsg(ctx), wrong[i][1])) {
            CHECK(0);
            printf("  '%s' for '%s'\n", tl_errmsg(ctx), wrong[i][0]);
        }
    }
    tl_tensor *ids = NULL;
    size_t bytes;
    int value;
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 1, (int64_t[]){4}, &ids), TL_OK);
    CHECK_STATUS(tl_listops_value(ids, 0, 4, &value), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "token 0 is 0, not in 3..17") != NULL);
    tl_tensor_i32(ids)[0] = 300;
    CHECK_STATUS(tl_listops_value(ids, 0, 4, &value), TL_EINVAL);
    CHECK_STATUS(tl_listops_value(ids, 1, 4, &value), TL_EINVAL);
    CHECK_STATUS(tl_listops_value(ids, -1, 2, &value), TL_EINVAL);
    CHECK_STATUS(tl_listops_text(ids, 0, 0, NULL, 0, &bytes), TL_EINVAL);
    tl_tensor_free(ids);
}

/* ---- Drawing --------------------------------------------------------------------------------- */

static const tl_listops small = {.bytes = sizeof small, .seed = 7, .count = 300, .min_length = 20,
                                 .max_length = 60, .max_depth = 10, .max_args = 10};

typedef struct drawn {
    tl_tensor *ids, *starts, *answers;
} drawn;

static tl_status drawing(const tl_listops *o, drawn *d)
{
    *d = (drawn){0};
    return tl_listops_draw(ctx, o, &d->ids, &d->starts, &d->answers);
}

static void release(drawn *d)
{
    tl_tensor_free(d->ids);
    tl_tensor_free(d->starts);
    tl_tensor_free(d->answers);
}

static int depth_of(const int32_t *ids, int64_t n)
{
    int depth = 1, most = 1;
    for (int64_t i = 0; i < n; i++) {
        depth += ids[i] >= 13 && ids[i] < 17 ? 1 : ids[i] == 17 ? -1 : 0;
        if (depth > most) most = depth;
    }
    return most;
}

static void drawn_expressions_are_what_was_asked(void)
{
    drawn d;
    int same = 0, deepest = 0;
    CHECK_STATUS(drawing(&small, &d), TL_OK);
    const int32_t *ids = tl_tensor_ci32(d.ids), *starts = tl_tensor_ci32(d.starts);
    CHECK(tl_tensor_len(d.starts) == 301 && tl_tensor_len(d.answers) == 300);
    CHECK(starts[0] == 0 && starts[300] == tl_tensor_len(d.ids));
    for (int i = 0; i < 300; i++) {
        int value = -1;
        int64_t n = starts[i + 1] - starts[i];
        CHECK(n >= 20 && n <= 60);
        CHECK_STATUS(tl_listops_value(d.ids, starts[i], n, &value), TL_OK);
        CHECK(value == tl_tensor_ci32(d.answers)[i]);
        int depth = depth_of(ids + starts[i], n);
        deepest = depth > deepest ? depth : deepest;
        for (int j = 0; j < i; j++)
            same += starts[j + 1] - starts[j] == n &&
                    !memcmp(ids + starts[j], ids + starts[i], (size_t)n * sizeof *ids);
    }
    CHECK(!same);
    CHECK(deepest >= 5 && deepest <= 10);
    release(&d);
}

static void a_seed_says_it_all(void)
{
    drawn a, b, c, other;
    tl_listops fewer = small, another = small;
    fewer.count = 100;
    another.seed = 8;
    CHECK_STATUS(drawing(&small, &a), TL_OK);
    CHECK_STATUS(drawing(&small, &b), TL_OK);
    CHECK_STATUS(drawing(&fewer, &c), TL_OK);
    CHECK_STATUS(drawing(&another, &other), TL_OK);
    size_t all = (size_t)tl_tensor_len(a.ids) * sizeof(int32_t);
    size_t part = (size_t)tl_tensor_len(c.ids) * sizeof(int32_t);
    CHECK(tl_tensor_len(a.ids) == tl_tensor_len(b.ids));
    CHECK(!memcmp(tl_tensor_ci32(a.ids), tl_tensor_ci32(b.ids), all));
    CHECK(tl_tensor_ci32(a.starts)[100] == tl_tensor_len(c.ids));
    CHECK(!memcmp(tl_tensor_ci32(a.ids), tl_tensor_ci32(c.ids), part));
    CHECK(memcmp(tl_tensor_ci32(a.ids), tl_tensor_ci32(other.ids), 40 * sizeof(int32_t)) != 0);
    release(&a);
    release(&b);
    release(&c);
    release(&other);
}

/* Long Range Arena's lengths: about 17 % of the answers are 0, and as many 9; the mean length is
** near 1,040 (measured on a simulation of the published generator). */
static void the_published_distribution(void)
{
    enum { COUNT = 4000 };
    drawn d;
    int counts[10] = {0};
    tl_listops o = {.bytes = sizeof o, .seed = 1, .count = COUNT, .min_length = 501,
                    .max_length = 1999, .max_depth = 10, .max_args = 10};
    CHECK_STATUS(drawing(&o, &d), TL_OK);
    for (int i = 0; i < COUNT; i++) counts[tl_tensor_ci32(d.answers)[i]]++;
    CHECK_NEAR((double)tl_tensor_len(d.ids) / COUNT, 1040, 25);
    CHECK_NEAR((double)counts[0] / COUNT, 0.169, 0.025);
    CHECK_NEAR((double)counts[9] / COUNT, 0.169, 0.025);
    for (int v = 1; v < 9; v++) CHECK_NEAR((double)counts[v] / COUNT, 0.083, 0.025);
    release(&d);
}

static void what_cannot_be_drawn(void)
{
    drawn d;
    tl_listops o = {.bytes = sizeof o, .seed = 1, .count = 11, .min_length = 1, .max_length = 1,
                    .max_depth = 10, .max_args = 10};
    CHECK_STATUS(drawing(&o, &d), TL_EINVAL); /* there are ten digits */
    CHECK(strstr(tl_errmsg(ctx), "10 of 11 distinct expressions of 1 to 1 tokens") != NULL);
    o.count = 10;
    CHECK_STATUS(drawing(&o, &d), TL_OK);
    release(&d);
    enum { BYTES = sizeof(tl_listops) };
    const tl_listops wrong[] = {
        {BYTES, 1, 0, 1, 9, 10, 10},  {BYTES, 1, 5, 9, 8, 10, 10}, {BYTES, 1, 5, 0, 8, 10, 10},
        {BYTES, 1, 5, 1, 9, 0, 10},   {BYTES, 1, 5, 1, 9, 10, 1},  {BYTES, 1, 5, 1, 9, -1, -1},
        {BYTES, 1, -1, 1, 9, 10, 10}, {BYTES, 1, 5, 1, 2000000, 10, 10}, {0, 1, 5, 1, 9, 10, 10},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_STATUS(drawing(&wrong[i], &d), TL_EINVAL);
}

/* ---- Characters ------------------------------------------------------------------------------ */

static void frequent_characters(void)
{
    const char *text = "aaa b\xc3\xa9" "b\xc3\xa9" "b\xc3\xa9 cc \xf0\x9f\x98\x80";
    tl_vocab *v = NULL;
    tl_tensor *ids = NULL;
    size_t bytes;
    CHECK_STATUS(tl_vocab_new_frequent(ctx, text, strlen(text), 3, &v), TL_OK);
    CHECK(tl_vocab_size(v) == 7 && tl_vocab_eos(v) == 2); /* ' ', a, b, e': three times each */
    CHECK(!memcmp(tl_vocab_token(v, 0, &bytes), "<pad><unk><eos> ab\xc3\xa9", 20));
    CHECK_STATUS(tl_vocab_encode(v, "\xc3\xa9 cba\n", 7, &ids), TL_OK);
    CHECK(tl_tensor_len(ids) == 6);
    CHECK(!memcmp(tl_tensor_ci32(ids), (int32_t[]){6, 3, 1, 5, 4, 1}, 6 * sizeof(int32_t)));
    tl_tensor_free(ids);
    ids = NULL;
    CHECK_STATUS(tl_vocab_encode(v, "a\xff", 2, &ids), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "0xff at offset 1") != NULL);
    tl_vocab_free(v);
    CHECK_STATUS(tl_vocab_new_frequent(ctx, "", 0, 1, &v), TL_OK);
    CHECK(tl_vocab_size(v) == 3);
    tl_vocab_free(v);
    CHECK_STATUS(tl_vocab_new_frequent(ctx, "a\xe2\x82", 3, 1, &v), TL_EINVAL);
    CHECK_STATUS(tl_vocab_new_frequent(ctx, "a", 1, 0, &v), TL_EINVAL);
}

/* ---- Padding --------------------------------------------------------------------------------- */

static tl_tensor *vector(const int32_t *values, int64_t n)
{
    tl_tensor *t = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, TL_I32, 1, &n, &t), TL_OK);
    memcpy(tl_tensor_i32(t), values, (size_t)n * sizeof *values);
    return t;
}

static void rows_end_and_are_padded(void)
{
    tl_tensor *ids = vector((int32_t[]){10, 11, 12, 13, 14, 15}, 6), *rows, *lengths;
    tl_tensor *starts = vector((int32_t[]){0, 4, 4, 6}, 4);
    tl_tensor *index = vector((int32_t[]){2, 0, 1}, 3);
    CHECK_STATUS(tl_pad_rows(ids, starts, index, 4, 2, 0, &rows, &lengths), TL_OK);
    CHECK(!memcmp(tl_tensor_ci32(rows), (int32_t[]){14, 15, 2, 0, 10, 11, 12, 2, 2, 0, 0, 0}, 48));
    CHECK(!memcmp(tl_tensor_ci32(lengths), (int32_t[]){3, 4, 1}, 12));
    tl_tensor_free(rows);
    tl_tensor_free(lengths);
    CHECK_STATUS(tl_pad_rows(ids, starts, index, 3, -1, 9, &rows, &lengths), TL_OK);
    CHECK(!memcmp(tl_tensor_ci32(rows), (int32_t[]){14, 15, 9, 10, 11, 12, 9, 9, 9}, 36));
    CHECK(!memcmp(tl_tensor_ci32(lengths), (int32_t[]){2, 3, 0}, 12));
    tl_tensor_free(rows);
    tl_tensor_free(lengths);
    tl_tensor_i32(index)[1] = 3;
    CHECK_STATUS(tl_pad_rows(ids, starts, index, 3, -1, 9, &rows, &lengths), TL_EINVAL);
    tl_tensor_i32(index)[1] = 0;
    CHECK_STATUS(tl_pad_rows(ids, starts, index, 0, -1, 9, &rows, &lengths), TL_EINVAL);
    tl_tensor_i32(starts)[3] = 7;
    CHECK_STATUS(tl_pad_rows(ids, starts, index, 3, -1, 9, &rows, &lengths), TL_EINVAL);
    tl_tensor_i32(starts)[3] = 3;
    CHECK_STATUS(tl_pad_rows(ids, starts, index, 3, -1, 9, &rows, &lengths), TL_EINVAL);
    tl_tensor_free(ids);
    tl_tensor_free(starts);
    tl_tensor_free(index);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static tl_status everything(void)
{
    drawn d;
    tl_vocab *v = NULL;
    tl_listops few = small;
    few.count = 5;
    tl_tensor *ids = NULL, *rows = NULL, *lengths = NULL;
    tl_status st = drawing(&few, &d);
    if (st == TL_OK) st = tl_pad_rows(d.ids, d.starts, d.answers, 9, 2, 0, &rows, &lengths);
    if (st == TL_EINVAL) st = TL_OK; /* answers are no index; memory is what counts here */
    if (st == TL_OK) st = tl_listops_parse(ctx, "[MIN 1 2 ]", 10, &ids);
    if (st == TL_OK) st = tl_vocab_new_frequent(ctx, "abc", 3, 1, &v);
    tl_tensor_free(ids);
    tl_tensor_free(rows);
    tl_tensor_free(lengths);
    tl_vocab_free(v);
    release(&d);
    return st;
}

static void without_memory_nothing_is_left(void)
{
    tl_status st = TL_ENOMEM;
    int64_t n = 0;
    size_t before = tl_memory_info(ctx).live;
    for (; st == TL_ENOMEM && n < 1000; n++) {
        tl_alloc_fail_after(ctx, n);
        st = everything();
        tl_alloc_fail_after(ctx, -1);
        CHECK(tl_memory_info(ctx).live == before);
    }
    CHECK(st == TL_OK && n > 10);
}

int main(void)
{
    if (tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int failed = run_tests((const test[]){
        {"operators", operators},
        {"texts are as published", texts_are_as_published},
        {"invalid expressions are refused", invalid_expressions},
        {"drawn expressions are what was asked", drawn_expressions_are_what_was_asked},
        {"a seed says it all", a_seed_says_it_all},
        {"the published distribution", the_published_distribution},
        {"what cannot be drawn", what_cannot_be_drawn},
        {"frequent characters", frequent_characters},
        {"rows end and are padded", rows_end_and_are_padded},
        {"without memory nothing is left", without_memory_nothing_is_left},
        {0},
    });
    tl_ctx_free(ctx);
    return failed;
}

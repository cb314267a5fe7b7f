/* test_h5.c - HDF5 files: what goes in comes out, or an error; never half of it. */
#include "scratch.h"
#include "test.h"
#include "version.h"
#include "toeplab-lab.h"

static tl_ctx *ctx;

static tl_tensor *tensor(tl_type type, int ndim, const int64_t *dims, double value)
{
    tl_tensor *t = NULL;
    CHECK_STATUS(tl_tensor_new(ctx, type, ndim, dims, &t), TL_OK);
    if (t) CHECK_STATUS(tl_tensor_fill(t, value), TL_OK);
    return t;
}

/* ---- Round trip ---- */

static long bytes_of(const char *path)
{
    size_t bytes = 0;
    free(scratch_read(path, &bytes));
    return (long)bytes;
}

/* Writes tensors of several shapes, compressed if packed, and reads them back. */
static void trip(int packed, const char *path)
{
    enum { SETS = 6 };
    static const char *const names[SETS] = {"z",    "layers.0.weight", "ids", "one",
                                            "none", "deep/er/x"};
    static const int64_t dims[SETS][3] = {{2, 3}, {50, 40, 30}, {5}, {0}, {0, 4}, {1}};
    static const int ndims[SETS] = {2, 3, 1, 0, 2, 1};
    tl_tensor *t[SETS], *back;
    tl_h5 *f = NULL;
    for (int i = 0; i < SETS; i++) {
        t[i] = tensor(i == 2 ? TL_I32 : TL_F32, ndims[i], dims[i], 0);
        for (int64_t j = 0; j < tl_tensor_len(t[i]); j++) {
            if (i == 2) tl_tensor_i32(t[i])[j] = (int32_t)(j * 1000003 - INT32_MAX);
            if (i != 2) tl_tensor_f32(t[i])[j] = j == 1 ? NAN : j == 2 ? -INFINITY : (float)j / 3;
        }
    }
    CHECK_STATUS(tl_h5_write(ctx, path, SETS, names, t, 0, NULL, packed), TL_OK);
    CHECK_STATUS(tl_h5_open(ctx, path, &f), TL_OK);
    for (int i = 0; f && i < SETS; i++) {
        CHECK_STATUS(tl_h5_read(f, names[i], &back), TL_OK);
        CHECK(tl_tensor_type(back) == tl_tensor_type(t[i]) && tl_tensor_ndim(back) == ndims[i]);
        for (int k = 0; k < ndims[i]; k++) CHECK(tl_tensor_dim(back, k) == dims[i][k]);
        const void *a = i == 2 ? (void *)tl_tensor_i32(t[i]) : tl_tensor_f32(t[i]);
        const void *b = i == 2 ? (void *)tl_tensor_i32(back) : tl_tensor_f32(back);
        CHECK(!memcmp(a, b, (size_t)tl_tensor_len(t[i]) * 4));
        tl_tensor_free(back);
    }
    tl_h5_close(f);
    for (int i = 0; i < SETS; i++) tl_tensor_free(t[i]);
}

static void round_trip(void)
{
    trip(0, scratch("trip.h5"));
}

static void a_packed_file_is_smaller_and_says_the_same(void)
{
    long plain, packed;
    trip(0, scratch("trip.h5"));
    plain = bytes_of(scratch("trip.h5"));
    trip(1, scratch("trip.h5"));
    packed = bytes_of(scratch("trip.h5"));
    CHECK(plain > 240000 && packed > 0 && packed < plain * 3 / 4);
}

static void attributes(void)
{
    char *big = malloc(200001);
    memset(big, 'x', 200000);
    big[200000] = '\0';
    tl_attr in[] = {{.name = "big", .kind = 's', .s = big},
                    {.name = "empty", .kind = 's', .s = ""},
                    {.name = "int", .kind = 'i', .i = INT64_MIN},
                    {.name = "real", .kind = 'f', .f = 0.1},
                    {.name = "utf-8", .kind = 's', .s = "d\xc3\xa9j\xc3\xa0"}};
    tl_attr out;
    tl_h5 *f = NULL;
    CHECK_STATUS(tl_h5_write(ctx, scratch("attr.h5"), 0, NULL, NULL, 5, in, 0), TL_OK);
    CHECK_STATUS(tl_h5_open(ctx, scratch("attr.h5"), &f), TL_OK);
    for (int i = 0; f && i < 5; i++) {
        CHECK_STATUS(tl_h5_attr(f, "/", i, &out), TL_OK);
        CHECK(!strcmp(out.name, in[i].name) && out.kind == in[i].kind && out.i == in[i].i);
        CHECK(out.f == in[i].f);
        CHECK(!in[i].s || !strcmp(out.s, in[i].s));
    }
    if (f) CHECK_STATUS(tl_h5_attr(f, "/", 5, &out), TL_ENOTFOUND);
    if (f) CHECK_STATUS(tl_h5_attr(f, "/", -1, &out), TL_ENOTFOUND);
    if (f) CHECK_STATUS(tl_h5_attr(f, "/nowhere", 0, &out), TL_EINVAL);
    tl_h5_close(f);
    free(big);
}

static void children_come_in_name_order(void)
{
    static const char *const names[] = {"b", "a/2", "a/1", "c"};
    static const char *const order = "a g b d c d ";
    char seen[64] = "", kind;
    const char *name;
    tl_tensor *one = tensor(TL_F32, 0, NULL, 1);
    tl_h5 *f = NULL;
    CHECK_STATUS(tl_h5_write(ctx, scratch("tree.h5"), 4, names, (tl_tensor *[]){one, one, one, one},
                             0, NULL, 0),
                 TL_OK);
    CHECK_STATUS(tl_h5_open(ctx, scratch("tree.h5"), &f), TL_OK);
    for (int i = 0; f && tl_h5_child(f, "/", i, &name, &kind) == TL_OK; i++)
        (void)snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s %c ", name, kind);
    CHECK(!strcmp(seen, order));
    CHECK(f && tl_h5_child(f, "a", 1, &name, &kind) == TL_OK && !strcmp(name, "2"));
    if (f) CHECK_STATUS(tl_h5_child(f, "/", 3, &name, &kind), TL_ENOTFOUND);
    if (f) CHECK_STATUS(tl_h5_child(f, "/nowhere", 0, &name, &kind), TL_EINVAL);
    if (f) CHECK_STATUS(tl_h5_child(f, "b", 0, &name, &kind), TL_EINVAL);
    tl_h5_close(f);
    tl_tensor_free(one);
}

static void equal_content_gives_equal_bytes(void)
{
    char a[65], b[65], c[65];
    CHECK_STATUS(write_version(ctx, scratch("1.h5"), 4), TL_OK);
    CHECK_STATUS(write_version(ctx, scratch("2.h5"), 4), TL_OK);
    CHECK_STATUS(write_version(ctx, scratch("3.h5"), 5), TL_OK);
    CHECK_STATUS(tl_sha256_file(ctx, scratch("1.h5"), a), TL_OK);
    CHECK_STATUS(tl_sha256_file(ctx, scratch("2.h5"), b), TL_OK);
    CHECK_STATUS(tl_sha256_file(ctx, scratch("3.h5"), c), TL_OK);
    CHECK(!strcmp(a, b) && strcmp(a, c));
}

static void sha256_is_the_standard_one(void)
{
    char hex[65];
    tl_sha256("abc", 3, hex);
    CHECK(!strcmp(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    tl_sha256(NULL, 0, hex);
    CHECK(!strcmp(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    CHECK_STATUS(tl_sha256_file(ctx, scratch("none"), hex), TL_ENOTFOUND);
    CHECK_STATUS(tl_sha256_file(ctx, scratch(""), hex), TL_EIO); /* a folder */
}

/* ---- Files of others ---- */

/* A file of tests/. */
static const char *beside(const char *name)
{
    static char path[1024];
    (void)snprintf(path, sizeof path, "%s", __FILE__);
    (void)snprintf(strrchr(path, '/') + 1, 32, "../../%s", name);
    return path;
}

static void reads_files_of_others(void) /* foreign.h5: made by h5py 3.16 */
{
    static const struct {
        const char *name;
        tl_status st;
        tl_type type;
        int64_t len;
        double last;
    } sets[] = {{"f64", TL_OK, TL_F32, 4, INFINITY}, {"f16", TL_OK, TL_F32, 2, 2},
                {"big_endian", TL_OK, TL_F32, 3, 2}, {"i64", TL_OK, TL_I32, 3, INT32_MAX},
                {"u8", TL_OK, TL_I32, 5, 4},         {"bools", TL_OK, TL_I32, 3, 1},
                {"scalar", TL_OK, TL_F32, 1, 3.5},   {"packed", TL_OK, TL_F32, 1000, 999},
                {"over", TL_ETYPE, 0, 0, 0},         {"text", TL_ETYPE, 0, 0, 0},
                {"large", TL_ETYPE, 0, 0, 0},        {"swapped", TL_ETYPE, 0, 0, 0},
                {"limits", TL_OK, TL_F32, 5, 0},
                {"seven", TL_ESHAPE, 0, 0, 0},       {"null", TL_ESHAPE, 0, 0, 0},
                {"soft", TL_EINVAL, 0, 0, 0},        {"soft/er", TL_EINVAL, 0, 0, 0}};
    static const tl_attr attrs[] = {{"causal", 'i', 1, 0, NULL},
                                    {"fixed", 's', 0, 0, "abc"},
                                    {"half", 'f', 0, 1.5, NULL},
                                    {"kind", 's', 0, 0, "time"}};
    tl_attr a;
    tl_tensor *t;
    tl_h5 *f = NULL;
    CHECK_STATUS(tl_h5_open(ctx, beside("foreign.h5"), &f), TL_OK);
    for (size_t i = 0; f && i < sizeof sets / sizeof *sets; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "/case/%s", sets[i].name);
        CHECK_STATUS(tl_h5_read(f, name, &t), sets[i].st);
        if (sets[i].st != TL_OK) continue;
        int64_t last = sets[i].len - 1;
        CHECK(tl_tensor_type(t) == sets[i].type && tl_tensor_len(t) == sets[i].len);
        CHECK(sets[i].last == (sets[i].type == TL_F32 ? (double)tl_tensor_f32(t)[last]
                                                      : (double)tl_tensor_i32(t)[last]));
        tl_tensor_free(t);
    }
    for (int i = 0; f && i < 4; i++) {
        CHECK_STATUS(tl_h5_attr(f, "case", i, &a), TL_OK);
        CHECK(!strcmp(a.name, attrs[i].name) && a.kind == attrs[i].kind && a.i == attrs[i].i);
        CHECK(a.f == attrs[i].f && (!a.s || !strcmp(a.s, attrs[i].s)));
    }
    if (f) CHECK_STATUS(tl_h5_attr(f, "case", 4, &a), TL_ETYPE); /* a list */
    tl_h5_close(f);
}

/* strange.h5, made by libhdf5 1.10.8: what leads to other files, round in circles or to more than
** there is. */
static void reads_no_more_than_the_file_holds(void)
{
    static const struct {
        const char *name;
        tl_status st;
        const char *part; /* of the message */
    } sets[] = {{"data", TL_OK, ""},
                {"never", TL_OK, ""}, /* was never written: 0 */
                {"soft", TL_EINVAL, "'soft' is a soft link"},
                {"external", TL_EINVAL, "'external' is an external link"},
                {"external/x", TL_EINVAL, "'external' is an external link"},
                {"outside", TL_EINVAL, "'outside' are in other files"},
                {"virtual", TL_EINVAL, "'virtual' are in other files"},
                {"huge", TL_EINVAL, "'huge' has 8589934592 bytes, none of which was"},
                {"huge_chunks", TL_EINVAL, "'huge_chunks' has 8589934592 bytes, none of"},
                {"huge_chunk", TL_EINVAL, "'huge_chunk' has 2147483648 bytes in a chunk, none"}};
    tl_tensor *t = NULL;
    tl_h5 *f = NULL;
    CHECK_STATUS(tl_h5_open(ctx, beside("strange.h5"), &f), TL_OK);
    for (size_t i = 0; f && i < sizeof sets / sizeof *sets; i++) {
        CHECK_STATUS(tl_h5_read(f, sets[i].name, &t), sets[i].st);
        if (sets[i].st != TL_OK) CHECK(strstr(tl_errmsg(ctx), sets[i].part) != NULL);
        if (sets[i].st != TL_OK) continue;
        CHECK(tl_tensor_len(t) == 4 && tl_tensor_f32(t)[3] == (i ? 0 : 4));
        tl_tensor_free(t);
    }
    tl_h5_close(f);
}

/* partly.h5, made by libhdf5 1.10.8: a dataset of 8 GiB, of which 16 bytes were written. */
static void claims_beyond_the_file_are_refused(void)
{
    tl_tensor *t = NULL;
    tl_h5 *f = NULL;
    CHECK_STATUS(tl_h5_open(ctx, beside("partly.h5"), &f), TL_OK);
    if (f) CHECK_STATUS(tl_h5_read(f, "partly", &t), TL_ECORRUPT);
    CHECK(strstr(tl_errmsg(ctx), "'partly' claims 8589934592 bytes, more than a file of") != NULL);
    tl_h5_close(f);
}

static void groups_end(void)
{
    const char *name;
    char kind, way[512] = "deep";
    tl_h5 *f = NULL;
    int depth = 1;
    tl_status st = TL_OK;
    CHECK_STATUS(tl_h5_open(ctx, beside("strange.h5"), &f), TL_OK);
    if (!f) return;
    CHECK_STATUS(tl_h5_child(f, "loop", 0, &name, &kind), TL_OK);
    CHECK(!strcmp(name, "again") && kind == 'g');
    CHECK_STATUS(tl_h5_child(f, "/loop/again", 0, &name, &kind), TL_EINVAL);
    CHECK(strstr(tl_errmsg(ctx), "'/loop/again' is another link to '/loop/'") != NULL);
    CHECK_STATUS(tl_h5_child(f, "loop//./", 0, &name, &kind), TL_OK);
    for (; st == TL_OK && depth < 110; depth++) {
        st = tl_h5_child(f, way, 0, &name, &kind);
        if (st == TL_OK) (void)snprintf(way + strlen(way), 3, "/%s", name);
    }
    CHECK_STATUS(st, TL_ECORRUPT);
    CHECK(depth == 102 && strstr(tl_errmsg(ctx), "100 groups deep") != NULL);
    tl_h5_close(f);
}

/* HDF5 would take the second for the first, which is known by the same name. */
static void a_file_that_was_replaced_is_another(void)
{
    tl_h5 *first = NULL, *second = NULL;
    tl_attr a = {0}, b = {0};
    CHECK_STATUS(write_version(ctx, scratch("same.h5"), 1), TL_OK);
    CHECK_STATUS(tl_h5_open(ctx, scratch("same.h5"), &first), TL_OK);
    CHECK_STATUS(write_version(ctx, scratch("same.h5"), 2), TL_OK);
    CHECK_STATUS(tl_h5_open(ctx, scratch("same.h5"), &second), TL_OK);
    if (first) CHECK_STATUS(tl_h5_attr(first, "/", 0, &a), TL_OK);
    tl_h5_close(first);
    if (second) CHECK_STATUS(tl_h5_attr(second, "/", 0, &b), TL_OK);
    tl_h5_close(second);
    CHECK(a.i == 1 && b.i == 2);
}

/* ---- Refusals ---- */

static void wrong_paths_and_names(void)
{
    tl_h5 *f;
    tl_tensor *one = tensor(TL_F32, 0, NULL, 1), *pair[] = {one, one};
    tl_attr odd = {.name = "odd", .kind = 'x'};
    CHECK_STATUS(tl_h5_open(ctx, scratch("none.h5"), &f), TL_ENOTFOUND);
    CHECK_STATUS(tl_h5_open(ctx, scratch(""), &f), TL_ECORRUPT);
    CHECK(scratch_write(scratch("empty.h5"), "", 0));
    CHECK_STATUS(tl_h5_open(ctx, scratch("empty.h5"), &f), TL_ECORRUPT);
    CHECK(scratch_write(scratch("text.h5"), "no such format, but long enough for a trailer", 45));
    CHECK_STATUS(tl_h5_open(ctx, scratch("text.h5"), &f), TL_ECORRUPT);
    CHECK_STATUS(write_version(ctx, scratch("no/folder.h5"), 1), TL_ENOTFOUND);
    CHECK_STATUS(write_version(ctx, scratch(""), 1), TL_EINVAL);
    CHECK_STATUS(tl_h5_write(ctx, scratch("w.h5"), 2, (const char *[]){"x", "x"}, pair, 0, NULL, 0),
                 TL_EINVAL);
    const char *nested[] = {"x", "x/y"};
    CHECK_STATUS(tl_h5_write(ctx, scratch("w.h5"), 2, nested, pair, 0, NULL, 0), TL_EINVAL);
    CHECK_STATUS(tl_h5_write(ctx, scratch("w.h5"), 1, (const char *[]){""}, pair, 0, NULL, 0),
                 TL_EINVAL);
    CHECK_STATUS(tl_h5_write(ctx, scratch("w.h5"), 0, NULL, NULL, 1, &odd, 0), TL_EINVAL);
    CHECK(access(scratch("w.h5"), F_OK) != 0);
    tl_tensor_free(one);
}

/* ---- Damage ---- */

static void truncated_files_are_refused(void)
{
    size_t bytes;
    int refused = 0, tried = 0;
    CHECK_STATUS(write_version(ctx, scratch("cut.h5"), 3), TL_OK);
    unsigned char *data = scratch_read(scratch("cut.h5"), &bytes);
    CHECK(bytes > 120000);
    for (size_t cut = 0; cut < bytes - 24; cut += cut < 4096 || cut > bytes - 600 ? 41 : 4096) {
        tl_status st;
        CHECK(scratch_write(scratch("part.h5"), data, cut));
        int version = read_version(ctx, scratch("part.h5"), &st);
        tried++;
        refused += st == TL_ECORRUPT && version == -1;
    }
    CHECK(tried > 100 && refused == tried);
    free(data);
}

static void flipped_bits_are_found(void)
{
    size_t bytes;
    int found = 0, tried = 0, harmless = 0;
    CHECK_STATUS(write_version(ctx, scratch("flip.h5"), 3), TL_OK);
    unsigned char *data = scratch_read(scratch("flip.h5"), &bytes);
    for (size_t at = 0; at < bytes; at += at < 2500 || at > bytes - 2500 ? 7 : 3001, tried++) {
        tl_status st;
        data[at] ^= (unsigned char)(1u << (at % 8));
        CHECK(scratch_write(scratch("bad.h5"), data, bytes));
        int version = read_version(ctx, scratch("bad.h5"), &st);
        found += st == TL_ECORRUPT;
        harmless += version == 3 && at >= bytes - 24; /* the trailer's own magic */
        data[at] ^= (unsigned char)(1u << (at % 8));
    }
    CHECK(tried > 500 && found + harmless == tried && harmless <= 2);
    free(data);
}

static void large_datasets_carry_a_checksum_of_their_own(void)
{
    size_t bytes, at = 0;
    const float want = 1234567;
    tl_status st;
    CHECK_STATUS(write_version(ctx, scratch("own.h5"), (int)want), TL_OK);
    unsigned char *data = scratch_read(scratch("own.h5"), &bytes);
    for (size_t i = 0; i + 40 < bytes && !at; i++) /* ten in a row: within the large one */
        if (!memcmp(data + i, &want, 4) && !memcmp(data + i, data + i + 4, 36)) at = i;
    CHECK(at > 0);
    data[at + 2] ^= 4;
    CHECK(scratch_write(scratch("own.h5"), data, bytes - 24)); /* no trailer */
    CHECK(read_version(ctx, scratch("own.h5"), &st) == -1);
    CHECK_STATUS(st, TL_ECORRUPT);
    CHECK(strstr(tl_errmsg(ctx), "Fletcher32") != NULL);
    free(data);
}

/* If this fails, HDF5 has come to check small datasets, and core/store/trailer.c may be
** unnecessary. */
static void small_datasets_have_no_checksum_but_the_trailer(void)
{
    size_t bytes, at = 0;
    const int32_t want[2] = {1234567, 1234567}; /* only the small dataset has integers */
    tl_tensor *small = NULL;
    tl_h5 *f = NULL;
    tl_status st;
    CHECK_STATUS(write_version(ctx, scratch("tiny.h5"), want[0]), TL_OK);
    unsigned char *data = scratch_read(scratch("tiny.h5"), &bytes);
    for (size_t i = 0; i + 8 < bytes && !at; i++)
        if (!memcmp(data + i, want, 8)) at = i;
    CHECK(at > 0);
    data[at] ^= 4;
    CHECK(scratch_write(scratch("tiny.h5"), data, bytes));
    CHECK(read_version(ctx, scratch("tiny.h5"), &st) == -1);
    CHECK_STATUS(st, TL_ECORRUPT);
    CHECK(scratch_write(scratch("tiny.h5"), data, bytes - 24)); /* no trailer */
    CHECK_STATUS(tl_h5_open(ctx, scratch("tiny.h5"), &f), TL_OK);
    if (f) CHECK_STATUS(tl_h5_read(f, "a/small", &small), TL_OK);
    CHECK(small && tl_tensor_i32(small)[0] == (want[0] ^ 4));
    tl_tensor_free(small);
    tl_h5_close(f);
    free(data);
}

int main(void)
{
    if (!scratch_new() || tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int status = run_tests(
        (const test[]){{"round_trip", round_trip},
                       {"a_packed_file_is_smaller_and_says_the_same",
                        a_packed_file_is_smaller_and_says_the_same},
                       {"attributes", attributes},
                       {"children_come_in_name_order", children_come_in_name_order},
                       {"equal_content_gives_equal_bytes", equal_content_gives_equal_bytes},
                       {"sha256_is_the_standard_one", sha256_is_the_standard_one},
                       {"reads_files_of_others", reads_files_of_others},
                       {"reads_no_more_than_the_file_holds", reads_no_more_than_the_file_holds},
                       {"claims_beyond_the_file_are_refused", claims_beyond_the_file_are_refused},
                       {"groups_end", groups_end},
                       {"a_file_that_was_replaced_is_another",
                        a_file_that_was_replaced_is_another},
                       {"wrong_paths_and_names", wrong_paths_and_names},
                       {"truncated_files_are_refused", truncated_files_are_refused},
                       {"flipped_bits_are_found", flipped_bits_are_found},
                       {"large_datasets_carry_a_checksum_of_their_own",
                        large_datasets_carry_a_checksum_of_their_own},
                       {"small_datasets_have_no_checksum_but_the_trailer",
                        small_datasets_have_no_checksum_but_the_trailer},
                       {0}});
    tl_ctx_free(ctx);
    scratch_free();
    return status;
}

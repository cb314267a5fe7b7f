/* version.h - an HDF5 file whose every number is one version, so that any mixture of two shows. */
#ifndef TL_VERSION_H
#define TL_VERSION_H

#include "toeplab-lab.h"

/* A file whose every number is version: a small vector, a large matrix, an attribute. */
static inline tl_status write_version(tl_ctx *c, const char *path, int version)
{
    tl_tensor *small = NULL, *large = NULL;
    tl_attr attr = {.name = "version", .kind = 'i', .i = version};
    tl_status st = tl_tensor_new(c, TL_I32, 1, (int64_t[]){7}, &small);
    if (st == TL_OK) st = tl_tensor_new(c, TL_F32, 2, (int64_t[]){300, 100}, &large);
    if (st == TL_OK) st = tl_tensor_fill(small, version);
    if (st == TL_OK) st = tl_tensor_fill(large, version);
    if (st == TL_OK)
        st = tl_h5_write(c, path, 2, (const char *[]){"a/small", "a/b/large"},
                         (tl_tensor *[]){small, large}, 1, &attr, 0);
    tl_tensor_free(small);
    tl_tensor_free(large);
    return st;
}

static inline int all_are(tl_tensor *t, int64_t len, int version)
{
    int bad = tl_tensor_len(t) != len;
    for (int64_t i = 0; !bad && i < len; i++)
        bad = tl_tensor_f32(t) ? tl_tensor_f32(t)[i] != (float)version
                               : tl_tensor_i32(t)[i] != version;
    return !bad;
}

/* The version of path's content: -1 if it is not whole, with the status of the first failure. */
static inline int read_version(tl_ctx *c, const char *path, tl_status *out_st)
{
    tl_h5 *f = NULL;
    tl_attr attr = {.i = -1};
    tl_tensor *small = NULL, *large = NULL;
    tl_status st = tl_h5_open(c, path, &f);
    if (st == TL_OK) st = tl_h5_attr(f, "/", 0, &attr);
    if (st == TL_OK) st = tl_h5_read(f, "a/small", &small);
    if (st == TL_OK) st = tl_h5_read(f, "a/b/large", &large);
    int whole = st == TL_OK && all_are(small, 7, (int)attr.i) && all_are(large, 30000, (int)attr.i);
    tl_tensor_free(small);
    tl_tensor_free(large);
    tl_h5_close(f);
    *out_st = st;
    return whole ? (int)attr.i : -1;
}

static inline int version_of(tl_ctx *c, const char *path)
{
    tl_status st;
    return read_version(c, path, &st);
}

#endif

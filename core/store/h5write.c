/* h5write.c - writes tensors and attributes as an HDF5 file.
**
** HDF5 builds the file in memory and tl_file_replace writes it. HDF5 itself never writes to the
** disk: after a failed write it keeps the half-made file in its tables and crashes on closing it
** (1.10.8), and a file whose writer was killed cannot be opened. The cost is memory of the size
** of the file. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "engine/tensor.h"
#include "store/h5.h"
#include "store/trailer.h"
#include "store/versions.h"

#define CHECKED_BYTES (64 << 10) /* datasets of this size carry Fletcher32, which needs chunks */
#define PACKED_BYTES  (4 << 10)  /* smaller ones are not compressed: a chunk needs an index */
#define CHUNK_BYTES   (512 << 10)
#define LEVEL         4 /* of deflate: higher ones take longer and hardly make float32 smaller */

const char *tl_hdf5_version(void)
{
    return H5_VERS_INFO;
}

/* ---- Errors ---------------------------------------------------------------------------------- */

typedef struct cause {
    char text[256];
    tl_status st;
} cause;

/* HDF5 calls this from the innermost error outwards; the first one has the reason. */
static herr_t note_cause(unsigned i, const H5E_error2_t *e, void *user)
{
    cause *c = user;
    if (e->min_num == H5E_NOSPACE || e->min_num == H5E_CANTALLOC) c->st = TL_ENOMEM;
    if (e->desc && strstr(e->desc, "errno = ")) c->st = TL_EIO;
    if (i > 0 || !e->desc) return 0;
    size_t n = strlen(e->desc);
    if (n >= sizeof c->text) n = sizeof c->text - 1;
    memcpy(c->text, e->desc, n);
    c->text[n] = '\0';
    for (char *p = c->text; *p; p++)
        if (*p == '\n') *p = ' ';
    return 0;
}

tl_status tl_h5_fail(tl_ctx *ctx, tl_status st, const char *path, const char *what,
                     const char *name)
{
    cause c = {.text = "no reason given", .st = st};
    (void)H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, note_cause, &c);
    return tl_fail(ctx, c.st, "%s: cannot %s '%s': %s", path, what, name, c.text);
}

static pthread_mutex_t in_use = PTHREAD_MUTEX_INITIALIZER;

void tl_h5_lock(void) { (void)pthread_mutex_lock(&in_use); }

void tl_h5_unlock(void) { (void)pthread_mutex_unlock(&in_use); }

void tl_h5_quiet(void)
{
    (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

/* ---- Writing --------------------------------------------------------------------------------- */

typedef struct writer {
    tl_ctx *ctx;
    const char *path;
    hid_t file, group_list; /* group_list: creation properties of groups */
    int packed;
} writer;

static tl_status write_attr(writer *w, const tl_attr *a)
{
    hid_t attr = -1, space = H5Screate(H5S_SCALAR), type = -1, memory = -1;
    const void *data = NULL;
    if (a->kind == 'i') {
        data = &a->i;
        type = H5Tcopy(H5T_STD_I64LE);
        memory = H5T_NATIVE_INT64;
    } else if (a->kind == 'f') {
        data = &a->f;
        type = H5Tcopy(H5T_IEEE_F64LE);
        memory = H5T_NATIVE_DOUBLE;
    } else if (a->kind == 's' && a->s) {
        data = a->s;
        type = memory = H5Tcopy(H5T_C_S1);
        if (H5Tset_size(type, strlen(a->s) + 1) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)
            data = NULL;
    }
    if (data) attr = H5Acreate2(w->file, a->name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    tl_status st = TL_OK;
    if (attr < 0 || H5Awrite(attr, memory, data) < 0)
        st = tl_h5_fail(w->ctx, TL_EINVAL, w->path, "write attribute", a->name);
    /* closing cannot fail unseen: the final flush reports it */
    if (attr >= 0) (void)H5Aclose(attr);
    if (type >= 0) (void)H5Tclose(type);
    if (space >= 0) (void)H5Sclose(space);
    return st;
}

/* Creates the groups of the path name that do not exist yet. */
static tl_status make_groups(writer *w, const char *name)
{
    tl_status st = TL_OK;
    char *way = strdup(name);
    if (!way) return tl_fail(w->ctx, TL_ENOMEM, "out of memory");
    for (char *p = strchr(way, '/'); p && st == TL_OK; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (H5Lexists(w->file, way, H5P_DEFAULT) <= 0) {
            hid_t g = H5Gcreate2(w->file, way, H5P_DEFAULT, w->group_list, H5P_DEFAULT);
            if (g < 0) st = tl_h5_fail(w->ctx, TL_EINVAL, w->path, "create group", way);
            if (g >= 0) (void)H5Gclose(g);
        }
        *p = '/';
    }
    free(way);
    return st;
}

/* Creation properties without time stamps, so that the same content gives the same bytes. */
static hid_t untimed_list(hid_t class)
{
    hid_t p = H5Pcreate(class);
    if (p >= 0) (void)H5Pset_obj_track_times(p, 0);
    return p;
}

/* Sets chunks of at most CHUNK_BYTES: trailing axes are whole, one axis is cut evenly, and the axes
** before it into single positions. Returns nonzero on failure. */
static int set_chunks(hid_t create_list, const tl_tensor *t)
{
    hsize_t chunk[TL_MAXDIMS];
    int64_t bytes = t->len * 4;
    for (int i = 0; i < t->ndim; i++) chunk[i] = (hsize_t)t->dims[i];
    for (int i = 0; i < t->ndim && bytes > CHUNK_BYTES; i++) {
        int64_t slab = bytes / t->dims[i];
        int64_t rows = slab < CHUNK_BYTES ? CHUNK_BYTES / slab : 1;
        int64_t parts = (t->dims[i] + rows - 1) / rows;
        chunk[i] = (hsize_t)((t->dims[i] + parts - 1) / parts);
        bytes = slab * (int64_t)chunk[i];
    }
    return H5Pset_chunk(create_list, t->ndim, chunk) < 0;
}

/* Sets the filters of a dataset, in the order of their work: compression, if this HDF5 has it, and
** Fletcher32. Returns nonzero on failure. */
static int set_filters(hid_t create_list, const tl_tensor *t, int packed)
{
    int64_t bytes = t->len * 4;
    int packs = packed && bytes >= PACKED_BYTES && H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0;
    int checks = bytes >= CHECKED_BYTES, bad = 0;
    if (packs || checks) bad = set_chunks(create_list, t);
    if (!bad && packs)
        bad = H5Pset_shuffle(create_list) < 0 || H5Pset_deflate(create_list, LEVEL) < 0;
    if (!bad && checks) bad = H5Pset_fletcher32(create_list) < 0;
    return bad;
}

/* The elements of t, or a copy of them in host memory if t is on a GPU; the caller releases
** *out_copy. */
static tl_status host_elements(const tl_tensor *t, const void **out, void **out_copy)
{
    *out = DATA(t);
    *out_copy = NULL;
    if (t->storage->device == TL_CPU) return TL_OK;
    *out = *out_copy = tl_alloc(t->ctx, (size_t)t->len * 4);
    return *out_copy ? tl_tensor_read(t, 0, t->len, *out_copy) : TL_ENOMEM;
}

static tl_status write_tensor(writer *w, const char *name, const tl_tensor *t)
{
    const void *data;
    void *copy;
    hsize_t dims[TL_MAXDIMS];
    hid_t type = t->type == TL_F32 ? H5T_IEEE_F32LE : H5T_STD_I32LE;
    hid_t memory = t->type == TL_F32 ? H5T_NATIVE_FLOAT : H5T_NATIVE_INT32;
    for (int i = 0; i < t->ndim; i++) dims[i] = (hsize_t)t->dims[i];
    tl_status st = make_groups(w, name);
    if (st != TL_OK) return st;
    st = host_elements(t, &data, &copy);
    if (st != TL_OK) goto fail;
    hid_t set = -1, create_list = untimed_list(H5P_DATASET_CREATE);
    hid_t space = t->ndim ? H5Screate_simple(t->ndim, dims, NULL) : H5Screate(H5S_SCALAR);
    int bad = space < 0 || create_list < 0;
    if (!bad) bad = H5Pset_fill_time(create_list, H5D_FILL_TIME_NEVER) < 0;
    if (!bad) bad = set_filters(create_list, t, w->packed);
    if (!bad) set = H5Dcreate2(w->file, name, type, space, H5P_DEFAULT, create_list, H5P_DEFAULT);
    bad = bad || set < 0;
    if (!bad && t->len) bad = H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0;
    if (bad) st = tl_h5_fail(w->ctx, TL_EINVAL, w->path, "write dataset", name);
    if (set >= 0 && H5Dclose(set) < 0 && st == TL_OK)
        st = tl_h5_fail(w->ctx, TL_EIO, w->path, "close dataset", name);
    if (space >= 0) (void)H5Sclose(space);
    if (create_list >= 0) (void)H5Pclose(create_list);
fail:
    tl_release(w->ctx, copy);
    return st;
}

/* Creates an empty file in memory that grows by step bytes at a time. Its name is its own, by the
** address of w, because another thread may have an image at the same time. */
static hid_t new_image(const writer *w, size_t step)
{
    char name[40];
    hid_t file = -1, access = H5Pcreate(H5P_FILE_ACCESS);
    hid_t create_list = untimed_list(H5P_FILE_CREATE);
    (void)snprintf(name, sizeof name, "/dev/null/write.%p", (const void *)w);
    if (access >= 0 && create_list >= 0 && H5Pset_fapl_core(access, step, 0) >= 0 &&
        H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V110) >= 0 &&
        H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0)
        /* HDF5 first reads an existing file of that name; under /dev/null there is none */
        file = H5Fcreate(name, H5F_ACC_EXCL, create_list, access);
    if (access >= 0) (void)H5Pclose(access);
    if (create_list >= 0) (void)H5Pclose(create_list);
    return file;
}

/* Writes the finished image to w->path. */
static tl_status write_image(writer *w)
{
    unsigned char trailer[TL_TRAILER];
    void *handle = NULL; /* points to the address of the image */
    if (H5Fflush(w->file, H5F_SCOPE_LOCAL) < 0)
        return tl_h5_fail(w->ctx, TL_EIO, w->path, "finish", "/");
    ssize_t bytes = H5Fget_file_image(w->file, NULL, 0);
    if (bytes <= 0 || H5Fget_vfd_handle(w->file, H5P_DEFAULT, &handle) < 0 || !handle)
        return tl_h5_fail(w->ctx, TL_EIO, w->path, "finish", "/");
    const unsigned char *data = *(unsigned char **)handle;
    tl_trailer(trailer, data, (size_t)bytes);
    tl_h5_unlock(); /* the image stays as it is, and others need not wait for the disk */
    tl_status st = tl_file_replace(
        w->ctx, w->path, (tl_part[]){{data, (size_t)bytes}, {trailer, sizeof trailer}}, 2);
    tl_h5_lock();
    return st;
}

tl_status tl_h5_write(tl_ctx *ctx, const char *path, int count, const char *const *names,
                      tl_tensor *const *tensors, int attr_count, const tl_attr *attrs, int packed)
{
    size_t bytes = 1 << 16;
    tl_status st = TL_OK;
    writer w = {.ctx = ctx, .path = path, .file = -1, .group_list = -1, .packed = packed};
    for (int i = 0; i < count; i++) bytes += (size_t)tensors[i]->len * 4 + 4096;
    st = tl_reserve(ctx, 2 * bytes + TL_H5_BYTES, "writing an HDF5 file");
    if (st != TL_OK) return st;
    tl_h5_lock();
    tl_h5_quiet();
    w.file = new_image(&w, bytes);
    w.group_list = untimed_list(H5P_GROUP_CREATE);
    if (w.file < 0 || w.group_list < 0) st = tl_h5_fail(ctx, TL_EIO, path, "create", "/");
    for (int i = 0; i < count && st == TL_OK; i++) st = write_tensor(&w, names[i], tensors[i]);
    for (int i = 0; i < attr_count && st == TL_OK; i++) st = write_attr(&w, &attrs[i]);
    if (st == TL_OK) st = write_image(&w);
    if (w.group_list >= 0) (void)H5Pclose(w.group_list);
    /* only memory: tl_file_replace has written the content */
    if (w.file >= 0) (void)H5Fclose(w.file);
    tl_h5_unlock();
    return st;
}

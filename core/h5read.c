/* h5read.c - HDF5 files of ours and of others, read.
**
** A file is read into memory whole, by us, and HDF5 opens that image: where a disk fails in the
** middle of one of its reads, libhdf5 1.10.8 corrupts the heap. What a file says that would make
** it allocate too much, run in circles or go to other files is checked here before it is asked;
** what cannot be checked from outside happens in a process of its own (h5apart.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "h5.h"

#define DEEPEST 100  /* groups inside one another */
#define DEFLATE 1032 /* bytes that one byte of deflate can stand for */

/* ---- The image ------------------------------------------------------------------------------- */

/* HDF5 would copy the image twice. These hand out the one that there is, and tl_h5_close frees
** it. */
static void *image_malloc(size_t size, H5FD_file_image_op_t op, void *user)
{
    (void)size, (void)op;
    return user;
}

static void *image_memcpy(void *to, const void *from, size_t size, H5FD_file_image_op_t op,
                          void *user)
{
    (void)from, (void)size, (void)op, (void)user;
    return to;
}

static void *image_realloc(void *image, size_t size, H5FD_file_image_op_t op, void *user)
{
    (void)image, (void)size, (void)op, (void)user;
    return NULL; /* it is only read */
}

static herr_t image_free(void *image, H5FD_file_image_op_t op, void *user)
{
    (void)image, (void)op, (void)user;
    return 0;
}

static void *same_user(void *user) { return user; }

static herr_t keep_user(void *user)
{
    (void)user;
    return 0;
}

/* HDF5 tells files of its core driver apart by their names, so each image has its own. */
tl_status tl_h5_open_image(tl_h5 *f)
{
    H5FD_file_image_callbacks_t own = {image_malloc, image_memcpy, image_realloc, image_free,
                                       same_user, keep_user, f->image};
    char name[32];
    tl_status st = tl_reserve(f->ctx, TL_H5_BYTES, "reading an HDF5 file");
    if (st != TL_OK) return st;
    tl_h5_quiet();
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    (void)snprintf(name, sizeof name, "/dev/null/%p", (void *)f->image);
    if (access >= 0 && H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0 &&
        H5Pset_fapl_core(access, 1 << 16, 0) >= 0 &&
        H5Pset_file_image_callbacks(access, &own) >= 0 &&
        H5Pset_file_image(access, f->image, f->bytes) >= 0)
        f->file = H5Fopen(name, H5F_ACC_RDONLY, access);
    if (f->file < 0) st = tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "open", "/");
    if (access >= 0) (void)H5Pclose(access);
    return st;
}

static tl_status load(tl_h5 *f, int *out_ours)
{
    int fd;
    tl_status st = tl_file_open(f->ctx, f->path, &fd, &f->bytes);
    /* Not tl_alloc: the budget of a trial counts what that gave, and a resumed one would use
    ** more. */
    if (st == TL_OK) f->image = malloc(f->bytes + 1);
    if (st == TL_OK)
        st = f->image ? tl_file_fill(f->ctx, f->path, fd, f->image, &f->bytes)
                      : tl_fail(f->ctx, TL_ENOMEM, "%s: out of memory: %zu bytes to read it",
                                f->path, f->bytes);
    if (fd >= 0) (void)close(fd); /* nothing was written */
    if (st == TL_EINVAL) st = TL_ECORRUPT; /* a folder or a device is no such file */
    if (st == TL_OK) st = tl_trailer_verify(f->ctx, f->path, f->image, f->bytes, out_ours);
    return st;
}

tl_status tl_h5_open(tl_ctx *ctx, const char *path, tl_h5 **out_file)
{
    tl_h5 *f = calloc(1, sizeof *f);
    char *copy = strdup(path);
    if (!f || !copy) {
        free(f);
        free(copy);
        return tl_fail(ctx, TL_ENOMEM, "out of memory");
    }
    int ours = 0;
    *f = (tl_h5){.ctx = ctx, .file = -1, .path = copy, .reader = -1};
    tl_status st = load(f, &ours);
    if (st == TL_OK && f->bytes == 0) st = tl_fail(ctx, TL_ECORRUPT, "%s: is empty", path);
    if (st == TL_OK) st = ours ? tl_h5_open_image(f) : tl_h5_apart_open(f);
    if (st == TL_OK)
        *out_file = f;
    else
        tl_h5_close(f);
    return st;
}

void tl_h5_close(tl_h5 *f)
{
    if (!f) return;
    tl_h5_apart_close(f);
    if (f->file >= 0) (void)H5Fclose(f->file); /* only read */
    for (size_t i = 0; i < f->group_count; i++) free(f->groups[i].path);
    free(f->groups);
    tl_h5_forget(&f->children);
    tl_h5_forget(&f->attributes);
    free(f->image);
    free(f->path);
    free(f->name);
    free(f->text);
    free(f);
}

/* ---- Objects --------------------------------------------------------------------------------- */

/* "/a/b" for "a//b/" and the like, "" for the root; NULL: out of memory. *out_depth: its parts. */
static char *plain_path(const char *name, int *out_depth)
{
    char *path = malloc(strlen(name) + 2), *to = path;
    *out_depth = 0;
    while (path && *name) {
        size_t n = strcspn(name, "/");
        if (n && !(n == 1 && *name == '.')) {
            *to++ = '/';
            memcpy(to, name, n);
            to += n;
            ++*out_depth;
        }
        name += n + (name[n] == '/');
    }
    if (path) *to = '\0';
    return path;
}

/* Replaces *at, a group or other object, by its child part of path; closes it in any case. */
static tl_status descend(tl_h5 *f, const char *path, const char *part, hid_t *at)
{
    H5L_info_t info;
    hid_t parent = *at;
    tl_status st = TL_OK;
    *at = -1;
    if (H5Iget_type(parent) != H5I_GROUP || H5Lexists(parent, part, H5P_DEFAULT) <= 0)
        st = tl_fail(f->ctx, TL_ENOTFOUND, "%s: has no '%s'", f->path, path + 1);
    else if (H5Lget_info(parent, part, &info, H5P_DEFAULT) < 0)
        st = tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "read the link", path + 1);
    else if (info.type != H5L_TYPE_HARD) /* HDF5 would go to another file or place */
        st = tl_fail(f->ctx, TL_EINVAL, "%s: '%s' is %s link, which is not followed", f->path,
                     path + 1, info.type == H5L_TYPE_SOFT ? "a soft" : "an external");
    else if ((*at = H5Oopen(parent, part, H5P_DEFAULT)) < 0)
        st = tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "open", path + 1);
    (void)H5Oclose(parent);
    return st;
}

static tl_status open_path(tl_h5 *f, char *path, hid_t *out_object)
{
    hid_t at = H5Oopen(f->file, "/", H5P_DEFAULT);
    tl_status st = at < 0 ? tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "open", "/") : TL_OK;
    for (char *p = path; *p && st == TL_OK;) {
        char *part = p + 1;
        p = part + strcspn(part, "/");
        char end = *p;
        *p = '\0';
        st = descend(f, path, part, &at);
        *p = end;
    }
    *out_object = at;
    return st;
}

tl_status tl_h5_get(tl_h5 *f, const char *name, H5I_type_t type, hid_t *out_object,
                    char **out_path)
{
    int depth;
    hid_t object = -1;
    char *path = plain_path(name, &depth);
    tl_h5_quiet();
    if (!path) return tl_fail(f->ctx, TL_ENOMEM, "out of memory");
    tl_status st = depth <= DEEPEST ? open_path(f, path, &object)
                                    : tl_fail(f->ctx, TL_ECORRUPT, "%s: '%.60s...' is more than %d "
                                              "groups deep", f->path, path, DEEPEST);
    if (st == TL_OK && type != H5I_BADID && H5Iget_type(object) != type)
        st = tl_fail(f->ctx, TL_EINVAL, "%s: '%s' is not a %s", f->path, name,
                     type == H5I_GROUP ? "group" : "dataset");
    if (st == TL_OK) {
        *out_object = object;
        *out_path = path;
    } else {
        if (object >= 0) (void)H5Oclose(object);
        free(path);
    }
    return st;
}

/* ---- Datasets -------------------------------------------------------------------------------- */

/* Whether a filter of the list may make a dataset shorter. */
static int packs(hid_t create_list)
{
    for (int i = 0; i < H5Pget_nfilters(create_list); i++) {
        unsigned flags, config;
        size_t count = 0;
        H5Z_filter_t id = H5Pget_filter2(create_list, (unsigned)i, &flags, &count, NULL, 0, NULL,
                                         &config);
        if (id != H5Z_FILTER_FLETCHER32 && id != H5Z_FILTER_SHUFFLE) return 1;
    }
    return 0;
}

/* The bytes of count numbers of size as far as dims say. */
static double product(int ndim, const hsize_t *dims, size_t size)
{
    double bytes = (double)size;
    for (int i = 0; i < ndim; i++) bytes *= (double)dims[i];
    return bytes;
}

/* Refuses elements that are in other files, and more of them, or of a chunk, than this file can
** hold: HDF5 would allocate them, or fill them in, before it looks. */
static tl_status check_storage(tl_h5 *f, const char *name, hid_t set, double bytes)
{
    hsize_t chunk[H5S_MAX_RANK] = {0}, stored = 0;
    hid_t type = H5Dget_type(set), list = H5Dget_create_plist(set);
    H5D_layout_t layout = list < 0 ? H5D_LAYOUT_ERROR : H5Pget_layout(list);
    double most = (double)f->bytes, piece = 0;
    tl_status st = TL_OK;
    if (type < 0 || layout == H5D_LAYOUT_ERROR) {
        st = tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "read the layout of", name);
    } else if (layout == H5D_VIRTUAL || H5Pget_external_count(list) > 0) {
        st = tl_fail(f->ctx, TL_EINVAL, "%s: the elements of '%s' are in other files, which are "
                     "not read", f->path, name);
    } else if (layout == H5D_CHUNKED) {
        int rank = H5Pget_chunk(list, H5S_MAX_RANK, chunk);
        piece = product(rank, chunk, H5Tget_size(type));
        if (packs(list)) stored = H5Dget_storage_size(set);
        most += DEFLATE * (stored < f->bytes ? (double)stored : most);
    }
    if (st == TL_OK && (bytes > most || piece > most))
        st = tl_fail(f->ctx, TL_ECORRUPT, "%s: '%s' claims %.0f bytes%s, more than a file of %zu "
                     "can hold", f->path, name, bytes > most ? bytes : piece,
                     bytes > most ? "" : " for a chunk", f->bytes);
    if (type >= 0) (void)H5Tclose(type);
    if (list >= 0) (void)H5Pclose(list);
    return st;
}

/* HDF5 would clamp an integer that does not fit. */
static H5T_conv_ret_t too_big(H5T_conv_except_t what, hid_t from, hid_t to, void *src, void *dst,
                              void *user)
{
    (void)from, (void)to, (void)src, (void)dst;
    if (what != H5T_CONV_EXCEPT_RANGE_HI && what != H5T_CONV_EXCEPT_RANGE_LOW)
        return H5T_CONV_UNHANDLED;
    *(int *)user = 1;
    return H5T_CONV_ABORT;
}

static tl_status read_elements(tl_h5 *f, const char *name, hid_t set, tl_tensor *t)
{
    int beyond = 0;
    tl_status st = TL_OK;
    hid_t how = H5Pcreate(H5P_DATASET_XFER);
    hid_t memory = t->type == TL_F32 ? H5T_NATIVE_FLOAT : H5T_NATIVE_INT32;
    if (t->type == TL_I32 && H5Pset_type_conv_cb(how, too_big, &beyond) < 0)
        st = tl_h5_fail(f->ctx, TL_ENOMEM, f->path, "read", name);
    if (st == TL_OK && t->len && H5Dread(set, memory, H5S_ALL, H5S_ALL, how, DATA(t)) < 0)
        st = tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "read", name);
    if (beyond)
        st = tl_fail(f->ctx, TL_ETYPE, "%s: '%s' has an integer of more than 32 bits", f->path,
                     name);
    if (how >= 0) (void)H5Pclose(how);
    return st;
}

tl_status tl_h5_read(tl_h5 *f, const char *name, tl_tensor **out_t)
{
    hsize_t hdims[H5S_MAX_RANK] = {0};
    int64_t dims[TL_MAXDIMS];
    hid_t set;
    char *path;
    tl_tensor *t = NULL;
    if (f->reader >= 0) return tl_h5_apart_read(f, name, out_t);
    tl_status st = tl_h5_get(f, name, H5I_DATASET, &set, &path);
    if (st != TL_OK) return st;
    hid_t type = H5Dget_type(set), space = H5Dget_space(set);
    int ndim = space < 0 ? -1 : H5Sget_simple_extent_dims(space, hdims, NULL);
    H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    int real = class == H5T_FLOAT;
    if (ndim < 0) {
        st = tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "read the shape of", name);
    } else if (!real && class != H5T_INTEGER && class != H5T_ENUM) {
        st = tl_fail(f->ctx, TL_ETYPE, "%s: '%s' does not hold numbers", f->path, name);
    } else if (H5Sget_simple_extent_type(space) == H5S_NULL) {
        st = tl_fail(f->ctx, TL_ESHAPE, "%s: '%s' has a type but no elements", f->path, name);
    } else if (ndim > TL_MAXDIMS) {
        st = tl_fail(f->ctx, TL_ESHAPE, "%s: '%s' has %d dimensions, a tensor at most %d", f->path,
                     name, ndim, TL_MAXDIMS);
    }
    if (st == TL_OK) st = check_storage(f, name, set, product(ndim, hdims, H5Tget_size(type)));
    for (int i = 0; st == TL_OK && i < ndim; i++) dims[i] = (int64_t)hdims[i];
    if (st == TL_OK) st = tl_tensor_new_host(f->ctx, real ? TL_F32 : TL_I32, ndim, dims, &t);
    if (st == TL_OK) st = read_elements(f, name, set, t);
    if (type >= 0) (void)H5Tclose(type);
    if (space >= 0) (void)H5Sclose(space);
    (void)H5Dclose(set);
    free(path);
    if (st == TL_OK) *out_t = t;
    if (st != TL_OK) tl_tensor_free(t);
    return st;
}

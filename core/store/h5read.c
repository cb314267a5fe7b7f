/* h5read.c - reads datasets of HDF5 files into tensors.
**
** This file first checks what would make libhdf5 allocate too much, loop, or open other files.
** What cannot be checked from outside is left to the child process (h5apart.c). */
#include <math.h>
#include <stdlib.h>

#include "engine/tensor.h"
#include "store/h5.h"

#define DEFLATE 1032 /* most bytes that one byte of a deflate stream expands to */

/* ---- Datasets -------------------------------------------------------------------------------- */

/* Whether the dataset has a filter that may make it shorter in the file. */
static int compresses(hid_t create_list)
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

/* The bytes of an array of these dimensions; a double, because a damaged file may claim any
** size. */
static double array_bytes(int ndim, const hsize_t *dims, size_t size)
{
    double bytes = (double)size;
    for (int i = 0; i < ndim; i++) bytes *= (double)dims[i];
    return bytes;
}

/* Refuses a dataset whose elements are in other files, or whose size, or the size of a chunk,
** exceeds what this file can hold: HDF5 would allocate that much before it looks. */
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
        piece = array_bytes(rank, chunk, H5Tget_size(type));
        if (compresses(list)) stored = H5Dget_storage_size(set);
        most += DEFLATE * (stored < f->bytes ? (double)stored : most);
    }
    int refused = st == TL_OK && (bytes > most || piece > most);
    H5D_space_status_t space = H5D_SPACE_STATUS_ERROR;
    if (refused && H5Dget_space_status(set, &space) >= 0 &&
        space == H5D_SPACE_STATUS_NOT_ALLOCATED)
        st = tl_fail(f->ctx, TL_EINVAL, "%s: '%s' has %.0f bytes%s, none of which was written; a "
                     "file of %zu is not filled up to that size", f->path, name,
                     bytes > most ? bytes : piece, bytes > most ? "" : " in a chunk", f->bytes);
    else if (refused)
        st = tl_fail(f->ctx, TL_ECORRUPT, "%s: '%s' claims %.0f bytes%s, more than a file of %zu "
                     "can hold", f->path, name, bytes > most ? bytes : piece,
                     bytes > most ? "" : " for a chunk", f->bytes);
    if (type >= 0) (void)H5Tclose(type);
    if (list >= 0) (void)H5Pclose(list);
    return st;
}

/* Called by HDF5 for a number that does not fit 32 bits, which it would otherwise clamp or make
** infinite, and for infinities, which stay what they are. */
static H5T_conv_ret_t too_big(H5T_conv_except_t what, hid_t from, hid_t to, void *src, void *dst,
                              void *user)
{
    (void)to, (void)dst;
    if (what != H5T_CONV_EXCEPT_RANGE_HI && what != H5T_CONV_EXCEPT_RANGE_LOW)
        return H5T_CONV_UNHANDLED;
    if (H5Tequal(from, H5T_NATIVE_DOUBLE) > 0 && isinf(*(const double *)src))
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
    if (H5Pset_type_conv_cb(how, too_big, &beyond) < 0)
        st = tl_h5_fail(f->ctx, TL_ENOMEM, f->path, "read", name);
    if (st == TL_OK && t->len && H5Dread(set, memory, H5S_ALL, H5S_ALL, how, DATA(t)) < 0)
        st = tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "read", name);
    if (beyond)
        st = tl_fail(f->ctx, TL_ETYPE, "%s: '%s' has %s", f->path, name,
                     t->type == TL_F32 ? "a number too large for float32"
                                       : "an integer of more than 32 bits");
    if (how >= 0) (void)H5Pclose(how);
    return st;
}

tl_status tl_h5_here_read(tl_h5 *f, const char *name, tl_tensor **out_t)
{
    hsize_t hdims[H5S_MAX_RANK] = {0};
    int64_t dims[TL_MAXDIMS];
    hid_t set;
    char *path;
    tl_tensor *t = NULL;
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
        st = tl_fail(f->ctx, TL_ESHAPE, "%s: '%s' is a null dataset, without elements", f->path,
                     name);
    } else if (ndim > TL_MAXDIMS) {
        st = tl_fail(f->ctx, TL_ESHAPE, "%s: '%s' has %d dimensions, a tensor at most %d", f->path,
                     name, ndim, TL_MAXDIMS);
    }
    if (st == TL_OK) st = check_storage(f, name, set, array_bytes(ndim, hdims, H5Tget_size(type)));
    for (int i = 0; st == TL_OK && i < ndim; i++) dims[i] = (int64_t)hdims[i];
    if (st == TL_OK) st = tl_tensor_new_host(f->ctx, real ? TL_F32 : TL_I32, ndim, dims, &t);
    if (st == TL_OK) st = read_elements(f, name, set, t);
    if (type >= 0) (void)H5Tclose(type);
    if (space >= 0) (void)H5Sclose(space);
    (void)H5Dclose(set);
    free(path);
    return tl_finish(st, t, out_t);
}

/* h5read.c - HDF5 files of ours and of others, read. Files are immutable once named, so nothing is
** locked. */
#include <stdlib.h>
#include <string.h>

#include "h5.h"

struct tl_h5 {
    tl_ctx *ctx;
    hid_t file;
    char *path, *name, *text; /* name, text: what the last call returned */
};

tl_status tl_h5_open(tl_ctx *ctx, const char *path, tl_h5 **out_file)
{
    tl_status st = tl_trailer_verify(ctx, path);
    if (st != TL_OK) return st;
    tl_h5_quiet();
    tl_h5 *f = calloc(1, sizeof *f);
    char *copy = strdup(path);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    hid_t file = -1;
    if (!f || !copy) {
        st = tl_fail(ctx, TL_ENOMEM, "out of memory");
    } else if (access >= 0 && H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0 &&
               H5Pset_file_locking(access, 0, 1) >= 0) {
        file = H5Fopen(path, H5F_ACC_RDONLY, access);
    }
    if (st == TL_OK && file < 0) st = tl_h5_fail(ctx, TL_ECORRUPT, path, "open", "/");
    if (access >= 0) (void)H5Pclose(access);
    if (st != TL_OK) {
        free(f);
        free(copy);
        return st;
    }
    *f = (tl_h5){.ctx = ctx, .file = file, .path = copy};
    *out_file = f;
    return TL_OK;
}

void tl_h5_close(tl_h5 *f)
{
    if (!f) return;
    (void)H5Fclose(f->file); /* only read */
    free(f->path);
    free(f->name);
    free(f->text);
    free(f);
}

/* Whether every part of the way to name exists. */
static tl_status exists(tl_h5 *f, const char *name)
{
    if (!name[strspn(name, "/")]) return TL_OK; /* the root */
    char *way = strdup(name);
    if (!way) return tl_fail(f->ctx, TL_ENOMEM, "out of memory");
    int found = 1;
    for (char *p = strchr(way + 1, '/'); p && found; p = strchr(p + 1, '/')) {
        *p = '\0';
        found = H5Lexists(f->file, way, H5P_DEFAULT) > 0;
        *p = '/';
    }
    found = found && H5Lexists(f->file, way, H5P_DEFAULT) > 0;
    found = found && H5Oexists_by_name(f->file, way, H5P_DEFAULT) > 0; /* a link may dangle */
    free(way);
    if (found) return TL_OK;
    return tl_fail(f->ctx, TL_ENOTFOUND, "%s: has no '%s'", f->path, name);
}

/* Opens name, which has to be of type unless that is H5I_BADID. */
static tl_status get(tl_h5 *f, const char *name, H5I_type_t type, hid_t *out_object)
{
    tl_h5_quiet();
    tl_status st = exists(f, name);
    if (st != TL_OK) return st;
    hid_t object = H5Oopen(f->file, *name ? name : "/", H5P_DEFAULT);
    if (object < 0) return tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "open", name);
    if (type != H5I_BADID && H5Iget_type(object) != type) {
        (void)H5Oclose(object);
        return tl_fail(f->ctx, TL_EINVAL, "%s: '%s' is not a %s", f->path, name,
                       type == H5I_GROUP ? "group" : "dataset");
    }
    *out_object = object;
    return TL_OK;
}

/* Room for bytes and a NUL in *buf, all zero. */
static tl_status room(tl_h5 *f, char **buf, size_t bytes)
{
    char *p = calloc(1, bytes + 1);
    if (!p) return tl_fail(f->ctx, TL_ENOMEM, "out of memory: %zu bytes of text", bytes);
    free(*buf);
    *buf = p;
    return TL_OK;
}

static char kind_of(hid_t group, const char *name)
{
    hid_t child = H5Oopen(group, name, H5P_DEFAULT);
    H5I_type_t type = child < 0 ? H5I_BADID : H5Iget_type(child);
    if (child >= 0) (void)H5Oclose(child);
    if (type == H5I_GROUP) return 'g';
    return type == H5I_DATASET ? 'd' : '?'; /* ?: a dangling link, or a named type */
}

tl_status tl_h5_child(tl_h5 *f, const char *group, int64_t i, const char **out_name, char *out_kind)
{
    const H5_index_t by = H5_INDEX_NAME;
    const H5_iter_order_t up = H5_ITER_INC;
    H5G_info_t info;
    hid_t g;
    tl_status st = get(f, group, H5I_GROUP, &g);
    if (st == TL_ENOTFOUND) return TL_EINVAL; /* not found: the end of the list */
    if (st != TL_OK) return st;
    if (H5Gget_info(g, &info) < 0) {
        st = tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "list", group);
    } else if (i < 0 || (hsize_t)i >= info.nlinks) {
        st = tl_fail(f->ctx, TL_ENOTFOUND, "%s: '%s' has %lld children", f->path, group,
                     (long long)info.nlinks);
    } else {
        ssize_t n = H5Lget_name_by_idx(g, ".", by, up, (hsize_t)i, NULL, 0, H5P_DEFAULT);
        if (n > 0) st = room(f, &f->name, (size_t)n);
        if (st == TL_OK && n > 0)
            n = H5Lget_name_by_idx(g, ".", by, up, (hsize_t)i, f->name, (size_t)n + 1, H5P_DEFAULT);
        if (st == TL_OK && n <= 0) /* group may have been f->name and be gone */
            st = tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "read", "the name of a child");
    }
    if (st == TL_OK) {
        *out_name = f->name;
        *out_kind = kind_of(g, f->name);
    }
    (void)H5Gclose(g);
    return st;
}

static tl_status read_text(tl_h5 *f, hid_t attr, hid_t type)
{
    char *text = NULL;
    size_t size = H5Tget_size(type);
    tl_status st = TL_OK;
    if (H5Tis_variable_str(type) > 0) {
        if (H5Aread(attr, type, &text) < 0)
            return tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "read attribute", f->name);
        st = room(f, &f->text, text ? strlen(text) : 0);
        if (st == TL_OK && text) memcpy(f->text, text, strlen(text));
        (void)H5free_memory(text);
        return st;
    }
    st = room(f, &f->text, size);
    if (st != TL_OK) return st;
    if (H5Aread(attr, type, f->text) < 0)
        return tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "read attribute", f->name);
    if (H5Tget_strpad(type) == H5T_STR_SPACEPAD)
        while (size > 0 && f->text[size - 1] == ' ') f->text[--size] = '\0';
    return TL_OK;
}

/* The value of attr, whose name is in f->name. */
static tl_status read_attr(tl_h5 *f, hid_t attr, tl_attr *out)
{
    hid_t type = H5Aget_type(attr), space = H5Aget_space(attr);
    H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    tl_status st = TL_OK;
    tl_attr a = {.name = f->name};
    int bad = 0;
    if (space < 0 || H5Sget_simple_extent_npoints(space) != 1) {
        st =
            tl_fail(f->ctx, TL_ETYPE, "%s: attribute '%s' is not a single value", f->path, f->name);
    } else if (class == H5T_INTEGER || class == H5T_ENUM) {
        a.kind = 'i';
        bad = H5Aread(attr, H5T_NATIVE_INT64, &a.i) < 0;
    } else if (class == H5T_FLOAT) {
        a.kind = 'f';
        bad = H5Aread(attr, H5T_NATIVE_DOUBLE, &a.f) < 0;
    } else if (class == H5T_STRING) {
        a.kind = 's';
        st = read_text(f, attr, type);
        a.s = f->text;
    } else {
        st = tl_fail(f->ctx, TL_ETYPE, "%s: attribute '%s' is neither a number nor a text", f->path,
                     f->name);
    }
    if (bad) st = tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "read attribute", f->name);
    if (type >= 0) (void)H5Tclose(type);
    if (space >= 0) (void)H5Sclose(space);
    if (st == TL_OK) *out = a;
    return st;
}

tl_status tl_h5_attr(tl_h5 *f, const char *object, int64_t i, tl_attr *out_attr)
{
    H5O_info_t info;
    hid_t o, attr = -1;
    ssize_t n = -1;
    tl_status st = get(f, object, H5I_BADID, &o);
    if (st == TL_ENOTFOUND) return TL_EINVAL; /* not found: the end of the list */
    if (st != TL_OK) return st;
    if (H5Oget_info2(o, &info, H5O_INFO_NUM_ATTRS) < 0) {
        st = tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "list the attributes of", object);
    } else if (i < 0 || (hsize_t)i >= info.num_attrs) {
        st = tl_fail(f->ctx, TL_ENOTFOUND, "%s: '%s' has %lld attributes", f->path, object,
                     (long long)info.num_attrs);
    } else {
        attr = H5Aopen_by_idx(o, ".", H5_INDEX_NAME, H5_ITER_INC, (hsize_t)i, H5P_DEFAULT,
                              H5P_DEFAULT);
        if (attr >= 0) n = H5Aget_name(attr, 0, NULL);
        if (n >= 0) st = room(f, &f->name, (size_t)n);
        if (st == TL_OK && n >= 0) n = H5Aget_name(attr, (size_t)n + 1, f->name);
        if (st == TL_OK && n < 0)
            st = tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "read", "the name of an attribute");
    }
    if (st == TL_OK) st = read_attr(f, attr, out_attr);
    if (attr >= 0) (void)H5Aclose(attr);
    (void)H5Oclose(o);
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
    tl_tensor *t = NULL;
    tl_status st = get(f, name, H5I_DATASET, &set);
    if (st != TL_OK) return st;
    hid_t type = H5Dget_type(set), space = H5Dget_space(set);
    H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    int ndim = space < 0 ? -1 : H5Sget_simple_extent_dims(space, hdims, NULL);
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
    for (int i = 0; st == TL_OK && i < ndim; i++) dims[i] = (int64_t)hdims[i];
    if (st == TL_OK) st = tl_new_host(f->ctx, real ? TL_F32 : TL_I32, ndim, dims, &t);
    if (st == TL_OK) st = read_elements(f, name, set, t);
    if (type >= 0) (void)H5Tclose(type);
    if (space >= 0) (void)H5Sclose(space);
    (void)H5Dclose(set);
    if (st == TL_OK) *out_t = t;
    if (st != TL_OK) tl_tensor_free(t);
    return st;
}

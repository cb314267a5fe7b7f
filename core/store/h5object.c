/* h5object.c - opens the image of an HDF5 file in memory, and finds objects in it by name.
**
** We read the whole file into memory and HDF5 opens that image, because libhdf5 1.10.8 corrupts
** the heap when the disk fails during one of its own reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "store/h5.h"

#define MAX_DEPTH 100 /* nested groups */

/* ---- The image ------------------------------------------------------------------------------- */

/* HDF5 would copy the image twice. These callbacks hand out the one image, which tl_h5_close
** frees. */
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
    return NULL; /* the file is open for reading, so it never grows */
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

/* HDF5's core driver identifies files by name, so each image gets a name of its own. */
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

/* ---- Objects --------------------------------------------------------------------------------- */

/* Returns "/a/b" for "a//b/" and the like, and "" for the root, to be freed; NULL: out of
** memory. *out_depth counts the parts. */
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

/* Closes *at and replaces it by its child named part; path is only for messages. */
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
    else if (info.type != H5L_TYPE_HARD) /* HDF5 would follow it, perhaps into another file */
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
    tl_status st = depth <= MAX_DEPTH ? open_path(f, path, &object)
                                    : tl_fail(f->ctx, TL_ECORRUPT, "%s: '%.60s...' is more than %d "
                                              "groups deep", f->path, path, MAX_DEPTH);
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

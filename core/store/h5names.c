/* h5names.c - lists the children of HDF5 groups and reads the attributes of objects.
**
** One walk over a group collects all its names, and the calls that follow use that list. The
** HDF5 functions that find a name by its index free uninitialised pointers when the file is
** damaged (1.10.8). */
#include <stdlib.h>
#include <string.h>

#include "store/h5.h"

/* ---- Lists ----------------------------------------------------------------------------------- */

void tl_h5_forget(tl_h5_names *n)
{
    for (size_t i = 0; i < n->count; i++) free(n->names[i]);
    free(n->names);
    free(n->path);
    *n = (tl_h5_names){0};
}

typedef struct collector {
    tl_h5 *file;
    tl_h5_names list;
    tl_status st;
} collector;

/* Grows the array, whose capacity is *capacity elements of size bytes, so that one more fits. */
static int grow(void **array, size_t *capacity, size_t count, size_t size)
{
    if (count < *capacity) return 1;
    void *more = realloc(*array, (2 * count + 16) * size);
    if (!more) return 0;
    *array = more;
    *capacity = 2 * count + 16;
    return 1;
}

/* A damaged index may lead in a circle, so the walk stops once the names are longer than the
** file. */
static herr_t add_name(collector *c, const char *name, char kind)
{
    tl_h5_names *n = &c->list;
    void *names = n->names;
    size_t bytes = strlen(name) + 1;
    n->bytes += bytes;
    if (n->bytes > c->file->bytes) {
        c->st = tl_fail(c->file->ctx, TL_ECORRUPT, "%s: '%s' lists more names than the file can "
                        "hold", c->file->path, n->path);
        return -1;
    }
    char *copy = malloc(bytes + 1);
    int fine = copy && grow(&names, &n->capacity, n->count, sizeof *n->names);
    n->names = names;
    if (!fine) {
        free(copy);
        c->st = tl_fail(c->file->ctx, TL_ENOMEM, "out of memory");
        return -1;
    }
    *copy = kind;
    memcpy(copy + 1, name, bytes);
    n->names[n->count++] = copy;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a + 1, *(char *const *)b + 1);
}

/* Ends a walk over path: replaces *list by the collected names, or fails. Takes ownership of
** path. */
static tl_status finish_list(collector *c, herr_t walked, char *path, tl_h5_names *list)
{
    tl_status st = c->st;
    if (walked < 0 && st == TL_OK)
        st = tl_h5_fail(c->file->ctx, TL_ECORRUPT, c->file->path, "list", path);
    c->list.path = path;
    if (st != TL_OK) {
        tl_h5_forget(&c->list);
        return st;
    }
    if (c->list.count) qsort(c->list.names, c->list.count, sizeof *c->list.names, by_name);
    tl_h5_forget(list);
    *list = c->list;
    return TL_OK;
}

/* ---- Children -------------------------------------------------------------------------------- */

static herr_t add_child(hid_t group, const char *name, const H5L_info_t *info, void *user)
{
    H5O_info_t object;
    char kind = '?'; /* a soft or external link, or a named type */
    if (info->type == H5L_TYPE_HARD) {
        if (H5Oget_info_by_name2(group, name, &object, H5O_INFO_BASIC, H5P_DEFAULT) < 0) return -1;
        if (object.type == H5O_TYPE_GROUP) kind = 'g';
        if (object.type == H5O_TYPE_DATASET) kind = 'd';
    }
    return add_name(user, name, kind);
}

/* Each group may be reached by one path only: a group inside itself would have endlessly many,
** and a few groups linked to one another would have too many to walk. */
static tl_status visit_group(tl_h5 *f, hid_t group, const char *path)
{
    H5O_info_t info;
    void *groups = f->groups;
    if (H5Oget_info2(group, &info, H5O_INFO_BASIC) < 0)
        return tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "list", path);
    for (size_t i = 0; i < f->group_count; i++) {
        if (f->groups[i].address != info.addr) continue;
        if (strcmp(f->groups[i].path, path) == 0) return TL_OK;
        return tl_fail(f->ctx, TL_EINVAL, "%s: group '%s' is another link to '%s/'", f->path,
                       path, f->groups[i].path);
    }
    char *copy = strdup(path);
    int fine = copy && grow(&groups, &f->group_capacity, f->group_count, sizeof *f->groups);
    f->groups = groups;
    if (!fine) {
        free(copy);
        return tl_fail(f->ctx, TL_ENOMEM, "out of memory");
    }
    f->groups[f->group_count++] = (tl_h5_group){info.addr, copy};
    return TL_OK;
}

static tl_status list_children(tl_h5 *f, const char *group)
{
    collector c = {.file = f};
    hid_t g;
    char *path;
    tl_status st = tl_h5_get(f, group, H5I_GROUP, &g, &path);
    if (st != TL_OK) return st;
    st = visit_group(f, g, path);
    if (st == TL_OK) {
        c.list.path = path;
        herr_t walked = H5Literate(g, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, add_child, &c);
        st = finish_list(&c, walked, path, &f->children);
    } else {
        free(path);
    }
    (void)H5Gclose(g);
    return st;
}

/* Whether n holds the names of the object called name, in any spelling of its path. */
static int is_list_of(const tl_h5_names *n, const char *name)
{
    const char *path = n->path;
    if (!path) return 0;
    return strcmp(path, name) == 0 || (*path == '/' && strcmp(path + 1, name) == 0) ||
           (!*path && strcmp(name, "/") == 0);
}

tl_status tl_h5_here_child(tl_h5 *f, const char *group, int64_t i, const char **out_name,
                           char *out_kind)
{
    tl_status st = is_list_of(&f->children, group) ? TL_OK : list_children(f, group);
    if (st == TL_ENOTFOUND) return TL_EINVAL; /* not found: the end of the list */
    if (st != TL_OK) return st;
    if (i < 0 || (size_t)i >= f->children.count)
        return tl_fail(f->ctx, TL_ENOTFOUND, "%s: '%s' has %zu children", f->path, group,
                       f->children.count);
    *out_name = f->children.names[i] + 1;
    *out_kind = f->children.names[i][0];
    return TL_OK;
}

/* ---- Attributes ------------------------------------------------------------------------------ */

static herr_t add_attribute(hid_t object, const char *name, const H5A_info_t *info, void *user)
{
    (void)object, (void)info;
    return add_name(user, name, 'a');
}

/* Makes f->text a zeroed buffer of bytes and a NUL. */
static tl_status new_text(tl_h5 *f, size_t bytes)
{
    char *p = bytes <= f->bytes ? calloc(1, bytes + 1) : NULL;
    if (bytes > f->bytes)
        return tl_fail(f->ctx, TL_ECORRUPT, "%s: an attribute of %zu bytes, more than the file "
                       "holds", f->path, bytes);
    if (!p) return tl_fail(f->ctx, TL_ENOMEM, "out of memory: %zu bytes of text", bytes);
    free(f->text);
    f->text = p;
    return TL_OK;
}

static tl_status read_text(tl_h5 *f, hid_t attr, hid_t type, const char *name)
{
    char *text = NULL;
    size_t size = H5Tget_size(type);
    tl_status st = TL_OK;
    if (H5Tis_variable_str(type) > 0) {
        if (H5Aread(attr, type, &text) < 0)
            return tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "read attribute", name);
        st = new_text(f, text ? strlen(text) : 0);
        if (st == TL_OK && text) memcpy(f->text, text, strlen(text));
        (void)H5free_memory(text);
        return st;
    }
    st = new_text(f, size);
    if (st != TL_OK) return st;
    if (H5Aread(attr, type, f->text) < 0)
        return tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "read attribute", name);
    if (H5Tget_strpad(type) == H5T_STR_SPACEPAD)
        while (size > 0 && f->text[size - 1] == ' ') f->text[--size] = '\0';
    return TL_OK;
}

static tl_status read_attr(tl_h5 *f, hid_t attr, const char *name, tl_attr *out)
{
    hid_t type = H5Aget_type(attr), space = H5Aget_space(attr);
    H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    tl_status st = TL_OK;
    tl_attr a = {.name = name};
    int bad = 0;
    if (space < 0 || H5Sget_simple_extent_npoints(space) != 1) {
        st = tl_fail(f->ctx, TL_ETYPE, "%s: attribute '%s' is not a single value", f->path, name);
    } else if (class == H5T_INTEGER || class == H5T_ENUM) {
        a.kind = 'i';
        bad = H5Aread(attr, H5T_NATIVE_INT64, &a.i) < 0;
    } else if (class == H5T_FLOAT) {
        a.kind = 'f';
        bad = H5Aread(attr, H5T_NATIVE_DOUBLE, &a.f) < 0;
    } else if (class == H5T_STRING) {
        a.kind = 's';
        st = read_text(f, attr, type, name);
        a.s = f->text;
    } else {
        st = tl_fail(f->ctx, TL_ETYPE, "%s: attribute '%s' is neither a number nor a string",
                     f->path, name);
    }
    if (bad) st = tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "read attribute", name);
    if (type >= 0) (void)H5Tclose(type);
    if (space >= 0) (void)H5Sclose(space);
    if (st == TL_OK) *out = a;
    return st;
}

tl_status tl_h5_here_attr(tl_h5 *f, const char *object, int64_t i, tl_attr *out_attr)
{
    collector c = {.file = f};
    hid_t o, attr = -1;
    char *path;
    tl_status st = tl_h5_get(f, object, H5I_BADID, &o, &path);
    if (st == TL_ENOTFOUND) return TL_EINVAL; /* not found: the end of the list */
    if (st != TL_OK) return st;
    if (is_list_of(&f->attributes, path)) {
        free(path);
    } else {
        c.list.path = path;
        herr_t walked = H5Aiterate2(o, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, add_attribute, &c);
        st = finish_list(&c, walked, path, &f->attributes);
    }
    if (st == TL_OK && (i < 0 || (size_t)i >= f->attributes.count))
        st = tl_fail(f->ctx, TL_ENOTFOUND, "%s: '%s' has %zu attributes", f->path, object,
                     f->attributes.count);
    if (st == TL_OK) {
        const char *name = f->attributes.names[i] + 1;
        attr = H5Aopen(o, name, H5P_DEFAULT);
        st = attr < 0 ? tl_h5_fail(f->ctx, TL_ECORRUPT, f->path, "read attribute", name)
                      : read_attr(f, attr, name, out_attr);
    }
    if (attr >= 0) (void)H5Aclose(attr);
    (void)H5Oclose(o);
    return st;
}

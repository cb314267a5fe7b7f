/* h5.h - declares what the files h5*.c share; no other file includes hdf5.h. */
#ifndef TL_H5_H
#define TL_H5_H

#define H5_USE_110_API /* later versions keep these functions under this name */
#include <hdf5.h>

#include "base/context.h"
#include "toeplab-lab.h"

/* HDF5 may need this much memory beside the contents. It is reserved before the first call: when
** an allocation fails, libhdf5 1.10.8 frees blocks twice, and if that happens while it starts,
** it never works again. */
#define TL_H5_BYTES ((size_t)16 << 20)

/* HDF5 is called only between these two. A build of it that is not thread-safe needs that. One that
** is has a lock of its own: a child that is forked while another thread holds it inherits the lock
** and waits for ever (h5apart.c). */
void tl_h5_lock(void);
void tl_h5_unlock(void);
/* Stops HDF5 from printing its errors. Each function of toeplab.h calls this first. */
void tl_h5_quiet(void);
/* Fails with "PATH: cannot WHAT 'NAME': " and the reason that HDF5 gives, so no other HDF5
** function may be called in between. TL_ENOMEM or TL_EIO if memory or the disk was the cause,
** else st. */
tl_status tl_h5_fail(tl_ctx *ctx, tl_status st, const char *path, const char *what,
                     const char *name);

/* The names of the children of a group, or of the attributes of an object, sorted. */
typedef struct tl_h5_names {
    char *path; /* path of the group or object; NULL: nothing was listed yet */
    char **names; /* each preceded by its kind: 'g' group, 'd' dataset, 'a' attribute, '?' other */
    size_t count, capacity, bytes;
} tl_h5_names;

typedef struct tl_h5_group { /* a group that was listed already */
    haddr_t address;
    char *path;
} tl_h5_group;

struct tl_h5 {
    tl_ctx *ctx;
    hid_t file;
    char *path;
    char *image; /* the whole file; HDF5 reads this copy instead of the disk */
    size_t bytes;
    tl_h5_names children, attributes;
    tl_h5_group *groups;
    size_t group_count, group_capacity;
    char *name, *text; /* name and text of the last child or attribute returned */
    int reader;        /* socket to the child that parses the file; -1: this process does */
    pid_t process;
};

/* Opens f->image with HDF5 in this process. TL_ENOMEM, TL_ECORRUPT */
tl_status tl_h5_open_image(tl_h5 *f);
/* Opens the object of that name, which must have the given type unless that is H5I_BADID. The
** caller closes *out_object and frees *out_path, its path in the form "" or "/a/b".
** TL_ENOTFOUND; TL_EINVAL: it has another type, or a link on the way is not a hard one. */
tl_status tl_h5_get(tl_h5 *f, const char *name, H5I_type_t type, hid_t *out_object,
                    char **out_path);
void tl_h5_forget(tl_h5_names *n);

/* These implement tl_h5_child, tl_h5_attr and tl_h5_read for a file that this process parses. */
tl_status tl_h5_here_child(tl_h5 *f, const char *group, int64_t i, const char **out_name,
                           char *out_kind);
tl_status tl_h5_here_attr(tl_h5 *f, const char *object, int64_t i, tl_attr *out_attr);
tl_status tl_h5_here_read(tl_h5 *f, const char *name, tl_tensor **out_t);

/* These implement tl_h5_open, tl_h5_child, tl_h5_attr and tl_h5_read for a file that a child
** process parses (h5apart.c). tl_h5_apart_start starts that process and needs the lock; the others
** only talk to it. */
tl_status tl_h5_apart_start(tl_h5 *f);
tl_status tl_h5_apart_open(tl_h5 *f);
void tl_h5_apart_close(tl_h5 *f);
tl_status tl_h5_apart_child(tl_h5 *f, const char *group, int64_t i, const char **out_name,
                            char *out_kind);
tl_status tl_h5_apart_attr(tl_h5 *f, const char *object, int64_t i, tl_attr *out_attr);
tl_status tl_h5_apart_read(tl_h5 *f, const char *name, tl_tensor **out_t);

#endif

/* h5.h - what the files h5*.c share; the only place that includes hdf5.h. */
#ifndef TL_H5_H
#define TL_H5_H

#define H5_USE_110_API /* later versions keep these functions under this name */
#include <hdf5.h>

#include "base/context.h"

/* What HDF5 may want beside the contents. It is asked for before: where libhdf5 1.10.8 gets no
** memory it frees blocks twice, and where it begins so, it never works again. */
#define TL_H5_BYTES ((size_t)16 << 20)

/* HDF5 prints its errors unless told not to: called first by each function of toeplab.h. */
void tl_h5_quiet(void);
/* Reports that HDF5 failed to do what to name in path, with its own reason; call it before any
** other HDF5 function. TL_ENOMEM or TL_EIO if memory or the disk was at fault, else st. */
tl_status tl_h5_fail(tl_ctx *ctx, tl_status st, const char *path, const char *what,
                     const char *name);

/* The names in a group, or of an object's attributes, sorted. */
typedef struct tl_h5_names {
    char *of; /* the path of the group or object; NULL: nothing was listed yet */
    char **names; /* each behind a character: 'g' group, 'd' dataset, 'a' attribute, '?' other */
    size_t count, room, bytes;
} tl_h5_names;

typedef struct tl_h5_group { /* a group that was listed, and the path by which it was */
    haddr_t address;
    char *path;
} tl_h5_group;

struct tl_h5 {
    tl_ctx *ctx;
    hid_t file;
    char *path;
    char *image; /* the whole file, which HDF5 reads instead of the disk */
    size_t bytes;
    tl_h5_names children, attributes;
    tl_h5_group *groups;
    size_t group_count, group_room;
    char *name, *text; /* of the last answer or attribute */
    int reader;        /* the socket to the process that reads it; -1: this one does */
    pid_t process;
};

/* Gives f->image to HDF5. */
tl_status tl_h5_open_image(tl_h5 *f);
/* Opens the object of that name, which must be of type unless that is H5I_BADID. *out_path is its
** path, "" or "/a/b", to be freed. Links other than hard ones are refused. TL_ENOTFOUND */
tl_status tl_h5_get(tl_h5 *f, const char *name, H5I_type_t type, hid_t *out_object,
                    char **out_path);
void tl_h5_forget(tl_h5_names *n);

/* What tl_h5_child, tl_h5_attr and tl_h5_read are for a file that is read in this process. */
tl_status tl_h5_here_child(tl_h5 *f, const char *group, int64_t i, const char **out_name,
                           char *out_kind);
tl_status tl_h5_here_attr(tl_h5 *f, const char *object, int64_t i, tl_attr *out_attr);
tl_status tl_h5_here_read(tl_h5 *f, const char *name, tl_tensor **out_t);

/* What tl_h5_open, tl_h5_child, tl_h5_attr and tl_h5_read are for a file that is read in a process
** of its own (h5apart.c). */
tl_status tl_h5_apart_open(tl_h5 *f);
void tl_h5_apart_close(tl_h5 *f);
tl_status tl_h5_apart_child(tl_h5 *f, const char *group, int64_t i, const char **out_name,
                            char *out_kind);
tl_status tl_h5_apart_attr(tl_h5 *f, const char *object, int64_t i, tl_attr *out_attr);
tl_status tl_h5_apart_read(tl_h5 *f, const char *name, tl_tensor **out_t);

#endif

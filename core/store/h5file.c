/* h5file.c - opens HDF5 files for reading. This process parses a file that has our trailer
** (h5names.c, h5read.c); a child process parses any other (h5apart.c). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "store/h5.h"
#include "store/trailer.h"

static tl_status read_image(tl_h5 *f, int *out_ours)
{
    int fd;
    tl_status st = tl_file_open(f->ctx, f->path, &fd, &f->bytes);
    /* This is not tl_alloc, because the memory budget of a trial counts tl_alloc, and a resumed
    ** trial, which reads a checkpoint, would count more. */
    if (st == TL_OK) f->image = malloc(f->bytes + 1);
    if (st == TL_OK)
        st = f->image ? tl_file_fill(f->ctx, f->path, fd, f->image, &f->bytes)
                      : tl_fail(f->ctx, TL_ENOMEM, "%s: out of memory: %zu bytes to read it",
                                f->path, f->bytes);
    if (fd >= 0) (void)close(fd); /* it was only read, so closing cannot lose anything */
    if (st == TL_EINVAL) st = TL_ECORRUPT; /* a folder or a device is not an HDF5 file */
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
    ctx->refs++;
    tl_status st = read_image(f, &ours);
    if (st == TL_OK && f->bytes == 0) st = tl_fail(ctx, TL_ECORRUPT, "%s: is empty", path);
    if (st == TL_OK) {
        tl_h5_lock();
        st = ours ? tl_h5_open_image(f) : tl_h5_apart_start(f);
        tl_h5_unlock();
    }
    if (st == TL_OK && !ours) st = tl_h5_apart_open(f);
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
    tl_h5_lock();
    if (f->file >= 0) (void)H5Fclose(f->file); /* only read */
    tl_h5_unlock();
    for (size_t i = 0; i < f->group_count; i++) free(f->groups[i].path);
    free(f->groups);
    tl_h5_forget(&f->children);
    tl_h5_forget(&f->attributes);
    free(f->image);
    free(f->path);
    free(f->name);
    free(f->text);
    tl_ctx_unref(f->ctx);
    free(f);
}

/* ---- Questions ------------------------------------------------------------------------------- */

tl_status tl_h5_child(tl_h5 *f, const char *group, int64_t i, const char **out_name, char *out_kind)
{
    if (f->reader >= 0) return tl_h5_apart_child(f, group, i, out_name, out_kind);
    tl_h5_lock();
    tl_status st = tl_h5_here_child(f, group, i, out_name, out_kind);
    tl_h5_unlock();
    return st;
}

tl_status tl_h5_attr(tl_h5 *f, const char *object, int64_t i, tl_attr *out_attr)
{
    if (f->reader >= 0) return tl_h5_apart_attr(f, object, i, out_attr);
    tl_h5_lock();
    tl_status st = tl_h5_here_attr(f, object, i, out_attr);
    tl_h5_unlock();
    return st;
}

tl_status tl_h5_read(tl_h5 *f, const char *name, tl_tensor **out_t)
{
    if (f->reader >= 0) return tl_h5_apart_read(f, name, out_t);
    tl_h5_lock();
    tl_status st = tl_h5_here_read(f, name, out_t);
    tl_h5_unlock();
    return st;
}

/* file.h - error messages from errno, reading whole files, and replacing files atomically. */
#ifndef TL_FILE_H
#define TL_FILE_H

#include <sys/types.h>

#include "base/context.h"

/* Fails with "PATH: WHAT failed: " and the text of errno, which is preserved. ENOSPC, EDQUOT and
** EFBIG all become TL_ENOSPC. */
TL_PRIVATE tl_status tl_fail_errno(tl_ctx *ctx, const char *what, const char *path);
/* Opens a regular file for reading. The caller closes *out_fd, also after a failure, unless it
** is -1. */
TL_PRIVATE tl_status tl_file_open(tl_ctx *ctx, const char *path, int *out_fd, size_t *out_bytes);
/* Reads as read(2) does, but until bytes are read or the file ends. Returns how many were read, or
** -1 with errno. */
TL_PRIVATE ssize_t tl_file_read_all(int fd, void *data, size_t bytes);
/* Reads up to *bytes from fd into data, appends a NUL, and sets *bytes to the number read. */
TL_PRIVATE tl_status tl_file_fill(tl_ctx *ctx, const char *path, int fd, char *data, size_t *bytes);
/* Reads a whole regular file and appends a NUL. The caller frees the text with tl_release. */
TL_PRIVATE tl_status tl_file_read(tl_ctx *ctx, const char *path, char **out_text,
                                  size_t *out_bytes);
typedef struct tl_part {
    const void *data;
    size_t bytes;
} tl_part;
/* Does what tl_file_write does, with several parts one after another. */
TL_PRIVATE tl_status tl_file_replace(tl_ctx *ctx, const char *path, const tl_part *parts,
                                     int count);
/* Makes the complete file temp, in the folder of path, the content of path: syncs it, renames it
** and syncs the folder. */
TL_PRIVATE tl_status tl_file_rename(tl_ctx *ctx, const char *temp, const char *path);

#endif

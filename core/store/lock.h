/* lock.h - one writer per folder. */
#ifndef TL_LOCK_H
#define TL_LOCK_H

#include "base/context.h"

/* Takes FOLDER/lock until *out_fd is closed. TL_ELOCKED names the process that has it. */
tl_status tl_lock(tl_ctx *ctx, const char *folder, int *out_fd);
/* TL_EIO: FOLDER/lock is not the file any more that fd holds. */
tl_status tl_lock_check(tl_ctx *ctx, const char *folder, int fd);
struct stat;
int tl_same_file(const struct stat *a, const struct stat *b);
#define TL_REPLACED "was moved, removed or replaced while it was written to"

#endif

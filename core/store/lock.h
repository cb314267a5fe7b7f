/* lock.h - declares the lock that allows one writer per folder. */
#ifndef TL_LOCK_H
#define TL_LOCK_H

#include "base/context.h"

/* Locks FOLDER/lock until the caller closes *out_fd. TL_ELOCKED names the process that holds it. */
tl_status tl_lock(tl_ctx *ctx, const char *folder, int *out_fd);
/* TL_EIO: FOLDER/lock is no longer the file behind fd, so the folder was moved or replaced. */
tl_status tl_lock_check(tl_ctx *ctx, const char *folder, int fd);
struct stat;
int tl_same_file(const struct stat *a, const struct stat *b);
#define TL_REPLACED "was moved, removed or replaced while it was written to"

#endif

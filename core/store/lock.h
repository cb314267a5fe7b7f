/* lock.h - declares the lock by which one process at a time writes to the store of a folder. */
#ifndef TL_LOCK_H
#define TL_LOCK_H

#include "base/context.h"

/* Opens FOLDER/lock, which the caller closes. */
tl_status tl_lock_open(tl_ctx *ctx, const char *folder, int *out_fd);
/* Locks the file that tl_lock_open has opened; waits up to `seconds`, but 2 s once stopped() (may
** be NULL) returns that the user stops the program. TL_ELOCKED names the holder. */
tl_status tl_lock(tl_ctx *ctx, const char *folder, int fd, double seconds,
                  int (*stopped)(void *user), void *user);
void tl_unlock(int fd);
/* TL_EIO: FOLDER/lock is no longer the file behind fd, so the folder was moved or replaced. */
tl_status tl_lock_check(tl_ctx *ctx, const char *folder, int fd);
struct stat;
int tl_same_file(const struct stat *a, const struct stat *b);
#define TL_REPLACED "was moved, removed or replaced while it was written to"

#endif

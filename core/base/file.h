/* file.h - files: errors, reading one whole, writing one whole or not at all. */
#ifndef TL_FILE_H
#define TL_FILE_H

#include "base/context.h"

/* Fails as errno says, with what failed and where, and leaves errno as it is; every kind of full is
** TL_ENOSPC. */
tl_status tl_fail_errno(tl_ctx *ctx, const char *what, const char *path);
/* Opens a plain file for reading; *out_fd is -1 or to be closed, whatever is returned. */
tl_status tl_file_open(tl_ctx *ctx, const char *path, int *out_fd, size_t *out_bytes);
/* Reads *bytes of fd, and puts a NUL behind them; *bytes becomes how many there were. */
tl_status tl_file_fill(tl_ctx *ctx, const char *path, int fd, char *data, size_t *bytes);
/* The whole of a plain file with a NUL behind it, to be released with tl_release. */
tl_status tl_file_read(tl_ctx *ctx, const char *path, char **out_text, size_t *out_bytes);
typedef struct tl_part {
    const void *data;
    size_t bytes;
} tl_part;
/* tl_file_write of several parts, one after another. */
tl_status tl_file_replace(tl_ctx *ctx, const char *path, const tl_part *parts, int count);

/* 0: the file at path is a shared object that lacks a part, and must not be loaded (elf.c). */
int tl_elf_whole(const char *path);

#endif

/* place.c - finds where the database of a results folder lies. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "store/store.h"

/* Whether other machines may use the folder, too. */
static int is_remote(const char *folder)
{
    /* NFS, SMB (three), Ceph, Lustre, GPFS, AFS (two), BeeGFS, OrangeFS, OCFS2, GFS2, 9P, FUSE */
    static const unsigned long remote[] = {
        0x6969,     0x517b,     0xff534d42, 0xfe534d42, 0x00c36400, 0x0bd00bd0, 0x47504653,
        0x5346414f, 0x6b414653, 0x19830326, 0x20030528, 0x7461636f, 0x01161970, 0x01021997,
        0x65735546};
    struct statfs fs;
    if (statfs(folder, &fs) != 0) return 0;
    for (size_t i = 0; i < sizeof remote / sizeof *remote; i++)
        if (((unsigned long)fs.f_type & 0xffffffffUL) == remote[i]) return 1;
    return 0;
}

/* Makes /var/tmp/toeplab-UID, for where the user's cache is on the network, too. */
static tl_status own_folder(tl_ctx *ctx, char path[PATH_MAX])
{
    struct stat file;
    (void)snprintf(path, PATH_MAX, "/var/tmp/toeplab-%ld", (long)geteuid());
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return tl_fail_errno(ctx, "mkdir", path);
    if (lstat(path, &file) != 0) return tl_fail_errno(ctx, "stat", path);
    if (S_ISDIR(file.st_mode) && file.st_uid == geteuid() && !(file.st_mode & 022)) return TL_OK;
    return tl_fail(ctx, TL_EIO, "%s: is not a folder that only this user may write to", path);
}

tl_status tl_store_place(tl_ctx *ctx, const char *folder, char *out, size_t bytes)
{
    const char *base = getenv("TOEPLAB_INDEX"), *cache = ctx->host.cache_dir;
    char        own[PATH_MAX], *real = NULL, hash[65];
    int         given = base && *base;
    if (given && *base != '/')
        return tl_fail(ctx, TL_EINVAL, "TOEPLAB_INDEX=%s: must be an absolute path", base);
    if (given || is_remote(folder)) real = realpath(folder, NULL); /* NULL: it does not exist */
    if (!real) {
        if (snprintf(out, bytes, "%s", folder) < (int)bytes) return TL_OK;
        return tl_fail(ctx, TL_EINVAL, "%s: the name is too long", folder);
    }
    tl_sha256(real, strlen(real), hash);
    free(real);
    if (!given && cache && !is_remote(cache)) {
        base = cache;
    } else if (!given) {
        tl_status st = own_folder(ctx, own);
        if (st != TL_OK) return st;
        base = own;
    }
    if (snprintf(out, bytes, "%s/index/%.16s", base, hash) < (int)bytes) return TL_OK;
    return tl_fail(ctx, TL_EINVAL, "%s: the name is too long", base);
}

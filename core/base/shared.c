/* shared.c - loads shared objects whose tables have the right ABI, and finds files beside the
** library. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/shared.h"

/* Whether the file ends before its table of sections, which linkers write last: dlopen would map
** what is not there, and the first access would raise SIGBUS. Other damage is left to dlopen: a
** plugin is code, and one that is damaged may do anything. */
static int is_cut(const char *path)
{
    ElfW(Ehdr) h;
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int cut = fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode) &&
              pread(fd, &h, sizeof h, 0) == sizeof h && !memcmp(h.e_ident, ELFMAG, SELFMAG) &&
              h.e_ident[EI_CLASS] == (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) &&
              h.e_shoff + (uint64_t)h.e_shnum * h.e_shentsize > (uint64_t)s.st_size;
    if (fd >= 0) (void)close(fd);
    return cut;
}

/* Checks the ABI before anything else in the table, because the fields after it may be laid out
** differently in another version. */
tl_status tl_shared_open(tl_ctx *ctx, const tl_shared_kind *kind, const char *name,
                         const char *path, void **out_file, const void **out_table)
{
    *out_file = NULL;
    if (is_cut(path)) return tl_fail(ctx, kind->error, "%s: is truncated", name);
    char  reason[2 * PATH_MAX];
    void *file = tl_open_with_cuda(path, reason, sizeof reason);
    if (!file) {
        const char *why = reason;
        size_t      len = strlen(path);
        if (strncmp(why, path, len) == 0 && strncmp(why + len, ": ", 2) == 0) why += len + 2;
        return tl_fail(ctx, kind->error, "%s: %s", name, why);
    }
    *out_file = file;
    const uint32_t *abi = dlsym(file, kind->entry);
    if (!abi)
        return tl_fail(ctx, kind->error, "%s: exports no %s, so it is not %s", name, kind->entry,
                       kind->what);
    if (*abi != kind->abi)
        return tl_fail(ctx, kind->error, "%s: built for ABI %u, but this is ABI %u", name,
                       (unsigned)*abi, (unsigned)kind->abi);
    *out_table = abi;
    return TL_OK;
}

void tl_shared_close(void *file)
{
    if (file) (void)dlclose(file);
}

int tl_beside_library(const char *name, char *path, size_t size)
{
    static const char here = 0;
    static const char *const places[] = {"", "toeplab/"};
    char    library[PATH_MAX];
    Dl_info info;
    if (!dladdr(&here, &info) || !info.dli_fname || !realpath(info.dli_fname, library)) return 0;
    char *slash = strrchr(library, '/');
    if (!slash) return 0;
    *slash = 0;
    for (int i = 0; i < 2; i++) {
        int n = snprintf(path, size, "%s/%s%s", library, places[i], name);
        if (n > 0 && (size_t)n < size && access(path, F_OK) == 0) return 1;
    }
    return 0;
}

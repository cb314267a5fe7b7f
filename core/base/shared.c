/* shared.c - loads shared objects whose tables have the right ABI, and finds files beside the
** library. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr */
#endif
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/shared.h"

/* Returns whether count entries of size, starting at offset, lie within a file of bytes. */
static int inside(uint64_t bytes, uint64_t offset, uint64_t count, uint64_t size)
{
    return offset <= bytes && (size == 0 || count <= (bytes - offset) / size);
}

static int elf_is_whole(int fd, uint64_t bytes)
{
    ElfW(Ehdr) h;
    ElfW(Phdr) p;
    ssize_t n = pread(fd, &h, sizeof h, 0);
    /* dlopen reports it better */
    if (n < SELFMAG || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) return 1;
    if (n != sizeof h) return 0;
    if (h.e_phentsize != sizeof p || h.e_ident[EI_CLASS] != (sizeof p == sizeof(Elf64_Phdr)
                                                                 ? ELFCLASS64 : ELFCLASS32))
        return 1; /* for another architecture, which dlopen reports */
    if (!inside(bytes, h.e_phoff, h.e_phnum, h.e_phentsize) ||
        !inside(bytes, h.e_shoff, h.e_shnum, h.e_shentsize))
        return 0;
    for (int i = 0; i < h.e_phnum; i++) {
        if (pread(fd, &p, sizeof p, (off_t)(h.e_phoff + (uint64_t)i * sizeof p)) != sizeof p)
            return 0;
        if (!inside(bytes, p.p_offset, p.p_filesz, 1)) return 0;
    }
    return 1;
}

/* Returns 0 if the file at path is a truncated shared object: dlopen maps what the ELF headers
** describe without comparing it with the size of the file, and the first access past the end raises
** SIGBUS. No check before loading can find more: loading a plugin runs its code, and damage inside
** the described parts may do anything. */
static int elf_whole(const char *path)
{
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int whole = fd < 0 || fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) ||
                elf_is_whole(fd, (uint64_t)s.st_size);
    if (fd >= 0) (void)close(fd);
    return whole;
}

/* Checks the ABI before anything else in the table, because the fields after it may be laid out
** differently in another version. */
tl_status tl_shared_open(tl_ctx *ctx, const tl_shared_kind *kind, const char *name,
                         const char *path, void **out_file, const void **out_table)
{
    *out_file = NULL;
    if (!elf_whole(path)) return tl_fail(ctx, kind->error, "%s: is truncated", name);
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!file) {
        const char *why = dlerror();
        size_t      len = strlen(path);
        if (!why) why = "it cannot be opened";
        if (strncmp(why, path, len) == 0 && strncmp(why + len, ": ", 2) == 0) why += len + 2;
        return tl_fail(ctx, kind->error, "%s: %s", name, why);
    }
    *out_file = file;
    const uint32_t *abi = dlsym(file, kind->entry);
    if (!abi)
        return tl_fail(ctx, kind->error, "%s: exports no %s, so it is not %s", name, kind->entry,
                       kind->what);
    if (*abi != kind->abi)
        return tl_fail(ctx, kind->error, "%s: made for ABI %u, this is ABI %u", name,
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

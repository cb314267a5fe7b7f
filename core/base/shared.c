/* elf.c - checks that a shared object is not truncated. dlopen maps what the ELF headers describe
** without comparing it with the size of the file, and the first access past the end raises SIGBUS.
**
** No check before loading can find more: loading a plugin runs its code, and damage inside the
** described parts may do anything. */
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

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

int tl_elf_whole(const char *path)
{
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int whole = fd < 0 || fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) ||
                elf_is_whole(fd, (uint64_t)s.st_size);
    if (fd >= 0) (void)close(fd);
    return whole;
}

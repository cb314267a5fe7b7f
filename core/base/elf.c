/* elf.c - whether a shared object is all there. dlopen maps what the headers say without a look at
** the size of the file, and the first access behind its end is a SIGBUS.
**
** More cannot be told before: whoever loads a plugin runs its code, and damage inside of what the
** headers describe may do anything. */
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

/* Whether count entries of size from offset on lie within a file of bytes. */
static int inside(uint64_t bytes, uint64_t offset, uint64_t count, uint64_t size)
{
    return offset <= bytes && (size == 0 || count <= (bytes - offset) / size);
}

static int is_whole(int fd, uint64_t bytes)
{
    ElfW(Ehdr) h;
    ElfW(Phdr) p;
    ssize_t n = pread(fd, &h, sizeof h, 0);
    if (n < SELFMAG || memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) return 1; /* dlopen will say more */
    if (n != sizeof h) return 0;
    if (h.e_phentsize != sizeof p || h.e_ident[EI_CLASS] != (sizeof p == sizeof(Elf64_Phdr)
                                                                 ? ELFCLASS64 : ELFCLASS32))
        return 1; /* of another kind of machine */
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
                is_whole(fd, (uint64_t)s.st_size);
    if (fd >= 0) (void)close(fd);
    return whole;
}

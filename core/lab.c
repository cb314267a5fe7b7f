/* lab.c - reports the versions of the libraries that libtoeplab-lab uses. */
#include <stdio.h>

#include "toeplab-lab.h"
#include "store/versions.h"
#include "text/pieces.h"

const char *tl_lab_info(char *buf, size_t size)
{
    (void)snprintf(buf, size, "hdf5 %s\nsqlite %s\npcre2 %s\n", tl_hdf5_version(),
                   tl_sqlite_version(), tl_pcre2_version());
    return buf;
}

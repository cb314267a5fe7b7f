/* shared.h - loads shared objects, and finds files beside the library. */
#ifndef TL_SHARED_H
#define TL_SHARED_H

#include "base/context.h"

/* What a shared object has to export: a table whose first field is its ABI, a uint32_t. */
typedef struct tl_shared_kind {
    const char *what;  /* "a backend" */
    const char *entry; /* the name of the table */
    uint32_t    abi;
    tl_status   error; /* when the file is not one */
} tl_shared_kind;

/* Loads the shared object at path, runs none of its functions, and finds its table. Messages begin
** with name. *out_file is NULL if nothing was loaded. */
tl_status tl_shared_open(tl_ctx *ctx, const tl_shared_kind *kind, const char *name,
                         const char *path, void **out_file, const void **out_table);
/* dlopen for an object that may link CUDA's libraries: those that the loader does not find are
** loaded from the folders that cuda_libraries.c knows, and stay loaded. Returns NULL, and the
** reason, on failure. */
void *tl_open_with_cuda(const char *path, char *reason, size_t size);
void tl_shared_close(void *file); /* NULL is harmless */
/* Finds a file or folder of Toeplab beside the library, where a build has it as NAME and an
** installation as toeplab/NAME. Returns 0 if there is none. */
int tl_beside_library(const char *name, char *path, size_t size);

#endif

/* plugin.h - the loaded backends of a context. */
#ifndef TL_PLUGIN_H
#define TL_PLUGIN_H

#include "base/context.h"

/* The most parameters of a backend: with coef, x, dy and its cache they fill TL_ARGS. */
#define TL_TNO_PARAMS 4

typedef struct tl_plugin tl_plugin;
struct tl_plugin {
    const tl_tno_backend *entry; /* in the mapped file, which stays mapped */
    char                 *path;
    tl_plugin            *next;
};

tl_status tl_plugins_open(tl_ctx *ctx); /* loads the search path */
void tl_plugins_close(tl_ctx *ctx);
/* What a shared object has to export: a table whose first field is its ABI, a uint32_t. */
typedef struct tl_shared_kind {
    const char *what;  /* "a backend" */
    const char *entry; /* the name of the table */
    uint32_t    abi;
    tl_status   error; /* when the file is not one */
} tl_shared_kind;

/* Loads the shared object at path, runs none of its functions, and finds its table. Messages begin
** with name. *out_file is for dlclose, and NULL if nothing was loaded. */
tl_status tl_shared_open(tl_ctx *ctx, const tl_shared_kind *kind, const char *name,
                         const char *path, void **out_file, const void **out_table);
/* Finds a file or folder of Toeplab beside the library, where a build has it as NAME and an
** installation as toeplab/NAME. Returns 0 if there is none. */
int tl_beside_library(const char *name, char *path, size_t size);
/* Finds a backend by name. TL_EBACKEND: there is none; the message lists those loaded. */
TL_PRIVATE tl_status tl_find_backend(tl_ctx *ctx, const char *name,
                                     const tl_tno_backend **out_backend);
const tl_transforms *tl_find_transforms(const tl_ctx *ctx); /* NULL: no plugin has any */

#endif

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
/* Finds a backend by name. TL_EBACKEND: there is none; the message lists those loaded. */
TL_PRIVATE tl_status tl_find_backend(tl_ctx *ctx, const char *name,
                                     const tl_tno_backend **out_backend);
const tl_transforms *tl_find_transforms(const tl_ctx *ctx); /* NULL: no plugin has any */

#endif

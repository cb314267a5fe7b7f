/* json.h - objects of integers in JSON files. */
#ifndef TL_JSON_H
#define TL_JSON_H

#include "base/context.h"

/* Hands every entry of the JSON object in text to each, which ends it with
** anything but TL_OK; values are integers. TL_ECORRUPT names path and what is wrong. */
typedef tl_status (*tl_json_entry)(void *user, const char *key, size_t bytes, int64_t value);
tl_status tl_json_each(tl_ctx *ctx, const char *path, const char *text, size_t bytes,
                       tl_json_entry each, void *user);

#endif

/* json.h - reads JSON objects of integers. */
#ifndef TL_JSON_H
#define TL_JSON_H

#include "base/context.h"

/* Passes every entry of the JSON object in text to each, which stops by returning another status
** than TL_OK. TL_ECORRUPT: text is not an object of integers; the message names path. */
typedef tl_status (*tl_json_entry)(void *user, const char *key, size_t bytes, int64_t value);
tl_status tl_json_each(tl_ctx *ctx, const char *path, const char *text, size_t bytes,
                       tl_json_entry each, void *user);

#endif

/* option.h - the options of a backend, and names that are nearly right. */
#ifndef TL_OPTION_H
#define TL_OPTION_H

#include "base/context.h"

/* Values for backend's option table from "key=value" strings (ended by NULL; NULL: none given) and
** its defaults: an array in the table's order, freed by tl_options_free. TL_EINVAL: unknown, of the
** wrong type or out of range. */
tl_status tl_options_parse(tl_ctx *ctx, const tl_tno_backend *backend, const char *const *given,
                           tl_option_value **out_values);
void tl_options_free(const tl_tno_backend *backend, tl_option_value *values);

/* Whether candidate may be what the writer of word meant, in fewer edits than *best, which becomes
** that number (start at INT_MAX). */
int tl_nearer(const char *word, const char *candidate, int *best);

#endif

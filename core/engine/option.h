/* option.h - parses the options of a backend, and suggests names for misspelt ones. */
#ifndef TL_OPTION_H
#define TL_OPTION_H

#include "base/context.h"

/* Parses "key=value" strings (ended by NULL; NULL: none) against backend's option table and
** fills in the defaults. The array has the table's order; tl_options_free frees it. TL_EINVAL:
** an option is unknown, of the wrong type or out of range. */
tl_status tl_options_parse(tl_ctx *ctx, const tl_tno_backend *backend, const char *const *given,
                           tl_option_value **out_values);
void tl_options_free(const tl_tno_backend *backend, tl_option_value *values);

/* Returns 1 if candidate is close enough to word to be what the user meant and needs fewer edits
** than *best, which is then updated; start *best at INT_MAX. */
int tl_nearer(const char *word, const char *candidate, int *best);

#endif

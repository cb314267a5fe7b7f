/* plain.h - numbers are read and written with a decimal point, whatever locale the program set. */
#ifndef TL_PLAIN_H
#define TL_PLAIN_H

#include <locale.h>

/* Gives the calling thread the locale "C", and returns the one that tl_plain_end restores. */
static inline locale_t tl_plain_begin(void)
{
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

static inline void tl_plain_end(locale_t before) { freelocale(uselocale(before)); }

#endif

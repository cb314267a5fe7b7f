/* intern.h - numbers distinct byte strings 0, 1, 2, ... in the order of their addition. */
#ifndef TL_INTERN_H
#define TL_INTERN_H

#include "base/context.h"

typedef struct tl_intern { /* starts as {.ctx = ctx} */
    tl_ctx *ctx;
    char *bytes; /* all strings, one after another */
    size_t used, bytes_cap;
    size_t *starts; /* where each string begins in bytes, and the end of the last */
    size_t starts_cap;
    int32_t count;
    struct tl_intern_slot *slots; /* a hash table: a power of two, at most half full */
    size_t slot_count;
} tl_intern;

/* Returns the number of s; a new string gets the next number, which was t->count. */
tl_status tl_intern_add(tl_intern *t, const char *s, size_t bytes, int32_t *out_id);
int32_t tl_intern_find(const tl_intern *t, const char *s, size_t bytes); /* -1: absent */
/* Returns string id, valid until the next addition. */
const char *tl_intern_get(const tl_intern *t, int32_t id, size_t *out_bytes);
void tl_intern_clear(tl_intern *t); /* empties t but keeps its memory */
void tl_intern_free(tl_intern *t);

#endif

/* option.c - parses and checks the options of a backend, and suggests the nearest name for a
** misspelt one. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain.h"
#include "engine/option.h"

#define WORD 32 /* longer words get no suggestion */

/* ---- Did you mean ---------------------------------------------------------------------------- */

/* Returns the edit distance of a and b (Levenshtein). */
static int edit_distance(const char *a, const char *b)
{
    int row[WORD + 1], m = (int)strlen(a), n = (int)strlen(b);
    if (m > WORD || n > WORD) return INT_MAX;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; i <= m; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int above = row[j];
            int best = corner + (a[i - 1] != b[j - 1]);
            if (above + 1 < best) best = above + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
            corner = above;
        }
    }
    return row[n];
}

int tl_nearer(const char *text, const char *candidate, int *best)
{
    int distance = edit_distance(text, candidate);
    int allowed = (int)strlen(candidate) > 5 ? 3 : 2;
    if (distance > allowed || distance >= *best || distance >= (int)strlen(candidate)) return 0;
    *best = distance;
    return 1;
}

/* ---- One value ------------------------------------------------------------------------------- */

/* Returns whether v lies in "low..high", either side of which may be missing. */
static int in_range(const char *range, double v)
{
    const char *dots = range ? strstr(range, "..") : NULL;
    if (!dots) return 1;
    if (dots > range && v < strtod(range, NULL)) return 0;
    return dots[2] == 0 || v <= strtod(dots + 2, NULL);
}

/* Returns whether text is one of the words in range, separated by spaces. */
static int is_word_of(const char *range, const char *text)
{
    size_t len = strlen(text);
    if (!range) return 1;
    for (const char *p = range; *p;) {
        size_t n = strcspn(p, " ");
        if (n == len && strncmp(p, text, n) == 0) return 1;
        p += n;
        while (*p == ' ') p++;
    }
    return 0;
}

/* Returns 0 if text is not a value of o's type and range. For type 's', v borrows text. */
static int parse_value(const tl_option *o, const char *text, tl_option_value *v)
{
    char *end = NULL;
    errno = 0;
    switch (o->type) {
    case 'i':
        v->i = strtoll(text, &end, 10);
        v->f = (double)v->i;
        return end != text && *end == 0 && errno == 0 && in_range(o->range, v->f);
    case 'f':
        v->f = strtod(text, &end); /* v == v rejects NaN, which in_range would accept */
        return end != text && *end == 0 && v->f == v->f && in_range(o->range, v->f);
    case 'b':
        v->i = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
        return v->i || strcmp(text, "false") == 0 || strcmp(text, "0") == 0;
    case 's':
        v->s = text;
        return is_word_of(o->range, text);
    }
    return 0;
}

static tl_status fail_value(tl_ctx *ctx, const tl_tno_backend *b, const tl_option *o,
                            const char *text)
{
    const char *type = o->type == 'i'   ? "an integer"
                       : o->type == 'f' ? "a number"
                       : o->type == 'b' ? "true or false"
                                        : "one of";
    const char *range = o->range ? o->range : o->type == 's' ? "(any word)" : "";
    return tl_fail(ctx, TL_EINVAL, "backend '%s': option %s is '%s', not %s%s%s", b->name, o->name,
                   text, type, *range ? (o->type == 's' ? " " : " in ") : "", range);
}

static tl_status fail_unknown(tl_ctx *ctx, const tl_tno_backend *b, const char *key)
{
    char        list[512] = "";
    const char *meant = NULL;
    int         best = INT_MAX;
    for (const tl_option *o = b->options; o && o->name; o++) {
        size_t len = strlen(list);
        (void)snprintf(list + len, sizeof list - len, "%s%s", len ? ", " : "", o->name);
        if (tl_nearer(key, o->name, &best)) meant = o->name;
    }
    if (meant)
        return tl_fail(ctx, TL_EINVAL, "backend '%s' has no option '%s'; did you mean '%s'?",
                       b->name, key, meant);
    return tl_fail(ctx, TL_EINVAL, "backend '%s' has no option '%s'; its options: %s", b->name, key,
                   list[0] ? list : "none");
}

/* ---- All values ------------------------------------------------------------------------------ */

/* Returns the index of key in the table, or -1. */
static int option_find(const tl_tno_backend *b, const char *key, size_t len)
{
    const tl_option *o = b->options;
    for (int i = 0; o && o[i].name; i++)
        if (strlen(o[i].name) == len && strncmp(o[i].name, key, len) == 0) return i;
    return -1;
}

/* Sets chosen[i] to the text given for option i. */
static tl_status read_given(tl_ctx *ctx, const tl_tno_backend *b, const char *const *given,
                            const char **chosen)
{
    for (; *given; given++) {
        size_t len = strcspn(*given, "=");
        char   key[64];
        int    i = option_find(b, *given, len);
        (void)snprintf(key, sizeof key, "%.*s", len < 60 ? (int)len : 60, *given);
        if (i < 0) return fail_unknown(ctx, b, key);
        if ((*given)[len] != '=')
            return tl_fail(ctx, TL_EINVAL, "backend '%s': option '%s' has no '=value'", b->name,
                           key);
        chosen[i] = *given + len + 1;
    }
    return TL_OK;
}

void tl_options_free(const tl_tno_backend *backend, tl_option_value *values)
{
    const tl_option *o = backend->options;
    if (!values) return;
    for (int i = 0; o && o[i].name; i++)
        if (o[i].type == 's') free((void *)values[i].s);
    free(values);
}

tl_status tl_options_parse(tl_ctx *ctx, const tl_tno_backend *backend, const char *const *given,
                           tl_option_value **out_values)
{
    static const char *const none[] = {NULL};
    locale_t         before = tl_plain_begin();
    const tl_option *o = backend->options;
    size_t           count = 0;
    while (o && o[count].name) count++;
    const char     **chosen = calloc(count + 1, sizeof *chosen);
    tl_option_value *values = calloc(count + 1, sizeof *values);
    tl_status st = chosen && values ? TL_OK : tl_fail(ctx, TL_ENOMEM, "out of memory");
    if (st == TL_OK) st = read_given(ctx, backend, given ? given : none, chosen);
    for (size_t i = 0; i < count && st == TL_OK; i++) {
        const char     *text = chosen[i] ? chosen[i] : o[i].preset ? o[i].preset : "";
        tl_option_value v = {0};
        if (!parse_value(&o[i], text, &v)) {
            st = fail_value(ctx, backend, &o[i], text);
        } else if (o[i].type == 's' && !(v.s = strdup(text))) {
            st = tl_fail(ctx, TL_ENOMEM, "out of memory");
        } else {
            values[i] = v;
        }
    }
    free((void *)chosen);
    tl_plain_end(before);
    if (st == TL_OK)
        *out_values = values;
    else
        tl_options_free(backend, values);
    return st;
}

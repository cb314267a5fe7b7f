/* plugin.c - finds, checks and loads the plugins of backends. A plugin that was loaded stays mapped
** until the process ends, because its threads, and the threads of its libraries, may still run when
** the last context closes. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/shared.h"
#include "engine/option.h"
#include "engine/plugin.h"

#define WRITTEN(number) #number
#define NUMBER(macro) WRITTEN(macro)

/* ---- One file -------------------------------------------------------------------------------- */

static int is_word(const char *s)
{
    if (!s || *s < 'a' || *s > 'z') return 0;
    while ((*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9') || *s == '_') s++;
    return *s == 0;
}

static int is_domain(const char *s)
{
    return strcmp(s, "lag") == 0 || strcmp(s, "warp") == 0 || strcmp(s, "frequency") == 0;
}

/* Returns what is wrong with the table of a backend, or NULL. */
static const char *entry_fault(const tl_tno_backend *b)
{
    int params = 0;
    while (b->params && b->params[params].name) params++;
    if (!is_word(b->name)) return "its name is not a lower-case word";
    if (strcmp(b->name, "auto") == 0) return "the name 'auto' is reserved";
    if (!b->summary || !b->domain) return "it lacks a summary or a domain";
    if (!is_domain(b->domain)) return "its domain is not \"lag\", \"warp\" or \"frequency\"";
    if (!b->accepts || !b->points) return "it lacks accepts or points";
    if (!b->plan || !b->forward || !b->backward || !b->release)
        return "it lacks plan, forward, backward or release";
    if (params > TL_TNO_PARAMS) return "it has more than " NUMBER(TL_TNO_PARAMS) " parameters";
    return NULL;
}

static const tl_plugin *plugin_named(const tl_ctx *ctx, const char *name)
{
    const tl_plugin *p = ctx->plugins;
    while (p && strcmp(p->entry->name, name) != 0) p = p->next;
    return p;
}

static tl_status plugin_check(tl_ctx *ctx, const tl_tno_backend *b, const char *path)
{
    const char *why = entry_fault(b);
    if (why) return tl_fail(ctx, TL_EBACKEND, "%s: %s", path, why);
    const tl_plugin *twin = plugin_named(ctx, b->name);
    if (twin)
        return tl_fail(ctx, TL_EBACKEND, "%s: a backend named '%s' is already loaded from %s", path,
                       b->name, twin->path);
    return TL_OK;
}

static tl_status plugin_add(tl_ctx *ctx, const tl_tno_backend *b, const char *path)
{
    tl_plugin **last = &ctx->plugins;
    tl_plugin  *p = malloc(sizeof *p);
    char       *copy = strdup(path);
    if (!p || !copy) {
        free(p);
        free(copy);
        return tl_fail(ctx, TL_ENOMEM, "%s: out of memory", path);
    }
    while (*last) last = &(*last)->next;
    *p = (tl_plugin){.entry = b, .path = copy};
    *last = p;
    return TL_OK;
}

tl_status tl_backend_load(tl_ctx *ctx, const char *path)
{
    static const tl_shared_kind kind = {"a backend", "tl_tno_backend_entry", TL_TNO_ABI,
                                        TL_EBACKEND};
    const void *b = NULL;
    void       *file = NULL;
    tl_status   st = tl_shared_open(ctx, &kind, path, path, &file, &b);
    if (st == TL_OK) st = plugin_check(ctx, b, path);
    if (st == TL_OK) st = plugin_add(ctx, b, path);
    if (st != TL_OK) tl_shared_close(file); /* safe, because none of its code has run */
    return st;
}

/* ---- Problems -------------------------------------------------------------------------------- */

/* Appends the context's message to the problems and clears it. */
static tl_status add_problem(tl_ctx *ctx)
{
    char  *copy = strdup(ctx->message);
    char **all = realloc(ctx->problems, (size_t)(ctx->problem_count + 1) * sizeof *all);
    if (all) ctx->problems = all;
    if (!copy || !all) {
        free(copy);
        return TL_ENOMEM;
    }
    all[ctx->problem_count++] = copy;
    ctx->message[0] = 0;
    return TL_OK;
}

const char *tl_backend_problem(const tl_ctx *ctx, int i)
{
    return i >= 0 && i < ctx->problem_count ? ctx->problems[i] : NULL;
}

int tl_backend_problem_count(const tl_ctx *ctx) { return ctx->problem_count; }

/* ---- The search path ------------------------------------------------------------------------- */

static int shared_object(const struct dirent *e)
{
    size_t len = strlen(e->d_name);
    return e->d_name[0] != '.' && len > 3 && strcmp(e->d_name + len - 3, ".so") == 0;
}

static tl_status load_folder(tl_ctx *ctx, const char *folder)
{
    struct dirent **files;
    tl_status       st = TL_OK;
    int             count = scandir(folder, &files, shared_object, alphasort);
    if (count < 0) {
        (void)tl_fail(ctx, TL_EBACKEND, "%s: %s", folder, strerror(errno));
        return add_problem(ctx);
    }
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        int  n = snprintf(path, sizeof path, "%s/%s", folder, files[i]->d_name);
        struct stat s; /* opening a pipe or a device would block */
        int regular = n > 0 && n < PATH_MAX && stat(path, &s) == 0 && S_ISREG(s.st_mode);
        if (st == TL_OK && regular) {
            st = tl_backend_load(ctx, path);
            if (st == TL_EBACKEND) st = add_problem(ctx);
        }
        free(files[i]);
    }
    free(files);
    return st;
}

static tl_status load_listed(tl_ctx *ctx, const char *folders)
{
    char     *copy = strdup(folders), *rest = copy;
    tl_status st = copy ? TL_OK : TL_ENOMEM;
    while (st == TL_OK && rest) {
        char *folder = strsep(&rest, ":");
        if (*folder) st = load_folder(ctx, folder);
    }
    free(copy);
    return st;
}

/* The backends in a static library, whose own table takes the place of this one
** (cmake/static.cmake). */
__attribute__((weak)) const tl_tno_backend *const tl_linked_backends[] = {NULL};

tl_status tl_plugins_open(tl_ctx *ctx)
{
    char        folder[PATH_MAX];
    const char *listed = getenv("TOEPLAB_BACKENDS");
    tl_status   st = TL_OK;
    for (const tl_tno_backend *const *b = tl_linked_backends; *b && st == TL_OK; b++)
        st = plugin_add(ctx, *b, "the program");
    if (st == TL_OK && tl_beside_library("backends", folder, sizeof folder))
        st = load_folder(ctx, folder);
    if (st == TL_OK && listed) st = load_listed(ctx, listed);
    return st;
}

void tl_plugins_close(tl_ctx *ctx)
{
    while (ctx->plugins) {
        tl_plugin *p = ctx->plugins;
        ctx->plugins = p->next;
        free(p->path);
        free(p);
    }
    while (ctx->problem_count > 0) free(ctx->problems[--ctx->problem_count]);
    free(ctx->problems);
    ctx->problems = NULL;
}

/* ---- Queries --------------------------------------------------------------------------------- */

static const tl_plugin *plugin_at(const tl_ctx *ctx, int i)
{
    const tl_plugin *p = i < 0 ? NULL : ctx->plugins;
    for (; p && i > 0; i--) p = p->next;
    return p;
}

int tl_backend_count(const tl_ctx *ctx)
{
    int count = 0;
    while (plugin_at(ctx, count)) count++;
    return count;
}

const char *tl_backend_name(const tl_ctx *ctx, int i)
{
    const tl_plugin *p = plugin_at(ctx, i);
    return p ? p->entry->name : NULL;
}

const char *tl_backend_summary(const tl_ctx *ctx, int i)
{
    const tl_plugin *p = plugin_at(ctx, i);
    return p ? p->entry->summary : NULL;
}

const char *tl_backend_path(const tl_ctx *ctx, int i)
{
    const tl_plugin *p = plugin_at(ctx, i);
    return p ? p->path : NULL;
}

int tl_backend_option(const tl_ctx *ctx, int i, int j, const char **out_name, const char **out_type,
                      const char **out_default, const char **out_range, const char **out_help)
{
    const tl_plugin *p = plugin_at(ctx, i);
    const tl_option *o = p ? p->entry->options : NULL;
    for (; o && o->name && j > 0; j--) o++;
    if (!o || !o->name || j < 0) return 0;
    *out_name = o->name;
    *out_type = o->type == 'i' ? "integer" : o->type == 'f' ? "number" : o->type == 'b' ? "boolean"
                                                                                        : "word";
    *out_default = o->preset;
    *out_range = o->range;
    *out_help = o->help;
    return 1;
}

const tl_transforms *tl_find_transforms(const tl_ctx *ctx)
{
    const tl_plugin *p = ctx->plugins;
    while (p && !p->entry->transforms) p = p->next;
    return p ? p->entry->transforms : NULL;
}

tl_status tl_find_backend(tl_ctx *ctx, const char *name, const tl_tno_backend **out_backend)
{
    char             list[512] = "";
    const tl_plugin *p = plugin_named(ctx, name);
    const char      *meant = NULL;
    int              best = INT_MAX, problems = tl_backend_problem_count(ctx);
    if (p) {
        *out_backend = p->entry;
        return TL_OK;
    }
    for (p = ctx->plugins; p; p = p->next) {
        size_t len = strlen(list);
        (void)snprintf(list + len, sizeof list - len, "%s%s", len ? ", " : "", p->entry->name);
        if (tl_nearer(name, p->entry->name, &best)) meant = p->entry->name;
    }
    char hint[96] = "", more[96] = "";
    if (meant) (void)snprintf(hint, sizeof hint, " did you mean '%s'?", meant);
    if (problems)
        (void)snprintf(more, sizeof more, "; %d plugin file%s could not be used", problems,
                       problems == 1 ? "" : "s");
    return tl_fail(ctx, TL_EBACKEND, "no backend is named '%s';%s present: %s%s", name, hint,
                   list[0] ? list : "none", more);
}

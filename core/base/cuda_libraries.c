/* cuda_libraries.c - finds CUDA's libraries where the loader does not look: beside PyTorch, whose
** packages hold them, and in toolkits. A library that is loaded serves later objects that link its
** name, wherever it came from. */
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/shared.h"

#define MAX_DEPTH 8 /* libraries of libraries, and libraries of one object */

static void *load(const char *path, int depth, char *reason, size_t size);

/* Loads the first file that the pattern matches. */
static int load_match(const char *pattern, int depth)
{
    char   reason[PATH_MAX]; /* the next folder may have another */
    glob_t found;
    int    loaded = 0;
    if (glob(pattern, 0, NULL, &found) != 0) return 0;
    for (size_t i = 0; i < found.gl_pathc && !loaded; i++)
        loaded = load(found.gl_pathv[i], depth, reason, sizeof reason) != NULL;
    globfree(&found);
    return loaded;
}

/* Looks for a library in root/folders, a pattern. */
static int load_in(const char *root, const char *folders, const char *name, int depth)
{
    char pattern[PATH_MAX];
    int  n = snprintf(pattern, sizeof pattern, "%s%s/%s", root, folders, name);
    return n > 0 && n < (int)sizeof pattern && load_match(pattern, depth);
}

/* Looks below the installation of Python at prefix. Packages of CUDA 12 have a folder for each
** library, later ones a folder for all. */
static int load_from_python(const char *prefix, const char *name, int depth)
{
    return load_in(prefix, "/lib/python3*/[sd]*-packages/nvidia/*/lib", name, depth);
}

/* Calls of(item, name, depth) for each item of a list separated by colons, until one loads. */
static int each_item(const char *list, int (*of)(const char *, const char *, int),
                     const char *name, int depth)
{
    char item[PATH_MAX];
    int  loaded = 0;
    while (list && *list && !loaded) {
        size_t len = strcspn(list, ":");
        if (len > 0 && len < sizeof item) {
            memcpy(item, list, len);
            item[len] = 0;
            loaded = of(item, name, depth);
        }
        list += len + (list[len] == ':');
    }
    return loaded;
}

static int load_from_folder(const char *folder, const char *name, int depth)
{
    return load_in(folder, "", name, depth);
}

/* Looks beside the Python whose programs are in folder, an item of PATH. */
static int load_beside_program(const char *folder, const char *name, int depth)
{
    char python[PATH_MAX];
    int  n = snprintf(python, sizeof python, "%s/python3", folder);
    if (n < 0 || n >= (int)sizeof python || access(python, X_OK) != 0) return 0;
    (void)snprintf(python, sizeof python, "%s/..", folder);
    return load_from_python(python, name, depth);
}

static int load_from_toolkit(const char *root, const char *name, int depth)
{
    return load_in(root, "/lib64", name, depth) || load_in(root, "/lib", name, depth) ||
           load_in(root, "/targets/*/lib", name, depth);
}

static int load_missing(const char *name, int depth)
{
    const char *home = getenv("HOME");
    return each_item(getenv("TOEPLAB_CUDA"), load_from_folder, name, depth) ||
           each_item(getenv("VIRTUAL_ENV"), load_from_python, name, depth) ||
           each_item(getenv("CONDA_PREFIX"), load_from_python, name, depth) ||
           each_item(getenv("PATH"), load_beside_program, name, depth) ||
           (home && load_in(home, "/.local/lib/python3*/site-packages/nvidia/*/lib", name,
                            depth)) ||
           load_from_python("/usr/local", name, depth) ||
           each_item(getenv("CUDA_HOME"), load_from_toolkit, name, depth) ||
           each_item(getenv("CUDA_PATH"), load_from_toolkit, name, depth) ||
           each_item("/usr/local/cuda:/usr/local/cuda-*:/opt/cuda", load_from_toolkit, name, depth);
}

/* Whether a message of the loader says that a library of CUDA is missing; copies its name. */
static int is_missing(const char *why, char *name, size_t size)
{
    static const char *const begins[] = {"libcudart.", "libcublas", "libcufft.", "libnccl.",
                                         "libnv"};
    const char *end = strstr(why, ": cannot open shared object file");
    size_t      len = end ? (size_t)(end - why) : 0;
    int         is_cuda = 0;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        is_cuda = is_cuda || strncmp(why, begins[i], strlen(begins[i])) == 0;
    if (!is_cuda || len == 0 || len >= size || memchr(why, '/', len)) return 0;
    memcpy(name, why, len);
    name[len] = 0;
    return 1;
}

static void *load(const char *path, int depth, char *reason, size_t size)
{
    char name[NAME_MAX + 1];
    for (int i = 0;; i++) {
        void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (file) return file;
        const char *why = dlerror();
        (void)snprintf(reason, size, "%s", why ? why : "it cannot be opened");
        if (!is_missing(reason, name, sizeof name)) return NULL;
        if (i == MAX_DEPTH || depth == MAX_DEPTH || !load_missing(name, depth + 1)) break;
    }
    size_t len = strlen(reason);
    (void)snprintf(reason + len, size - len, ", neither beside PyTorch nor in a CUDA toolkit "
                   "(TOEPLAB_CUDA=FOLDER:FOLDER names further folders)");
    return NULL;
}

void *tl_open_with_cuda(const char *path, char *reason, size_t size)
{
    return load(path, 0, reason, size);
}

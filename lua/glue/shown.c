/* shown.c - formats the numbers of a tensor for print, leaving out the middle of long rows, of
** many rows and of many matrices. */
#include <stdio.h>

#include "glue.h"

enum { EDGE = 4, MATRICES = 2 }; /* how many are shown at each end */

/* Reads one element per call: few are shown, and the read also works for a tensor on a GPU. */
static void add_number(lua_State *L, luaL_Buffer *out, tl_tensor *t, int64_t i)
{
    char    text[32];
    float   f = 0;
    int32_t id = 0;
    int     real = tl_tensor_type(t) == TL_F32;
    glue_check(L, tl_tensor_read(t, i, 1, real ? (void *)&f : (void *)&id));
    if (real)
        (void)snprintf(text, sizeof text, " %10.4g", (double)f);
    else
        (void)snprintf(text, sizeof text, " %6d", (int)id);
    luaL_addstring(out, text);
}

static void add_row(lua_State *L, luaL_Buffer *out, tl_tensor *t, int64_t first, int64_t count)
{
    luaL_addchar(out, '\n');
    for (int64_t i = 0; i < count; i++) {
        if (i == EDGE && count > 2 * EDGE) {
            luaL_addstring(out, " ...");
            i = count - EDGE;
        }
        add_number(L, out, t, first + i);
    }
}

static void add_matrix(lua_State *L, luaL_Buffer *out, tl_tensor *t, int64_t first)
{
    int     axes = tl_tensor_ndim(t);
    int64_t rows = axes < 2 ? 1 : tl_tensor_dim(t, axes - 2);
    int64_t columns = axes < 1 ? 1 : tl_tensor_dim(t, axes - 1);
    for (int64_t i = 0; i < rows; i++) {
        if (i == EDGE && rows > 2 * EDGE) {
            luaL_addstring(out, "\n         ...");
            i = rows - EDGE;
        }
        add_row(L, out, t, first + i * columns, columns);
    }
}

/* Adds the position of matrix number m of a tensor of more than two axes: "(1,3,.,.)". */
static void add_position(luaL_Buffer *out, const tl_tensor *t, int64_t m)
{
    char    text[TL_MAXDIMS][24];
    int     leading = tl_tensor_ndim(t) - 2;
    for (int axis = leading - 1; axis >= 0; axis--) {
        int64_t count = tl_tensor_dim(t, axis);
        (void)snprintf(text[axis], sizeof text[axis], "%lld,", (long long)(m % count + 1));
        m /= count;
    }
    luaL_addstring(out, "\n(");
    for (int axis = 0; axis < leading; axis++) luaL_addstring(out, text[axis]);
    luaL_addstring(out, ".,.)");
}

void glue_add_numbers(lua_State *L, luaL_Buffer *out, tl_tensor *t)
{
    int     axes = tl_tensor_ndim(t);
    int64_t count = 1, len = tl_tensor_len(t);
    for (int axis = 0; axis < axes - 2; axis++) count *= tl_tensor_dim(t, axis);
    if (len == 0) return;
    for (int64_t m = 0; m < count; m++) {
        if (m == MATRICES && count > 2 * MATRICES) {
            luaL_addstring(out, "\n...");
            m = count - MATRICES;
        }
        if (axes > 2) add_position(out, t, m);
        add_matrix(L, out, t, m * (len / count));
    }
}

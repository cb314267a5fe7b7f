/* core.c - opens the module toeplab.core, which joins the functions and classes of the other
** files. */
#include <locale.h>
#include <string.h>

#include "rows.h"

/* ---- The context ----------------------------------------------------------------------------- */

static void set_integer(lua_State *L, const char *name, lua_Integer value)
{
    lua_pushinteger(L, value);
    lua_setfield(L, -2, name);
}

static int memory(lua_State *L)
{
    tl_memory m = tl_memory_info(glue_ctx(L));
    lua_createtable(L, 0, 5);
    set_integer(L, "live", (lua_Integer)m.live);
    set_integer(L, "peak", (lua_Integer)m.peak);
    set_integer(L, "cached", (lua_Integer)m.cached);
    set_integer(L, "tensors", m.tensors);
    set_integer(L, "system", m.system);
    return 1;
}

GLUE_CALL(memory_reset_peak, , tl_memory_reset_peak(glue_ctx(L)))
GLUE_CALL(memory_trim, , tl_memory_trim(glue_ctx(L)))

/* profiler_range(name or nil): see tl_range */
GLUE_CALL(profiler_range, OPT_STRING(name), tl_range(glue_ctx(L), name))

/* A second start would discard the counts of the first. */
static int profile_start(lua_State *L)
{
    tl_kernel_time t;
    if (tl_profile_kernel(glue_ctx(L), 0, &t))
        return luaL_error(L, "profile: one is running already; profiles cannot be nested");
    glue_check(L, tl_profile_start(glue_ctx(L)));
    return 0;
}

/* Ends the profile and returns {{name=, calls=, seconds=, bytes=}, ..}, the kernels that were
** called. */
static int profile_stop(lua_State *L)
{
    tl_kernel_time t;
    int            n = 0;
    lua_newtable(L);
    for (int i = 0; tl_profile_kernel(glue_ctx(L), i, &t); i++) {
        if (t.calls == 0) continue;
        lua_createtable(L, 0, 4);
        lua_pushstring(L, t.name);
        lua_setfield(L, -2, "name");
        set_integer(L, "calls", t.calls);
        lua_pushnumber(L, t.seconds);
        lua_setfield(L, -2, "seconds");
        lua_pushnumber(L, t.bytes);
        lua_setfield(L, -2, "bytes");
        lua_rawseti(L, -2, ++n);
    }
    tl_profile_stop(glue_ctx(L));
    return 1;
}

GLUE_CALL(threads, , lua_pushinteger(L, tl_threads(glue_ctx(L))))

/* Makes a field of each line "name value". */
static void set_lines(lua_State *L, const char *line)
{
    while (*line) {
        size_t length = strcspn(line, "\n"), name = strcspn(line, " \n");
        size_t value = name < length ? name + 1 : name;
        lua_pushlstring(L, line, name);
        lua_pushlstring(L, line + value, length - value);
        lua_rawset(L, -3);
        line += length + (line[length] == '\n');
    }
}

static int build_info(lua_State *L)
{
    char lab[256];
    lua_newtable(L);
    set_lines(L, tl_build_info(glue_ctx(L)));
    set_lines(L, tl_lab_info(lab, sizeof lab));
    return 1;
}

/* ---- The module ------------------------------------------------------------------------------ */

static void open_tensor_class(lua_State *L)
{
    glue_class_open(L, &glue_tensor_class);
    luaL_getmetatable(L, glue_tensor_class.name);
    glue_arithmetic_open(L);
    lua_getfield(L, -1, "__index");
    glue_set(L, glue_grad_methods);
    glue_set(L, glue_ops_methods);
    glue_reduce_open(L);
    glue_unary_open(L);
    glue_compare_open(L);
    lua_pop(L, 2);
}

static void open_classes(lua_State *L)
{
    static const glue_class *const classes[] = {&glue_tno_class, &glue_recurrence_class,
                                                &glue_vocab_class, &glue_h5_class,
                                                &glue_store_class,
                                                &glue_encoder_class, &glue_counter_class,
                                                &glue_graph_class, &glue_images_class,
                                                &glue_ranks_class};
    open_tensor_class(L);
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) glue_class_open(L, classes[i]);
    glue_error_open(L);
    glue_scope_open(L);
    glue_grad_open(L);
    glue_random_open(L);
    glue_sys_open(L);
    glue_process_open(L);
}

static const luaL_Reg functions[] = {
    {"memory", memory},   {"memory_reset_peak", memory_reset_peak}, {"memory_trim", memory_trim},
    {"threads", threads}, {"build_info", build_info},
    {"profile_start", profile_start}, {"profile_stop", profile_stop},
    {"profiler_range", profiler_range}, {NULL, NULL},
};

/* Lua formats and reads numbers, and compares strings, by the locale. This thread does so as in "C"
** from here on, also if the program around us or os.setlocale chooses another one. */
static void keep_plain(void)
{
    locale_t now = uselocale((locale_t)0);
    if (now != LC_GLOBAL_LOCALE && *localeconv()->decimal_point == '.') return;
    now = newlocale(LC_NUMERIC_MASK | LC_COLLATE_MASK, "C", duplocale(now));
    if (now) (void)uselocale(now);
}

int glue_core_open(lua_State *L)
{
    static const luaL_Reg *const lists[] = {
        functions,            glue_error_functions, glue_tensor_functions, glue_grad_functions,
        glue_ops_functions,
        glue_nn_functions,    glue_optim_functions,  glue_random_functions, glue_tno_functions,
        glue_recurrence_functions,
        glue_text_functions,  glue_files_functions,  glue_store_functions, glue_svd_functions,
        glue_listops_functions, glue_device_functions, glue_graph_functions,
        glue_images_functions, glue_ranks_functions,
    };
    luaL_checkversion(L);
    keep_plain();
    tl_set_first_axis(glue_ctx(L), 1);
    open_classes(L);
    lua_newtable(L);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) glue_set(L, lists[i]);
    glue_unary_open(L);
    glue_binary_open(L);
    glue_compare_open(L);
    lua_newtable(L);
    glue_set(L, glue_sys_functions);
    glue_set(L, glue_clean_functions);
    glue_set(L, glue_process_functions);
    glue_set(L, glue_signal_functions);
    lua_setfield(L, -2, "sys");
    lua_pushliteral(L, TL_VERSION);
    lua_setfield(L, -2, "version");
    lua_pushinteger(L, TL_NUMERICS);
    lua_setfield(L, -2, "numerics");
    return 1;
}

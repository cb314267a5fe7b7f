/* glue.h - declares what the files of lua/glue share: how C objects live in Lua, and how arguments
** are read.
**
** A function in Lua binds the engine's function of the same name: toeplab.h has its formula, shapes
** and errors, and docs/reference its arguments in Lua.
**
** Rules for every function of the glue
**   - Upvalue 1 is the context. For functions of a family (silu, relu, ...) upvalue 2 is the kind.
**   - Check the arguments first, push boxes second, call the engine last. Any push can raise a Lua
**     error, because memory can run out; then every object is in a box whose __gc releases it.
**   - Only glue_check turns a status into a Lua error.
**   - Axes and positions count from 1 in Lua, negative axes from the end; token ids and indices are
**     data and count from 0, and so do offsets (tensor:view, listops_text). */
#ifndef TL_GLUE_H
#define TL_GLUE_H

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "toeplab-lab.h"

/* ---- Modules and classes --------------------------------------------------------------------- */

/* Opens toeplab.core. Upvalue 1 is the context, a light userdata that outlives the Lua state. */
int glue_core_open(lua_State *L);

tl_ctx *glue_ctx(lua_State *L);
/* Raises an error object {status = "ENOSPC", message = tl_errmsg} unless st is TL_OK. Its text
** is the message. */
void    glue_check(lua_State *L, tl_status st);
/* Raises the error that a gradient function of the script has raised, if there is one (grad.c). */
void    glue_raise_pending(lua_State *L);
/* Pushes and returns the message of the error object at arg; returns NULL and pushes nothing if
** the value is not an error object. */
const char *glue_error_text(lua_State *L, int arg);
/* Like luaL_argerror, with a format of lua_pushfstring. */
int     glue_argerror(lua_State *L, int arg, const char *format, ...);
/* Sets the functions of list in the table at the top, each with the context as upvalue 1. */
void    glue_set(lua_State *L, const luaL_Reg *list);
/* Makes the metatable of that name with the fields meta and the methods methods; NULL: none. */
void    glue_metatable(lua_State *L, const char *name, const luaL_Reg *meta,
                       const luaL_Reg *methods);
/* Sets field name of the table at the top to function f with upvalues context and kind. */
void    glue_set_kind(lua_State *L, const char *name, lua_CFunction f, int kind);

/* A full userdata that owns one object of the engine. It is empty until the object is made, and
** again once it is closed. */
typedef struct glue_box {
    union {
        void      *any;
        tl_tensor *tensor;
        tl_tno    *tno;
        tl_recurrence *recurrence;
        tl_vocab  *vocab;
        tl_encoder *encoder;
        tl_counter *counter;
        tl_h5     *h5;
        tl_store  *store;
        tl_graph  *graph;
        tl_images *images;
        tl_ranks  *ranks;
    } as;
    int busy; /* > 0: a caller on the stack uses the object, so it may not be closed */
} glue_box;

typedef struct glue_class {
    const char     *name;              /* name of the metatable: "toeplab.tensor" */
    void          (*release)(glue_box *b);
    const luaL_Reg *methods;           /* without close, which is added */
    const luaL_Reg *meta;              /* without __gc and __close, which are added; NULL: none */
} glue_class;

extern const glue_class glue_tensor_class, glue_tno_class, glue_vocab_class, glue_h5_class,
    glue_store_class, glue_encoder_class, glue_counter_class, glue_recurrence_class,
    glue_graph_class, glue_images_class, glue_ranks_class;

void      glue_class_open(lua_State *L, const glue_class *class); /* makes the metatable */
glue_box *glue_push(lua_State *L, const glue_class *class);       /* pushes an empty box */
/* The box at arg; raises if it is of another class or closed. */
glue_box *glue_open_box(lua_State *L, int arg, const glue_class *class);

/* ---- Tensors --------------------------------------------------------------------------------- */

tl_tensor *glue_tensor(lua_State *L, int arg);
tl_tensor *glue_opt_tensor(lua_State *L, int arg); /* NULL for nil or none */
int        glue_is_tensor(lua_State *L, int arg);
tl_tensor *glue_test_tensor(lua_State *L, int index); /* NULL: not an open tensor */
/* Returns the elements of t, which are copied to the CPU first. Raises if that fails. */
const void *glue_elements(lua_State *L, tl_tensor *t);
/* Adds lines with the numbers of t to out, leaving out the middle of large ones (shown.c).
** Raises if t cannot be read. */
void       glue_add_numbers(lua_State *L, luaL_Buffer *out, tl_tensor *t);
/* Returns the tensors of the array at arg, in a block that is pushed. */
tl_tensor **glue_tensors(lua_State *L, int arg, int *out_count);

tl_tensor **glue_push_tensor(lua_State *L); /* pushes an empty box, for an operator's result */
/* Ends a function whose result is the tensor box at the top: raises if st is not TL_OK, reports
** the tensor's memory to Lua's collector, returns 1. */
int         glue_result(lua_State *L, tl_status st);

tl_stream *glue_test_stream(lua_State *L, int arg); /* NULL: not a stream (random.c) */

/* ---- Arguments ------------------------------------------------------------------------------- */

int glue_int(lua_State *L, int arg, int min, int max);
int glue_opt_int(lua_State *L, int arg, int preset, int min, int max);
/* Reads the axis at arg for a tensor of ndim axes and returns it as the engine counts:
** 0..ndim-1. */
int glue_axis(lua_State *L, int arg, int ndim);
/* Reads true or false, or nil or none for false. name: of the argument, for the error. */
int glue_flag(lua_State *L, int arg, const char *name);
/* Raises if the function has more than arg arguments. */
void glue_last(lua_State *L, int arg);
/* Reads dimensions given as a table at arg, or as the numbers from arg on; returns how many. */
int glue_dims(lua_State *L, int arg, int64_t dims[TL_MAXDIMS]);
int glue_unary_kind(lua_State *L, int arg);
/* Raises unless every key of the option table at arg is among names (ended by NULL). */
void   glue_known(lua_State *L, int arg, const char *const *names);
/* Read the numeric option name of the table at arg. If preset is NULL, the option is required. */
double glue_number_field(lua_State *L, int arg, const char *name, const double *preset);
int64_t glue_integer_field(lua_State *L, int arg, const char *name, const int64_t *preset);
/* Pushes a sorted array of the keys of the table at arg. Raises if a key is not a string. */
void glue_sorted_keys(lua_State *L, int arg);
int glue_interrupted(void); /* whether a caught signal asks the program to end */
/* Whether standard output is closed, which the program was to outlive (core.sys.outlive_output). */
int glue_output_outlived(void);
void glue_sort(lua_State *L); /* sorts the array at the top */

/* Pushes the text with control characters and invalid UTF-8 escaped (clean.c). */
void glue_clean(lua_State *L, const char *text, size_t length);

/* ---- Settings of the context ----------------------------------------------------------------- */

typedef int (*glue_setting)(tl_ctx *ctx, int value); /* sets a value, returns the previous one */
/* Calls the function at arg with the arguments behind it while a setting has another value.
** Returns the number of results, which are at the top. */
int glue_scope(lua_State *L, int arg, glue_setting set, int value);

/* ---- The parts of the module ----------------------------------------------------------------- */

extern const luaL_Reg glue_error_functions[], glue_tensor_functions[], glue_grad_functions[],
    glue_ops_functions[], glue_nn_functions[], glue_optim_functions[], glue_random_functions[],
    glue_tno_functions[], glue_recurrence_functions[], glue_text_functions[],
    glue_files_functions[], glue_store_functions[],
    glue_sys_functions[], glue_listops_functions[], glue_svd_functions[], glue_device_functions[],
    glue_process_functions[], glue_signal_functions[], glue_graph_functions[],
    glue_clean_functions[], glue_images_functions[], glue_ranks_functions[];
extern const luaL_Reg glue_grad_methods[], glue_ops_methods[];

/* These add families of functions, which differ in their kind, to the table at the top. */
/* silu, exp, ...: for the module and the tensors' methods */
void glue_unary_open(lua_State *L);
void glue_reduce_open(lua_State *L);     /* sum, mean, amax: for the tensors' methods */
void glue_binary_open(lua_State *L);     /* max, min: for the module */
void glue_compare_open(lua_State *L);    /* lt .. ne, pow: for both */
void glue_arithmetic_open(lua_State *L); /* __add .. __pow: for the tensors' metatable */
/* These make the metatables that are not a glue_class. The stack is unchanged. */
void glue_error_open(lua_State *L);
void glue_scope_open(lua_State *L);
void glue_grad_open(lua_State *L);
void glue_random_open(lua_State *L);
void glue_sys_open(lua_State *L);
void glue_process_open(lua_State *L);

#define GLUE_CHANNEL 3 /* the descriptor by which a worker, or verify, sends to its parent */

int glue_executable(char *path, size_t size); /* the path of this program; 0: unknown, see errno */
/* The field of the registry by which another interpreter says where the program toeplab is: a path,
** or false if there is none. */
#define GLUE_PROGRAM "toeplab.program"
/* The number of threads in text; -1: not a valid number. */
int glue_threads(const char *text);
#define GLUE_THREADS_ERROR "the number of threads must be 1 to 4096, not '%s'"

#endif

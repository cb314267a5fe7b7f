/* toeplab.h - the public API of libtoeplab, the engine of Toeplab.
**
** The engine offers dense tensors, operators with gradients, optimisers, random streams, groups of
** processes, and Toeplitz neural operators computed by plugins (backend.h). Text, data sets, files
** of tensors and the store of runs are in a second library (toeplab-lab.h); layers, models,
** training loops and Lua are in neither.
**
** These conventions hold for every function unless its comment says otherwise:
**   - A function that can fail returns a tl_status; tl_errmsg(ctx) returns the message, which
**     contains the numbers.
**   - out_x is written only on TL_OK; the caller then owns it and releases it with the matching
**     _free function.
**   - _free(NULL) does nothing. No function changes its inputs. _retain adds an owner. _view
**     returns a tensor that shares storage.
**   - A tensor is dense and row-major, float32 or int32, and has 0 to TL_MAXDIMS dimensions; 0
**     dimensions mean a scalar. Every dimension is at least 0; an operator says when it needs more.
**   - Shapes use these letters: b batch, n length, d channels, h heads, r inducing points, m taps,
**     v vocabulary, p points.
**   - An operator is recorded on the context's tape when one of its float32 inputs requires a
**     gradient (see Gradients).
**   - Any operator may return these errors, which comments do not repeat: TL_ENOMEM; TL_ESHAPE,
**     shapes do not agree; TL_ETYPE, float32 was given for int32 or the reverse; TL_EDEVICE, the
**     device lacks it; TL_EINVAL, no such axis, or a recorded result was changed in place.
**   - A struct of options begins with its own size, so that a later version may add members.
**     TL_EINVAL: the library knows no such size.
**   - Only one thread at a time may use a context and what belongs to it; its threads
**     run inside the engine. */
#ifndef TOEPLAB_H
#define TOEPLAB_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Marks what the library exports. */
#if defined(__GNUC__)
#define TL_API __attribute__((visibility("default")))
#else
#define TL_API
#endif

#define TL_VERSION "0.1.0"
#define TL_VERSION_NUMBER 100 /* 10000 major + 100 minor + patch */

/* Returns TL_VERSION_NUMBER of the library, which may differ from the version of this header. */
TL_API int tl_version(void);

/* The version of the numerical results, which is part of every trial's id. Raise it by one with
** each change, in C or in Lua, that may alter what a training run computes on any device: finished
** trials then count as new. tests/lua/trials/test_numerics.lua fails when it is forgotten. */
#define TL_NUMERICS 5

/* ---- Status (the codes are in status.h) ------------------------------------------------------ */

TL_API const char *tl_status_name(tl_status st); /* "ENOMEM" */
TL_API const char *tl_status_text(tl_status st); /* "out of memory" */

/* ---- Context --------------------------------------------------------------------------------- */

/* Owns threads, memory cache, tape and loaded backends; lives until what it made is freed. After
** fork() the child computes the same results on one thread; but a GPU, a group of ranks, and
** relaxed recurrences made before in a context of several threads belong to the parent. */
typedef struct tl_ctx tl_ctx;

/* threads 0 takes as many as the process may use processors, by affinity and container quota.
** Results are bitwise repeatable for one thread count on one machine. A program that handles
** signals must run its handlers on a stack of their own (SA_ONSTACK), for the reason given in
** core/products/onednn.c. OpenBLAS has one thread in all of the process from then on. TL_EINVAL:
** threads is not in 0..4096. TL_ENOMEM. A failure leaves no context, hence no message. */
TL_API tl_status tl_ctx_new(int threads, tl_ctx **out_ctx);
TL_API void tl_ctx_free(tl_ctx *ctx);
/* The message of the last failure, owned by ctx, e.g. "matmul: a is [4,3], b is [2,5]". */
TL_API const char *tl_errmsg(const tl_ctx *ctx);
/* Sets the number by which messages call the first axis of a tensor and the first position of an
** axis: 0 by default, 1 for a language that counts from 1. Functions count from 0 in any case. */
TL_API void tl_set_first_axis(tl_ctx *ctx, int first);
TL_API int tl_threads(const tl_ctx *ctx);
/* The limits of the process's cgroups; INFINITY where there is none. */
TL_API void tl_group_limits(double *out_processors, double *out_memory);

/* Stores a printf-style message on ctx and returns st, for: return tl_fail(ctx, ...). */
TL_API tl_status tl_fail(tl_ctx *ctx, tl_status st, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

typedef struct tl_memory {
    size_t live;     /* bytes of tensors and scratch buffers in use on the context's device */
    size_t peak;     /* the largest live since tl_memory_reset_peak */
    size_t cached;   /* freed bytes that the engine holds for reuse */
    int64_t tensors; /* tensors not yet freed */
    int64_t system;  /* number of allocations from the operating system or the GPU driver */
} tl_memory;

TL_API tl_memory tl_memory_info(const tl_ctx *ctx);
/* Returns the number of tensors not yet freed, without a call of a GPU's driver. */
TL_API int64_t tl_tensor_count(const tl_ctx *ctx);
TL_API void tl_memory_reset_peak(tl_ctx *ctx);
TL_API void tl_memory_trim(tl_ctx *ctx); /* returns the cached bytes to the system */

/* Begins a range of that name on the timeline of a profiler that reads NVTX, inside the ranges that
** have begun; NULL ends the last one. Without such a profiler, and on the CPU, nothing happens. */
TL_API void tl_range(const tl_ctx *ctx, const char *name);

/* Resets all times to 0 and times every kernel until tl_profile_stop. On a GPU the profile waits
** for each kernel to finish, so nothing overlaps. Kernels that a graph replays are not counted. */
TL_API tl_status tl_profile_start(tl_ctx *ctx);
TL_API void tl_profile_stop(tl_ctx *ctx);

typedef struct tl_kernel_time {
    const char *name;
    int64_t calls;
    double seconds; /* from launch to finish, excluding the kernels that it calls */
    double bytes;   /* of its inputs and outputs, the least that it can move */
} tl_kernel_time;

/* Reports kernel i, even if it never ran. Returns 0 and writes nothing if there is no kernel i, or
** no profile is on: tl_profile_stop discards the times. */
TL_API int tl_profile_kernel(const tl_ctx *ctx, int i, tl_kernel_time *out_time);

/* What was compiled in and what it runs on, one "name value" line each: version, numerics,
** compiler, blas, onednn ("none" if absent), transforms, cpu, threads. ctx owns the text. */
TL_API const char *tl_build_info(tl_ctx *ctx);

/* ---- Devices --------------------------------------------------------------------------------- */

/* Sets the device on which ctx computes: "cpu" (the default), "cuda", "cuda:1" for the second GPU,
** or the path of a device's shared object. Call it before the context's first tensor and operator,
** in the thread that goes on to use the context; a process uses one GPU. Tensors move between
** device and CPU as they are used. TL_EDEVICE: the message says why; the context keeps its old
** device. */
TL_API tl_status tl_set_device(tl_ctx *ctx, const char *device);
TL_API const char *tl_device_name(const tl_ctx *ctx);
/* The GPU, its driver and its libraries; "" on the CPU. */
TL_API const char *tl_device_about(tl_ctx *ctx);
TL_API tl_status tl_synchronize(tl_ctx *ctx);    /* waits until the device has finished its work */

/* Describe a device other than the CPU without opening it: the path of its shared object; how
** many GPUs there are, and about the named one; whether the device implements that backend.
** TL_EDEVICE: something is missing, and the message says what. */
TL_API tl_status tl_device_file(tl_ctx *ctx, const char *device, char *path, size_t size);
TL_API tl_status tl_device_look(tl_ctx *ctx, const char *device, int *out_gpus, char *about,
                                size_t size);
TL_API tl_status tl_device_takes(tl_ctx *ctx, const char *device, const char *backend,
                                 int *out_takes);

/* ---- Tensors --------------------------------------------------------------------------------- */

#define TL_MAXDIMS 6

typedef enum tl_type { TL_F32, TL_I32 } tl_type;
typedef struct tl_tensor tl_tensor;

/* Creates a tensor of zeros. TL_ETYPE: there is no such type of elements. */
TL_API tl_status tl_tensor_new(tl_ctx *ctx, tl_type type, int ndim, const int64_t *dims,
                               tl_tensor **out_t);
/* Creates an uninitialised tensor on the CPU, for a caller that fills it there. A context that
** computes on a GPU uploads it once, when the first kernel uses it. */
TL_API tl_status tl_tensor_new_host(tl_ctx *ctx, tl_type type, int ndim, const int64_t *dims,
                                    tl_tensor **out_t);
/* Creates a tensor on memory of the caller, which must exist until the tensor, its views and what
** the tape keeps of it are freed. A context that computes on a GPU copies it there, and does not
** write the caller's memory. TL_EINVAL: data is NULL, or not aligned to 4 bytes. */
TL_API tl_status tl_tensor_borrow(tl_ctx *ctx, tl_type type, int ndim, const int64_t *dims,
                                  void *data, tl_tensor **out_t);
/* Returns a tensor that shares t's storage from element offset on. Gradients do not flow through
** it; use tl_reshape for that. TL_ESHAPE: it does not fit into t. */
TL_API tl_status tl_tensor_view(tl_tensor *t, int64_t offset, int ndim, const int64_t *dims,
                                tl_tensor **out_t);
TL_API tl_tensor *tl_tensor_retain(tl_tensor *t);
TL_API void tl_tensor_free(tl_tensor *t);

/* Begins a scope, inside those that are open, and returns its number. Ending it frees, as by
** tl_tensor_free, each tensor that a function has returned since and that the caller has not freed
** already; scopes inside it that are still open end, too. So what the tape needs, an owner by
** tl_tensor_retain and the gradients of leaves stay, as do objects that are not tensors. References
** are counted, not told apart: after a tl_tensor_retain and a tl_tensor_free the scope frees t as
** before, so use tl_scope_keep to hand t on. The backward function of a tl_func begins outside of
** all scopes, and what it leaves open ends with it. tl_ctx_free ends all scopes. */
TL_API int tl_scope_begin(tl_ctx *ctx);
TL_API void tl_scope_end(tl_ctx *ctx, int scope);
/* Moves t from the innermost scope to the scope around it, or to the caller if there is none, and
** returns t. A tensor from elsewhere stays where it is. */
TL_API tl_tensor *tl_scope_keep(tl_tensor *t);

TL_API tl_ctx *tl_tensor_ctx(const tl_tensor *t);
TL_API tl_type tl_tensor_type(const tl_tensor *t);
TL_API int tl_tensor_ndim(const tl_tensor *t);
/* Returns the size of an axis, where -1 is the last axis; 1 if there is no such axis. */
TL_API int64_t tl_tensor_dim(const tl_tensor *t, int axis);
TL_API int64_t tl_tensor_len(const tl_tensor *t); /* number of elements */
/* A number that changes when an operator or a copy writes t. */
TL_API unsigned tl_tensor_version(const tl_tensor *t);
/* Returns t's elements on the CPU, downloading them if needed. NULL: t has the other type, or the
** download fails (no memory, or a capture is in progress). t owns the pointer, which is valid until
** an operator uses t on another device. Backward cannot detect a write through it after an operator
** has read t: use tl_tensor_copy there. */
TL_API float *tl_tensor_f32(tl_tensor *t);
TL_API const float *tl_tensor_cf32(const tl_tensor *t);
TL_API int32_t *tl_tensor_i32(tl_tensor *t);
TL_API const int32_t *tl_tensor_ci32(const tl_tensor *t);
/* Writes the shape as text, e.g. "[2,3]", and returns buf. */
TL_API const char *tl_tensor_shape(const tl_tensor *t, char *buf, size_t size);

/* Copies elements first .. first+count-1 of t, on any device, to out. TL_ESHAPE: t has fewer. */
TL_API tl_status tl_tensor_read(const tl_tensor *t, int64_t first, int64_t count, void *out);
/* Copies the elements of src to dst, which has the same shape and type. Gradients do not flow.
** TL_EINVAL: they are views that share some elements, but not all. */
TL_API tl_status tl_tensor_copy(tl_tensor *dst, const tl_tensor *src);
/* Sets every element to value. TL_EINVAL: t is int32 and value is NaN or out of range. */
TL_API tl_status tl_tensor_fill(tl_tensor *t, double value);

/* ---- Gradients ------------------------------------------------------------------------------- */
/* The context's tape lists the recorded operators in order and owns what their gradients need.
** tl_backward walks the tape once from the last operator to the first, adds d loss / d leaf to
** the gradient of every leaf that requires one, and leaves the tape empty. */

/* Makes t a leaf that requires a gradient; with on 0, t requires none, and a result is detached.
** TL_ETYPE: t is not float32. TL_EINVAL: on is set and t is the recorded result of an operator, or
** on is 0 while tl_gradients computes the gradient of t. */
TL_API tl_status tl_set_requires_grad(tl_tensor *t, int on);
TL_API int tl_requires_grad(const tl_tensor *t);
/* Returns the gradient of t, which t owns; NULL before the first backward. It shares storage
** with no other gradient, unless tl_set_grad made it so. */
TL_API tl_tensor *tl_grad(const tl_tensor *t);
/* Makes grad, float32 and of t's shape, the gradient of leaf t, which retains it; NULL clears the
** gradient. TL_EINVAL: grad is given and t is not a leaf. TL_ESHAPE: another shape or type. */
TL_API tl_status tl_set_grad(tl_tensor *t, tl_tensor *grad);
/* Switches recording on or off and returns the previous setting. */
TL_API int tl_set_recording(tl_ctx *ctx, int on);
/* Computes the gradients of loss, which has one element. TL_EINVAL: loss has another size or was
** not recorded, its tape is gone, or a tensor that a gradient needs was changed in place. */
TL_API tl_status tl_backward(tl_ctx *ctx, tl_tensor *loss);
/* The same for a result y of any shape and its gradient dy. TL_ESHAPE: their shapes differ. */
TL_API tl_status tl_backward_from(tl_ctx *ctx, tl_tensor *y, tl_tensor *dy);
/* Like tl_backward_from, for the backward of a tl_func that records operators on tensors of the
** pass around it, and continues that pass: in tl_gradients, it adds only the gradients that this
** computes. Takes over dy, also after a failure. If dy is one of dys, it takes over the pass's
** reference as well, so the caller needs one of his own, by tl_tensor_retain. */
TL_API tl_status tl_backward_within(tl_ctx *ctx, tl_tensor *y, tl_tensor *dy);
/* Computes the gradients of loss by tensors xs, leaves or recorded results, without touching the
** gradient of any leaf, and consumes the tape like tl_backward. The gradient is 0 where loss does
** not depend on a tensor. TL_EINVAL: as tl_backward, or one of xs requires no gradient. */
TL_API tl_status tl_gradients(tl_ctx *ctx, tl_tensor *loss, tl_tensor *const *xs, int count,
                              tl_tensor **out_grads);

/* A differentiable function that the program computes. */
typedef struct tl_func {
    const char *name; /* begins messages; copied */
    /* Computes the gradients of the inputs from dys, the gradients of the results, which are 0
    ** where the loss does not depend on a result. Stores them in out_dxs, which hold NULL for no
    ** gradient; the engine takes them over, also after a failure. Operators are not recorded,
    ** unless the function switches recording on; it may then go backward through what it has
    ** recorded. */
    tl_status (*backward)(void *user, tl_tensor *const *dys, tl_tensor **out_dxs);
    void (*release)(void *user); /* called once, when backward is no longer needed */
    void *user;
} tl_func;

/* Records values, which the program computed from inputs with recording off, as results of f.
** inputs may hold NULL for what is not a tensor. out_results share the memory of values. Backward
** fails if one of saved, on which its gradients depend, was changed since. f->user is released also
** after a failure. */
TL_API tl_status tl_record_func(tl_ctx *ctx, const tl_func *f, tl_tensor *const *inputs, int count,
                                tl_tensor *const *saved, int kept, tl_tensor *const *values,
                                int outputs, tl_tensor **out_results);
TL_API void tl_tape_clear(tl_ctx *ctx); /* discards all recorded operators */
TL_API int64_t tl_tape_len(const tl_ctx *ctx);

/* ---- Elementwise ----------------------------------------------------------------------------- */

/* clang-format off */
#define TL_UNARY_MAP(X) \
    X(identity, "x") X(neg, "-x") X(abs, "|x|") X(square, "x^2") X(sqrt, "sqrt x") \
    X(rsqrt, "x^-1/2") X(reciprocal, "1/x") X(exp, "e^x") X(log, "ln x") X(sin, "sin x") \
    X(cos, "cos x") X(tanh, "tanh x") X(sigmoid, "1/(1+e^-x)") \
    X(relu, "max(x,0), slope 0 at 0") X(relu2, "max(x,0)^2") \
    X(leaky_relu, "x, 0.01 x below 0") X(elu, "x, e^x-1 below 0") X(elu1, "1+elu(x)") \
    X(silu, "x sigmoid(x)") X(gelu, "x Phi(x)") X(gelu_tanh, "gelu by tanh") \
    X(softplus, "ln(1+e^x)") X(elu2, "2+elu(x)")
/* clang-format on */

typedef enum tl_unary_kind {
#define X(name, text) TL_UNARY_##name,
    TL_UNARY_MAP(X)
#undef X
        TL_UNARY_KINDS
} tl_unary_kind;

TL_API const char *tl_unary_name(tl_unary_kind kind);                           /* e.g. "silu" */
TL_API tl_status tl_unary(tl_unary_kind kind, tl_tensor *x, tl_tensor **out_y); /* y = f(x) */

/* clang-format off */
#define TL_BINARY_MAP(X) \
    X(ADD, add) X(SUB, sub) X(MUL, mul) X(DIV, div) X(MAX, max) X(MIN, min) X(POW, pow) \
    X(KEEP, keep) X(DROP, drop) X(LT, lt) X(LE, le) X(GT, gt) X(GE, ge) X(EQ, eq) X(NE, ne) \
    X(POW_BASE, pow_base) X(POW_EXPONENT, pow_exponent)
/* clang-format on */

typedef enum tl_binary_kind {
#define X(kind, name) TL_BINARY_##kind,
    TL_BINARY_MAP(X)
#undef X
        TL_BINARY_KINDS
} tl_binary_kind;
/* y = a op b with numpy's broadcasting: dimensions are aligned at the right and a size of 1 is
** stretched. At a tie, MAX and MIN give the gradient to a. KEEP gives b where a is not 0, else 0;
** DROP the rest of b. LT .. NE compare, with 1 for true and 0 for false, and have no gradient; a
** NaN differs from everything. POW_BASE and POW_EXPONENT are the derivatives of a^b by a, which is
** 0 for b = 0, and by b, which is 0 for a = 0 and b >= 0; they have no gradient either. */
TL_API tl_status tl_binary(tl_binary_kind kind, tl_tensor *a, tl_tensor *b, tl_tensor **out_y);
/* y = x as float32, rounded beyond 2^24; no gradient.   x int32 */
TL_API tl_status tl_to_float(tl_tensor *x, tl_tensor **out_y);
/* y = a where cond is not 0 (a NaN is not), else b; broadcast together. No gradient for cond. */
TL_API tl_status tl_where(tl_tensor *cond, tl_tensor *a, tl_tensor *b, tl_tensor **out_y);
/* y = scale x + shift */
TL_API tl_status tl_affine(tl_tensor *x, double scale, double shift, tl_tensor **out_y);
/* y = f(a) b in one kernel; a and b have the same shape. */
TL_API tl_status tl_gate(tl_unary_kind kind, tl_tensor *a, tl_tensor *b, tl_tensor **out_y);

/* ---- Products -------------------------------------------------------------------------------- */

/* How the operands of tl_matmul, tl_linear, tl_linear_cross_entropy and their gradients are
** rounded: not at all; to bfloat16 (8 bits of significand, to nearest even); or, on GPUs only, to
** TF32 (11 bits). Sums, results and all else are float32. On the CPU, bf16 is about twice as fast
** where oneDNN finds instructions for it (tl_build_info), and slower elsewhere. A product and its
** gradients use the setting of the time when the product is computed. tl_mlp and tl_tno_apply
** always use float32. */
typedef enum tl_precision_kind {
    TL_PRECISION_F32,
    TL_PRECISION_BF16,
    TL_PRECISION_TF32
} tl_precision_kind;

TL_API tl_precision_kind tl_precision(const tl_ctx *ctx); /* the default is TL_PRECISION_F32 */
/* TL_EINVAL: the context's device lacks such products, and the setting stays as it was. */
TL_API tl_status tl_set_precision(tl_ctx *ctx, tl_precision_kind kind);
TL_API int tl_has_precision(const tl_ctx *ctx, tl_precision_kind kind);

/* y = op(a) op(b) on the last two axes, [..,m,k] x [..,k,n] -> [..,m,n]; op transposes its
** operand if trans_a or trans_b is set. The leading axes of a and b are equal, or b has none;
** then trans_a must be 0, and a's leading axes are folded into its rows. */
TL_API tl_status tl_matmul(tl_tensor *a, int trans_a, tl_tensor *b, int trans_b, tl_tensor **out_y);
/* y = x w^T + bias   x [..,k]   w [o,k]   bias [o] or NULL   y [..,o] */
TL_API tl_status tl_linear(tl_tensor *x, tl_tensor *w, tl_tensor *bias, tl_tensor **out_y);

/* ---- Reductions ------------------------------------------------------------------------------ */

typedef enum tl_reduce_kind { TL_REDUCE_SUM, TL_REDUCE_MEAN, TL_REDUCE_MAX } tl_reduce_kind;
#define TL_ALL_AXES (-128)
/* Reduces x over one axis; a negative axis counts from the end, and keep leaves the axis with
** size 1. TL_ALL_AXES reduces to a scalar. Sums accumulate in float64, in an order that depends on
** the shape only. The gradient of a maximum goes to the first one. TL_ESHAPE: the mean or the
** maximum of no elements. */
TL_API tl_status tl_reduce(tl_reduce_kind kind, tl_tensor *x, int axis, int keep,
                           tl_tensor **out_y);
/* Returns the position, from 0, of the first maximum along the last axis; a NaN is skipped unless
** it comes first. No gradient.   x [..,n], n >= 1   index [..] int32 */
TL_API tl_status tl_argmax(tl_tensor *x, tl_tensor **out_index);
/* y_i = sum over j <= i of x_j along axis */
TL_API tl_status tl_cumsum(tl_tensor *x, int axis, tl_tensor **out_y);

/* ---- Sorting (indices as results: no gradients) ---------------------------------------------- */
/* Elements are float32 or int32. NaN is larger than any number and equal to NaN; -0 equals 0. Rows
** are sorted in parallel; results do not depend on threads or device. TL_ESHAPE: x has no axis. */

/* Sorts each row in ascending order; equal elements keep their order (a stable sort). order[i] is
** the position, from 0, of the element that is i-th in order, and rank is its inverse permutation:
** rank[order[i]] = i.   x [..,n]   order, rank [..,n] int32 */
TL_API tl_status tl_argsort(tl_tensor *x, tl_tensor **out_order, tl_tensor **out_rank);
/* Finds the k largest elements of each row; of equal ones, those at lower positions. places are
** their positions, from 0 and ascending. slots[t] is i + 1 where t = places[i], and 0 where no
** place is t.   x [..,n]   places [..,k]   slots [..,n], int32   TL_EINVAL: k is not in 1..n */
TL_API tl_status tl_topk(tl_tensor *x, int64_t k, tl_tensor **out_places, tl_tensor **out_slots);

/* ---- Shape ----------------------------------------------------------------------------------- */

/* Returns x with another shape and the same storage; one dimension may be -1 and is inferred. */
TL_API tl_status tl_reshape(tl_tensor *x, int ndim, const int64_t *dims, tl_tensor **out_y);
/* Copies x, float32, so that axis i of y is axis axes[i] of x. TL_EINVAL: not a permutation. */
TL_API tl_status tl_transpose(tl_tensor *x, const int *axes, tl_tensor **out_y);
/* Copies the elements start .. start+count-1 along axis. */
TL_API tl_status tl_slice(tl_tensor *x, int axis, int64_t start, int64_t count, tl_tensor **out_y);
/* Joins tensors of one type along axis, the only one in which their sizes may differ. The result
** is a copy, except that a single tensor is returned as by tl_reshape. TL_EINVAL: count < 1. */
TL_API tl_status tl_concat(tl_ctx *ctx, tl_tensor *const *xs, int count, int axis,
                           tl_tensor **out_y);
/* y = x at index along axis 0; with x [v,d] an embedding. Its gradient adds rows in the order of
** index, so it is repeatable.   x [p,..]   index [..] int32   y [index..,..]
** TL_EINVAL: an index is out of range; the message names it. On a GPU the next read reports it. */
TL_API tl_status tl_gather(tl_tensor *x, tl_tensor *index, tl_tensor **out_y);
/* The same for a batch of tables: y[g,i] = x[g,index[g,i]], where the g axes, of which there may be
** none, are equal.   x [g..,p,..]   index [g..,m] int32   y [g..,m,..]   TL_EINVAL: as tl_gather */
TL_API tl_status tl_batch_gather(tl_tensor *x, tl_tensor *index, tl_tensor **out_y);
/* rows[i] = ids[starts[i] .. starts[i]+n-1]   ids [t] int32   starts [b] int32   rows [b,n]
** TL_EINVAL: a window reaches outside ids; on a GPU the next read reports it. */
TL_API tl_status tl_gather_windows(tl_tensor *ids, tl_tensor *starts, int64_t n,
                                   tl_tensor **out_rows);

/* ---- Softmax and losses ---------------------------------------------------------------------- */

/* Softmax over the last axis. With causal, x is [..,n,n] and entries j > i get weight 0. */
TL_API tl_status tl_softmax(tl_tensor *x, int causal, tl_tensor **out_y);
TL_API tl_status tl_log_softmax(tl_tensor *x, tl_tensor **out_y);
/* Cross entropy in nats: the mean of -log softmax(logits)[target] over the targets that differ from
** ignore; 0 if there are none. TL_EINVAL: a target is outside 0..v-1 (on a GPU at the next read).
**   logits [..,v]   targets [..] int32   loss: a scalar */
TL_API tl_status tl_cross_entropy(tl_tensor *logits, tl_tensor *targets, int32_t ignore,
                                  tl_tensor **out_loss);
/* The same loss for logits = x w^T + bias, computed a block of rows at a time, so that the logits
** are never all in memory.   x [..,d]   w [v,d]   bias [v] or NULL */
TL_API tl_status tl_linear_cross_entropy(tl_tensor *x, tl_tensor *w, tl_tensor *bias,
                                         tl_tensor *targets, int32_t ignore, tl_tensor **out_loss);

/* ---- Norms (over the last axis, of size d >= 1; TL_EINVAL: eps is negative or NaN) ----------- */

/* y = (x - mean) / sqrt(var + eps) weight + bias; weight, bias [d] or NULL (Ba et al. 2016) */
TL_API tl_status tl_layer_norm(tl_tensor *x, tl_tensor *weight, tl_tensor *bias, double eps,
                               tl_tensor **out_y);
/* y = x / sqrt(mean x^2 + eps) weight; weight [d], [1] or NULL (Zhang & Sennrich 2019) */
TL_API tl_status tl_rms_norm(tl_tensor *x, tl_tensor *weight, double eps, tl_tensor **out_y);
/* y = x / (||x||/sqrt d + eps), eps outside the root as in TNN's code; 0 for x = 0 */
TL_API tl_status tl_simple_rms_norm(tl_tensor *x, double eps, tl_tensor **out_y);
/* y = weight x / max(||x||/sqrt d, eps); weight: a scalar; 0 for x = 0 */
TL_API tl_status tl_scale_norm(tl_tensor *x, tl_tensor *weight, double eps, tl_tensor **out_y);
/* Normalises each channel over all other axes: in training with the batch's statistics, which also
** update running = (1-momentum) running + momentum batch (unbiased variance, as PyTorch); else with
** the running ones. weight, bias: [d] or NULL; running_mean, running_var: [d]. TL_EINVAL: training
** on fewer than 2 rows. */
TL_API tl_status tl_batch_norm(tl_tensor *x, tl_tensor *weight, tl_tensor *bias,
                               tl_tensor *running_mean, tl_tensor *running_var, int training,
                               double momentum, double eps, tl_tensor **out_y);

/* ---- Networks -------------------------------------------------------------------------------- */

typedef enum tl_norm_kind {
    TL_NORM_NONE,  /* x */
    TL_NORM_LAYER, /* (x - mean)/sqrt(var + eps) */
    TL_NORM_RMS,   /* x / sqrt(mean x^2 + eps) */
    TL_NORM_SIMPLE, /* x / (||x||/sqrt k + eps); 0 -> 0 */
    TL_NORM_SCALE  /* x / max(||x||/sqrt k, eps); tl_scale_norm alone computes it */
} tl_norm_kind;

typedef struct tl_mlp_layer {
    tl_tensor *weight, *bias; /* [o,k], and [o] or NULL */
    tl_norm_kind norm; /* of the layer's input; ignored, like act, in the first layer */
    double eps;
    tl_tensor *norm_weight, *norm_bias; /* [k] or NULL: norm(x) weight + bias */
} tl_mlp_layer;

/* Evaluates a multilayer perceptron in one pass, e.g. the relative position encoder of TNN, Sec.
** 3.3: x_1 = x w^T + bias, x_l = act(norm(x_(l-1))) w^T + bias, and y = x_count. With residual, all
** layers but the first and the last add x_(l-1). Row r of y is multiplied by scale_r, e.g. a decay.
**   x [p,k]   scale [p] or NULL   y [p,o of the last layer]
** TL_EINVAL: count < 2, a kind or an eps is invalid, or scale requires a gradient: it has none. */
TL_API tl_status tl_mlp(tl_tensor *x, const tl_mlp_layer *layers, int count, tl_unary_kind act,
                        int residual, tl_tensor *scale, tl_tensor **out_y);

/* ---- Convolution, scans and transforms ------------------------------------------------------- */

/* Depthwise convolution: y[b,i,c] = sum over k of taps[k,c] x[b, i - (k - origin), c], where x is
** zero outside 0..n-1.
**   x, y [b,n,d]   taps [m,d]   origin: the tap of lag 0 (0: causal; m/2 rounded down: centred)
** TL_EINVAL: origin is not the index of a tap. */
TL_API tl_status tl_depthwise_conv(tl_tensor *x, tl_tensor *taps, int64_t origin,
                                   tl_tensor **out_y);

/* Selective scan, the core of Mamba (Gu and Dao 2023, Eq. 2): with a state h [d,s] that starts at
** 0, h_i = exp(delta_i a) h_(i-1) + delta_i x_i b_i and y_i = h_i c_i + skip x_i. The state has s
** numbers per channel; b and c are the same for all channels.
**   x, delta, y [b,n,d]   a [d,s]   b, c [b,n,s]   skip [d] or NULL
** The tape keeps one state in 64 positions. */
TL_API tl_status tl_selective_scan(tl_tensor *x, tl_tensor *delta, tl_tensor *a, tl_tensor *b,
                                   tl_tensor *c, tl_tensor *skip, tl_tensor **out_y);
/* Gated linear recurrence per head, as in gated linear attention, HGRN2, Mamba-2, RetNet: with a
** state S [k,v] that starts at 0, S_i = diag(exp g_i) S_(i-1) + k_i v_i^T and y_i = S_i^T q_i.
**   q, k [b,n,h,k]   v, y [b,n,h,v]   g [b,n,h,k], or [b,n,h,1] for one decay per head
** The tape keeps one state in 64 positions. */
TL_API tl_status tl_linear_recurrence(tl_tensor *q, tl_tensor *k, tl_tensor *v, tl_tensor *g,
                                      tl_tensor **out_y);

/* Sums over simple poles, the products of a Cauchy matrix and r vectors, for each of d channels:
** y[r,c,f] = sum over k of v[r,c,k] / (nodes[f] - poles[c,k]). With pairs each term has its
** conjugate beside it, conj v / (nodes[f] - conj poles). All numbers are complex, pairs along the
** last axis; a node at a pole gives NaN.
**   v [r,d,m,2]   poles [d,m,2]   nodes [f,2]   y [r,d,f,2]
** TL_EINVAL: nodes requires a gradient: it has none. */
TL_API tl_status tl_cauchy(tl_tensor *v, tl_tensor *poles, tl_tensor *nodes, int pairs,
                           tl_tensor **out_y);

/* Discrete Fourier transforms along one axis, unscaled forward and scaled by 1/n inverse. A complex
** tensor has a last axis of size 2 (real, imaginary), which does not count as an axis here.
**   tl_fft: complex n -> complex n   tl_rfft: real n -> complex n/2+1   tl_irfft: the reverse
** TL_EBACKEND: no loaded backend provides transforms. */
TL_API tl_status tl_fft(tl_tensor *x, int axis, int inverse, tl_tensor **out_y);
TL_API tl_status tl_rfft(tl_tensor *x, int axis, tl_tensor **out_y);
TL_API tl_status tl_irfft(tl_tensor *x, int axis, int64_t n, tl_tensor **out_y);

/* ---- Linear algebra (for analysis: no gradients; LAPACK in float64) -------------------------- */
/* TL_EINVAL: an argument requires a gradient, and recording is on. */

/* a = u diag(s) v with s from large to small.   a [m,n]   u [m,k]   s [k]   v [k,n], k = min(m,n).
** out_u and out_v may be NULL. TL_EINVAL: a is not finite, or LAPACK does not converge. */
TL_API tl_status tl_svd(tl_tensor *a, tl_tensor **out_u, tl_tensor **out_s, tl_tensor **out_v);
/* Solves a x = b.   a [n,n]   b, x [n,m].   TL_EINVAL: a is singular or not finite. */
TL_API tl_status tl_solve(tl_tensor *a, tl_tensor *b, tl_tensor **out_x);

/* ---- Random streams -------------------------------------------------------------------------- */
/* Philox4x32-10 (Salmon et al. 2011): number i of a stream depends on (seed, purpose, i) alone.
** A stream is therefore resumed from two stored numbers and gives the same values for any number
** of threads. Use one stream per purpose. */

typedef struct tl_stream {
    uint64_t key;    /* from seed and purpose */
    uint64_t offset; /* 128-bit blocks used so far */
} tl_stream;

/* purpose is a name of the stream, e.g. "init" or "dropout". */
TL_API tl_stream tl_stream_new(uint64_t seed, const char *purpose);
TL_API double tl_random_unit(tl_stream *s);                  /* [0,1), 53 bits */
TL_API int64_t tl_random_below(tl_stream *s, int64_t bound); /* 0..bound-1, unbiased; bound >= 1 */
/* Fill a float32 tensor with independent draws. */
TL_API tl_status tl_random_uniform(tl_tensor *t, tl_stream *s, double low, double high);
TL_API tl_status tl_random_normal(tl_tensor *t, tl_stream *s, double mean, double deviation);
/* Fills the int32 tensor t with draws from 0..bound-1. They equal the results of as many calls of
** tl_random_below, except for a bias below bound/2^64. TL_EINVAL: bound is not in 1..2^31-1. */
TL_API tl_status tl_random_integers(tl_tensor *t, tl_stream *s, int64_t bound);
/* Draws places in rows of several lengths: places[g,i] = floor(lengths[g] u_i), where u_i is what
** call i of tl_random_unit draws, the same for all rows; 0 unless 0 <= lengths[g] u_i < 2^31-1.
**   lengths [g..] float32   places [g..,count] int32 */
TL_API tl_status tl_random_places(tl_tensor *lengths, int64_t count, tl_stream *s,
                                  tl_tensor **out_places);
/* Fills the int32 tensor t [n] with a random permutation of 0..n-1. */
TL_API tl_status tl_random_permutation(tl_tensor *t, tl_stream *s);
/* y = x keep / (1-p) with keep ~ Bernoulli(1-p). No mask is stored: backward draws it again.
** TL_EINVAL: p is not in [0,1). */
TL_API tl_status tl_dropout(tl_tensor *x, double p, tl_stream *s, tl_tensor **out_y);
/* Draws one id from softmax(logits / temperature) of logits [v], among the top_k largest (0:
** all). Temperature 0 takes the largest. TL_EINVAL: temperature or top_k is negative, temperature
** is not finite, or the logits contain a NaN or have an infinite maximum. */
TL_API tl_status tl_sample(const tl_tensor *logits, double temperature, int top_k, tl_stream *s,
                           int32_t *out_id);

/* ---- Graphs ---------------------------------------------------------------------------------- */
/* CUDA graphs: a sequence of kernel launches is captured once and replayed as a whole, with the
** numbers that its calls were given, for example a learning rate or a step. */

typedef struct tl_graph tl_graph;

/* Returns whether ctx's device can capture now. The CPU cannot, and no device can during a
** profile, which counts kernels one by one. */
TL_API int tl_has_graphs(const tl_ctx *ctx);
/* Begins a capture. Until tl_graph_end, or tl_graph_free, which gives up, operators are captured
** and not run; one that needs a tensor on the CPU returns TL_EDEVICE. streams, of different keys,
** are the random streams that they may draw from; they are borrowed until the end, and then as
** before. TL_EDEVICE: tl_has_graphs is 0. TL_EINVAL: a capture is in progress, or two streams have
** one key. */
TL_API tl_status tl_graph_begin(tl_ctx *ctx, tl_stream *const *streams, int count,
                                tl_graph **out_g);
/* Ends the capture. results are the captured tensors that the caller reads later; every replay
** writes them, and no other captured tensor ever has values. After a failure, only tl_graph_free
** may be called on g. */
TL_API tl_status tl_graph_end(tl_graph *g, tl_tensor *const *results, int count);
/* Replays the graph with the current contents of its tensors and the next numbers of the streams,
** in the order of the capture. *out_ran 0: nothing ran, because a tensor has moved or a stream has
** another key; capture again. TL_EINVAL: another number of streams, or a capture is in progress. */
TL_API tl_status tl_graph_run(tl_graph *g, tl_stream *const *streams, int count, int *out_ran);
TL_API void tl_graph_free(tl_graph *g);

/* ---- Attention ------------------------------------------------------------------------------- */

/* Which keys a query attends to, and how scores become weights. Query i of m has the position
** i + n - m among the n keys: the queries are the last ones. */
typedef struct tl_attention_options {
    size_t     bytes;   /* sizeof(tl_attention_options) */
    double     scale;   /* multiplies q_i . k_j, usually 1/sqrt(w) */
    int        causal;  /* hides keys after the query's position */
    int64_t    window;  /* hides keys at this distance or more; 0: none */
    tl_tensor *bias;    /* [h,m+n-1] or NULL: column j - i + m - 1 is added to the score of key j */
    tl_tensor *mask;    /* [r,n] or NULL: hides the keys where it is 0; it has no gradient */
    double     dropout; /* the part of the weights that is set to 0; the rest is scaled up */
    tl_stream *stream;  /* of the dropout, which draws as tl_dropout of weights [..,m,n] would */
} tl_attention_options;

/* Attention by softmax (Vaswani et al. 2017): y_i = sum over the visible keys j of w_ij v_j with
** w_i = softmax over them of scale q_i . k_j + bias. A query that sees no key gets 0.
**   q [..,m,w]   k [..,n,w]   v [..,n,c]   y [..,m,c]
** The pairs [..] of a sequence and a head are counted in order: pair p uses row p % h of the bias,
** and each row of the mask serves as many consecutive pairs. The scores are computed in blocks, and
** again for the gradient, so that memory grows as m + n, not m n. On a GPU, the scores of at least
** one pair are held at the same time. Any number of threads gives the same bits.
** TL_EINVAL: a number is out of its range, or there is dropout without a stream. */
TL_API tl_status tl_attention(tl_tensor *q, tl_tensor *k, tl_tensor *v,
                              const tl_attention_options *o, tl_tensor **out_y);

/* ---- Optimisers ------------------------------------------------------------------------------ */

typedef enum tl_adam_kind {
    TL_ADAM_L2,        /* weight decay added to the gradient (coupled; Kingma & Ba with L2) */
    TL_ADAM_DECOUPLED, /* p -= lr wd p, then the step (Loshchilov & Hutter); PyTorch's AdamW */
    /* decoupled, with p -= lr sqrt(c2)/c1 m / (sqrt(v) + eps); fairseq's "adam" */
    TL_ADAM_FAIRSEQ
} tl_adam_kind;

typedef struct tl_adam_options {
    size_t bytes; /* sizeof(tl_adam_options) */
    tl_adam_kind kind;
    double lr, beta1, beta2, eps, weight_decay;
    int64_t step; /* 1 for the first update */
} tl_adam_options;

/* Updates each params[i] with g, its gradient times grad_scale, and moments m[i], v[i] of its
** shape: m = beta1 m + (1-beta1) g, v = beta2 v + (1-beta2) g^2, p -= lr (m/c1) / (sqrt(v/c2) +
** eps) with c1 = 1-beta1^step and c2 = 1-beta2^step. Parameters without a gradient stay as they
** are. No tensor may be given twice. TL_EINVAL: an option is out of range, or a moment is NULL. */
TL_API tl_status tl_adam_step(tl_tensor *const *params, tl_tensor *const *m, tl_tensor *const *v,
                              int count, const tl_adam_options *opt, double grad_scale);
/* Updates each params[i] with g, its gradient times grad_scale: g += weight_decay p, buf =
** momentum buf + g, p -= lr buf. Without momentum, p -= lr g and buf may be NULL. No tensor may
** be given twice. TL_EINVAL: there is momentum without buffers. */
TL_API tl_status tl_sgd_step(tl_tensor *const *params, tl_tensor *const *buf, int count, double lr,
                             double momentum, double weight_decay, double grad_scale);
/* Computes the square root of the sum of all |grad|^2 in float64, in an order that depends on
** the shapes only. On a GPU it waits for the result, one number. */
TL_API tl_status tl_grad_norm(tl_tensor *const *params, int count, double *out_norm);

/* ---- Toeplitz neural operators --------------------------------------------------------------- */
/* An encoder computes coefficients at the points that a backend names, and the backend mixes
** tokens with them. The points of time-domain backends are lags: causal 0..n-1, where row k is lag
** k; otherwise -(n-1)..n-1, where row n-1 is lag 0. */

/* A backend, its options and its plan for one (n, d, causal). It belongs to the context. */
typedef struct tl_tno tl_tno;

/* Plans the operator for n, d >= 1. options are "key=value" strings ended by NULL (NULL: defaults),
** checked against the backend's table. Backend "auto", which has no options, is the fastest of rac,
** fft and matrix, measured once and remembered in the folder of tuning results; on a GPU, matrix
** to a length that depends on the precision, beyond it the first of them. TL_EBACKEND: no such
** backend (the message lists those loaded), it has no form for the device, or refuses the problem.
** TL_EINVAL: n or d is below 1, or an option is unknown, of the wrong type or out of range. */
TL_API tl_status tl_tno_new(tl_ctx *ctx, const char *backend, int64_t n, int64_t d, int causal,
                            const char *const *options, tl_tno **out_tno);
TL_API void tl_tno_free(tl_tno *tno);
/* Returns the points at which the encoder is evaluated, [p] float32. */
TL_API tl_status tl_tno_points(tl_tno *tno, tl_tensor **out_points);
TL_API int tl_tno_width(const tl_tno *tno); /* numbers per point and channel: 1 or 2 */
/* The backend's name; for "auto", the name of the backend that it chose. */
TL_API const char *tl_tno_backend_name(const tl_tno *tno);
/* What a point is: "lag", "warp" or "frequency". */
TL_API const char *tl_tno_domain(const tl_tno *tno);
TL_API const char *tl_tno_warning(const tl_tno *tno); /* about this problem, or NULL; tno owns it */
TL_API int tl_tno_param_count(const tl_tno *tno); /* learnable, of the backend itself; mostly 0 */
/* Describes parameter i: its name, its shape, and how to initialise it, "normal" (mean 0, deviation
** 1), "uniform" (-1 to 1), "zeros" or "ones". The backend owns the strings. TL_EINVAL: there is no
** parameter i. */
TL_API tl_status tl_tno_param(tl_tno *tno, int i, const char **out_name, int *out_ndim,
                              int64_t out_dims[TL_MAXDIMS], const char **out_init);
/* y[b,i,c] = sum over j of T_c[i,j] x[b,j,c] with T given by coef and params (TNN, Eq. 4). params
** lists the backend's parameters in the order of tl_tno_param; NULL if it has none.
**   coef [p, width d]   x, y [b,n,d]   TL_EINVAL: coef or a parameter is missing. */
TL_API tl_status tl_tno_apply(tl_tno *tno, tl_tensor *coef, tl_tensor *const *params, tl_tensor *x,
                              tl_tensor **out_y);
/* Does the same for several calls in which coef and params do not change. *cache is the cache of
** what the backend computes from them: NULL before the first call and then owned by the caller, who
** may pass coef as NULL from the second call on. It stays NULL if the backend caches nothing. Made
** in a scope, it ends with that, like a result: see tl_scope_keep.
** TL_EINVAL, also: a view is given that does not begin at a multiple of 64 bytes. */
TL_API tl_status tl_tno_apply_cached(tl_tno *tno, tl_tensor *coef, tl_tensor *const *params,
                                     tl_tensor *x, tl_tensor **cache, tl_tensor **out_y);
/* Computes the gradients of sum(dy y), y = tl_tno_apply(coef, params, x), without the tape, for a
** caller who keeps a graph of his own. cache: of tl_tno_apply_cached, or NULL. Gradients for which
** out_dcoef, out_dparams or out_dx is NULL are not computed; out_dparams has one per parameter.
**   dy [b,n,d]   TL_EINVAL: coef or a parameter is missing. */
TL_API tl_status tl_tno_gradients(tl_tno *tno, tl_tensor *coef, tl_tensor *const *params,
                                  tl_tensor *x, tl_tensor *cache, tl_tensor *dy,
                                  tl_tensor **out_dcoef, tl_tensor **out_dparams,
                                  tl_tensor **out_dx);
/* Returns the dense matrices T [d,n,n]; coef and params as in tl_tno_apply. */
TL_API tl_status tl_tno_dense(tl_tno *tno, tl_tensor *coef, tl_tensor *const *params,
                              tl_tensor **out_t);

/* coef_k gamma^|k|, the exponential decay of coefficients (TNN, Eq. 5). Gradients flow to coef, and
** to gamma if it requires one.
**   coef [p,d]   lags [p]   gamma [d] or a scalar, in (0,1]
** TL_EINVAL: gamma is out of range; on a GPU the next read reports it. */
TL_API tl_status tl_decay(tl_tensor *coef, tl_tensor *lags, tl_tensor *gamma, tl_tensor **out_coef);

/* ---- Recurrences: a causal Toeplitz operator one position at a time -------------------------- */
/* y_i = sum over 0 <= k < lags of gamma^k t_k x_(i-k),   x_i = 0 for i < 0   (TNN, Eq. 4 and 5)
** All kinds but the published form of ETSC compute this sum, up to rounding, for any number of
** positions. They differ in what they store and in what a position costs. */
typedef enum tl_recurrence_kind {
    /* Stores the last `lags` inputs and sums them directly: n positions cost O(n lags). */
    TL_RECURRENCE_RING,
    /* Stores a sum of complex modes, of which half suffice because the kernel is real (etsc.c):
    ** O(n lags) too. It also stores past inputs, unless the decay makes them negligible. */
    TL_RECURRENCE_ETSC_EXACT,
    /* The modes of the paper, without past inputs. Only the first `lags` positions are the sum
    ** above: at lag `lags` the kernel is -gamma^lags times the sum of t, and from the next lag on
    ** it repeats, each time smaller by gamma^(lags+1). */
    TL_RECURRENCE_ETSC_PUBLISHED,
    /* Adds products of blocks of inputs by transforms (relaxed.c): O(n log^2 n). */
    TL_RECURRENCE_RELAXED
} tl_recurrence_kind;

/* The kernel of the recurrence and the state of b sequences. It belongs to the context. */
typedef struct tl_recurrence tl_recurrence;

/* Creates a recurrence from coefficients without decay.
**   t [lags,d], lags and d >= 1   gamma [d], a scalar, or NULL for 1; in (0,1]
** TL_EBACKEND: ETSC needs transforms (see tl_fft). TL_EINVAL: gamma is out of range, or b < 1. */
TL_API tl_status tl_recurrence_new(tl_tensor *t, tl_tensor *gamma, tl_recurrence_kind kind,
                                   int64_t b, tl_recurrence **out_r);
/* Does the same for TL_RECURRENCE_RELAXED, with memory for `positions` positions after the prompt
** (0: for any number). The prompt is the first call of tl_recurrence_step if that has several
** positions; it costs O(n log n). In a context of several threads another thread computes products
** of 2,048 and more positions, also between calls; its timing does not change results. TL_EBACKEND:
** no backend has the transforms. TL_EINVAL: positions < 0. */
TL_API tl_status tl_recurrence_new_relaxed(tl_tensor *t, tl_tensor *gamma, int64_t b,
                                           int64_t positions, tl_recurrence **out_r);
/* Creates a recurrence before its first position that shares the kernel of r, which the sizes of
** both count. TL_EINVAL: r is relaxed, and it and all its forks have begun. */
TL_API tl_status tl_recurrence_fork(const tl_recurrence *r, tl_recurrence **out_r);
TL_API void tl_recurrence_free(tl_recurrence *r);
/* Consumes the next position, x [b,d], or the next n positions, x [b,n,d], and writes y, which
** has x's shape and may be x. It records nothing and, but for a relaxed one's prompt, allocates
** nothing. TL_EINVAL: a relaxed recurrence has no memory left for n positions. */
TL_API tl_status tl_recurrence_step(tl_recurrence *r, tl_tensor *x, tl_tensor *y);
/* Returns to the state before the first position; a relaxed one takes a prompt only once. */
TL_API void tl_recurrence_reset(tl_recurrence *r);

typedef struct tl_recurrence_size {
    tl_recurrence_kind kind;
    int64_t b, d, lags;
    int64_t modes, period; /* complex modes stored; the m in their angles; 0 for the ring */
    size_t state_bytes, kernel_bytes;  /* of all sequences; of the kernel that they share */
} tl_recurrence_size;

TL_API tl_recurrence_size tl_recurrence_sizes(const tl_recurrence *r);
/* Returns the modes of ETSC, with which u = lambda u + b x (exact form: b (x_i - decay^period
** x_(i-period))) and y is the real part of the sum of u, where a complex mode counts twice. Row j
** is mode j, or mode j + 1 in the published form.
**   b, lambda [modes,d,2]   decay [d]: |lambda|   TL_EINVAL: r is a ring or relaxed. */
TL_API tl_status tl_recurrence_modes(const tl_recurrence *r, tl_tensor **out_b,
                                     tl_tensor **out_lambda, tl_tensor **out_decay);
/* Creates a recurrence from b and decay as tl_recurrence_modes returns them; sequences is the b of
** tl_recurrence_new. TL_EINVAL: kind is not one of ETSC, that kind, lags and period do not have as
** many modes, a decay is outside (0,1], or sequences < 1. */
TL_API tl_status tl_recurrence_from_modes(tl_tensor *b, tl_tensor *decay, tl_recurrence_kind kind,
                                          int64_t lags, int64_t period, int64_t sequences,
                                          tl_recurrence **out_r);

/* ---- Backends -------------------------------------------------------------------------------- */

/* tl_ctx_new loads backends from the build or installation folder and then from the folders in
** TOEPLAB_BACKENDS, separated by ':'. The static library contains all but fft, and has "the
** program" as their path. A file that cannot be used is not an error;
** tl_backend_problem reports it. */

/* Loads one plugin. TL_EBACKEND: the message contains dlerror's text or the ABI numbers. */
TL_API tl_status tl_backend_load(tl_ctx *ctx, const char *path);
TL_API int tl_backend_count(const tl_ctx *ctx);
/* These describe backend i in the order of loading; NULL if there is none. ctx owns the text. */
TL_API const char *tl_backend_name(const tl_ctx *ctx, int i);
TL_API const char *tl_backend_summary(const tl_ctx *ctx, int i);
TL_API const char *tl_backend_path(const tl_ctx *ctx, int i);
TL_API int tl_backend_problem_count(const tl_ctx *ctx);
/* Returns "PATH: why", or NULL if there is no problem i. */
TL_API const char *tl_backend_problem(const tl_ctx *ctx, int i);
/* The folder for tuning results, downloads and tokens: $TOEPLAB_CACHE, else
** $XDG_CACHE_HOME/toeplab, else ~/.cache/toeplab; NULL if TOEPLAB_CACHE is empty, there is no such
** variable, or the folder cannot be created. */
TL_API const char *tl_cache_dir(const tl_ctx *ctx);
/* Reports option j of backend i; the backend owns the strings. Returns 0 if there is none. */
TL_API int tl_backend_option(const tl_ctx *ctx, int i, int j, const char **out_name,
                             const char **out_type, const char **out_default,
                             const char **out_range, const char **out_help);

/* ---- Ranks ----------------------------------------------------------------------------------- */
/* Processes that were started together, by mpirun or srun, are the ranks of a group, which count
** from 0. Functions without another remark are to be called by all ranks of a group, in the same
** order. TL_EIO: the communication failed. */

typedef struct tl_ranks tl_ranks;

/* Finds the shared object for groups, "mpi", or the one by which GPUs exchange tensors, "nccl". A
** process may call this by itself, outside of any group. TL_ENOTFOUND: there is none, or it cannot
** be loaded; the message says why. */
TL_API tl_status tl_ranks_file(tl_ctx *ctx, const char *name, char *path, size_t size);
/* Joins the group of all processes. A process that frees the last group that it opened here cannot
** join again, because MPI starts only once in a process (unless the host program started it). */
TL_API tl_status tl_ranks_open(tl_ctx *ctx, tl_ranks **out_ranks);
/* Divides r into groups: the ranks that give the same colour, >= 0, form one group and keep their
** order. The caller frees such a group before r. If it has several ranks, all of which compute on
** GPUs and can load "nccl", its tensors go from GPU to GPU (tl_ranks_link). In all other groups and
** in those of tl_ranks_open, they go through the memory of the CPU. */
TL_API tl_status tl_ranks_split(tl_ranks *r, int colour, tl_ranks **out_ranks);
/* The name of the shared object by which GPUs exchange; NULL: through the memory of the CPU. */
TL_API const char *tl_ranks_link(const tl_ranks *r);
TL_API void tl_ranks_free(tl_ranks *r);
TL_API int tl_ranks_rank(const tl_ranks *r);
TL_API int tl_ranks_size(const tl_ranks *r);
TL_API void tl_ranks_end_all(tl_ranks *r, int code); /* one rank alone ends all processes at once */
TL_API tl_status tl_ranks_barrier(tl_ranks *r);      /* waits until all ranks have called it */
/* Copy t, or count words, of rank root to all ranks. */
TL_API tl_status tl_ranks_broadcast(tl_ranks *r, int root, tl_tensor *t);
TL_API tl_status tl_ranks_broadcast_words(tl_ranks *r, int root, int32_t *words, int64_t count);
/* Replaces t, float32, on all ranks by the sum ((t_0 + t_1) + t_2) ... over the ranks. */
TL_API tl_status tl_ranks_sum(tl_ranks *r, tl_tensor *t);
/* One rank sends a word to another, which takes it if it has arrived. */
TL_API tl_status tl_ranks_send_word(tl_ranks *r, int to, int tag, int32_t word);
TL_API tl_status tl_ranks_take_word(tl_ranks *r, int from, int tag, int *out_there,
                                    int32_t *out_word);
/* Begins to send t (NULL: no elements) to another rank. The caller does not write t before
** tl_ranks_finish. Tags, also of words, are 1 or more. TL_ETYPE: t is int32 and there is a link. */
TL_API tl_status tl_ranks_send(tl_ranks *r, int to, int tag, tl_tensor *t);
/* Waits for such a message and writes it to t, which has the size of what was sent. */
TL_API tl_status tl_ranks_receive(tl_ranks *r, int from, int tag, tl_tensor *t);
/* Turn the rank's share of the tokens of a sequence, of all channels, into all tokens of its share
** of the channels, and back, with gradients. Shares are contiguous, in the order of the ranks.
**   x [b,n/p,d] <-> y [b,n,d/p], for p ranks   TL_ESHAPE: d, or n, is not a multiple of p */
TL_API tl_status tl_ranks_to_channels(tl_ranks *r, tl_tensor *x, tl_tensor **out_y);
TL_API tl_status tl_ranks_to_tokens(tl_ranks *r, tl_tensor *y, tl_tensor **out_x);
/* Like tl_backward, but the gradients of the leaves are summed along a chain of ranks: each rank
** receives the sums so far, adds the gradients of its own loss, and sends the sums on. The ranks of
** the chain call it, with the same leaves in the same order; other ranks of the group do not.
**   loss: this rank's own; NULL adds nothing to the sums
**   from: the rank whose sums replace the leaves' gradients before this pass adds to them; -1: none
**   to: the rank that receives each sum as soon as it is final; -1: none
** TL_EINVAL: a leaf is given twice or requires no gradient, or a gradient changes after it was
** sent. */
TL_API tl_status tl_ranks_backward(tl_ranks *r, tl_tensor *loss, tl_tensor *const *leaves,
                                   int count, int from, int to);
/* Waits for what tl_ranks_send and tl_ranks_backward have sent. One rank alone may call it. */
TL_API tl_status tl_ranks_finish(tl_ranks *r);

/* ---- Files ----------------------------------------------------------------------------------- */

/* Creates a folder and its missing parents (mkdir -p). After a failure of this function or of
** tl_file_write, errno holds the cause. */
TL_API tl_status tl_file_folders(tl_ctx *ctx, const char *folder);
/* Syncs a folder, so that files created, renamed or removed in it survive a power failure. */
TL_API tl_status tl_file_sync_folder(tl_ctx *ctx, const char *folder);
/* Replaces the content of path atomically: writes a temporary file beside it, syncs, renames it and
** syncs the folder. On failure path holds its old content, unless only the sync of the folder
** failed: then the new one, which a power failure may undo. TL_ENOSPC: less than twice the size is
** free. TL_EINVAL: path is not a plain file. TL_ENOTFOUND: there is no such folder. TL_EIO. */
TL_API tl_status tl_file_write(tl_ctx *ctx, const char *path, const void *data, size_t bytes);

/* Write the SHA-256 as 64 hexadecimal digits and a NUL. TL_EIO: path is not a regular file, or
** cannot be read. TL_ENOTFOUND: there is none. */
TL_API void tl_sha256(const void *data, size_t bytes, char out_hex[65]);
TL_API tl_status tl_sha256_file(tl_ctx *ctx, const char *path, char out_hex[65]);

#ifdef __cplusplus
}
#endif
#endif

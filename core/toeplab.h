/* toeplab.h - the whole public API of libtoeplab, the engine of Toeplab.
**
** What it is: dense tensors, operators with gradients, optimisers, random streams, Toeplitz
** neural operators run by plugins (backend.h), text, and the store of runs. What it is not: no
** layers, no models, no training loop, no Lua.
**
** Conventions, true of every function unless its comment says otherwise
**   - A fallible function returns tl_status; the message, with the numbers in it, is
**     tl_errmsg(ctx).
**   - out_x is written only on TL_OK and is then owned by the caller: release it with the
**     matching _free.
**   - _free(NULL) is harmless. Inputs are never changed. _retain adds an owner. _view shares
**     storage.
**   - A tensor is dense and row-major, float32 or int32, of 0 to TL_MAXDIMS dimensions (0: one
**     number). Every dimension is at least 0; an operator says when it needs at least 1.
**   - Letters: b batch, n length, d channels, h heads, r inducing points, m taps, v vocabulary,
**     p points.
**   - An operator with a float32 input that wants gradients is recorded on the context's tape
**     (see Gradients).
**   - Errors that any operator may return and comments do not repeat: TL_ENOMEM, TL_ESHAPE
**     (shapes do not agree), TL_ETYPE (float32 given for int32 or the reverse), TL_EDEVICE
**     (operands on different devices, or the operator is missing on theirs).
**   - A context and all that belongs to it is used by one thread at a time; it runs its own
**     threads inside. */
#ifndef TOEPLAB_H
#define TOEPLAB_H

#include <stddef.h>
#include <stdint.h>

#include "backend.h" /* tl_device and tl_status; programs need nothing else of it */

#ifdef __cplusplus
extern "C" {
#endif

#define TL_VERSION "0.1.0"

/* The number of the results: it is part of the id of every trial. Raise it by one with each change
** that may alter what a training run computes, in C or in Lua, on the CPU or on a GPU: finished
** trials then count as new. tests/lua/trials/test_numerics.lua fails if it is forgotten. */
#define TL_NUMERICS 1

/* ---- Status (the codes are in status.h) ------------------------------------------------------ */

const char *tl_status_name(tl_status st); /* "ENOMEM" */
const char *tl_status_text(tl_status st); /* "out of memory" */

/* ---- Context --------------------------------------------------------------------------------- */

/* owns threads, memory cache, tape, loaded backends; outlives its last tensor */
typedef struct tl_ctx tl_ctx;

/* threads: 0 takes as many as the process may use processors (affinity, quota of its container).
** Results are bitwise repeatable for one thread count on one machine. A failure leaves no context
** that could hold a message: TL_EINVAL (threads not in 0..4096), TL_ENOMEM. Signal handlers of the
** program need a stack of their own (SA_ONSTACK): core/onednn.c says why. */
tl_status tl_ctx_new(int threads, tl_ctx **out_ctx);
void tl_ctx_free(tl_ctx *ctx);
/* the last failure, e.g. "matmul: a is [4,3], b is [2,5]" */
const char *tl_errmsg(const tl_ctx *ctx);
int tl_threads(const tl_ctx *ctx);

/* Records st and a printf-style message on ctx and returns st, so that callers write: return
** tl_fail(ctx, ...). */
tl_status tl_fail(tl_ctx *ctx, tl_status st, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

typedef struct tl_memory {
    size_t live;     /* bytes of tensors and scratch in use; where ctx computes */
    size_t peak;     /* largest live since tl_memory_reset_peak */
    size_t cached;   /* bytes kept for reuse */
    int64_t tensors; /* tensors not yet freed */
    int64_t system;  /* times that memory was asked of the system */
} tl_memory;

tl_memory tl_memory_info(const tl_ctx *ctx);
void tl_memory_reset_peak(tl_ctx *ctx);
void tl_memory_trim(tl_ctx *ctx); /* gives cached bytes back to the system */

/* Kernels are timed from now on, from 0 (it costs two looks at the clock per call); until stop. */
tl_status tl_profile_start(tl_ctx *ctx);
void tl_profile_stop(tl_ctx *ctx);

typedef struct tl_kernel_time {
    const char *name;
    int64_t calls;
    double seconds; /* without those of kernels that it calls */
} tl_kernel_time;

/* Kernel i, also one that was not called; 0 and nothing written when there is none. */
int tl_profile_kernel(const tl_ctx *ctx, int i, tl_kernel_time *out_time);

/* What was compiled in and what it runs on, one "name value" line each: version, compiler, blas,
** onednn ("none" without), hdf5, sqlite, transforms, cpu ("unknown" where the system does not
** tell), threads. */
const char *tl_build_info(tl_ctx *ctx);

/* ---- Devices --------------------------------------------------------------------------------- */

/* Where ctx computes from now on: "cpu" (as it begins), "cuda", "cuda:1" for the second card, or
** the path of a device's shared object. Before its first tensor and operator. TL_EDEVICE says why
** it cannot be used; ctx then computes where it did. A tensor that the CPU reads or writes is
** brought to it, and back when an operator needs it. A context on a card stays with the thread that
** chose it, and a process has one card. */
tl_status tl_use_device(tl_ctx *ctx, const char *device);
const char *tl_device_name(const tl_ctx *ctx);
const char *tl_device_about(tl_ctx *ctx); /* card, driver and libraries; "" on the CPU */
tl_status tl_synchronize(tl_ctx *ctx);    /* waits until ctx's device has done what was asked */

/* Of any device but the CPU, none being opened: its shared object; how many cards there are, and
** what the named one is; whether it has a form of that backend. TL_EDEVICE says what is missing. */
tl_status tl_device_file(tl_ctx *ctx, const char *device, char *path, size_t size);
tl_status tl_device_look(tl_ctx *ctx, const char *device, int *out_cards, char *about, size_t size);
tl_status tl_device_takes(tl_ctx *ctx, const char *device, const char *backend, int *out_takes);

/* ---- Tensors --------------------------------------------------------------------------------- */

#define TL_MAXDIMS 6

typedef enum tl_type { TL_F32, TL_I32 } tl_type;
typedef struct tl_tensor tl_tensor;

/* zeros */
tl_status tl_tensor_new(tl_ctx *ctx, tl_type type, int ndim, const int64_t *dims,
                        tl_tensor **out_t);
/* Shares t's storage from element offset on. TL_ESHAPE if it does not fit. Gradients do not
** flow: see tl_reshape. */
tl_status tl_tensor_view(tl_tensor *t, int64_t offset, int ndim, const int64_t *dims,
                         tl_tensor **out_t);
tl_tensor *tl_tensor_retain(tl_tensor *t);
void tl_tensor_free(tl_tensor *t);

tl_ctx *tl_tensor_ctx(const tl_tensor *t);
tl_type tl_tensor_type(const tl_tensor *t);
tl_device tl_tensor_device(const tl_tensor *t);
int tl_tensor_ndim(const tl_tensor *t);
/* axis -1 is the last; 1 if there is no such axis */
int64_t tl_tensor_dim(const tl_tensor *t, int axis);
int64_t tl_tensor_len(const tl_tensor *t); /* number of elements */
unsigned tl_tensor_version(const tl_tensor *t); /* another after an operator or a copy wrote it */
/* storage, borrowed, brought to the CPU; NULL if not float32 (or there is no room for it). Valid
** until an operator uses t on another device. Backward does not see what is written through
** it after an operator has read t: use tl_tensor_copy then. */
float *tl_tensor_f32(tl_tensor *t);
const float *tl_tensor_cf32(const tl_tensor *t);
int32_t *tl_tensor_i32(tl_tensor *t);
const int32_t *tl_tensor_ci32(const tl_tensor *t);
/* writes "[2,3]" and returns buf */
const char *tl_tensor_shape(const tl_tensor *t, char *buf, size_t size);

/* Copies elements first .. first+count-1 to out, wherever t is. TL_ESHAPE if it has fewer. */
tl_status tl_tensor_read(const tl_tensor *t, int64_t first, int64_t count, void *out);
/* same shape and type; copies the elements, no gradient */
tl_status tl_tensor_copy(tl_tensor *dst, const tl_tensor *src);
/* TL_EINVAL: t is int32 and value is NaN or out of range */
tl_status tl_tensor_fill(tl_tensor *t, double value);

/* ---- Gradients ------------------------------------------------------------------------------- */
/* The context's tape lists the recorded operators in order and owns what their gradients need.
** tl_backward walks it once, last to first, adds d loss / d leaf to every leaf that wants a
** gradient, and leaves the tape empty. */

/* a leaf; TL_ETYPE if t is not float32 */
tl_status tl_require_grad(tl_tensor *t, int on);
int tl_requires_grad(const tl_tensor *t);
/* borrowed; NULL before the first backward. Shares storage with no other gradient, unless that was
** set so. */
tl_tensor *tl_grad(const tl_tensor *t);
/* NULL clears it; same shape otherwise */
tl_status tl_grad_set(tl_tensor *t, tl_tensor *grad);
/* switches recording; returns what it was */
int tl_recording(tl_ctx *ctx, int on);
/* loss has one element; TL_EINVAL if not recorded */
tl_status tl_backward(tl_ctx *ctx, tl_tensor *loss);
/* the same of any result, from the gradient dy of it; TL_ESHAPE if that has another shape */
tl_status tl_backward_from(tl_ctx *ctx, tl_tensor *y, tl_tensor *dy);
void tl_tape_clear(tl_ctx *ctx); /* forgets what was recorded */
int64_t tl_tape_len(const tl_ctx *ctx);

/* ---- Elementwise ----------------------------------------------------------------------------- */

/* clang-format off */
#define TL_UNARY_MAP(X) \
    X(identity, "x") X(neg, "-x") X(abs, "|x|") X(square, "x^2") X(sqrt, "sqrt x") \
    X(rsqrt, "x^-1/2") X(reciprocal, "1/x") X(exp, "e^x") X(log, "ln x") X(sin, "sin x") \
    X(cos, "cos x") X(tanh, "tanh x") X(sigmoid, "1/(1+e^-x)") \
    X(relu, "max(x,0), slope 0 at 0") X(relu2, "max(x,0)^2") \
    X(leaky_relu, "x, 0.01 x below 0") X(elu, "x, e^x-1 below 0") X(elu1, "1+elu(x)") \
    X(silu, "x sigmoid(x)") X(gelu, "x Phi(x)") X(gelu_tanh, "gelu by tanh") \
    X(softplus, "ln(1+e^x)")
/* clang-format on */

typedef enum tl_unary_kind {
#define X(name, text) TL_UNARY_##name,
    TL_UNARY_MAP(X)
#undef X
        TL_UNARY_KINDS
} tl_unary_kind;

const char *tl_unary_name(tl_unary_kind kind);                           /* "silu" */
tl_status tl_unary(tl_unary_kind kind, tl_tensor *x, tl_tensor **out_y); /* y = f(x) */

typedef enum tl_binary_kind { TL_ADD, TL_SUB, TL_MUL, TL_DIV, TL_MAX, TL_MIN } tl_binary_kind;
/* y = a op b, dimensions aligned at the right, 1 stretches (numpy's rule). At a tie TL_MAX and
** TL_MIN follow a. */
tl_status tl_binary(tl_binary_kind kind, tl_tensor *a, tl_tensor *b, tl_tensor **out_y);
/* y = scale x + shift */
tl_status tl_affine(tl_tensor *x, double scale, double shift, tl_tensor **out_y);
/* y = f(a) b, same shapes; fused */
tl_status tl_gate(tl_unary_kind kind, tl_tensor *a, tl_tensor *b, tl_tensor **out_y);

/* ---- Products -------------------------------------------------------------------------------- */

/* How the operands of tl_matmul, tl_linear, tl_linear_cross_entropy and of their gradients are
** multiplied: as they are; or rounded to bfloat16 (8 bits of significand, to nearest, ties to
** even); or, on cards alone, to TF32 (11 bits, as the card does it). Sums, results, gradients and
** all else are float32 with each. On the CPU bf16 is about twice as fast where oneDNN finds the
** processor's instructions for it (tl_build_info), elsewhere slower. It counts when a product is
** run, and then for its gradients too. tl_mlp and tl_tno are float32. */
typedef enum tl_precision_kind { TL_FLOAT32, TL_BF16, TL_TF32 } tl_precision_kind;

tl_precision_kind tl_precision(const tl_ctx *ctx); /* TL_FLOAT32 at first */
/* TL_EINVAL: the context's device has no such products; it stays as it was */
tl_status tl_set_precision(tl_ctx *ctx, tl_precision_kind kind);
int tl_has_precision(const tl_ctx *ctx, tl_precision_kind kind);

/* y = op(a) op(b) on the last two axes, op transposing them if trans_. Leading axes of a and b
** are equal, or b has none (then a's are folded into rows, and trans_a must be 0). [..,m,k] x
** [..,k,n] -> [..,m,n] */
tl_status tl_matmul(tl_tensor *a, int trans_a, tl_tensor *b, int trans_b, tl_tensor **out_y);
/* y = x w^T + bias.   x [..,k]   w [o,k]   bias [o] or NULL   y [..,o] */
tl_status tl_linear(tl_tensor *x, tl_tensor *w, tl_tensor *bias, tl_tensor **out_y);

/* ---- Reductions ------------------------------------------------------------------------------ */

typedef enum tl_reduce_kind { TL_SUM, TL_MEAN, TL_AMAX } tl_reduce_kind;
#define TL_ALL (-128)
/* Over one axis (negative counts from the end; keep leaves it as 1), or TL_ALL: y is one number.
** float64 accumulation over an axis of float32. TL_AMAX's gradient goes to the first maximum. */
tl_status tl_reduce(tl_reduce_kind kind, tl_tensor *x, int axis, int keep, tl_tensor **out_y);
/* The position of the first maximum along the last axis, from 0.   x [..,n], n >= 1   index [..]
** int32. A NaN is passed over unless it comes first. No gradient. */
tl_status tl_argmax(tl_tensor *x, tl_tensor **out_index);
/* y_i = sum over j <= i of x_j */
tl_status tl_cumsum(tl_tensor *x, int axis, tl_tensor **out_y);

/* ---- Shape ----------------------------------------------------------------------------------- */

/* one dim may be -1; shares storage */
tl_status tl_reshape(tl_tensor *x, int ndim, const int64_t *dims, tl_tensor **out_y);
/* y axis i is x axis axes[i]; copies */
tl_status tl_transpose(tl_tensor *x, const int *axes, tl_tensor **out_y);
/* copies */
tl_status tl_slice(tl_tensor *x, int axis, int64_t start, int64_t count, tl_tensor **out_y);
/* xs one after another along axis, where alone their sizes may differ; of one type; copies, but one
** tensor alone is as tl_reshape. TL_EINVAL, without a message for want of a context: count < 1 */
tl_status tl_concat(tl_tensor *const *xs, int count, int axis, tl_tensor **out_y);
/* y = x at index along axis 0.   x [p,..]   index [..] int32   y [index..,..]. TL_EINVAL names
** an index out of range. With x [v,d] this is an embedding; its gradient adds rows in index
** order, so it is repeatable. */
tl_status tl_gather(tl_tensor *x, tl_tensor *index, tl_tensor **out_y);

/* ---- Softmax and losses ---------------------------------------------------------------------- */

/* Over the last axis. causal: x [..,n,n] and entries j > i get weight 0. */
tl_status tl_softmax(tl_tensor *x, int causal, tl_tensor **out_y);
tl_status tl_log_softmax(tl_tensor *x, tl_tensor **out_y);
/* Cross entropy in nats: the mean over targets that are not ignore of -log
** softmax(logits)[target].
**   logits [..,v]   targets [..] int32   loss: one number, 0 if all are ignored.   TL_EINVAL: a
**   target outside 0..v-1 */
tl_status tl_cross_entropy(tl_tensor *logits, tl_tensor *targets, int32_t ignore,
                           tl_tensor **out_loss);
/* The same with logits = x w^T (+ bias or NULL), made and consumed a block of rows at a time:
** they are never all stored.
**   x [..,d]   w [v,d]   bias [v] */
tl_status tl_linear_cross_entropy(tl_tensor *x, tl_tensor *w, tl_tensor *bias, tl_tensor *targets,
                                  int32_t ignore, tl_tensor **out_loss);

/* ---- Norms (over the last axis, of size d) --------------------------------------------------- */

/* (x - mean)/sqrt(var + eps) weight + bias; weight, bias [d] or NULL */
tl_status tl_layer_norm(tl_tensor *x, tl_tensor *weight, tl_tensor *bias, double eps,
                        tl_tensor **out_y);
/* x / sqrt(mean x^2 + eps) weight; weight [d] or NULL */
tl_status tl_rms_norm(tl_tensor *x, tl_tensor *weight, double eps, tl_tensor **out_y);
/* x / (||x||/sqrt d + eps): eps outside the root (TNN code); 0 -> 0 */
tl_status tl_simple_rms_norm(tl_tensor *x, double eps, tl_tensor **out_y);
/* weight x / max(||x||/sqrt d, eps); weight: one number; 0 -> 0 */
tl_status tl_scale_norm(tl_tensor *x, tl_tensor *weight, double eps, tl_tensor **out_y);
/* Per channel over all other axes. training: batch statistics, and running <- (1-momentum)
** running + momentum batch (unbiased variance, as PyTorch); else the running ones. weight, bias,
** running_mean, running_var [d]. */
tl_status tl_batch_norm(tl_tensor *x, tl_tensor *weight, tl_tensor *bias, tl_tensor *running_mean,
                        tl_tensor *running_var, int training, double momentum, double eps,
                        tl_tensor **out_y);

/* ---- Networks -------------------------------------------------------------------------------- */

typedef enum tl_norm_kind {
    TL_NORM_NONE,  /* x */
    TL_NORM_LAYER, /* (x - mean)/sqrt(var + eps) */
    TL_NORM_RMS,   /* x / sqrt(mean x^2 + eps) */
    TL_NORM_SIMPLE /* x / (||x||/sqrt k + eps); 0 -> 0 */
} tl_norm_kind;

typedef struct tl_mlp_layer {
    tl_tensor *weight, *bias; /* [o,k], and [o] or NULL */
    /* of the layer's input; the first layer has none */
    tl_norm_kind norm;
    double eps;
    tl_tensor *norm_weight, *norm_bias; /* [k] or NULL: norm(x) weight + bias */
} tl_mlp_layer;

/* y = x_count by x_1 = x w^T + bias and x_l = act(norm(x_(l-1))) w^T + bias, to which with residual
** all layers but the first and the last add x_(l-1): the relative position encoder (TNN, Sec. 3.2)
** in one pass. Row r of y is multiplied by scale_r, e.g. a decay.
**   x [p,k]   scale [p] or NULL   y [p,o of the last].   TL_EINVAL: count < 2, or scale wants a
** gradient: it has none */
tl_status tl_mlp(tl_tensor *x, const tl_mlp_layer *layers, int count, tl_unary_kind act,
                 int residual, tl_tensor *scale, tl_tensor **out_y);

/* ---- Convolution and transforms -------------------------------------------------------------- */

/* Depthwise: y[b,i,c] = sum over k of taps[k,c] x[b, i - (k - origin), c], zero outside 0..n-1.
**   x, y [b,n,d]   taps [m,d]   origin: the tap of lag 0 (0: causal; m/2 rounded down: centred) */
tl_status tl_depthwise_conv(tl_tensor *x, tl_tensor *taps, int64_t origin, tl_tensor **out_y);

/* Discrete Fourier transforms along one axis; a complex tensor has a last axis of size 2 (real,
** imaginary) that does not count as an axis here. Unscaled forward, 1/n inverse. TL_EBACKEND if
** no loaded backend provides transforms.
**   fft, ifft: complex n -> complex n     rfft: real n -> complex n/2+1     irfft: complex n/2+1
**   -> real n */
tl_status tl_fft(tl_tensor *x, int axis, int inverse, tl_tensor **out_y);
tl_status tl_rfft(tl_tensor *x, int axis, tl_tensor **out_y);
tl_status tl_irfft(tl_tensor *x, int axis, int64_t n, tl_tensor **out_y);

/* ---- Linear algebra (for analysis: no gradients; LAPACK in float64) -------------------------- */

/* a = u diag(s) v, s from large to small.   a [m,n]   u [m,k]   s [k]   v [k,n], k = min(m,n).
** out_u and out_v may both be NULL. TL_EINVAL: a is not finite */
tl_status tl_svd(tl_tensor *a, tl_tensor **out_u, tl_tensor **out_s, tl_tensor **out_v);
/* x with a x = b.   a [n,n]   b, x [n,m].   TL_EINVAL: a is singular, or not finite */
tl_status tl_solve(tl_tensor *a, tl_tensor *b, tl_tensor **out_x);

/* ---- Random streams -------------------------------------------------------------------------- */
/* Philox4x32-10 (Salmon et al. 2011): number i of a stream depends on (seed, purpose, i) alone,
** so a stream is resumed by storing two numbers and gives the same values for any thread count.
** One stream per purpose. */

typedef struct tl_stream {
    uint64_t key;    /* from seed and purpose */
    uint64_t offset; /* 128-bit blocks used so far */
} tl_stream;

tl_stream tl_stream_new(uint64_t seed, const char *purpose); /* e.g. "init", "dropout", "data" */
uint32_t tl_random_u32(tl_stream *s);
double tl_random_unit(tl_stream *s);                  /* [0,1), 53 bits */
int64_t tl_random_below(tl_stream *s, int64_t bound); /* 0..bound-1, unbiased; bound >= 1 */
/* fills a float32 tensor */
tl_status tl_random_uniform(tl_tensor *t, tl_stream *s, double low, double high);
tl_status tl_random_normal(tl_tensor *t, tl_stream *s, double mean, double deviation);
/* fills int32 [n] with 0..n-1 shuffled */
tl_status tl_random_permutation(tl_tensor *t, tl_stream *s);
/* y = x keep / (1-p), keep ~ Bernoulli(1-p); no mask is stored, backward draws it again. 0 <= p
** < 1. */
tl_status tl_dropout(tl_tensor *x, double p, tl_stream *s, tl_tensor **out_y);
/* One draw from softmax(logits / temperature) of logits [v], among the top_k largest (0: all).
** temperature 0: argmax. */
tl_status tl_sample(const tl_tensor *logits, double temperature, int top_k, tl_stream *s,
                    int32_t *out_id);

/* ---- Graphs ---------------------------------------------------------------------------------- */
/* What a card is asked to do, captured once and done again as a whole: a CUDA graph. */

typedef struct tl_graph tl_graph;

/* Whether ctx's device can capture now: the CPU cannot, and no device while a profile counts the
** kernels one by one. */
int tl_has_graphs(const tl_ctx *ctx);
/* From here to tl_graph_end, or tl_graph_free, which gives up, operators are captured, not run; one
** that needs a tensor on the CPU is TL_EDEVICE. streams, of different keys, are those that they may
** draw from; borrowed until then, and where they were afterwards. TL_EDEVICE: the device has no
** graphs. TL_EINVAL: one is being captured, or a stream is given twice. */
tl_status tl_graph_begin(tl_ctx *ctx, tl_stream *const *streams, int count, tl_graph **out_g);
/* results: the tensors made that are read afterwards; each run writes them. The others never have
** values. After a failure g is good for tl_graph_free only. */
tl_status tl_graph_end(tl_graph *g, tl_tensor *const *results, int count);
/* Runs what was captured, from what its tensors hold now and with the next numbers of the streams,
** given in the same order. *out_ran 0: nothing was done, for a tensor has moved or a stream has
** another key; capture it again. TL_EINVAL: the capture had another number of streams, or one is
** going on. */
tl_status tl_graph_run(tl_graph *g, tl_stream *const *streams, int count, int *out_ran);
void tl_graph_free(tl_graph *g);

/* ---- Optimisers ------------------------------------------------------------------------------ */

typedef enum tl_adam_kind {
    TL_ADAM,  /* weight decay added to the gradient (coupled; Kingma & Ba with L2) */
    TL_ADAMW, /* p -= lr wd p, then the step (Loshchilov & Hutter); PyTorch's AdamW */
    TL_ADAM_FAIRSEQ /* as ADAMW, but p -= lr sqrt(c2)/c1 m / (sqrt(v) + eps); fairseq's "adam" */
} tl_adam_kind;

typedef struct tl_adam_options {
    tl_adam_kind kind;
    double lr, beta1, beta2, eps, weight_decay;
    int64_t step; /* 1 for the first update */
} tl_adam_options;

/* One update of params[i] from its gradient times grad_scale, g, with moments m[i], v[i] of its
** shape: m = beta1 m + (1-beta1) g, v = beta2 v + (1-beta2) g^2, c1 = 1-beta1^step, c2 likewise,
** p -= lr (m/c1) / (sqrt(v/c2) + eps). A parameter without a gradient is left alone. No tensor is
** given twice. */
tl_status tl_adam_step(tl_tensor *const *params, tl_tensor *const *m, tl_tensor *const *v,
                       int count, const tl_adam_options *opt, double grad_scale);
/* buf[i]: momentum buffers or NULL when momentum is 0.
** g += wd p; buf = momentum buf + g; p -= lr (buf or g). No tensor is given twice. */
tl_status tl_sgd_step(tl_tensor *const *params, tl_tensor *const *buf, int count, double lr,
                      double momentum, double weight_decay, double grad_scale);
/* sqrt of the sum over params of |grad|^2, in float64, in an order that depends on shapes only.
** On a card it waits for one number. */
tl_status tl_grad_norm(tl_tensor *const *params, int count, double *out_norm);

/* ---- Toeplitz neural operators --------------------------------------------------------------- */
/* An encoder gives coefficients at the points that a backend names; the backend mixes tokens
** with them (DESIGN.md). Time-domain backends take lags: causal 0..n-1, row k is lag k; else
** -(n-1)..n-1, row n-1 is lag 0. */

/* a backend, its options and its plan for one (n, d, causal); belongs to the context */
typedef struct tl_tno tl_tno;

/* options: "key=value" strings ended by NULL, or NULL for defaults; checked against the
** backend's table. TL_EBACKEND: no such backend (the message lists those present), or it does
** not take this problem (and why). TL_EINVAL: an option unknown, of the wrong type or out of
** range. n, d >= 1.
** Backend "auto" is that of rac, fft and matrix which is quickest at the problem: measured once and
** remembered in the folder of tuning results. */
tl_status tl_tno_new(tl_ctx *ctx, const char *backend, int64_t n, int64_t d, int causal,
                     const char *const *options, tl_tno **out_tno);
void tl_tno_free(tl_tno *tno);
/* [p] float32: where to evaluate the encoder */
tl_status tl_tno_points(tl_tno *tno, tl_tensor **out_points);
/* numbers per point and channel: 1 or 2 */
int tl_tno_width(const tl_tno *tno);
/* its name; what "auto" chose */
const char *tl_tno_chosen(const tl_tno *tno);
/* "lag", "warp" or "frequency": what a point is */
const char *tl_tno_domain(const tl_tno *tno);
/* what the backend warns of, or NULL; as long as tno lives */
const char *tl_tno_warning(const tl_tno *tno);
/* the backend's own parameters */
int tl_tno_param_count(const tl_tno *tno);
tl_status tl_tno_param(tl_tno *tno, int i, const char **out_name, int *out_ndim,
                       int64_t out_dims[TL_MAXDIMS], const char **out_init);
/* y = T(coef, params) x per channel (TNN, Eq. 4).   coef [p, width d]   x, y [b,n,d] */
tl_status tl_tno_apply(tl_tno *tno, tl_tensor *coef, tl_tensor *const *params, tl_tensor *x,
                       tl_tensor **out_y);
/* The same for several calls in which coef and params do not change: *kept is what the backend
** makes of them. NULL at first, then owned by the caller, and coef may be NULL; NULL still: this
** one keeps nothing. */
tl_status tl_tno_apply_again(tl_tno *tno, tl_tensor *coef, tl_tensor *const *params, tl_tensor *x,
                             tl_tensor **kept, tl_tensor **out_y);
/* T [d,n,n], no gradient */
tl_status tl_tno_dense(tl_tno *tno, tl_tensor *coef, tl_tensor *const *params, tl_tensor **out_t);

/* coef_k <- coef_k gamma^|k| (TNN, Eq. 8).   coef [p,d]   lags [p]   gamma [d] or one number,
** each in (0,1], or TL_EINVAL, on a card when something is next read; gradients to coef, and to
** gamma if it wants one. */
tl_status tl_decay(tl_tensor *coef, tl_tensor *lags, tl_tensor *gamma, tl_tensor **out_coef);

/* ---- Recurrences: a causal Toeplitz operator one position at a time -------------------------- */
/*   y_i = sum over 0 <= k < lags of gamma^k t_k x_(i-k),   x_i = 0 for i < 0
** A ring keeps the last lags inputs and sums them directly. ETSC keeps complex modes, half of them
** by symmetry; etsc.c derives both forms. The exact one equals the ring to rounding, however many
** positions there are, and keeps inputs too unless the decay hides them; the published one is that
** sum for the first lags positions only: at lag `lags` it answers -gamma^lags times the sum of t,
** and so on periodically. */
typedef enum tl_recurrence_kind { TL_RING, TL_ETSC_EXACT, TL_ETSC_PUBLISHED } tl_recurrence_kind;

/* the kernel and the state of b sequences; belongs to the context */
typedef struct tl_recurrence tl_recurrence;

/* t [lags,d], lags and d >= 1: coefficients without decay   gamma [d], one number, or NULL for 1;
** in (0,1]. ETSC needs transforms (see tl_fft). */
tl_status tl_recurrence_new(tl_tensor *t, tl_tensor *gamma, tl_recurrence_kind kind, int64_t b,
                            tl_recurrence **out_r);
void tl_recurrence_free(tl_recurrence *r);
/* The next position, x [b,d], or the next n, x [b,n,d]. y, of x's shape, is written; it may be x.
** Nothing is allocated, and nothing recorded. */
tl_status tl_recurrence_step(tl_recurrence *r, tl_tensor *x, tl_tensor *y);
void tl_recurrence_reset(tl_recurrence *r); /* to before the first position */

typedef struct tl_recurrence_size {
    tl_recurrence_kind kind;
    int64_t b, d, lags;
    int64_t modes, period;             /* complex modes kept, and m of their angles; ring: 0 */
    size_t state_bytes, kernel_bytes;  /* of all sequences; of what they share */
} tl_recurrence_size;

tl_recurrence_size tl_recurrence_sizes(const tl_recurrence *r);
/* The modes of ETSC: u <- lambda u + b x (exact form: b (x_i - decay^period x_(i-period))),
** y = the real part of the sum of u, where a mode that is not real counts twice. Row j is mode j,
** or j + 1 in the published form.   b, lambda [modes,d,2]   decay [d]: |lambda| */
tl_status tl_recurrence_modes(const tl_recurrence *r, tl_tensor **out_b, tl_tensor **out_lambda,
                              tl_tensor **out_decay);
/* The recurrence that has these modes. TL_EINVAL: they cannot be of kind, lags and period */
tl_status tl_recurrence_of_modes(tl_tensor *b, tl_tensor *decay, tl_recurrence_kind kind,
                                 int64_t lags, int64_t period, int64_t sequences,
                                 tl_recurrence **out_r);

/* ---- Backends -------------------------------------------------------------------------------- */

/* Loading. tl_ctx_new looks in the build or install folder and then in TOEPLAB_BACKENDS (folders
** separated by ':'). A file that cannot be used is remembered with its reason and is no error:
** tl_backend_problem tells. */
/* TL_EBACKEND with dlerror's text or the ABI numbers */
tl_status tl_backend_load(tl_ctx *ctx, const char *path);
int tl_backend_count(const tl_ctx *ctx);
const char *tl_backend_name(const tl_ctx *ctx, int i);
const char *tl_backend_summary(const tl_ctx *ctx, int i);
const char *tl_backend_path(const tl_ctx *ctx, int i);
int tl_backend_problem_count(const tl_ctx *ctx);
const char *tl_backend_problem(const tl_ctx *ctx, int i); /* "PATH: why" */
/* Option j of backend i: 0 and nothing written when there is none. All strings borrowed. */
int tl_backend_option(const tl_ctx *ctx, int i, int j, const char **out_name, const char **out_type,
                      const char **out_default, const char **out_range, const char **out_help);

/* ---- Text ------------------------------------------------------------------------------------ */

typedef struct tl_vocab tl_vocab; /* token strings by id, and how a text becomes tokens */

tl_status tl_vocab_bytes(tl_ctx *ctx, tl_vocab **out_v); /* 256 tokens, id = byte */
/* The distinct UTF-8 characters of text in code point order. TL_EINVAL names the offset of a
** byte that is not UTF-8. */
tl_status tl_vocab_chars(tl_ctx *ctx, const char *text, size_t bytes, tl_vocab **out_v);
/* GPT-2's byte pair encoding from its files: merges is vocab.bpe or what tl_bpe_train wrote;
** encoder is encoder.json, NULL: ids are 0..255 for the bytes in GPT-2's order, then one per merge;
** dictionary is fairseq's dict.txt or NULL: ids are its rows, each line of a text is stripped of
** white space and ended by </s>, and the size is a multiple of 8 (50264 for GPT-2's files). Without
** dictionary, any bytes survive encoding and decoding. TL_ECORRUPT names the file and the line. */
tl_status tl_vocab_bpe(tl_ctx *ctx, const char *merges, const char *encoder,
                       const char *dictionary, tl_vocab **out_v);
void tl_vocab_free(tl_vocab *v);
int32_t tl_vocab_size(const tl_vocab *v);
int32_t tl_vocab_eos(const tl_vocab *v); /* the token that ends a line; -1: there is none */
/* the bytes that id decodes to, borrowed; NULL if out of range */
const char *tl_vocab_token(const tl_vocab *v, int32_t id, size_t *out_bytes);
/* text -> ids [n]. TL_ENOTFOUND names the first character that the vocabulary lacks, and where
** it is. */
tl_status tl_vocab_encode(tl_vocab *v, const char *text, size_t bytes, tl_tensor **out_ids);

/* The same for a text that comes in parts, cut anywhere: only the ids are kept. */
typedef struct tl_encoder tl_encoder;

tl_status tl_encoder_new(tl_vocab *v, tl_encoder **out_e); /* keeps v alive */
tl_status tl_encoder_feed(tl_encoder *e, const char *text, size_t bytes);
int64_t tl_encoder_count(const tl_encoder *e); /* ids so far */
tl_status tl_encoder_finish(tl_encoder *e, tl_tensor **out_ids); /* ends the text; once */
void tl_encoder_free(tl_encoder *e);

/* What a vocabulary is made from: the distinct words of a text (between spaces and line ends) or
** the pieces inside which GPT-2 merges bytes, and their counts. The text comes in parts. */
typedef struct tl_counter tl_counter;
typedef enum tl_counter_kind { TL_COUNT_WORDS, TL_COUNT_PIECES } tl_counter_kind;

tl_status tl_counter_new(tl_ctx *ctx, tl_counter_kind kind, tl_counter **out_c);
tl_status tl_counter_feed(tl_counter *c, const char *text, size_t bytes);
int32_t tl_counter_size(const tl_counter *c); /* distinct ones so far */
void tl_counter_free(tl_counter *c);
/* The counted words, most frequent first, with <eos> for each end of a line and <unk>, which other
** words become. Decodes to lines as WikiText's: " word word \n". The text is at its end. */
tl_status tl_vocab_words(tl_counter *c, tl_vocab **out_v);
/* Learns byte pairs until there are size tokens, the 256 bytes among them, and writes the merges to
** path as tl_vocab_bpe reads them. TL_EINVAL: the text does not give as many. */
tl_status tl_bpe_train(tl_counter *c, int32_t size, const char *path);

/* The characters of text that it has at least least times, most frequent first, after <pad>, <unk>
** and <eos>, which are 0, 1, 2; other characters become <unk>. TL_EINVAL: a byte is not UTF-8 */
tl_status tl_vocab_frequent(tl_ctx *ctx, const char *text, size_t bytes, int64_t least,
                            tl_vocab **out_v);

/* rows[i] = ids[starts[i] .. starts[i]+n-1].   ids [t] int32   starts [b] int32   rows [b,n].
** TL_EINVAL: outside ids */
tl_status tl_windows(tl_tensor *ids, tl_tensor *starts, int64_t n, tl_tensor **out_rows);
/* Sequence k is ids[starts[k] .. starts[k+1]-1]. Row i is sequence index[i], cut so that it and end
** (unless that is negative) fit into n, then pads; lengths[i] counts what is not padding.
**   ids [t]   starts [k+1]   index [b], all int32   rows [b,n]   lengths [b].   TL_EINVAL: out of
**   range */
tl_status tl_padded(tl_tensor *ids, tl_tensor *starts, tl_tensor *index, int64_t n, int32_t end,
                    int32_t pad, tl_tensor **out_rows, tl_tensor **out_lengths);
/* Bits per token that an interpolated Witten-Bell model of the given order (1: unigram), trained
** on train [t], gives test, each token predicted from those before it (the last of train
** included). v: vocabulary size; order 0 is uniform 1/v. */
tl_status tl_ngram_bits(tl_tensor *train, tl_tensor *test, int order, int32_t v, double *out_bits);

/* ---- ListOps --------------------------------------------------------------------------------- */
/* Nested lists of digits under MIN, MAX, MED (the median, rounded down) and SM (the sum modulo 10),
** as "( ( ( [MAX 2 ) 9 ) ] )"; the parentheses say nothing. Tokens are 3..12 for the digits, 13..16
** for [MIN [MAX [MED [SM and 17 for ], which may also be written X; 0..2 are left to padding. */

#define TL_LISTOPS_TOKENS 18

typedef struct tl_listops {
    uint64_t seed;
    int64_t count;
    int64_t min_length, max_length; /* in tokens, both included; Long Range Arena: 501, 1999 */
    int max_depth, max_args;        /* published: 10, 10 */
} tl_listops;

/* Distinct expressions as Long Range Arena's generator draws them: count of them one after another
** in ids [t], number i from starts[i] to before starts[i+1], and their values. Those of a smaller
** count are the first of a larger.   starts [count+1]   answers [count], all int32.   TL_EINVAL:
** out of range, or there are not as many */
tl_status tl_listops_draw(tl_ctx *ctx, const tl_listops *o, tl_tensor **out_ids,
                          tl_tensor **out_starts, tl_tensor **out_answers);
/* The tokens of one expression. TL_EINVAL: it is none, and where */
tl_status tl_listops_parse(tl_ctx *ctx, const char *text, size_t bytes, tl_tensor **out_ids);
/* The value of the expression ids[first .. first+n-1]. TL_EINVAL: it is none */
tl_status tl_listops_value(const tl_tensor *ids, int64_t first, int64_t n, int *out_value);
/* Writes it as a text, at most size bytes, without a NUL; *out_bytes is how long it is. */
tl_status tl_listops_text(const tl_tensor *ids, int64_t first, int64_t n, char *text, size_t size,
                          size_t *out_bytes);

/* ---- Files ----------------------------------------------------------------------------------- */

/* Makes a folder and those above it that are missing (mkdir -p). On failure errno tells why, here
** and for tl_file_write. */
tl_status tl_file_folders(tl_ctx *ctx, const char *folder);
/* What was created, renamed and removed in a folder is on the disk when this returns. */
tl_status tl_file_sync_folder(tl_ctx *ctx, const char *folder);
/* data becomes the whole content of path: written to a temporary name in the same folder, synced,
** renamed to path, folder synced; so path holds the old or the new content, whole. On failure it
** holds the old one, unless it was the folder that could not be synced: then the new one, which a
** loss of power may undo. Nothing else is left behind. TL_ENOSPC: no room for twice its size. */
tl_status tl_file_write(tl_ctx *ctx, const char *path, const void *data, size_t bytes);

/* SHA-256 as 64 hex digits and a NUL. */
void tl_sha256(const void *data, size_t bytes, char out_hex[65]);
tl_status tl_sha256_file(tl_ctx *ctx, const char *path, char out_hex[65]);

typedef struct tl_attr {
    const char *name;
    char kind; /* 'i' integer, 'f' number, 's' text */
    int64_t i;
    double f;
    const char *s;
} tl_attr;

/* Writes a new HDF5 file with one dataset per tensor (names may hold '/') and attributes on its
** root, as tl_file_write does. Large datasets carry a Fletcher32 checksum. */
tl_status tl_h5_write(tl_ctx *ctx, const char *path, int count, const char *const *names,
                      tl_tensor *const *tensors, int attr_count, const tl_attr *attrs);

/* an HDF5 file open for reading; nothing of it is kept after tl_h5_close */
typedef struct tl_h5 tl_h5;

/* TL_ENOTFOUND, TL_ECORRUPT */
tl_status tl_h5_open(tl_ctx *ctx, const char *path, tl_h5 **out_file);
void tl_h5_close(tl_h5 *file);
/* Child i of group in name order: its name (valid until the next call) and 'g' group, 'd' dataset
** or '?' (a link to nothing, or a named type: tl_h5_read cannot read it). TL_ENOTFOUND: no more.
** TL_EINVAL: there is no such group */
tl_status tl_h5_child(tl_h5 *file, const char *group, int64_t i, const char **out_name,
                      char *out_kind);
/* Attribute i of object in name order; strings valid until the next call. Booleans read as
** integers. TL_ENOTFOUND: no more. TL_EINVAL: there is no such object */
tl_status tl_h5_attr(tl_h5 *file, const char *object, int64_t i, tl_attr *out_attr);
/* A dataset of floats (any width) as float32, of integers as int32. TL_ENOTFOUND, TL_ECORRUPT */
tl_status tl_h5_read(tl_h5 *file, const char *name, tl_tensor **out_t);

/* ---- The store of runs ----------------------------------------------------------------------- */
/* One SQLite file, runs.db, in a results folder. The schema and its public views (v_trials,
** v_metrics, v_last, v_artifacts) are in core/schema.sql; PRAGMA user_version numbers it. One
** writer at a time, held by a lock file. */

typedef struct tl_store tl_store;

typedef enum tl_store_mode { TL_STORE_READ, TL_STORE_WRITE, TL_STORE_ASK } tl_store_mode;

typedef struct tl_value { /* an SQL value */
    char kind;            /* 'n' null, 'i', 'f', 's' */
    int64_t i;
    double f;
    const char *s;
    size_t bytes; /* of s */
} tl_value;

/* ASK opens for reading and runs a user's own SQL, which may take any time. WRITE makes the folder
** and the file if need be, takes the lock and migrates an older schema (after a backup).
** TL_ELOCKED: another process writes there (its pid is in the message). TL_ECORRUPT: a schema that
** is newer or not ours, links in there. */
tl_status tl_store_open(tl_ctx *ctx, const char *folder, tl_store_mode mode, tl_store **out_store);
void tl_store_close(tl_store *store); /* commits nothing: an open transaction is rolled back */
/* Runs one statement with its ? parameters; each row is handed to row (may be NULL), which
** returns 0 to go on. Strings given to row are valid during the call. */
typedef int (*tl_row)(void *user, int columns, const char *const *names, const tl_value *values);
tl_status tl_store_exec(tl_store *store, const char *sql, int count, const tl_value *values,
                        tl_row row, void *user);
/* A statement that runs for seconds ends with TL_EINVAL once stopped() says so. Except in mode ASK
** it also ends, with TL_ECORRUPT, when it takes more steps or gives more rows than the size of its
** file explains. */
void tl_store_watch(tl_store *store, int (*stopped)(void));
int64_t tl_store_last_id(const tl_store *store); /* rowid of the last INSERT */
/* TL_EIO: the lock, the database or its log is not the file any more that a store opened for
** writing holds open; what is written goes nowhere. */
tl_status tl_store_check(const tl_store *store);

#ifdef __cplusplus
}
#endif
#endif

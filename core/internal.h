/* internal.h - what the files of core share: the structs behind the opaque types, and the way
** every operator works.
**
** An operator is three things, side by side in one file:
**   1. the public function: checks shapes, makes the output, launches a kernel, records itself;
**   2. kernels: one per device, listed in that device's table, so that a new device fills a
**   table and changes nothing here;
**   3. a gradient function: launches kernels or calls other operators, hands each result to
**   tl_accumulate.
** */
#ifndef TL_INTERNAL_H
#define TL_INTERNAL_H

#include "backend.h"
#include "toeplab.h"

/* ---- Tensors --------------------------------------------------------------------------------- */

typedef struct tl_storage { /* refcounted memory, shared by views */
    int refs;
    unsigned version; /* how often a kernel wrote it */
    unsigned capture; /* the last capture, by number, in which it was made or used; 0: none */
    int unborn;       /* made in a capture, and its graph has not run: there is nothing in it yet */
    tl_device device; /* where data is at present (device.h) */
    size_t bytes;
    void *data;
} tl_storage;

/* where the gradient of a tensor gathers; shared by the tensor and the tape */
typedef struct tl_slot {
    int refs;
    int leaf;
    int spent;       /* its part of the tape is gone */
    int again;       /* the kernel that makes the tensor again (tl_can_make_again); 0: none */
    int64_t node;    /* where on the tape it was made */
    tl_tensor *grad; /* NULL until something arrived */
} tl_slot;

struct tl_tensor {
    int refs;
    int tape_refs; /* how many of refs are the tape's */
    tl_ctx *ctx;
    tl_storage *storage;
    size_t offset; /* bytes from storage->data on, which is NULL if the tape gave t up */
    tl_type type;
    int ndim;
    int64_t dims[TL_MAXDIMS];
    int64_t len;
    tl_slot *slot; /* NULL: wants no gradient */
};

/* of a tensor that need not be there */
typedef struct tl_shape {
    int ndim;
    int64_t dims[TL_MAXDIMS];
} tl_shape;

#define DATA(t) ((void *)((char *)(t)->storage->data + (t)->offset))
#define F32(t) ((float *)DATA(t))
#define I32(t) ((int32_t *)DATA(t))

/* As tl_tensor_new, but not cleared: for outputs that a kernel writes whole. */
tl_status tl_new(tl_ctx *ctx, tl_type type, int ndim, const int64_t *dims, tl_tensor **out_t);
/* Brings t, of which the caller then reads or writes F32(t) or I32(t), to the CPU. */
tl_status tl_bring(const tl_tensor *t);
void tl_storage_free(tl_ctx *ctx, tl_storage *s); /* drops one of refs */
/* float32 of x's shape, or that one; not cleared */
tl_status tl_new_like(const tl_tensor *x, tl_tensor **out_t);
tl_status tl_new_shaped(tl_ctx *ctx, const tl_shape *shape, tl_tensor **out_t);
tl_shape tl_shape_of(const tl_tensor *x);
int tl_same_shape(const tl_tensor *a, const tl_tensor *b);
int64_t tl_rows(const tl_tensor *x); /* product of all dimensions but the last; 1 for a number */
int64_t tl_cols(const tl_tensor *x); /* the last dimension; 1 for a number */
/* TL_OK with axis made non-negative, or TL_EINVAL naming op. */
tl_status tl_axis(tl_ctx *ctx, const char *op, const tl_tensor *x, int *axis);
/* x seen as [outer, size, inner] with axis, which is not negative, in the middle; TL_ALL: as
** [1, len, 1]. */
typedef struct tl_around {
    int64_t outer, size, inner;
} tl_around;
tl_around tl_split(const tl_tensor *x, int axis);

#define TL_SHAPE_MAX 96
/* Text of a shape for messages; valid until the end of the enclosing block. */
#define SHAPE(t) tl_tensor_shape((t), (char[TL_SHAPE_MAX]){0}, TL_SHAPE_MAX)

/* ---- Kernels --------------------------------------------------------------------------------- */

/* clang-format off */
#define TL_OP_MAP(X) \
    X(copy) X(fill) X(unary) X(unary_grad) X(binary) X(pick) X(reduce_to) X(affine) X(axpy) \
    X(gate) X(gate_grad) X(matmul) X(spread) X(reduce) X(reduce_grad) X(argmax) X(cumsum) \
    X(transpose) X(slice) X(paste) X(gather) X(gather_grad) \
    X(softmax) X(softmax_grad) X(log_softmax) X(log_softmax_grad) X(cross_entropy) X(norm) \
    X(norm_grad) X(batch_norm) X(batch_norm_grad) X(conv) X(conv_grad) X(transform) X(uniform) \
    X(normal) X(dropout) X(adam) X(sgd) X(norm2) X(tno) X(tno_grad) X(decay) X(decay_grad) \
    X(windows) X(recurrence) X(mlp) X(mlp_grad)
/* clang-format on */

typedef enum tl_op {
#define X(name) TL_OP_##name,
    TL_OP_MAP(X)
#undef X
    TL_OPS
} tl_op;

#define TL_ARGS 8
/* What a kernel gets. Which entry means what is written above each kernel. NULL and 0 where
** unused. */
typedef struct tl_args {
    tl_tensor *in[TL_ARGS];
    tl_tensor *out[TL_ARGS];
    int64_t i[TL_ARGS];
    double f[TL_ARGS];
    tl_shape shape[2]; /* on the tape: of tensors that a gradient need not keep */
    void *p;           /* anything else, e.g. a tl_tno */
} tl_args;

typedef tl_status (*tl_kernel)(tl_ctx *ctx, const tl_args *a);
typedef struct tl_kernel_row { /* tables of rows are ended by {0} */
    tl_op op;
    tl_kernel run;
} tl_kernel_row;

/* Runs op on the context's device, to which it brings the operands. TL_EDEVICE if that lacks op. */
tl_status tl_launch(tl_ctx *ctx, tl_op op, const tl_args *a);
/* The same on the CPU, whatever the context computes on. */
tl_status tl_launch_host(tl_ctx *ctx, tl_op op, const tl_args *a);
const char *tl_op_name(tl_op op);
/* What tl_launch does in a profile (profile.c). */
tl_status tl_profile_run(tl_ctx *ctx, tl_op op, tl_kernel kernel, const tl_args *a);

/* The CPU's tables, one per file of operators; context.c lists them. */
extern const tl_kernel_row tl_cpu_tensor[], tl_cpu_elementwise[], tl_cpu_binary[], tl_cpu_matmul[],
    tl_cpu_reduce[], tl_cpu_shape[], tl_cpu_gather[], tl_cpu_softmax[], tl_cpu_norm[],
    tl_cpu_batch_norm[], tl_cpu_conv[], tl_cpu_transform[], tl_cpu_random[], tl_cpu_optim[],
    tl_cpu_tno[], tl_cpu_text[], tl_cpu_recurrence[], tl_cpu_mlp[];

/* ---- The tape -------------------------------------------------------------------------------- */

typedef struct tl_node tl_node;
/* Computes the gradients of node's inputs from dy and gives each to tl_accumulate(ctx,
** node->in[k], grad). */
typedef tl_status (*tl_grad_fn)(tl_ctx *ctx, tl_node *node, tl_tensor *dy);

typedef struct tl_listed { /* one of a list of inputs */
    tl_tensor *t;        /* NULL: not given */
    tl_slot *slot;       /* NULL: wants no gradient */
    unsigned version;    /* of t when it was recorded */
} tl_listed;

struct tl_node {
    tl_grad_fn grad;
    tl_slot *out;
    tl_slot *in[TL_ARGS];     /* NULL: that input wants no gradient */
    tl_args saved;            /* in[]: tensors kept for the gradient; i, f, p: numbers */
    unsigned version[TL_ARGS]; /* of the saved tensors, when they were saved */
    void (*release)(void *p); /* frees saved.p; NULL: nothing to free */
    tl_listed *list;          /* of an operator on a list (tl_record_list), else NULL */
    int count;
    tl_precision_kind precision; /* of its products, so of its gradients' */
};

/* Whether an operator on t (may be NULL) has to be recorded. */
int tl_wants(const tl_ctx *ctx, const tl_tensor *t);
/* Makes out a recorded result of inputs (NULLs allowed) if any of them wants a gradient, else
** does nothing. saved's tensors in[] are retained; saved->p is taken over together with release
** (which runs at once if nothing is recorded). */
tl_status tl_record(tl_ctx *ctx, tl_tensor *out, tl_grad_fn grad, tl_tensor *const *inputs,
                    int count, const tl_args *saved, void (*release)(void *p));
/* The same of an operator on a list of any length, all of it kept in node->list: the gradient
** function hands gradients to tl_accumulate(ctx, node->list[k].slot, grad). */
tl_status tl_record_list(tl_ctx *ctx, tl_tensor *out, tl_grad_fn grad, tl_tensor *const *list,
                         int count, const tl_args *saved, void (*release)(void *p));
/* Says that out, just recorded, is cheap: the kernel op makes it again from what was saved, with
** in, i, f as there and out in out[0]. If it is large, its memory is given up as soon as only the
** tape holds it, and until a gradient needs it. */
void tl_can_make_again(tl_ctx *ctx, tl_tensor *out, tl_op op);
void tl_give_up(tl_tensor *t); /* does so, if that is possible and only the tape holds it */
/* The end of an operator: hands t to *out if st is TL_OK, else frees it; returns st. */
tl_status tl_finish(tl_status st, tl_tensor *t, tl_tensor **out);
tl_slot *tl_slot_new(int leaf); /* NULL: no memory */
tl_slot *tl_slot_retain(tl_slot *slot); /* NULL is harmless */
void tl_slot_free(tl_slot *slot);       /* drops one of refs; NULL is harmless */
/* Hands over what node saved as in[i]. */
tl_tensor *tl_take_saved(tl_node *node, int i);
/* Where a gradient function puts the gradient of the input of slot, of like's shape: a new tensor
** to be written, or the gradient that is there, taken out of slot, to be added to: *out_add is then
** 1. For tl_hand_over, both ways, which brings it back; after a failure it is gone. */
tl_status tl_room(tl_ctx *ctx, tl_slot *slot, const tl_shape *like, tl_tensor **out_g,
                  int64_t *out_add);
/* The same where element i needs nothing of used after element i of it: used itself, if nobody else
** holds it and the values are not needed any more, or a new tensor. Always to be written. */
tl_status tl_room_over(tl_tensor *used, tl_tensor **out_g);
/* Adds g to slot (NULL: only frees g). Takes g over, also on failure. */
tl_status tl_accumulate(tl_ctx *ctx, tl_slot *slot, tl_tensor *g);
/* The end of a gradient function: accumulates grads[i] (NULL: none) in node->in[i] if st is TL_OK
** and frees what it could not. Returns the first failure. */
tl_status tl_hand_over(tl_ctx *ctx, tl_node *node, tl_status st, tl_tensor *const *grads,
                       int count);

/* ---- Context --------------------------------------------------------------------------------- */

typedef struct tl_plugin tl_plugin; /* plugin.c */
typedef struct tl_cache tl_cache;   /* memory.c */

struct tl_ctx {
    int refs; /* the caller's and one per storage */
    int threads;
    int recording;
    int multiplies; /* the libraries of products have what they need (gemm.c) */
    tl_precision_kind precision;
    char message[1024];
    struct tl_pool *pool; /* threads.c */
    tl_cache *cache;
    struct tl_profile *profile; /* NULL: off */
    tl_kernel kernels[TL_DEVICES][TL_OPS];
    tl_device device; /* where kernels run */
    tl_graph *capture; /* NULL: kernels run when they are launched (graph.c) */
    unsigned captures; /* begun so far */
    const struct tl_engine *engine; /* of a device that is not the CPU (device.h) */
    void *engine_state;
    char device_name[64];
    tl_node *tape;
    int64_t tape_len, tape_cap;
    /* While tl_backward walks: the gradient 1 of the loss, known by its address, for a number of
    ** a card would have to be waited for. */
    tl_tensor *one;
    tl_host host;       /* what plugins are given; host.self is this context */
    tl_plugin *plugins; /* list, in order of loading; owned */
    /* plugin files that could not be used: NUL-ended strings, ended by an empty one */
    char *problems;
    char *choices;      /* lines (choose.c), or NULL */
    char *info;            /* text of tl_build_info */
    void *transform_plans; /* transform.c's cache */
    void *products;        /* onednn.c's */
};

void tl_ctx_unref(tl_ctx *ctx); /* drops one of refs */

/* While g is captured: g uses s from now on; g releases p at its end, or at once on failure. */
tl_status tl_graph_use(tl_graph *g, tl_storage *s);
tl_status tl_graph_own(tl_graph *g, void *p, void (*release)(void *p));

/* Memory: counted, 64-byte aligned, kept for reuse by size; large blocks ask for huge pages. */
tl_status tl_memory_open(tl_ctx *ctx);
void tl_memory_close(tl_ctx *ctx);
void *tl_alloc(tl_ctx *ctx, size_t bytes); /* NULL: out of memory, and the message is set */
void tl_release(tl_ctx *ctx, void *p);
/* Checks that the system would still give this many bytes, before a library is called that crashes
** where it gets none. TL_ENOMEM names what needed them. */
tl_status tl_reserve(tl_ctx *ctx, size_t bytes, const char *what);
/* Makes the array whose address is at where hold need elements of size bytes, at least twice what
** it held; *room is how many it holds, both 0 at first. On failure it is as it was. */
tl_status tl_grow(tl_ctx *ctx, void *where, size_t *room, size_t need, size_t size);
void tl_count_tensor(tl_ctx *ctx, int by);
/* For tests: the n-th allocation from now on and all later ones fail; n < 0 ends it. */
void tl_alloc_fail_after(tl_ctx *ctx, int64_t n);

tl_status tl_threads_open(tl_ctx *ctx); /* starts ctx->threads - 1 threads */
void tl_threads_close(tl_ctx *ctx);
/* The processors that this process may use: by its affinity, and by the quota in a cgroup's file
** cpu.max (v2), rounded up. */
int tl_processors(const char *quota_file);
/* Threads: static contiguous split of 0..count-1, at least grain each, so that results depend on
** the thread count only. Not inside a body. */
void tl_parallel(const tl_ctx *ctx, int64_t count, int64_t grain, tl_body body, void *user);

/* c [m,n] = alpha op(a) op(b) + beta c, row-major. tl_gemm uses all threads and the context's
** precision; tl_gemm_serial the calling one and float32. TL_ENOMEM, TL_EBACKEND: with bf16
** only */
tl_status tl_gemm(tl_ctx *ctx, int trans_a, int trans_b, int64_t m, int64_t n, int64_t k,
                  float alpha, const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                  float *c, int64_t ldc);
/* c = op(a) op(b) + beta c of count dense matrices each, one after another */
tl_status tl_gemm_batch(tl_ctx *ctx, int64_t count, int trans_a, int trans_b, int64_t m, int64_t n,
                        int64_t k, const float *a, const float *b, float beta, float *c);
void tl_gemm_serial(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                    const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                    int64_t ldc);

/* The same by OpenBLAS, the quicker up to about 100^3, from where on it packs. */
void tl_gemm_small(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                   const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                   int64_t ldc);

/* Makes the libraries take the memory that they keep for all products, once, where there is enough:
** otherwise oneDNN would end the process, and OpenBLAS never return. TL_ENOMEM */
tl_status tl_gemm_ready(tl_ctx *ctx);

/* TL_ESHAPE naming op if one is more than CBLAS counts to. A leading dimension is one of them. */
tl_status tl_gemm_fits(tl_ctx *ctx, const char *op, int64_t m, int64_t n, int64_t k);
void tl_blas_open(void); /* before the first product: one thread per call (gemm.c) */
const char *tl_blas_name(void);
/* "2.6.3, float32 and bf16", in text; "none" where it was not there to compile with (onednn.c). */
const char *tl_onednn_name(char *text, size_t size);
void tl_onednn_close(tl_ctx *ctx);
const char *tl_hdf5_version(void);   /* h5.c */
const char *tl_sqlite_version(void); /* store.c */
const char *tl_pcre2_version(void);  /* pieces.c */

tl_status tl_plugins_open(tl_ctx *ctx); /* loads the search path (plugin.c) */
void tl_plugins_close(tl_ctx *ctx);
const tl_transforms *tl_find_transforms(const tl_ctx *ctx); /* NULL: no loaded plugin has any */
void tl_transforms_close(tl_ctx *ctx);                      /* frees transform.c's plans */

/* Files (file.c). The failure that errno tells (and tells afterwards), with what failed and where;
** every kind of full is TL_ENOSPC. */
tl_status tl_fail_errno(tl_ctx *ctx, const char *what, const char *path);
/* Opens a plain file for reading; *out_fd is -1 or to be closed, whatever is returned. */
tl_status tl_file_open(tl_ctx *ctx, const char *path, int *out_fd, size_t *out_bytes);
/* Reads *bytes of fd, and puts a NUL behind them; *bytes becomes how many there were. */
tl_status tl_file_fill(tl_ctx *ctx, const char *path, int fd, char *data, size_t *bytes);
/* The whole of a plain file with a NUL behind it, to be released with tl_release. */
tl_status tl_file_read(tl_ctx *ctx, const char *path, char **out_text, size_t *out_bytes);
typedef struct tl_part {
    const void *data;
    size_t bytes;
} tl_part;
/* tl_file_write of several parts, one after another. */
tl_status tl_file_replace(tl_ctx *ctx, const char *path, const tl_part *parts, int count);

/* Hands every entry of the JSON object in text to each, which ends it with
** anything but TL_OK; values are integers. TL_ECORRUPT names path and what is wrong (json.c). */
typedef tl_status (*tl_json_entry)(void *user, const char *key, size_t bytes, int64_t value);
tl_status tl_json_each(tl_ctx *ctx, const char *path, const char *text, size_t bytes,
                       tl_json_entry each, void *user);

/* Takes FOLDER/lock until *out_fd is closed (lock.c). TL_ELOCKED names the process that has it. */
tl_status tl_lock(tl_ctx *ctx, const char *folder, int *out_fd);
/* TL_EIO: FOLDER/lock is not the file any more that fd holds. */
tl_status tl_lock_check(tl_ctx *ctx, const char *folder, int fd);
struct stat;
int tl_same_file(const struct stat *a, const struct stat *b);
#define TL_REPLACED "was moved, removed or replaced while it was written to"

/* 0: the file at path is a shared object that lacks a part; do not load it (elf.c). */
int tl_elf_whole(const char *path);

/* The checksum behind our HDF5 files (trailer.c). */
#define TL_TRAILER 24
void tl_trailer(unsigned char out[TL_TRAILER], const unsigned char *data, size_t bytes);
/* TL_ECORRUPT if data, the whole of path, ends with a trailer that does not fit. */
tl_status tl_trailer_verify(tl_ctx *ctx, const char *path, const void *data, size_t bytes,
                            int *out_there);

/* Philox4x32-10: block number counter of the stream key, four 32-bit numbers (random.c). */
void tl_philox(uint64_t key, uint64_t counter, uint32_t out[4]);

#endif

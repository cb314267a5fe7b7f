/* backend.h - the whole plugin ABI of Toeplab: all that a TNO backend needs, and nothing to
** link.
**
** A backend is a shared object that exports one constant, tl_tno_backend_entry. The host reads
** its field abi before it runs any code of the plugin. A working one is tests/plugin/shift.c:
** one C file, one compiler line.
**
** A TNO is y[b,i,c] = sum over j of T_c[i,j] x[b,j,c] with T_c given by coefficients. The
** backend says at which points it wants the coefficients, plans for a problem, and applies the
** operator and its adjoints. All arrays are float32, dense and row-major: x, y, dx, dy [b,n,d];
** coef, dcoef [p, width d]; T [d,n,n].
**
** The rule for a plugin: no constructors, no exit, no printing; no mutable globals but a lock
** around what a library that it uses keeps for the process (backends/fft: FFTW's planner); scratch
** is made in plan, not in forward; forward, backward and dense of one plan are not called at the
** same time. */
#ifndef TL_BACKEND_H
#define TL_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TL_TNO_ABI 3u

typedef enum tl_device { TL_CPU, TL_CUDA, TL_DEVICES } tl_device;

/* ---- What the host offers -------------------------------------------------------------------- */

typedef struct tl_host tl_host;

/* body runs on begin <= i < end; thread is 0..threads-1 and no two bodies run at once with the
** same thread. */
typedef void (*tl_body)(void *user, int64_t begin, int64_t end, int thread);

typedef enum tl_transform_kind {
    TL_C2C_FORWARD,  /* [n,2] -> [n,2]       sum over j of x_j exp(-2 pi i j k / n) */
    TL_C2C_BACKWARD, /* [n,2] -> [n,2]       the same with +i; unscaled */
    TL_R2C,          /* [n] -> [n/2+1,2] */
    TL_C2R           /* [n/2+1,2] -> [n]     unscaled; the input is kept */
} tl_transform_kind;

/* Fourier transforms of one contiguous vector. A plugin may provide them (field transforms of
** its entry). */
typedef struct tl_transforms {
    const char *name; /* "FFTW 3.3.10" */
    /* n >= 1; shared: see release */
    tl_status (*plan)(const tl_host *h, tl_transform_kind kind, int64_t n, void **out_plan);
    /* thread-safe; in, out from alloc, not equal */
    void (*run)(const void *plan, const float *in, float *out);
    void (*release)(void *plan);
} tl_transforms;

struct tl_host {
    /* sizeof this struct in the host; new members are added at the end only */
    uint32_t size;
    void *self; /* the host's own */
    int threads;
    const char *cache_dir; /* a folder to keep tuning results in, or NULL */
    /* Splits 0..count-1 into at most threads contiguous parts of at least grain; the split
    ** depends on the numbers alone. Not inside a body. */
    void (*parallel)(const tl_host *h, int64_t count, int64_t grain, tl_body body, void *user);
    /* 64-byte aligned, counted in the memory report; NULL: none left */
    void *(*alloc)(const tl_host *h, size_t bytes);
    void (*free)(const tl_host *h, void *p); /* NULL is harmless */
    /* c [m,n] = alpha op(a) op(b) + beta c, row-major, leading dimensions lda, ldb, ldc; serial:
    ** call it inside a body */
    void (*gemm)(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                 const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                 int64_t ldc);
    const tl_transforms *(*transforms)(const tl_host *h); /* from any loaded plugin, or NULL */
    tl_status (*fail)(const tl_host *h, tl_status st, const char *format, ...);
};

/* ---- What a backend is ----------------------------------------------------------------------- */

typedef struct tl_option { /* one option; a table of them is ended by {0} */
    const char *name;
    char type;          /* 'i' integer, 'f' number, 'b' boolean, 's' one of the words in range */
    const char *preset; /* the default, as text */
    const char *range;  /* "1..", "0..1", or words "linear cubic"; NULL: any */
    const char *help;   /* one line */
} tl_option;

typedef struct tl_option_value {
    int64_t i;     /* types 'i' and 'b' */
    double f;      /* type 'f' */
    const char *s; /* type 's' */
} tl_option_value;

typedef struct tl_tno_problem {
    int64_t n, d; /* length, channels: both >= 1 */
    int causal;
    tl_device device;
    const tl_option_value *options; /* in the order of the backend's table */
} tl_tno_problem;

/* A learnable tensor of the backend's own, e.g. the taps of ski; a table of them is ended by
** {0}. */
typedef struct tl_param {
    const char *name;
    /* "normal", "uniform", "zeros", "ones" */
    const char *init;
    /* returns the number of dimensions */
    int (*shape)(const tl_tno_problem *p, int64_t out_dims[6]);
} tl_param;

typedef struct tl_tno_args {
    int64_t b;                  /* batch, >= 0 */
    const float *coef;          /* [p, width d]; with known perhaps NULL */
    const float *const *params; /* in the order of the backend's table */
    const float *x;             /* [b,n,d] */
    float *y;                   /* forward: written */
    const float *dy;            /* backward: d loss / d y */
    float *dx;                  /* backward: written; NULL: not wanted; so for the next two */
    float *dcoef;
    float *const *dparams; /* NULL, or an array whose members may be NULL */
    float *dense;          /* dense: T [d,n,n], written */
    float *kept;           /* the backend's own, of the size kept says; NULL: not to be had */
    int    known;          /* kept is of this coef and params; otherwise forward writes it */
} tl_tno_args;

typedef struct tl_tno_backend {
    uint32_t abi;             /* TL_TNO_ABI; the first field, for ever */
    const char *name;         /* a lower-case word */
    const char *summary;      /* one line */
    const char *domain;       /* what a point is: "lag", "warp" or "frequency" */
    const tl_option *options; /* NULL: none */
    const tl_param *params;   /* NULL: none */
    /* 1, or 0 with a reason in why: "frequency responses have no two-sided form yet"; a text in why
    ** beside 1 is a warning to the user. No side effect. */
    int (*accepts)(const tl_tno_problem *p, char *why, size_t size);
    /* how many; writes them if out is not NULL */
    int64_t (*points)(const tl_tno_problem *p, double *out);
    /* numbers per point and channel; NULL: 1 */
    int (*width)(const tl_tno_problem *p);
    /* h lives as long as the plan */
    tl_status (*plan)(const tl_host *h, const tl_tno_problem *p, void **out_plan);
    tl_status (*forward)(void *plan, const tl_tno_args *a); /* coef, params, x -> y */
    /* coef, params, x, dy -> dx, dcoef, dparams (overwritten) */
    tl_status (*backward)(void *plan, const tl_tno_args *a);
    /* coef, params -> dense; NULL: the host applies T to unit vectors */
    tl_status (*dense)(void *plan, const tl_tno_args *a);
    void (*release)(void *plan);
    const tl_transforms *transforms; /* NULL: provides none */
    /* How many floats made of coef and params alone are worth keeping for calls in which these do
    ** not change; the host keeps them. NULL: none */
    int64_t (*kept)(void *plan);
    /* The longest sequence for which the backend "auto" may choose this one by measuring it; 0:
    ** never. A candidate takes a coefficient per lag, all of them and no others, so that every
    ** candidate computes the same operator. */
    int64_t auto_length;
} tl_tno_backend;

#if defined(_WIN32)
#define TL_EXPORT __declspec(dllexport)
#else
#define TL_EXPORT __attribute__((visibility("default")))
#endif

/* Defined by the plugin, found by name: its only exported symbol. */
extern TL_EXPORT const tl_tno_backend tl_tno_backend_entry;

#ifdef __cplusplus
}
#endif
#endif

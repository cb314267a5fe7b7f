/* backend.h - the plugin ABI of Toeplab: everything that a TNO backend needs to include. A backend
** links against nothing.
**
** A backend is a shared object that exports one constant, tl_tno_backend_entry. The host checks its
** field abi before it runs any code of the plugin. tests/plugin/shift.c is a working example: one C
** file, built by one compiler line.
**
** A TNO computes y[b,i,c] = sum over j of T_c[i,j] x[b,j,c], where coefficients define T_c (TNN,
** Eq. 4). The backend names the points at which it needs coefficients, makes a plan for a problem,
** and applies the operator and its adjoints. All arrays are float32, dense and row-major: x, y, dx,
** dy [b,n,d]; coef, dcoef [p, width d]; T [d,n,n].
**
** A plugin has no constructors, never exits and never prints. Its only mutable globals are locks
** around process-wide state of a library that it uses (e.g. FFTW's planner in backends/fft). It
** allocates scratch buffers in plan, not in forward. The host never calls forward, backward and
** dense of one plan at the same time. */
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

/* Processes begin <= i < end. thread is the number of the part, from 0 on, and so below the number
** of parts. No two bodies with the same thread run at the same time. */
typedef void (*tl_body)(void *user, int64_t begin, int64_t end, int thread);

typedef enum tl_transform_kind {
    TL_C2C_FORWARD,  /* [n,2] -> [n,2]       sum over j of x_j exp(-2 pi i j k / n) */
    TL_C2C_BACKWARD, /* [n,2] -> [n,2]       the same with +i, unscaled */
    TL_R2C,          /* [n] -> [n/2+1,2] */
    TL_C2R           /* [n/2+1,2] -> [n]     unscaled; preserves its input */
} tl_transform_kind;

/* Fourier transforms of one contiguous vector, which a plugin may provide for the whole engine
** (field transforms of its entry). */
typedef struct tl_transforms {
    const char *name; /* "FFTW 3.3.10" */
    /* Makes a plan for n >= 1; release frees it. Several threads may run one plan at a time. */
    tl_status (*plan)(const tl_host *h, tl_transform_kind kind, int64_t n, void **out_plan);
    /* Transforms in to out, which do not overlap and begin at multiples of 32 bytes.
    ** Thread-safe. */
    void (*run)(const void *plan, const float *in, float *out);
    void (*release)(void *plan);
} tl_transforms;

struct tl_host {
    /* The size of this struct in the host. New members are added only at the end, so that an
    ** older plugin still works. */
    uint32_t size;
    void *self; /* for the host's own use */
    int threads;
    const char *cache_dir; /* a folder for tuning results, or NULL */
    /* Splits 0..count-1 into at most `threads` contiguous parts of at least grain and runs body
    ** on them. The split depends on the three numbers alone. Not to be called inside a body. */
    void (*parallel)(const tl_host *h, int64_t count, int64_t grain, tl_body body, void *user);
    /* Allocates 64-byte aligned memory, which the memory report counts. NULL: out of memory. */
    void *(*alloc)(const tl_host *h, size_t bytes);
    void (*free)(const tl_host *h, void *p); /* NULL is harmless */
    /* c [m,n] = alpha op(a) op(b) + beta c, row-major with leading dimensions lda, ldb and ldc.
    ** It runs on the calling thread, so it may be called inside a body. */
    void (*gemm)(int trans_a, int trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                 const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                 int64_t ldc);
    const tl_transforms *(*transforms)(const tl_host *h); /* from any plugin, or NULL */
    tl_status (*fail)(const tl_host *h, tl_status st, const char *format, ...);
};

/* ---- What a backend is ----------------------------------------------------------------------- */

typedef struct tl_option { /* one option; {0} ends a table of options */
    const char *name;
    char type;          /* 'i' integer, 'f' number, 'b' boolean, 's' one of the words in range */
    const char *preset; /* the default, as text */
    const char *range;  /* "1..", "0..1", or the words, as "linear cubic"; NULL: any */
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
    tl_device device; /* TL_CPU: for another device the host calls functions of that device */
    const tl_option_value *options; /* in the order of the backend's option table */
} tl_tno_problem;

/* A learnable tensor that belongs to the backend, e.g. the taps of ski; {0} ends a table of
** them. */
typedef struct tl_param {
    const char *name;
    /* "normal", "uniform", "zeros", "ones" */
    const char *init;
    /* writes the dimensions and returns how many there are */
    int (*shape)(const tl_tno_problem *p, int64_t out_dims[6]);
} tl_param;

typedef struct tl_tno_args {
    int64_t b;                  /* batch, >= 0 */
    const float *coef;          /* [p, width d]; may be NULL if cached is set */
    const float *const *params; /* in the order of the backend's table */
    const float *x;             /* [b,n,d] */
    float *y;                   /* forward: written */
    const float *dy;            /* backward: d loss / d y */
    float *dx;                  /* backward: written; NULL: not computed, likewise the next two */
    float *dcoef;
    float *const *dparams; /* NULL, or an array whose members may be NULL */
    float *dense;          /* dense: T [d,n,n], written */
    float *cache;          /* of the size that cache_size() returns; NULL: no cache */
    int cached;           /* 1: cache was computed from this coef and params; 0: forward fills it */
} tl_tno_args;

typedef struct tl_tno_backend {
    uint32_t abi;             /* TL_TNO_ABI; the first field, for ever */
    const char *name;         /* a lower-case word */
    const char *summary;      /* one line */
    const char *domain;       /* the meaning of a point: "lag", "warp" or "frequency" */
    const tl_option *options; /* NULL: none */
    const tl_param *params;   /* at most 4; NULL: none */
    /* Returns whether the backend can compute this problem. With 0, why receives the reason,
    ** e.g. "frequency responses have no two-sided form yet"; with 1, a text in why is a warning
    ** to the user. No side effects. */
    int (*accepts)(const tl_tno_problem *p, char *why, size_t size);
    /* Returns the number of points, and writes them if out is not NULL. */
    int64_t (*points)(const tl_tno_problem *p, double *out);
    /* Returns the coefficients per point and channel, 1 or 2; NULL: 1. */
    int (*width)(const tl_tno_problem *p);
    /* Makes a plan with everything that forward needs except its inputs; h outlives the plan. */
    tl_status (*plan)(const tl_host *h, const tl_tno_problem *p, void **out_plan);
    /* coef, params, x -> y. With cached set and b > 0 it may run on another thread beside another
    ** plan, and then calls neither alloc nor fail of the host. */
    tl_status (*forward)(void *plan, const tl_tno_args *a);
    /* coef, params, x, dy -> dx, dcoef, dparams, which are overwritten */
    tl_status (*backward)(void *plan, const tl_tno_args *a);
    /* coef, params -> dense; NULL: the host applies T to unit vectors */
    tl_status (*dense)(void *plan, const tl_tno_args *a);
    void (*release)(void *plan);
    const tl_transforms *transforms; /* NULL: provides none */
    /* Returns the size in floats of the plan's cache: values computed from coef and params
    ** alone, which the host stores for calls in which these do not change. NULL: no cache. */
    int64_t (*cache_size)(void *plan);
    /* The longest sequence for which "auto" may choose this backend by measuring it; 0: never. A
    ** candidate takes one coefficient per lag, for all lags and nothing else, so that all
    ** candidates compute the same operator. */
    int64_t auto_length;
} tl_tno_backend;

#if defined(_WIN32)
#define TL_EXPORT __declspec(dllexport)
#else
#define TL_EXPORT __attribute__((visibility("default")))
#endif

/* The plugin defines this constant and exports no other symbol; the host finds it by name. */
extern TL_EXPORT const tl_tno_backend tl_tno_backend_entry;

#ifdef __cplusplus
}
#endif
#endif

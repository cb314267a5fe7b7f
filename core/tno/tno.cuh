/* tno.cuh - declares the CUDA form of a backend, and gives it access to the sizes and options that
** the CPU backend of that name declares. */
#ifndef TL_TNO_CUH
#define TL_TNO_CUH

#include "cuda/cuda.cuh"

extern "C" {
#include "tno/tno.h"
}

typedef struct gpu_form {
    const char *name;
    tl_tno_form form;
} gpu_form;

/* All forms, ended by NULL; a new form is added in backends/forms.cu. */
extern const gpu_form *const gpu_forms[];

/* ---- Plans (tno.cu) -------------------------------------------------------------------------- */

/* Allocates host memory for a plan, filled with zeros; NULL, with a message, if there is none. */
void *gpu_plan(const tl_host *h, size_t bytes);
void gpu_plan_free(void *plan);
static inline tl_ctx *gpu_ctx(const tl_host *h) { return (tl_ctx *)h->self; }

/* The number of points that the backend of that name declares. */
tl_status gpu_points(const tl_host *h, const char *name, const tl_tno_problem *p, int64_t *out);
/* The value of one of its options. TL_EINVAL if it has no such option. */
tl_status gpu_option(const tl_host *h, const char *name, const tl_tno_problem *p,
                     const char *option, tl_option_value *out);

/* The emulation measures only if EMULATE_MEASURE is set. */
static inline tl_auto_length gpu_auto_length(int64_t length, int64_t from, int64_t to)
{
#ifdef TL_EMULATE
    if (!getenv("EMULATE_MEASURE")) to = 0;
#endif
    return tl_auto_length{length, from, to};
}

tl_status gpu_clear(tl_ctx *ctx, void *p, size_t bytes); /* fills p with zeros */

#endif

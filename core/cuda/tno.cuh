/* tno.cuh - what core offers the CUDA form of a backend: its place in the table of forms, and the
** sizes and options that the CPU's form declares. */
#ifndef TL_TNO_CUH
#define TL_TNO_CUH

#include "cuda/cuda.cuh"

typedef struct gpu_form {
    const char *name;
    tl_tno_form form;
} gpu_form;

/* All forms, ended by NULL (backends/forms.cu): a new one is a line there. */
extern const gpu_form *const gpu_forms[];

/* ---- Plans (tno.cu) -------------------------------------------------------------------------- */

/* Host memory of a plan, all zeros; NULL and a message if there is none. */
void *gpu_plan(const tl_host *h, size_t bytes);
void gpu_plan_free(void *plan);
static inline tl_ctx *gpu_ctx(const tl_host *h) { return (tl_ctx *)h->self; }

/* How many points the backend of that name asks for. */
tl_status gpu_points(const tl_host *h, const char *name, const tl_tno_problem *p, int64_t *out);
/* The value of one of its options. TL_EINVAL: it has none of that name */
tl_status gpu_option(const tl_host *h, const char *name, const tl_tno_problem *p,
                     const char *option, tl_option_value *out);

tl_status gpu_clear(tl_ctx *ctx, void *p, size_t bytes); /* to zeros */

#endif

/* tno.cu - finds the CUDA form of a backend and implements the functions that forms use. */
#include <stdlib.h>
#include <string.h>

#include "tno/tno.cuh"

extern "C" {
#include "engine/plugin.h"
}

/* ---- Backends -------------------------------------------------------------------------------- */

const tl_tno_form *gpu_backend(tl_ctx *ctx, const char *name)
{
    (void)ctx;
    for (const gpu_form *const *f = gpu_forms; *f; f++)
        if (strcmp((*f)->name, name) == 0) return &(*f)->form;
    return NULL;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

void *gpu_plan(const tl_host *h, size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p) (void)tl_fail(gpu_ctx(h), TL_ENOMEM, "out of memory");
    return p;
}

void gpu_plan_free(void *plan) { free(plan); }

tl_status gpu_points(const tl_host *h, const char *name, const tl_tno_problem *p, int64_t *out)
{
    const tl_tno_backend *b;
    tl_status             st = tl_find_backend(gpu_ctx(h), name, &b);
    if (st == TL_OK) *out = b->points(p, NULL);
    return st;
}

tl_status gpu_option(const tl_host *h, const char *name, const tl_tno_problem *p,
                     const char *option, tl_option_value *out)
{
    const tl_tno_backend *b;
    tl_status             st = tl_find_backend(gpu_ctx(h), name, &b);
    if (st != TL_OK) return st;
    for (int i = 0; b->options && b->options[i].name; i++)
        if (strcmp(b->options[i].name, option) == 0) {
            *out = p->options[i];
            return TL_OK;
        }
    return tl_fail(gpu_ctx(h), TL_EINVAL, "backend '%s' has no option '%s'", name, option);
}

tl_status gpu_clear(tl_ctx *ctx, void *p, size_t bytes)
{
    cudaError_t st = bytes ? cudaMemsetAsync(p, 0, bytes, gpu_of(ctx)->stream) : cudaSuccess;
    return st == cudaSuccess ? TL_OK : cuda_fail(ctx, st, "clearing memory");
}

/* ---- The operator: the kernels of tno.c only pass pointers on -------------------------------- */

tl_status gpu_tno(tl_ctx *ctx, const tl_args *a) { return tl_cpu_tno(ctx, a); }
tl_status gpu_tno_grad(tl_ctx *ctx, const tl_args *a) { return tl_cpu_tno_grad(ctx, a); }

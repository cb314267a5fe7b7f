/* memory.cu - allocates GPU memory, copies between GPU and CPU, and reports errors of CUDA. */
#include <stdio.h>
#include <string.h>

#include "cuda/cuda.cuh"

/* ---- Failures -------------------------------------------------------------------------------- */

/* Reports that the GPU has no memory left, and who has it. What would need less depends on the
** step: train/update.lua adds it. */
static tl_status fail_full(tl_ctx *ctx, const char *what)
{
    tl_memory have = {0};
    size_t    left = 0, all = 0;
    if (gpu_of(ctx)) have = ctx->engine->memory(ctx);
    if (cudaMemGetInfo(&left, &all) != cudaSuccess) (void)cudaGetLastError();
    size_t known = left + have.live + have.cached;
    return tl_fail(ctx, TL_ENOMEM, "cuda: %s: out of memory on the GPU: of %zu MiB %zu are free, "
                   "%zu in use here, %zu cached here, and %zu held by other processes and CUDA",
                   what, all >> 20, left >> 20, have.live >> 20, have.cached >> 20,
                   (all > known ? all - known : 0) >> 20);
}

tl_status cuda_fail(tl_ctx *ctx, cudaError_t st, const char *what)
{
    (void)cudaGetLastError(); /* clears the error, or the next launch would report it */
    if (st != cudaErrorMemoryAllocation)
        return tl_fail(ctx, TL_EDEVICE, "cuda: %s: %s", what, cudaGetErrorString(st));
    return fail_full(ctx, what);
}

tl_status blas_fail(tl_ctx *ctx, cublasStatus_t st, const char *what)
{
    return tl_fail(ctx, st == CUBLAS_STATUS_ALLOC_FAILED ? TL_ENOMEM : TL_EDEVICE,
                   "cublas: %s: %s", what, cublasGetStatusString(st));
}

tl_status fft_fail(tl_ctx *ctx, cufftResult st, const char *what)
{
    return tl_fail(ctx, st == CUFFT_ALLOC_FAILED ? TL_ENOMEM : TL_EDEVICE, "cufft: %s: status %d",
                   what, (int)st);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

void gpu_trim(tl_ctx *ctx)
{
    gpu *c = gpu_of(ctx);
    if (c->capture) return;
    (void)cudaStreamSynchronize(c->stream);
    gpu_note_peak(c);
    (void)cudaMemPoolTrimTo(c->pool, 0);
    (void)cudaDeviceGraphMemTrim(c->number);
    (void)cudaGetLastError(); /* trimming is optional */
}

/* The driver's pool caches freed memory, so that most allocations do not synchronise. */
tl_status gpu_alloc(tl_ctx *ctx, size_t bytes, void **out_p)
{
    gpu        *c = gpu_of(ctx);
    char        what[64];
    cudaError_t st = cudaMallocFromPoolAsync(out_p, bytes > 0 ? bytes : 1, c->pool, c->stream);
    if (st == cudaErrorMemoryAllocation && !c->capture) {
        (void)cudaGetLastError();
        gpu_trim(ctx); /* the cached pieces may be too small */
        st = cudaMallocFromPoolAsync(out_p, bytes > 0 ? bytes : 1, c->pool, c->stream);
    }
    if (st == cudaSuccess && c->capture) gpu_graph_allocated(c->capture, *out_p);
    if (st == cudaSuccess) return TL_OK;
    (void)snprintf(what, sizeof what, "%zu bytes requested", bytes);
    return cuda_fail(ctx, st, what);
}

void gpu_free(tl_ctx *ctx, void *p)
{
    gpu *c = gpu_of(ctx);
    if (p && !gpu_graph_released(c, p)) (void)cudaFreeAsync(p, c->stream);
}

/* A captured copy would copy the same host memory in each launch of the graph. */
static tl_status check_copy(tl_ctx *ctx)
{
    if (!gpu_of(ctx)->capture) return TL_OK;
    return tl_fail(ctx, TL_EDEVICE, "cuda: a graph cannot copy from or to the CPU");
}

/* Copies up to SLOT_BYTES by the next pinned buffer. */
static cudaError_t send_piece(gpu *c, char *to, const char *from, size_t bytes)
{
    char       *slot = c->slots + (size_t)c->slot * SLOT_BYTES;
    cudaEvent_t sent = c->sent[c->slot];
    cudaError_t st = cudaEventSynchronize(sent);
    if (st != cudaSuccess) return st;
    memcpy(slot, from, bytes);
    c->slot = (c->slot + 1) % SLOTS;
    st = cudaMemcpyAsync(to, slot, bytes, cudaMemcpyHostToDevice, c->stream);
    return st == cudaSuccess ? cudaEventRecord(sent, c->stream) : st;
}

/* CUDA does not promise that it has read memory that is not pinned when cudaMemcpyAsync returns. */
static cudaError_t send_unpinned(gpu *c, void *to, const void *from, size_t bytes)
{
    cudaError_t st = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c->stream);
    return st == cudaSuccess ? cudaStreamSynchronize(c->stream) : st;
}

tl_status gpu_upload(tl_ctx *ctx, void *to, const void *from, size_t bytes)
{
    gpu        *c = gpu_of(ctx);
    cudaError_t st = cudaSuccess;
    tl_status   may = check_copy(ctx);
    if (may != TL_OK) return may;
    if (!c->slots) st = send_unpinned(c, to, from, bytes);
    for (size_t at = 0, size; c->slots && at < bytes && st == cudaSuccess; at += size) {
        size = bytes - at < SLOT_BYTES ? bytes - at : SLOT_BYTES;
        st = send_piece(c, (char *)to + at, (const char *)from + at, size);
    }
    return st == cudaSuccess ? TL_OK : cuda_fail(ctx, st, "copying to the GPU");
}

/* Reports the fault of an earlier kernel, which is read whenever the CPU waits for the GPU
** anyway. */
static tl_status check_fault(tl_ctx *ctx)
{
    gpu        *c = gpu_of(ctx);
    int64_t     fault = 0, none = 0;
    cudaError_t st = cudaMemcpyAsync(&fault, c->fault, sizeof fault, cudaMemcpyDeviceToHost,
                                     c->stream);
    if (st == cudaSuccess) st = cudaStreamSynchronize(c->stream);
    if (st != cudaSuccess) return cuda_fail(ctx, st, "waiting for the GPU");
    if (!fault) return TL_OK;
    (void)cudaMemcpyAsync(c->fault, &none, sizeof none, cudaMemcpyHostToDevice, c->stream);
    (void)cudaStreamSynchronize(c->stream);
    if (fault == FAULT_GAMMA)
        return tl_fail(ctx, TL_EINVAL, "cuda: decay: a gamma is outside (0,1]: run it on the CPU "
                       "to see which one");
    return tl_fail(ctx, TL_EINVAL, "cuda: index %d is out of range: run it on the CPU to see where",
                   (int)((fault - 1) / 2));
}

tl_status gpu_download(tl_ctx *ctx, void *to, const void *from, size_t bytes)
{
    gpu        *c = gpu_of(ctx);
    cudaError_t st = cudaSuccess;
    tl_status   may = check_copy(ctx);
    if (may != TL_OK) return may;
    if (bytes > 0) st = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c->stream);
    if (st != cudaSuccess) return cuda_fail(ctx, st, "copying from the GPU");
    return check_fault(ctx);
}

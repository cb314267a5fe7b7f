/* device.cu - opens and closes the CUDA device and lists its functions and the kernels of all
** rooms, as context.c does for the CPU. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda/cuda.cuh"

#if !defined(TL_EMULATE) && __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

/* ---- Life ------------------------------------------------------------------------------------ */

#ifdef TL_EMULATE
#define WORKSPACE ((size_t)4 << 10)
#else
#define WORKSPACE ((size_t)32 << 20)
#endif

/* The default pool of the GPU belongs to the whole process: PyTorch's, or another context's, whose
** memory would count as ours. */
static tl_status open_pool(tl_ctx *ctx, gpu *c)
{
    uint64_t         all = UINT64_MAX; /* the pool keeps its memory while the context lives */
    cudaMemPoolProps own = {};
    own.allocType = cudaMemAllocationTypePinned;
    own.location.type = cudaMemLocationTypeDevice;
    own.location.id = c->number;
    cudaError_t st = cudaMemPoolCreate(&c->pool, &own);
    if (st == cudaSuccess)
        st = cudaMemPoolSetAttribute(c->pool, cudaMemPoolAttrReleaseThreshold, &all);
    if (st == cudaSuccess) st = cudaStreamCreate(&c->stream);
    if (st == cudaSuccess) st = cudaMalloc((void **)&c->fault, sizeof *c->fault);
    if (st == cudaSuccess) st = cudaMemset(c->fault, 0, sizeof *c->fault);
    if (st == cudaSuccess) st = cudaMalloc(&c->workspace, WORKSPACE);
    return st == cudaSuccess ? TL_OK : cuda_fail(ctx, st, "opening the GPU");
}

/* Pinned memory is optional: without it copies are slower. */
static tl_status open_slots(tl_ctx *ctx, gpu *c)
{
    cudaError_t st = cudaSuccess;
    if (cudaMallocHost((void **)&c->slots, SLOTS * SLOT_BYTES) != cudaSuccess) {
        (void)cudaGetLastError();
        c->slots = NULL;
    }
    for (int i = 0; i < SLOTS && c->slots && st == cudaSuccess; i++)
        st = cudaEventCreateWithFlags(&c->sent[i], cudaEventDisableTiming);
    return st == cudaSuccess ? TL_OK : cuda_fail(ctx, st, "opening the GPU");
}

static tl_status open_blas(tl_ctx *ctx, gpu *c)
{
    cublasStatus_t st = cublasCreate(&c->blas);
    if (st == CUBLAS_STATUS_SUCCESS) st = cublasSetStream(c->blas, c->stream);
    if (st == CUBLAS_STATUS_SUCCESS) st = cublasSetWorkspace(c->blas, c->workspace, WORKSPACE);
    return st == CUBLAS_STATUS_SUCCESS ? TL_OK : blas_fail(ctx, st, "opening the GPU");
}

static void gpu_shut(gpu *c)
{
    if (c->blas) (void)cublasDestroy(c->blas);
    if (c->workspace) (void)cudaFree(c->workspace);
    if (c->fault) (void)cudaFree(c->fault);
    for (int i = 0; i < SLOTS; i++)
        if (c->sent[i]) (void)cudaEventDestroy(c->sent[i]);
    if (c->slots) (void)cudaFreeHost(c->slots);
    if (c->stream) (void)cudaStreamDestroy(c->stream);
    if (c->pool) (void)cudaMemPoolDestroy(c->pool);
    free(c);
}

static void describe(const cudaDeviceProp *p, char *about, size_t size)
{
    int driver = 0, runtime = 0, fft = 0, blas[3] = {0};
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cufftGetVersion(&fft);
    (void)cublasGetProperty(MAJOR_VERSION, &blas[0]);
    (void)cublasGetProperty(MINOR_VERSION, &blas[1]);
    (void)cublasGetProperty(PATCH_LEVEL, &blas[2]);
    (void)snprintf(about, size,
                   "%s, compute capability %d.%d, %zu MiB, driver for CUDA %d.%d, runtime %d.%d, "
                   "cuBLAS %d.%d.%d, cuFFT %d.%d.%d", p->name, p->major, p->minor,
                   (size_t)p->totalGlobalMem >> 20, driver / 1000, driver % 1000 / 10,
                   runtime / 1000, runtime % 1000 / 10, blas[0], blas[1], blas[2], fft / 1000,
                   fft % 1000 / 100, fft % 100);
}

/* Reports why CUDA finds no GPU. */
static tl_status gpu_missing(tl_ctx *ctx, cudaError_t st)
{
    int driver = 0, runtime = 0;
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        return tl_fail(ctx, TL_EDEVICE, "device 'cuda': there is no NVIDIA driver (CUDA says: %s)",
                       cudaGetErrorString(st));
    return tl_fail(ctx, TL_EDEVICE, "device 'cuda': %s (driver for CUDA %d.%d, runtime %d.%d)",
                   cudaGetErrorString(st), driver / 1000, driver % 1000 / 10, runtime / 1000,
                   runtime % 1000 / 10);
}

/* Asks only what creates no CUDA context, which would occupy memory of the GPU. */
static tl_status gpu_look(tl_ctx *ctx, int number, int *out_gpus, char *about, size_t size)
{
    int            count = 0;
    cudaDeviceProp p;
    cudaError_t    st = cudaGetDeviceCount(&count);
    if (st != cudaSuccess) return gpu_missing(ctx, st);
    if (number >= count)
        return tl_fail(ctx, TL_EDEVICE, "device 'cuda:%d': there %s %d GPU%s, numbered from 0",
                       number, count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
    st = cudaGetDeviceProperties(&p, number);
    if (st != cudaSuccess)
        return tl_fail(ctx, TL_EDEVICE, "device 'cuda:%d': %s", number, cudaGetErrorString(st));
    if (10 * p.major + p.minor < TL_CAPABILITY)
        return tl_fail(ctx, TL_EDEVICE, "device 'cuda:%d': %s has compute capability %d.%d, but "
                       "the kernels are built for %d.%d and later (CMAKE_CUDA_ARCHITECTURES)",
                       number, p.name, p.major, p.minor, TL_CAPABILITY / 10, TL_CAPABILITY % 10);
    describe(&p, about, size);
    *out_gpus = count;
    return TL_OK;
}

static tl_status gpu_open(tl_ctx *ctx, int number, void **out_state)
{
    int  count = 0;
    gpu *c = (gpu *)calloc(1, sizeof *c);
    if (!c) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    c->number = number;
    tl_status st = gpu_look(ctx, number, &count, c->about, sizeof c->about);
    if (st == TL_OK && cudaSetDevice(number) != cudaSuccess)
        st = cuda_fail(ctx, cudaGetLastError(), "opening the GPU");
    if (st == TL_OK) st = open_pool(ctx, c);
    if (st == TL_OK) st = open_slots(ctx, c);
    if (st == TL_OK) st = open_blas(ctx, c);
    if (st != TL_OK) {
        gpu_shut(c);
        return st;
    }
    *out_state = c;
    return TL_OK;
}

static void gpu_close(tl_ctx *ctx)
{
    gpu *c = gpu_of(ctx);
    (void)cudaStreamSynchronize(c->stream);
    gpu_graphs_close(ctx);
    gpu_spectra_close(ctx);
    gpu_shut(c);
}

static const char *gpu_about(tl_ctx *ctx) { return gpu_of(ctx)->about; }

#ifdef TL_EMULATE
#define LINK "tests/nccl.so"
static void *gpu_stream(tl_ctx *ctx) { return ctx; } /* see tests/device/emulate_nccl.h */
#else
#define LINK "ranks/nccl.so"
static void *gpu_stream(tl_ctx *ctx) { return gpu_of(ctx)->stream; }
#endif

/* ---- A profiler's timeline ------------------------------------------------------------------- */

#ifdef NVTX_VERSION
static void range(const char *name)
{
    if (name)
        (void)nvtxRangePushA(name);
    else
        (void)nvtxRangePop();
}
#else
#define range NULL
#endif

/* ---- The table ------------------------------------------------------------------------------- */

static const tl_kernel kernels[] = {
#define X(op, in, out, n, r) gpu_##op,
    TL_OP_MAP(X, , , , , )
#undef X
};

extern "C" TL_EXPORT const tl_engine tl_engine_entry = {
    TL_ENGINE_ABI, "cuda", gpu_look, gpu_open, gpu_close, gpu_alloc, gpu_free,
    gpu_upload, gpu_download, gpu_memory, gpu_reset_peak, gpu_trim, gpu_about,
    kernels, 1u << TL_PRECISION_F32 | 1u << TL_PRECISION_BF16 | 1u << TL_PRECISION_TF32,
    gpu_backend, gpu_graph_begin, gpu_graph_end, gpu_graph_run, gpu_graph_free, LINK, gpu_stream,
    range,
};

/* engine.cu - the CUDA device: a card, its memory and its stream. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.cuh"

/* ---- Failures -------------------------------------------------------------------------------- */

static tl_memory memory(const tl_ctx *ctx);
static void trim(tl_ctx *ctx);

tl_status cuda_fail(tl_ctx *ctx, cudaError_t st, const char *what)
{
    (void)cudaGetLastError(); /* else the next launch would report it again */
    if (st != cudaErrorMemoryAllocation)
        return tl_fail(ctx, TL_EDEVICE, "cuda: %s: %s", what, cudaGetErrorString(st));
    return tl_fail(ctx, TL_ENOMEM, "cuda: %s: out of memory on the card, %zu bytes in use", what,
                   card_of(ctx) ? memory(ctx).live : (size_t)0);
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

/* The driver's pool keeps what is freed and hands it out again without asking the card. */
tl_status card_alloc(tl_ctx *ctx, size_t bytes, void **out_p)
{
    card       *c = card_of(ctx);
    char        what[64];
    cudaError_t st = cudaMallocFromPoolAsync(out_p, bytes > 0 ? bytes : 1, c->pool, c->stream);
    if (st == cudaErrorMemoryAllocation && !c->capture) {
        /* what is kept may be in small pieces, or in use */
        (void)cudaGetLastError();
        trim(ctx);
        st = cudaMallocFromPoolAsync(out_p, bytes > 0 ? bytes : 1, c->pool, c->stream);
    }
    if (st == cudaSuccess && c->capture) card_graph_took(c->capture, *out_p);
    if (st == cudaSuccess) return TL_OK;
    (void)snprintf(what, sizeof what, "%zu bytes asked for", bytes);
    return cuda_fail(ctx, st, what);
}

void card_free(tl_ctx *ctx, void *p)
{
    card *c = card_of(ctx);
    if (p && !card_graph_gave(c, p)) (void)cudaFreeAsync(p, c->stream);
}

/* A copy in a capture would be of the same numbers at each run. */
static tl_status check_copy(tl_ctx *ctx)
{
    if (!card_of(ctx)->capture) return TL_OK;
    return tl_fail(ctx, TL_EDEVICE, "cuda: a graph cannot copy from or to the processor");
}

/* What is small goes by a pinned buffer; the rest by the driver, which waits or has its own. */
static tl_status upload(tl_ctx *ctx, void *to, const void *from, size_t bytes)
{
    card       *c = card_of(ctx);
    int         slot = c->slot, staged = c->slots && bytes <= SLOT_BYTES;
    tl_status   may = check_copy(ctx);
    if (may != TL_OK) return may;
    cudaError_t st = staged ? cudaEventSynchronize(c->sent[slot]) : cudaSuccess;
    if (staged && st == cudaSuccess) {
        from = memcpy(c->slots + (size_t)slot * SLOT_BYTES, from, bytes);
        c->slot = (slot + 1) % SLOTS;
    }
    if (st == cudaSuccess) st = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c->stream);
    if (staged && st == cudaSuccess) st = cudaEventRecord(c->sent[slot], c->stream);
    return st == cudaSuccess ? TL_OK : cuda_fail(ctx, st, "copying to the card");
}

/* What a kernel met that it could not do is said at the next wait. */
static tl_status check_fault(tl_ctx *ctx)
{
    card       *c = card_of(ctx);
    int64_t     fault = 0, none = 0;
    cudaError_t st = cudaMemcpyAsync(&fault, c->fault, sizeof fault, cudaMemcpyDeviceToHost,
                                     c->stream);
    if (st == cudaSuccess) st = cudaStreamSynchronize(c->stream);
    if (st != cudaSuccess) return cuda_fail(ctx, st, "waiting for the card");
    if (!fault) return TL_OK;
    (void)cudaMemcpyAsync(c->fault, &none, sizeof none, cudaMemcpyHostToDevice, c->stream);
    (void)cudaStreamSynchronize(c->stream);
    if (fault == FAULT_GAMMA)
        return tl_fail(ctx, TL_EINVAL, "cuda: decay: a gamma is outside (0,1]: run the same on the "
                       "CPU, which says which");
    return tl_fail(ctx, TL_EINVAL, "cuda: an index, %d, is out of range: run the same on the CPU, "
                   "which says where", (int)((fault - 1) / 2));
}

static tl_status download(tl_ctx *ctx, void *to, const void *from, size_t bytes)
{
    card       *c = card_of(ctx);
    cudaError_t st = cudaSuccess;
    tl_status   may = check_copy(ctx);
    if (may != TL_OK) return may;
    if (bytes > 0) st = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c->stream);
    if (st != cudaSuccess) return cuda_fail(ctx, st, "copying from the card");
    return check_fault(ctx);
}

static tl_memory memory(const tl_ctx *ctx)
{
    card    *c = card_of(ctx);
    tl_memory info = {0};
    uint64_t used = 0, high = 0, reserved = 0, graphs = 0, graphs_high = 0;
    if (c->capture) return c->before;
    (void)cudaDeviceGetGraphMemAttribute(c->number, cudaGraphMemAttrUsedMemCurrent, &graphs);
    (void)cudaDeviceGetGraphMemAttribute(c->number, cudaGraphMemAttrUsedMemHigh, &graphs_high);
    (void)cudaMemPoolGetAttribute(c->pool, cudaMemPoolAttrUsedMemCurrent, &used);
    (void)cudaMemPoolGetAttribute(c->pool, cudaMemPoolAttrUsedMemHigh, &high);
    (void)cudaMemPoolGetAttribute(c->pool, cudaMemPoolAttrReservedMemCurrent, &reserved);
    info.live = (size_t)(used + graphs); /* of graphs also what they use in between */
    info.peak = (size_t)(high + graphs_high); /* at most, for they need not be at one time */
    info.cached = (size_t)(reserved - used);
    return info;
}

static void reset_peak(tl_ctx *ctx)
{
    uint64_t none = 0;
    card    *c = card_of(ctx);
    (void)cudaMemPoolSetAttribute(c->pool, cudaMemPoolAttrUsedMemHigh, &none);
    (void)cudaDeviceSetGraphMemAttribute(c->number, cudaGraphMemAttrUsedMemHigh, &none);
}

static void trim(tl_ctx *ctx)
{
    card *c = card_of(ctx);
    if (c->capture) return;
    (void)cudaStreamSynchronize(c->stream);
    (void)cudaMemPoolTrimTo(c->pool, 0);
    (void)cudaDeviceGraphMemTrim(c->number);
    (void)cudaGetLastError(); /* what cannot be given back is kept */
}

/* ---- Life ------------------------------------------------------------------------------------ */

#ifdef TL_EMULATE
#define WORKSPACE ((size_t)4 << 10)
#else
#define WORKSPACE ((size_t)32 << 20)
#endif

static tl_status open_pool(tl_ctx *ctx, card *c)
{
    uint64_t    all = UINT64_MAX; /* nothing is given back while the context lives */
    cudaError_t st = cudaDeviceGetDefaultMemPool(&c->pool, c->number);
    if (st == cudaSuccess)
        st = cudaMemPoolSetAttribute(c->pool, cudaMemPoolAttrReleaseThreshold, &all);
    if (st == cudaSuccess) st = cudaStreamCreate(&c->stream);
    if (st == cudaSuccess) st = cudaMalloc((void **)&c->fault, sizeof *c->fault);
    if (st == cudaSuccess) st = cudaMemset(c->fault, 0, sizeof *c->fault);
    if (st == cudaSuccess) st = cudaMalloc(&c->workspace, WORKSPACE);
    return st == cudaSuccess ? TL_OK : cuda_fail(ctx, st, "opening the card");
}

/* Without pinned memory copies are slower, and right. */
static tl_status open_slots(tl_ctx *ctx, card *c)
{
    cudaError_t st = cudaSuccess;
    if (cudaMallocHost((void **)&c->slots, SLOTS * SLOT_BYTES) != cudaSuccess) {
        (void)cudaGetLastError();
        c->slots = NULL;
    }
    for (int i = 0; i < SLOTS && c->slots && st == cudaSuccess; i++)
        st = cudaEventCreateWithFlags(&c->sent[i], cudaEventDisableTiming);
    return st == cudaSuccess ? TL_OK : cuda_fail(ctx, st, "opening the card");
}

static tl_status open_blas(tl_ctx *ctx, card *c)
{
    cublasStatus_t st = cublasCreate(&c->blas);
    if (st == CUBLAS_STATUS_SUCCESS) st = cublasSetStream(c->blas, c->stream);
    if (st == CUBLAS_STATUS_SUCCESS) st = cublasSetWorkspace(c->blas, c->workspace, WORKSPACE);
    return st == CUBLAS_STATUS_SUCCESS ? TL_OK : blas_fail(ctx, st, "opening the card");
}

static void shut(card *c)
{
    if (c->blas) (void)cublasDestroy(c->blas);
    if (c->workspace) (void)cudaFree(c->workspace);
    if (c->fault) (void)cudaFree(c->fault);
    for (int i = 0; i < SLOTS; i++)
        if (c->sent[i]) (void)cudaEventDestroy(c->sent[i]);
    if (c->slots) (void)cudaFreeHost(c->slots);
    if (c->stream) (void)cudaStreamDestroy(c->stream);
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

/* Why there is no card at all. */
static tl_status no_card(tl_ctx *ctx, cudaError_t st)
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

/* What it asks the driver makes no context: the card's memory stays as it is. */
static tl_status look(tl_ctx *ctx, int number, int *out_cards, char *about, size_t size)
{
    int            count = 0;
    cudaDeviceProp p;
    cudaError_t    st = cudaGetDeviceCount(&count);
    if (st != cudaSuccess) return no_card(ctx, st);
    if (number >= count)
        return tl_fail(ctx, TL_EDEVICE, "device 'cuda:%d': there %s %d card%s, numbered from 0",
                       number, count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
    st = cudaGetDeviceProperties(&p, number);
    if (st != cudaSuccess)
        return tl_fail(ctx, TL_EDEVICE, "device 'cuda:%d': %s", number, cudaGetErrorString(st));
    describe(&p, about, size);
    *out_cards = count;
    return TL_OK;
}

static tl_status open_card(tl_ctx *ctx, int number, void **out_state)
{
    int   count = 0;
    card *c = (card *)calloc(1, sizeof *c);
    if (!c) return tl_fail(ctx, TL_ENOMEM, "out of memory");
    c->number = number;
    tl_status st = look(ctx, number, &count, c->about, sizeof c->about);
    if (st == TL_OK && cudaSetDevice(number) != cudaSuccess)
        st = cuda_fail(ctx, cudaGetLastError(), "opening the card");
    if (st == TL_OK) st = open_pool(ctx, c);
    if (st == TL_OK) st = open_slots(ctx, c);
    if (st == TL_OK) st = open_blas(ctx, c);
    if (st != TL_OK) {
        shut(c);
        return st;
    }
    *out_state = c;
    return TL_OK;
}

static void close_card(tl_ctx *ctx)
{
    card *c = card_of(ctx);
    (void)cudaStreamSynchronize(c->stream);
    card_graphs_close(ctx);
    card_spectra_close(ctx);
    shut(c);
}

static const char *about(tl_ctx *ctx) { return card_of(ctx)->about; }

/* ---- The table ------------------------------------------------------------------------------- */

static const tl_kernel_row *const tables[] = {
    card_elementwise, card_binary, card_gemms,      card_reduce,    card_shape,
    card_gather,      card_softmax, card_norm,      card_batch_norm, card_conv,
    card_transform,   card_random, card_optim,      card_tno,       card_loss,
    card_decay,       card_mlp,
};

extern "C" TL_EXPORT const tl_engine tl_engine_entry = {
    TL_ENGINE_ABI, "cuda", look, open_card, close_card, card_alloc, card_free, upload, download,
    memory, reset_peak, trim, about, tables, sizeof tables / sizeof *tables,
    1u << TL_FLOAT32 | 1u << TL_BF16 | 1u << TL_TF32, card_backend,
    card_graph_begin, card_graph_end, card_graph_run, card_graph_free,
};

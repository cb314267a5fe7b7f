/* emulate_runtime.h - emulates the functions of the CUDA runtime that the CUDA device uses. */
#ifndef TL_EMULATE_RUNTIME_H
#define TL_EMULATE_RUNTIME_H

#include "emulate.h"

typedef enum { cudaSuccess, cudaErrorMemoryAllocation, cudaErrorInvalidValue } cudaError_t;
typedef enum {
    cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost
} cudaMemcpyKind;
typedef enum {
    cudaMemPoolAttrReleaseThreshold, cudaMemPoolAttrUsedMemCurrent, cudaMemPoolAttrUsedMemHigh,
    cudaMemPoolAttrReservedMemCurrent
} cudaMemPoolAttr;
typedef int cudaStream_t;
typedef int cudaMemPool_t;
struct cudaDeviceProp {
    char name[256];
    int major, minor;
    size_t totalGlobalMem;
};

namespace emulate {

struct piece {
    size_t at;
    int size; /* log2 */
    bool taken;
    piece *next;
    graph *owner; /* NULL: the pool owns it */
};

struct pool {
    piece *first;
    uint64_t used, high, reserved, graphs, graphs_high; /* bytes */
};

inline pool &pieces()
{
    static pool p;
    return p;
}

inline size_t capacity() /* EMULATE_MIB limits the memory, for tests of running out of it */
{
    const char *given = getenv("EMULATE_MIB");
    return (size_t)(given ? atoi(given) : 4096) << 20;
}

inline size_t others() /* EMULATE_OTHERS: MiB of it that other processes hold */
{
    const char *given = getenv("EMULATE_OTHERS");
    return (size_t)(given ? atoi(given) : 0) << 20;
}

/* Fills memory with NaN, so that reading it before it is written shows. */
inline void spoil(char *begin, size_t bytes)
{
    unlock(true);
    memset(begin, 0xff, bytes);
    unlock(false);
}

/* EMULATE_ASKED=FILE: FILE has the bytes of all allocations so far. They show what a step writes to
** scratch buffers, such as rounded copies. */
inline void count_asked(size_t bytes)
{
    static uint64_t    asked;
    static const char *path = getenv("EMULATE_ASKED");
    asked += bytes;
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%llu\n", (unsigned long long)asked);
    fclose(file);
}

inline cudaError_t take(void **out, size_t bytes)
{
    machine &m = at();
    pool &p = pieces();
    count_asked(bytes);
    int size = 12; /* at least a page, the unit of protection */
    while (((size_t)1 << size) < bytes) size++;
    if (!m.arena) {
        m.arena = (char *)mmap(NULL, ((size_t)4096 << 20) + HUGE_PAGE, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m.arena == MAP_FAILED) die("no address space for device memory");
        m.arena += HUGE_PAGE - (uintptr_t)m.arena % HUGE_PAGE;
        (void)madvise(m.arena, (size_t)4096 << 20, MADV_HUGEPAGE); /* only advice */
    }
    piece *q = p.first;
    while (q && (q->taken || q->size != size || q->owner != m.capture)) q = q->next;
    if (!q) {
        if (((size_t)1 << size) > capacity() - others() - m.used) return cudaErrorMemoryAllocation;
        q = new piece{m.used, size, true, p.first, m.capture};
        p.first = q;
        m.used += (size_t)1 << size;
        if (m.open) protect(true);
    }
    q->taken = true;
    (m.capture ? p.graphs : p.used) += (uint64_t)1 << size;
    if (p.used > p.high) p.high = p.used;
    if (p.used > p.reserved) p.reserved = p.used;
    if (p.graphs > p.graphs_high) p.graphs_high = p.graphs;
    char *begin = m.arena + q->at;
    *out = begin;
    spoil(begin, (size_t)1 << size);
    if (m.capture) m.capture->nodes.push_back([=] { spoil(begin, (size_t)1 << size); });
    return cudaSuccess;
}

/* Whether device memory of that many bytes was allocated at begin and is not released. */
inline bool is_taken(const void *begin, size_t bytes)
{
    piece *q = pieces().first;
    while (q && at().arena + q->at != (const char *)begin) q = q->next;
    return q && q->taken && q->owner == at().capture && (size_t)1 << q->size >= bytes;
}

inline cudaError_t give(void *memory)
{
    for (piece *q = pieces().first; q; q = q->next)
        if (at().arena + q->at == (char *)memory) {
            graph *capture = at().capture;
            if (!q->taken) die("device memory released twice");
            if (capture && q->owner != capture) die("older memory released in a capture");
            if (!capture && q->owner && !q->owner->launched)
                die("the memory of a graph that was never launched");
            for (int i = 0; i < at().queued; i++) { /* pending copies come first */
                ptrdiff_t into = (char *)at().queue[i].to - (char *)memory;
                if (into >= 0 && into < (ptrdiff_t)1 << q->size) flush_queue();
            }
            q->taken = false;
            (q->owner ? pieces().graphs : pieces().used) -= (uint64_t)1 << q->size;
            if (!capture) spoil(at().arena + q->at, (size_t)1 << q->size);
            return cudaSuccess;
        }
    die("memory released that is not of the device");
    return cudaErrorInvalidValue;
}

/* Deletes the graph and returns its memory to the pool. */
inline void disown(graph *g)
{
    for (piece *q = pieces().first; q; q = q->next) {
        if (q->owner != g) continue;
        if (q->taken && g->launched) die("the memory of a graph was not released");
        if (q->taken) pieces().graphs -= (uint64_t)1 << q->size;
        q->taken = false;
        q->owner = NULL;
    }
    delete g;
}

} /* namespace emulate */

typedef int cudaEvent_t;
enum { cudaEventDisableTiming };
static inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, int)
{
    return *e = 1, cudaSuccess;
}
static inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
static inline cudaError_t cudaEventRecord(cudaEvent_t, int)
{
    return emulate::not_captured("an event in a capture"), cudaSuccess;
}
static inline cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    emulate::not_captured("a wait in a capture");
    return emulate::flush_queue(), cudaSuccess;
}
/* EMULATE_PINNED=0: there is no pinned memory. */
static inline cudaError_t cudaMallocHost(void **p, size_t n)
{
    const char *given = getenv("EMULATE_PINNED");
    *p = given && strcmp(given, "0") == 0 ? NULL : malloc(n);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline cudaError_t cudaFreeHost(void *p)
{
    emulate::flush_queue();
    return free(p), cudaSuccess;
}

static inline cudaError_t cudaGetLastError() { return cudaSuccess; }
static inline const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation ? "out of memory" : e ? "invalid value" : "no error";
}
static inline cudaError_t cudaMallocFromPoolAsync(void **p, size_t n, cudaMemPool_t, cudaStream_t)
{
    return emulate::take(p, n);
}
template <class T> cudaError_t cudaMalloc(T **p, size_t n)
{
    emulate::not_captured("cudaMalloc in a capture");
    return emulate::take((void **)p, n);
}
static inline cudaError_t cudaFreeAsync(void *p, cudaStream_t) { return emulate::give(p); }
static inline cudaError_t cudaFree(void *p) { return emulate::give(p); }
static inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind kind,
                                          cudaStream_t)
{
    emulate::machine &m = emulate::at();
    emulate::not_captured("a copy in a capture");
    if (kind == cudaMemcpyHostToDevice && m.queued < emulate::QUEUED) {
        m.queue[m.queued++] = {to, from, n};
        return cudaSuccess;
    }
    emulate::guard(true);
    memcpy(to, from, n);
    emulate::guard(false);
    return cudaSuccess;
}
static inline cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t)
{
    emulate::submit([=] {
        emulate::guard(true);
        memset(p, byte, n);
        emulate::guard(false);
    });
    return cudaSuccess;
}
static inline cudaError_t cudaMemset(void *p, int byte, size_t n)
{
    return cudaMemsetAsync(p, byte, n, 0);
}
static inline cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    emulate::not_captured("a wait in a capture");
    return emulate::flush_queue(), cudaSuccess;
}
static inline cudaError_t cudaStreamCreate(cudaStream_t *s) { return *s = 0, cudaSuccess; }
static inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaGetDeviceCount(int *n) { return *n = 1, cudaSuccess; }
static inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
static inline cudaError_t cudaGetDevice(int *n) { return *n = 0, cudaSuccess; }
static inline cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    *all = emulate::capacity();
    *left = *all - emulate::others() - emulate::pieces().reserved - emulate::pieces().graphs;
    return cudaSuccess;
}
static inline cudaError_t cudaDriverGetVersion(int *v) { return *v = 0, cudaSuccess; }
static inline cudaError_t cudaRuntimeGetVersion(int *v) { return *v = 0, cudaSuccess; }
static inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *p, int)
{
    return *p = 0, cudaSuccess;
}
static inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr what, void *)
{
    if (what == cudaMemPoolAttrUsedMemHigh) emulate::pieces().high = 0; /* until an allocation */
    return cudaSuccess;
}
static inline cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t)
{
    return emulate::pieces().reserved = emulate::pieces().used, cudaSuccess;
}
static inline cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr what, void *value)
{
    *(uint64_t *)value = what == cudaMemPoolAttrUsedMemCurrent ? emulate::pieces().used
                       : what == cudaMemPoolAttrUsedMemHigh    ? emulate::pieces().high
                                                               : emulate::pieces().reserved;
    return cudaSuccess;
}
/* ---- NVTX ------------------------------------------------------------------------------------ */

#define NVTX_VERSION 3

/* EMULATE_RANGES=FILE gets a line for each range that begins, and "-" for each end. */
static inline int nvtx_note(const char *sign, const char *name)
{
    const char *path = getenv("EMULATE_RANGES");
    FILE       *file = path ? fopen(path, "a") : NULL;
    if (file) fprintf(file, "%s%s\n", sign, name);
    return file ? fclose(file) : 0;
}
static inline int nvtxRangePushA(const char *name) { return nvtx_note("+ ", name); }
static inline int nvtxRangePop() { return nvtx_note("-", ""); }

/* ---- Graphs ---------------------------------------------------------------------------------- */

typedef emulate::graph *cudaGraph_t, *cudaGraphExec_t;
typedef enum { cudaStreamCaptureModeThreadLocal } cudaStreamCaptureMode;
typedef enum {
    cudaGraphMemAttrUsedMemCurrent, cudaGraphMemAttrUsedMemHigh
} cudaGraphMemAttributeType;
enum { cudaGraphInstantiateFlagAutoFreeOnLaunch };

static inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode)
{
    emulate::not_captured("a capture in a capture");
    return emulate::at().capture = new emulate::graph{}, cudaSuccess;
}
static inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *g)
{
    return *g = emulate::at().capture, emulate::at().capture = NULL, cudaSuccess;
}
/* The instance takes over the launches and the memory, so that it survives its graph. */
static inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *e, cudaGraph_t g, int)
{
    *e = new emulate::graph{};
    std::swap((*e)->nodes, g->nodes);
    for (emulate::piece *q = emulate::pieces().first; q; q = q->next)
        if (q->owner == g) q->owner = *e;
    return cudaSuccess;
}
static inline cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    return emulate::disown(g), cudaSuccess;
}
static inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e)
{
    return emulate::disown(e), cudaSuccess;
}
/* EMULATE_FULL=upload or launch: that call finds no memory for the graph. */
static inline cudaError_t if_not_full(const char *when)
{
    const char *given = getenv("EMULATE_FULL");
    return given && strcmp(given, when) == 0 ? cudaErrorMemoryAllocation : cudaSuccess;
}
static inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return if_not_full("upload");
}
static inline cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t)
{
    if (if_not_full("launch") != cudaSuccess) return cudaErrorMemoryAllocation;
    e->launched = true;
    for (auto &node : e->nodes) node();
    return cudaSuccess;
}
static inline cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType what,
                                                         void *value)
{
    *(uint64_t *)value = what == cudaGraphMemAttrUsedMemCurrent ? emulate::pieces().graphs
                                                                : emulate::pieces().graphs_high;
    return cudaSuccess;
}
static inline cudaError_t cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void *)
{
    return emulate::pieces().graphs_high = 0, cudaSuccess;
}
static inline cudaError_t cudaDeviceGraphMemTrim(int) { return cudaSuccess; }

enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin };

static inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int)
{
    *value = (int)emulate::shared_limit();
    return cudaSuccess;
}

static inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int)
{
    const char *given = getenv("EMULATE_CAPABILITY"); /* as 75 for 7.5 */
    int         capability = given ? atoi(given) : TL_CAPABILITY;
    *p = cudaDeviceProp{"emulated card", capability / 10, capability % 10, emulate::capacity()};
    return cudaSuccess;
}

#endif

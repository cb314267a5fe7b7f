/* scan.cuh - declares the parts that the scans on a GPU share. They compute in parallel over chunks
** of positions: the state that each chunk alone leaves, those before each chunk, one chunk after
** another, and then what depends on them. The gradient does the same backwards. */
#ifndef TL_SCAN_CUH
#define TL_SCAN_CUH

#include "cuda/cuda.cuh"
extern "C" {
#include "scan/scan.h"
}

#define REGS 8 /* numbers of a state that a thread holds in registers */

static inline __device__ int64_t last_of(int64_t chunk, int64_t n)
{
    int64_t last = (chunk + 1) * SCAN_CHUNK;
    return last < n ? last : n;
}

/* Whether a loop over blocks of REGS numbers goes on; it runs once where there are none, so that
** what it adds up is written. */
static inline __device__ bool more(int64_t at, int64_t count) { return at == 0 || at < count; }

static inline __device__ void add_to(float *to, float value, bool first)
{
    *to = first ? value : *to + value;
}

/* Replaces what each chunk alone leaves by the state that it starts from: of n states [chunks,n],
** e of sequence p, which fades over a chunk by fade(p, chunk, e). */
template <class F>
static inline __device__ void through_chunks(float *states, int64_t p, int64_t chunks, int64_t n,
                                      int64_t e, int back, F fade)
{
    float state = 0;
    for (int64_t i = 0; i < chunks; i++) {
        int64_t chunk = back ? chunks - 1 - i : i;
        float *at = states + (p * chunks + chunk) * n + e, own = *at;
        *at = state;
        state = fade(p * chunks + chunk, e) * state + own;
    }
}

/* Up to REGS numbers from place k on of a row of s numbers, then zeros. */
static inline __device__ void load_state(float *to, const float *row, int64_t k, int64_t s)
{
    for (int r = 0; r < REGS; r++) to[r] = k + r < s ? row[k + r] : 0;
}

#endif

/* fused.cu - implements the right-angle convolution in one kernel. A block takes a few adjacent
** channels, so that its reads are up to 32 bytes wide, and goes through its part of the sequences;
** the spectra of its coefficients, and the sums of their gradient, stay in registers meanwhile. No
** padded line, and no spectrum of a sequence, is in GPU memory, with one exception: for the longest
** sequences, the sums of the gradient leave no registers for the spectrum of dy. */
#include "fused.cuh"

#define MAX_POINTS     16384 /* of a block */
#define MAX_SUM_POINTS 8192  /* of one that sums the gradient of coef, with spectra in registers */
#define POINTS         32    /* of a thread */
#ifdef TL_EMULATE
#define BUSY_THREADS 512 /* so small that tests cover blocks of several sequences */
#else
#define BUSY_THREADS (1 << 18) /* the threads of a launch that keep a GPU busy */
#endif

/* Sequences part, part + parts, .. of the channels from 2^log_c group on are a block's. */
typedef struct task {
    shape s;
    int n, d, groups, parts;
    int64_t b;
} task;

/* ---- The table of roots ---------------------------------------------------------------------- */

static __global__ void make_roots(shape s, float4 *roots, int64_t count)
{
    EACH(e, count)
    {
        int polynomial = (int)e, bits = 0;
        while (polynomial >= 1 << bits) {
            polynomial -= 1 << bits;
            bits += bits == 0 ? s.first : MIDDLE;
        }
        double f = 0.25; /* in turns */
        for (int left = bits; left > 0;) {
            int width = left == bits ? s.first : MIDDLE;
            left -= width;
            f = (f + (polynomial >> left & ((1 << width) - 1))) / (1 << width);
        }
        float power[8];
        for (int k = 1; k <= 4; k++) {
            double sine, cosine;
            sincospi(2 * k * f / (1 << (bits == 0 ? s.first : MIDDLE)), &sine, &cosine);
            power[2 * k - 2] = (float)cosine;
            power[2 * k - 1] = (float)sine;
        }
        roots[2 * e] = make_float4(power[0], power[1], power[2], power[3]);
        roots[2 * e + 1] = make_float4(power[4], power[5], power[6], power[7]);
    }
}

/* ---- Kernels --------------------------------------------------------------------------------- */

/* Entries of a sequence of a block's channels; 0 beyond its ends. */
struct sequence {
    const float *x; /* at the first channel */
    int n, d, channels;
    __device__ __forceinline__ float operator()(int c, int i) const
    {
        return c < channels && i < n ? gpu_load(x + (int64_t)i * d + c) : 0.0f;
    }
};

struct output {
    float *y;
    int n, d, channels;
    __device__ __forceinline__ void operator()(int c, int i, float2 entry) const
    {
        if (c < channels && i < n) gpu_store(y + (int64_t)i * d + c, entry.x);
    }
};

/* T' of angle.h */
struct kernel_points {
    const float *coef; /* at the first channel */
    int n, d, channels, zero, lags;
    __device__ __forceinline__ float2 operator()(int c, int i) const
    {
        int row = zero + i, late = row - n; /* n: N here */
        return make_float2(
            c < channels && row < lags ? gpu_load(coef + (int64_t)row * d + c) : 0.0f,
            c < channels && late >= 0 && late < zero ? -gpu_load(coef + (int64_t)late * d + c)
                                                     : 0.0f);
    }
};

struct kernel_gradient {
    float *dcoef;
    int n, d, channels, zero, lags;
    float scale;
    __device__ __forceinline__ void operator()(int c, int i, float2 entry) const
    {
        int row = zero + i, late = row - n;
        if (c >= channels) return;
        if (row < lags) gpu_store(dcoef + (int64_t)row * d + c, scale * entry.x);
        if (late >= 0 && late < zero) gpu_store(dcoef + (int64_t)late * d + c, -scale * entry.y);
    }
};

template <int PER>
static __device__ __forceinline__ passes<PER> passes_of(const task &t, uint32_t *shared,
                                                        const float4 *roots)
{
    return passes<PER>{t.s, (float2 *)shared, roots};
}

/* The spectra of coef times 1/N, [groups,8,middles]. */
static __global__ void __launch_bounds__(512)
    transform_kernel(task t, int zero, int lags, const float *coef, const float4 *roots,
                     float2 *spectra)
{
    SHARED_WORDS(shared);
    auto p = passes_of<POINTS>(t, shared, roots);
    int c0 = (int)blockIdx.x << t.s.log_c;
    p.to_middle(kernel_points{coef + c0, 1 << t.s.log_n, t.d, t.d - c0, zero, lags});
    float scale = 1.0f / (float)(1 << t.s.log_n);
    for (int m = 0; m < p.GROUPS; m++) {
        int q = p.middle(m);
        if (q < 0) break;
        float2 v[8];
        p.load_middle(q, powers<8>(p.middle_roots(q)), v);
        UNROLL
        for (int k = 0; k < 8; k++)
            gpu_store(spectra + ((int64_t)blockIdx.x * 8 + k) * p.middles() + q,
                      times(scale, v[k]));
    }
}

/* y = T x, or T' x if sign is -1 */
static __global__ void __launch_bounds__(512)
    apply_kernel(task t, float sign, const float *__restrict__ x, float *__restrict__ y,
                 const float4 *__restrict__ roots, const float2 *__restrict__ spectra)
{
    SHARED_WORDS(shared);
    auto p = passes_of<POINTS>(t, shared, roots);
    int group = (int)(blockIdx.x % t.groups), c0 = group << t.s.log_c;
    float2 kernel[POINTS];
    UNROLL
    for (int m = 0; m < p.GROUPS; m++) {
        int q = p.middle(m);
        UNROLL
        for (int k = 0; k < 8; k++) {
            float2 v = q < 0 ? make_float2(0, 0)
                             : gpu_load(spectra + ((int64_t)group * 8 + k) * p.middles() + q);
            kernel[8 * m + k] = make_float2(v.x, sign * v.y);
        }
    }
    for (int64_t b = blockIdx.x / t.groups; b < t.b; b += t.parts) {
        int64_t at = b * t.n * t.d + c0;
        p.to_middle(sequence{x + at, t.n, t.d, t.d - c0});
        UNROLL
        for (int m = 0; m < p.GROUPS; m++) {
            int q = p.middle(m);
            if (q < 0) continue;
            powers<8> r(p.middle_roots(q));
            float2 v[8];
            p.load_middle(q, r, v);
            UNROLL
            for (int k = 0; k < 8; k++) v[k] = times(v[k], kernel[8 * m + k]);
            p.store_middle(q, r, v);
        }
        p.from_middle(output{y + at, t.n, t.d, t.d - c0});
    }
}

/* sums [parts,groups,8,middles] = the sums of F dy conj(F x) over the sequences of a part. With
** spare, like sums, the spectrum of dy is there meanwhile. */
template <int PER, int SPARE>
static __global__ void __launch_bounds__(512)
    correlate_kernel(task t, const float *__restrict__ x, const float *__restrict__ dy,
                     const float4 *__restrict__ roots, float2 *__restrict__ sums,
                     float2 *__restrict__ spare)
{
    SHARED_WORDS(shared);
    auto p = passes_of<PER>(t, shared, roots);
    int group = (int)(blockIdx.x % t.groups), c0 = group << t.s.log_c;
    int64_t mine = (int64_t)blockIdx.x * 8 * p.middles();
    float2 sum[PER], there[SPARE ? 1 : PER];
    UNROLL
    for (int k = 0; k < PER; k++) sum[k] = make_float2(0, 0);
    for (int64_t b = blockIdx.x / t.groups; b < t.b; b += t.parts) {
        int64_t at = b * t.n * t.d + c0;
        p.to_middle(sequence{dy + at, t.n, t.d, t.d - c0});
        UNROLL
        for (int m = 0; m < p.GROUPS; m++) {
            int q = p.middle(m);
            if (q < 0) continue;
            float2 v[8];
            p.load_middle(q, powers<8>(p.middle_roots(q)), v);
            UNROLL
            for (int k = 0; k < 8; k++) {
                if (SPARE)
                    gpu_store(spare + mine + (int64_t)k * p.middles() + q, v[k]);
                else
                    there[SPARE ? 0 : 8 * m + k] = v[k];
            }
        }
        __syncthreads();
        p.to_middle(sequence{x + at, t.n, t.d, t.d - c0});
        UNROLL
        for (int m = 0; m < p.GROUPS; m++) {
            int q = p.middle(m);
            if (q < 0) continue;
            float2 v[8];
            p.load_middle(q, powers<8>(p.middle_roots(q)), v);
            UNROLL
            for (int k = 0; k < 8; k++) {
                float2 g = SPARE ? gpu_load(spare + mine + (int64_t)k * p.middles() + q)
                                 : there[SPARE ? 0 : 8 * m + k];
                sum[8 * m + k] = plus(sum[8 * m + k], times_conjugate(g, v[k]));
            }
        }
        __syncthreads();
    }
    UNROLL
    for (int m = 0; m < p.GROUPS; m++) {
        int q = p.middle(m);
        UNROLL
        for (int k = 0; k < 8; k++)
            if (q >= 0) gpu_store(sums + mine + (int64_t)k * p.middles() + q, sum[8 * m + k]);
    }
}

/* dcoef from the sums of all parts */
static __global__ void __launch_bounds__(512)
    gather_gradient(task t, int zero, int lags, const float2 *sums, const float4 *roots,
                    float *dcoef)
{
    SHARED_WORDS(shared);
    auto p = passes_of<POINTS>(t, shared, roots);
    int c0 = (int)blockIdx.x << t.s.log_c;
    int64_t period = (int64_t)t.groups * 8 * p.middles();
    for (int m = 0; m < p.GROUPS; m++) {
        int q = p.middle(m);
        if (q < 0) break;
        float2 v[8];
        UNROLL
        for (int k = 0; k < 8; k++) {
            const float2 *from = sums + ((int64_t)blockIdx.x * 8 + k) * p.middles() + q;
            v[k] = make_float2(0, 0);
            for (int part = 0; part < t.parts; part++, from += period)
                v[k] = plus(v[k], gpu_load(from));
        }
        p.store_middle(q, powers<8>(p.middle_roots(q)), v);
    }
    p.from_middle(kernel_gradient{dcoef + c0, 1 << t.s.log_n, t.d, t.d - c0, zero, lags,
                                  1.0f / (float)(1 << t.s.log_n)});
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

static int log2_of(int64_t n) /* rounded up */
{
    int log = 0;
    while ((int64_t)1 << log < n) log++;
    return log;
}

/* Blocks of 8 channels, if they fit, so that reads are 32 bytes wide; of 32 if sequences are short,
** so that a warp has work. */
static shape shape_of(int log_n, int64_t most, int per)
{
    shape s = {log_n, log_n <= 6 ? 5 : 3, (log_n - MIDDLE - 1) % MIDDLE + 1, 32};
    while ((int64_t)1 << (log_n + s.log_c) > most) s.log_c--;
    if (1 << (log_n + s.log_c) > 32 * per) s.threads = (1 << (log_n + s.log_c)) / per;
    return s;
}

static int64_t most_points(const tl_ctx *ctx)
{
    int64_t points = (int64_t)(gpu_shared_memory(ctx) / 8);
    return points < MAX_POINTS ? points : MAX_POINTS;
}

int64_t fused_longest(const tl_ctx *ctx)
{
    int64_t points = 1;
    while (2 * points <= most_points(ctx)) points *= 2;
    return points;
}

static size_t bytes_of(const shape *s) { return (size_t)8 << (s->log_n + s->log_c); }

int fused_set(fused *s, tl_ctx *ctx, int64_t n, int64_t d, int64_t zero, int64_t lags)
{
    int     log_n = log2_of(n > 16 ? n : 16);
    int64_t most = most_points(ctx);
    if ((int64_t)1 << log_n > most || d > INT32_MAX - 32) return 0;
    int spare = (int64_t)1 << log_n > MAX_SUM_POINTS;
    s->ctx = ctx;
    s->n = (int)n;
    s->d = (int)d;
    s->zero = (int)zero;
    s->lags = (int)lags;
    s->points = spare ? POINTS : POINTS / 2;
    s->apply = shape_of(log_n, most, POINTS);
    s->sums = shape_of(log_n, spare || most < MAX_SUM_POINTS ? most : MAX_SUM_POINTS, s->points);
    return 1;
}

static int64_t groups_of(const fused *s, const shape *k)
{
    return (s->d + ((int64_t)1 << k->log_c) - 1) >> k->log_c;
}

/* The parts are so few that the terms of the coefficients are small beside those of sequences, and
** depend on nothing but sizes. */
static task task_of(const fused *s, const shape *k, int64_t b)
{
    int64_t groups = groups_of(s, k), parts = BUSY_THREADS / (groups * k->threads);
    if (parts > b) parts = b;
    return task{*k, s->n, s->d, (int)groups, parts < 1 ? 1 : (int)parts, b};
}

/* ---- Calls ----------------------------------------------------------------------------------- */

static int64_t root_floats(const fused *s)
{
    return 8 * (int64_t)roots_at(s->apply.first, s->apply.log_n);
}
static int64_t spectrum_points(const fused *s, const shape *k)
{
    return groups_of(s, k) << (k->log_n + k->log_c);
}

int64_t fused_cache_size(const fused *s)
{
    return root_floats(s) + 2 * spectrum_points(s, &s->apply);
}

/* Fills a cache: the roots and, unless coef is NULL, its spectra. */
static tl_status prepare(const fused *s, const float *coef, float *cache)
{
    tl_ctx *ctx = s->ctx;
    task    t = task_of(s, &s->apply, 1);
    int64_t roots = root_floats(s) / 8;
    LAUNCH(make_roots, blocks_for(roots), THREADS, t.s, (float4 *)cache, roots);
    tl_status st = launched(ctx, "tno");
    if (st != TL_OK || !coef) return st;
    LAUNCH_SHARED(transform_kernel, t.groups, t.s.threads, bytes_of(&t.s), t, s->zero, s->lags,
                  coef, (const float4 *)cache, (float2 *)(cache + 8 * roots));
    return launched(ctx, "tno");
}

/* Takes the cache of the call, or a scratch buffer in its place, which the caller frees. */
static tl_status acquire(const fused *s, const tl_tno_args *a, int kernel, float **out)
{
    *out = a->cache;
    if (a->cache && a->cached) return TL_OK;
    int64_t   floats = kernel ? fused_cache_size(s) : root_floats(s);
    tl_status st = TL_OK;
    if (!a->cache) st = gpu_alloc(s->ctx, (size_t)floats * 4, (void **)out);
    if (st == TL_OK) st = prepare(s, kernel || a->cache ? a->coef : NULL, *out);
    if (st != TL_OK && !a->cache) gpu_free(s->ctx, *out);
    return st;
}

static tl_status apply(const fused *s, const float *cache, int64_t b, float sign, const float *x,
                       float *y)
{
    tl_ctx *ctx = s->ctx;
    task    t = task_of(s, &s->apply, b);
    if (b == 0) return TL_OK;
    LAUNCH_SHARED(apply_kernel, (int64_t)t.groups * t.parts, t.s.threads, bytes_of(&t.s), t, sign,
                  x, y, (const float4 *)cache, (const float2 *)(cache + root_floats(s)));
    return launched(ctx, "tno");
}

tl_status fused_forward(const fused *s, const tl_tno_args *a)
{
    float *cache;
    if (a->b == 0 && (!a->cache || a->cached)) return TL_OK;
    tl_status st = acquire(s, a, 1, &cache);
    if (st != TL_OK) return st;
    st = apply(s, cache, a->b, 1, a->x, a->y);
    if (!a->cache) gpu_free(s->ctx, cache);
    return st;
}

static tl_status gradient(const fused *s, const float *cache, const tl_tno_args *a)
{
    tl_ctx       *ctx = s->ctx;
    task          t = task_of(s, &s->sums, a->b);
    const float4 *roots = (const float4 *)cache;
    int64_t       blocks = (int64_t)t.groups * t.parts;
    size_t        bytes = (size_t)(t.parts * spectrum_points(s, &t.s)) * sizeof(float2);
    float2       *sums = NULL, *spare = NULL;
    tl_status st = gpu_alloc(ctx, bytes, (void **)&sums);
    if (st == TL_OK && s->points == POINTS) st = gpu_alloc(ctx, bytes, (void **)&spare);
    if (st == TL_OK) {
        auto kernel = spare ? correlate_kernel<POINTS, 1> : correlate_kernel<POINTS / 2, 0>;
        LAUNCH_SHARED(kernel, blocks, t.s.threads, bytes_of(&t.s), t, a->x, a->dy, roots, sums,
                      spare);
        st = launched(ctx, "tno_grad");
    }
    if (st == TL_OK) {
        LAUNCH_SHARED(gather_gradient, t.groups, t.s.threads, bytes_of(&t.s), t, s->zero, s->lags,
                      (const float2 *)sums, roots, a->dcoef);
        st = launched(ctx, "tno_grad");
    }
    gpu_free(ctx, spare);
    gpu_free(ctx, sums);
    return st;
}

tl_status fused_backward(const fused *s, const tl_tno_args *a)
{
    float *cache;
    if (!a->dx && !a->dcoef) return TL_OK;
    if (a->b == 0)
        return a->dcoef ? gpu_clear(s->ctx, a->dcoef, (size_t)s->lags * (size_t)s->d * 4) : TL_OK;
    tl_status st = acquire(s, a, a->dx != NULL, &cache);
    if (st != TL_OK) return st;
    if (a->dx) st = apply(s, cache, a->b, -1, a->dy, a->dx);
    if (st == TL_OK && a->dcoef) st = gradient(s, cache, a);
    if (!a->cache) gpu_free(s->ctx, cache);
    return st;
}

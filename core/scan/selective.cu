/* selective.cu - computes the selective scan of Mamba. */
#include "scan/scan.cuh"

/* out[e] = the sum over p < count of parts[p,e] */
static __global__ void add_parts(const float *parts, float *out, int64_t count, int64_t n)
{
    EACH(e, n)
    {
        double sum = 0;
        for (int64_t p = 0; p < count; p++) sum += (double)parts[p * n + e];
        out[e] = (float)sum;
    }
}

/* Of a channel in a chunk, numbered by e: the sequence, the positions, and where its row begins. */
struct channel {
    int64_t c, part, b, first, last, row;
    __device__ channel(const tl_select_job &j, int64_t e)
        : c(e % j.d), part(e / j.d), b(part / j.chunks), first(part % j.chunks * SCAN_CHUNK),
          last(last_of(part % j.chunks, j.n)), row(b * j.n)
    {
    }
    __device__ int64_t state(const tl_select_job &j, int64_t k) const
    {
        return (part * j.s + k) * j.d + c;
    }
};

/* What each chunk alone leaves, and the sum of its steps [b,chunks,d]. */
static __global__ void select_ends(tl_select_job j, float *ends, float *steps, int64_t total)
{
    EACH(e, total)
    {
        channel p(j, e);
        for (int64_t k = 0; more(k, j.s); k += REGS) {
            float a[REGS], h[REGS] = {0}, in[REGS], sum = 0;
            load_state(a, j.a + p.c * j.s, k, j.s);
            for (int64_t i = p.first; i < p.last; i++) {
                float delta = j.delta[(p.row + i) * j.d + p.c];
                float u = delta * j.x[(p.row + i) * j.d + p.c];
                load_state(in, j.in + (p.row + i) * j.s, k, j.s);
                for (int r = 0; r < REGS; r++) h[r] = expf(delta * a[r]) * h[r] + u * in[r];
                sum += delta;
            }
            for (int r = 0; r < REGS && k + r < j.s; r++) ends[p.state(j, k + r)] = h[r];
            steps[e] = sum;
        }
    }
}

static __global__ void select_through(tl_select_job j, float *states, const float *steps, int back,
                                      int64_t total)
{
    EACH(e, total)
    {
        int64_t n = j.s * j.d, at = e % n, c = at % j.d;
        float a = j.a[c * j.s + at / j.d];
        through_chunks(states, e / n, j.chunks, n, at, back,
                       [=](int64_t part, int64_t) { return expf(a * steps[part * j.d + c]); });
    }
}

static __global__ void select_outputs(tl_select_job j, const float *states, int64_t total)
{
    EACH(e, total)
    {
        channel p(j, e);
        float skip = j.skip ? j.skip[p.c] : 0;
        for (int64_t k = 0; more(k, j.s); k += REGS) {
            float a[REGS], h[REGS], in[REGS], out[REGS];
            load_state(a, j.a + p.c * j.s, k, j.s);
            for (int r = 0; r < REGS; r++) h[r] = k + r < j.s ? states[p.state(j, k + r)] : 0;
            for (int64_t i = p.first; i < p.last; i++) {
                int64_t at = (p.row + i) * j.d + p.c;
                float delta = j.delta[at], x = j.x[at], u = delta * x;
                float sum = k == 0 ? skip * x : 0;
                load_state(in, j.in + (p.row + i) * j.s, k, j.s);
                load_state(out, j.out + (p.row + i) * j.s, k, j.s);
                for (int r = 0; r < REGS; r++) {
                    h[r] = expf(delta * a[r]) * h[r] + u * in[r];
                    sum += out[r] * h[r];
                }
                add_to(j.y + at, sum, k == 0);
            }
        }
    }
}

/* selective_scan: in, out: the places of scan.h */
tl_status gpu_selective_scan(tl_ctx *ctx, const tl_args *args)
{
    tl_select_job j = tl_select_job_of(args, 0);
    int64_t parts = j.b * j.chunks * j.d, states = parts * j.s;
    void *own = NULL, *steps = NULL;
    if (args->selective_scan.x->len == 0) return TL_OK;
    tl_status st = gpu_alloc(ctx, (size_t)parts * 4, &steps);
    if (st == TL_OK && !j.states) st = gpu_alloc(ctx, (size_t)(states + 1) * 4, &own);
    if (st == TL_OK) {
        float *kept = j.states ? j.states : (float *)own;
        LAUNCH(select_ends, blocks_for(parts), THREADS, j, kept, (float *)steps, parts);
        LAUNCH(select_through, blocks_for(j.b * j.s * j.d), THREADS, j, kept,
               (const float *)steps, 0, j.b * j.s * j.d);
        LAUNCH(select_outputs, blocks_for(parts), THREADS, j, (const float *)kept, parts);
        st = launched(ctx, "selective_scan");
    }
    if (own) gpu_free(ctx, own);
    if (steps) gpu_free(ctx, steps);
    return st;
}

/* The gradient of the state that each chunk alone sends to the one before it. */
static __global__ void select_back_ends(tl_select_job j, float *ends, float *steps, int64_t total)
{
    EACH(e, total)
    {
        channel p(j, e);
        for (int64_t k = 0; more(k, j.s); k += REGS) {
            float a[REGS], g[REGS] = {0}, out[REGS], sum = 0;
            load_state(a, j.a + p.c * j.s, k, j.s);
            for (int64_t i = p.last - 1; i >= p.first; i--) {
                int64_t at = (p.row + i) * j.d + p.c;
                float delta = j.delta[at], dy = j.dy[at];
                load_state(out, j.out + (p.row + i) * j.s, k, j.s);
                for (int r = 0; r < REGS; r++) g[r] = expf(delta * a[r]) * (g[r] + out[r] * dy);
                sum += delta;
            }
            for (int r = 0; r < REGS && k + r < j.s; r++) ends[p.state(j, k + r)] = g[r];
            steps[e] = sum;
        }
    }
}

static __device__ float warp_sum(float value)
{
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

/* Partial sums: of dB and dC over 32 channels [tiles,b,n,s]; of dA [b,chunks,s,d] and dD
** [b,chunks,d] over a chunk. */
struct select_parts {
    float *din, *dout, *da, *dskip;
};

#define WARP      32
#define BACK_REGS 4 /* numbers of a state in select_back, which stores all states of a chunk */

/* A warp computes 32 channels of a chunk. `carried` is the gradient after each chunk. */
static __global__ void select_back(tl_select_job j, const float *carried, select_parts to,
                                   int64_t warps)
{
    int64_t tiles = (j.d + WARP - 1) / WARP, lane = threadIdx.x % WARP;
    int64_t stride = (int64_t)gridDim.x * blockDim.x / WARP;
    for (int64_t w = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP; w < warps;
         w += stride) {
        int64_t tile = w % tiles, c = tile * WARP + lane;
        bool live = c < j.d;
        channel p(j, w / tiles * j.d + (live ? c : 0));
        float skip = j.skip ? j.skip[p.c] : 0, dskip = 0;
        for (int64_t k = 0; more(k, j.s); k += BACK_REGS) {
            float a[BACK_REGS], h[SCAN_CHUNK][BACK_REGS], now[BACK_REGS], g[BACK_REGS];
            float da[BACK_REGS] = {0};
            for (int r = 0; r < BACK_REGS; r++) {
                bool is = k + r < j.s;
                a[r] = is ? j.a[p.c * j.s + k + r] : 0;
                now[r] = is ? j.states[p.state(j, k + r)] : 0;
                g[r] = is ? carried[p.state(j, k + r)] : 0;
            }
            for (int64_t i = p.first; i < p.last; i++) {
                int64_t at = (p.row + i) * j.d + p.c;
                float delta = j.delta[at], u = delta * j.x[at];
                for (int r = 0; r < BACK_REGS; r++) {
                    float in = k + r < j.s ? j.in[(p.row + i) * j.s + k + r] : 0;
                    h[i - p.first][r] = now[r];
                    now[r] = expf(delta * a[r]) * now[r] + u * in;
                }
            }
            for (int64_t i = p.last - 1; i >= p.first; i--) {
                int64_t at = (p.row + i) * j.d + p.c, row = (p.row + i) * j.s + k;
                float delta = j.delta[at], x = j.x[at], dy = live ? j.dy[at] : 0;
                float du = 0, ddelta = 0;
                for (int r = 0; r < BACK_REGS && k + r < j.s; r++) {
                    float in = j.in[row + r], gh = g[r] + j.out[row + r] * dy;
                    float fade = expf(delta * a[r]), before = h[i - p.first][r];
                    float slope = gh * fade * before;
                    float after = fade * before + delta * x * in;
                    float dout = warp_sum(live ? dy * after : 0);
                    float din = warp_sum(live ? gh * delta * x : 0);
                    if (lane == 0) {
                        to.dout[tile * j.b * j.n * j.s + row + r] = dout;
                        to.din[tile * j.b * j.n * j.s + row + r] = din;
                    }
                    du += gh * in;
                    ddelta += slope * a[r];
                    da[r] += slope * delta;
                    g[r] = gh * fade;
                }
                if (k == 0) dskip += dy * x;
                if (!live) continue;
                add_to(j.dx + at, du * delta + (k == 0 ? skip * dy : 0), k == 0);
                add_to(j.ddelta + at, ddelta + du * x, k == 0);
            }
            for (int r = 0; live && r < BACK_REGS && k + r < j.s; r++)
                to.da[p.state(j, k + r)] = da[r];
        }
        if (live) to.dskip[p.part * j.d + c] = dskip;
    }
}

/* da [d,s] = the sum of parts [parts,s,d] */
static __global__ void select_add_a(tl_select_job j, const float *parts, int64_t total)
{
    EACH(e, total)
    {
        int64_t n = j.s * j.d, at = e % j.s * j.d + e / j.s;
        double sum = 0;
        for (int64_t p = 0; p < j.b * j.chunks; p++) sum += (double)parts[p * n + at];
        j.da[e] = (float)sum;
    }
}

static void launch_select_back(tl_ctx *ctx, const tl_select_job &j, float *scratch, int64_t tiles)
{
    int64_t parts = j.b * j.chunks * j.d, states = parts * j.s, rows = j.b * j.n * j.s;
    int64_t warps = j.b * j.chunks * tiles;
    float *carried = scratch, *steps = carried + states;
    select_parts to;
    to.da = steps + parts;
    to.dskip = to.da + states;
    to.din = to.dskip + parts;
    to.dout = to.din + tiles * rows;
    LAUNCH(select_back_ends, blocks_for(parts), THREADS, j, carried, steps, parts);
    LAUNCH(select_through, blocks_for(j.b * j.s * j.d), THREADS, j, carried, (const float *)steps,
           1, j.b * j.s * j.d);
    LAUNCH_SYNC(select_back, blocks_for(warps * WARP), THREADS, j, (const float *)carried, to,
                warps);
    LAUNCH(select_add_a, blocks_for(j.s * j.d), THREADS, j, (const float *)to.da, j.s * j.d);
    if (j.dskip)
        LAUNCH(add_parts, blocks_for(j.d), THREADS, (const float *)to.dskip, j.dskip,
               j.b * j.chunks, j.d);
    LAUNCH(add_parts, blocks_for(rows), THREADS, (const float *)to.din, j.din, tiles, rows);
    LAUNCH(add_parts, blocks_for(rows), THREADS, (const float *)to.dout, j.dout, tiles, rows);
}

/* selective_scan_grad: in, out: the places of scan.h */
tl_status gpu_selective_scan_grad(tl_ctx *ctx, const tl_args *args)
{
    tl_select_job j = tl_select_job_of(args, 1);
    int64_t parts = j.b * j.chunks * j.d, tiles = (j.d + WARP - 1) / WARP;
    int64_t floats = 2 * parts * (j.s + 1) + 2 * tiles * j.b * j.n * j.s;
    void *scratch;
    tl_status st = gpu_alloc(ctx, (size_t)(floats + 1) * 4, &scratch);
    if (st != TL_OK) return st;
    launch_select_back(ctx, j, (float *)scratch, tiles);
    st = launched(ctx, "selective_scan_grad");
    gpu_free(ctx, scratch);
    return st;
}

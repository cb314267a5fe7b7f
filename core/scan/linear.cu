/* linear.cu - computes the recurrence of gated linear attention. */
#include "scan/scan.cuh"

/* Of column or row e of the state of a head in a chunk: a state is [dk,dv], of which a thread
** computes one column (wide = dv) or one row (wide = dk). */
struct line {
    int64_t c, part, head, first, last, row;
    __device__ line(const tl_recur_job &j, int64_t e, int64_t wide)
        : c(e % wide), part(e / wide), head(part % j.h),
          first(part / j.h % j.chunks * SCAN_CHUNK), last(last_of(part / j.h % j.chunks, j.n)),
          row(part / j.h / j.chunks * j.n * j.h + head)
    {
    }
    /* the number of (position, head) in the order of the tensors */
    __device__ int64_t at(const tl_recur_job &j, int64_t i) const { return row + i * j.h; }
};

static __device__ float fade_at(const tl_recur_job &j, int64_t at, int64_t k)
{
    return expf(j.g[at * j.dg + (j.dg == 1 ? 0 : k)]);
}

/* What each chunk alone leaves, by columns. With back, the gradient that it sends to the one
** before it. */
static __global__ void recur_ends(tl_recur_job j, float *ends, int back, int64_t total)
{
    EACH(e, total)
    {
        line p(j, e, j.dv);
        for (int64_t k = 0; k < j.dk; k += REGS) {
            float s[REGS] = {0};
            for (int64_t t = 0; t < p.last - p.first; t++) {
                int64_t at = p.at(j, back ? p.last - 1 - t : p.first + t);
                float value = (back ? j.dy : j.v)[at * j.dv + p.c];
                for (int r = 0; r < REGS && k + r < j.dk; r++) {
                    float fade = fade_at(j, at, k + r);
                    float add = (back ? j.q : j.k)[at * j.dk + k + r] * value;
                    s[r] = back ? fade * (s[r] + add) : fade * s[r] + add;
                }
            }
            for (int r = 0; r < REGS && k + r < j.dk; r++)
                ends[(p.part * j.dk + k + r) * j.dv + p.c] = s[r];
        }
    }
}

/* sums [b,chunks,h,dg] of g over each chunk */
static __global__ void recur_sums(tl_recur_job j, float *sums, int64_t total)
{
    EACH(e, total)
    {
        line p(j, e, j.dg);
        float sum = 0;
        for (int64_t i = p.first; i < p.last; i++) sum += j.g[p.at(j, i) * j.dg + p.c];
        sums[e] = sum;
    }
}

static __global__ void recur_through(tl_recur_job j, float *states, const float *sums, int back,
                                     int64_t total)
{
    EACH(e, total)
    {
        int64_t n = j.h * j.dk * j.dv, at = e % n, k = at / j.dv;
        int64_t g = j.dg == 1 ? k / j.dk : k;
        through_chunks(states, e / n, j.chunks, n, at, back,
                       [=](int64_t part, int64_t) { return expf(sums[part * j.h * j.dg + g]); });
    }
}

static __global__ void recur_outputs(tl_recur_job j, const float *states, int64_t total)
{
    EACH(e, total)
    {
        line p(j, e, j.dv);
        for (int64_t k = 0; more(k, j.dk); k += REGS) {
            float s[REGS];
            for (int r = 0; r < REGS; r++)
                s[r] = k + r < j.dk ? states[(p.part * j.dk + k + r) * j.dv + p.c] : 0;
            for (int64_t i = p.first; i < p.last; i++) {
                int64_t at = p.at(j, i);
                float v = j.v[at * j.dv + p.c], y = 0;
                for (int r = 0; r < REGS && k + r < j.dk; r++) {
                    s[r] = fade_at(j, at, k + r) * s[r] + j.k[at * j.dk + k + r] * v;
                    y += j.q[at * j.dk + k + r] * s[r];
                }
                add_to(j.y + at * j.dv + p.c, y, k == 0);
            }
        }
    }
}

/* The states or their gradients at the borders of chunks. */
static void launch_borders(tl_ctx *ctx, const tl_recur_job &j, float *states, float *sums, int back)
{
    int64_t heads = j.b * j.chunks * j.h, all = j.b * j.h * j.dk * j.dv;
    LAUNCH(recur_ends, blocks_for(heads * j.dv), THREADS, j, states, back, heads * j.dv);
    LAUNCH(recur_sums, blocks_for(heads * j.dg), THREADS, j, sums, heads * j.dg);
    LAUNCH(recur_through, blocks_for(all), THREADS, j, states, (const float *)sums, back, all);
}

/* linear_recurrence: in, out: the places of scan.h */
tl_status gpu_linear_recurrence(tl_ctx *ctx, const tl_args *args)
{
    tl_recur_job j = tl_recur_job_of(args, 0);
    int64_t heads = j.b * j.chunks * j.h;
    void *scratch;
    if (args->linear_recurrence.y->len == 0) return TL_OK;
    tl_status st = gpu_alloc(ctx, (size_t)(heads * (j.dg + j.dk * j.dv) + 1) * 4, &scratch);
    if (st != TL_OK) return st;
    float *sums = (float *)scratch, *states = j.states ? j.states : sums + heads * j.dg;
    launch_borders(ctx, j, states, sums, 0);
    LAUNCH(recur_outputs, blocks_for(heads * j.dv), THREADS, j, (const float *)states,
           heads * j.dv);
    st = launched(ctx, "linear_recurrence");
    gpu_free(ctx, scratch);
    return st;
}

/* dv, by columns. `carried` is the gradient after each chunk. */
static __global__ void recur_values(tl_recur_job j, const float *carried, int64_t total)
{
    EACH(e, total)
    {
        line p(j, e, j.dv);
        for (int64_t k = 0; more(k, j.dk); k += REGS) {
            float g[REGS];
            for (int r = 0; r < REGS; r++)
                g[r] = k + r < j.dk ? carried[(p.part * j.dk + k + r) * j.dv + p.c] : 0;
            for (int64_t i = p.last - 1; i >= p.first; i--) {
                int64_t at = p.at(j, i);
                float dy = j.dy[at * j.dv + p.c], dv = 0;
                for (int r = 0; r < REGS && k + r < j.dk; r++) {
                    g[r] += j.q[at * j.dk + k + r] * dy;
                    dv += j.k[at * j.dk + k + r] * g[r];
                    g[r] *= fade_at(j, at, k + r);
                }
                add_to(j.gv + at * j.dv + p.c, dv, k == 0);
            }
        }
    }
}

/* dq and dk, by rows, and the gradients of the decays [b,n,h,dk] as core/scan/linear.c derives
** them. */
static __global__ void recur_keys(tl_recur_job j, const float *carried, float *decays,
                                  int64_t total)
{
    EACH(e, total)
    {
        line p(j, e, j.dk);
        float sum = 0;
        for (int64_t m = 0; more(m, j.dv); m += REGS) {
            float s[REGS], g[REGS], row[REGS];
            load_state(s, j.states + e * j.dv, m, j.dv);
            load_state(g, carried + e * j.dv, m, j.dv);
            for (int64_t i = p.first; i < p.last; i++) {
                int64_t at = p.at(j, i);
                float fade = fade_at(j, at, p.c), key = j.k[at * j.dk + p.c], dq = 0;
                load_state(row, j.v + at * j.dv, m, j.dv);
                for (int r = 0; r < REGS; r++) s[r] = fade * s[r] + key * row[r];
                load_state(row, j.dy + at * j.dv, m, j.dv);
                for (int r = 0; r < REGS; r++) dq += s[r] * row[r];
                add_to(j.gq + at * j.dk + p.c, dq, m == 0);
            }
            for (int64_t i = p.last - 1; i >= p.first; i--) {
                int64_t at = p.at(j, i);
                float fade = fade_at(j, at, p.c), query = j.q[at * j.dk + p.c], dk = 0;
                load_state(row, j.dy + at * j.dv, m, j.dv);
                for (int r = 0; r < REGS; r++) g[r] += query * row[r];
                for (int r = 0; i == p.last - 1 && r < REGS; r++) sum += g[r] * s[r];
                load_state(row, j.v + at * j.dv, m, j.dv);
                for (int r = 0; r < REGS; r++) dk += g[r] * row[r];
                for (int r = 0; r < REGS; r++) g[r] *= fade;
                add_to(j.gk + at * j.dk + p.c, dk, m == 0);
            }
        }
        for (int64_t i = p.last - 1; i >= p.first; i--) {
            int64_t at = p.at(j, i) * j.dk + p.c;
            if (i < p.last - 1) sum += j.q[at] * j.gq[at];
            sum = i > 0 ? sum - j.k[at] * j.gk[at] : 0;
            decays[at] = sum;
        }
    }
}

/* dg [rows] = the sums of the rows of decays [rows,dk] */
static __global__ void recur_add_decays(const float *decays, float *dg, int64_t dk, int64_t rows)
{
    EACH(e, rows)
    {
        float sum = 0;
        for (int64_t k = 0; k < dk; k++) sum += decays[e * dk + k];
        dg[e] = sum;
    }
}

/* linear_recurrence_grad: in, out: the places of scan.h */
tl_status gpu_linear_recurrence_grad(tl_ctx *ctx, const tl_args *args)
{
    tl_recur_job j = tl_recur_job_of(args, 1);
    int64_t heads = j.b * j.chunks * j.h, rows = j.b * j.n * j.h;
    bool shared = j.dg != j.dk; /* then the gradients of a head's decays are added */
    void *scratch;
    int64_t floats = heads * (j.dg + j.dk * j.dv) + (shared ? rows * j.dk : 0);
    tl_status st = gpu_alloc(ctx, (size_t)(floats + 1) * 4, &scratch);
    if (st != TL_OK) return st;
    float *sums = (float *)scratch, *carried = sums + heads * j.dg;
    float *decays = shared ? carried + heads * j.dk * j.dv : j.gg;
    launch_borders(ctx, j, carried, sums, 1);
    LAUNCH(recur_values, blocks_for(heads * j.dv), THREADS, j, (const float *)carried,
           heads * j.dv);
    LAUNCH(recur_keys, blocks_for(heads * j.dk), THREADS, j, (const float *)carried, decays,
           heads * j.dk);
    if (shared)
        LAUNCH(recur_add_decays, blocks_for(rows), THREADS, (const float *)decays, j.gg, j.dk,
               rows);
    st = launched(ctx, "linear_recurrence_grad");
    gpu_free(ctx, scratch);
    return st;
}

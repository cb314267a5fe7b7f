/* recurrent.cu - steps recurrences whose state lies in lanes (lanes.h): rings and sums of modes.
** The arrays are those of ring.c and etsc.c, in the memory of the GPU.
**
** A block computes a lane of channels of a sequence. The lags or modes of a channel are shared out
** to GROUPS threads, whose sums are added in the order of the threads. */
#include "cuda/cuda.cuh"

extern "C" {
#include "tno/recurrent.h"
}

#ifdef TL_EMULATE
#define GROUPS 4 /* of two warps */
#else
#define GROUPS 16
#endif
#define BLOCK (GROUPS * LANE) /* threads */

/* Returns the sum of the values of the threads of a channel to each of them. */
static __device__ float lane_sum(float value, float *scratch)
{
    float sum = 0;
    __syncthreads(); /* an earlier sum may still be read */
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int g = 0; g < GROUPS; g++) sum += scratch[g * LANE + threadIdx.x % LANE];
    return sum;
}

/* Of a thread: its channel c of lane number i of all sequences, and its group. */
struct lane_place {
    int64_t e, group, lanes, lane, c, row; /* row: of its sequence in x and y */
    bool live;
    __device__ lane_place(const tl_lane_job &j, int64_t i)
        : e(threadIdx.x % LANE), group(threadIdx.x / LANE), lanes((j.d + LANE - 1) / LANE),
          lane(i % lanes), c(lane * LANE + e), row(i / lanes * j.stride), live(c < j.d)
    {
    }
    __device__ float input(const tl_lane_job &j, int64_t p) const
    {
        return live ? j.x[row + p * j.d + c] : 0;
    }
};

/* ---- A ring ---------------------------------------------------------------------------------- */

/* A block computes a position. If it is the only one, this stores its input: in a row that no sum
** reads. y may be x then. */
static __global__ void ring_sums(tl_lane_job j, int64_t total)
{
    __shared__ float scratch[BLOCK];
    for (int64_t w = blockIdx.x; w < total; w += gridDim.x) {
        int64_t i = w / j.n, p = w % j.n, known = j.seen + p + 1;
        lane_place at(j, i);
        const float *taps = j.kernel + at.lane * j.rows * LANE + at.e;
        float *ring = j.memory + i * j.rows * LANE + at.e, own = at.input(j, p), sum = 0;
        for (int64_t k = at.group; k < j.rows && k < known; k += GROUPS) {
            int64_t row = j.at + p - k;
            float x = k <= p ? at.input(j, p - k) : ring[(row < 0 ? row + j.rows : row) * LANE];
            sum += taps[k * LANE] * x;
        }
        sum = lane_sum(sum, scratch);
        if (at.group == 0 && at.live) j.y[at.row + p * j.d + at.c] = sum;
        if (at.group == 0 && j.n == 1) ring[j.at * LANE] = own;
    }
}

/* Stores the last `kept` inputs. */
static __global__ void ring_store(tl_lane_job j, int64_t kept, int64_t total)
{
    EACH(w, total)
    {
        int64_t lanes = (j.d + LANE - 1) / LANE, i = w / LANE / kept;
        int64_t c = i % lanes * LANE + w % LANE;
        int64_t p = j.n - kept + w / LANE % kept;
        j.memory[(i * j.rows + (j.at + p) % j.rows) * LANE + w % LANE] =
            c < j.d ? j.x[i / lanes * j.stride + p * j.d + c] : 0;
    }
}

static void launch_ring(tl_ctx *ctx, const tl_lane_job &j)
{
    int64_t lanes = j.b * tl_lanes(j.d), total = lanes * j.n;
    int64_t kept = j.n < j.rows ? j.n : j.rows;
    LAUNCH_SYNC(ring_sums, blocks_for(total * THREADS), BLOCK, j, total);
    if (j.n > 1)
        LAUNCH(ring_store, blocks_for(lanes * kept * LANE), THREADS, j, kept,
               lanes * kept * LANE);
}

/* ---- Modes ----------------------------------------------------------------------------------- */

/* A block computes all positions, one after another. See etsc.c for the formulas. */
static __global__ void etsc_steps(tl_lane_job j, int64_t total)
{
    __shared__ float scratch[BLOCK];
    for (int64_t i = blockIdx.x; i < total; i += gridDim.x) {
        lane_place at(j, i);
        int64_t rows = 2 * j.modes * LANE, place = j.at;
        const float *b = j.kernel + at.lane * rows + at.e;
        const float *decay = j.kernel + at.lanes * rows + at.lane * 2 * LANE + at.e;
        const float *turn = j.kernel + at.lanes * (rows + 2 * LANE);
        float *u = j.memory + i * rows + at.e, *ring = j.memory + j.inputs + at.e;
        float fade = decay[0], faded = decay[LANE];
        for (int64_t p = 0; p < j.n; p++) {
            float *old = ring + (i * j.rows + place) * LANE, own = at.input(j, p), x = own, sum = 0;
            if (j.inputs) x -= faded * *old;
            for (int64_t m = at.group; m < j.modes; m += GROUPS) {
                const float *w = turn + 4 * m, *add = b + 2 * m * LANE;
                float *mode = u + 2 * m * LANE, re = fade * mode[0], im = fade * mode[LANE];
                float low_re = w[2] * re - w[3] * im + add[0] * x;
                float low_im = w[2] * im + w[3] * re + add[LANE] * x;
                mode[0] = w[0] * re + (low_re - w[1] * im);
                mode[LANE] = w[0] * im + (low_im + w[1] * re);
                sum += mode[0];
            }
            sum = lane_sum(sum, scratch);
            if (at.group == 0 && j.inputs) *old = own;
            if (at.group == 0 && at.live) j.y[at.row + p * j.d + at.c] = sum;
            place = place + 1 < j.rows ? place + 1 : 0;
        }
    }
}

/* ---- Both ------------------------------------------------------------------------------------ */

/* p: the recurrence. The sums of a ring over several positions read inputs that an output in the
** same place would replace, so that they are then computed one by one. */
tl_status gpu_recurrence(tl_ctx *ctx, const tl_args *a)
{
    tl_lane_job j = tl_recurrence_job(a);
    int64_t     n = j.n, lanes = j.b * tl_lanes(j.d);
    if (n == 0) return TL_OK;
    if (j.modes > 0) {
        LAUNCH_SYNC(etsc_steps, blocks_for(lanes * THREADS), BLOCK, j, lanes);
    } else if (j.x == j.y && n > 1) {
        j.n = 1;
        for (int64_t p = 0; p < n; p++, j.x += j.d, j.y += j.d) {
            launch_ring(ctx, j);
            j.at = j.at + 1 < j.rows ? j.at + 1 : 0;
            j.seen++; /* above rows it counts as rows */
        }
    } else {
        launch_ring(ctx, j);
    }
    tl_lanes_advance(j.state, n, j.rows);
    return launched(ctx, "recurrence");
}

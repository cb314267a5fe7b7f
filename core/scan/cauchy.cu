/* cauchy.cu - computes sums over simple poles, and their gradients. */
#include "cuda/cuda.cuh"
extern "C" {
#include "scan/cauchy.h"
}

/* The functions E, F, P and Q of cauchy.c, of one pole at one node. */
struct of_pole {
    float2 e, f, p, q;
    __device__ of_pole(const tl_cauchy_job &j, int64_t pole, int64_t node)
    {
        float re = j.nodes[2 * node] - j.poles[2 * pole], y = j.nodes[2 * node + 1];
        float s = y - j.poles[2 * pole + 1], t = y + j.poles[2 * pole + 1];
        float a = 1 / (re * re + s * s), b = j.pairs ? 1 / (re * re + t * t) : 0;
        float2 c = {re * a, -s * a}, d = {re * b, -t * b};
        e = {c.x + d.x, c.y + d.y};
        f = {d.y - c.y, c.x - d.x};
        c = {c.x * c.x - c.y * c.y, 2 * c.x * c.y};
        d = {d.x * d.x - d.y * d.y, 2 * d.x * d.y};
        p = {c.x + d.x, c.y + d.y};
        q = {d.y - c.y, c.x - d.x};
    }
};

static __global__ void cauchy_each(tl_cauchy_job j, int64_t total)
{
    EACH(i, total)
    {
        int64_t row = i / j.f, c = row % j.d;
        float re = 0, im = 0;
        for (int64_t k = 0; k < j.m; k++) {
            of_pole z(j, c * j.m + k, i % j.f);
            float v_re = j.v[2 * (row * j.m + k)], v_im = j.v[2 * (row * j.m + k) + 1];
            re += v_re * z.e.x + v_im * z.f.x;
            im += v_re * z.e.y + v_im * z.f.y;
        }
        j.y[2 * i] = re;
        j.y[2 * i + 1] = im;
    }
}

/* v [r,d,m,2], poles [d,m,2], nodes [f,2], y [r,d,f,2] */
GPU_EACH(cauchy, a->y->len / 2, cauchy_each, tl_cauchy_job_of(args, 0))

/* A block computes the gradients of one pole and of its numbers v. */
static __global__ void cauchy_grad_poles(tl_cauchy_job j)
{
    __shared__ float scratch[THREADS / 32];
    int64_t pole = blockIdx.x, c = pole / j.m;
    float   re = 0, im = 0;
    for (int64_t r = 0; r < j.r; r++) {
        int64_t at = 2 * (r * j.d * j.m + pole);
        float   e = 0, f = 0, p = 0, q = 0;
        for (int64_t i = threadIdx.x; i < j.f; i += THREADS) {
            of_pole z(j, pole, i);
            int64_t from = 2 * ((r * j.d + c) * j.f + i);
            float   x = j.dy[from], y = j.dy[from + 1];
            e += x * z.e.x + y * z.e.y;
            f += x * z.f.x + y * z.f.y;
            p += x * z.p.x + y * z.p.y;
            q += x * z.q.x + y * z.q.y;
        }
        e = block_reduce(e, add(), scratch);
        f = block_reduce(f, add(), scratch);
        p = block_reduce(p, add(), scratch);
        q = block_reduce(q, add(), scratch);
        re += j.v[at] * p + j.v[at + 1] * q;
        im += j.v[at] * q - j.v[at + 1] * p;
        if (threadIdx.x == 0) {
            j.dv[at] = e;
            j.dv[at + 1] = f;
        }
    }
    if (threadIdx.x == 0) {
        j.dpoles[2 * pole] = re;
        j.dpoles[2 * pole + 1] = im;
    }
}

GPU_ROWS(cauchy_grad, a->poles->len / 2, cauchy_grad_poles, tl_cauchy_job_of(args, 1))

/* passes.cuh - implements the transform of the right-angle convolution (angle.h) in the shared
** memory of a block: the values of a polynomial at the N roots of z^N = i, N a power of two.
**
** Modulo z^M = exp(2 pi i f), with f in turns, the R parts of a polynomial are spread by
**     v_k = v_k r^k, r = exp(2 pi i f/R), and a transform of size R
** to R polynomials modulo z^(M/R) = exp(2 pi i (f + k)/R). Repeated down to M = 1, that gives the
** values in an order of its own, with neither a twist before nor an order of bits after. Gathering
** is the adjoint, in the opposite order. Both change R places at a time and leave values there, so
** that a thread waits for others only between passes. The first pass has radix 2, 4 or 8, the
** others 8. The last of spreading and the first of gathering stay in registers: the middle.
**
** Place i of channel c is at 2^log_c place(i) + c. For each pass, the places of any 16 successive
** threads are in different banks. */
#ifndef PASSES_CUH
#define PASSES_CUH

#include "cuda/cuda.cuh"

#define MIDDLE 3 /* log2 of the radix of the middle, and of all passes but the first */

typedef struct shape { /* of a block */
    int log_n, log_c; /* it transforms 2^log_c channels of N = 2^log_n points */
    int first;        /* log2 of the radix of the first pass */
    int threads;
} shape;

/* The place in the table of roots of the pass that starts from 2^bits polynomials. Each of those
** has two entries, (r, r^2) and (r^3, r^4). */
static __host__ __device__ __forceinline__ int roots_at(int first, int bits)
{
    return bits == 0 ? 0 : 1 + ((1 << bits) - (1 << first)) / 7;
}

/* ---- Complex numbers ------------------------------------------------------------------------- */

static __device__ __forceinline__ float2 plus(float2 a, float2 b)
{
    return make_float2(a.x + b.x, a.y + b.y);
}
static __device__ __forceinline__ float2 minus(float2 a, float2 b)
{
    return make_float2(a.x - b.x, a.y - b.y);
}
static __device__ __forceinline__ float2 times(float2 a, float2 b)
{
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
static __device__ __forceinline__ float2 times(float a, float2 b)
{
    return make_float2(a * b.x, a * b.y);
}
static __device__ __forceinline__ float2 times_conjugate(float2 a, float2 b)
{
    return make_float2(a.x * b.x + a.y * b.y, a.y * b.x - a.x * b.y);
}
static __device__ __forceinline__ float2 complex_of(float a) { return make_float2(a, 0); }
static __device__ __forceinline__ float2 complex_of(float2 a) { return a; }

/* a times i, or -i if INVERSE */
template <int INVERSE> static __device__ __forceinline__ float2 quarter(float2 a)
{
    return INVERSE ? make_float2(a.y, -a.x) : make_float2(-a.y, a.x);
}
/* a times the square root of that */
template <int INVERSE> static __device__ __forceinline__ float2 eighth(float2 a)
{
    const float h = 0.70710678f;
    float2      b = quarter<INVERSE>(a);
    return make_float2(h * (a.x + b.x), h * (a.y + b.y));
}

/* ---- Transforms of size 2, 4 and 8 ----------------------------------------------------------- */

static __device__ __forceinline__ void butterfly(float2 &a, float2 &b)
{
    float2 sum = plus(a, b);
    b = minus(a, b);
    a = sum;
}

template <int INVERSE>
static __device__ __forceinline__ void small_transform(float2 &a, float2 &b, float2 &c, float2 &d)
{
    butterfly(a, c);
    butterfly(b, d);
    float2 turned = quarter<INVERSE>(d);
    butterfly(a, b); /* entries 0 and 2 */
    d = minus(c, turned);
    float2 first = plus(c, turned);
    c = b;
    b = first;
}

template <int INVERSE> static __device__ __forceinline__ void transform(float2 (&v)[2])
{
    butterfly(v[0], v[1]);
}
template <int INVERSE> static __device__ __forceinline__ void transform(float2 (&v)[4])
{
    small_transform<INVERSE>(v[0], v[1], v[2], v[3]);
}
template <int INVERSE> static __device__ __forceinline__ void transform(float2 (&v)[8])
{
    small_transform<INVERSE>(v[0], v[2], v[4], v[6]);
    small_transform<INVERSE>(v[1], v[3], v[5], v[7]);
    float2 odd[4] = {v[1], eighth<INVERSE>(v[3]), quarter<INVERSE>(v[5]),
                     quarter<INVERSE>(eighth<INVERSE>(v[7]))};
    float2 even[4] = {v[0], v[2], v[4], v[6]};
    UNROLL
    for (int k = 0; k < 4; k++) {
        v[k] = plus(even[k], odd[k]);
        v[k + 4] = minus(even[k], odd[k]);
    }
}

/* r^0 .. r^(R-1) */
template <int R> struct powers {
    float2 of[8];
    __device__ __forceinline__ powers(const float4 *roots)
    {
        float4 a = roots[0];
        of[0] = make_float2(1, 0);
        of[1] = make_float2(a.x, a.y);
        if (R == 2) return;
        float4 b = roots[1];
        of[2] = make_float2(a.z, a.w);
        of[3] = make_float2(b.x, b.y);
        if (R == 4) return;
        of[4] = make_float2(b.z, b.w);
        for (int k = 5; k < 8; k++) of[k] = times(of[4], of[k - 4]);
    }
};

template <int R, class ENTRY>
static __device__ __forceinline__ void spread(const ENTRY (&from)[R], const powers<R> &r,
                                              float2 (&v)[R])
{
    v[0] = complex_of(from[0]);
    UNROLL
    for (int k = 1; k < R; k++) v[k] = times(from[k], r.of[k]);
    transform<0>(v);
}
template <int R>
static __device__ __forceinline__ void gather(float2 (&v)[R], const powers<R> &r)
{
    transform<1>(v);
    UNROLL
    for (int k = 1; k < R; k++) v[k] = times_conjugate(v[k], r.of[k]);
}

/* ---- Passes ---------------------------------------------------------------------------------- */

/* The work of a thread. PER: the points of a thread of the middle, at most. */
template <int PER> struct passes {
    static const int GROUPS = PER / 8; /* of 8 points */

    shape s;
    float2 *z; /* in shared memory */
    const float4 *roots;

    __device__ __forceinline__ int place(int c, int i) const
    {
        return ((i ^ ((i >> 3) & 15)) << s.log_c) + c;
    }
    __device__ __forceinline__ const float4 *roots_of(int bits, int polynomial) const
    {
        return roots + 2 * (roots_at(s.first, bits) + polynomial);
    }

    /* source(c, i): entry i of channel c, a float or a float2 */
    template <int LOG, class SOURCE> __device__ __forceinline__ void spread_first(SOURCE source)
    {
        const int R = 1 << LOG;
        int apart = s.log_n - LOG, count = 1 << (apart + s.log_c);
        powers<R> r(roots);
        for (int q = (int)threadIdx.x; q < count; q += s.threads) {
            int c = q & ((1 << s.log_c) - 1), i = q >> s.log_c;
            decltype(source(c, i)) from[R];
            float2 v[R];
            UNROLL
            for (int k = 0; k < R; k++) from[k] = source(c, i + (k << apart));
            spread(from, r, v);
            UNROLL
            for (int k = 0; k < R; k++) z[place(c, i + (k << apart))] = v[k];
        }
    }
    /* sink(c, i, entry) */
    template <int LOG, class SINK> __device__ __forceinline__ void gather_last(SINK sink)
    {
        const int R = 1 << LOG;
        int apart = s.log_n - LOG, count = 1 << (apart + s.log_c);
        powers<R> r(roots);
        for (int q = (int)threadIdx.x; q < count; q += s.threads) {
            int c = q & ((1 << s.log_c) - 1), i = q >> s.log_c;
            float2 v[R];
            UNROLL
            for (int k = 0; k < R; k++) v[k] = z[place(c, i + (k << apart))];
            gather(v, r);
            UNROLL
            for (int k = 0; k < R; k++) sink(c, i + (k << apart), v[k]);
        }
    }

    /* A pass from 2^bits polynomials, or to them if INVERSE. */
    template <int INVERSE> __device__ __forceinline__ void between(int bits)
    {
        int apart = s.log_n - bits - MIDDLE, count = 1 << (s.log_n - MIDDLE + s.log_c);
        for (int q = (int)threadIdx.x; q < count; q += s.threads) {
            int c = q & ((1 << s.log_c) - 1), u = q >> s.log_c;
            int polynomial = u >> apart;
            int i = (polynomial << (apart + MIDDLE)) + (u & ((1 << apart) - 1));
            powers<8> r(roots_of(bits, polynomial));
            float2 v[8];
            UNROLL
            for (int k = 0; k < 8; k++) v[k] = z[place(c, i + (k << apart))];
            if (INVERSE)
                gather(v, r);
            else
                spread(v, r, v);
            UNROLL
            for (int k = 0; k < 8; k++) z[place(c, i + (k << apart))] = v[k];
        }
    }

    /* All passes but the middle. The threads wait for each other after each. */
    template <class SOURCE> __device__ __forceinline__ void to_middle(SOURCE source)
    {
        if (s.first == 1) spread_first<1>(source);
        if (s.first == 2) spread_first<2>(source);
        if (s.first == 3) spread_first<3>(source);
        __syncthreads();
        for (int bits = s.first; bits < s.log_n - MIDDLE; bits += MIDDLE) {
            between<0>(bits);
            __syncthreads();
        }
    }
    /* The first pass of to_middle may follow at once: a thread writes only where it has read. */
    template <class SINK> __device__ __forceinline__ void from_middle(SINK sink)
    {
        __syncthreads();
        for (int bits = s.log_n - 2 * MIDDLE; bits >= s.first; bits -= MIDDLE) {
            between<1>(bits);
            __syncthreads();
        }
        if (s.first == 1) gather_last<1>(sink);
        if (s.first == 2) gather_last<2>(sink);
        if (s.first == 3) gather_last<3>(sink);
    }

    /* The thread's group m of the middle, the 8 points of number q; -1 if there is none. */
    __device__ __forceinline__ int middle(int m) const
    {
        int q = (int)threadIdx.x + m * s.threads;
        return q < middles() ? q : -1;
    }
    __device__ __forceinline__ int middles() const { return 1 << (s.log_n - MIDDLE + s.log_c); }
    __device__ __forceinline__ const float4 *middle_roots(int q) const
    {
        return roots_of(s.log_n - MIDDLE, q >> s.log_c);
    }
    __device__ __forceinline__ float2 &middle_at(int q, int k) const
    {
        return z[place(q & ((1 << s.log_c) - 1), 8 * (q >> s.log_c) + k)];
    }
    __device__ __forceinline__ void load_middle(int q, const powers<8> &r, float2 (&v)[8]) const
    {
        UNROLL
        for (int k = 0; k < 8; k++) v[k] = middle_at(q, k);
        spread(v, r, v);
    }
    __device__ __forceinline__ void store_middle(int q, const powers<8> &r, float2 (&v)[8]) const
    {
        gather(v, r);
        UNROLL
        for (int k = 0; k < 8; k++) middle_at(q, k) = v[k];
    }
};

#endif

/* rac.h - declares the right-angle convolution, which applies a Toeplitz operator of length n by
** one complex transform of about length n per real channel, with channels in vector lanes.
**
** Why it is a Toeplitz operator. Let N >= n and T'[m] = t_m - i t_(m-N), where lags that do not
** exist are 0. In the ring of polynomials modulo X^N - i, entry k of x T' is
**     sum over j <= k of x_j T'[k-j]  +  i sum over j > k of x_j T'[k-j+N].
** The real part of the first sum has the lags k-j >= 0; in the second, i turns the imaginary part
** of T', the lags below 0, into a real one. So Re(x T' mod X^N - i) = T x, causal or not, without
** the padding to 2n that a circulant, X^N = 1, needs.
**
** How it works. A product modulo X^m - z needs only the residues modulo its factors: with m = R q
** and a root r^R = z, X^m - z is the product over j < R of X^q - r u^j, u = exp(2 pi i / R), and a
** polynomial a has modulo factor j the residue
**     a_j[k] = sum over s < R of (a[k + s q] r^s) u^(j s)      k < q.
** This is a split: twiddle by the powers of r, which are the same for all k, then a transform of
** length R. It works in place: factor j takes the place of the part s = j. A node z = exp(2 pi i f)
** has the children f_j = (f + j) / R; the root is f = 1/4, the right angle. N splits into leaves,
** whose factors X - z have numbers as residues; there products are elementwise. A merge is the
** inverse of a split: a[k + s q] = conj(r)^s / R times the sum over j of a_j[k] u^(-j s).
**
** Splits and merges both work on the nodes in place, so that no bit reversal is needed, and a pass
** needs no more of a node than the R - 1 powers of r, its twiddle factors. They contain the twist
** by (4N)th roots of unity that turns a transform for X^N = 1 into one for X^N = i, at no cost.
**
** The children of a node are computed one after the other, so that a block that fits into a cache
** stays there until it is done: deeper passes access only the block.
**
** Adjoints. Write F for all the splits together; F' F = N, as u and r have modulus 1, so the merges
** without their factors 1/R are the adjoint F'. With D = F dy, X = F x, T^ = F T':
**     y = Re F'(T^ X) / N    dx = Re F'(conj(T^) D) / N    dT' = F'(sum over b of D conj(X)) / N
** and dt_m = Re dT'[m], dt_(m-N) = -Im dT'[m]. A forward call does 2b + 1 transforms, a backward
** one 3b + 2.
**
** Short kernels. Let the lags be -h to K-1, so that s_m = t_(m-h) is a causal kernel of L = K + h
** coefficients. With N >= L, the product of a block x of N entries and s has 2N entries at most,
** and modulo X^N - i the imaginary part is its upper half:
**     x s mod (X^N - i) = lower + i upper.
** So a sequence is processed in blocks without padding: the upper half of a product is carried to
** the next block, and entry i + h of the sum is row i of y. The input of the adjoint for block m is
** dy_m + i dy_(m+1), the blocks of dy h rows later.
**
** Lanes. Entry k of a block is a vector of real parts and one of imaginary parts, in which each
** lane is a channel. Twiddle factors are scalars. */
#ifndef RAC_H
#define RAC_H

#include "backend.h"

#define RAC_DEPTH 40 /* enough for any length, since radices are at least 3 */

/* The nodes of one depth. */
typedef struct rac_level {
    int          radix;  /* R */
    int64_t      points; /* q, of each child */
    int64_t      step;   /* vectors from a child to the next: 2 q and padding */
    const float *roots;  /* [nodes, R - 1, 2]: the powers r^1 .. r^(R-1) */
} rac_level;

/* How a length splits. A run is a contiguous block of the last two levels, followed by one unused
** point, because children at distances of a power of two would share few cache sets. */
typedef struct rac_split {
    int64_t   size;    /* N */
    int       depth;   /* levels in use; the last one has radix 4 or 8 */
    int64_t   run;     /* points of a run */
    int64_t   vectors; /* vectors of a block of N points */
    rac_level levels[RAC_DEPTH];
    float    *roots;
} rac_split;

/* N rows of `lanes` channels, stride floats apart, of any alignment. */
typedef struct rac_rows {
    float  *at;
    int64_t stride;
} rac_rows;

/* The functions for one instruction set. Blocks are [s->vectors,lanes] and aligned. */
typedef struct rac_kernel {
    const char *name;
    int         lanes;
    int         widest; /* the largest radix that fits into the registers: 8 or 4 */
    int (*supported)(void);
    /* block = F (re - i im); im.at may be NULL for 0 */
    void (*analyse)(const rac_split *s, rac_rows re, rac_rows im, float *block);
    /* re - i im = F'(block) / N; overwrites block; im.at may be NULL to discard im */
    void (*synthesise)(const rac_split *s, float *block, rac_rows re, rac_rows im);
    /* z = F'(spectrum F (x + i next)) / N, or with the conjugate of spectrum; y = Re z + carry and
    ** carry = Im z. x may be y; next.at and carry.at may be NULL. */
    void (*apply)(const rac_split *s, int conjugate, const float *spectrum, rac_rows x,
                  rac_rows next, rac_rows y, rac_rows carry, float *block);
    /* sum += F (dy + i next) conj(F x). Unless dx.at is NULL, dx is the y that apply computes from
    ** dy and next with the conjugate; dx may be dy. */
    void (*adjoints)(const rac_split *s, const float *spectrum, rac_rows x, rac_rows dy,
                     rac_rows next, rac_rows dx, float *sum, float *const blocks[2]);
    /* The same for complex rows x[0] - i x[1], each [N,lanes] and aligned, for fd; dx may be
    ** NULL. */
    void (*apply_complex)(const rac_split *s, int conjugate, const float *spectrum,
                          float *const x[2], float *const y[2], float *block);
    void (*adjoints_complex)(const rac_split *s, const float *spectrum, float *const x[2],
                             float *const dy[2], float *const dx[2], float *sum,
                             float *const blocks[2]);
} rac_kernel;

extern const rac_kernel rac_avx512, rac_avx2, rac_portable;

/* The kernel of that name, or for "auto" the best that the processor supports; NULL if it does not
** support it. */
const rac_kernel *rac_kernel_named(const char *name);

/* Finds the fastest length for sequences of n with radices up to widest, and computes its levels.
** The length is at least n, or at least `kernel` for processing in blocks. TL_ENOMEM, with nothing
** to free. The roots are not computed yet: rac_split_fill does that once the caller has all other
** memory, because the roots of a length that is too large fill gigabytes by themselves. */
tl_status rac_split_make(const tl_host *h, int64_t n, int64_t kernel, int widest, rac_split *s);
void      rac_split_fill(rac_split *s);
void      rac_split_free(const tl_host *h, const rac_split *s);

#endif

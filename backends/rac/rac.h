/* rac.h - the right-angle convolution: a Toeplitz operator of length n by one complex transform of
** about length n per real channel, channels in vector lanes.
**
** Why it is a Toeplitz operator. Let N >= n and T'[m] = t_m - i t_(m-N), where lags that do not
** exist are 0. In the ring of polynomials modulo X^N - i, entry k of x T' is
**     sum over j <= k of x_j T'[k-j]  +  i sum over j > k of x_j T'[k-j+N].
** The real part of the first sum has the lags k-j >= 0; in the second, i turns the imaginary part
** of T', the lags below 0, into a real one. So Re(x T' mod X^N - i) = T x, causal or not, and
** nothing is padded to 2n as the wrap of a circulant, X^N = 1, would need.
**
** How it works. A product modulo X^m - z needs only the residues modulo its factors: with m = R q
** and a root r^R = z, X^m - z is the product over j < R of X^q - r u^j, u = exp(2 pi i / R), and
** a polynomial a has modulo factor j the residue
**     a_j[k] = sum over s < R of (a[k + s q] r^s) u^(j s)      k < q.
** This is a split: twiddle by the powers of r, which are the same for all k, then a transform of
** length R. It is done in place, factor j where the part s = j was. A node z = exp(2 pi i f) has
** the children f_j = (f + j) / R; the root is f = 1/4, the right angle. N splits into leaves, whose
** factors X - z have numbers as residues; there products are taken entry by entry. A merge is the
** inverse of a split: a[k + s q] = conj(r)^s / R times the sum over j of a_j[k] u^(-j s).
**
** Both directions meet the nodes where they are, so nothing is ever put into bit-reversed order and
** back, and all that a pass needs to know of a node is the R - 1 powers of r. The twist by (4N)th
** roots of unity, without which a Fourier transform would serve X^N = 1 and not X^N = i, is in
** those powers and costs nothing.
**
** The children of a node are finished one after the other, so that a block that fits into a cache
** stays there until it is done: passes further down touch only the block.
**
** Adjoints. Write F for all the splits together; F' F = N, as u and r have modulus 1, so the merges
** without their factors 1/R are the adjoint F'. With D = F dy, X = F x, T^ = F T':
**     y = Re F'(T^ X) / N    dx = Re F'(conj(T^) D) / N    dT' = F'(sum over b of D conj(X)) / N
** and dt_m = Re dT'[m], dt_(m-N) = -Im dT'[m]. A forward call does 2b + 1 transforms, a backward
** one 3b + 2.
**
** Short kernels. Let the lags be those from -h to K-1, and s_m = t_(m-h) the L = K + h coefficients
** of a kernel that is causal. With N >= L, the product of a block x of N entries and s has 2N
** entries at most, and modulo X^N - i the imaginary part is its upper half:
**     x s mod (X^N - i) = lower + i upper.
** So a sequence goes block by block: what a block carries is added to the next one, and entry i + h
** of the sum is row i of y. No block is padded. The adjoint: what is put in for block m is
** dy_m + i dy_(m+1), the blocks of dy h rows later.
**
** Lanes. Entry k of a block is a vector of real parts and one of imaginary parts; each lane is
** a channel. Twiddles are scalars. */
#ifndef RAC_H
#define RAC_H

#include "backend.h"

#define RAC_DEPTH 40 /* of the tree of any length: radices are at least 3 */

/* The nodes of one depth. */
typedef struct rac_level {
    int          radix;  /* R */
    int64_t      points; /* q, of each child */
    int64_t      step;   /* vectors from a child to the next: 2 q, and some for padding */
    const float *roots;  /* [nodes, R - 1, 2] the powers r^1 .. r^(R-1) */
} rac_level;

/* How a length splits. Runs of points, the blocks of the last two levels, are contiguous, and one
** unused point follows each: children at distances of a power of two share few sets of a cache. */
typedef struct rac_split {
    int64_t   size;    /* N */
    int       depth;   /* levels in use; the last splits into leaves, in radix 4 or 8 */
    int64_t   run;     /* points of a run */
    int64_t   vectors; /* of a block of N points */
    rac_level levels[RAC_DEPTH];
    float    *roots;
} rac_split;

/* One instruction set. Blocks are [s->vectors, lanes] and aligned; rows are N of lanes channels,
** stride floats apart, anywhere. */
typedef struct rac_rows {
    float  *at;
    int64_t stride;
} rac_rows;

typedef struct rac_kernel {
    const char *name;
    int         lanes;
    int         widest; /* the radix that its registers hold: 8 or 4 */
    int (*supported)(void);
    /* block = F (re - i im); im.at NULL: 0 */
    void (*analyse)(const rac_split *s, rac_rows re, rac_rows im, float *block);
    /* re - i im = F'(block) / N; spoils block; im.at NULL: not wanted */
    void (*synthesise)(const rac_split *s, float *block, rac_rows re, rac_rows im);
    /* z = F'(spectrum F (x + i next)) / N, or with the conjugate of spectrum; y = Re z + carry and
    ** carry = Im z; x may be y; next.at, carry.at NULL: 0, not wanted */
    void (*apply)(const rac_split *s, int conjugate, const float *spectrum, rac_rows x,
                  rac_rows next, rac_rows y, rac_rows carry, float *block);
    /* sum += F (dy + i next) conj(F x), and if dx.at is not NULL dx = apply's y of dy and next with
    ** the conjugate; dx may be dy */
    void (*adjoints)(const rac_split *s, const float *spectrum, rac_rows x, rac_rows dy,
                     rac_rows next, rac_rows dx, float *sum, float *const blocks[2]);
    /* The same of complex rows, for fd: all are re - i im = x[0] - i x[1], [N, lanes] and aligned;
    ** dx NULL: not wanted */
    void (*apply_complex)(const rac_split *s, int conjugate, const float *spectrum,
                          float *const x[2], float *const y[2], float *block);
    void (*adjoints_complex)(const rac_split *s, const float *spectrum, float *const x[2],
                             float *const dy[2], float *const dx[2], float *sum,
                             float *const blocks[2]);
} rac_kernel;

extern const rac_kernel rac_avx512, rac_avx2, rac_portable;

/* The kernel of that name, "auto": the first that the processor has; NULL: it has not that one. */
const rac_kernel *rac_kernel_named(const char *name);

/* The quickest length for sequences of n and radices up to widest, and its levels and roots: one
** from n on, or one from kernel on, for several blocks. TL_ENOMEM: none left; then nothing is to be
** freed. */
tl_status rac_split_make(const tl_host *h, int64_t n, int64_t kernel, int widest, rac_split *s);
void      rac_split_free(const tl_host *h, rac_split *s);

#endif

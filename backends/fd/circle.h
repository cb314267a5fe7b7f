/* circle.h - transforms real sequences of period 2M in vector lanes, by the right-angle transforms
** of rac.
**
** A real sequence of period 2M is a polynomial modulo X^2M - 1, and its spectrum consists of its
** values at the roots of X^2M - 1. The ring factors: for even m,
**     X^m - 1 = (X^(m/2) + 1) (X^(m/2) - 1),
** where lo + X^(m/2) hi has the remainders lo - hi and lo + hi. For even q, X^q = -1 makes X^(q/2)
** the imaginary unit i, so that
**     lo + X^(q/2) hi modulo X^q + 1    is    lo + i hi modulo X^(q/2) - i,
** the ring whose transform rac.h has, with half as many complex points as there were real ones. So
** a transform of 2M real points becomes transforms of M/2, M/4, M/8, .. complex points and a rest,
** so short that it is multiplied by its transform matrix. Unlike a real transform by a complex one,
** this needs no packing before and no unpacking after, and it is less work than one transform of M.
**
** Sequences here are 0 from M to 2M, and only the entries below M of a result are used: lo - hi and
** lo + hi are then lo, and lo of a result is half the sum of its remainders.
**
** As rac takes re - i im, all sequences have the opposite sign from the middle on.
**
** Values are at X = exp(+i w), w = pi m / M; those at w < 0 are conjugates. place[m] is the point
** of the value m, complemented if it is the conjugate. */
#ifndef CIRCLE_H
#define CIRCLE_H

#include "../rac/rac.h"
#include "backend.h"

#define CIRCLE_DEPTH 32

typedef struct circle {
    const tl_host    *h;
    const rac_kernel *kernel;
    int64_t           half;    /* M */
    int               depth;   /* number of transforms */
    rac_split         splits[CIRCLE_DEPTH];
    int64_t           rest;    /* entries of the rest */
    int64_t           at[CIRCLE_DEPTH + 1]; /* the first point of each transform, and of the rest */
    int64_t           points;  /* of a block that holds all of them */
    float            *there;   /* [2 (rest/2 + 1), rest]: the transform of the rest, re, im, .. */
    float            *back;    /* [rest, 2 (rest/2 + 1)]: its inverse */
    int32_t          *place;   /* [M+1]: points; ~point for a conjugate */
} circle;

/* TL_ENOMEM; the caller must call circle_free even then. c->depth is 0 if M does not split into
** lengths of rac's transforms. */
tl_status circle_make(const tl_host *h, const rac_kernel *kernel, int64_t half, circle *c);
void      circle_free(const circle *c);

/* Rows are [M,lanes] and blocks [points,2,lanes], aligned; row k is entry k of a sequence, with the
** opposite sign from M/2 on. Points that no place names are padding of any value. */

/* block = the spectrum of rows. Overwrites rows, which serve as scratch space. */
void circle_split(const circle *c, float *rows, float *block);

/* Multiplies the spectrum of rows by `spectrum` or its conjugate, and leaves the result in rows and
** others as circle_merge does. */
void circle_apply(const circle *c, int conjugate, const float *spectrum, float *rows,
                  float *others, float *block);

/* sum += the spectrum of rows times the conjugate of x's spectrum; unless spectrum is NULL, it also
** does what circle_apply does with the conjugate. Overwrites x, which serves as scratch space. */
void circle_adjoints(const circle *c, const float *spectrum, float *x, float *rows, float *others,
                     float *sum, float *const blocks[2]);

/* Inverts the spectrum in block: rows + others is twice the first M entries of the sequence, and
** rows - others twice the last. Overwrites block, and ignores the imaginary parts at m = 0 and
** M. */
void circle_merge(const circle *c, float *block, float *rows, float *others);

#endif

/* circle.h - real sequences of period 2M in vector lanes, by the right-angle transforms of rac.
**
** A real sequence of period 2M is a polynomial modulo X^2M - 1, and its spectrum are the values at
** the roots of that. The ring falls into others: for even m
**     X^m - 1 = (X^(m/2) + 1) (X^(m/2) - 1),
** where the remainders of lo + X^(m/2) hi are lo - hi and lo + hi, and for even q, X^q = -1 makes
** i of X^(q/2), so that
**     lo + X^(q/2) hi modulo X^q + 1    is    lo + i hi modulo X^(q/2) - i,
** the ring whose transform rac.h has, with half as many complex points as there were real ones. So
** 2M real points are transforms of M/2, M/4, M/8, .. complex ones, and a rest that is so short that
** a product with the matrix of its transform does. Nothing is packed before or sorted out after as
** in a real transform by a complex one, and together they are less work than one transform of M.
**
** Sequences here are 0 from M to 2M, and of results only the entries below M are wanted:
** lo - hi and lo + hi are then lo, and lo of a result is half the sum of its remainders.
**
** As rac takes re - i im, the entries of all sequences from the middle on have the other sign.
**
** All values are at X = exp(+i w), w = pi m / M: those at w < 0 are conjugates. place says where
** the value of m is, and which of the two. */
#ifndef CIRCLE_H
#define CIRCLE_H

#include "../rac/rac.h"
#include "backend.h"

#define CIRCLE_DEPTH 32

typedef struct circle {
    const tl_host    *h;
    const rac_kernel *kernel;
    int64_t           half;    /* M */
    int               depth;   /* transforms */
    rac_split         splits[CIRCLE_DEPTH];
    int64_t           rest;    /* entries of the rest */
    int64_t           at[CIRCLE_DEPTH + 1]; /* the first point of each, and of the rest */
    int64_t           points;  /* of a block of all of them */
    float            *there;   /* [2 (rest/2 + 1), rest] the transform of the rest: re, im, .. */
    float            *back;    /* [rest, 2 (rest/2 + 1)] its inverse */
    int32_t          *place;   /* [M+1] points; ~point: of the conjugate */
} circle;

/* TL_ENOMEM: none left; circle_free is to be called all the same. c->depth is 0 if M does not fall
** into lengths that rac's transforms have. */
tl_status circle_make(const tl_host *h, const rac_kernel *kernel, int64_t half, circle *c);
void      circle_free(const circle *c);

/* Rows and blocks are [M, lanes] and [points, 2, lanes], aligned; row k is entry k of a sequence,
** from M/2 on with the other sign. Points that no place names are padding, of any value. */

/* block = the spectrum of rows, which are spoilt */
void circle_split(const circle *c, float *rows, float *block);

/* The product of that spectrum, or of its conjugate, and the one of rows, left in rows and others
** as by circle_merge. */
void circle_apply(const circle *c, int conjugate, const float *spectrum, float *rows,
                  float *others, float *block);

/* sum += the spectrum of rows times the conjugate of that of x, which is spoilt; and unless
** spectrum is NULL what circle_apply does with its conjugate. */
void circle_adjoints(const circle *c, const float *spectrum, float *x, float *rows, float *others,
                     float *sum, float *const blocks[2]);

/* rows + others and rows - others = twice the first M entries of the sequence of that spectrum and
** the others; block is spoilt. The imaginary parts at m = 0 and M do not matter. */
void circle_merge(const circle *c, float *block, float *rows, float *others);

#endif

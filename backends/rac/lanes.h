/* lanes.h - defines complex vectors of LANES lanes and transforms of 3, 4, 5 and 8 of them in
** registers, for kernel.h. */
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

/* Expands the statement for each j < radix without a loop, so that arrays become registers. */
#define EACH(radix, j, statement)                                                                \
    do {                                                                                         \
        WITH(j, 0, statement) WITH(j, 1, statement) WITH(j, 2, statement)                        \
        if ((radix) > 3) WITH(j, 3, statement)                                                   \
        if ((radix) > 4) WITH(j, 4, statement)                                                   \
        if ((radix) > 5) {                                                                       \
            WITH(j, 5, statement) WITH(j, 6, statement) WITH(j, 7, statement)                    \
        }                                                                                        \
    } while (0)
#define WITH(j, value, statement) { enum { j = value }; statement; }

typedef float vec __attribute__((vector_size(4 * LANES), may_alias));
typedef float loose __attribute__((vector_size(4 * LANES), may_alias, aligned(4))); /* unaligned */

typedef struct complex_lanes {
    vec re, im;
} cplx;

INLINE cplx load(const float *p)
{
    return (cplx){*(const vec *)p, *(const vec *)(p + LANES)};
}

INLINE void store(float *p, cplx a)
{
    *(vec *)p = a.re;
    *(vec *)(p + LANES) = a.im;
}

INLINE cplx add(cplx a, cplx b) { return (cplx){a.re + b.re, a.im + b.im}; }
INLINE cplx sub(cplx a, cplx b) { return (cplx){a.re - b.re, a.im - b.im}; }
INLINE cplx add_turned(cplx a, cplx b) { return (cplx){a.re - b.im, a.im + b.re}; } /* a + i b */
INLINE cplx sub_turned(cplx a, cplx b) { return (cplx){a.re + b.im, a.im - b.re}; } /* a - i b */

INLINE cplx scaled(cplx a, vec x) { return (cplx){a.re * x, a.im * x}; }

/* a + c b and a - c b for a real number c */
INLINE cplx add_scaled(cplx a, float c, cplx b) { return (cplx){a.re + c * b.re, a.im + c * b.im}; }
INLINE cplx sub_scaled(cplx a, float c, cplx b) { return (cplx){a.re - c * b.re, a.im - c * b.im}; }

INLINE cplx multiply(cplx a, cplx b)
{
    return (cplx){a.re * b.re - a.im * b.im, a.im * b.re + a.re * b.im};
}

INLINE cplx multiply_conjugate(cplx a, cplx b)
{
    return (cplx){a.re * b.re + a.im * b.im, a.im * b.re - a.re * b.im};
}

/* ---- Transforms: a_j = sum over s of a_s exp(sign 2 pi i j s / R) ---------------------------- */

/* b = a + sign i d, c = a - sign i d. */
INLINE void turn(int sign, cplx a, cplx d, cplx *b, cplx *c)
{
    *b = sign > 0 ? add_turned(a, d) : sub_turned(a, d);
    *c = sign > 0 ? sub_turned(a, d) : add_turned(a, d);
}

INLINE void transform3(int sign, cplx *a)
{
    cplx sum = add(a[1], a[2]), d = sub(a[1], a[2]);
    cplx middle = sub_scaled(a[0], 0.5f, sum);
    const float sine = 0.866025403784438647f;
    a[0] = add(a[0], sum);
    turn(sign, middle, (cplx){d.re * sine, d.im * sine}, &a[1], &a[2]);
}

INLINE void transform4(int sign, cplx *a)
{
    cplx s = add(a[0], a[2]), d = sub(a[0], a[2]), t = add(a[1], a[3]), e = sub(a[1], a[3]);
    a[0] = add(s, t);
    a[2] = sub(s, t);
    turn(sign, d, e, &a[1], &a[3]);
}

INLINE void transform5(int sign, cplx *a)
{
    const float c1 = 0.309016994374947424f, c2 = -0.809016994374947424f;
    const float s1 = 0.951056516295153572f, s2 = 0.587785252292473129f;
    cplx p = add(a[1], a[4]), d = sub(a[1], a[4]), q = add(a[2], a[3]), e = sub(a[2], a[3]);
    cplx even1 = add_scaled(add_scaled(a[0], c1, p), c2, q);
    cplx even2 = add_scaled(add_scaled(a[0], c2, p), c1, q);
    cplx odd1 = {d.re * s1 + e.re * s2, d.im * s1 + e.im * s2};
    cplx odd2 = {d.re * s2 - e.re * s1, d.im * s2 - e.im * s1};
    a[0] = add(a[0], add(p, q));
    turn(sign, even1, odd1, &a[1], &a[4]);
    turn(sign, even2, odd2, &a[2], &a[3]);
}

/* Combines transforms of the even and the odd elements; sqrt(1/2) is factored out of the rotations
** by an eighth of a turn. */
INLINE void transform8(int sign, cplx *a)
{
    const float half = 0.707106781186547524f;
    cplx even[4] = {a[0], a[2], a[4], a[6]}, odd[4] = {a[1], a[3], a[5], a[7]}, one, three;
    transform4(sign, even);
    transform4(sign, odd);
    one = sign > 0 ? add_turned(odd[1], odd[1]) : sub_turned(odd[1], odd[1]);
    three = sign > 0 ? sub_turned(odd[3], odd[3]) : add_turned(odd[3], odd[3]);
    a[0] = add(even[0], odd[0]);
    a[4] = sub(even[0], odd[0]);
    a[1] = add_scaled(even[1], half, one);
    a[5] = sub_scaled(even[1], half, one);
    turn(sign, even[2], odd[2], &a[2], &a[6]);
    a[3] = sub_scaled(even[3], half, three);
    a[7] = add_scaled(even[3], half, three);
}

INLINE void transform(int radix, int sign, cplx *a)
{
    if (radix == 3) transform3(sign, a);
    if (radix == 4) transform4(sign, a);
    if (radix == 5) transform5(sign, a);
    if (radix == 8) transform8(sign, a);
}

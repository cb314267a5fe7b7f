/* walk.h - arithmetic of two tensors of one shape, of which either may be broadcast: its formulas,
** and how to iterate over both. */
#ifndef TL_WALK_H
#define TL_WALK_H

#include <math.h>

#include "base/here.h"
#include "engine/tensor.h"

#define TL_INLINE static inline HERE __attribute__((always_inline))

/* The functions of TL_BINARY_MAP. CPU loops pass kind as a constant, so that each has its loop. */
TL_INLINE float tl_binary_value(tl_binary_kind kind, float a, float b)
{
    switch (kind) {
    case TL_BINARY_ADD: return a + b;
    case TL_BINARY_SUB: return a - b;
    case TL_BINARY_MUL: return a * b;
    case TL_BINARY_DIV: return a / b;
    case TL_BINARY_MAX: return a >= b || a != a ? a : b;
    case TL_BINARY_MIN: return a <= b || a != a ? a : b;
    case TL_BINARY_POW: return powf(a, b);
    case TL_BINARY_KEEP: return a != 0 ? b : 0.0f;
    case TL_BINARY_DROP: return a != 0 ? 0.0f : b;
    case TL_BINARY_LT: return a < b ? 1.0f : 0.0f;
    case TL_BINARY_LE: return a <= b ? 1.0f : 0.0f;
    case TL_BINARY_GT: return a > b ? 1.0f : 0.0f;
    case TL_BINARY_GE: return a >= b ? 1.0f : 0.0f;
    case TL_BINARY_EQ: return a == b ? 1.0f : 0.0f;
    case TL_BINARY_NE: return a != b ? 1.0f : 0.0f;
    case TL_BINARY_POW_BASE: return b == 0 ? 0.0f : b * powf(a, b - 1);
    case TL_BINARY_POW_EXPONENT: return a == 0 && b >= 0 ? 0.0f : powf(a, b) * logf(a);
    case TL_BINARY_KINDS: break;
    }
    return a;
}

/* Whether the maximum or minimum y is a, so that the gradient is a's. */
TL_INLINE int tl_binary_selects(float a, float y) { return a == y || a != a; }

/* The loops over a common shape, with the strides of both operands; a broadcast dimension has
** stride 0. Adjacent dimensions are merged where both operands have them contiguous, so that most
** shapes become one or two loops. */
typedef struct tl_walk {
    int     ndim; /* at least 1; the last is the inner loop */
    int64_t dims[TL_MAXDIMS], a[TL_MAXDIMS], b[TL_MAXDIMS]; /* sizes and strides in elements */
} tl_walk;

/* The strides of t broadcast to dims. */
static inline void walk_strides(const tl_tensor *t, int ndim, const int64_t *dims, int64_t *out)
{
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        int     j = i - ndim + t->ndim;
        int64_t size = j >= 0 ? t->dims[j] : 1;
        out[i] = size == 1 && dims[i] != 1 ? 0 : step;
        step *= size;
    }
}

static inline tl_walk tl_walk_of(const tl_tensor *a, const tl_tensor *b, int ndim,
                                 const int64_t *dims)
{
    tl_walk w;
    int64_t sa[TL_MAXDIMS] = {0}, sb[TL_MAXDIMS] = {0};
    w.ndim = 0;
    walk_strides(a, ndim, dims, sa);
    walk_strides(b, ndim, dims, sb);
    for (int i = 0; i < ndim; i++) {
        int last = w.ndim - 1;
        if (dims[i] == 1) continue;
        if (last >= 0 && w.a[last] == sa[i] * dims[i] && w.b[last] == sb[i] * dims[i]) {
            w.dims[last] *= dims[i];
            w.a[last] = sa[i];
            w.b[last] = sb[i];
        } else {
            w.dims[w.ndim] = dims[i];
            w.a[w.ndim] = sa[i];
            w.b[w.ndim++] = sb[i];
        }
    }
    if (w.ndim == 0) { /* one element */
        w.ndim = 1;
        w.dims[0] = 1;
        w.a[0] = w.b[0] = 1;
    }
    return w;
}

/* The offsets into a and b at iteration `row` of the outer loops: all dimensions but the last. */
static inline HERE void tl_walk_offsets(const tl_walk *w, int64_t row, int64_t *a, int64_t *b)
{
    *a = *b = 0;
    for (int i = w->ndim - 2; i >= 0; i--) {
        int64_t k = row % w->dims[i];
        row /= w->dims[i];
        *a += k * w->a[i];
        *b += k * w->b[i];
    }
}

#endif

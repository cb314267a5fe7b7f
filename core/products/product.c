/* product.c - finds the sizes of a matrix product, and cuts it into parts, one for each thread. */
#include "products/product.h"

#define SERIAL_FLOPS (64 * 64 * 64) /* smaller products run on one thread */
#define GRANULE      16             /* parts have a multiple of this many rows and columns */

tl_matmul_sizes tl_matmul_sizes_of(const struct tl_args_matmul *a)
{
    const tl_tensor *x = a->a, *z = a->b, *y = a->y;
    tl_matmul_sizes  s = {.count = 1};
    int     one = x->ndim == 2 || z->ndim == 2 || y->ndim == 2;
    int64_t rows_x = one ? tl_rows(x) : x->dims[x->ndim - 2];
    int64_t rows_z = one ? tl_rows(z) : z->dims[z->ndim - 2];
    s.m = a->trans_a ? tl_cols(x) : rows_x;
    s.k = a->trans_a ? rows_x : tl_cols(x);
    s.n = a->trans_b ? rows_z : tl_cols(z);
    for (int i = 0; !one && i < y->ndim - 2; i++) s.count *= y->dims[i];
    return s;
}

static int64_t granules(int64_t size) { return (size + GRANULE - 1) / GRANULE; }

/* The row or column at which part i of `count` begins. */
static int64_t edge(int64_t size, int i, int count)
{
    int64_t at = granules(size) * i / count * GRANULE;
    return at < size ? at : size;
}

tl_product_part tl_part_of(const tl_product *whole, int part)
{
    int     r = part / whole->columns, s = part % whole->columns;
    int64_t top = edge(whole->m, r, whole->rows), left = edge(whole->n, s, whole->columns);
    tl_product_part p = {*whole, whole->trans_a ? top : top * whole->lda,
                         whole->trans_b ? left * whole->ldb : left, top * whole->ldc + left};
    p.shape.m = edge(whole->m, r + 1, whole->rows) - top;
    p.shape.n = edge(whole->n, s + 1, whole->columns) - left;
    p.shape.rows = p.shape.columns = p.shape.copies = 1;
    return p;
}

void tl_product_cut(tl_product *p, int threads)
{
    int64_t best = INT64_MAX;
    int     serial = p->m * p->n < SERIAL_FLOPS / (p->k > 0 ? p->k : 1);
    p->rows = p->columns = 1;
    for (int rows = 1; rows <= threads && !serial; rows++) {
        int columns = threads / rows;
        if (rows * columns < threads) continue; /* some threads would idle */
        if (rows > granules(p->m) || columns > granules(p->n)) continue;
        int64_t reads = (p->m + rows - 1) / rows + (p->n + columns - 1) / columns;
        if (reads >= best) continue;
        best = reads;
        p->rows = rows;
        p->columns = columns;
    }
}

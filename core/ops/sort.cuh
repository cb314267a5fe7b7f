/* sort.cuh - declares a stable sort of the rows of a matrix of 32-bit keys. */
#ifndef TL_SORT_CUH
#define TL_SORT_CUH

#include "cuda/cuda.cuh"

typedef struct sorting { /* the scratch buffers of rows of n keys */
    int64_t   rows, n;
    int       parts;             /* the blocks of a row */
    uint32_t *keys, *to_keys;    /* [rows,n] */
    int32_t  *order, *to_order;  /* [rows,n]: positions in the row */
    int32_t  *counts;            /* [rows,parts,256] */
} sorting;

/* How many words the buffers of rows of n keys take, and the buffers in a block of that size. */
int64_t gpu_sort_words(int64_t rows, int64_t n);
sorting gpu_sort_buffers(int64_t rows, int64_t n, uint32_t *block);
/* Sorts s->keys, each at most last, in ascending order within each row, and moves s->order along.
** Swaps the buffers with their partners once for each of the 8-bit digits that last has. */
void gpu_sort(tl_ctx *ctx, sorting *s, uint32_t last);

#endif

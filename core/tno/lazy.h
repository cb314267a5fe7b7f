/* lazy.h - declares the part of the relaxed form that a background thread computes, lazy.c. */
#ifndef TL_LAZY_H
#define TL_LAZY_H

#include "tno/tile.h"

#define TL_LAZY_FROM 2048 /* positions of the smallest lazy tile */

/* The transforms of a kernel [lags,d], which any number of streams share. */
typedef struct tl_lazy_kernel tl_lazy_kernel;

/* positions: the most that a stream has; 0: any number. *out_k is NULL where no tile is lazy. */
tl_status tl_lazy_kernel_new(tl_ctx *ctx, const float *kernel, int64_t lags, int64_t d,
                             int64_t positions, tl_lazy_kernel **out_k);
void tl_lazy_kernel_free(tl_lazy_kernel *k); /* after its streams; NULL is harmless */
size_t tl_lazy_kernel_bytes(const tl_lazy_kernel *k);

/* The lazy tiles of b streams with the state [b,rows,width], which belongs to the caller. */
typedef struct tl_lazy tl_lazy;

tl_status tl_lazy_new(const tl_lazy_kernel *k, float *state, int64_t b, int64_t rows,
                      int64_t width, tl_lazy **out_s);
void tl_lazy_free(tl_lazy *s); /* drops what waits; NULL is harmless */
/* Waits for what is being computed, and drops all other tiles. */
void tl_lazy_cancel(tl_lazy *s);
/* p is a multiple of TL_LAZY_FROM. Waits until all tiles are added whose first output is p.
** TL_EINVAL: a fork has left the thread behind in the parent. */
tl_status tl_lazy_await(tl_lazy *s, int64_t p);
/* Begins the tiles whose last input is p-1. Until their outputs are awaited, the caller leaves the
** rows of their inputs and outputs alone. */
void tl_lazy_begin(tl_lazy *s, int64_t p);
/* Computes, in a context of one thread, as much of each tile begun as is due by position p. */
void tl_lazy_advance(tl_lazy *s, int64_t p);

#endif

/* tensor_cores.cuh - multiplies small tiles of bf16 numbers on tensor cores, and splits float32
** numbers into several of bf16. A warp holds a tile together: with g = lane / 4 and q = lane % 4, a
** word of A [16,16] holds a row g or g + 8 at the columns 2q, 2q + 1 or 2q + 8, 2q + 9, a word of
** B [16,8] the column g at such rows, and C [16,8] the rows g and g + 8 at the columns 2q and
** 2q + 1 (PTX ISA, mma.m16n8k16). */
#ifndef TL_TENSOR_CORES_CUH
#define TL_TENSOR_CORES_CUH

#include "tno/tno.cuh"

#ifndef TL_EMULATE
/* Returns two numbers rounded to bf16, the first in the lower half. */
static __device__ __forceinline__ uint32_t pack_bf16(float first, float second)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}

/* c += a b; a: row g, row g + 8, and the same 8 columns on; b: rows 2q.., and the same 8 rows on */
static __device__ __forceinline__ void multiply_tile(float (&c)[4], uint32_t a0, uint32_t a1,
                                                     uint32_t a2, uint32_t a3, uint32_t b0,
                                                     uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

#endif

/* Writes a pair of numbers as COPIES words of bf16, `apart` words apart: the rounded numbers, then
** what rounding left over, and so on. Each word holds 8 of the 24 binary digits of a float32. */
template <int COPIES>
static __device__ __forceinline__ void split_bf16(float first, float second, uint32_t *to,
                                                  int apart)
{
    UNROLL
    for (int k = 0; k < COPIES; k++) {
        uint32_t word = pack_bf16(first, second);
        to[k * apart] = word;
        first -= __uint_as_float(word << 16);
        second -= __uint_as_float(word & 0xffff0000u);
    }
}

/* The products of the words of split numbers that count: product k is of word left_of(k) of A and
** right_of(k) of B. The others are below the digits that are kept. */
template <int COPIES> static __device__ constexpr int products_of()
{
    return COPIES * (COPIES + 1) / 2;
}
static __device__ constexpr int left_of(int k)
{
    return k == 2 || k == 3 ? 1 : k == 5 ? 2 : 0;
}
static __device__ constexpr int right_of(int k)
{
    return k == 1 || k == 3 ? 1 : k == 4 ? 2 : 0;
}

#endif

/* avx2.c - compiles the kernel in 8 lanes for AVX2 with FMA; it runs if the processor has both. */
#if defined(__AVX2__) && defined(__FMA__)

#define LANES     8
#define MAX_RADIX 4 /* a butterfly of radix 8 exceeds 16 registers */
#define KERNEL    rac_avx2
#define NAME      "avx2"

static int supported(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#include "kernel.h"

#else
typedef int rac_no_avx2; /* another processor */
#endif

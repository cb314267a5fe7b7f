/* avx512.c - compiles the kernel in 16 lanes for AVX-512; it runs if the processor has all that
** cmake/rac.cmake lets the compiler use. */
#if defined(__AVX512F__)

#define LANES     16
#define MAX_RADIX 8
#define KERNEL    rac_avx512
#define NAME      "avx512"

static int supported(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("fma");
}

#include "kernel.h"

#else
typedef int rac_no_avx512; /* another processor */
#endif

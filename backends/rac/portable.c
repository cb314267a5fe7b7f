/* portable.c - compiles the kernel in 4 lanes, which every current processor supports. */
#define LANES     4
#define MAX_RADIX 4
#define KERNEL    rac_portable
#define NAME      "portable"

static int supported(void) { return 1; }

#include "kernel.h"

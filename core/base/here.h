/* here.h - HERE marks a function of a header that the CPU and the kernels of a GPU share. */
#ifndef TL_HERE_H
#define TL_HERE_H

#ifdef __CUDACC__
#define HERE __host__ __device__
#else
#define HERE
#endif

#endif

/* vendor.c - stands for a library of CUDA that the loader does not find. */
extern int nvtest_library(void);
int nvtest_library(void) { return 1; }

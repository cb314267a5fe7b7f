# onednn.cmake - finds oneDNN 2.x, built without threads or with OpenMP (libgomp), which we can keep
# to one thread.
option(TL_ONEDNN "multiply matrices by oneDNN where it is installed" ON)
set(ONEDNN_LIBRARIES)
set(ONEDNN_DEFINITIONS)
if(TL_ONEDNN)
  include(CheckCSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES dnnl gomp)
  check_c_source_compiles("
    #include <dnnl.h>
    #if DNNL_CPU_RUNTIME != DNNL_RUNTIME_OMP && DNNL_CPU_RUNTIME != DNNL_RUNTIME_SEQ
    #error threads that cannot be kept from starting
    #endif
    void omp_set_num_threads(int count);
    int main(void)
    {
        dnnl_matmul_desc_t desc;
        omp_set_num_threads(1);
        return dnnl_matmul_desc_init(&desc, 0, 0, 0, 0) == dnnl_success;
    }" HAVE_ONEDNN_2)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(HAVE_ONEDNN_2)
    set(ONEDNN_LIBRARIES dnnl gomp)
    set(ONEDNN_DEFINITIONS TL_ONEDNN)
  else()
    message(STATUS "oneDNN 2 was not found, or has other threads than OpenMP's: OpenBLAS computes all products")
  endif()
endif()

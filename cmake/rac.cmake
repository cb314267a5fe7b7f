# rac.cmake - builds the kernels of backends/rac, one per instruction set; the program chooses at
# run time. The backend fd links them too.
add_library(rac-kernels OBJECT backends/rac/split.c backends/rac/avx512.c backends/rac/avx2.c
  backends/rac/portable.c)
target_include_directories(rac-kernels PRIVATE core)
target_link_libraries(rac PRIVATE rac-kernels)
target_link_libraries(fd PRIVATE rac-kernels)
# By default gcc schedules these kernels for too few registers, and its tuning for AMD processors
# costs a few percent.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  set(avx512 -mavx512f -mavx512vl -mavx512dq -mavx512bw -mavx2 -mfma -mtune=icelake-server)
  set(avx2 -mavx2 -mfma)
  foreach(isa avx512 avx2)
    if(CMAKE_C_COMPILER_ID STREQUAL GNU)
      list(APPEND ${isa} -fschedule-insns -fsched-pressure)
    endif()
    set_source_files_properties(backends/rac/${isa}.c PROPERTIES COMPILE_OPTIONS "${${isa}}")
  endforeach()
endif()

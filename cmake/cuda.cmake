# cuda.cmake - builds the device for NVIDIA GPUs where nvcc and a GPU are found, or where options
# request it, for the common GPUs and, as PTX, for later ones. The tests run the same sources on the
# CPU, compiled as C++ (tests/device/emulate.h).
include(CheckLanguage)
file(GLOB CUDA_SOURCES CONFIGURE_DEPENDS core/*.cu core/*/*.cu backends/*.cu
  backends/*/*.cu)

# Without a GPU the kernels would be most of the time of a first build, and nothing would run them.
# A compiler or architectures in the options, or a compiler that an earlier build found, request it.
find_program(NVIDIA_SMI nvidia-smi)
mark_as_advanced(NVIDIA_SMI)
set(WANTED OFF)
if(NVIDIA_SMI OR EXISTS /dev/nvidiactl OR EXISTS /dev/dxg OR DEFINED CMAKE_CUDA_COMPILER
    OR DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(WANTED ON)
endif()
option(TL_CUDA "build the device for NVIDIA GPUs where nvcc is found" ${WANTED})

set(HAS_CUDA OFF)
if(TL_CUDA)
  check_language(CUDA)
endif()
if(TL_CUDA AND CMAKE_CUDA_COMPILER AND NOT TL_SANITIZE)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit)
endif()
if(TARGET CUDA::cublas AND TARGET CUDA::cufft)
  add_library(cuda MODULE ${CUDA_SOURCES})
  set_target_properties(cuda PROPERTIES PREFIX "" CUDA_STANDARD 17 INSTALL_RPATH $ORIGIN/../..
    CUDA_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/devices CUDA_RUNTIME_LIBRARY Shared)
  target_link_libraries(cuda PRIVATE toeplab-core CUDA::cudart CUDA::cublas CUDA::cufft)
  string(REGEX MATCHALL "[0-9]+" capabilities "${CMAKE_CUDA_ARCHITECTURES}")
  list(APPEND capabilities 1000) # none for "native" or "all": any GPU is tried
  list(SORT capabilities COMPARE NATURAL)
  list(GET capabilities 0 least) # the compute capability that a GPU needs, times 10
  if(least EQUAL 1000)
    set(least 0)
  endif()
  target_compile_definitions(cuda PRIVATE TL_CAPABILITY=${least})
  set(HAS_CUDA ON)
else()
  message(STATUS "No GPU, or no nvcc, cuBLAS and cuFFT (or sanitised): no device 'cuda'; see TL_CUDA")
endif()

check_language(CXX)
if(CMAKE_CXX_COMPILER AND NOT TL_SANITIZE)
  enable_language(CXX)
  foreach(source ${CUDA_SOURCES}) # compilers take a .cu file for C++ only when it is included
    # keeps files of one name in two folders apart
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${source})
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/emulated/${name}.cpp CONTENT "#include \"${source}\"\n")
    list(APPEND EMULATED ${CMAKE_BINARY_DIR}/emulated/${name}.cpp)
  endforeach()
  add_library(emulated MODULE ${EMULATED})
  set_target_properties(emulated PROPERTIES PREFIX "" CXX_STANDARD 17
    CXX_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_compile_definitions(emulated PRIVATE TL_EMULATE TL_CAPABILITY=80)
  target_compile_options(emulated PRIVATE -O1 -Wall -Wno-unused-function -U_FORTIFY_SOURCE)
  target_include_directories(emulated PRIVATE tests/device core)
  target_link_libraries(emulated PRIVATE toeplab-core)
else()
  message(STATUS "No C++ compiler: the kernels of 'cuda' are not tested (device_*)")
endif()

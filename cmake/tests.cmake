# tests.cmake - adds the tests that `./lab test` runs. Labels: torture (killed processes, full
# disks), slurm (starts daemons of Slurm, where they are installed), packages (builds them), long
# (minutes to an hour, run by hand).
set(here ${CMAKE_SOURCE_DIR})
find_program(LUAC NAMES luac5.4 luac-5.4 luac54 luac) # distributions differ
if(LUAC)
  execute_process(COMMAND ${LUAC} -v OUTPUT_VARIABLE luac_version ERROR_VARIABLE luac_version)
endif()
if(luac_version MATCHES "Lua 5\\.4")
  add_test(NAME layers COMMAND toeplab lua ${here}/tests/layers.lua ${here})
  set_tests_properties(layers PROPERTIES ENVIRONMENT LUAC=${LUAC})
else()
  message(STATUS "No luac 5.4: the test layers is left out")
endif()
add_test(NAME luacheck COMMAND sh -c "command -v luacheck >/dev/null || exit 77; \
  if [ -e .git ]; then git ls-files '*.lua' | xargs luacheck -q; else luacheck -q .; fi"
  WORKING_DIRECTORY ${here})
set_tests_properties(luacheck PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME lab COMMAND ${here}/tests/program/lab.sh ${here})
add_test(NAME install COMMAND ${here}/tests/program/install.sh ${CMAKE_BINARY_DIR} ${here} ${CMAKE_C_COMPILER}
  ${TL_SANITIZE})
set(plugins ${BACKENDS} ${LIVE})
if(HAS_CUDA)
  list(APPEND plugins cuda)
endif()
list(TRANSFORM plugins REPLACE "(.+)" "$<TARGET_FILE:\\1>")
set(archive none)
if(TARGET toeplab-static)
  set(archive $<TARGET_FILE:toeplab-static>)
endif()
add_test(NAME symbols COMMAND toeplab lua ${here}/tests/program/symbols.lua ${here}
  $<TARGET_FILE:toeplab-core> $<TARGET_FILE:toeplab-lab> ${archive} ${CMAKE_NM} ${plugins})
add_test(NAME packages_agree COMMAND toeplab lua ${here}/tests/packages/agree.lua ${here})
foreach(package debian rock image) # each builds the whole tree
  add_test(NAME package_${package} COMMAND ${here}/tests/packages/${package}.sh ${here})
  set_tests_properties(package_${package} PROPERTIES LABELS "packages;long" SKIP_RETURN_CODE 77)
endforeach()
foreach(package wheel bundle)
  add_test(NAME package_${package}
    COMMAND ${here}/tests/packages/${package}.sh $<TARGET_FILE:toeplab> ${here})
  set_tests_properties(package_${package} PROPERTIES LABELS "packages;long" SKIP_RETURN_CODE 77)
endforeach()
foreach(test program/cli program/asking program/page program/python program/slurm
    program/tensorboard program/watch program/serve
    torture/kill_resume torture/torture_workers torture/torture_edges torture/torture_endless)
  get_filename_component(name ${test} NAME)
  add_test(NAME ${name} COMMAND ${here}/tests/${test}.sh $<TARGET_FILE:toeplab> ${here})
endforeach()
add_executable(example_generate docs/generate.c)
target_include_directories(example_generate PRIVATE core)
target_link_libraries(example_generate PRIVATE toeplab-lab m)
add_test(NAME example COMMAND ${here}/tests/program/example.sh $<TARGET_FILE:toeplab> ${here}
  $<TARGET_FILE:example_generate>)
# Of page and serve: Chromium is missing; all other checks ran. Else what the test needs is missing:
# Python or a package of it, the daemons of Slurm, script(1), curl, or a module of lua/live/.
set_tests_properties(page python slurm tensorboard watch serve PROPERTIES SKIP_RETURN_CODE 77)
set_tests_properties(slurm PROPERTIES LABELS slurm)
set(kills toeplab lua ${here}/tests/torture/torture.lua ${CMAKE_BINARY_DIR}/torture)
add_test(NAME torture COMMAND ${kills} 20)
add_test(NAME torture_200 COMMAND ${kills} 200 3)
add_test(NAME torture_spread COMMAND ${kills} 200 2 20)
set_tests_properties(torture torture_200 torture_spread PROPERTIES
  WORKING_DIRECTORY ${here}/tests/lua)
set(disk ${here}/tests/torture/torture_disk.sh $<TARGET_FILE:toeplab> ${here} ${CMAKE_C_COMPILER})
add_test(NAME torture_disk COMMAND ${disk} 31)
add_test(NAME torture_disk_all COMMAND ${disk} 1)
add_test(NAME torture_disk_read COMMAND ${disk} 31 read)
add_test(NAME torture_disk_read_all COMMAND ${disk} 1 read)
set(power ${here}/tests/torture/torture_power.sh $<TARGET_FILE:toeplab> ${here} ${CMAKE_C_COMPILER})
add_test(NAME torture_power COMMAND ${power} 8)
add_test(NAME torture_power_record COMMAND ${power} 8 record)
add_test(NAME torture_power_50 COMMAND ${power} 50)
set_tests_properties(torture_power torture_power_50 PROPERTIES SKIP_RETURN_CODE 77)
set_tests_properties(torture_disk_read torture_power torture_power_record PROPERTIES LABELS torture)
set_tests_properties(torture_disk_read_all torture_power_50 PROPERTIES LABELS "torture;long")
foreach(test large_store reader)
  add_test(NAME ${test} COMMAND toeplab lua ${here}/tests/torture/${test}.lua
    ${CMAKE_BINARY_DIR}/${test})
endforeach()
add_test(NAME torture_signals COMMAND toeplab lua ${here}/tests/torture/signals.lua 8)
foreach(test torture_rebuild torture_index torture_hosts array_tasks)
  add_test(NAME ${test} COMMAND toeplab lua ${here}/tests/torture/${test}.lua
    WORKING_DIRECTORY ${here}/tests/lua)
endforeach()
set_tests_properties(torture_hosts PROPERTIES SKIP_RETURN_CODE 77)
set(strangers toeplab lua ${here}/tests/torture/torture_strangers.lua .) # . matches every name
add_test(NAME torture_strangers COMMAND ${strangers} 6 WORKING_DIRECTORY ${here}/tests/lua)
add_test(NAME torture_strangers_all COMMAND ${strangers} 1 WORKING_DIRECTORY ${here}/tests/lua)
add_test(NAME torture_index_50 COMMAND toeplab lua ${here}/tests/torture/torture_index.lua 50
  WORKING_DIRECTORY ${here}/tests/lua)
add_test(NAME array_tasks_million COMMAND toeplab lua ${here}/tests/torture/array_tasks.lua 1000 1000
  WORKING_DIRECTORY ${here}/tests/lua)
set_tests_properties(torture torture_workers torture_edges torture_endless torture_disk
  torture_signals torture_rebuild torture_index torture_hosts torture_strangers array_tasks
  PROPERTIES LABELS torture)
set_tests_properties(torture_200 torture_spread torture_disk_all large_store reader
  torture_strangers_all torture_index_50 array_tasks_million PROPERTIES LABELS "torture;long")
set(seconds 3)
if(TL_SANITIZE)
  set(seconds 10) # enough for a thousand inputs
endif()
# Each test begins in an empty folder, even if the last run was stopped. Longer runs are started by
# hand.
set(anew "rm -rf fuzz-$2 && mkdir fuzz-$2 && cd fuzz-$2 && exec $0 lua $1 $2 ${seconds} 1")
foreach(target config journal database checkpoint hdf5 bpe json safetensors npz npy words)
  add_test(NAME fuzz_${target} COMMAND sh -c ${anew} $<TARGET_FILE:toeplab>
    ${here}/tests/fuzz/fuzz.lua ${target} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
endforeach()
if(TL_SANITIZE)
  # Sanitisers use signals, address space and LD_PRELOAD themselves. Killed processes, full disks,
  # daemons, sources and packages tell nothing of memory that the other tests do not.
  get_property(all DIRECTORY PROPERTY TESTS)
  list(FILTER all INCLUDE REGEX
    "^(torture|array_tasks|package)|^(kill_resume|python|slurm|tensorboard|page|serve|watch|lab)$|^lua_test_(nanogpt|error_rates)$")
  set_tests_properties(${all} luacheck PROPERTIES DISABLED TRUE)
  # libhdf5 leaks memory on damaged files, libc when a locale is set.
  set_tests_properties(fuzz_checkpoint fuzz_hdf5 PROPERTIES ENVIRONMENT
    ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0)
endif()
# a device whose memory is apart from the CPU's, for tests
add_library(apart MODULE tests/device/apart.c)
set_target_properties(apart PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_include_directories(apart PRIVATE core)
target_link_libraries(apart PRIVATE toeplab-core)
# the same, with a library in a folder where the loader does not look, as CUDA's may be
add_library(vendor SHARED tests/device/vendor.c)
set_target_properties(vendor PROPERTIES OUTPUT_NAME nvtest SOVERSION 1
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/vendor)
add_library(needy MODULE tests/device/apart.c)
set_target_properties(needy PROPERTIES PREFIX "" SKIP_BUILD_RPATH ON
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_include_directories(needy PRIVATE core)
target_link_libraries(needy PRIVATE toeplab-core vendor)
target_link_options(needy PRIVATE -Wl,--no-as-needed)
# FFTW's plans are measured once per build, and never wait for the lock of another build's tests.
set(own_cache XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/cache)
file(GLOB C_TESTS CONFIGURE_DEPENDS tests/core/*/test_*.c tests/backends/test_*.c)
set(INSIDE bpe choose context gemm gradients memory pathfinder scarce vocab_files
  watch) # these call functions that the libraries do not export
list(TRANSFORM INSIDE PREPEND test_)
foreach(source ${C_TESTS})
  get_filename_component(test ${source} NAME_WE)
  set(library toeplab-core)
  if(source MATCHES "/tests/core/(base|images|store|text)/")
    set(library toeplab-lab)
  endif()
  if(test IN_LIST INSIDE)
    set(library lab-objects engine-objects)
  endif()
  add_executable(${test} ${source})
  target_include_directories(${test} PRIVATE tests/core)
  target_link_libraries(${test} PRIVATE ${library} m)
  add_test(NAME ${test} COMMAND ${test})
  set_tests_properties(${test} PROPERTIES ENVIRONMENT ${own_cache} SKIP_RETURN_CODE 77)
endforeach()
set_property(TEST test_memory APPEND PROPERTY ENVIRONMENT # it allocates more than the machine has
  TSAN_OPTIONS=allocator_may_return_null=1)
add_executable(lua_oom tests/glue/lua_oom.c)
target_include_directories(lua_oom PRIVATE tests/core)
target_link_libraries(lua_oom PRIVATE glue)
foreach(script tensors files text)
  add_test(NAME lua_oom_${script} COMMAND lua_oom ${here}/tests/lua/oom/${script}.lua)
  add_test(NAME lua_oom_${script}_device COMMAND lua_oom ${here}/tests/lua/oom/${script}.lua
    $<TARGET_FILE:apart>)
endforeach()
file(GLOB LUA_TESTS CONFIGURE_DEPENDS tests/lua/*/test_*.lua)
list(FILTER LUA_TESTS EXCLUDE REGEX "/test_(tokens|cifar|glue_tasks|nanogpt)\\.lua$") # below
foreach(source ${LUA_TESTS})
  get_filename_component(test ${source} NAME_WE)
  add_test(NAME lua_${test} COMMAND toeplab lua ${source} WORKING_DIRECTORY ${here}/tests/lua)
  set_tests_properties(lua_${test} PROPERTIES ENVIRONMENT ${own_cache} SKIP_RETURN_CODE 77)
endforeach()
# What was fetched into the user's cache is read, though the tests have a cache of their own.
set(cache "\${TOEPLAB_CACHE:-\${XDG_CACHE_HOME:-$HOME/.cache}/toeplab}")
set(data "TOEPLAB_DATA=\${TOEPLAB_DATA:-${cache}/data}")
foreach(file tasks/tokens tasks/cifar tasks/glue_tasks experiments/nanogpt)
  get_filename_component(test ${file} NAME)
  string(REPLACE / /test_ script ${file}.lua)
  add_test(NAME lua_test_${test} COMMAND sh -c "${data} ${own_cache} exec $0 lua $1"
    $<TARGET_FILE:toeplab> ${here}/tests/lua/${script}
    WORKING_DIRECTORY ${here}/tests/lua)
  set_tests_properties(lua_test_${test} PROPERTIES SKIP_RETURN_CODE 77)
endforeach()
# Some train networks, one writes 16,384 tokens many times, one draws many experiments.
set_tests_properties(lua_test_pathfinder_conv lua_test_nanogpt lua_test_long_text
  lua_test_error_rates PROPERTIES LABELS long)

# The same tests of operators, layers and models run the CUDA kernels on the emulated GPU.
file(STRINGS tests/lua/on_devices.txt ON_DEVICES)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS tests/lua/on_devices.txt)
foreach(line ${ON_DEVICES})
  get_filename_component(test ${line} NAME)
  string(REPLACE / /test_ file ${line}.lua)
  if(TARGET emulated)
    add_test(NAME device_${test} COMMAND toeplab lua ${here}/tests/lua/${file}
      WORKING_DIRECTORY ${here}/tests/lua)
    set_tests_properties(device_${test} PROPERTIES SKIP_RETURN_CODE 77
      ENVIRONMENT "TOEPLAB_DEVICE=$<TARGET_FILE:emulated>;${own_cache}")
  else()
    add_test(NAME device_${test} COMMAND ${CMAKE_COMMAND} -E echo "skipped: no C++ compiler")
    set_tests_properties(device_${test} PROPERTIES SKIP_REGULAR_EXPRESSION skipped)
  endif()
endforeach()
if(TARGET emulated)
  add_executable(test_emulate tests/device/test_emulate.cpp)
  set_target_properties(test_emulate PROPERTIES CXX_STANDARD 17)
  target_compile_options(test_emulate PRIVATE -O1 -U_FORTIFY_SOURCE) # which stops _longjmp
  target_include_directories(test_emulate PRIVATE tests/device tests/core core)
  add_test(NAME device_emulate COMMAND test_emulate)
  add_executable(test_pools tests/device/test_pools.c)
  target_include_directories(test_pools PRIVATE tests/core)
  target_link_libraries(test_pools PRIVATE toeplab-core m)
  add_test(NAME device_pools COMMAND test_pools $<TARGET_FILE:emulated>)
  add_test(NAME device_verify COMMAND toeplab verify -q --device $<TARGET_FILE:emulated>
    ${here}/tests/reference.h5)
  # A missing synchronisation shows when threads run in another order.
  foreach(line glue/core_ops glue/core_parts nn/layers train/optim glue/gpu_backends glue/gpu_mlp
      glue/gpu_capture glue/gpu_tiles glue/gpu_rac glue/scans glue/sort)
    get_filename_component(test ${line} NAME)
    string(REPLACE / /test_ file ${line}.lua)
    add_test(NAME device_${test}_backwards
      COMMAND toeplab lua ${here}/tests/lua/${file} WORKING_DIRECTORY ${here}/tests/lua)
    set_tests_properties(device_${test}_backwards PROPERTIES SKIP_RETURN_CODE 77
      ENVIRONMENT "EMULATE_BACKWARDS=1;${own_cache}")
    if(NOT test MATCHES gpu)
      set_property(TEST device_${test}_backwards APPEND PROPERTY ENVIRONMENT
        "TOEPLAB_DEVICE=$<TARGET_FILE:emulated>")
    endif()
  endforeach()
  foreach(precision bf16 tf32)
    add_test(NAME device_verify_${precision} COMMAND toeplab verify -q -p ${precision}
      --device $<TARGET_FILE:emulated> ${here}/tests/reference.h5)
  endforeach()
  set_tests_properties(device_classifier device_layer_gradients PROPERTIES LABELS long) # minutes
endif()
# The same tests on a real GPU, where the machine has one.
add_test(NAME gpu COMMAND toeplab lua ${here}/tests/lua/on_gpu.lua ${here}/tests)
set_tests_properties(gpu PROPERTIES SKIP_RETURN_CODE 77)
add_custom_target(gpu DEPENDS toeplab) # builds what ./lab bench gpu needs
if(TARGET emulated)
  add_dependencies(gpu emulated)
endif()
# Several ranks, on this machine (label mpi).
set(MPI_TESTS host runs misuse experiments steps_2 steps_4 tasks_2 tasks_4 steps_2_nccl steps_4_nccl
  tasks_2_nccl tasks_4_nccl)
if(HAS_MPI) # NCCL for the devices of the tests, by MPI
  add_library(emulated-nccl MODULE core/ranks/nccl/nccl.c)
  set_target_properties(emulated-nccl PROPERTIES PREFIX "" OUTPUT_NAME nccl
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_compile_definitions(emulated-nccl PRIVATE TL_EMULATE)
  target_include_directories(emulated-nccl PRIVATE tests/device core)
  target_link_libraries(emulated-nccl PRIVATE toeplab-core MPI::MPI_C)
endif()
if(HAS_MPI AND MPIEXEC_EXECUTABLE)
  set(mpirun ${MPIEXEC_EXECUTABLE} --allow-run-as-root --oversubscribe)
  foreach(count 2 4)
    foreach(test steps tasks)
      add_test(NAME mpi_${test}_${count} COMMAND ${mpirun} -n ${count} $<TARGET_FILE:toeplab>
        --threads 1 lua ${here}/tests/mpi/${test}.lua)
      # on a device whose memory is apart, by the emulated NCCL
      add_test(NAME mpi_${test}_${count}_nccl COMMAND ${mpirun} -n ${count} -x
        TOEPLAB_DEVICE=$<TARGET_FILE:apart> $<TARGET_FILE:toeplab> --threads 1 lua
        ${here}/tests/mpi/${test}.lua few)
    endforeach()
  endforeach()
  add_executable(mpi_host tests/mpi/host.c)
  target_include_directories(mpi_host PRIVATE tests/core)
  target_link_libraries(mpi_host PRIVATE toeplab-core MPI::MPI_C)
  add_test(NAME mpi_host COMMAND ${mpirun} -n 2 $<TARGET_FILE:mpi_host>)
  string(REPLACE ";" " " mpirun "${mpirun}")
  foreach(test runs misuse experiments)
    add_test(NAME mpi_${test} COMMAND toeplab --threads 1 lua ${here}/tests/mpi/${test}.lua ${mpirun}
      ${CMAKE_BINARY_DIR}/mpi_${test})
  endforeach()
elseif(NOT TL_SANITIZE) # such builds have no MPI
  foreach(test ${MPI_TESTS})
    add_test(NAME mpi_${test} COMMAND ${CMAKE_COMMAND} -E echo "skipped: no Open MPI")
    set_tests_properties(mpi_${test} PROPERTIES SKIP_REGULAR_EXPRESSION skipped)
  endforeach()
endif()
if(NOT TL_SANITIZE)
  list(TRANSFORM MPI_TESTS PREPEND mpi_)
  set_tests_properties(${MPI_TESTS} PROPERTIES LABELS mpi RUN_SERIAL TRUE
    ENVIRONMENT "TOEPLAB_THREADS=1;OMP_NUM_THREADS=1;${own_cache}")
endif()

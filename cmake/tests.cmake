# What `./lab test` runs. Labels: torture (kills, full disks), long (minutes to an hour, by hand).
set(here ${CMAKE_SOURCE_DIR})
add_test(NAME layers COMMAND lua5.4 ${here}/tests/layers.lua ${here})
add_test(NAME lab COMMAND ${here}/tests/lab.sh ${here})
add_test(NAME install COMMAND ${here}/tests/install.sh ${CMAKE_BINARY_DIR} ${CMAKE_C_COMPILER}
  ${TL_SANITIZE})
foreach(test cli kill_resume asking page torture_workers torture_edges)
  add_test(NAME ${test} COMMAND ${here}/tests/${test}.sh $<TARGET_FILE:toeplab> ${here})
endforeach()
set_tests_properties(page PROPERTIES SKIP_RETURN_CODE 77) # without Chromium, after all the rest
set(kills toeplab torture -C ${CMAKE_BINARY_DIR}/torture --kills)
add_test(NAME torture COMMAND ${kills} 20)
add_test(NAME torture_200 COMMAND ${kills} 200 -j3)
add_test(NAME torture_spread COMMAND ${kills} 200 --seconds 20)
set(disk ${here}/tests/torture_disk.sh $<TARGET_FILE:toeplab> ${here} ${CMAKE_C_COMPILER})
add_test(NAME torture_disk COMMAND ${disk} 31)
add_test(NAME torture_disk_all COMMAND ${disk} 1)
foreach(test large_store reader)
  add_test(NAME ${test} COMMAND toeplab lua ${here}/tests/lua/${test}.lua
    ${CMAKE_BINARY_DIR}/${test})
endforeach()
set_tests_properties(torture torture_workers torture_edges torture_disk PROPERTIES LABELS torture)
set_tests_properties(torture_200 torture_spread torture_disk_all large_store reader
  PROPERTIES LABELS "torture;long")
set(anew "rm -rf fuzz-$2 && mkdir fuzz-$2 && cd fuzz-$2 && exec $0 lua $1 $2 3 1") # even if stopped
foreach(target config journal database checkpoint words) # longer, and with sanitisers: by hand
  add_test(NAME fuzz_${target} COMMAND sh -c ${anew} $<TARGET_FILE:toeplab>
    ${here}/tests/fuzz/fuzz.lua ${target} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
endforeach()
if(TL_SANITIZE) # signals, memory limits and LD_PRELOAD are the sanitisers' own
  set_tests_properties(torture_workers torture_disk PROPERTIES DISABLED TRUE)
  # libhdf5 leaks where a file is damaged, libc where a locale is set.
  set_tests_properties(torture_edges fuzz_checkpoint PROPERTIES ENVIRONMENT
    ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0)
endif()
file(GLOB C_TESTS CONFIGURE_DEPENDS tests/test_*.c)
foreach(source ${C_TESTS})
  get_filename_component(test ${source} NAME_WE)
  add_executable(${test} ${source})
  target_link_libraries(${test} PRIVATE toeplab-core m)
  add_test(NAME ${test} COMMAND ${test})
endforeach()
set_tests_properties(test_memory PROPERTIES ENVIRONMENT # it asks for more than there is
  TSAN_OPTIONS=allocator_may_return_null=1)
add_executable(lua_oom tests/lua_oom.c)
target_link_libraries(lua_oom PRIVATE glue)
foreach(script tensors files text)
  add_test(NAME lua_oom_${script} COMMAND lua_oom ${here}/tests/lua/oom/${script}.lua)
endforeach()
file(GLOB LUA_TESTS CONFIGURE_DEPENDS tests/lua/test_*.lua)
foreach(source ${LUA_TESTS})
  get_filename_component(test ${source} NAME_WE)
  add_test(NAME lua_${test} COMMAND toeplab lua ${source} WORKING_DIRECTORY ${here}/tests/lua)
  # FFTW's plans are measured once per build, and not while another build's tests hold the lock.
  set_tests_properties(lua_${test} PROPERTIES ENVIRONMENT
    XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/cache)
endforeach()

# live.cmake - builds the modules of Lua that need libraries of their own, each where its library is
# found. The program itself needs none of them.
option(TL_LIVE "files for TensorBoard, a served report: where their libraries are installed" ON)
set(LIVE)
if(TL_LIVE)
  pkg_check_modules(PROTOBUF_C IMPORTED_TARGET libprotobuf-c)
  find_program(PROTOC_C protoc-c)
  pkg_check_modules(MICROHTTPD IMPORTED_TARGET libmicrohttpd)
endif()
if(PROTOBUF_C_FOUND AND PROTOC_C)
  set(EVENT ${CMAKE_BINARY_DIR}/event.pb-c)
  add_custom_command(OUTPUT ${EVENT}.c ${EVENT}.h DEPENDS lua/live/event.proto
    COMMAND ${PROTOC_C} --proto_path=${CMAKE_SOURCE_DIR}/lua/live --c_out=${CMAKE_BINARY_DIR}
      event.proto)
  add_library(tensorboard MODULE lua/live/tensorboard.c ${EVENT}.c)
  set_source_files_properties(${EVENT}.c PROPERTIES COMPILE_OPTIONS -w) # it is protoc-c's
  target_include_directories(tensorboard PRIVATE ${CMAKE_BINARY_DIR})
  target_link_libraries(tensorboard PRIVATE PkgConfig::LUA PkgConfig::PROTOBUF_C)
  list(APPEND LIVE tensorboard)
else()
  message(STATUS "No protobuf-c: files for TensorBoard are refused")
endif()
if(MICROHTTPD_FOUND)
  add_library(http MODULE lua/live/http.c)
  target_link_libraries(http PRIVATE PkgConfig::LUA PkgConfig::MICROHTTPD Threads::Threads)
  list(APPEND LIVE http)
else()
  message(STATUS "No libmicrohttpd: report --serve is refused")
endif()
if(LIVE)
  set_target_properties(${LIVE} PROPERTIES PREFIX "" INSTALL_RPATH ""
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/live)
endif()

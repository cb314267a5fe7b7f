# module.cmake - builds toeplab/core.so, by which any Lua 5.4 has `require "toeplab"`. It is not
# linked with liblua, because an interpreter brings its own.
add_library(module MODULE lua/module.c $<TARGET_OBJECTS:glue>)
file(RELATIVE_PATH up /${TL_LUACDIR}/toeplab /${CMAKE_INSTALL_LIBDIR})
string(REGEX REPLACE "/$" "" origin "$ORIGIN/${up}")
set_target_properties(module PROPERTIES PREFIX "" OUTPUT_NAME core INSTALL_RPATH "${origin}"
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lua/toeplab)
target_include_directories(module PRIVATE lua/glue ${LUA_INCLUDE_DIRS})
# Lua closes its C libraries at its end; the threads of those that this one needs may still run.
target_link_options(module PRIVATE -Wl,-z,nodelete)
target_link_libraries(module PRIVATE toeplab-lab toeplab-core Threads::Threads m)
add_dependencies(toeplab module) # ./lab builds only toeplab, and this is installed with it

# static.cmake - builds libtoeplab.a: the objects of the engine and of the backends that are not
# under the GPL, joined into one object. What is hidden in the shared library is local in it, and a
# table that takes the place of the empty one of plugin.c names the backends. Link-time optimisation
# ends here: its sections know the symbols as they were.
option(TL_STATIC "the engine as a static library, too" ON)
# The address sanitiser marks each plugin's entry, and all marks have one name.
if(NOT CMAKE_OBJCOPY OR TL_SANITIZE)
  set(TL_STATIC OFF)
endif()
if(NOT TL_STATIC)
  return()
endif()
set(static ${CMAKE_BINARY_DIR}/static)
set(linked fd matrix naive rac ski) # in the order in which a folder of plugins is loaded
foreach(backend ${linked})
  set(objects $<TARGET_OBJECTS:${backend}>)
  if(backend MATCHES "^(fd|rac)$")
    list(APPEND objects $<TARGET_OBJECTS:rac-kernels>)
  endif()
  add_custom_command(OUTPUT ${static}/${backend}.o DEPENDS ${objects}
    COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -fno-lto -o ${static}/${backend}.o ${objects}
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden
      --redefine-sym tl_tno_backend_entry=tl_${backend}_entry ${static}/${backend}.o
    COMMAND_EXPAND_LISTS VERBATIM)
  list(APPEND joined ${static}/${backend}.o)
  string(APPEND declared "extern const tl_tno_backend tl_${backend}_entry;\n")
  string(APPEND listed "&tl_${backend}_entry, ")
endforeach()
file(GENERATE OUTPUT ${static}/linked.c CONTENT "/* made by cmake/static.cmake */
#include \"backend.h\"
${declared}const tl_tno_backend *const tl_linked_backends[] = {${listed}0};\n")
add_library(static-table OBJECT ${static}/linked.c)
target_include_directories(static-table PRIVATE core)
list(APPEND joined $<TARGET_OBJECTS:engine-objects> $<TARGET_OBJECTS:static-table>)
set(whole ${static}/toeplab.o)
add_custom_command(OUTPUT ${whole} DEPENDS ${joined}
  COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -fno-lto -o ${whole} ${joined}
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden --wildcard --localize-symbol=tl_*_entry
    --remove-section=.gnu.lto_* --remove-section=.gnu.debuglto_* ${whole}
  COMMAND_EXPAND_LISTS VERBATIM)
set_source_files_properties(${whole} PROPERTIES EXTERNAL_OBJECT TRUE)
add_library(toeplab-static STATIC ${whole})
set_target_properties(toeplab-static PROPERTIES OUTPUT_NAME toeplab EXPORT_NAME toeplab_static
  LINKER_LANGUAGE C)
target_include_directories(toeplab-static INTERFACE $<INSTALL_INTERFACE:include/toeplab>)
target_link_libraries(toeplab-static INTERFACE ${STATIC_LIBRARIES})
add_dependencies(toeplab toeplab-static) # ./lab builds only toeplab, and this is installed with it

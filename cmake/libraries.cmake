# libraries.cmake - builds libtoeplab, the engine, and libtoeplab-lab, the laboratory above it: text,
# data sets, files and the store of runs, which need HDF5, zlib, SQLite and PCRE2. The objects of
# each are targets of their own, which tests of their insides link.
set(SCHEMA ${CMAKE_BINARY_DIR}/schema.h)
add_custom_command(OUTPUT ${SCHEMA} DEPENDS core/store/schema.sql cmake/embed.cmake
  COMMAND ${CMAKE_COMMAND} -DIN=core/store/schema.sql -DOUT=${SCHEMA} -DNAME=schema
    -P cmake/embed.cmake
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})

file(GLOB ENGINE CONFIGURE_DEPENDS core/context.c core/base/*.c core/engine/*.c core/ops/*.c
  core/products/*.c core/scan/*.c core/tno/*.c core/ranks/*.c)
add_library(engine-objects OBJECT ${ENGINE})
set(STATIC_LIBRARIES ${OPENBLAS_LIBRARIES} ${LIBMD_LIBRARIES} ${ONEDNN_LIBRARIES} pthread m dl)
target_include_directories(engine-objects PUBLIC core)
target_link_libraries(engine-objects PRIVATE PkgConfig::OPENBLAS PkgConfig::LIBMD Threads::Threads
  m dl ${ONEDNN_LIBRARIES})
target_compile_definitions(engine-objects PRIVATE ${ONEDNN_DEFINITIONS})

file(GLOB LAB CONFIGURE_DEPENDS core/lab.c core/images/*.c core/store/*.c core/text/*.c)
add_library(lab-objects OBJECT ${LAB} ${SCHEMA})
target_include_directories(lab-objects PUBLIC core PRIVATE ${HDF5_INCLUDE_DIRS} ${CMAKE_BINARY_DIR})
target_link_libraries(lab-objects PRIVATE ${HDF5_LIBRARIES} ZLIB::ZLIB PkgConfig::SQLITE
  PkgConfig::PCRE2 Threads::Threads m)

add_library(toeplab-core SHARED)
add_library(toeplab-lab SHARED)
set_target_properties(toeplab-core PROPERTIES OUTPUT_NAME toeplab EXPORT_NAME toeplab)
set_target_properties(toeplab-lab PROPERTIES EXPORT_NAME lab)
foreach(name core lab)
  set(symbols ${CMAKE_BINARY_DIR}/${name}.map)
  configure_file(cmake/${name}.map.in ${symbols} @ONLY)
  set_target_properties(toeplab-${name} PROPERTIES LINKER_LANGUAGE C VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${symbols})
  target_include_directories(toeplab-${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/core>
    $<INSTALL_INTERFACE:include/toeplab>)
  # A library calls its own functions, also where the program has one of the same name.
  target_link_options(toeplab-${name} PRIVATE -Wl,--version-script=${symbols}
    -Wl,-Bsymbolic-functions)
endforeach()
target_link_libraries(toeplab-core PRIVATE engine-objects)
target_link_libraries(toeplab-lab PUBLIC toeplab-core PRIVATE lab-objects)
set_target_properties(toeplab-lab PROPERTIES INSTALL_RPATH $ORIGIN)

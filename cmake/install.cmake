# install.cmake - says where each file is installed. An installation may be moved: everything is
# found from where the program and the library are. The component `library` is what a Lua
# interpreter and the program need; a rock has nothing else.
file(RELATIVE_PATH UP /${CMAKE_INSTALL_LIBDIR} /)
string(REGEX REPLACE "/$" "" UP "${UP}")
# what a program needs that is linked with the engine's static library
set(STATIC_FLAGS ${STATIC_LIBRARIES})
list(TRANSFORM STATIC_FLAGS PREPEND -l)
list(JOIN STATIC_FLAGS " " STATIC_FLAGS)
configure_file(docs/toeplab.pc.in toeplab.pc @ONLY)
configure_file(docs/toeplab-lab.pc.in toeplab-lab.pc @ONLY)
set(library COMPONENT library)
install(TARGETS toeplab RUNTIME DESTINATION bin ${library})
install(TARGETS toeplab-core toeplab-lab EXPORT libraries
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${library} NAMELINK_COMPONENT development)
if(TARGET toeplab-static)
  install(TARGETS toeplab-static EXPORT libraries
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
endif()
install(TARGETS ${BACKENDS} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/toeplab/backends ${library})
if(HAS_CUDA)
  install(TARGETS cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/toeplab/devices ${library})
endif()
if(HAS_MPI)
  install(TARGETS mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/toeplab/ranks ${library})
endif()
if(HAS_NCCL)
  install(TARGETS nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/toeplab/ranks ${library})
endif()
if(LIVE)
  install(TARGETS ${LIVE} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/toeplab/live ${library})
endif()
install(TARGETS module LIBRARY DESTINATION ${TL_LUACDIR}/toeplab ${library})
install(DIRECTORY lua/toeplab DESTINATION ${TL_LUADIR} ${library} FILES_MATCHING PATTERN "*.lua")

install(FILES core/toeplab.h core/toeplab-lab.h core/backend.h core/status.h
  DESTINATION include/toeplab)
install(FILES ${CMAKE_BINARY_DIR}/toeplab.pc ${CMAKE_BINARY_DIR}/toeplab-lab.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
# find_package(toeplab) gives the targets toeplab::toeplab, toeplab::toeplab_static and
# toeplab::lab.
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/toeplab-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/toeplab-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/toeplab)
install(EXPORT libraries FILE toeplab-config.cmake NAMESPACE toeplab::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/toeplab)
install(TARGETS fftw_plain RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/toeplab/benches)
install(DIRECTORY experiments benches DESTINATION share/toeplab PATTERN "*.c" EXCLUDE)
install(DIRECTORY results/published DESTINATION share/toeplab)
file(GLOB DOCS CONFIGURE_DEPENDS docs/*.md) # messages and manual pages name these files
install(FILES LICENSE ${DOCS} docs/mixer.lua docs/example.c docs/signal.c docs/generate.c
  DESTINATION share/doc/toeplab)
install(DIRECTORY docs/figures docs/reference DESTINATION share/doc/toeplab)
install(FILES docs/completion/toeplab DESTINATION share/bash-completion/completions)
install(FILES docs/completion/_toeplab DESTINATION share/zsh/site-functions)
install(FILES docs/completion/toeplab.fish DESTINATION share/fish/vendor_completions.d)

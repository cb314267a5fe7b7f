# manual.cmake - the pages that the program itself writes from its declarations (docs/make), by
# `ninja manual` and before an installation, because a change of a Lua file builds nothing.
# The pages of docs/reference have parts of the same kind, which `ninja reference` writes in place.
set(manual ${CMAKE_BINARY_DIR}/manual)
file(MAKE_DIRECTORY ${manual})
set(make_manual ${CMAKE_SOURCE_DIR}/docs/make/make.lua ${manual})
add_custom_target(manual COMMAND toeplab lua ${make_manual})
add_custom_target(reference COMMAND toeplab lua ${CMAKE_SOURCE_DIR}/docs/make/make.lua)
string(REPLACE ";" "\" \"" make_manual "${make_manual}")
install(CODE "execute_process(COMMAND \"$<TARGET_FILE:toeplab>\" lua \"${make_manual}\"
  COMMAND_ERROR_IS_FATAL ANY)")
install(FILES ${manual}/toeplab.1 DESTINATION share/man/man1)
install(FILES ${manual}/toeplab-lua.7 ${manual}/toeplab-layers.7 DESTINATION share/man/man7)
install(FILES ${manual}/toeplab.d.lua DESTINATION share/toeplab/types)

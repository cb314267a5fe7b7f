# benches.cmake - programs that `toeplab bench` measures beside us: FFTW used plainly.
add_executable(fftw_plain benches/fftw_plain.c)
target_link_libraries(fftw_plain PRIVATE PkgConfig::FFTW Threads::Threads m)
add_dependencies(toeplab fftw_plain) # ./lab builds no more than toeplab, and it is installed
install(TARGETS fftw_plain RUNTIME DESTINATION lib/toeplab/benches)

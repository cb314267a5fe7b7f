# benches.cmake - programs that `toeplab bench` measures beside us: FFTW used plainly.
add_executable(fftw_plain benches/fftw_plain.c)
target_link_libraries(fftw_plain PRIVATE PkgConfig::FFTW Threads::Threads m)
install(TARGETS fftw_plain RUNTIME DESTINATION lib/toeplab/benches)

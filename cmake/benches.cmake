# benches.cmake - builds fftw_plain, which uses FFTW directly and which `toeplab bench` compares
# with.
add_executable(fftw_plain benches/fftw_plain.c)
target_link_libraries(fftw_plain PRIVATE PkgConfig::FFTW Threads::Threads m)
add_dependencies(toeplab fftw_plain) # ./lab builds only toeplab, and this is installed with it

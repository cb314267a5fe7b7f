#!/bin/bash
# bundle.sh - makes a bundle, unpacks it in another folder, uses it with an empty environment while
# nobody can read the sources and the build, then in a root with only a C library and a shell.
# bundle.sh TOEPLAB SOURCE: the exit code is 77 where a tool is missing. TOEPLAB_CMAKE: as for lab;
# by default the device cuda is compiled for one kind of GPU, where nvcc is here.
set -euo pipefail

skip() { echo "skipped: $*"; exit 77; }

# A namespace in which file systems may be mounted. Some machines allow none to users.
if [ -z "${APART-}" ] && unshare -rm true 2>/dev/null; then
    APART=1 exec unshare -rm "$0" "$@"
fi

build=${1%/*} source=$2
command -v patchelf >/dev/null || skip "no patchelf"
command -v python3 >/dev/null || skip "no python3"
[ "$(uname -m)" = x86_64 ] || skip "bundles are made on x86-64"
top=$(mktemp -d)
mounted=""
trap 'umount -l $mounted 2>/dev/null || :; rm -rf --one-file-system "$top"' EXIT
passed=0 failed=0

# check NAME COMMAND...: COMMAND must succeed; its output is shown if it fails.
check() {
    local name=$1
    shift
    if "$@" >"$top/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok $name"
    else
        failed=$((failed + 1))
        echo "not ok $name"
        cat "$top/out"
    fi
}

mkdir "$top/made" "$top/another folder"
TOEPLAB_CMAKE=${TOEPLAB_CMAKE--DCMAKE_CUDA_ARCHITECTURES=90} TOEPLAB_BUILD=$build \
    "$source/lab" bundle --tests "$top/made/toeplab.tar.gz"
alone() { [ "$(ls -A "$top/made")" = toeplab.tar.gz ]; }
check "nothing else is left there" alone
tar -xzf "$top/made/toeplab.tar.gz" -C "$top/another folder"
root=$(echo "$top/another folder"/*)

# ---- Elsewhere, with the sources hidden ----------------------------------------------------------
if [ -n "${APART-}" ]; then
    mount -t tmpfs none "$source"
    [ ! -d "$build" ] || mount -t tmpfs none "$build"
    hidden() { [ ! -e "$source/CMakeLists.txt" ] && [ ! -e "$build/toeplab" ]; }
    check "the sources are hidden" hidden
else
    echo "the sources stay in reach: no namespaces here"
fi
cd /

# Only glibc and CUDA come from outside.
libraries() {
    find "$root" -type f \( -name '*.so*' -o -name toeplab -o -name fftw_plain \) >"$top/linked"
    grep -q '/lib/libtoeplab.so' "$top/linked" || return 1
    while read -r file; do LD_LIBRARY_PATH="$root/lib" ldd "$file"; done <"$top/linked" |
        grep -vE '^\s*(/[^ ]*/ld-linux|linux-vdso|lib(c|m|dl|pthread|rt|resolv|gcc_s)\.so)' |
        grep -vE '^\s*lib(cudart|cublas|cublasLt|cufft)\.so' |
        grep -vE 'statically linked' | grep -vF "$top" && return 1
    return 0
}
check "every library is inside" libraries
own() { env -i HOME="$top/home" PATH=/usr/bin:/bin "$@"; }
mkdir "$top/home"
version() { own "$root/bin/toeplab" --version | grep '^toeplab'; }
check "toeplab --version" version
doctor() {
    own "$root/bin/toeplab" doctor -C "$top/home" >"$top/doctor" || { cat "$top/doctor"; return 1; }
    cat "$top/doctor"
    grep -q '^backends .*fft.*rac' "$top/doctor" && ! grep -q 'BAD' "$top/doctor"
}
check "doctor" doctor
cuda() { # it loads; whether there is a GPU is another matter
    grep '^cuda' "$top/doctor" && ! grep -q '^cuda .*cannot open shared object' "$top/doctor"
}
if [ -f "$root/lib/toeplab/devices/cuda.so" ]; then check "cuda finds its libraries" cuda; fi
reference=$root/share/toeplab/tests/reference.h5
check "verify" own "$root/bin/toeplab" verify -q "$reference"
check "... as on a processor of the lowest level" own \
    GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX2 "$root/bin/toeplab" verify -q "$reference"
if [ -f "$root/bin/tests/emulated.so" ]; then
    check "... on the emulated GPU" own "$root/bin/toeplab" verify -q \
        --device "$root/bin/tests/emulated.so" "$reference"
fi
quickstart() {
    words=$(sed -n 's/^ *\(bin\/toeplab run .*\)/\1/p' "$root/ABOUT")
    # shellcheck disable=SC2086 # words are to split
    cd "$root" && own $words -C "$top/results"
}
check "the quickstart, as ABOUT has it" quickstart

# ---- In a root of its own ------------------------------------------------------------------------
if [ -n "${APART-}" ] && mkdir "$top/root" && cd "$top/root" && mkdir -p proc dev bin tmp; then
    mv "$root" toeplab
    loader=$(ldd /bin/sh | grep -o '/[^ ]*ld-linux[^ ]*')
    libraries=$(dirname "$(ldd /bin/sh | grep -o '/[^ ]*libc\.so[^ ]*')")
    cp -L /bin/sh /bin/cat /bin/mkdir bin
    mkdir -p ".$libraries" ".$(dirname "$loader")"
    cp -L "$loader" ".$loader"
    for name in c m dl pthread rt resolv gcc_s; do
        cp -L "$libraries/lib$name.so".[0-9] ".$libraries"
    done
    touch dev/null
    mount --bind /dev/null dev/null
    mount --rbind /proc proc
    mounted="$top/root/dev/null $top/root/proc"
    inside() { env -i HOME=/tmp PATH=/bin "$(command -v chroot)" "$top/root" "$@"; }
    check "a C library is enough to verify" inside /toeplab/bin/toeplab verify -q \
        /toeplab/share/toeplab/tests/reference.h5
    check "... and for the quickstart" inside /toeplab/bin/toeplab run -C /tmp/results \
        /toeplab/share/toeplab/experiments/quickstart.lua scale=smoke
else
    echo "skipped: a root of its own, which needs a namespace"
fi

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

#!/bin/sh
# lab.sh - tests the script lab on a program of one line, in a folder with a space in its name.
# lab.sh SOURCE
set -eu

source=$1
top=$(mktemp -d)
trap 'chmod -R u+w "$top"; rm -rf "$top"' EXIT
tree="$top/a tree"
mkdir -p "$tree/cmake" "$tree/core" "$tree/backends" "$tree/lua" "$tree/benches"
cp "$source/lab" "$tree/lab"
cat >"$tree/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(tiny LANGUAGES C)
file(GLOB CORE CONFIGURE_DEPENDS core/*.c)
add_executable(toeplab ${CORE})
enable_testing()
add_test(NAME tiny COMMAND toeplab)
END
cat >"$tree/core/main.c" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv)
{
    const char *name = getenv("LAB_NAME");
    if (argc > 1 && strcmp(argv[1], "name") == 0) return puts(name ? name : "") < 0;
    for (int i = 1; i < argc; i++) printf("[%s]", argv[i]);
    return 0;
}
END
unset CC CFLAGS TOEPLAB_BUILD TOEPLAB_CMAKE
cd "$top"
passed=0
failed=0
somebody=

# check NAME STATUS OUTPUT MESSAGE ARGUMENTS...: compares what lab prints on each stream; MESSAGE is
# a pattern, or - for none.
check() {
    name=$1 status=$2 output=$3 message=$4 got=0
    shift 4
    # shellcheck disable=SC2086 # a command and its words, or none
    $somebody "$tree/lab" "$@" >out 2>err || got=$?
    if [ "$message" = - ]; then message='^$'; fi
    if [ "$got" = "$status" ] && [ "$(cat out)" = "$output" ] &&
        { [ "$message" = '^$' ] && ! [ -s err ] || grep -q "$message" err; }; then
        passed=$((passed + 1))
        echo "ok $name"
    else
        failed=$((failed + 1))
        printf 'not ok %s: status %s\n' "$name" "$got"
        cat out err
    fi
}

check "--help before anything is built" 0 "$("$tree/lab" help)" - --help
check "bundle --help" 0 "$("$tree/lab" bundle --help)" - bundle -h
check "bundle: an unknown option" 2 "" "^lab: bundle has no option '--all'" bundle --all
check "bundle: another ending" 2 "" "^lab: bundle: 'x.zip' must end in .tar.gz" bundle x.zip
check "bundle: a folder that is not there" 2 "" "^lab: bundle: cannot write to no/such" \
    bundle no/such/x.tar.gz
check "the first start builds" 0 "[run][a b]" "^lab: building" run "a b"
check "the second only starts" 0 "[x]" - x
check "hints of the program name the script" 0 "$tree/lab" - name
export TOEPLAB_CMAKE=-DSOME=1
check "other options configure anew" 0 "[x]" "^lab: configuring" x
unset TOEPLAB_CMAKE
check "... and are kept where none are given" 0 "[x]" - x
export TOEPLAB_CMAKE=
check "... until they are empty" 0 "[x]" "^lab: configuring" x
unset TOEPLAB_CMAKE
touch "$tree/core/main.c"
check "--help builds nothing" 0 "[--help]" - --help
check "an edit is built" 0 "[x]" "^lab: building" x
echo "int f(void) { return nothing; }" >"$tree/core/f.c"
check "the compiler's first error is shown" 2 "" "core/f.c:1:22: error: .nothing. undeclared" x
check "and again" 2 "" "^lab: failed: building" x
rm "$tree/core/f.c"
check "a removed file is noticed" 0 "[x]" "^lab: building" x
cp -R "$tree" "$top/moved"
tree="$top/moved"
# As Toeplab's own CMake files decide where there is nvcc and no GPU.
cp "$tree/CMakeLists.txt" lists
echo 'option(TL_CUDA "" OFF)' >>"$tree/CMakeLists.txt"
mkdir tools
ln -s /bin/true tools/nvcc
path=$PATH
PATH=$top/tools:$PATH
rm -r "$tree/build"
check "nvcc without a GPU: the device is left out" 0 "[x]" \
    "^lab: nvcc is here but no GPU: .*TOEPLAB_CMAKE=-DTL_CUDA=ON" x
rm -r "$tree/build"
export TOEPLAB_CMAKE=-DTL_CUDA=ON
check "... unless an option requests it" 0 "[x]" "^lab: building" x
grep -q "device cuda is left out" err && failed=$((failed + 1))
unset TOEPLAB_CMAKE
PATH=$path
cp lists "$tree/CMakeLists.txt"
rm -r "$tree/build"
check "a moved tree is configured anew" 0 "[x]" "^lab: configuring" x
TOEPLAB_BUILD="$top/else where"
export TOEPLAB_BUILD
check "a wheel goes to one folder" 2 "" "^lab: wheel takes one folder" wheel a b
check "another build folder" 0 "[x]" "^lab: building in $TOEPLAB_BUILD" x
check "is kept" 0 "[x]" - x
touch "$tree/benches/x.c"
check "an edited bench is built" 0 "[x]" "^lab: building" x
check "... and its folder removed" 0 "" - clean
mkdir "$TOEPLAB_BUILD"
check "... but no other" 2 "" "is not a build folder of lab" clean
rmdir "$TOEPLAB_BUILD"
TOEPLAB_BUILD="$top"
: >"$top/lab.setup"
check "... and not the checkout with it" 2 "" "holds this checkout" clean
rm "$top/lab.setup"
TOEPLAB_BUILD=/proc/build
check "a folder that cannot be written" 2 "" "^lab: cannot write to /proc/build: " x
unset TOEPLAB_BUILD
# Another user's checkout, built under other settings. Root may write everywhere, so it is nobody.
[ "$(id -u)" != 0 ] || somebody="setpriv --reuid 65534 --clear-groups"
chmod -R a+rX "$top"
chmod a-w "$tree/build"
export CC=gcc
check "what is built in a folder that cannot be written starts" 0 "[x]" - x
unset CC
chmod u+w "$tree/build"
somebody=
check "clean" 0 "" - clean
check "nothing is left to start" 0 "[x]" "^lab: configuring" x

# A package that is optional may be missing, one that is required may not.
mkdir fake
echo 'echo 0' >fake/id
cat >fake/dpkg-query <<'END'
for package; do :; done
[ "$package" = "$LACKS" ] || echo ii
END
cat >fake/apt-get <<'END'
for package; do :; done
echo "E: no $package"
[ "$package" != "$LACKS" ]
END
chmod +x fake/*
sed -i '1i #!/bin/sh' fake/*
whole=$PATH
PATH="$top/fake:$PATH"
export LACKS=libdnnl-dev
check "clean again" 0 "" - clean
check "an optional package is missing" 0 "[x]" "^lab: continuing without libdnnl-dev" x
LACKS=libhdf5-dev
check "and again clean" 0 "" - clean
check "a required package is missing" 2 "" "^lab: failed: installing what is required" x
PATH=$whole
check "without these" 0 "[x]" "^lab: configuring" x
echo "nonsense()" >>"$tree/CMakeLists.txt"
check "CMake's error is shown" 2 "" "CMake Error at CMakeLists.txt:7" x

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

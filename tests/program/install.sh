#!/bin/sh
# install.sh - installs a build into an empty folder, with a space in its name, and uses the
# installed program, library and module of Lua while nobody can read the sources and the build.
# install.sh BUILD SOURCE [CC [SANITISERS]]
set -eu

# A namespace in which file systems may be mounted. Some machines allow none to users.
if [ -z "${APART-}" ] && unshare -rm true 2>/dev/null; then
    APART=1 exec unshare -rm "$0" "$@"
fi

build=$1
source=$2
cc="${3:-cc} ${4:+-fsanitize=$4}"
sanitisers=${4-}
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
prefix="$top/a prefix"
passed=0
failed=0

# check NAME COMMAND...: COMMAND must succeed; its output is shown if it fails.
check() {
    name=$1
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

# ./lab builds only the target toeplab, but an installation also has the programs of bench.
built() { ninja -C "$build" -t commands toeplab | grep -q " fftw_plain "; }
if [ -e "$build/build.ninja" ]; then check "fftw_plain is built with toeplab" built; fi
check "cmake --install" cmake --install "$build" --prefix "$prefix"
for file in bin/toeplab lib/libtoeplab.so lib/libtoeplab-lab.so lib/pkgconfig/toeplab.pc \
    lib/pkgconfig/toeplab-lab.pc lib/cmake/toeplab/toeplab-config.cmake \
    include/toeplab/toeplab.h include/toeplab/toeplab-lab.h include/toeplab/backend.h \
    include/toeplab/status.h lib/toeplab/backends/naive.so \
    share/lua/5.4/toeplab/init.lua lib/lua/5.4/toeplab/core.so \
    share/toeplab/experiments/quickstart.lua share/doc/toeplab/LICENSE \
    lib/toeplab/benches/fftw_plain share/toeplab/benches/torch_peer.py \
    share/toeplab/published/tnn/table10.lua share/toeplab/published/ski/table2.lua \
    share/man/man1/toeplab.1 share/man/man7/toeplab-lua.7 share/man/man7/toeplab-layers.7 \
    share/toeplab/types/toeplab.d.lua share/zsh/site-functions/_toeplab \
    share/bash-completion/completions/toeplab share/fish/vendor_completions.d/toeplab.fish; do
    check "$file is there" test -s "$prefix/$file"
done
documents() { # that messages and manual pages name
    grep -rohE 'docs/[a-z/-]+\.(md|lua|c)\b' "$prefix/share/lua" "$prefix/share/man" >"$top/named"
    grep -q docs/live.md "$top/named"
    while read -r name; do test -s "$prefix/share/doc/toeplab/${name#docs/}" || echo "$name"; done \
        <"$top/named" >"$top/absent"
    cat "$top/absent"
    test ! -s "$top/absent"
}
check "the documents that it names are there" documents

cp "$source/docs/example.c" "$source/docs/signal.c" "$source/docs/c-api.md" "$top"
# From here on nothing may refer to the build folder or the sources.
unset TOEPLAB_BACKENDS TOEPLAB_DIR TOEPLAB_LUA LUA_PATH LUA_PATH_5_4 LUA_CPATH LUA_CPATH_5_4
unset LD_LIBRARY_PATH TOEPLAB_DEVICE
cd "$top"
if [ -n "${APART-}" ]; then
    mount -t tmpfs none "$source"
    [ ! -d "$build" ] || mount -t tmpfs none "$build"
    check "the sources are hidden" test ! -e "$source/CMakeLists.txt" -a ! -e "$build/toeplab"
else
    echo "the sources stay in reach: no namespaces here"
fi
check "toeplab --version" "$prefix/bin/toeplab" --version
uses() { ! ldd "$prefix/bin/toeplab" "$prefix/lib/lua/5.4/toeplab/core.so" | grep -F "$build"; }
check "the library is the installed one" uses
backends() {
    "$prefix/bin/toeplab" doctor --backends >list
    for backend in naive matrix fft; do grep -q "^$backend " list || return 1; done
}
check "the installed backends are found" backends
modules() { "$prefix/bin/toeplab" doctor | grep -F "$prefix/lib/toeplab/live/"; }
elsewhere() { # as CMAKE_INSTALL_LIBDIR=lib/some has them
    mkdir "$prefix/lib/some"
    mv "$prefix/lib/toeplab" "$prefix"/lib/libtoeplab* "$prefix/lib/some"
    LD_LIBRARY_PATH="$prefix/lib/some" "$prefix/bin/toeplab" doctor >doctor.out || :
    mv "$prefix"/lib/some/* "$prefix/lib"
    grep -F "$prefix/lib/some/toeplab/live/" doctor.out
}
if [ -d "$build/live" ]; then
    check "the installed modules are found" modules
    check "... in any folder of libraries" elsewhere
fi
cat >sum.lua <<'END'
local tl = require "toeplab"
local model = tl.nn.Linear(2, 3)
assert(model(tl.ones(4, 2)):dim(2) == 3)
print(package.searchpath("toeplab.nn", package.path))
END
lua() { "$prefix/bin/toeplab" lua sum.lua | grep -F "$prefix/bin/../share/lua/5.4/toeplab/nn"; }
check "a script finds the installed Lua library" lua
bench() {
    TOEPLAB_PYTHON= "$prefix/bin/toeplab" bench tno -q -r 1 --lengths 8 --batches 1 --dim 4 \
        -C "$top/benches" | grep -q "^n 8 b 1 .* fftw plain "
}
check "FFTW is measured beside us" bench
run() {
    "$prefix/bin/toeplab" run "$prefix/share/toeplab/experiments/quickstart.lua" -q -C "$top/runs" \
        scale=smoke >said 2>&1
    grep -q "n-gram" said || { cat said; return 1; }
}
if command -v bible >/dev/null; then
    check "the quickstart runs" run
else
    echo "skipped: no bible-kjv, so no quickstart"
fi
table() { "$prefix/bin/toeplab" table tnn/table10 | grep -q "^learnable  *27.65  *24.39$"; }
check "a published table is found" table

# Any interpreter of Lua 5.4. The sanitisers must be loaded before all else, which none is.
plain() {
    LUA_PATH="$prefix/share/lua/5.4/?.lua;$prefix/share/lua/5.4/?/init.lua" \
        LUA_CPATH="$prefix/lib/lua/5.4/?.so" lua5.4 "$@"
}
cat >plain.lua <<'END'
local tl = require "toeplab"
local prefix = arg[1]
assert(tl.sys.executable() == prefix .. "/bin/toeplab", tl.sys.executable())
tl.seed(1)
local model = tl.models.tnn_lm { vocab = 20, layers = 1, dim = 8 }
local opt = tl.optim.adam(model, { lr = 1e-2 })
local losses = {}
for step = 1, 8 do
  losses[step] = tl.train.lm_step(model, opt, tl.ids { { 1, 2, 3, 4, 5 } })
end
assert(losses[8] < losses[1], "no training")
local names = {}
for i, backend in ipairs(tl.backends()) do
  names[i] = backend.name
  assert(backend.path:find(prefix, 1, true) == 1, backend.path)
end
assert(table.concat(names, " "):find "naive.*rac", table.concat(names, " "))
print(("%.17g"):format(losses[8]))
END
if [ -z "$sanitisers" ] && command -v lua5.4 >/dev/null; then
    trains() { plain plain.lua "$prefix"; }
    check "lua5.4 trains with require \"toeplab\"" trains
    same() { [ "$(plain plain.lua "$prefix")" = "$("$prefix/bin/toeplab" lua plain.lua "$prefix")" ]; }
    check "to the same loss as the program, bit for bit" same
    threads() { ! TOEPLAB_THREADS=0 plain -e 'require "toeplab"' 2>said && grep -q "not '0'" said; }
    check "a wrong TOEPLAB_THREADS is an error" threads
    device() { ! TOEPLAB_DEVICE=no plain -e 'require "toeplab"' 2>said && grep -q "'no'" said; }
    check "a wrong TOEPLAB_DEVICE is an error" device
    alone() {
        mv "$prefix/bin/toeplab" away || return 1
        mkdir "$top/bin" && cp away "$top/bin/toeplab" || return 1 # another one, which is not ours
        plain -e 'assert(not pcall(require("toeplab").sys.executable))'
        status=$?
        rm -r "$top/bin"
        mv away "$prefix/bin/toeplab"
        return $status
    }
    check "without the program, what needs it is an error" alone
else
    echo "skipped: no lua5.4, or sanitisers"
fi

# The example of docs/c-api.md must compile without warnings, and print what the page shows.
compiles() { # PROGRAM
    PKG_CONFIG_PATH="$prefix/lib/pkgconfig" pkg-config --cflags --libs toeplab >flags &&
        eval "$cc -std=c11 -Wall -Wextra -Wpedantic -Werror $1.c $(cat flags) \
            '-Wl,-rpath,$prefix/lib' -o $1"
}
check "a C program compiles with pkg-config's flags" compiles example
prints() {
    ./example >printed && sed -n '/^    backend rac/,/^$/s/^    \(.\)/\1/p' c-api.md >shown &&
        test -s shown && diff shown printed
}
check "and prints what its page shows" prints
alone() { ! ldd example | grep -E 'hdf5|sqlite|pcre2|toeplab-lab'; }
check "and needs the engine alone" alone
# Names that no public header has are the program's, if it likes them.
cat >names.c <<'END'
#include <stdio.h>
#include <toeplab.h>
int called;
int tl_new(void) { return called = 1; }
int tl_alloc(void) { return called = 1; }
int tl_finish(void) { return called = 1; }
int main(void)
{
    tl_ctx       *ctx = NULL;
    tl_tensor    *x = NULL, *y = NULL;
    const int64_t n = 3;
    if (tl_ctx_new(1, &ctx) != TL_OK || tl_tensor_new(ctx, TL_F32, 1, &n, &x) != TL_OK ||
        tl_tensor_fill(x, 1) != TL_OK || tl_unary(TL_UNARY_exp, x, &y) != TL_OK || called)
        return 1;
    tl_tensor_free(y);
    tl_tensor_free(x);
    tl_ctx_free(ctx);
    return tl_new() + tl_alloc() + tl_finish() != 3;
}
END
own_names() { compiles names && ./names; }
check "a program's own functions may have the names of the library's private ones" own_names
found() { # in a folder of its own, by CMake
    mkdir found && cp example.c signal.c found && cat >found/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.22)
project(found C)
find_package(toeplab 0.1 REQUIRED)
add_executable(example example.c)
target_link_libraries(example toeplab::toeplab)
add_executable(signal signal.c)
target_link_libraries(signal toeplab::lab)
if(TARGET toeplab::toeplab_static)
  add_executable(static example.c)
  target_link_libraries(static toeplab::toeplab_static)
endif()
END
    cmake -S found -B found/build -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="${cc%% *}" \
        -DCMAKE_C_FLAGS="${sanitisers:+-fsanitize=$sanitisers}" &&
        cmake --build found/build && found/build/example | diff - shown
}
# The backends are inside the static library; a plugin is loaded all the same.
cat >list.c <<'END'
#include <stdio.h>
#include <toeplab.h>
int main(void)
{
    tl_ctx *ctx = NULL;
    if (tl_ctx_new(1, &ctx) != TL_OK) return 1;
    for (int i = 0; i < tl_backend_count(ctx); i++)
        printf("%s %s\n", tl_backend_name(ctx, i), tl_backend_path(ctx, i));
    tl_ctx_free(ctx);
    return 0;
}
END
static() { # PROGRAM: it prints what the page shows, and links no library of ours
    "$@" | diff - printed && ! ldd "$1" | grep toeplab
}
archive() {
    PKG_CONFIG_PATH="$prefix/lib/pkgconfig" pkg-config --static \
        --define-variable=library=:libtoeplab.a --cflags --libs toeplab >flags &&
        for file in example list; do
            eval "$cc -std=c11 -Wall -Werror $file.c $(cat flags) -o static-$file" || return 1
        done
    static ./static-example
}
plugins() {
    mkdir plugins && cp "$prefix/lib/toeplab/backends/fft.so" plugins &&
        TOEPLAB_BACKENDS="$top/plugins" ./static-list >names &&
        grep -qx "rac the program" names && grep -qx "fft $top/plugins/fft.so" names
}
learns() {
    sed -n '/^    step   1/,/^$/s/^    \(.\)/\1/p' c-api.md >shown && test -s shown &&
        found/build/signal | diff - shown
}
check "CMake's find_package finds both libraries" found
if [ -e "$prefix/lib/libtoeplab.a" ]; then
    check "a static program compiles with pkg-config's flags, and computes" archive
    check "it loads a plugin beside its own backends" plugins
    check "find_package finds the static library" static found/build/static
fi
check "a program in C learns, saves and loads a filter" learns
example() {
    PKG_CONFIG_PATH="$prefix/lib/pkgconfig" pkg-config --cflags --libs toeplab-lab >flags &&
        eval "$cc '$prefix/share/doc/toeplab/generate.c' $(cat flags) -lm -o generate"
}
check "the example that generates compiles" example

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]

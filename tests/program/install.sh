#!/bin/sh
# install.sh - installs a build into an empty folder, with a space in its name, and uses the
# installed program. install.sh BUILD [CC [SANITISERS]]
set -eu

build=$1
cc="${2:-cc} ${3:+-fsanitize=$3}"
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
for file in bin/toeplab lib/libtoeplab.so lib/pkgconfig/toeplab.pc include/toeplab/toeplab.h \
    include/toeplab/backend.h include/toeplab/status.h lib/toeplab/backends/naive.so \
    share/toeplab/lua/toeplab/init.lua share/toeplab/experiments/quickstart.lua \
    lib/toeplab/benches/fftw_plain share/toeplab/benches/torch_peer.py \
    share/toeplab/published/tnn/table10.lua share/toeplab/published/ski/table2.lua \
    share/man/man1/toeplab.1 share/man/man7/toeplab-lua.7 share/zsh/site-functions/_toeplab \
    share/bash-completion/completions/toeplab share/fish/vendor_completions.d/toeplab.fish; do
    check "$file is there" test -s "$prefix/$file"
done

# From here on nothing may refer to the build folder or the sources.
unset TOEPLAB_BACKENDS TOEPLAB_DIR LUA_PATH LUA_PATH_5_4 LD_LIBRARY_PATH
cd "$top"
check "toeplab --version" "$prefix/bin/toeplab" --version
uses() { ! ldd "$prefix/bin/toeplab" | grep -F "$build"; }
check "the library is the installed one" uses
backends() {
    "$prefix/bin/toeplab" doctor --backends >list
    for backend in naive matrix fft; do grep -q "^$backend " list || return 1; done
}
check "the installed backends are found" backends
cat >sum.lua <<'END'
local tl = require "toeplab"
local model = tl.nn.Linear(2, 3)
assert(model(tl.ones(4, 2)):dim(2) == 3)
print(package.searchpath("toeplab.nn", package.path))
END
lua() { "$prefix/bin/toeplab" lua sum.lua | grep -F "$prefix/bin/../share/toeplab/lua/toeplab/nn"; }
check "a script finds the installed Lua library" lua
bench() {
    TOEPLAB_PYTHON= "$prefix/bin/toeplab" bench tno -q -r 1 --lengths 8 --batches 1 --dim 4 \
        -C "$top/benches" | grep -q "^n 8 b 1 .* fftw plain "
}
check "FFTW is measured beside us" bench
table() { "$prefix/bin/toeplab" table tnn/table10 | grep -q "^learnable  *27.65  *24.39$"; }
check "a published table is found" table

cat >sum.c <<'END'
#include <math.h>
#include <stdio.h>
#include <toeplab.h>

int main(void)
{
    tl_ctx    *ctx = NULL;
    tl_tensor *x = NULL, *y = NULL;
    int64_t    dims[] = {2, 3};
    if (tl_ctx_new(1, &ctx) != TL_OK) return 1;
    int ok = tl_tensor_new(ctx, TL_F32, 2, dims, &x) == TL_OK && tl_tensor_fill(x, 0.5) == TL_OK &&
             tl_reduce(TL_SUM, x, TL_ALL, 0, &y) == TL_OK && tl_tensor_f32(y)[0] == 3.0f;
    if (!ok) puts(tl_errmsg(ctx));
    ok = ok && tl_backend_count(ctx) >= 3;
    tl_tensor_free(x);
    tl_tensor_free(y);
    tl_ctx_free(ctx);
    return !ok;
}
END
compiles() {
    PKG_CONFIG_PATH="$prefix/lib/pkgconfig" pkg-config --cflags --libs toeplab >flags &&
        eval "$cc sum.c $(cat flags) '-Wl,-rpath,$prefix/lib' -o sum"
}
check "a C program compiles with pkg-config's flags" compiles
check "and runs" ./sum

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
